package asg

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/errors"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
)

// place is where a cluster goes.
type place struct {
	partition pulumi.StringOutput
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
func (b *builder) inspect(args *ClusterArgs, mistakes map[string]mistake) (place, error) {
	if args == nil {
		args = &ClusterArgs{}
	}
	v, err := newValues(b.ctx.Context(), args, mistakes)
	if err != nil {
		return place{}, fmt.Errorf("read the inputs of %s: %w", b.name, err)
	}
	problems, _ := validate(v)
	subnet := b.ask(args, v, problems)
	problems, warnings := validate(v)
	if problems != nil {
		return place{}, errors.NewInputPropertiesError(fmt.Sprintf("%s has inputs that cannot be accepted, nothing is created", b.name), problems...)
	}
	for _, warning := range warnings {
		// A message that cannot be shown is no reason to stop.
		_ = b.ctx.Log.Warn(fmt.Sprintf("%s: %s", warning.PropertyPath, warning.Reason), &pulumi.LogArgs{Resource: b.cluster})
	}
	b.in = newInputs(args, v)

	zone := subnet.AvailabilityZone()
	if v.availabilityZone.given {
		zone = args.AvailabilityZone.ToStringPtrOutput().Elem()
	}
	return place{
		partition: aws.GetPartitionOutput(b.ctx, aws.GetPartitionOutputArgs{}, b.parent()).Partition(),
		region:    aws.GetRegionOutput(b.ctx, aws.GetRegionOutputArgs{}, b.parent()).Name(),
		account:   aws.GetCallerIdentityOutput(b.ctx, aws.GetCallerIdentityOutputArgs{}, b.parent()).AccountId(),
		zone:      zone,
		vpcID:     subnet.VpcId(),
		subnetID:  subnet.Id(),
	}, nil
}

// ask looks up what AWS knows about the inputs that are known and not refused
// already, into v.aws. It returns the cluster's subnet: the given one, or the
// given zone's default one. A lookup that fails ends the program, so there is
// none whose answer is not needed.
func (b *builder) ask(args *ClusterArgs, v *values, refused []errors.InputPropertyErrorDetails) ec2.LookupSubnetResultOutput {
	good := func(property string) bool {
		return !slices.ContainsFunc(refused, func(problem errors.InputPropertyErrorDetails) bool {
			return strings.TrimSuffix(problem.PropertyPath, secretSuffix) == property
		})
	}
	zoned, typed := good("availabilityZone") && v.availabilityZone.known, good("instanceType") && v.instanceType.known

	// All questions are asked before the first answer is waited for.
	var subnet ec2.LookupSubnetResultOutput
	placed := good("subnetId")
	switch {
	case v.subnetID.given && placed:
		subnet = ec2.LookupSubnetOutput(b.ctx, ec2.LookupSubnetOutputArgs{Id: args.SubnetId}, b.parent())
	case placed && good("availabilityZone"):
		subnet = ec2.LookupSubnetOutput(b.ctx, ec2.LookupSubnetOutputArgs{AvailabilityZone: args.AvailabilityZone, DefaultForAz: pulumi.Bool(true)}, b.parent())
	default:
		placed = false
	}
	var kind ec2.GetInstanceTypeResultOutput
	if typed {
		kind = ec2.GetInstanceTypeOutput(b.ctx, ec2.GetInstanceTypeOutputArgs{InstanceType: pulumi.String(v.instanceType.v)}, b.parent())
	}
	if placed {
		v.aws.subnet = answer(b, subnet, func(r ec2.LookupSubnetResult) string { return r.AvailabilityZone })
	}
	if zoned && v.subnetID.given && !v.aws.subnet.known { // nothing has told yet that there is such a zone
		zones := aws.GetAvailabilityZonesOutput(b.ctx, aws.GetAvailabilityZonesOutputArgs{}, b.parent())
		v.aws.zones = answer(b, zones, func(r aws.GetAvailabilityZonesResult) []string { return r.Names })
	}
	zone := v.zone()
	exists := !v.aws.zones.known || slices.Contains(v.aws.zones.v, zone.v)
	if found := v.aws.subnet.err == nil || v.subnetID.given; typed && zone.known && good("availabilityZone") && exists && found {
		filter := func(name, value string) ec2.GetInstanceTypeOfferingsFilterInput {
			return ec2.GetInstanceTypeOfferingsFilterArgs{Name: pulumi.String(name), Values: pulumi.StringArray{pulumi.String(value)}}
		}
		offerings := ec2.GetInstanceTypeOfferingsOutput(b.ctx, ec2.GetInstanceTypeOfferingsOutputArgs{
			LocationType: pulumi.String("availability-zone"),
			Filters:      ec2.GetInstanceTypeOfferingsFilterArray{filter("location", zone.v), filter("instance-type", v.instanceType.v)},
		}, b.parent())
		v.aws.offered = answer(b, offerings, func(r ec2.GetInstanceTypeOfferingsResult) bool { return len(r.InstanceTypes) > 0 })
	}
	if typed {
		v.aws.instanceType = answer(b, kind, func(r ec2.GetInstanceTypeResult) instanceType {
			return instanceType{
				// EC2 names no hypervisor for bare metal, which is of the Nitro system
				// when its volumes are NVMe devices.
				nitro:         r.Hypervisor == "nitro" || r.BareMetal && r.EbsNvmeSupport == "required",
				architectures: r.SupportedArchitectures,
			}
		})
	}
	if v.aws.instanceType.err != nil {
		v.aws.offered = fact[bool]{} // once is enough
	}
	return subnet
}

// answer waits for the answer to a lookup.
func answer[R, T any](b *builder, out pulumi.Output, of func(R) T) fact[T] {
	result, err := internals.UnsafeAwaitOutput(b.ctx.Context(), out)
	if err != nil || !result.Known {
		return fact[T]{err: err}
	}
	told, ok := result.Value.(R)
	if !ok {
		return fact[T]{err: fmt.Errorf("the answer has the type %T", result.Value)}
	}
	return fact[T]{value: value[T]{known: true, secret: result.Secret, v: of(told)}}
}
