package dynamodb

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The language of condition and filter expressions, less the functions that
// nobody here uses:
//
//	condition := and { OR and }
//	and       := not { AND not }
//	not       := NOT not | "(" condition ")" | function "(" path ")" | operand comparator operand
//	operand   := path | :value
//	path      := name { "." name | "[" index "]" }
//	name      := identifier | #placeholder
//
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html

// condition is a parsed condition: it says whether an item (nil: none)
// satisfies it.
type condition func(item) bool

//go:embed reserved.txt
var reservedWords string

// isReserved says whether a name has to be written as a placeholder.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html
func isReserved(name string) bool {
	return slices.Contains(strings.Fields(reservedWords), strings.ToUpper(name))
}

// substitutions are the placeholders that come with a request's expressions.
type substitutions struct {
	Names  map[string]string
	Values map[string]value

	used map[string]bool
}

// check refuses placeholders that are no values or that no expression used;
// expressions says whether there was any.
func (s *substitutions) check(expressions bool) error {
	if len(s.Names) > 0 && !expressions {
		return invalid("ExpressionAttributeNames can only be specified when using expressions")
	}
	if len(s.Values) > 0 && !expressions {
		return invalid("ExpressionAttributeValues can only be specified when using expressions: ConditionExpression is null")
	}
	for _, unused := range []struct {
		parameter string
		names     []string
	}{{"ExpressionAttributeNames", sortedKeys(s.Names)}, {"ExpressionAttributeValues", sortedKeys(s.Values)}} {
		names := slices.DeleteFunc(unused.names, func(name string) bool { return s.used[name] })
		if len(names) > 0 {
			return invalid("Value provided in %s unused in expressions: keys: {%s}", unused.parameter, strings.Join(names, ", "))
		}
	}
	return nil
}

// parser reads one expression.
type parser struct {
	parameter string // the parameter that holds the expression, for messages
	text      string
	tokens    []token
	next      int
	*substitutions
}

type token struct {
	text string
	at   int
}

var tokenPattern = regexp.MustCompile(`^(?:<>|<=|>=|[=<>(),.\[\]+-]|[#:]?[A-Za-z0-9_]+)`)

func newParser(parameter, text string, s *substitutions) (*parser, error) {
	if s.used == nil {
		s.used = map[string]bool{}
		for name, v := range s.Values {
			if err := v.check(); err != nil {
				return nil, invalid("ExpressionAttributeValues contains invalid value: %v for key %s", err, name)
			}
		}
	}
	p := &parser{parameter: parameter, text: text, substitutions: s}
	for at := 0; at < len(text); {
		if strings.ContainsRune(" \t\r\n", rune(text[at])) {
			at++
			continue
		}
		found := tokenPattern.FindString(text[at:])
		if found == "" {
			return nil, p.syntaxError(token{text[at : at+1], at})
		}
		p.tokens = append(p.tokens, token{found, at})
		at += len(found)
	}
	if len(p.tokens) == 0 {
		return nil, p.errorf("The expression can not be empty;")
	}
	return p, nil
}

func (p *parser) errorf(format string, args ...any) error {
	return invalid("Invalid %s: %s", p.parameter, fmt.Sprintf(format, args...))
}

func (p *parser) syntaxError(t token) error {
	near := p.text[max(0, t.at-10):min(len(p.text), t.at+len(t.text)+10)]
	return p.errorf("Syntax error; token: %q, near: %q", t.text, near)
}

// peek returns the next token, "<EOF>" at the end.
func (p *parser) peek() token {
	if p.next < len(p.tokens) {
		return p.tokens[p.next]
	}
	return token{"<EOF>", len(p.text)}
}

// accept takes the next token if it is the given symbol or keyword.
func (p *parser) accept(text string) bool {
	if strings.EqualFold(p.peek().text, text) {
		p.next++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if !p.accept(text) {
		return p.syntaxError(p.peek())
	}
	return nil
}

func (p *parser) end() error {
	if p.next < len(p.tokens) {
		return p.syntaxError(p.peek())
	}
	return nil
}

// parseCondition reads a whole condition expression.
func parseCondition(parameter, text string, s *substitutions) (condition, error) {
	p, err := newParser(parameter, text, s)
	if err != nil {
		return nil, err
	}
	c, err := p.or()
	if err != nil {
		return nil, err
	}
	return c, p.end()
}

func (p *parser) or() (condition, error) {
	left, err := p.and()
	for err == nil && p.accept("OR") {
		var right condition
		a := left
		right, err = p.and()
		left = func(i item) bool { return a(i) || right(i) }
	}
	return left, err
}

func (p *parser) and() (condition, error) {
	left, err := p.not()
	for err == nil && p.accept("AND") {
		var right condition
		a := left
		right, err = p.not()
		left = func(i item) bool { return a(i) && right(i) }
	}
	return left, err
}

func (p *parser) not() (condition, error) {
	if p.accept("NOT") {
		inner, err := p.not()
		return func(i item) bool { return !inner(i) }, err
	}
	if p.accept("(") {
		return p.parenthesized()
	}
	if p.next+1 < len(p.tokens) && p.tokens[p.next+1].text == "(" {
		return p.function()
	}
	return p.comparison()
}

// parenthesized reads the rest of a condition in parentheses. DynamoDB refuses
// a pair directly inside another.
func (p *parser) parenthesized() (condition, error) {
	doubled := p.peek().text == "("
	start := p.next
	inner, err := p.or()
	if err != nil {
		return nil, err
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	if doubled && p.closes(start) == p.next-2 {
		return nil, p.errorf("The expression has redundant parentheses;")
	}
	return inner, nil
}

// closes returns the index of the parenthesis that closes the one at an index.
func (p *parser) closes(open int) int {
	depth := 0
	for i := open; i < len(p.tokens); i++ {
		switch p.tokens[i].text {
		case "(":
			depth++
		case ")":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func (p *parser) function() (condition, error) {
	name := p.peek().text
	p.next += 2 // the name and "("
	want := name == "attribute_exists"
	if !want && name != "attribute_not_exists" {
		return nil, p.errorf("Invalid function name; function: %s (this region has attribute_exists and attribute_not_exists)", name)
	}
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	return func(i item) bool {
		_, exists := path.in(i)
		return exists == want
	}, p.expect(")")
}

// operand is what a comparison compares: a value, or a path into the item.
type operand struct {
	text  string
	value *value
	path  path
}

func (o operand) in(i item) (value, bool) {
	if o.value != nil {
		return *o.value, true
	}
	return o.path.in(i)
}

func (p *parser) operand() (operand, error) {
	t := p.peek()
	if !strings.HasPrefix(t.text, ":") {
		path, err := p.path()
		return operand{text: path.String(), path: path}, err
	}
	p.next++
	v, ok := p.Values[t.text]
	if !ok {
		return operand{}, p.errorf("An expression attribute value used in expression is not defined; attribute value: %s", t.text)
	}
	p.used[t.text] = true
	return operand{text: t.text, value: &v}, nil
}

var comparators = map[string]func(order int) bool{
	"<":  func(order int) bool { return order < 0 },
	"<=": func(order int) bool { return order <= 0 },
	">":  func(order int) bool { return order > 0 },
	">=": func(order int) bool { return order >= 0 },
}

func (p *parser) comparison() (condition, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	t := p.peek()
	compare := comparators[t.text]
	if compare == nil && t.text != "=" && t.text != "<>" {
		return nil, p.syntaxError(t)
	}
	p.next++
	right, err := p.operand()
	if err != nil {
		return nil, err
	}
	if left.text == right.text {
		return nil, p.errorf("The first operand must be distinct from the remaining operands for this operator or function; operator: %s, first operand: [%s]", t.text, left.text)
	}
	for _, o := range []operand{left, right} {
		if compare != nil && o.value != nil && !o.value.ordered() {
			return nil, p.errorf("Incorrect operand type for operator or function; operator: %s, operand type: %s", t.text, o.value.kind())
		}
	}
	return func(i item) bool {
		a, haveA := left.in(i)
		b, haveB := right.in(i)
		if compare == nil {
			// An attribute that is not there differs from every value.
			equal := haveA && haveB && a.equal(b)
			return equal == (t.text == "=")
		}
		if !haveA || !haveB {
			return false
		}
		order, ordered := a.order(b)
		return ordered && compare(order)
	}, nil
}

// path leads to an attribute: names, and indexes into lists.
type path []step

type step struct {
	name  string
	index int // when name is ""
}

func (p path) String() string {
	var text strings.Builder
	for i, s := range p {
		switch {
		case s.name == "":
			text.WriteString("[" + strconv.Itoa(s.index) + "]")
		case i > 0:
			text.WriteString("." + s.name)
		default:
			text.WriteString(s.name)
		}
	}
	return text.String()
}

// in returns the value at the path of an item.
func (p path) in(i item) (value, bool) {
	v, ok := i[p[0].name]
	for _, s := range p[1:] {
		switch {
		case !ok:
			return value{}, false
		case s.name != "" && v.M != nil:
			v, ok = (*v.M)[s.name]
		case s.name == "" && v.L != nil && s.index < len(*v.L):
			v = (*v.L)[s.index]
		default:
			return value{}, false
		}
	}
	return v, ok
}

func (p *parser) path() (path, error) {
	name, err := p.name()
	parsed := path{{name: name}}
	for err == nil {
		switch {
		case p.accept("."):
			name, err = p.name()
			parsed = append(parsed, step{name: name})
		case p.accept("["):
			t := p.peek()
			index, notNumber := strconv.Atoi(t.text)
			if notNumber != nil {
				return nil, p.syntaxError(t)
			}
			p.next++
			parsed = append(parsed, step{index: index})
			err = p.expect("]")
		default:
			return parsed, nil
		}
	}
	return nil, err
}

var identifierPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

func (p *parser) name() (string, error) {
	t := p.peek()
	if strings.HasPrefix(t.text, "#") {
		p.next++
		name, ok := p.Names[t.text]
		if !ok {
			return "", p.errorf("An expression attribute name used in the document path is not defined; attribute name: %s", t.text)
		}
		p.used[t.text] = true
		return name, nil
	}
	if !identifierPattern.MatchString(t.text) {
		return "", p.syntaxError(t)
	}
	if isReserved(t.text) {
		return "", p.errorf("Attribute name is a reserved keyword; reserved keyword: %s", t.text)
	}
	p.next++
	return t.text, nil
}

// parseProjection reads a list of attributes, all of them at the top of the
// item.
func parseProjection(text string, s *substitutions) ([]string, error) {
	p, err := newParser("ProjectionExpression", text, s)
	if err != nil {
		return nil, err
	}
	var names []string
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		if !p.accept(",") {
			return names, p.end()
		}
	}
}

// update is a parsed update expression: attributes to set and to remove.
type update struct {
	set    map[string]operand
	remove []string
}

// parseUpdate reads "SET a = operand, … REMOVE b, …" on attributes at the top
// of the item.
func parseUpdate(text string, s *substitutions) (*update, error) {
	p, err := newParser("UpdateExpression", text, s)
	if err != nil {
		return nil, err
	}
	u := &update{set: map[string]operand{}}
	seen := map[string]bool{}
	for p.next < len(p.tokens) {
		section := p.peek()
		setting := p.accept("SET")
		if !setting && !p.accept("REMOVE") {
			return nil, p.syntaxError(section)
		}
		if seen[strings.ToUpper(section.text)] {
			return nil, p.errorf("The %q section can only be used once in an update expression;", section.text)
		}
		seen[strings.ToUpper(section.text)] = true
		for more := true; more; more = p.accept(",") {
			name, err := p.name()
			if err != nil {
				return nil, err
			}
			if _, twice := u.set[name]; twice || slices.Contains(u.remove, name) {
				return nil, p.errorf("Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [%s], path two: [%s]", name, name)
			}
			if !setting {
				u.remove = append(u.remove, name)
				continue
			}
			if err := p.expect("="); err != nil {
				return nil, err
			}
			if u.set[name], err = p.operand(); err != nil {
				return nil, err
			}
		}
	}
	return u, nil
}

// apply returns the item after the update; operands look at the item before.
func (u *update) apply(old item) (item, error) {
	updated := item{}
	maps.Copy(updated, old)
	for name, o := range u.set {
		v, ok := o.in(old)
		if !ok {
			return nil, invalid("The provided expression refers to an attribute that does not exist in the item")
		}
		updated[name] = v
	}
	for _, name := range u.remove {
		delete(updated, name)
	}
	return updated, nil
}
