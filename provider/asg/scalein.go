package asg

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/autoscaling"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/lambda"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/sqs"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// scaleIn is the way of a terminating node out of etcd: the group's event, the
// rule that picks it up, and the function that removes the member and lets the
// instance go.
type scaleIn struct {
	function *lambda.Function
	// failed holds the events that nobody acted on.
	failed *sqs.Queue
	// path must be complete before the group can terminate an instance, and
	// stay until the group is gone; or each termination waits out its heartbeat.
	path []pulumi.Resource
}

const (
	functionMemory = 256 // MB; CPU comes with it, and so a quick start
	logRetention   = 30  // days
	// The longest that SQS keeps a message.
	failedRetention = 14 * 24 * time.Hour
)

func (b *builder) groupName() pulumi.StringOutput { return pulumi.Sprintf("%s-asg", b.in.clusterName) }

// leaveName is the name of the hook and of the function.
func (b *builder) leaveName() pulumi.StringOutput {
	return pulumi.Sprintf("%s-graceful-leave", b.in.clusterName)
}

func (b *builder) scaleIn(at place, a artifacts) (scaleIn, error) {
	// Declared here, or Lambda would create it, without an end to what it keeps
	// and out of the reach of a destroy.
	logs, err := cloudwatch.NewLogGroup(b.ctx, b.child("graceful-leave"), &cloudwatch.LogGroupArgs{
		Name:            pulumi.Sprintf("/aws/lambda/%s", b.leaveName()),
		RetentionInDays: pulumi.Int(logRetention),
		Tags:            b.tags(),
	}, b.parent())
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the function's log group: %w", err)
	}
	// AWS takes the creation of a rule, a queue or an alarm that exists for an
	// update of it, and refuses a second log group. So a second cluster of this
	// name fails here, before it would take those over, and delete them later.
	unique := pulumi.DependsOn([]pulumi.Resource{logs})
	role, err := iam.NewRole(b.ctx, b.child("graceful-leave"), &iam.RoleArgs{
		NamePrefix:       b.namePrefix("", "-leave-", maxRolePrefix),
		Description:      pulumi.String("Graceful-leave function of an EtcFS cluster"),
		AssumeRolePolicy: trust(pulumi.String("lambda.amazonaws.com")),
		Tags:             b.tags(),
	}, b.parent())
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the function's role: %w", err)
	}
	// An event that the function has failed three times, and one that never got
	// to it, stay here for an operator.
	failed, err := sqs.NewQueue(b.ctx, b.child("graceful-leave-failed"), &sqs.QueueArgs{
		Name:                    b.failedName(),
		MessageRetentionSeconds: pulumi.Int(int(failedRetention.Seconds())),
		SqsManagedSseEnabled:    pulumi.Bool(true),
		Tags:                    b.tags(),
	}, b.parent(), unique)
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the queue of failed events: %w", err)
	}
	grants, err := iam.NewRolePolicy(b.ctx, b.child("graceful-leave"), &iam.RolePolicyArgs{
		Role:   role.Name,
		Policy: policy(b.functionStatements(at, logs, failed)...),
	}, b.parent())
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the function's policy: %w", err)
	}

	hash, err := hex.DecodeString(a.programs.Function.SHA256)
	if err != nil {
		return scaleIn{}, fmt.Errorf("read the checksum of the function's package: %w", err)
	}
	function, err := lambda.NewFunction(b.ctx, b.child("graceful-leave"), &lambda.FunctionArgs{
		Name:           b.leaveName(),
		Description:    pulumi.String("Removes terminating nodes of an EtcFS cluster from etcd"),
		Role:           role.Arn,
		Runtime:        pulumi.String(contract.Runtime),
		Architectures:  pulumi.StringArray{pulumi.String(contract.Architecture)},
		Handler:        pulumi.String(contract.HandlerName),
		Code:           pulumi.NewFileArchive(a.programs.Function.Path),
		SourceCodeHash: pulumi.String(base64.StdEncoding.EncodeToString(hash)),
		Timeout:        pulumi.Int(int(contract.FunctionTimeout.Seconds())),
		MemorySize:     pulumi.Int(functionMemory),
		Environment: lambda.FunctionEnvironmentArgs{Variables: pulumi.StringMap{
			contract.ClusterVariable: b.in.clusterName,
			contract.GroupVariable:   b.groupName(),
			contract.HookVariable:    b.leaveName(),
		}},
		Tags: b.tags(),
	}, b.parent(), pulumi.DependsOn([]pulumi.Resource{logs, grants}))
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the function: %w", err)
	}
	retries, err := lambda.NewFunctionEventInvokeConfig(b.ctx, b.child("graceful-leave"), &lambda.FunctionEventInvokeConfigArgs{
		FunctionName:             function.Name,
		MaximumRetryAttempts:     pulumi.Int(contract.RetryAttempts),
		MaximumEventAgeInSeconds: pulumi.Int(int(contract.EventAge.Seconds())),
		DestinationConfig: lambda.FunctionEventInvokeConfigDestinationConfigArgs{
			OnFailure: lambda.FunctionEventInvokeConfigDestinationConfigOnFailureArgs{Destination: failed.Arn},
		},
	}, b.parent(), pulumi.DependsOn([]pulumi.Resource{grants}))
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the function's retries: %w", err)
	}

	rule, err := cloudwatch.NewEventRule(b.ctx, b.child("terminating"), &cloudwatch.EventRuleArgs{
		Name:         pulumi.Sprintf("%s-asg-terminating", b.in.clusterName),
		Description:  pulumi.String("Terminating nodes of an EtcFS cluster"),
		EventPattern: b.terminating(),
		Tags:         b.tags(),
	}, b.parent(), unique)
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the event rule: %w", err)
	}
	permission, err := lambda.NewPermission(b.ctx, b.child("terminating"), &lambda.PermissionArgs{
		Action:    pulumi.String("lambda:InvokeFunction"),
		Function:  function.Name,
		Principal: pulumi.String("events.amazonaws.com"),
		SourceArn: rule.Arn,
	}, b.parent())
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the rule's permission: %w", err)
	}
	letters, err := sqs.NewQueuePolicy(b.ctx, b.child("graceful-leave-failed"), &sqs.QueuePolicyArgs{
		QueueUrl: failed.Url,
		Policy:   resourcePolicy("sqs:SendMessage", failed.Arn, "events.amazonaws.com", rule.Arn),
	}, b.parent())
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the policy of the queue of failed events: %w", err)
	}
	target, err := cloudwatch.NewEventTarget(b.ctx, b.child("terminating"), &cloudwatch.EventTargetArgs{
		Rule:             rule.Name,
		Arn:              function.Arn,
		DeadLetterConfig: cloudwatch.EventTargetDeadLetterConfigArgs{Arn: failed.Arn},
	}, b.parent(), pulumi.DependsOn([]pulumi.Resource{permission, letters}))
	if err != nil {
		return scaleIn{}, fmt.Errorf("declare the rule's target: %w", err)
	}
	alarm, err := b.alarm(failed)
	if err != nil {
		return scaleIn{}, err
	}
	return scaleIn{function, failed, []pulumi.Resource{
		function, grants, logs, retries, rule, permission, target, failed, letters, alarm,
	}}, nil
}

// alarm tells that an event is in the queue of failed ones.
func (b *builder) alarm(failed *sqs.Queue) (*cloudwatch.MetricAlarm, error) {
	alarm, err := cloudwatch.NewMetricAlarm(b.ctx, b.child("graceful-leave-failed"), &cloudwatch.MetricAlarmArgs{
		Name: b.failedName(),
		AlarmDescription: pulumi.Sprintf("A node of the EtcFS cluster %s was terminated, and its etcd member may have stayed: "+
			"the event is in the queue, the reason in the log of the function %s.", b.in.clusterName, b.leaveName()),
		Namespace:          pulumi.String("AWS/SQS"),
		MetricName:         pulumi.String("ApproximateNumberOfMessagesVisible"),
		Dimensions:         pulumi.StringMap{"QueueName": failed.Name},
		Statistic:          pulumi.String("Maximum"),
		Period:             pulumi.Int(60),
		EvaluationPeriods:  pulumi.Int(1),
		Threshold:          pulumi.Float64(0),
		ComparisonOperator: pulumi.String("GreaterThanThreshold"),
		// A queue that was empty for hours has no metrics.
		TreatMissingData: pulumi.String("notBreaching"),
		AlarmActions:     b.alarmActions(),
		Tags:             b.tags(),
	}, b.parent())
	if err != nil {
		return nil, fmt.Errorf("declare the alarm on failed events: %w", err)
	}
	return alarm, nil
}

func (b *builder) alarmActions() pulumi.ArrayOutput {
	return b.in.alarmActions.ApplyT(func(arns []string) []any {
		list := make([]any, len(arns))
		for i, arn := range arns {
			list[i] = arn
		}
		return list
	}).(pulumi.ArrayOutput)
}

// failedName is the name of the queue of failed events, and of its alarm.
func (b *builder) failedName() pulumi.StringOutput {
	return pulumi.Sprintf("%s-graceful-leave-failed", b.in.clusterName)
}

// terminating matches the events of this group's hook and of no other.
func (b *builder) terminating() pulumi.StringOutput {
	return pulumi.JSONMarshal(pulumi.Map{
		"source":      pulumi.ToStringArray([]string{"aws.autoscaling"}),
		"detail-type": pulumi.ToStringArray([]string{"EC2 Instance-terminate Lifecycle Action"}),
		"detail": pulumi.Map{
			"AutoScalingGroupName": pulumi.StringArray{b.groupName()},
			"LifecycleHookName":    pulumi.StringArray{b.leaveName()},
		},
	})
}

// functionStatements is what the function may do.
func (b *builder) functionStatements(at place, logs *cloudwatch.LogGroup, failed *sqs.Queue) []statement {
	return []statement{
		{
			id:        "CompleteAction",
			actions:   []string{"autoscaling:CompleteLifecycleAction"},
			resources: []pulumi.StringInput{b.groupARN(at)},
		},
		{
			id:        "FindSurvivors",
			actions:   []string{"autoscaling:DescribeAutoScalingInstances", "ec2:DescribeInstances", "ssm:DescribeInstanceInformation"},
			resources: anyResource,
		},
		// The document belongs to AWS and has no tags; the instances must be this
		// cluster's.
		{
			id:        "RunShellScript",
			actions:   []string{"ssm:SendCommand"},
			resources: []pulumi.StringInput{pulumi.Sprintf("arn:%s:ssm:%s::document/AWS-RunShellScript", at.partition, at.region)},
		},
		{
			id:        "RunOnNodes",
			actions:   []string{"ssm:SendCommand"},
			resources: []pulumi.StringInput{at.arn("ec2", pulumi.String("instance/*"))},
			equals:    map[string]pulumi.StringInput{"ssm:resourceTag/" + settings.TagClusterName: b.in.clusterName},
		},
		{
			id:        "FollowCommand",
			actions:   []string{"ssm:GetCommandInvocation"},
			resources: anyResource,
		},
		{
			id:        "WriteLog",
			actions:   []string{"logs:CreateLogStream", "logs:PutLogEvents"},
			resources: []pulumi.StringInput{pulumi.Sprintf("%s:*", logs.Arn)},
		},
		// Lambda does it in the function's name.
		{
			id:        "KeepFailedEvents",
			actions:   []string{"sqs:SendMessage"},
			resources: []pulumi.StringInput{failed.Arn},
		},
	}
}

// hook makes a terminating instance wait for the function. It is a resource of
// its own, below the group: on destroy it goes first, so that the terminations
// of the end wait for nobody.
func (b *builder) hook(n nodes) error {
	_, err := autoscaling.NewLifecycleHook(b.ctx, b.child("graceful-leave"), &autoscaling.LifecycleHookArgs{
		Name:                 b.leaveName(),
		AutoscalingGroupName: n.group.Name,
		LifecycleTransition:  pulumi.String("autoscaling:EC2_INSTANCE_TERMINATING"),
		DefaultResult:        pulumi.String("CONTINUE"),
		HeartbeatTimeout:     pulumi.Int(int(contract.HookHeartbeat.Seconds())),
	}, b.parent(), withGroup(n))
	if err != nil {
		return fmt.Errorf("declare the lifecycle hook: %w", err)
	}
	return nil
}
