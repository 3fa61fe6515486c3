package asg

import (
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/errors"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
)

// place is where a cluster goes.
type place struct {
	partition pulumi.StringOutput
	dnsSuffix pulumi.StringOutput
	region    pulumi.StringOutput
	account   pulumi.StringOutput

	zone     pulumi.StringOutput
	vpcID    pulumi.StringOutput
	subnetID pulumi.StringOutput
}

// arn is the ARN of something in the cluster's Region and account.
func (p place) arn(service string, resource pulumi.StringInput) pulumi.StringOutput {
	return pulumi.Sprintf("arn:%s:%s:%s:%s:%s", p.partition, service, p.region, p.account, resource)
}

// inspect judges the inputs and looks up what AWS knows about where the
// cluster goes. Everything that is wrong is reported in one error. It runs in
// the constructor, so it says no at preview, and to a library's user as well.
func (b *builder) inspect(args *ClusterArgs) (place, error) {
	if args == nil {
		args = &ClusterArgs{}
	}
	v, err := newValues(b.ctx.Context(), args)
	if err != nil {
		return place{}, fmt.Errorf("read the inputs of %s: %w", b.name, err)
	}
	problems := validate(v)
	subnet, found := b.subnet(args, v, problems)
	problems = append(problems, found...)
	if problems != nil {
		return place{}, errors.NewInputPropertiesError(fmt.Sprintf("%s has inputs that cannot be accepted, nothing is created", b.name), problems...)
	}
	b.in = newInputs(args, v)

	partition := aws.GetPartitionOutput(b.ctx, aws.GetPartitionOutputArgs{}, b.parent())
	return place{
		partition: partition.Partition(),
		dnsSuffix: partition.DnsSuffix(),
		region:    aws.GetRegionOutput(b.ctx, aws.GetRegionOutputArgs{}, b.parent()).Name(),
		account:   aws.GetCallerIdentityOutput(b.ctx, aws.GetCallerIdentityOutputArgs{}, b.parent()).AccountId(),
		zone:      subnet.AvailabilityZone(),
		vpcID:     subnet.VpcId(),
		subnetID:  subnet.Id(),
	}, nil
}

// subnet looks up the given subnet, or the given zone's default subnet. It
// looks nothing up while the placement itself is wrong.
func (b *builder) subnet(args *ClusterArgs, v *values, problems []errors.InputPropertyErrorDetails) (ec2.LookupSubnetResultOutput, []errors.InputPropertyErrorDetails) {
	for _, problem := range problems {
		if problem.PropertyPath == "availabilityZone" || problem.PropertyPath == "subnetId" {
			return ec2.LookupSubnetResultOutput{}, nil
		}
	}
	property, remedy := "subnetId", "name a subnet of this account and Region"
	lookup := ec2.LookupSubnetOutputArgs{Id: args.SubnetId}
	if v.availabilityZone.given {
		property, remedy = "availabilityZone", "name a zone of this Region that has a default subnet, or give subnetId"
		lookup = ec2.LookupSubnetOutputArgs{AvailabilityZone: args.AvailabilityZone, DefaultForAz: pulumi.Bool(true)}
	}
	subnet := ec2.LookupSubnetOutput(b.ctx, lookup, b.parent())
	if _, err := internals.UnsafeAwaitOutput(b.ctx.Context(), subnet); err != nil {
		return subnet, []errors.InputPropertyErrorDetails{{
			PropertyPath: property,
			Reason:       fmt.Sprintf("cannot be looked up: %s (%v)", remedy, err),
		}}
	}
	return subnet, nil
}
