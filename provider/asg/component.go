package asg

import (
	"context"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	middleware "github.com/pulumi/pulumi-go-provider/middleware/schema"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

// Component is the component as a plugin serves it, with the programs that the
// plugin carries.
func Component(programs artifact.Bundle) infer.InferredComponent {
	return component{infer.Component(&request{programs: programs}), programs}
}

type component struct {
	infer.InferredComponent // all but what is below

	programs artifact.Bundle
}

// GetSchema says that each entry of a list and of a map can be an output of its
// own, as ClusterArgs has it: pulumi-go-provider (up to 1.5.0 at least) says that
// only the whole can, and TypeScript then refuses [topic.arn].
func (c component) GetSchema(register middleware.RegisterDerivativeType) (schema.ResourceSpec, error) {
	spec, err := c.InferredComponent.GetSchema(register)
	for _, input := range spec.InputProperties {
		for _, entry := range []*schema.TypeSpec{input.Items, input.AdditionalProperties} {
			if entry != nil {
				entry.Plain = false
			}
		}
	}
	return spec, err
}

// Construct takes a request with inputs of any type.
func (c component) Construct(ctx context.Context, req p.ConstructRequest) (p.ConstructResponse, error) {
	inputs, mistakes := checkTypes(req.Inputs)
	req.Inputs = inputs
	return infer.Component(&request{c.programs, mistakes}).Construct(ctx, req)
}

// request is what one request brings besides ClusterArgs.
type request struct {
	programs artifact.Bundle
	mistakes map[string]mistake
}

// Construct implements [infer.ComponentResource].
func (r *request) Construct(ctx *pulumi.Context, name, _ string, args *ClusterArgs, opts pulumi.ResourceOption) (*Cluster, error) {
	return construct(ctx, name, args, r.mistakes, r.programs, opts)
}

// Annotate implements [infer.Annotated].
func (r *request) Annotate(text infer.Annotator) {
	text.SetToken("asg", "Cluster")
	text.Describe(&r, "An EtcFS cluster in an EC2 Auto Scaling Group: a POSIX filesystem mounted at `/mnt/etcfuse` on every node, "+
		"with its data on one shared io2 Multi-Attach volume and its metadata in etcd on the same nodes. "+
		"Nodes install themselves, join by themselves and leave etcd when they are terminated; nobody logs in to a node.\n\n"+
		"Destroying the cluster deletes the volume and everything on it; use the resource option `protect` on a cluster whose data matters.")
}
