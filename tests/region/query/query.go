// Package query reads the parameters of AWS's Query protocols into structures.
//
// A field is filled from the parameter of its own name, or of the name in its
// query tag (`query:"Name"`). A field can be a string, a boolean, a number, a
// pointer to one of them (nil when the parameter is absent), a structure, a
// pointer to one, or a list of any. A tag that ends in ",required" refuses a
// request without the parameter.
//
// A parameter that no field takes is refused: what a service does not model it
// must not ignore.
package query

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Decode reads the parameters into a pointer to a structure. Its errors are
// the client's: UnknownParameter, MissingParameter and InvalidParameterValue.
func Decode(params api.Params, into any) error {
	root := &node{}
	for name, value := range params {
		if name != "Action" && name != "Version" {
			root.add(strings.Split(name, "."), value)
		}
	}
	return root.structure("", reflect.ValueOf(into).Elem())
}

// node is a parameter, and those below it.
type node struct {
	value    string
	children map[string]*node
}

func (n *node) add(path []string, value string) {
	if len(path) == 0 {
		n.value = value
		return
	}
	if n.children == nil {
		n.children = map[string]*node{}
	}
	child := n.children[path[0]]
	if child == nil {
		child = &node{}
		n.children[path[0]] = child
	}
	child.add(path[1:], value)
}

func (n *node) structure(prefix string, into reflect.Value) error {
	known := map[string]bool{}
	for _, field := range reflect.VisibleFields(into.Type()) {
		if field.Anonymous || !field.IsExported() {
			continue
		}
		name, required := field.Name, false
		if tag, ok := field.Tag.Lookup("query"); ok {
			var rest string
			if name, rest, _ = strings.Cut(tag, ","); name == "" {
				name = field.Name
			}
			required = rest == "required"
		}
		if name == "-" {
			continue
		}
		known[name] = true
		child := n.children[name]
		if child == nil {
			if required {
				return api.Errorf(http.StatusBadRequest, "MissingParameter", "The request must contain the parameter %s", prefix+name)
			}
			continue
		}
		if err := child.fill(prefix+name, into.FieldByIndex(field.Index)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		if !known[name] {
			return api.Errorf(http.StatusBadRequest, "UnknownParameter", "The parameter %s is not recognized by this region", prefix+name)
		}
	}
	return nil
}

func (n *node) fill(name string, into reflect.Value) error {
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	bad := func(err error) error {
		return api.Errorf(http.StatusBadRequest, "InvalidParameterValue", "Invalid value '%s' for %s: %v", n.value, name, err)
	}
	switch into.Kind() {
	case reflect.Struct:
		return n.structure(name+".", into)
	case reflect.Slice:
		return n.list(name, into)
	case reflect.String:
		into.SetString(n.value)
	case reflect.Bool:
		value, err := strconv.ParseBool(n.value)
		if err != nil {
			return bad(err)
		}
		into.SetBool(value)
	case reflect.Int:
		value, err := strconv.Atoi(n.value)
		if err != nil {
			return bad(err)
		}
		into.SetInt(int64(value))
	default:
		panic(fmt.Sprintf("query: field %s has a type that parameters cannot fill: %s", name, into.Type()))
	}
	if len(n.children) > 0 {
		return bad(errors.New("it has parameters below it"))
	}
	return nil
}

// list reads Name.1, Name.2 … or Name.member.1, Name.member.2 …
func (n *node) list(name string, into reflect.Value) error {
	items := n
	if member := n.children["member"]; member != nil {
		items = member
	}
	for i := 1; i <= len(items.children); i++ {
		child := items.children[strconv.Itoa(i)]
		if child == nil {
			return api.Errorf(http.StatusBadRequest, "InvalidParameterValue", "The list %s has no member %d", name, i)
		}
		item := reflect.New(into.Type().Elem()).Elem()
		if err := child.fill(fmt.Sprintf("%s.%d", name, i), item); err != nil {
			return err
		}
		into.Set(reflect.Append(into, item))
	}
	return nil
}
