package logs

import (
	"encoding/json"
	"regexp"
	"strings"
)

// filter says whether a message matches a filter pattern.
type filter func(message string) bool

// comparison is the one JSON pattern that the region has: { $.some.property = "text" }.
var comparison = regexp.MustCompile(`^\{\s*\$\.([\w-]+(?:\.[\w-]+)*)\s*=\s*"([^"*\\]*)"\s*\}$`)

// parseFilter reads a filter pattern: plain or quoted terms, all of which must
// occur, or a property of a JSON message that must equal a text. Further JSON
// patterns, regular expressions, columns, and terms that are optional or must
// not occur are refused:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html
func parseFilter(pattern string) (filter, error) {
	pattern = strings.TrimSpace(pattern)
	if found := comparison.FindStringSubmatch(pattern); found != nil {
		return property(strings.Split(found[1], "."), found[2]), nil
	}
	var terms []string
	for rest := pattern; rest != ""; rest = strings.TrimSpace(rest) {
		var term string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if term, rest, ok = strings.Cut(quoted, `"`); !ok {
				return nil, invalid("Invalid filter pattern %q: unbalanced quote", pattern)
			}
		} else {
			if strings.ContainsAny(rest[:1], "{[%-?") {
				return nil, invalid("this region's filter patterns are terms, or { $.property = \"text\" }, not %q", pattern)
			}
			term, rest, _ = strings.Cut(rest, " ")
		}
		terms = append(terms, term)
	}
	return containsAll(terms), nil
}

// containsAll matches messages in which every term occurs.
func containsAll(terms []string) filter {
	return func(message string) bool {
		for _, term := range terms {
			if !strings.Contains(message, term) {
				return false
			}
		}
		return true
	}
}

// property matches JSON messages that have a text at a path.
func property(path []string, want string) filter {
	return func(message string) bool {
		var value any
		if json.Unmarshal([]byte(message), &value) != nil {
			return false
		}
		for _, name := range path {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		return value == want
	}
}
