package iam

import (
	"strings"
	"unicode/utf8"
)

// requestContext is the condition keys of a request, in lower case.
type requestContext map[string]string

// pattern is a text of a policy in which variables have been replaced by their
// values: a wildcard in a variable's value is no wildcard.
type pattern []symbol

type symbol struct {
	char rune
	wild bool
}

// expand reads a text of a policy. It fails when the text has a variable that
// the request does not have.
func (context requestContext) expand(text string) (pattern, bool) {
	var expanded pattern
	for text != "" {
		if name, rest, found := variable(text); found {
			value, ok := context[strings.ToLower(name)]
			switch name {
			case "*", "?", "$": // the escapes of these characters
				value, ok = name, true
			}
			if !ok {
				return nil, false
			}
			for _, r := range value {
				expanded = append(expanded, symbol{char: r})
			}
			text = rest
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		expanded = append(expanded, symbol{char: r, wild: r == '*' || r == '?'})
		text = text[size:]
	}
	return expanded, true
}

// variable reads a policy variable, ${name}, at the start of a text.
func variable(text string) (name, rest string, found bool) {
	inner, found := strings.CutPrefix(text, "${")
	if !found {
		return "", "", false
	}
	return strings.Cut(inner, "}")
}

// match says whether the pattern fits a text: * fits any characters, also
// none, and ? fits one.
func (p pattern) match(text string) bool {
	chars := []rune(text)
	at, star, retry := 0, -1, 0
	i := 0
	for i < len(chars) {
		switch {
		case at < len(p) && p[at].wild && p[at].char == '*':
			star, retry = at, i
			at++
		case at < len(p) && (p[at].wild || p[at].char == chars[i]):
			at++
			i++
		case star >= 0: // let the last star take one more character
			retry++
			at, i = star+1, retry
		default:
			return false
		}
	}
	for at < len(p) && p[at].wild && p[at].char == '*' {
		at++
	}
	return at == len(p)
}

// literal is the pattern's text, for operators without wildcards.
func (p pattern) literal() string {
	var text strings.Builder
	for _, each := range p {
		text.WriteRune(each.char)
	}
	return text.String()
}

// split cuts the pattern at a separator into at most n parts.
func (p pattern) split(separator rune, n int) []pattern {
	var parts []pattern
	start := 0
	for i, each := range p {
		if each.char == separator && !each.wild && len(parts) < n-1 {
			parts = append(parts, p[start:i])
			start = i + 1
		}
	}
	return append(parts, p[start:])
}
