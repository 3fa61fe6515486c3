package ec2_test

import (
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (w *world) newGroup(name string) string {
	w.Helper()
	return *do[*sdk.CreateSecurityGroupOutput](w)(w.client.CreateSecurityGroup(w.Context(), &sdk.CreateSecurityGroupInput{
		GroupName: aws.String(name), Description: aws.String("of a test"),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup, Tags: []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String(name)}}}},
	})).GroupId
}

func (w *world) group(id string) types.SecurityGroup {
	w.Helper()
	return do[*sdk.DescribeSecurityGroupsOutput](w)(w.client.DescribeSecurityGroups(w.Context(), &sdk.DescribeSecurityGroupsInput{GroupIds: []string{id}})).SecurityGroups[0]
}

func tcp(from, to int32) types.IpPermission {
	return types.IpPermission{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(from), ToPort: aws.Int32(to)}
}

func TestSecurityGroupRules(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.newGroup("nodes")
		if got := w.group(id); len(got.IpPermissionsEgress) != 1 || *got.IpPermissionsEgress[0].IpProtocol != "-1" || len(got.IpPermissions) != 0 {
			t.Errorf("got a new group %+v, want one that may send anything", got)
		}
		intra := tcp(2379, 2380)
		intra.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: aws.String(id), Description: aws.String("etcd")}}
		ssh := tcp(22, 22)
		ssh.IpRanges = []types.IpRange{{CidrIp: aws.String("10.0.0.0/8")}, {CidrIp: aws.String("192.0.2.1/32")}}
		added := do[*sdk.AuthorizeSecurityGroupIngressOutput](w)(w.client.AuthorizeSecurityGroupIngress(w.Context(), &sdk.AuthorizeSecurityGroupIngressInput{
			GroupId: aws.String(id), IpPermissions: []types.IpPermission{intra, ssh},
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroupRule, Tags: []types.Tag{{Key: aws.String("Name"), Value: aws.String("rule")}}}},
		}))
		if len(added.SecurityGroupRules) != 3 {
			t.Fatalf("got %d rules, want 3", len(added.SecurityGroupRules))
		}
		first := added.SecurityGroupRules[0]
		if *first.FromPort != 2379 || *first.ToPort != 2380 || *first.ReferencedGroupInfo.GroupId != id || *first.Description != "etcd" || *first.IsEgress ||
			*first.Tags[0].Value != "rule" {
			t.Errorf("got rule %+v", first)
		}
		got := w.group(id)
		if len(got.IpPermissions) != 2 || len(got.IpPermissions[1].IpRanges) != 2 || *got.IpPermissions[0].UserIdGroupPairs[0].GroupId != id {
			t.Errorf("got permissions %+v", got.IpPermissions)
		}
		rules := do[*sdk.DescribeSecurityGroupRulesOutput](w)(w.client.DescribeSecurityGroupRules(w.Context(), &sdk.DescribeSecurityGroupRulesInput{
			Filters: []types.Filter{filter("group-id", id)},
		}))
		if len(rules.SecurityGroupRules) != 4 {
			t.Errorf("got %d rules, want the three and the one for egress", len(rules.SecurityGroupRules))
		}
		do[*sdk.ModifySecurityGroupRulesOutput](w)(w.client.ModifySecurityGroupRules(w.Context(), &sdk.ModifySecurityGroupRulesInput{
			GroupId: aws.String(id), SecurityGroupRules: []types.SecurityGroupRuleUpdate{{
				SecurityGroupRuleId: added.SecurityGroupRules[1].SecurityGroupRuleId,
				SecurityGroupRule: &types.SecurityGroupRuleRequest{
					IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), CidrIpv4: aws.String("172.16.0.0/12"),
				},
			}},
		}))
		do[*sdk.RevokeSecurityGroupIngressOutput](w)(w.client.RevokeSecurityGroupIngress(w.Context(), &sdk.RevokeSecurityGroupIngressInput{
			GroupId: aws.String(id), SecurityGroupRuleIds: []string{*added.SecurityGroupRules[2].SecurityGroupRuleId},
		}))
		do[*sdk.RevokeSecurityGroupEgressOutput](w)(w.client.RevokeSecurityGroupEgress(w.Context(), &sdk.RevokeSecurityGroupEgressInput{
			GroupId: aws.String(id), IpPermissions: []types.IpPermission{{IpProtocol: aws.String("-1"), IpRanges: []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}}},
		}))
		got = w.group(id)
		if len(got.IpPermissionsEgress) != 0 || len(got.IpPermissions) != 2 || len(got.IpPermissions[1].IpRanges) != 1 || *got.IpPermissions[1].IpRanges[0].CidrIp != "172.16.0.0/12" {
			t.Errorf("got group %+v", got)
		}
		do[*sdk.AuthorizeSecurityGroupEgressOutput](w)(w.client.AuthorizeSecurityGroupEgress(w.Context(), &sdk.AuthorizeSecurityGroupEgressInput{
			GroupId: aws.String(id), IpPermissions: []types.IpPermission{{IpProtocol: aws.String("-1"), Ipv6Ranges: []types.Ipv6Range{{CidrIpv6: aws.String("::/0")}}}},
		}))
		if got := w.group(id).IpPermissionsEgress; len(got) != 1 || *got[0].Ipv6Ranges[0].CidrIpv6 != "::/0" {
			t.Errorf("got egress %+v", got)
		}
	})
}

func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.newGroup("nodes")
		ssh := tcp(22, 22)
		ssh.IpRanges = []types.IpRange{{CidrIp: aws.String("10.0.0.0/8")}}
		authorize := func(group string, permission types.IpPermission) error {
			_, err := w.client.AuthorizeSecurityGroupIngress(w.Context(), &sdk.AuthorizeSecurityGroupIngressInput{
				GroupId: aws.String(group), IpPermissions: []types.IpPermission{permission},
			})
			return err
		}
		if err := authorize(id, ssh); err != nil {
			t.Fatal(err)
		}
		from := func(permission types.IpPermission, cidr string) types.IpPermission {
			permission.IpRanges = []types.IpRange{{CidrIp: aws.String(cidr)}}
			return permission
		}
		stranger := tcp(1, 2)
		stranger.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: aws.String("sg-1")}}
		for name, test := range map[string]struct {
			group      string
			permission types.IpPermission
			code       string
		}{
			"twice":              {id, ssh, "InvalidPermission.Duplicate"},
			"no such group":      {"sg-1", ssh, "InvalidGroup.NotFound"},
			"no such peer":       {id, stranger, "InvalidGroup.NotFound"},
			"bits of a host":     {id, from(tcp(1, 2), "10.0.0.1/8"), "InvalidParameterValue"},
			"no block":           {id, from(tcp(1, 2), "anywhere"), "InvalidParameterValue"},
			"ports out of order": {id, from(tcp(2, 1), "10.0.0.0/8"), "InvalidParameterValue"},
			"no such port":       {id, from(tcp(1, 65536), "10.0.0.0/8"), "InvalidParameterValue"},
			"no ports":           {id, from(types.IpPermission{IpProtocol: aws.String("tcp")}, "10.0.0.0/8"), "InvalidParameterValue"},
			"no such protocol":   {id, from(types.IpPermission{IpProtocol: aws.String("carrier-pigeon")}, "10.0.0.0/8"), "InvalidParameterValue"},
			"no peer":            {id, tcp(1, 2), "MissingParameter"},
		} {
			w.wantCode(name, authorize(test.group, test.permission), test.code)
		}
		_, err := w.client.RevokeSecurityGroupIngress(w.Context(), &sdk.RevokeSecurityGroupIngressInput{
			GroupId: aws.String(id), IpPermissions: []types.IpPermission{from(tcp(1, 2), "10.0.0.0/8")},
		})
		w.wantCode("revoke what is not there", err, "InvalidPermission.NotFound")
		_, err = w.client.RevokeSecurityGroupIngress(w.Context(), &sdk.RevokeSecurityGroupIngressInput{GroupId: aws.String(id), SecurityGroupRuleIds: []string{"sgr-1"}})
		w.wantCode("revoke what is not there, by ID", err, "InvalidSecurityGroupRuleId.NotFound")
	})
}

func TestGroupsThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.newGroup("nodes")
		for name, test := range map[string]struct{ name, vpc, code string }{
			"taken":            {"nodes", "", "InvalidGroup.Duplicate"},
			"in other letters": {"NODES", "", "InvalidGroup.Duplicate"},
			"like an ID":       {"sg-nodes", "", "InvalidParameterValue"},
			"bad character":    {"nodes§", "", "InvalidParameterValue"},
			"other VPC":        {"more", "vpc-1", "InvalidVpcID.NotFound"},
		} {
			in := &sdk.CreateSecurityGroupInput{GroupName: aws.String(test.name), Description: aws.String("x")}
			if test.vpc != "" {
				in.VpcId = aws.String(test.vpc)
			}
			_, err := w.client.CreateSecurityGroup(w.Context(), in)
			w.wantCode(name, err, test.code)
		}
	})
}

func TestGroupInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id, other := w.newGroup("nodes"), w.newGroup("clients")
		remove := func(id string) error {
			_, err := w.client.DeleteSecurityGroup(w.Context(), &sdk.DeleteSecurityGroupInput{GroupId: aws.String(id)})
			return err
		}
		instance := w.launch(w.newTemplate("demo", func(d *types.RequestLaunchTemplateData) { d.SecurityGroupIds = []string{id} }), zoneA)
		w.wantError("an instance uses it", remove(id), "DependencyViolation", "resource "+id+" has a dependent object")
		w.Terminate(instance)
		synctest.Wait()
		own := tcp(1, 2)
		own.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: aws.String(id)}}
		for _, group := range []string{id, other} {
			do[*sdk.AuthorizeSecurityGroupIngressOutput](w)(w.client.AuthorizeSecurityGroupIngress(w.Context(), &sdk.AuthorizeSecurityGroupIngressInput{
				GroupId: aws.String(group), IpPermissions: []types.IpPermission{own},
			}))
		}
		w.wantCode("a rule of another group speaks of it", remove(id), "DependencyViolation")
		if err := remove(other); err != nil {
			t.Fatal(err)
		}
		if err := remove(id); err != nil { // its own rule does not matter
			t.Fatal(err)
		}
		w.wantCode("again", remove(id), "InvalidGroup.NotFound")
		groups := do[*sdk.DescribeSecurityGroupsOutput](w)(w.client.DescribeSecurityGroups(w.Context(), &sdk.DescribeSecurityGroupsInput{
			Filters: []types.Filter{filter("group-name", "default")},
		}))
		w.wantCode("the default group", remove(*groups.SecurityGroups[0].GroupId), "CannotDelete")
	})
}
