package awsplugin_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin"
	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
)

const region = "eu-west-1"

// engine does to the plugin what Pulumi's engine does.
type engine struct {
	*plane.Plane
	t      *testing.T
	plugin provider.Provider
}

// newEngine starts the plugin on a region of its own.
func newEngine(t *testing.T, configuration map[string]any) *engine {
	t.Helper()
	e := &engine{Plane: plane.New(t, region), t: t, plugin: awsplugin.New().WithDefaults()}
	endpoints := map[string]any{}
	for _, service := range []string{"autoscaling", "cloudwatch", "dynamodb", "ec2", "events", "iam", "lambda", "logs", "s3", "sqs", "ssm", "sts"} {
		endpoints[service] = e.URL
	}
	all := map[string]any{
		"region": region, "accessKey": iam.AdministratorAccessKeyID, "secretKey": iam.AdministratorSecretAccessKey,
		"endpoints": []any{endpoints}, "maxRetries": 1,
	}
	maps.Copy(all, configuration)
	if err := e.plugin.Configure(t.Context(), provider.ConfigureRequest{Args: properties(all)}); err != nil {
		t.Fatal(err)
	}
	return e
}

// properties makes properties of plain values.
func properties(m map[string]any) property.Map {
	return resource.FromResourcePropertyMap(resource.NewPropertyMapFromMap(m))
}

// instance is one resource of a stack.
type instance struct {
	engine *engine
	urn    resource.URN
	id     string
	inputs property.Map
	state  property.Map
}

// check is the engine's first question about inputs.
func (e *engine) check(token, name string, prior property.Map, inputs map[string]any) provider.CheckResponse {
	e.t.Helper()
	checked, err := e.plugin.Check(e.t.Context(), provider.CheckRequest{Urn: urn(token, name), State: prior, Inputs: properties(inputs)})
	if err != nil {
		e.t.Fatalf("check %s: %v", name, err)
	}
	return checked
}

func urn(token, name string) resource.URN {
	return resource.NewURN("test", "project", "", tokens.Type(token), name)
}

// create previews a resource and creates it.
func (e *engine) create(token, name string, inputs map[string]any) *instance {
	e.t.Helper()
	r, err := e.tryCreate(token, name, inputs)
	if err != nil {
		e.t.Fatalf("create %s: %v", name, err)
	}
	return r
}

func (e *engine) tryCreate(token, name string, inputs map[string]any) (*instance, error) {
	e.t.Helper()
	checked := e.check(token, name, property.Map{}, inputs)
	if len(checked.Failures) > 0 {
		e.t.Fatalf("check %s: %v", name, checked.Failures)
	}
	r := &instance{engine: e, urn: urn(token, name), inputs: checked.Inputs}
	preview, err := e.plugin.Create(e.t.Context(), provider.CreateRequest{Urn: r.urn, Properties: r.inputs, DryRun: true})
	if err != nil {
		e.t.Fatalf("preview %s: %v", name, err)
	}
	created, err := e.plugin.Create(e.t.Context(), provider.CreateRequest{Urn: r.urn, Properties: r.inputs})
	r.id, r.state = created.ID, created.Properties
	if err != nil {
		if (created.ID != "") != (created.PartialState != nil) {
			e.t.Errorf("create %s failed with ID %q: the state must be kept exactly when there is an ID", name, created.ID)
		}
		return r, err
	}
	for name, promised := range preview.Properties.All {
		if got := r.state.Get(name); !fulfils(got, promised) {
			e.t.Errorf("%s of %s: got %#v, the preview promised %#v", name, e.t.Name(), got, promised)
		}
	}
	return r, nil
}

// fulfils says whether a value is what a preview promised. AWS may add to an
// object, and what the preview does not know may be anything.
func fulfils(got, promised property.Value) bool {
	switch {
	case promised.IsComputed() || promised.IsNull():
		return true
	case promised.IsMap():
		for name, value := range promised.AsMap().All {
			if !got.IsMap() || !fulfils(got.AsMap().Get(name), value) {
				return false
			}
		}
		return true
	case promised.IsArray():
		for _, value := range promised.AsArray().All {
			if !got.IsArray() || !slices.ContainsFunc(got.AsArray().AsSlice(), func(v property.Value) bool { return fulfils(v, value) }) {
				return false
			}
		}
		return true
	default:
		return got.Equals(promised)
	}
}

// diff asks what new inputs would change.
func (r *instance) diff(inputs map[string]any, ignore ...string) (provider.DiffResponse, property.Map) {
	r.engine.t.Helper()
	checked := r.engine.check(string(r.urn.Type()), r.urn.Name(), r.inputs, inputs)
	if len(checked.Failures) > 0 {
		r.engine.t.Fatalf("check %s: %v", r.urn.Name(), checked.Failures)
	}
	diff, err := r.engine.plugin.Diff(r.engine.t.Context(), provider.DiffRequest{
		Urn: r.urn, ID: r.id, State: r.state, OldInputs: r.inputs, Inputs: checked.Inputs, IgnoreChanges: ignore,
	})
	if err != nil {
		r.engine.t.Fatalf("diff %s: %v", r.urn.Name(), err)
	}
	return diff, checked.Inputs
}

// unchanged fails the test if the inputs would change anything.
func (r *instance) unchanged(when string, inputs map[string]any) {
	r.engine.t.Helper()
	if diff, _ := r.diff(inputs); diff.HasChanges {
		r.engine.t.Errorf("%s %s: got changes %v, want none", r.urn.Name(), when, diff.DetailedDiff)
	}
}

// update changes the resource in place.
func (r *instance) update(inputs map[string]any, ignore ...string) {
	r.engine.t.Helper()
	if err := r.tryUpdate(inputs, ignore...); err != nil {
		r.engine.t.Fatalf("update %s: %v", r.urn.Name(), err)
	}
}

func (r *instance) tryUpdate(inputs map[string]any, ignore ...string) error {
	r.engine.t.Helper()
	_, checked := r.diff(inputs, ignore...)
	updated, err := r.engine.plugin.Update(r.engine.t.Context(), provider.UpdateRequest{
		Urn: r.urn, ID: r.id, State: r.state, OldInputs: r.inputs, Inputs: checked, IgnoreChanges: ignore,
	})
	if err == nil || updated.PartialState != nil {
		r.inputs, r.state = checked, updated.Properties
	}
	return err
}

// preview asks what an update would make of the resource.
func (r *instance) preview(inputs map[string]any) property.Map {
	r.engine.t.Helper()
	_, checked := r.diff(inputs)
	updated, err := r.engine.plugin.Update(r.engine.t.Context(), provider.UpdateRequest{
		Urn: r.urn, ID: r.id, State: r.state, OldInputs: r.inputs, Inputs: checked, DryRun: true,
	})
	if err != nil {
		r.engine.t.Fatalf("preview %s: %v", r.urn.Name(), err)
	}
	return updated.Properties
}

// refresh reads the resource and says whether it is still there.
func (r *instance) refresh() bool {
	r.engine.t.Helper()
	read, err := r.engine.plugin.Read(r.engine.t.Context(), provider.ReadRequest{Urn: r.urn, ID: r.id, Properties: r.state, Inputs: r.inputs})
	if err != nil {
		r.engine.t.Fatalf("refresh %s: %v", r.urn.Name(), err)
	}
	if read.ID != "" {
		r.inputs, r.state = read.Inputs, read.Properties
	}
	return read.ID != ""
}

func (r *instance) tryDelete() error {
	return r.engine.plugin.Delete(r.engine.t.Context(), provider.DeleteRequest{Urn: r.urn, ID: r.id, Properties: r.state, OldInputs: r.inputs})
}

// destroy deletes the resource twice: the second time it is gone already.
func (r *instance) destroy() {
	r.engine.t.Helper()
	if err := errors.Join(r.tryDelete(), r.tryDelete()); err != nil {
		r.engine.t.Fatalf("delete %s: %v", r.urn.Name(), err)
	}
}

// text is a property of the resource.
func (r *instance) text(name string) string {
	value := r.state.Get(name)
	if !value.IsString() {
		return ""
	}
	return value.AsString()
}

// invoke calls a function.
func (e *engine) invoke(token string, args map[string]any) property.Map {
	e.t.Helper()
	result, err := e.tryInvoke(token, args)
	if err != nil {
		e.t.Fatalf("invoke %s: %v", token, err)
	}
	return result
}

func (e *engine) tryInvoke(token string, args map[string]any) (property.Map, error) {
	result, err := e.plugin.Invoke(e.t.Context(), provider.InvokeRequest{Token: tokens.Type(token), Args: properties(args)})
	for _, failure := range result.Failures {
		err = errors.Join(err, errors.New(failure.Property+": "+failure.Reason))
	}
	return result.Return, err
}

// setDesiredCapacity is somebody else scaling a group.
func (e *engine) setDesiredCapacity(group string, desired int) {
	e.t.Helper()
	_, err := autoscaling.NewFromConfig(e.Config()).SetDesiredCapacity(e.t.Context(), &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String(group), DesiredCapacity: aws.Int32(int32(desired)),
	})
	if err != nil {
		e.t.Fatal(err)
	}
}
