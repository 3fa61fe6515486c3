package awsplugin

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// attribute is one property of a resource or of an object inside of it, as the
// struct that declares it says. The pulumi tag names the property; the aws tag
// lists what the real plugin does with it:
//
//	required   the program must set it
//	output     AWS sets it, the program cannot
//	computed   AWS sets it unless the program does
//	replace    a change replaces the resource
//	set        a list whose order means nothing
//	json       a JSON document: compared by meaning, and taken as an object too
//	default=V  what it is when the program does not set it
//	tags       the resource's tags, from which tagsAll follows
//
// A property of a pointer, slice or map type may be absent from the state; one
// of another type is never absent there.
type attribute struct {
	name     string
	goType   reflect.Type
	required bool
	output   bool
	computed bool
	replace  bool
	set      bool
	json     bool
	tags     bool
	fallback property.Value
	// fields are the properties of an object, or of each object of a list.
	fields attributes
}

type attributes []attribute

// attributesOf reads the declaration of T. It panics on a tag it does not
// know: the table is built once, when the plugin starts.
func attributesOf(t reflect.Type) attributes {
	var list attributes
	for field := range t.Fields() {
		a := attribute{name: field.Tag.Get("pulumi"), goType: field.Type}
		for word := range strings.SplitSeq(field.Tag.Get("aws"), ",") {
			word, value, _ := strings.Cut(word, "=")
			switch word {
			case "":
			case "required":
				a.required = true
			case "output":
				a.output = true
			case "computed":
				a.computed = true
			case "replace":
				a.replace = true
			case "set":
				a.set = true
			case "json":
				a.json = true
			case "tags":
				a.tags = true
			case "default":
				a.fallback = parseScalar(field.Type, value)
			default:
				panic(fmt.Sprintf("%s.%s: unknown aws tag %q", t, field.Name, word))
			}
		}
		if object := a.object(); object != nil {
			a.fields = attributesOf(object)
		}
		list = append(list, a)
	}
	return list
}

// object is the struct type that the attribute, or each of its elements, has;
// nil for one of scalars, maps and assets.
func (a attribute) object() reflect.Type {
	t := a.goType
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && !a.asset() {
		return t
	}
	return nil
}

func (a attribute) list() bool { return a.goType.Kind() == reflect.Slice }

// asset says that the attribute is a file or an archive of the program.
func (a attribute) asset() bool {
	return a.goType == reflect.TypeFor[property.Asset]() || a.goType == reflect.TypeFor[property.Archive]()
}

func (list attributes) find(name string) (attribute, bool) {
	for _, a := range list {
		if a.name == name {
			return a, true
		}
	}
	return attribute{}, false
}

func parseScalar(t reflect.Type, text string) property.Value {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return property.New(text == "true")
	case reflect.Int:
		number, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		return property.New(float64(number))
	case reflect.String:
		return property.New(text)
	default:
		panic(fmt.Sprintf("no default for a property of type %s", t))
	}
}
