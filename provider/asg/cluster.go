// Package asg is the component etcfs:asg:Cluster: an EtcFS cluster in an EC2
// Auto Scaling Group. It is served by the plugin and works as well as a plain
// library in a Go program:
//
//	fs, err := asg.NewCluster(ctx, "fs", &asg.ClusterArgs{
//		ClusterName:      pulumi.String("demo"),
//		AvailabilityZone: pulumi.String("eu-west-1a"),
//	})
package asg

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	perrors "github.com/pulumi/pulumi/sdk/v3/go/pulumi/errors"

	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

// Token is the component's type in every language.
const Token = "etcfs:asg:Cluster"

// Cluster is an EtcFS cluster and what a program needs to go on with it.
// Annotate describes each output.
type Cluster struct {
	pulumi.ResourceState

	ClusterName               pulumi.StringOutput `pulumi:"clusterName"`
	AutoScalingGroupName      pulumi.StringOutput `pulumi:"autoScalingGroupName"`
	VolumeId                  pulumi.StringOutput `pulumi:"volumeId"`
	SeedTableName             pulumi.StringOutput `pulumi:"seedTableName"`
	SecurityGroupId           pulumi.StringOutput `pulumi:"securityGroupId"`
	LaunchTemplateId          pulumi.StringOutput `pulumi:"launchTemplateId"`
	LaunchTemplateVersion     pulumi.IntOutput    `pulumi:"launchTemplateVersion"`
	GracefulLeaveFunctionName pulumi.StringOutput `pulumi:"gracefulLeaveFunctionName"`
	FailedEventsQueueUrl      pulumi.StringOutput `pulumi:"failedEventsQueueUrl"`
	NodeRoleName              pulumi.StringOutput `pulumi:"nodeRoleName"`
	InstanceProfileName       pulumi.StringOutput `pulumi:"instanceProfileName"`
	BucketName                pulumi.StringOutput `pulumi:"bucketName"`
	AvailabilityZone          pulumi.StringOutput `pulumi:"availabilityZone"`
	VpcId                     pulumi.StringOutput `pulumi:"vpcId"`
	SubnetId                  pulumi.StringOutput `pulumi:"subnetId"`
}

// NewCluster declares a cluster in a program that imports this package. The
// node's programs are compiled from this module's source with the Go toolchain.
//
// It waits for the inputs that depend on other resources, in order to judge
// them, and returns an error that wraps an *errors.InputPropertiesError, which
// lists everything that is wrong with them.
func NewCluster(ctx *pulumi.Context, name string, args *ClusterArgs, opts ...pulumi.ResourceOption) (*Cluster, error) {
	cluster, err := construct(ctx, name, args, nil, artifact.Installed(), opts...)
	if refused, ok := errors.AsType[*perrors.InputPropertiesError](err); ok {
		return nil, &refusedError{refused}
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.RegisterResourceOutputs(cluster, cluster.outputs()); err != nil {
		return nil, fmt.Errorf("register the outputs of %s: %w", name, err)
	}
	return cluster, nil
}

// refusedError tells one problem per line, as the engine does with a plugin's;
// the SDK's own error writes them without as much as a space in between.
type refusedError struct{ problems *perrors.InputPropertiesError }

func (e *refusedError) Unwrap() error { return e.problems }

func (e *refusedError) Error() string {
	var text strings.Builder
	text.WriteString(e.problems.Message)
	for _, problem := range e.problems.Errors {
		fmt.Fprintf(&text, "\n  - %s", problem)
	}
	return text.String()
}

// construct is the table of contents of what a cluster consists of. What is
// declared later depends on what is declared before it.
func construct(ctx *pulumi.Context, name string, args *ClusterArgs, mistakes map[string]mistake, programs artifact.Bundle, opts ...pulumi.ResourceOption) (*Cluster, error) {
	cluster := &Cluster{}
	if err := ctx.RegisterComponentResource(Token, name, cluster, opts...); err != nil {
		return nil, fmt.Errorf("register %s: %w", name, err)
	}
	b := &builder{ctx: ctx, name: name, cluster: cluster}

	place, err := b.inspect(args, mistakes) // what is given, where it goes, and whether it can be
	if err != nil {
		return nil, err
	}
	storage, err := b.storage(place) // the shared volume, the seed table
	if err != nil {
		return nil, err
	}
	network, err := b.network(place) // the security group and its rules
	if err != nil {
		return nil, err
	}
	artifacts, err := b.artifacts(programs) // the bucket with the bootstrap binary
	if err != nil {
		return nil, err
	}
	identity, err := b.identity(place, storage, artifacts) // the nodes' role and profile
	if err != nil {
		return nil, err
	}
	leave, err := b.scaleIn(place, artifacts) // the function, and the rule that calls it
	if err != nil {
		return nil, err
	}
	nodes, err := b.nodes(place, storage, network, artifacts, identity, leave) // launch template and group
	if err != nil {
		return nil, err
	}
	if err := b.hook(nodes); err != nil { // what makes the group wait for the function
		return nil, err
	}
	if err := b.ready(nodes); err != nil { // and, if wanted, for nodes to mount
		return nil, err
	}

	cluster.ClusterName = b.in.clusterName
	cluster.AutoScalingGroupName = nodes.group.Name
	cluster.VolumeId = storage.volume.ID().ToStringOutput()
	cluster.SeedTableName = storage.table.Name
	cluster.SecurityGroupId = network.group.ID().ToStringOutput()
	cluster.LaunchTemplateId = nodes.template.ID().ToStringOutput()
	cluster.LaunchTemplateVersion = nodes.template.LatestVersion
	cluster.GracefulLeaveFunctionName = leave.function.Name
	cluster.FailedEventsQueueUrl = leave.failed.Url
	cluster.NodeRoleName = identity.roleName
	cluster.InstanceProfileName = identity.profileName
	cluster.BucketName = artifacts.bucket.Bucket
	cluster.AvailabilityZone = place.zone
	cluster.VpcId = place.vpcID
	cluster.SubnetId = place.subnetID
	return cluster, nil
}

// builder holds what every part of a cluster needs: where to declare, under
// which name, and what the user said.
type builder struct {
	ctx     *pulumi.Context
	name    string
	cluster *Cluster
	in      *inputs
}

// child names a resource of the cluster.
func (b *builder) child(role string) string { return b.name + "-" + role }

// parent makes a resource, or a lookup, the component's: it has its provider.
func (b *builder) parent() pulumi.ResourceOrInvokeOption { return pulumi.Parent(b.cluster) }

// Annotate implements [infer.Annotated]: the text that every SDK carries.
func (c *Cluster) Annotate(text infer.Annotator) {
	text.Describe(&c.ClusterName, "The cluster's name, which is the `ClusterName` tag of its instances.")
	text.Describe(&c.AutoScalingGroupName, "The name of the Auto Scaling Group. Attach scaling policies to it.")
	text.Describe(&c.VolumeId, "The ID of the shared io2 data volume. Take snapshots of it.")
	text.Describe(&c.SeedTableName, "The name of the DynamoDB table that holds the cluster's seed item.")
	text.Describe(&c.SecurityGroupId, "The ID of the nodes' security group. Rules of your own can be added to it.")
	text.Describe(&c.LaunchTemplateId, "The ID of the nodes' launch template.")
	text.Describe(&c.LaunchTemplateVersion, "The version of the launch template that the group launches new nodes from.")
	text.Describe(&c.GracefulLeaveFunctionName, "The name of the Lambda function that removes a terminating node from etcd. Its log group is /aws/lambda/ followed by this name.")
	text.Describe(&c.FailedEventsQueueUrl, "The URL of the SQS queue with the events of terminating nodes that could not be acted on. An alarm is on its depth.")
	text.Describe(&c.NodeRoleName, "The name of the nodes' IAM role. Attach policies to it that your workload needs. Empty when `instanceProfile` was given.")
	text.Describe(&c.InstanceProfileName, "The name of the nodes' instance profile: the given one, or the one that was created.")
	text.Describe(&c.BucketName, "The name of the private S3 bucket that new nodes fetch the bootstrap binary from.")
	text.Describe(&c.AvailabilityZone, "The availability zone of the cluster.")
	text.Describe(&c.VpcId, "The ID of the VPC of the cluster.")
	text.Describe(&c.SubnetId, "The ID of the subnet of the nodes.")
}

// outputs lists the outputs by their names.
func (c *Cluster) outputs() pulumi.Map {
	return pulumi.Map{
		"clusterName":               c.ClusterName,
		"autoScalingGroupName":      c.AutoScalingGroupName,
		"volumeId":                  c.VolumeId,
		"seedTableName":             c.SeedTableName,
		"securityGroupId":           c.SecurityGroupId,
		"launchTemplateId":          c.LaunchTemplateId,
		"launchTemplateVersion":     c.LaunchTemplateVersion,
		"gracefulLeaveFunctionName": c.GracefulLeaveFunctionName,
		"failedEventsQueueUrl":      c.FailedEventsQueueUrl,
		"nodeRoleName":              c.NodeRoleName,
		"instanceProfileName":       c.InstanceProfileName,
		"bucketName":                c.BucketName,
		"availabilityZone":          c.AvailabilityZone,
		"vpcId":                     c.VpcId,
		"subnetId":                  c.SubnetId,
	}
}
