package asg

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// mistake is an input, or an entry of one, that has another type than it must.
type mistake struct {
	reason string
	secret bool
}

// typeChecker looks at inputs as the engine sends them. Not every language
// checks types, and the SDK that turns inputs into ClusterArgs gives up at the
// first one that does not fit, and cuts fractions off.
type typeChecker struct{ mistakes map[string]mistake }

// checkTypes returns inputs of which all have the type that ClusterArgs has for
// them, and by their paths those that had another: in the inputs something
// without a meaning stands in for them.
func checkTypes(inputs property.Map) (property.Map, map[string]mistake) {
	c := typeChecker{mistakes: map[string]mistake{}}
	sound := inputs.AsMap()
	for field := range reflect.TypeFor[ClusterArgs]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("pulumi"), ",")
		if in, given := sound[name]; given && !in.IsNull() {
			sound[name] = c.input(field.Type, name, in)
		}
	}
	return property.NewMap(sound), c.mistakes
}

// input returns the input, or what stands in for it.
func (c *typeChecker) input(field reflect.Type, path string, in property.Value) property.Value {
	switch field {
	case reflect.TypeFor[pulumi.StringInput](), reflect.TypeFor[pulumi.StringPtrInput]():
		return c.text(path, in)
	case reflect.TypeFor[pulumi.IntPtrInput]():
		return c.whole(path, in)
	case reflect.TypeFor[*bool]():
		return c.plainFlag(path, in)
	case reflect.TypeFor[pulumi.StringArrayInput]():
		return c.list(path, in)
	case reflect.TypeFor[pulumi.StringMapInput]():
		return c.dictionary(path, in)
	}
	panic(fmt.Sprintf("the input %s has the type %s, which nothing checks", path, field))
}

func (c *typeChecker) text(path string, in property.Value) property.Value {
	if in.IsString() || in.IsComputed() {
		return in
	}
	want := aString
	if in.IsNumber() || in.IsBool() {
		want = "a string, in quotes"
	}
	c.refuse(path, in, want)
	return property.New("")
}

func (c *typeChecker) whole(path string, in property.Value) property.Value {
	switch {
	case in.IsComputed():
		return in
	case !in.IsNumber() || in.AsNumber() != math.Trunc(in.AsNumber()):
		c.refuse(path, in, "a whole number")
	case math.Abs(in.AsNumber()) > math.MaxInt32:
		c.refuse(path, in, fmt.Sprintf("a whole number from %d to %d", -math.MaxInt32, math.MaxInt32))
	default:
		return in
	}
	return property.New(0.0)
}

// plainFlag is for what decides which resources there are, and what is written
// into them: that must be known in every preview, and cannot be a secret.
func (c *typeChecker) plainFlag(path string, in property.Value) property.Value {
	const remedy = "what is declared depends on it: give true or false in plain"
	switch {
	case in.IsComputed():
		c.mistakes[path] = mistake{reason: "is not known before something else is created, and " + remedy}
	case !in.IsBool():
		c.refuse(path, in, "true or false")
	case in.Secret():
		c.mistakes[path] = mistake{"is a secret that cannot be kept, since " + remedy, true}
	default:
		return property.New(in.AsBool())
	}
	return property.New(false)
}

func (c *typeChecker) list(path string, in property.Value) property.Value {
	switch {
	case in.IsComputed():
		return in
	case !in.IsArray():
		c.refuse(path, in, "a list of strings")
		return property.New([]property.Value{})
	}
	entries := in.AsArray().AsSlice()
	for i, entry := range entries {
		entries[i] = c.text(fmt.Sprintf("%s[%d]", path, i), entry.WithSecret(entry.Secret() || in.Secret()))
	}
	return property.WithGoValue(in, entries)
}

func (c *typeChecker) dictionary(path string, in property.Value) property.Value {
	switch {
	case in.IsComputed():
		return in
	case !in.IsMap():
		c.refuse(path, in, "a map of strings")
		return property.New(map[string]property.Value{})
	}
	entries := in.AsMap().AsMap()
	for key, entry := range entries {
		of := fmt.Sprintf("%s[%q]", path, key)
		if in.Secret() { // its keys are, too
			of = path
		}
		entries[key] = c.text(of, entry.WithSecret(entry.Secret() || in.Secret()))
	}
	return property.WithGoValue(in, entries)
}

func (c *typeChecker) refuse(path string, in property.Value, want string) {
	c.mistakes[path] = mistake{isNot(kind(in), want), in.HasSecrets()}
}

func isNot(kind, want string) string { return fmt.Sprintf("is %s, and must be %s", kind, want) }

// What is often said.
const null, aString = "null", "a string"

// kind says what a value is, and unless that is a secret which.
func kind(in property.Value) string {
	var name, value string
	switch {
	case in.IsNull():
		return null
	case in.IsString():
		name, value = "string", strconv.Quote(in.AsString())
	case in.IsNumber():
		format := byte('f')
		if math.Abs(in.AsNumber()) >= 1e21 { // in full it would be many zeros
			format = 'g'
		}
		name, value = "number", strconv.FormatFloat(in.AsNumber(), format, -1, 64)
	case in.IsBool():
		name, value = "boolean", strconv.FormatBool(in.AsBool())
	case in.IsArray():
		return "a list"
	case in.IsMap():
		return "a map"
	default:
		return "of another type"
	}
	if in.Secret() {
		return "a secret " + name
	}
	return "the " + name + " " + value
}
