package iam

import (
	"strconv"
	"strings"
)

// condition is one key of a condition block; a statement's conditions must all
// hold.
type condition struct {
	operator operator
	key      string // lower case: condition keys do not differ by case
	values   []string
}

// operator is a condition operator taken apart: ForAllValues:StringNotLikeIfExists.
type operator struct {
	name     string
	compare  func(value string, wanted pattern) bool
	negated  bool // true unless one of the wanted values compares
	ifExists bool
	quantify string // "", "ForAllValues" or "ForAnyValue"
}

// comparisons are the operators that the judge knows, but for Null. Dates,
// addresses and binary values are not among them.
func comparisons() map[string]operator {
	equal := func(value string, wanted pattern) bool { return value == wanted.literal() }
	equalFold := func(value string, wanted pattern) bool { return strings.EqualFold(value, wanted.literal()) }
	like := func(value string, wanted pattern) bool { return wanted.match(value) }
	number := func(compare func(value, wanted float64) bool) func(string, pattern) bool {
		return func(text string, wanted pattern) bool {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return false
			}
			limit, err := strconv.ParseFloat(wanted.literal(), 64)
			return err == nil && compare(value, limit)
		}
	}
	numberEqual := number(func(value, wanted float64) bool { return value == wanted })
	return map[string]operator{
		"StringEquals":              {compare: equal},
		"StringNotEquals":           {compare: equal, negated: true},
		"StringEqualsIgnoreCase":    {compare: equalFold},
		"StringNotEqualsIgnoreCase": {compare: equalFold, negated: true},
		"StringLike":                {compare: like},
		"StringNotLike":             {compare: like, negated: true},
		"ArnEquals":                 {compare: arnLike},
		"ArnLike":                   {compare: arnLike},
		"ArnNotEquals":              {compare: arnLike, negated: true},
		"ArnNotLike":                {compare: arnLike, negated: true},
		"Bool":                      {compare: equalFold},
		"NumericEquals":             {compare: numberEqual},
		"NumericNotEquals":          {compare: numberEqual, negated: true},
		"NumericLessThan":           {compare: number(func(value, wanted float64) bool { return value < wanted })},
		"NumericLessThanEquals":     {compare: number(func(value, wanted float64) bool { return value <= wanted })},
		"NumericGreaterThan":        {compare: number(func(value, wanted float64) bool { return value > wanted })},
		"NumericGreaterThanEquals":  {compare: number(func(value, wanted float64) bool { return value >= wanted })},
	}
}

func parseOperator(text string) (operator, error) {
	rest := text
	var parsed operator
	if quantifier, name, found := strings.Cut(rest, ":"); found {
		if quantifier != "ForAllValues" && quantifier != "ForAnyValue" {
			return operator{}, malformed("Invalid Condition type : %s", text)
		}
		parsed.quantify, rest = quantifier, name
	}
	if rest == "Null" && parsed.quantify == "" {
		return operator{name: "Null"}, nil
	}
	name, ifExists := strings.CutSuffix(rest, "IfExists")
	known, ok := comparisons()[name]
	if !ok {
		return operator{}, malformed("Invalid Condition type : %s (or one that this region does not know)", text)
	}
	known.name, known.ifExists, known.quantify = name, ifExists, parsed.quantify
	return known, nil
}

func parseConditions(block map[string]map[string]oneOrMany[scalar]) ([]condition, error) {
	var parsed []condition
	for name, keys := range block {
		op, err := parseOperator(name)
		if err != nil {
			return nil, err
		}
		for key, values := range keys {
			each := condition{operator: op, key: strings.ToLower(key)}
			for _, value := range values {
				each.values = append(each.values, string(value))
			}
			if op.name == "Null" && (len(each.values) != 1 || each.values[0] != "true" && each.values[0] != "false") {
				return nil, malformed("Null takes true or false, for the key %s it has %q", key, each.values)
			}
			parsed = append(parsed, each)
		}
	}
	return parsed, nil
}

// holds says whether the condition holds. The request's context has one value
// for a key, so a set operator judges a set of one.
func (c condition) holds(context requestContext) bool {
	value, present := context[c.key]
	if c.operator.name == "Null" {
		return present == (c.values[0] == "false")
	}
	if !present {
		switch {
		case c.operator.quantify == "ForAllValues", c.operator.ifExists:
			return true
		case c.operator.quantify == "ForAnyValue":
			return false
		default:
			return c.operator.negated
		}
	}
	for _, text := range c.values {
		// A value with a variable that the request lacks compares with nothing.
		if wanted, ok := context.expand(text); ok && c.operator.compare(value, wanted) {
			return !c.operator.negated
		}
	}
	return c.operator.negated
}

// arnLike compares two ARNs part by part, so that a wildcard does not reach
// over a colon into the next part, save in the last one.
func arnLike(value string, wanted pattern) bool {
	const parts = 6
	values := strings.SplitN(value, ":", parts)
	patterns := wanted.split(':', parts)
	if len(values) != parts || len(patterns) != parts {
		return false
	}
	for i := range parts {
		if !patterns[i].match(values[i]) {
			return false
		}
	}
	return true
}
