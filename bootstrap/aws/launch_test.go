package aws_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
)

func TestLaunch(t *testing.T) {
	t.Parallel()
	const over = "No active Lifecycle Action found with instance ID " + self
	for name, test := range map[string]struct {
		act    func(aws.Launch, context.Context, string) error
		states []string // that the group tells, one by one; the last again and again
		code   string   // what the act is refused with at first
		say    string
		want   []string // the calls that are no looks
		fails  bool
	}{
		"continue":                {act: aws.Launch.Continue, states: []string{"Pending:Wait"}, want: []string{"CompleteLifecycleAction CONTINUE"}},
		"abandon":                 {act: aws.Launch.Abandon, states: []string{"Pending:Wait"}, want: []string{"CompleteLifecycleAction ABANDON"}},
		"extend":                  {act: aws.Launch.Extend, states: []string{"Pending:Wait"}, want: []string{"RecordLifecycleActionHeartbeat "}},
		"before the hook":         {act: aws.Launch.Continue, states: []string{"Pending", "Pending:Wait"}, want: []string{"CompleteLifecycleAction CONTINUE"}},
		"in service":              {act: aws.Launch.Continue, states: []string{"InService"}},
		"in no group":             {act: aws.Launch.Abandon, states: []string{""}},
		"over in the meantime":    {act: aws.Launch.Continue, states: []string{"Pending:Wait"}, code: "ValidationError", say: over, want: []string{"CompleteLifecycleAction CONTINUE"}},
		"contention":              {act: aws.Launch.Continue, states: []string{"Pending:Wait"}, code: "ResourceContention", want: []string{"CompleteLifecycleAction CONTINUE", "CompleteLifecycleAction CONTINUE"}},
		"something else is wrong": {act: aws.Launch.Continue, states: []string{"Pending:Wait"}, code: "ValidationError", say: "No Lifecycle Hook found", want: []string{"CompleteLifecycleAction CONTINUE"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls []string
			looks := 0
			api := autoscaling.NewFromConfig(endpoint(t, func(form map[string]string) (int, string) {
				action := form["Action"]
				if action == "DescribeAutoScalingInstances" {
					state := test.states[min(looks, len(test.states)-1)]
					looks++
					member := ""
					if state != "" {
						member = "<member><InstanceId>" + self + "</InstanceId><AutoScalingGroupName>demo-asg</AutoScalingGroupName><LifecycleState>" + state + "</LifecycleState></member>"
					}
					return 200, "<DescribeAutoScalingInstancesResponse><DescribeAutoScalingInstancesResult><AutoScalingInstances>" + member +
						"</AutoScalingInstances></DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>"
				}
				if form["AutoScalingGroupName"] != "demo-asg" || form["LifecycleHookName"] != "demo-ready" || form["InstanceId"] != self {
					t.Errorf("got the call %v, want this instance's", form)
				}
				calls = append(calls, action+" "+form["LifecycleActionResult"])
				if test.code != "" && len(calls) == 1 {
					return 400, fmt.Sprintf("<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", test.code, test.say)
				}
				return 200, fmt.Sprintf("<%[1]sResponse><%[1]sResult></%[1]sResult></%[1]sResponse>", action)
			}))
			err := test.act(aws.Launch{API: api, Hook: "demo-ready"}, t.Context(), self)
			if (err != nil) != test.fails {
				t.Errorf("got error %v, want one %t", err, test.fails)
			}
			if !slices.Equal(calls, test.want) {
				t.Errorf("got calls %q, want %q", calls, test.want)
			}
		})
	}
}
