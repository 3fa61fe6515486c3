package awsplugin_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/archive"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/asset"
)

const trust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

// object is what a program says.
type object = map[string]any

func with(inputs object, changes object) object {
	all := maps.Clone(inputs)
	maps.Copy(all, changes)
	return all
}

// TestLifeOfEachResource takes each type of resource through a stack's life:
// preview, create, the same again (also spelled differently), refresh, update
// in place, replacement, delete.
func TestLifeOfEachResource(t *testing.T) {
	t.Parallel()
	file, err := asset.FromText("first")
	if err != nil {
		t.Fatal(err)
	}
	other, err := asset.FromText("second")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		token string
		// before creates what the resource needs and completes its inputs.
		before func(e *engine, inputs object)
		inputs object
		// same are other inputs of the same meaning.
		same object
		// change is changed in place, in these properties.
		change  object
		changed []string
		// replace cannot be changed in place.
		replace object
		// stays is true for a setting that AWS puts back to its default.
		stays bool
	}{
		{
			token: "aws:ebs/volume:Volume",
			inputs: object{
				"availabilityZone": "eu-west-1a", "type": "io2", "size": 10, "iops": 100, "multiAttachEnabled": true, "encrypted": true,
				"tags": object{"Name": "data"},
			},
			change:  object{"size": 20, "tags": object{"Name": "more", "Extra": "tag"}},
			changed: []string{"size", "tags.Name", "tags"},
			replace: object{"availabilityZone": "eu-west-1b"},
		},
		{
			token: "aws:dynamodb/table:Table",
			inputs: object{
				"name": "demo-etcfs-seed", "billingMode": "PAY_PER_REQUEST", "hashKey": "cluster_name",
				"attributes": []any{object{"name": "cluster_name", "type": "S"}}, "tags": object{"ClusterName": "demo"},
			},
			change:  object{"tags": object{"ClusterName": "demo", "Team": "storage"}},
			changed: []string{"tags"},
			replace: object{"name": "other-etcfs-seed"},
		},
		{
			token: "aws:ec2/securityGroup:SecurityGroup",
			inputs: object{"name": "demo-asg-sg", "description": "Nodes", "tags": object{"ClusterName": "demo"}, "ingress": []any{
				object{"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": []any{"10.0.0.0/8"}},
				object{"protocol": "tcp", "fromPort": 2379, "toPort": 2380, "self": true, "description": "etcd"},
			}},
			same: object{"ingress": []any{
				object{"protocol": "tcp", "fromPort": 2379, "toPort": 2380, "self": true, "description": "etcd"},
				object{"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": []any{"10.0.0.0/8"}},
			}},
			change: object{"ingress": []any{
				object{"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": []any{"10.1.0.0/16"}},
			}},
			changed: []string{"ingress"},
			replace: object{"description": "Others"},
		},
		{
			token: "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
			before: func(e *engine, inputs object) {
				group := e.create("aws:ec2/securityGroup:SecurityGroup", "group", object{})
				inputs["securityGroupId"], inputs["referencedSecurityGroupId"] = group.id, group.id
			},
			inputs:  object{"ipProtocol": "tcp", "fromPort": 2379, "toPort": 2379, "description": "etcd clients", "tags": object{"ClusterName": "demo"}},
			change:  object{"toPort": 2380, "description": "etcd"},
			changed: []string{"toPort", "description"},
		},
		{
			token: "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
			before: func(e *engine, inputs object) {
				inputs["securityGroupId"] = e.create("aws:ec2/securityGroup:SecurityGroup", "group", object{}).id
			},
			inputs:  object{"ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0"},
			change:  object{"description": "all"},
			changed: []string{"description"},
		},
		{
			token: "aws:ec2/securityGroupRule:SecurityGroupRule",
			before: func(e *engine, inputs object) {
				inputs["securityGroupId"] = e.create("aws:ec2/securityGroup:SecurityGroup", "group", object{}).id
			},
			inputs:  object{"type": "ingress", "protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": []any{"10.0.0.0/8"}},
			replace: object{"fromPort": 21},
		},
		{
			token:   "aws:iam/role:Role",
			inputs:  object{"namePrefix": "demo-node-", "description": "Nodes", "assumeRolePolicy": trust, "tags": object{"ClusterName": "demo"}},
			same:    object{"assumeRolePolicy": "{\n  \"Version\": \"2012-10-17\",\n  \"Statement\": {\"Action\": [\"sts:AssumeRole\"], \"Principal\": {\"Service\": [\"ec2.amazonaws.com\"]}, \"Effect\": \"Allow\"}\n}"},
			change:  object{"description": "Other nodes", "tags": object{}},
			changed: []string{"description", "tags"},
			replace: object{"namePrefix": "other-node-"},
		},
		{
			token: "aws:iam/rolePolicy:RolePolicy",
			before: func(e *engine, inputs object) {
				inputs["role"] = e.create("aws:iam/role:Role", "role", object{"assumeRolePolicy": trust}).id
			},
			inputs: object{"policy": object{"Version": "2012-10-17", "Statement": []any{
				object{"Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"},
			}}},
			same:    object{"policy": `{"Version":"2012-10-17","Statement":[{"Resource":["*"],"Effect":"Allow","Action":["ec2:DescribeVolumes"]}]}`},
			change:  object{"policy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeInstances","Resource":"*"}]}`},
			changed: []string{"policy"},
			replace: object{"name": "another"},
		},
		{
			token: "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
			before: func(e *engine, inputs object) {
				inputs["role"] = e.create("aws:iam/role:Role", "role", object{"assumeRolePolicy": trust}).id
			},
			inputs:  object{"policyArn": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"},
			replace: object{"role": "another"},
		},
		{
			token: "aws:iam/instanceProfile:InstanceProfile",
			before: func(e *engine, inputs object) {
				inputs["role"] = e.create("aws:iam/role:Role", "role", object{"assumeRolePolicy": trust}).id
			},
			inputs:  object{"namePrefix": "demo-node-"},
			change:  object{"tags": object{"ClusterName": "demo"}},
			changed: []string{"tags"},
			replace: object{"path": "/elsewhere/"},
		},
		{
			token: "aws:ec2/launchTemplate:LaunchTemplate",
			inputs: object{
				"namePrefix": "demo-", "description": "Nodes", "imageId": latestImage,
				"instanceType": "t3.medium", "userData": "IyEvYmluL3NoCg==",
				"vpcSecurityGroupIds": []any{"sg-0123456789abcdef0", "sg-0123456789abcdef1"},
				"metadataOptions":     object{"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
				"iamInstanceProfile":  object{"name": "demo-node"},
				"blockDeviceMappings": []any{object{"deviceName": "/dev/xvda", "ebs": object{
					"volumeType": "gp3", "volumeSize": 20, "encrypted": "true", "deleteOnTermination": "true",
				}}},
				"tagSpecifications": []any{object{"resourceType": "instance", "tags": object{"ClusterName": "demo"}}},
				"tags":              object{"ClusterName": "demo"},
			},
			same:    object{"vpcSecurityGroupIds": []any{"sg-0123456789abcdef1", "sg-0123456789abcdef0"}},
			change:  object{"instanceType": "m7i.large", "metadataOptions": object{"httpTokens": "optional"}},
			changed: []string{"instanceType", "metadataOptions.httpTokens"},
			replace: object{"namePrefix": "other-"},
		},
		{
			token: "aws:autoscaling/lifecycleHook:LifecycleHook",
			before: func(e *engine, inputs object) {
				inputs["autoscalingGroupName"] = e.create("aws:autoscaling/group:Group", "group", groupInputs(e, 0)).id
			},
			inputs: object{
				"name": "demo-graceful-leave", "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "defaultResult": "CONTINUE", "heartbeatTimeout": 180,
			},
			change:  object{"heartbeatTimeout": 300},
			changed: []string{"heartbeatTimeout"},
			replace: object{"name": "another"},
		},
		{
			token:   "aws:cloudwatch/logGroup:LogGroup",
			inputs:  object{"name": "/aws/lambda/demo-graceful-leave", "retentionInDays": 30, "tags": object{"ClusterName": "demo"}},
			change:  object{"retentionInDays": 7, "tags": object{"Team": "storage"}},
			changed: []string{"retentionInDays", "tags.ClusterName", "tags.Team", "tags"},
			replace: object{"name": "/aws/lambda/other"},
		},
		{
			token: "aws:cloudwatch/metricAlarm:MetricAlarm",
			inputs: object{
				"name": "demo-failed", "namespace": "AWS/SQS", "metricName": "ApproximateNumberOfMessagesVisible", "dimensions": object{"QueueName": "demo"},
				"statistic": "Maximum", "period": 60, "evaluationPeriods": 1, "threshold": 0, "comparisonOperator": "GreaterThanThreshold",
				"alarmActions": []any{"arn:aws:sns:eu-west-1:123456789012:a", "arn:aws:sns:eu-west-1:123456789012:b"}, "tags": object{"ClusterName": "demo"},
			},
			same:    object{"alarmActions": []any{"arn:aws:sns:eu-west-1:123456789012:b", "arn:aws:sns:eu-west-1:123456789012:a"}},
			change:  object{"threshold": 5, "treatMissingData": "notBreaching", "tags": object{}},
			changed: []string{"threshold", "treatMissingData", "tags"},
			replace: object{"name": "another"},
		},
		{
			token:   "aws:sqs/queue:Queue",
			inputs:  object{"name": "demo-failed", "messageRetentionSeconds": 1209600, "sqsManagedSseEnabled": true, "tags": object{"ClusterName": "demo"}},
			change:  object{"messageRetentionSeconds": 60, "tags": object{}},
			changed: []string{"messageRetentionSeconds", "tags"},
			replace: object{"name": "another"},
		},
		{
			token: "aws:sqs/queuePolicy:QueuePolicy",
			before: func(e *engine, inputs object) {
				inputs["queueUrl"] = e.create("aws:sqs/queue:Queue", "queue", object{}).text("url")
			},
			inputs:  object{"policy": `{"Version":"2012-10-17","Statement":[]}`},
			same:    object{"policy": `{ "Statement": [], "Version": "2012-10-17" }`},
			change:  object{"policy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sqs:SendMessage"}]}`},
			changed: []string{"policy"},
		},
		{
			token: "aws:cloudwatch/eventRule:EventRule",
			inputs: object{
				"name": "demo-asg-terminating", "description": "Terminating nodes", "tags": object{"ClusterName": "demo"},
				"eventPattern": `{"source":["aws.autoscaling"],"detail":{"AutoScalingGroupName":["demo-asg"]}}`,
			},
			same:    object{"eventPattern": `{ "detail": {"AutoScalingGroupName": ["demo-asg"]}, "source": ["aws.autoscaling"] }`},
			change:  object{"eventPattern": `{"source":["aws.autoscaling"]}`, "description": "All", "tags": object{}},
			changed: []string{"eventPattern", "description", "tags"},
			replace: object{"name": "another"},
		},
		{
			token: "aws:cloudwatch/eventTarget:EventTarget",
			before: func(e *engine, inputs object) {
				inputs["rule"] = e.create("aws:cloudwatch/eventRule:EventRule", "rule", object{"eventPattern": `{"source":["aws.autoscaling"]}`}).id
				inputs["arn"] = e.create("aws:lambda/function:Function", "function", functionInputs(e)).text("arn")
			},
			inputs:  object{},
			change:  object{"retryPolicy": object{"maximumRetryAttempts": 3, "maximumEventAgeInSeconds": 60}},
			changed: []string{"retryPolicy"},
			replace: object{"targetId": "chosen"},
		},
		{
			token:   "aws:lambda/function:Function",
			before:  func(e *engine, inputs object) { maps.Copy(inputs, functionInputs(e)) },
			inputs:  object{"name": "demo-graceful-leave", "tags": object{"ClusterName": "demo"}},
			change:  object{"timeout": 60, "environment": object{"variables": object{"CLUSTER": "other"}}, "code": code(t, "#!/bin/sh\nexit 1\n"), "tags": object{}},
			changed: []string{"timeout", "environment.variables", "code", "tags"},
			replace: object{"name": "another"},
		},
		{
			token: "aws:lambda/permission:Permission",
			before: func(e *engine, inputs object) {
				inputs["function"] = e.create("aws:lambda/function:Function", "function", functionInputs(e)).text("name")
			},
			inputs: object{
				"action": "lambda:InvokeFunction", "principal": "events.amazonaws.com", "sourceArn": "arn:aws:events:eu-west-1:123456789012:rule/demo",
			},
			replace: object{"sourceArn": "arn:aws:events:eu-west-1:123456789012:rule/other"},
		},
		{
			token: "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig",
			before: func(e *engine, inputs object) {
				inputs["functionName"] = e.create("aws:lambda/function:Function", "function", functionInputs(e)).text("name")
			},
			inputs:  object{"maximumRetryAttempts": 1, "maximumEventAgeInSeconds": 60},
			change:  object{"maximumRetryAttempts": 0},
			changed: []string{"maximumRetryAttempts"},
			replace: object{"functionName": "another"},
		},
		{
			token:   "aws:s3/bucketV2:BucketV2",
			inputs:  object{"bucketPrefix": "etcfs-demo-", "forceDestroy": true, "tags": object{"ClusterName": "demo"}},
			change:  object{"tags": object{"ClusterName": "demo", "Team": "storage"}},
			changed: []string{"tags"},
			replace: object{"bucketPrefix": "etcfs-other-"},
		},
		{
			token: "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
			before: func(e *engine, inputs object) {
				inputs["bucket"] = e.create("aws:s3/bucketV2:BucketV2", "Bucket", object{}).id
			},
			inputs:  object{"blockPublicAcls": true, "blockPublicPolicy": true, "ignorePublicAcls": true, "restrictPublicBuckets": true},
			change:  object{"restrictPublicBuckets": false},
			changed: []string{"restrictPublicBuckets"},
			replace: object{"bucket": "another"},
		},
		{
			token: "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
			before: func(e *engine, inputs object) {
				inputs["bucket"] = e.create("aws:s3/bucketV2:BucketV2", "bucket", object{}).id
			},
			inputs:  object{"rules": []any{object{"applyServerSideEncryptionByDefault": object{"sseAlgorithm": "AES256"}}}},
			change:  object{"rules": []any{object{"applyServerSideEncryptionByDefault": object{"sseAlgorithm": "AES256"}, "bucketKeyEnabled": true}}},
			changed: []string{"rules"},
			replace: object{"bucket": "another"},
			stays:   true,
		},
		{
			token: "aws:s3/bucketObjectv2:BucketObjectv2",
			before: func(e *engine, inputs object) {
				inputs["bucket"] = e.create("aws:s3/bucketV2:BucketV2", "bucket", object{}).id
			},
			inputs:  object{"key": "etcfs-bootstrap-0123", "source": file},
			change:  object{"source": other, "tags": object{"ClusterName": "demo"}},
			changed: []string{"source", "tags"},
			replace: object{"key": "etcfs-bootstrap-4567"},
		},
	}
	for _, test := range tests {
		t.Run(test.token, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, nil)
			inputs := maps.Clone(test.inputs)
			if test.before != nil {
				test.before(e, inputs)
			}
			r := e.create(test.token, "it", inputs)
			r.unchanged("after create", inputs)
			if test.same != nil {
				r.unchanged("in other words", with(inputs, test.same))
			}
			if !r.refresh() {
				t.Fatal("refresh does not find it")
			}
			r.unchanged("after refresh", inputs)

			if test.change != nil {
				changed := with(inputs, test.change)
				diff, _ := r.diff(changed)
				for path, change := range diff.DetailedDiff {
					if !slices.Contains(test.changed, path) {
						t.Errorf("change: got %s of %s, want only %v", change.Kind, path, test.changed)
					}
				}
				if len(diff.DetailedDiff) == 0 {
					t.Errorf("change: got no changes, want %v", test.changed)
				}
				r.update(changed)
				r.unchanged("after update", changed)
				r.refresh()
				r.unchanged("after update and refresh", changed)
				inputs = changed
			}
			if test.replace != nil {
				diff, _ := r.diff(with(inputs, test.replace))
				for name := range test.replace {
					if got := diff.DetailedDiff[name].Kind; got != "update&replace" && got != "add&replace" {
						t.Errorf("replace: got %q for %s, want it to replace (%v)", got, name, diff.DetailedDiff)
					}
				}
			}
			r.destroy()
			if got, want := r.refresh(), test.stays; got != want {
				t.Errorf("after delete: is there: got %t, want %t", got, want)
			}
		})
	}
}

// functionInputs are those of a function with a role of its own.
func functionInputs(e *engine) object {
	e.t.Helper()
	role := e.create("aws:iam/role:Role", "function", object{"assumeRolePolicy": strings.ReplaceAll(trust, "ec2.", "lambda.")})
	return object{
		"role": role.text("arn"), "runtime": "provided.al2023", "handler": "bootstrap", "architectures": []any{"x86_64"},
		"code": code(e.t, "#!/bin/sh\n"), "timeout": 90, "memorySize": 256,
		"environment": object{"variables": object{"CLUSTER": "demo", "GROUP": "demo-asg"}},
	}
}

// code is a function's package with this bootstrap.
func code(t *testing.T, bootstrap string) *archive.Archive {
	t.Helper()
	file, err := asset.FromText(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := archive.FromAssets(map[string]any{"bootstrap": file})
	if err != nil {
		t.Fatal(err)
	}
	return zip
}
