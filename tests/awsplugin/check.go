package awsplugin

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"

	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// check lists what is wrong with inputs, by property path. Unknown values pass.
func (list attributes) check(inputs property.Map) []provider.CheckFailure {
	return list.checkObject("", inputs)
}

func (list attributes) checkObject(prefix string, object property.Map) []provider.CheckFailure {
	var failures []provider.CheckFailure
	for name, value := range object.AllStable {
		if prefix == "" && name == defaultsKey {
			continue
		}
		a, ok := list.find(name)
		if !ok || a.output {
			failures = append(failures, provider.CheckFailure{
				Property: prefix + name,
				Reason:   "Invalid or unknown key: this stand-in of the AWS plugin has no such input.",
			})
			continue
		}
		failures = append(failures, a.checkValue(prefix+name, value)...)
	}
	for _, a := range list {
		if a.required && object.Get(a.name).IsNull() {
			failures = append(failures, provider.CheckFailure{
				Property: prefix + a.name,
				Reason:   fmt.Sprintf("Missing required argument. The argument %q is required, but no definition was found.", a.name),
			})
		}
	}
	return failures
}

func (a attribute) checkValue(path string, v property.Value) []provider.CheckFailure {
	if v.IsNull() || v.IsComputed() || a.json && v.IsMap() {
		return nil
	}
	if a.list() {
		if !v.IsArray() {
			return wrongType(path, "list", v)
		}
		var failures []provider.CheckFailure
		for i, item := range v.AsArray().All {
			failures = append(failures, a.checkScalar(fmt.Sprintf("%s[%d]", path, i), a.goType.Elem(), item)...)
		}
		return failures
	}
	return a.checkScalar(path, a.goType, v)
}

func (a attribute) checkScalar(path string, t reflect.Type, v property.Value) []provider.CheckFailure {
	if v.IsNull() || v.IsComputed() {
		return nil
	}
	if a.asset() {
		if !v.IsAsset() && !v.IsArchive() {
			return wrongType(path, "file or archive", v)
		}
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		if !v.IsMap() {
			return wrongType(path, "object", v)
		}
		return a.fields.checkObject(path+".", v.AsMap())
	case reflect.Map:
		if !v.IsMap() {
			return wrongType(path, "map of strings", v)
		}
		var failures []provider.CheckFailure
		for name, item := range v.AsMap().AllStable {
			if !item.IsString() && !item.IsComputed() {
				failures = append(failures, wrongType(path+"."+name, "string", item)...)
			}
		}
		return failures
	case reflect.String:
		if !v.IsString() && !v.IsResourceReference() {
			return wrongType(path, "string", v)
		}
	case reflect.Bool:
		if !v.IsBool() {
			return wrongType(path, "bool", v)
		}
	case reflect.Int:
		if !v.IsNumber() || v.AsNumber() != math.Trunc(v.AsNumber()) {
			return wrongType(path, "whole number", v)
		}
	}
	return nil
}

func wrongType(path, want string, got property.Value) []provider.CheckFailure {
	return []provider.CheckFailure{{Property: path, Reason: fmt.Sprintf("expected type %s, got %s", want, typeName(got))}}
}

func typeName(v property.Value) string {
	switch {
	case v.IsString():
		return "string"
	case v.IsBool():
		return "bool"
	case v.IsNumber():
		return "number"
	case v.IsArray():
		return "list"
	case v.IsMap():
		return "object"
	default:
		return "file or archive"
	}
}

// documents turns the JSON documents that the program gave as objects into
// text, as the real plugin does. One with an unknown part is unknown.
func (list attributes) documents(inputs property.Map) (property.Map, error) {
	for _, a := range list {
		value := inputs.Get(a.name)
		if !a.json || !value.IsMap() {
			continue
		}
		if value.HasComputed() {
			inputs = inputs.Set(a.name, property.New(property.Computed).WithSecret(value.HasSecrets()))
			continue
		}
		text, err := json.Marshal(resource.ToResourcePropertyMap(plain(value.AsMap())).Mappable())
		if err != nil {
			return inputs, fmt.Errorf("encode %s: %w", a.name, err)
		}
		inputs = inputs.Set(a.name, property.New(string(text)).WithSecret(value.HasSecrets()))
	}
	return inputs, nil
}
