package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pattern is an event pattern, as far as it goes here: nested objects, and
// lists of which one member has to match: a literal, prefix, suffix,
// equals-ignore-case, anything-but (literals or a prefix), exists.
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-create-pattern-operators.html
type pattern map[string]field

// field is what a pattern asks of one key: another pattern, or one of the
// alternatives.
type field struct {
	nested       pattern
	alternatives []alternative
}

// alternative judges the value of a key that has no nested objects, found is
// false when the key is not there.
type alternative func(value any, found bool) bool

const maxPattern = 4096 // characters

func parsePattern(text string) (pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it is longer than %d characters", maxPattern)
	}
	document, err := parse([]byte(text))
	if err != nil {
		return nil, err
	}
	object, ok := document.(map[string]any)
	if !ok {
		return nil, errors.New("it is not an object")
	}
	return newPattern("", object)
}

func newPattern(at string, object map[string]any) (pattern, error) {
	if len(object) == 0 {
		return nil, fmt.Errorf("empty objects are not allowed: %q", at)
	}
	p := pattern{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		path := strings.TrimPrefix(at+"."+key, ".")
		if strings.HasPrefix(key, "$") {
			return nil, fmt.Errorf("this region has no %s", path)
		}
		switch asked := object[key].(type) {
		case map[string]any:
			nested, err := newPattern(path, asked)
			if err != nil {
				return nil, err
			}
			p[key] = field{nested: nested}
		case []any:
			if len(asked) == 0 {
				return nil, fmt.Errorf("empty arrays are not allowed: %q", path)
			}
			var alternatives []alternative
			for _, member := range asked {
				a, err := newAlternative(path, member)
				if err != nil {
					return nil, err
				}
				alternatives = append(alternatives, a)
			}
			p[key] = field{alternatives: alternatives}
		default:
			return nil, fmt.Errorf("%q must be an object or an array", path)
		}
	}
	return p, nil
}

func newAlternative(path string, member any) (alternative, error) {
	object, ok := member.(map[string]any)
	if !ok {
		if !literal(member) {
			return nil, fmt.Errorf("%q has a member that is neither a literal nor a rule", path)
		}
		return func(value any, found bool) bool { return found && value == member }, nil
	}
	if len(object) != 1 {
		return nil, fmt.Errorf("%q has a rule that is not exactly one", path)
	}
	for name, operand := range object {
		if a := newRule(name, operand); a != nil {
			return a, nil
		}
		return nil, fmt.Errorf("%q: this region has no rule %s with %v", path, name, operand)
	}
	return nil, nil // not reached: there is one
}

// newRule returns nil for rules that it does not know.
func newRule(name string, operand any) alternative {
	if name == "exists" {
		if wanted, ok := operand.(bool); ok {
			return func(_ any, found bool) bool { return found == wanted }
		}
		return nil
	}
	if name == "anything-but" {
		return newAnythingBut(operand)
	}
	text, ok := operand.(string)
	compare := map[string]func(value, operand string) bool{
		"prefix": strings.HasPrefix, "suffix": strings.HasSuffix, "equals-ignore-case": strings.EqualFold,
	}[name]
	if !ok || compare == nil {
		return nil
	}
	return func(value any, _ bool) bool {
		got, isText := value.(string)
		return isText && compare(got, text)
	}
}

func newAnythingBut(operand any) alternative {
	if object, ok := operand.(map[string]any); ok {
		prefix, ok := object["prefix"].(string)
		if !ok || len(object) != 1 {
			return nil
		}
		return func(value any, found bool) bool {
			text, isText := value.(string)
			return found && (!isText || !strings.HasPrefix(text, prefix))
		}
	}
	list, ok := operand.([]any)
	if !ok {
		list = []any{operand}
	}
	for _, member := range list {
		switch member.(type) {
		case string, json.Number:
		default:
			return nil
		}
	}
	return func(value any, found bool) bool { return found && !slices.Contains(list, value) }
}

func literal(value any) bool {
	switch value.(type) {
	case nil, string, bool, json.Number:
		return true
	}
	return false
}

// matches says whether a document satisfies the pattern. Of a list in the
// document, one member has to.
func (p pattern) matches(document any) bool {
	if list, ok := document.([]any); ok {
		return slices.ContainsFunc(list, p.matches)
	}
	object, ok := document.(map[string]any)
	if !ok {
		// Nothing is here: all that is asked has to be content with that.
		object = map[string]any{}
	}
	for key, asked := range p {
		value, found := object[key]
		if asked.nested != nil {
			if !asked.nested.matches(value) {
				return false
			}
			continue
		}
		if !asked.matches(value, found) {
			return false
		}
	}
	return true
}

func (f field) matches(value any, found bool) bool {
	values := []any{value}
	if list, ok := value.([]any); ok {
		values = list
		found = len(list) > 0
		if !found {
			values = []any{nil}
		}
	} else if _, isObject := value.(map[string]any); isObject {
		values, found = []any{nil}, false // a list of a pattern is about leaves
	}
	return slices.ContainsFunc(f.alternatives, func(a alternative) bool {
		return slices.ContainsFunc(values, func(v any) bool { return a(v, found) })
	})
}
