package provider

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// aliasServer is a provider's server that understands aliases which are not
// URNs: pulumi-go-provider (up to 1.5.0 at least) drops those without a word, and a
// cluster that was renamed with one would be replaced with all that is on it.
type aliasServer struct {
	pulumirpc.ResourceProviderServer
}

// Construct turns each alias into the URN that the engine would make of it.
func (s aliasServer) Construct(ctx context.Context, req *pulumirpc.ConstructRequest) (*pulumirpc.ConstructResponse, error) {
	for i, alias := range req.GetAliases() {
		if spec := alias.GetSpec(); spec != nil {
			req.Aliases[i] = &pulumirpc.Alias{Alias: &pulumirpc.Alias_Urn{Urn: string(aliasURN(req, spec))}}
		}
	}
	return s.ResourceProviderServer.Construct(ctx, req)
}

// aliasURN takes from the request what an alias does not say, as the engine
// does (collapseAliasToUrn in its step generator). The engine alone knows
// whether the alias's own parent has an alias, too.
func aliasURN(req *pulumirpc.ConstructRequest, alias *pulumirpc.Alias_Spec) resource.URN {
	or := func(said, otherwise string) string {
		if said == "" {
			return otherwise
		}
		return said
	}
	parent := resource.URN(or(alias.GetParentUrn(), req.GetParent()))
	if alias.GetNoParent() || parent != "" && parent.QualifiedType() == resource.RootStackType {
		parent = ""
	}
	return resource.CreateURN(
		or(alias.GetName(), req.GetName()), or(alias.GetType(), req.GetType()), parent,
		or(alias.GetProject(), req.GetProject()), or(alias.GetStack(), req.GetStack()),
	)
}
