package awsplugin

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/autoscaling"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/dynamodb"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ebs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sqs"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ssm"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/vpc"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// TestResourcesAreSpelledAsInTheRealSDK holds the table against the SDK of the
// truth plugin: names and types of inputs and outputs, what is required, and the
// objects inside.
func TestResourcesAreSpelledAsInTheRealSDK(t *testing.T) {
	t.Parallel()
	type sdk struct {
		args     pulumi.Input
		resource any
	}
	sdks := map[string]sdk{
		"aws:autoscaling/group:Group":                                    {autoscaling.GroupArgs{}, autoscaling.Group{}},
		"aws:autoscaling/lifecycleHook:LifecycleHook":                    {autoscaling.LifecycleHookArgs{}, autoscaling.LifecycleHook{}},
		"aws:cloudwatch/eventRule:EventRule":                             {cloudwatch.EventRuleArgs{}, cloudwatch.EventRule{}},
		"aws:cloudwatch/eventTarget:EventTarget":                         {cloudwatch.EventTargetArgs{}, cloudwatch.EventTarget{}},
		"aws:cloudwatch/logGroup:LogGroup":                               {cloudwatch.LogGroupArgs{}, cloudwatch.LogGroup{}},
		"aws:cloudwatch/metricAlarm:MetricAlarm":                         {cloudwatch.MetricAlarmArgs{}, cloudwatch.MetricAlarm{}},
		"aws:sqs/queue:Queue":                                            {sqs.QueueArgs{}, sqs.Queue{}},
		"aws:sqs/queuePolicy:QueuePolicy":                                {sqs.QueuePolicyArgs{}, sqs.QueuePolicy{}},
		"aws:dynamodb/table:Table":                                       {dynamodb.TableArgs{}, dynamodb.Table{}},
		"aws:ebs/volume:Volume":                                          {ebs.VolumeArgs{}, ebs.Volume{}},
		"aws:ec2/launchTemplate:LaunchTemplate":                          {ec2.LaunchTemplateArgs{}, ec2.LaunchTemplate{}},
		"aws:ec2/securityGroup:SecurityGroup":                            {ec2.SecurityGroupArgs{}, ec2.SecurityGroup{}},
		"aws:ec2/securityGroupRule:SecurityGroupRule":                    {ec2.SecurityGroupRuleArgs{}, ec2.SecurityGroupRule{}},
		"aws:iam/instanceProfile:InstanceProfile":                        {iam.InstanceProfileArgs{}, iam.InstanceProfile{}},
		"aws:iam/role:Role":                                              {iam.RoleArgs{}, iam.Role{}},
		"aws:iam/rolePolicy:RolePolicy":                                  {iam.RolePolicyArgs{}, iam.RolePolicy{}},
		"aws:iam/rolePolicyAttachment:RolePolicyAttachment":              {iam.RolePolicyAttachmentArgs{}, iam.RolePolicyAttachment{}},
		"aws:lambda/function:Function":                                   {lambda.FunctionArgs{}, lambda.Function{}},
		"aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": {lambda.FunctionEventInvokeConfigArgs{}, lambda.FunctionEventInvokeConfig{}},
		"aws:lambda/permission:Permission":                               {lambda.PermissionArgs{}, lambda.Permission{}},
		"aws:s3/bucketObjectv2:BucketObjectv2":                           {s3.BucketObjectv2Args{}, s3.BucketObjectv2{}},
		"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock":         {s3.BucketPublicAccessBlockArgs{}, s3.BucketPublicAccessBlock{}},
		"aws:s3/bucketV2:BucketV2":                                       {s3.BucketV2Args{}, s3.BucketV2{}},
		"aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule":        {vpc.SecurityGroupEgressRuleArgs{}, vpc.SecurityGroupEgressRule{}},
		"aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule":      {vpc.SecurityGroupIngressRuleArgs{}, vpc.SecurityGroupIngressRule{}},
		"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2": {s3.BucketServerSideEncryptionConfigurationV2Args{}, s3.BucketServerSideEncryptionConfigurationV2{}},
	}
	for _, r := range Resources() {
		truth, ok := sdks[r.Token]
		if !ok {
			t.Errorf("%s: not held against the SDK", r.Token)
			continue
		}
		args, outputs := truth.args.ElementType(), reflect.TypeOf(truth.resource)
		if args.Kind() == reflect.Pointer {
			args = args.Elem()
		}
		for _, a := range r.attributes {
			if _, ok := fieldOf(outputs, a.name); !ok {
				t.Errorf("%s: the SDK's resource has no property %s", r.Token, a.name)
			}
		}
		compare(t, r.Token, r.attributes, args)
		if r.naming.property != "" {
			if _, ok := r.attributes.find(r.naming.property); !ok {
				t.Errorf("%s: its name is in %s, which it does not have", r.Token, r.naming.property)
			}
		}
	}
}

func TestFunctionsAreSpelledAsInTheRealSDK(t *testing.T) {
	t.Parallel()
	type sdk struct{ args, result any }
	sdks := map[string]sdk{
		"aws:ec2/getInstanceType:getInstanceType":                   {ec2.GetInstanceTypeArgs{}, ec2.GetInstanceTypeResult{}},
		"aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": {ec2.GetInstanceTypeOfferingsArgs{}, ec2.GetInstanceTypeOfferingsResult{}},
		"aws:ec2/getSubnet:getSubnet":                               {ec2.LookupSubnetArgs{}, ec2.LookupSubnetResult{}},
		"aws:ec2/getSubnets:getSubnets":                             {ec2.GetSubnetsArgs{}, ec2.GetSubnetsResult{}},
		"aws:ec2/getVpc:getVpc":                                     {ec2.LookupVpcArgs{}, ec2.LookupVpcResult{}},
		"aws:index/getAvailabilityZones:getAvailabilityZones":       {aws.GetAvailabilityZonesArgs{}, aws.GetAvailabilityZonesResult{}},
		"aws:index/getCallerIdentity:getCallerIdentity":             {aws.GetCallerIdentityArgs{}, aws.GetCallerIdentityResult{}},
		"aws:index/getPartition:getPartition":                       {aws.GetPartitionArgs{}, aws.GetPartitionResult{}},
		"aws:index/getRegion:getRegion":                             {aws.GetRegionArgs{}, aws.GetRegionResult{}},
		"aws:ssm/getParameter:getParameter":                         {ssm.LookupParameterArgs{}, ssm.LookupParameterResult{}},
	}
	for _, f := range Functions() {
		truth, ok := sdks[f.Token]
		if !ok {
			t.Errorf("%s: not held against the SDK", f.Token)
			continue
		}
		compare(t, f.Token+" arguments", f.args, reflect.TypeOf(truth.args))
		for _, a := range f.results {
			if _, ok := fieldOf(reflect.TypeOf(truth.result), a.name); !ok {
				t.Errorf("%s: the SDK's result has no property %s", f.Token, a.name)
			}
		}
	}
}

func TestVersionIsThatOfTheSDK(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`github.com/pulumi/pulumi-aws/sdk/v6 v(\S+)`).FindSubmatch(content)
	if match == nil {
		t.Fatal("go.mod does not require the AWS SDK of Pulumi")
	}
	if got, want := Version, string(match[1]); got != want {
		t.Errorf("Version: got %s, want that of the SDK, %s", got, want)
	}
}

// fieldOf finds a field by its pulumi tag.
func fieldOf(of reflect.Type, name string) (reflect.StructField, bool) {
	for field := range of.Fields() {
		if field.Tag.Get("pulumi") == name {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

// compare holds inputs against the struct that the SDK sends them from.
func compare(t *testing.T, path string, list attributes, sdk reflect.Type) {
	t.Helper()
	for _, a := range list {
		if a.output {
			continue
		}
		at := path + "." + a.name
		field, ok := fieldOf(sdk, a.name)
		if !ok {
			t.Errorf("%s: the SDK has no such input", at)
			continue
		}
		want := field.Type
		switch want.Kind() {
		case reflect.Interface: // several types are accepted there, or a file
			if kind := a.goType.Kind(); kind != reflect.String && !a.asset() {
				t.Errorf("%s: got type %s, want a string or a file", at, a.goType)
			}
			continue
		case reflect.String, reflect.Int, reflect.Bool:
			if !a.required {
				t.Errorf("%s: must be required, as in the SDK", at)
			}
		case reflect.Pointer:
			if a.required {
				t.Errorf("%s: must not be required", at)
			}
		}
		got, wanted := element(a.goType).Kind(), element(want).Kind()
		if got != wanted && (got != reflect.String || wanted != reflect.Interface) {
			t.Errorf("%s: got type %s, want %s", at, got, wanted)
		}
		if got, want := a.list(), want.Kind() == reflect.Slice; got != want {
			t.Errorf("%s: is a list: got %t, want %t", at, got, want)
		}
		if len(a.fields) > 0 {
			compare(t, at, a.fields, element(want))
		}
	}
}

func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}
