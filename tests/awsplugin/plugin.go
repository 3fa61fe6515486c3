package awsplugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hashicorp/go-multierror"
	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/middleware/cancel"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// New makes the plugin.
func New() provider.Provider {
	p := &plugin{resources: map[string]Resource{}, functions: map[string]Function{}}
	for _, r := range Resources() {
		p.resources[r.Token] = r
	}
	for _, f := range Functions() {
		p.functions[f.Token] = f
	}
	return cancel.Wrap(provider.Provider{
		CheckConfig: p.checkConfig,
		DiffConfig:  p.diffConfig,
		Configure:   p.configure,
		Invoke:      p.invoke,
		Check:       p.check,
		Diff:        p.diff,
		Create:      p.create,
		Read:        p.read,
		Update:      p.update,
		Delete:      p.delete,
	})
}

// plugin answers the engine: each call finds its row of the table and hands
// plain properties to it. One process serves one provider of a stack.
type plugin struct {
	resources map[string]Resource
	functions map[string]Function
	cloud     atomic.Pointer[cloud]
}

func (p *plugin) resource(urn resource.URN) (Resource, error) {
	r, ok := p.resources[string(urn.Type())]
	if !ok {
		return r, fmt.Errorf("this stand-in of the AWS plugin has no resource type %s", urn.Type())
	}
	return r, nil
}

func (p *plugin) configured() (*cloud, error) {
	if c := p.cloud.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("the provider is not configured")
}

func (p *plugin) checkConfig(_ context.Context, req provider.CheckRequest) (provider.CheckResponse, error) {
	response := provider.CheckResponse{Inputs: req.Inputs}
	if req.Inputs.Get("region").IsComputed() {
		return response, nil
	}
	c, err := readConfiguration(req.Inputs)
	if err != nil {
		return response, err
	}
	if c.Region == "" {
		response.Failures = append(response.Failures, provider.CheckFailure{
			Property: "region",
			Reason:   "Missing region configuration: set aws:region, the provider's region or AWS_REGION.",
		})
	}
	return response, nil
}

// diffConfig: resources cannot move to another Region.
func (p *plugin) diffConfig(_ context.Context, req provider.DiffRequest) (provider.DiffResponse, error) {
	changes := map[string]provider.PropertyDiff{}
	if !plainValue(req.State.Get("region")).Equals(plainValue(req.Inputs.Get("region"))) {
		changes["region"] = provider.PropertyDiff{Kind: provider.UpdateReplace}
	}
	return provider.DiffResponse{HasChanges: len(changes) > 0, DetailedDiff: changes}, nil
}

func (p *plugin) configure(ctx context.Context, req provider.ConfigureRequest) error {
	c, err := readConfiguration(req.Args)
	if err != nil {
		return err
	}
	cloud, err := newCloud(ctx, c)
	if err != nil {
		return err
	}
	p.cloud.Store(cloud)
	return nil
}

func (p *plugin) invoke(ctx context.Context, req provider.InvokeRequest) (provider.InvokeResponse, error) {
	f, ok := p.functions[string(req.Token)]
	if !ok {
		return provider.InvokeResponse{}, fmt.Errorf("this stand-in of the AWS plugin has no function %s", req.Token)
	}
	c, err := p.configured()
	if err != nil {
		return provider.InvokeResponse{}, err
	}
	args := plain(req.Args)
	if failures := f.args.check(args); len(failures) > 0 {
		return provider.InvokeResponse{Failures: failures}, nil
	}
	result, err := f.call(ctx, c, args)
	if err != nil {
		return provider.InvokeResponse{}, fmt.Errorf("invoking %s: %w", req.Token, report(err))
	}
	return provider.InvokeResponse{Return: result}, nil
}

func (p *plugin) check(_ context.Context, req provider.CheckRequest) (provider.CheckResponse, error) {
	r, err := p.resource(req.Urn)
	if err != nil {
		return provider.CheckResponse{}, err
	}
	inputs, err := r.attributes.documents(req.Inputs)
	if err != nil {
		return provider.CheckResponse{}, err
	}
	failures := r.attributes.check(plain(inputs))
	inputs, err = r.naming.apply(req.Urn, req.RandomSeed, req.State, inputs)
	if err != nil {
		return provider.CheckResponse{}, err
	}
	return provider.CheckResponse{Inputs: inputs, Failures: failures}, nil
}

func (p *plugin) diff(_ context.Context, req provider.DiffRequest) (provider.DiffResponse, error) {
	r, err := p.resource(req.Urn)
	if err != nil {
		return provider.DiffResponse{}, err
	}
	c, err := p.configured()
	if err != nil {
		return provider.DiffResponse{}, err
	}
	inputs := plain(req.Inputs)
	_, changes, err := r.change(c, plain(req.State), inputs, req.IgnoreChanges)
	if err != nil {
		return provider.DiffResponse{}, err
	}
	return provider.DiffResponse{
		HasChanges:          len(changes) > 0,
		DetailedDiff:        changes,
		DeleteBeforeReplace: replaces(changes) && (r.deleteFirst || r.naming.given(inputs)),
	}, nil
}

func (p *plugin) create(ctx context.Context, req provider.CreateRequest) (provider.CreateResponse, error) {
	r, err := p.resource(req.Urn)
	if err != nil {
		return provider.CreateResponse{}, err
	}
	c, err := p.configured()
	if err != nil {
		return provider.CreateResponse{}, err
	}
	planned := r.plan(c, plain(req.Properties), property.Map{}, false)
	if req.DryRun {
		return provider.CreateResponse{Properties: keepSecrets(planned, req.Properties)}, nil
	}
	id, state, err := r.create(ctx, c, r.naming.complete(planned))
	response := provider.CreateResponse{ID: id, Properties: keepSecrets(state, req.Properties)}
	if err != nil && id != "" {
		response.PartialState = &provider.InitializationFailed{Reasons: []string{err.Error()}}
	}
	return response, report(err)
}

func (p *plugin) read(ctx context.Context, req provider.ReadRequest) (provider.ReadResponse, error) {
	r, err := p.resource(req.Urn)
	if err != nil {
		return provider.ReadResponse{}, err
	}
	c, err := p.configured()
	if err != nil {
		return provider.ReadResponse{}, err
	}
	state, err := r.read(ctx, c, req.ID, plain(req.Properties))
	if errors.Is(err, errNotFound) {
		return provider.ReadResponse{}, nil
	}
	if err != nil {
		return provider.ReadResponse{}, report(err)
	}
	inputs := r.imported(state)
	if req.Inputs.Len() > 0 {
		inputs = r.refreshed(req.Inputs, state)
	}
	return provider.ReadResponse{
		ID:         req.ID,
		Properties: keepSecrets(state, req.Properties, req.Inputs),
		Inputs:     inputs,
	}, nil
}

func (p *plugin) update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResponse, error) {
	r, err := p.resource(req.Urn)
	if err != nil {
		return provider.UpdateResponse{}, err
	}
	c, err := p.configured()
	if err != nil {
		return provider.UpdateResponse{}, err
	}
	before := plain(req.State)
	planned, changes, err := r.change(c, before, plain(req.Inputs), req.IgnoreChanges)
	if err != nil {
		return provider.UpdateResponse{}, err
	}
	if req.DryRun {
		return provider.UpdateResponse{Properties: keepSecrets(planned, req.Inputs)}, nil
	}
	state, err := r.update(ctx, c, req.ID, before, planned, changedProperties(changes))
	response := provider.UpdateResponse{Properties: keepSecrets(state, req.Inputs)}
	if err != nil {
		response.PartialState = &provider.InitializationFailed{Reasons: []string{err.Error()}}
	}
	return response, report(err)
}

func (p *plugin) delete(ctx context.Context, req provider.DeleteRequest) error {
	r, err := p.resource(req.Urn)
	if err != nil {
		return err
	}
	c, err := p.configured()
	if err != nil {
		return err
	}
	return report(r.delete(ctx, c, req.ID, plain(req.Properties)))
}

// report puts an error in the form that the real plugin passes on.
func report(err error) error {
	if err == nil {
		return nil
	}
	return &multierror.Error{Errors: []error{err}}
}
