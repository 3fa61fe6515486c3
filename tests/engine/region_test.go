package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// inventory lists what there is in a region that was not there at the start.
func inventory(t testing.TB, region *plane.Plane) []string {
	t.Helper()
	ctx, config := t.Context(), region.Config()
	var found []string
	add := func(kind string, name *string) { found = append(found, kind+" "+aws.ToString(name)) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	compute := ec2.NewFromConfig(config)
	volumes, err := compute.DescribeVolumes(ctx, nil)
	check(err)
	for _, v := range volumes.Volumes {
		add("volume", v.VolumeId)
	}
	groups, err := compute.DescribeSecurityGroups(ctx, nil)
	check(err)
	for _, g := range groups.SecurityGroups {
		if aws.ToString(g.GroupName) != "default" {
			add("security group", g.GroupName)
		}
	}
	templates, err := compute.DescribeLaunchTemplates(ctx, nil)
	check(err)
	for _, l := range templates.LaunchTemplates {
		add("launch template", l.LaunchTemplateName)
	}
	scaling, err := autoscaling.NewFromConfig(config).DescribeAutoScalingGroups(ctx, nil)
	check(err)
	for _, g := range scaling.AutoScalingGroups {
		add("Auto Scaling Group", g.AutoScalingGroupName)
	}
	tables, err := dynamodb.NewFromConfig(config).ListTables(ctx, nil)
	check(err)
	for _, name := range tables.TableNames {
		add("table", &name)
	}
	buckets, err := s3.NewFromConfig(config).ListBuckets(ctx, nil)
	check(err)
	for _, b := range buckets.Buckets {
		add("bucket", b.Name)
	}
	identities := iam.NewFromConfig(config)
	roles, err := identities.ListRoles(ctx, nil)
	check(err)
	for _, r := range roles.Roles {
		add("role", r.RoleName)
	}
	functions, err := lambda.NewFromConfig(config).ListFunctions(ctx, nil)
	check(err)
	for _, f := range functions.Functions {
		add("function", f.FunctionName)
	}
	rules, err := eventbridge.NewFromConfig(config).ListRules(ctx, nil)
	check(err)
	for _, r := range rules.Rules {
		add("rule", r.Name)
	}
	logs, err := cloudwatchlogs.NewFromConfig(config).DescribeLogGroups(ctx, nil)
	check(err)
	for _, g := range logs.LogGroups {
		add("log group", g.LogGroupName)
	}
	queues, err := sqs.NewFromConfig(config).ListQueues(ctx, nil)
	check(err)
	for _, url := range queues.QueueUrls {
		add("queue", &url)
	}
	alarms, err := cloudwatch.NewFromConfig(config).DescribeAlarms(ctx, nil)
	check(err)
	for _, a := range alarms.MetricAlarms {
		add("alarm", a.AlarmName)
	}
	if running, _ := region.Machines.Running(); running > 0 {
		found = append(found, fmt.Sprintf("%d machines", running))
	}
	slices.Sort(found)
	return found
}

// group is an Auto Scaling Group as AWS has it.
func group(t testing.TB, region *plane.Plane, name string) types.AutoScalingGroup {
	t.Helper()
	described, err := autoscaling.NewFromConfig(region.Config()).DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{name},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(described.AutoScalingGroups) != 1 {
		t.Fatalf("group %s: got %d, want one", name, len(described.AutoScalingGroups))
	}
	return described.AutoScalingGroups[0]
}

// scale is somebody scaling a group without Pulumi.
func scale(t testing.TB, region *plane.Plane, name string, desired int32) {
	t.Helper()
	_, err := autoscaling.NewFromConfig(region.Config()).SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String(name), DesiredCapacity: aws.Int32(desired),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// defaultSubnet is the default subnet of a zone.
func defaultSubnet(t testing.TB, region *plane.Plane, zone string) string {
	t.Helper()
	return subnet(t, region, zone, true)
}

// otherSubnet is a subnet of a zone that is not the default one.
func otherSubnet(t testing.TB, region *plane.Plane, zone string) string {
	t.Helper()
	return subnet(t, region, zone, false)
}

func subnet(t testing.TB, region *plane.Plane, zone string, isDefault bool) string {
	t.Helper()
	described, err := ec2.NewFromConfig(region.Config()).DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{
		Filters: []ec2types.Filter{
			{Name: aws.String("availability-zone"), Values: []string{zone}},
			{Name: aws.String("default-for-az"), Values: []string{strconv.FormatBool(isDefault)}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(described.Subnets) != 1 {
		t.Fatalf("%s has %d such subnets, want one", zone, len(described.Subnets))
	}
	return aws.ToString(described.Subnets[0].SubnetId)
}

// iops are the provisioned I/O operations of a volume.
func iops(t testing.TB, region *plane.Plane, volume string) int32 {
	t.Helper()
	described, err := ec2.NewFromConfig(region.Config()).DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{volume}})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToInt32(described.Volumes[0].Iops)
}
