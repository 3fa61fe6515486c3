package asg

import (
	"maps"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// tagName is the tag that AWS's console shows as a resource's name.
const tagName = "Name"

// tags are the tags of everything: the user's, and the cluster's name.
func (b *builder) tags() pulumi.StringMapOutput {
	return pulumi.All(b.in.tags, b.in.clusterName).ApplyT(func(of []any) map[string]string {
		return withTags(of[0], map[string]string{settings.TagClusterName: of[1].(string)})
	}).(pulumi.StringMapOutput)
}

// namedTags are tags with a name, <clusterName>-<suffix>.
func (b *builder) namedTags(suffix string) pulumi.StringMapOutput {
	return pulumi.All(b.tags(), b.in.clusterName).ApplyT(func(of []any) map[string]string {
		return withTags(of[0], map[string]string{tagName: of[1].(string) + "-" + suffix})
	}).(pulumi.StringMapOutput)
}

// nodeTags are the tags of an instance and its root volume: the ones that the
// nodes, the function and the IAM policies recognise the cluster's own by.
func (b *builder) nodeTags() pulumi.StringMapOutput {
	return b.namedTags("asg-node").ApplyT(func(tags map[string]string) map[string]string {
		return withTags(tags, map[string]string{settings.TagRole: settings.RoleNode})
	}).(pulumi.StringMapOutput)
}

// withTags adds tags to a map[string]string, which may be nil.
func withTags(tags any, more map[string]string) map[string]string {
	all := map[string]string{}
	if given, ok := tags.(map[string]string); ok {
		maps.Copy(all, given)
	}
	maps.Copy(all, more)
	return all
}
