package asg

import (
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// identity is what the nodes are in IAM.
type identity struct {
	profileName pulumi.StringOutput
	// roleName is empty when the user brought a profile.
	roleName pulumi.StringOutput
	// grants must be in force before a node uses them.
	grants []pulumi.Resource
}

func (b *builder) identity(at place, s storage, a artifacts) (identity, error) {
	if b.in.instanceProfile != nil {
		return identity{
			profileName: b.in.instanceProfile.ToStringPtrOutput().Elem(),
			roleName:    pulumi.String("").ToStringOutput(),
		}, nil
	}

	role, err := iam.NewRole(b.ctx, b.child("node"), &iam.RoleArgs{
		NamePrefix:       b.namePrefix("", "-node-", maxRolePrefix),
		Description:      pulumi.String("Nodes of an EtcFS cluster"),
		AssumeRolePolicy: trust(at.partition.ApplyT(ec2Principal).(pulumi.StringOutput)),
		Tags:             b.tags(),
	}, b.parent())
	if err != nil {
		return identity{}, fmt.Errorf("declare the nodes' role: %w", err)
	}
	own, err := iam.NewRolePolicy(b.ctx, b.child("node"), &iam.RolePolicyArgs{
		Role:   role.Name,
		Policy: policy(b.nodeStatements(at, s, a)...),
	}, b.parent())
	if err != nil {
		return identity{}, fmt.Errorf("declare the nodes' policy: %w", err)
	}
	// It registers a node with SSM, so that a survivor can be told to remove a
	// member that leaves.
	managed, err := iam.NewRolePolicyAttachment(b.ctx, b.child("node-ssm"), &iam.RolePolicyAttachmentArgs{
		Role:      role.Name,
		PolicyArn: pulumi.Sprintf("arn:%s:iam::aws:policy/AmazonSSMManagedInstanceCore", at.partition),
	}, b.parent())
	if err != nil {
		return identity{}, fmt.Errorf("declare the nodes' SSM policy: %w", err)
	}
	profile, err := iam.NewInstanceProfile(b.ctx, b.child("node"), &iam.InstanceProfileArgs{
		NamePrefix: b.namePrefix("", "-node-", maxRolePrefix),
		Role:       role.Name,
		Tags:       b.tags(),
	}, b.parent())
	if err != nil {
		return identity{}, fmt.Errorf("declare the nodes' instance profile: %w", err)
	}
	return identity{profile.Name, role.Name, []pulumi.Resource{own, managed, profile}}, nil
}

// ec2Principal is EC2's name in trust policies: the same everywhere but in China.
// It does not end in the partition's domain: the European Sovereign Cloud refuses
// ec2.amazonaws.eu (https://github.com/pulumi/pulumi-eks/issues/2341).
func ec2Principal(partition string) string {
	if partition == "aws-cn" {
		return "ec2.amazonaws.com.cn"
	}
	return "ec2.amazonaws.com"
}

// nodeStatements is what a node may do, each with who does it.
func (b *builder) nodeStatements(at place, s storage, a artifacts) []statement {
	statements := []statement{
		// The bootstrap attaches the volume; etcfuse-meta detaches it from a node
		// that it fences. EC2 asks for both the volume and the instance.
		{
			id:        "AttachDataVolume",
			actions:   []string{"ec2:AttachVolume", "ec2:DetachVolume"},
			resources: []pulumi.StringInput{s.volume.Arn},
		},
		{
			id:        "AttachToNodes",
			actions:   []string{"ec2:AttachVolume", "ec2:DetachVolume"},
			resources: []pulumi.StringInput{at.arn("ec2", pulumi.String("instance/*"))},
			equals:    map[string]pulumi.StringInput{"aws:ResourceTag/" + settings.TagClusterName: b.in.clusterName},
		},
		// The bootstrap looks for its peers and its attachment, etcfuse-meta for
		// the state of the node that it fences.
		{
			id:        "Look",
			actions:   []string{"ec2:DescribeInstances", "ec2:DescribeTags", "ec2:DescribeVolumeStatus", "ec2:DescribeVolumes"},
			resources: anyResource,
		},
		// The bootstrap elects the node that forms the cluster.
		{
			id:        "Elect",
			actions:   []string{"dynamodb:GetItem", "dynamodb:PutItem"},
			resources: []pulumi.StringInput{s.table.Arn},
		},
		// The user data fetches the bootstrap.
		{
			id:        "FetchBootstrap",
			actions:   []string{"s3:GetObject"},
			resources: []pulumi.StringInput{pulumi.Sprintf("%s/%s", a.bucket.Arn, objectKey(a.programs.Bootstrap.SHA256))},
		},
		// A node whose bootstrap failed asks to be replaced. A node that removes a
		// member looks whether it, or the other, is terminating.
		{
			id:        "ReportHealth",
			actions:   []string{"autoscaling:SetInstanceHealth"},
			resources: []pulumi.StringInput{b.groupARN(at)},
		},
		{
			id:        "LookAtGroup",
			actions:   []string{"autoscaling:DescribeAutoScalingInstances"},
			resources: anyResource,
		},
	}
	if b.in.waitForReady {
		// A node tells that it has mounted, or that it cannot, or that it needs
		// more time.
		statements = append(statements, statement{
			id:        "EndLaunch",
			actions:   []string{"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"},
			resources: []pulumi.StringInput{b.groupARN(at)},
		})
	}
	return statements
}

// groupARN matches the Auto Scaling Group, which exists only after the roles;
// the unknown part of its ARN is an identifier that AWS draws.
func (b *builder) groupARN(at place) pulumi.StringOutput {
	return at.arn("autoscaling", pulumi.Sprintf("autoScalingGroup:*:autoScalingGroupName/%s", b.groupName()))
}
