package awsplugin

import (
	"fmt"
	"strings"

	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// plan is what a resource will look like: the program's inputs, the defaults,
// and for what AWS sets the prior state, or unknown when there is none.
func (list attributes) plan(inputs, prior property.Map, exists bool) property.Map {
	planned := map[string]property.Value{}
	for _, a := range list {
		input, given := inputs.GetOk(a.name)
		old, had := prior.GetOk(a.name)
		switch {
		case given && !input.IsNull() && !a.output:
			planned[a.name] = a.planValue(input, old)
		case a.output || a.computed:
			if !exists {
				planned[a.name] = property.New(property.Computed)
			} else if had {
				planned[a.name] = old
			}
		case !a.fallback.IsNull():
			planned[a.name] = a.fallback
		}
	}
	return property.NewMap(planned)
}

// planValue completes the objects inside of an input.
func (a attribute) planValue(input, old property.Value) property.Value {
	switch {
	case len(a.fields) == 0 || input.IsComputed():
		return input
	case input.IsMap():
		if old.IsMap() {
			return property.New(a.fields.plan(input.AsMap(), old.AsMap(), true))
		}
		return property.New(a.fields.plan(input.AsMap(), property.Map{}, false))
	case input.IsArray():
		var olds []property.Value
		if old.IsArray() {
			olds = old.AsArray().AsSlice()
		}
		items := make([]property.Value, 0, input.AsArray().Len())
		for i, item := range input.AsArray().All {
			items = append(items, a.planValue(item, a.counterpart(item, i, olds)))
		}
		return property.New(items)
	default:
		return input
	}
}

// counterpart finds the element of the prior state that an input's element is:
// the one at its place in a list, an equal one in a set.
func (a attribute) counterpart(item property.Value, place int, olds []property.Value) property.Value {
	if !a.set {
		if place < len(olds) {
			return olds[place]
		}
		return property.Value{}
	}
	for _, old := range olds {
		if a.equalElements(a.planValue(item, old), old) {
			return old
		}
	}
	return property.Value{}
}

// diff lists the changes from the prior state to the planned one, by property
// path.
func (list attributes) diff(prior, planned property.Map) map[string]provider.PropertyDiff {
	changes := map[string]provider.PropertyDiff{}
	for _, a := range list {
		if !a.output {
			a.diffValue(a.name, prior.Get(a.name), planned.Get(a.name), a.replace, changes)
		}
	}
	return changes
}

func (a attribute) diffValue(path string, old, planned property.Value, replace bool, changes map[string]provider.PropertyDiff) {
	if a.equalValues(old, planned) {
		return
	}
	switch {
	case len(a.fields) > 0 && old.IsMap() && planned.IsMap():
		for _, field := range a.fields {
			field.diffValue(path+"."+field.name, old.AsMap().Get(field.name), planned.AsMap().Get(field.name), replace || field.replace, changes)
		}
	case len(a.fields) > 0 && !a.set && old.IsArray() && planned.IsArray() && old.AsArray().Len() == planned.AsArray().Len():
		for i, item := range old.AsArray().All {
			a.diffValue(fmt.Sprintf("%s[%d]", path, i), item, planned.AsArray().Get(i), replace, changes)
		}
	default:
		changes[path] = provider.PropertyDiff{Kind: diffKind(old, planned, replace)}
	}
}

func diffKind(old, planned property.Value, replace bool) provider.DiffKind {
	switch {
	case unset(old) && replace:
		return provider.AddReplace
	case unset(old):
		return provider.Add
	case unset(planned) && replace:
		return provider.DeleteReplace
	case unset(planned):
		return provider.Delete
	case replace:
		return provider.UpdateReplace
	default:
		return provider.Update
	}
}

func replaces(changes map[string]provider.PropertyDiff) bool {
	for _, change := range changes {
		switch change.Kind {
		case provider.AddReplace, provider.DeleteReplace, provider.UpdateReplace:
			return true
		}
	}
	return false
}

// changedProperties are the names of the properties that changes lie in.
func changedProperties(changes map[string]provider.PropertyDiff) set {
	names := set{}
	for path := range changes {
		name, _, _ := strings.Cut(path, ".")
		name, _, _ = strings.Cut(name, "[")
		names[name] = true
	}
	return names
}

// set is a set of property names.
type set map[string]bool

// any says whether one of the names is in the set.
func (s set) any(names ...string) bool {
	for _, name := range names {
		if s[name] {
			return true
		}
	}
	return false
}

// ignore gives the properties that the program told the engine to ignore their
// prior values.
func ignore(planned, prior property.Map, paths []string) (property.Map, error) {
	if len(paths) == 0 {
		return planned, nil
	}
	object := resource.ToResourcePropertyMap(planned)
	old := resource.ToResourcePropertyMap(prior)
	for _, text := range paths {
		path, err := resource.ParsePropertyPath(text)
		if err != nil {
			return planned, fmt.Errorf("parse ignored property %q: %w", text, err)
		}
		path.Reset(old, object)
	}
	return resource.FromResourcePropertyMap(object), nil
}
