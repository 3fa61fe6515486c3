package awsplugin

import (
	"encoding/json"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/mapper"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// decode fills a struct with pulumi tags from properties. Unknown values are
// left out.
func decode(m property.Map, into any) error {
	object := resource.ToResourcePropertyMap(known(m)).Mappable()
	err := mapper.New(&mapper.Opts{IgnoreMissing: true, IgnoreUnrecognized: true}).Decode(object, into)
	if err != nil {
		return fmt.Errorf("decode properties: %w", err)
	}
	return nil
}

// encode is the reverse of decode. Files and archives are left out.
func encode(from any) (property.Map, error) {
	object, err := mapper.New(&mapper.Opts{IgnoreMissing: true}).Encode(from)
	if err != nil {
		return property.Map{}, fmt.Errorf("encode properties: %w", err)
	}
	return resource.FromResourcePropertyMap(resource.NewPropertyMapFromMap(object)), nil
}

// plain takes secrecy and dependencies off properties, and the place of a
// resource passed as a value is taken by its ID, as the real plugin takes it.
func plain(m property.Map) property.Map {
	return plainValue(property.New(m)).AsMap()
}

func plainValue(v property.Value) property.Value {
	switch {
	case v.IsMap():
		clean := map[string]property.Value{}
		for name, item := range v.AsMap().All {
			clean[name] = plainValue(item)
		}
		return property.New(clean)
	case v.IsArray():
		clean := make([]property.Value, 0, v.AsArray().Len())
		for _, item := range v.AsArray().All {
			clean = append(clean, plainValue(item))
		}
		return property.New(clean)
	case v.IsResourceReference():
		return plainValue(v.AsResourceReference().ID)
	default:
		return v.WithSecret(false).WithDependencies(nil)
	}
}

// known leaves unknown values out.
func known(m property.Map) property.Map {
	return knownValue(property.New(m)).AsMap()
}

func knownValue(v property.Value) property.Value {
	switch {
	case v.IsMap():
		clean := map[string]property.Value{}
		for name, item := range v.AsMap().All {
			if !item.IsComputed() {
				clean[name] = knownValue(item)
			}
		}
		return property.New(clean)
	case v.IsArray():
		clean := []property.Value{}
		for _, item := range v.AsArray().All {
			if !item.IsComputed() {
				clean = append(clean, knownValue(item))
			}
		}
		return property.New(clean)
	default:
		return v
	}
}

// keepSecrets marks the properties that are secret in any of the others.
func keepSecrets(m property.Map, others ...property.Map) property.Map {
	for _, other := range others {
		for name, value := range other.All {
			if own, ok := m.GetOk(name); ok && value.HasSecrets() {
				m = m.Set(name, own.WithSecret(true))
			}
		}
	}
	return m
}

// unset says whether a value is what the real plugin, in whose state an absent
// property and an empty one are the same, takes for absent.
func unset(v property.Value) bool {
	switch {
	case v.IsNull():
		return true
	case v.IsBool():
		return !v.AsBool()
	case v.IsNumber():
		return v.AsNumber() == 0
	case v.IsString():
		return v.AsString() == ""
	case v.IsArray():
		return v.AsArray().Len() == 0
	case v.IsMap():
		for _, item := range v.AsMap().All {
			if !unset(item) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// equalValues says whether two values of an attribute mean the same.
func (a attribute) equalValues(x, y property.Value) bool {
	switch {
	case unset(x) || unset(y):
		return unset(x) && unset(y)
	case x.HasComputed() || y.HasComputed():
		return false
	case a.json && x.IsString() && y.IsString():
		return equalJSON(x.AsString(), y.AsString())
	case a.set && x.IsArray() && y.IsArray():
		return a.equalSets(x.AsArray().AsSlice(), y.AsArray().AsSlice())
	case x.IsArray() && y.IsArray():
		if x.AsArray().Len() != y.AsArray().Len() {
			return false
		}
		element := a
		element.set = false
		for i, item := range x.AsArray().All {
			if !element.equalElements(item, y.AsArray().Get(i)) {
				return false
			}
		}
		return true
	case len(a.fields) > 0 && x.IsMap() && y.IsMap():
		return a.equalElements(x, y)
	default:
		return x.Equals(y)
	}
}

// equalElements compares two objects of the attribute, or two scalars.
func (a attribute) equalElements(x, y property.Value) bool {
	if !x.IsMap() || !y.IsMap() || len(a.fields) == 0 {
		return x.Equals(y)
	}
	for _, field := range a.fields {
		if !field.equalValues(x.AsMap().Get(field.name), y.AsMap().Get(field.name)) {
			return false
		}
	}
	return true
}

func (a attribute) equalSets(x, y []property.Value) bool {
	if len(x) != len(y) {
		return false
	}
	taken := make([]bool, len(y))
next:
	for _, item := range x {
		for i, other := range y {
			if !taken[i] && a.equalElements(item, other) {
				taken[i] = true
				continue next
			}
		}
		return false
	}
	return true
}

// equalJSON compares JSON documents by meaning. As IAM does, it takes one value
// and a list of that one value for the same.
func equalJSON(x, y string) bool {
	var left, right any
	if json.Unmarshal([]byte(x), &left) != nil || json.Unmarshal([]byte(y), &right) != nil {
		return x == y
	}
	return canonicalJSON(left) == canonicalJSON(right)
}

func canonicalJSON(v any) string {
	text, err := json.Marshal(single(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func single(v any) any {
	switch v := v.(type) {
	case []any:
		if len(v) == 1 {
			return single(v[0])
		}
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = single(item)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, item := range v {
			object[name] = single(item)
		}
		return object
	default:
		return v
	}
}
