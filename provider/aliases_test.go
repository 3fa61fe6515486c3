package provider_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"github.com/etcfs/pulumi-etcfs/provider"
)

// recorder is a server that keeps the aliases of a request.
type recorder struct {
	pulumirpc.UnimplementedResourceProviderServer

	got []string
}

func (r *recorder) Construct(_ context.Context, req *pulumirpc.ConstructRequest) (*pulumirpc.ConstructResponse, error) {
	for _, alias := range req.GetAliases() {
		r.got = append(r.got, alias.GetUrn())
	}
	return &pulumirpc.ConstructResponse{}, nil
}

// What an alias does not say is taken from the resource, as the engine does.
func TestAliases(t *testing.T) {
	t.Parallel()
	const stackURN = "urn:pulumi:test::engine::pulumi:pulumi:Stack::engine-test"
	const parentURN = "urn:pulumi:test::engine::my:index:Outer$my:index:Inner::in"
	type spec = pulumirpc.Alias_Spec
	for _, test := range []struct {
		name   string
		parent string
		alias  *spec
		want   string
	}{
		{"name", stackURN, &spec{Name: "old"}, "urn:pulumi:test::engine::etcfs:asg:Cluster::old"},
		{"type", stackURN, &spec{Type: "etcfs:index:Cluster"}, "urn:pulumi:test::engine::etcfs:index:Cluster::fs"},
		{"project", stackURN, &spec{Project: "former"}, "urn:pulumi:test::former::etcfs:asg:Cluster::fs"},
		{"stack", stackURN, &spec{Stack: "dev"}, "urn:pulumi:dev::engine::etcfs:asg:Cluster::fs"},
		{"everything", "", &spec{Name: "old", Type: "a:b:C", Project: "former", Stack: "dev"}, "urn:pulumi:dev::former::a:b:C::old"},
		{"name below a parent", parentURN, &spec{Name: "old"}, "urn:pulumi:test::engine::my:index:Outer$my:index:Inner$etcfs:asg:Cluster::old"},
		{"another parent", stackURN, &spec{Parent: &pulumirpc.Alias_Spec_ParentUrn{ParentUrn: parentURN}}, "urn:pulumi:test::engine::my:index:Outer$my:index:Inner$etcfs:asg:Cluster::fs"},
		{"the stack for a parent", parentURN, &spec{Parent: &pulumirpc.Alias_Spec_ParentUrn{ParentUrn: stackURN}}, "urn:pulumi:test::engine::etcfs:asg:Cluster::fs"},
		{"no parent", parentURN, &spec{Parent: &pulumirpc.Alias_Spec_NoParent{NoParent: true}}, "urn:pulumi:test::engine::etcfs:asg:Cluster::fs"},
	} {
		behind := &recorder{}
		_, err := provider.WithAliases(behind).Construct(t.Context(), &pulumirpc.ConstructRequest{
			Project: "engine", Stack: "test", Type: "etcfs:asg:Cluster", Name: "fs", Parent: test.parent,
			Aliases: []*pulumirpc.Alias{
				{Alias: &pulumirpc.Alias_Urn{Urn: "urn:pulumi:test::engine::etcfs:asg:Cluster::by-urn"}},
				{Alias: &pulumirpc.Alias_Spec_{Spec: test.alias}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"urn:pulumi:test::engine::etcfs:asg:Cluster::by-urn", test.want}, behind.got); diff != "" {
			t.Errorf("%s: aliases (-want +got):\n%s", test.name, diff)
		}
	}
}
