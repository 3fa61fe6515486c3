package leave_test

import (
	"context"
	"fmt"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"google.golang.org/grpc/status"

	"github.com/etcfs/pulumi-etcfs/provider"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
	"github.com/etcfs/pulumi-etcfs/provider/asg"
	"github.com/etcfs/pulumi-etcfs/tests/awsplugin"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
)

// deployer is an engine without state: each resource that the component
// declares is made in the region at once, by the very plugin that Pulumi's own
// engine uses there. So the region holds exactly what the component renders,
// in a tenth of a second instead of some.
type deployer struct {
	ctx    context.Context //nolint:containedctx // the calls of a deployment bring none
	plugin p.Provider
}

var _ pulumi.MockResourceMonitor = (*deployer)(nil)

func newDeployer(ctx context.Context, r *region.Region) (*deployer, error) {
	d := &deployer{ctx: ctx, plugin: awsplugin.New().WithDefaults()}
	endpoints := map[string]any{}
	for _, service := range []string{
		"autoscaling", "cloudwatch", "dynamodb", "ec2", "events", "iam", "lambda", "logs", "s3", "sqs", "ssm", "sts",
	} {
		endpoints[service] = r.Endpoint()
	}
	return d, d.plugin.Configure(ctx, p.ConfigureRequest{Args: properties(map[string]any{
		"region": "eu-west-1", "accessKey": iam.AdministratorAccessKeyID, "secretKey": iam.AdministratorSecretAccessKey,
		"endpoints": []any{endpoints}, "s3UsePathStyle": true,
	})})
}

func properties(values map[string]any) property.Map {
	return resource.FromResourcePropertyMap(resource.NewPropertyMapFromMap(values))
}

// deploy constructs the component over the provider's protocol.
func (d *deployer) deploy(programs artifact.Bundle, inputs map[string]any) error {
	served, err := provider.New(programs)
	if err != nil {
		return err
	}
	server, err := integration.NewServer(d.ctx, provider.Name, semver.MustParse(provider.Version),
		integration.WithProvider(served), integration.WithMocks(d))
	if err != nil {
		return err
	}
	_, err = server.Construct(p.ConstructRequest{
		Urn:      resource.NewURN("stack", "project", "", asg.Token, "fs"),
		Inputs:   properties(inputs),
		Parallel: 16,
	})
	for _, detail := range status.Convert(err).Details() {
		err = fmt.Errorf("%w: %v", err, detail) // which inputs, and why
	}
	return err
}

// NewResource makes a resource.
func (d *deployer) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	if args.TypeToken == asg.Token {
		return "", args.Inputs, nil
	}
	urn := resource.NewURN("stack", "project", "", tokens.Type(args.TypeToken), args.Name)
	checked, err := d.plugin.Check(d.ctx, p.CheckRequest{Urn: urn, Inputs: resource.FromResourcePropertyMap(args.Inputs)})
	if err != nil {
		return "", nil, fmt.Errorf("check %s: %w", urn, err)
	}
	if len(checked.Failures) > 0 {
		return "", nil, fmt.Errorf("check %s: %v", urn, checked.Failures)
	}
	created, err := d.plugin.Create(d.ctx, p.CreateRequest{Urn: urn, Properties: checked.Inputs})
	if err != nil {
		return "", nil, fmt.Errorf("create %s: %w", urn, err)
	}
	return created.ID, resource.ToResourcePropertyMap(created.Properties), nil
}

// Call answers a lookup.
func (d *deployer) Call(args pulumi.MockCallArgs) (resource.PropertyMap, error) {
	response, err := d.plugin.Invoke(d.ctx, p.InvokeRequest{Token: tokens.Type(args.Token), Args: resource.FromResourcePropertyMap(args.Args)})
	if err != nil {
		return nil, err
	}
	if len(response.Failures) > 0 {
		return nil, fmt.Errorf("invoke %s: %v", args.Token, response.Failures)
	}
	return resource.ToResourcePropertyMap(response.Return), nil
}
