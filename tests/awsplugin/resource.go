package awsplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"

	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// handler is what the plugin does for one type of resource, whose properties T
// declares.
type handler[T any] struct {
	naming naming
	// create makes the resource. An error with an ID means that the resource
	// exists but is not as it should be. What it sets in the struct is kept in
	// that case; otherwise read is asked next.
	create func(ctx context.Context, c *cloud, planned *T) (id string, err error)
	// read fills in what AWS tells, and answers errNotFound when the resource
	// is gone. What AWS does not tell stays as it was.
	read func(ctx context.Context, c *cloud, id string, state *T) error
	// update changes what changed. Without it every change replaces. The engine
	// also asks for an update in which nothing changed, after a create that
	// failed half-way.
	update func(ctx context.Context, c *cloud, id string, old, planned *T, changed set) error
	// delete removes the resource. One that is gone already is no error.
	delete func(ctx context.Context, c *cloud, id string, old *T) error
	// renewed names the outputs that AWS will set anew when these properties
	// change.
	renewed func(planned *T, changed set) []string
	// deleteFirst deletes the old resource before its replacement is created
	// even if it has no name.
	deleteFirst bool
}

// Resource is one type of resource that the plugin provisions.
type Resource struct {
	// Token is the type's token, as in "aws:ebs/volume:Volume".
	Token string

	attributes  attributes
	naming      naming
	deleteFirst bool
	immutable   bool
	renewed     func(planned property.Map, changed set) ([]string, error)
	create      func(ctx context.Context, c *cloud, planned property.Map) (id string, state property.Map, err error)
	read        func(ctx context.Context, c *cloud, id string, state property.Map) (property.Map, error)
	update      func(ctx context.Context, c *cloud, id string, state, planned property.Map, changed set) (property.Map, error)
	delete      func(ctx context.Context, c *cloud, id string, state property.Map) error
}

// define makes a row of the table of resources.
func define[T any](token string, h handler[T]) Resource {
	r := Resource{
		Token:       token,
		attributes:  attributesOf(reflect.TypeFor[T]()),
		naming:      h.naming,
		deleteFirst: h.deleteFirst,
		immutable:   h.update == nil,
	}
	r.renewed = func(planned property.Map, changed set) ([]string, error) {
		var resource T
		if h.renewed == nil {
			return nil, nil
		}
		if err := decode(planned, &resource); err != nil {
			return nil, err
		}
		return h.renewed(&resource, changed), nil
	}
	// finish reads the resource after it was changed and makes its state.
	finish := func(ctx context.Context, c *cloud, id string, resource *T, planned property.Map, err error) (property.Map, error) {
		if err == nil {
			if err = h.read(ctx, c, id, resource); err != nil {
				err = fmt.Errorf("reading %s (%s): %w", token, id, err)
			}
		}
		state, encodeErr := r.state(resource, planned)
		return state, errors.Join(err, encodeErr)
	}
	r.create = func(ctx context.Context, c *cloud, planned property.Map) (string, property.Map, error) {
		var resource T
		if err := decode(planned, &resource); err != nil {
			return "", property.Map{}, err
		}
		id, err := h.create(ctx, c, &resource)
		if id == "" {
			return "", property.Map{}, err
		}
		state, err := finish(ctx, c, id, &resource, planned, err)
		return id, state, err
	}
	r.read = func(ctx context.Context, c *cloud, id string, state property.Map) (property.Map, error) {
		var resource T
		if err := decode(state, &resource); err != nil {
			return property.Map{}, err
		}
		if err := h.read(ctx, c, id, &resource); err != nil {
			return property.Map{}, err
		}
		return r.state(&resource, state)
	}
	r.update = func(ctx context.Context, c *cloud, id string, state, planned property.Map, changed set) (property.Map, error) {
		var old, resource T
		err := errors.Join(decode(state, &old), decode(planned, &resource))
		if err != nil {
			return property.Map{}, err
		}
		if h.update != nil {
			err = h.update(ctx, c, id, &old, &resource, changed)
		}
		return finish(ctx, c, id, &resource, planned, err)
	}
	r.delete = func(ctx context.Context, c *cloud, id string, state property.Map) error {
		var old T
		if err := decode(state, &old); err != nil {
			return err
		}
		return h.delete(ctx, c, id, &old)
	}
	return r
}

// state encodes a resource. Files and archives are as in the plan: AWS does not
// give them back.
func (r Resource) state(resource any, planned property.Map) (property.Map, error) {
	state, err := encode(resource)
	if err != nil {
		return state, err
	}
	for _, a := range r.attributes {
		if !a.asset() {
			continue
		}
		state = state.Delete(a.name)
		if value, ok := planned.GetOk(a.name); ok && !value.IsComputed() {
			state = state.Set(a.name, value)
		}
	}
	return state, nil
}

// plan is attributes.plan with the tags that the provider adds to all.
func (r Resource) plan(c *cloud, inputs, prior property.Map, exists bool) property.Map {
	planned := r.attributes.plan(inputs, prior, exists)
	for _, a := range r.attributes {
		if !a.tags {
			continue
		}
		tags := planned.Get(a.name)
		if tags.HasComputed() {
			planned = planned.Set("tagsAll", property.New(property.Computed))
			continue
		}
		all := map[string]property.Value{}
		for key, value := range c.defaultTags {
			all[key] = property.New(value)
		}
		if tags.IsMap() {
			maps.Insert(all, tags.AsMap().All)
		}
		planned = planned.Set("tagsAll", property.New(all))
	}
	return planned
}

// change plans an update and lists what it changes.
func (r Resource) change(c *cloud, state, inputs property.Map, ignored []string) (property.Map, map[string]provider.PropertyDiff, error) {
	planned, err := ignore(r.plan(c, inputs, state, true), state, ignored)
	if err != nil {
		return planned, nil, err
	}
	changes := r.attributes.diff(state, planned)
	if r.tagged() && !changedProperties(changes)["tags"] {
		// The tags that the provider adds to all may have changed.
		all := attribute{name: "tagsAll"}
		all.diffValue("tagsAll", state.Get("tagsAll"), planned.Get("tagsAll"), false, changes)
	}
	if r.immutable {
		for path, change := range changes {
			switch change.Kind {
			case provider.Add:
				change.Kind = provider.AddReplace
			case provider.Delete:
				change.Kind = provider.DeleteReplace
			case provider.Update:
				change.Kind = provider.UpdateReplace
			}
			changes[path] = change
		}
	}
	if len(changes) == 0 {
		return planned, changes, nil
	}
	renewed, err := r.renewed(planned, changedProperties(changes))
	if err != nil {
		return planned, nil, err
	}
	for _, name := range renewed {
		planned = planned.Set(name, property.New(property.Computed))
	}
	return planned, changes, nil
}

func (r Resource) tagged() bool {
	for _, a := range r.attributes {
		if a.tags {
			return true
		}
	}
	return false
}

// refreshed are the inputs after the state was read anew: those that the
// program gave, with what became of them. One that means the same as before is
// kept as the program wrote it.
func (r Resource) refreshed(inputs, state property.Map) property.Map {
	result := inputs
	for _, a := range r.attributes {
		if a.output || a.asset() {
			continue
		}
		input, given := inputs.GetOk(a.name)
		value, ok := state.GetOk(a.name)
		switch {
		case given && !ok:
			if !unset(plainValue(input)) {
				result = result.Delete(a.name)
			}
		case given:
			before := plainValue(input)
			if !a.equalValues(value, a.planValue(before, value)) {
				result = result.Set(a.name, value.WithSecret(input.HasSecrets()))
			}
		}
	}
	return result
}

// imported are the inputs of a resource that was read by its ID alone.
func (r Resource) imported(state property.Map) property.Map {
	inputs := map[string]property.Value{defaultsKey: property.New([]property.Value{})}
	for _, a := range r.attributes {
		if value, ok := state.GetOk(a.name); ok && !a.output && !unset(value) {
			inputs[a.name] = value
		}
	}
	return property.NewMap(inputs)
}
