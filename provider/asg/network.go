package asg

import (
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/vpc"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// network is what may reach a node, and what a node may reach.
type network struct {
	group *ec2.SecurityGroup
	// rules must be in force before a node looks for its peers.
	rules []pulumi.Resource
}

// intraGroup lists the ports that the nodes open to one another.
var intraGroup = []struct {
	role        string
	port        int
	description string
}{
	{"etcd-client", settings.EtcdClientPort, "etcd clients, between nodes"},
	{"etcd-peer", settings.EtcdPeerPort, "etcd peers, between nodes"},
	{"metrics", settings.MetricsPort, "EtcFS metrics, between nodes"},
	{"node-exporter", settings.NodeExporterPort, "node exporter, between nodes"},
}

const sshPort = 22

// network declares each rule as a resource of its own, so that rules which the
// user adds to the group are left alone.
func (b *builder) network(at place) (network, error) {
	group, err := ec2.NewSecurityGroup(b.ctx, b.child("nodes"), &ec2.SecurityGroupArgs{
		Name:        pulumi.Sprintf("%s-asg-sg", b.in.clusterName),
		Description: pulumi.String("Nodes of an EtcFS cluster"),
		VpcId:       at.vpcID,
		Tags:        b.namedTags("asg-sg"),
	}, b.parent())
	if err != nil {
		return network{}, fmt.Errorf("declare the security group: %w", err)
	}

	var rules []pulumi.Resource
	for _, open := range intraGroup {
		rule, err := vpc.NewSecurityGroupIngressRule(b.ctx, b.child("ingress-"+open.role), &vpc.SecurityGroupIngressRuleArgs{
			SecurityGroupId:           group.ID().ToStringOutput(),
			ReferencedSecurityGroupId: group.ID().ToStringOutput(),
			IpProtocol:                pulumi.String("tcp"),
			FromPort:                  pulumi.Int(open.port),
			ToPort:                    pulumi.Int(open.port),
			Description:               pulumi.String(open.description),
			Tags:                      b.tags(),
		}, b.parent())
		if err != nil {
			return network{}, fmt.Errorf("declare the rule for %s: %w", open.role, err)
		}
		rules = append(rules, rule)
	}
	if b.in.sshIngressCIDR != nil {
		rule, err := vpc.NewSecurityGroupIngressRule(b.ctx, b.child("ingress-ssh"), &vpc.SecurityGroupIngressRuleArgs{
			SecurityGroupId: group.ID().ToStringOutput(),
			CidrIpv4:        b.in.sshIngressCIDR,
			IpProtocol:      pulumi.String("tcp"),
			FromPort:        pulumi.Int(sshPort),
			ToPort:          pulumi.Int(sshPort),
			Description:     pulumi.String("SSH"),
			Tags:            b.tags(),
		}, b.parent())
		if err != nil {
			return network{}, fmt.Errorf("declare the rule for SSH: %w", err)
		}
		rules = append(rules, rule)
	}
	egress, err := vpc.NewSecurityGroupEgressRule(b.ctx, b.child("egress"), &vpc.SecurityGroupEgressRuleArgs{
		SecurityGroupId: group.ID().ToStringOutput(),
		CidrIpv4:        pulumi.String("0.0.0.0/0"),
		IpProtocol:      pulumi.String("-1"),
		Description:     pulumi.String("AWS APIs, packages and releases"),
		Tags:            b.tags(),
	}, b.parent())
	if err != nil {
		return network{}, fmt.Errorf("declare the egress rule: %w", err)
	}
	return network{group, append(rules, egress)}, nil
}
