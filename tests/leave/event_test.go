package leave_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cloudwatchtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
)

const terminating = "EC2 Instance-terminate Lifecycle Action"

// actionOf waits for the event of an instance's termination.
func (c *cluster) actionOf(instance string) events.Event {
	c.t.Helper()
	var found events.Event
	c.await("the event of "+instance, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, e := range c.events {
			if e.DetailType == terminating && strings.Contains(fmt.Sprint(e.Detail), instance) {
				found = e
				return nil
			}
		}
		return errors.New("not yet")
	})
	return found
}

// emit puts an event on the bus again.
func (c *cluster) emit(e events.Event) {
	c.w.Events.Emit(c.t.Context(), e.Source, e.DetailType, e.Resources, e.Detail)
}

// tally counts what was told.
func tally(lines []line) map[told]int {
	counts := map[told]int{}
	for _, l := range lines {
		counts[told{l.Outcome, l.Completion}]++
	}
	return counts
}

func checkTally(t *testing.T, lines []line, want map[told]int) {
	t.Helper()
	if diff := cmp.Diff(want, tally(lines), cmp.AllowUnexported(told{})); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// Three invocations at the same time do what one does.
func TestDuplicateEvents(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.change(func() {
		c.copiesOf = func(events.Event) int { return 3 }
		// None goes on before all three are there.
		together := make(chan struct{})
		var arrived atomic.Int32
		c.meddle = func(ctx context.Context, call *api.Call, next next) (any, error) {
			if call.Action == "CompleteLifecycleAction" {
				if arrived.Add(1) == 3 {
					close(together)
				}
				select {
				case <-together:
				case <-ctx.Done():
				}
			}
			return next(ctx)
		}
	})
	victim := c.inService()[0]
	c.terminate(victim)
	lines := c.lines(victim, 3)
	c.gone(victim)
	outcomes, completions := map[string]int{}, map[string]int{}
	for _, l := range lines {
		outcomes[l.Outcome]++
		completions[l.Completion]++
		checkLine(t, c, victim, l)
	}
	if diff := cmp.Diff(map[string]int{"removed": 1, "absent": 2}, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"continued": 1, "already-over": 2}, completions); diff != "" {
		t.Errorf("completions (-want +got):\n%s", diff)
	}
}

// An event that comes once more, when all is over, changes nothing.
func TestEventAgainWhenAllIsOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	victim := c.inService()[0]
	c.terminate(victim)
	c.lines(victim, 1)
	c.gone(victim)
	c.emit(c.actionOf(victim))
	checkTally(t, c.lines(victim, 2), map[told]int{{"removed", "continued"}: 1, {"absent", "already-over"}: 1})
}

// The event comes when the heartbeat has ended and the instance is gone: its
// member goes nevertheless.
func TestEventAfterTheHeartbeat(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.change(func() { c.copiesOf = func(events.Event) int { return 0 } })
	victim := c.inService()[0]
	c.terminate(victim)
	action := c.actionOf(victim)
	if state := c.states()[victim]; state != "Terminating:Wait" {
		t.Errorf("without its event the instance is %s, want Terminating:Wait", state)
	}
	c.w.AutoScaling.EndHeartbeats(c.group())
	c.gone(victim)
	if !c.member(victim) {
		t.Fatal("the member went without the event")
	}
	c.change(func() { c.copiesOf = nil })
	c.emit(action)
	lines := c.lines(victim, 1)
	checkTally(t, lines, map[told]int{{"removed", "already-over"}: 1})
	checkLine(t, c, victim, lines[0])
	if c.member(victim) {
		t.Error("the member is still there")
	}
}

// An instance whose power failed has no address any more when its hook fires.
func TestHardKillFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	victim := c.inService()[0]
	if err := c.w.Kill(victim); err != nil {
		t.Fatal(err)
	}
	lines := c.lines(victim, 1)
	c.gone(victim)
	checkTally(t, lines, map[told]int{{"removed", "continued"}: 1})
	checkLine(t, c, victim, lines[0])
	c.await("the replacement", func() error {
		if n := len(c.inService()); n != 3 {
			return fmt.Errorf("%d in service", n)
		}
		return nil
	})
}

// A destroy deletes the hook first, which lets go what waits for it. A function
// that is on its way then has nothing to complete, and nothing to try again.
func TestHookDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.change(func() {
		c.meddle = func(ctx context.Context, call *api.Call, next next) (any, error) {
			if call.Action == "SendCommand" {
				if _, err := c.groups().DeleteLifecycleHook(ctx, &autoscaling.DeleteLifecycleHookInput{
					AutoScalingGroupName: aws.String(c.group()), LifecycleHookName: aws.String(c.function()),
				}); err != nil {
					t.Error(err)
				}
			}
			return next(ctx)
		}
	})
	victim := c.inService()[0]
	c.terminate(victim)
	lines := c.lines(victim, 1)
	c.gone(victim)
	checkTally(t, lines, map[told]int{{"removed", "already-over"}: 1})
	checkLine(t, c, victim, lines[0])
}

// Without anybody who stays there is no etcd to leave.
func TestLastNodes(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, nodes)
			leaving := c.inService()
			_, err := c.groups().UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
				AutoScalingGroupName: aws.String(c.group()), MinSize: aws.Int32(0), DesiredCapacity: aws.Int32(0),
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, instance := range leaving {
				lines := c.lines(instance, 1)
				c.gone(instance)
				checkTally(t, lines, map[told]int{{"no-survivor", "continued"}: 1})
				checkLine(t, c, instance, lines[0])
			}
		})
	}
}

// Nodes that leave as well are not asked, however many they are.
func TestNodesThatLeaveAreNotAsked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 7)
	_, err := c.groups().SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String(c.group()), DesiredCapacity: aws.Int32(2),
	})
	if err != nil {
		t.Fatal(err)
	}
	var leaving []string
	c.await("five nodes to leave", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if leaving = c.removed; len(leaving) != 5 {
			return fmt.Errorf("%d did", len(leaving))
		}
		return nil
	})
	stay := c.inService()
	for _, instance := range leaving {
		lines := c.lines(instance, 1)
		checkTally(t, lines, map[told]int{{"removed", "continued"}: 1})
		if !slices.Contains(stay, lines[0].Survivor) {
			t.Errorf("%s was asked, want one of %v, which stay", lines[0].Survivor, stay)
		}
	}
}

// What is not the function's business does not even start it; and if somebody
// invokes it with that, it touches nothing.
func TestForeignEvents(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	detail := func(changes map[string]any) map[string]any {
		d := map[string]any{
			"LifecycleActionToken": "87654321-4321-4321-4321-210987654321", "AutoScalingGroupName": c.group(), "LifecycleHookName": c.function(),
			"EC2InstanceId": c.inService()[0], "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
		}
		maps.Copy(d, changes)
		return d
	}
	for name, e := range map[string]struct {
		detailType string
		detail     map[string]any
		reason     string
	}{
		"launch": {"EC2 Instance-launch Lifecycle Action", detail(map[string]any{"LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}), "detail-type"},
		"over":   {"EC2 Instance Terminate Successful", detail(nil), "detail-type"},
		"group":  {terminating, detail(map[string]any{"AutoScalingGroupName": c.group() + "-2"}), "it is of group"},
		"hook":   {terminating, detail(map[string]any{"LifecycleHookName": "drain"}), "it is of hook"},
	} {
		c.w.Events.Emit(t.Context(), "aws.autoscaling", e.detailType, nil, e.detail)
		l := c.invoke(map[string]any{"id": name, "detail-type": e.detailType, "detail": e.detail})
		if l.Outcome != "ignored" || l.Completion != "" || !strings.Contains(l.Reason, e.reason) {
			t.Errorf("%s: told %+v, want ignored because of %s", name, l, e.reason)
		}
	}
	test := c.invoke(map[string]any{"AutoScalingGroupName": c.group(), "Event": "autoscaling:TEST_NOTIFICATION"})
	if test.Outcome != "ignored" || test.Reason != "a test notification" {
		t.Errorf("told %+v, want a test notification ignored", test)
	}
	c.mu.Lock()
	calls := c.calls
	c.mu.Unlock()
	if len(calls) > 0 {
		t.Errorf("called %v, want nothing", calls)
	}
	if started := c.starts(); started != 5 {
		t.Errorf("the function was invoked %d times, want the 5 times that the test did", started)
	}
}

// An event of ours about an instance that EC2 never heard of.
func TestUnknownInstance(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	l := c.invoke(map[string]any{"id": "unknown", "detail-type": terminating, "detail": map[string]any{
		"LifecycleActionToken": "87654321-4321-4321-4321-210987654321", "AutoScalingGroupName": c.group(), "LifecycleHookName": c.function(),
		"EC2InstanceId": "i-00000000000000001", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
	}})
	if l.Outcome != "absent" || l.Completion != "already-over" || !slices.Contains(l.Notes, "EC2 does not know the instance any more") {
		t.Errorf("told %+v, want absent, already over, and that EC2 does not know it", l)
	}
}

// invoke invokes the function by hand and returns the line that it wrote.
func (c *cluster) invoke(event map[string]any) line {
	c.t.Helper()
	payload, err := json.Marshal(event)
	if err != nil {
		c.t.Fatal(err)
	}
	before := c.told()
	out, err := lambda.NewFromConfig(c.w.AWSConfig()).Invoke(c.t.Context(), &lambda.InvokeInput{
		FunctionName: aws.String(c.function()), Payload: payload, InvocationType: lambdatypes.InvocationTypeRequestResponse,
	})
	if err != nil || out.FunctionError != nil {
		c.t.Fatalf("invoke the function: %v %s", err, out.Payload)
	}
	var lines []line
	c.await("the line of an invocation", func() error {
		if lines = c.told(); len(lines) != len(before)+1 {
			return fmt.Errorf("%d lines, were %d", len(lines), len(before))
		}
		return nil
	})
	return lines[len(lines)-1]
}

// starts counts the function's invocations.
func (c *cluster) starts() int {
	started := 0
	for _, entry := range c.log() {
		if strings.HasPrefix(entry, "START RequestId") {
			started++
		}
	}
	return started
}

// A function that dies in every try cannot complete anything. The heartbeat
// lets the instance go, and the event is kept, with an alarm.
func TestFunctionThatAlwaysDies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.change(func() {
		c.meddle = func(context.Context, *api.Call, next) (any, error) {
			c.signal(syscall.SIGKILL)
			return nil, api.ErrDropped
		}
	})
	victim := c.inService()[0]
	c.terminate(victim)
	c.checkKept(victim, "Runtime.ExitError")
	if state := c.states()[victim]; state != "Terminating:Wait" {
		t.Errorf("the instance is %s, want Terminating:Wait", state)
	}
	c.w.AutoScaling.EndHeartbeats(c.group())
	c.gone(victim)
	if got := c.starts(); got != 3 {
		t.Errorf("the function was started %d times, want 3", got)
	}
}

// A member that could not be removed in any try is told by the queue; the
// instance went after the first.
func TestMemberThatStays(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.timeout(brief)
	c.change(func() { c.answer = func(context.Context, string) (ec2.CommandResult, bool) { return refusal, true } })
	victim := c.inService()[0]
	c.terminate(victim)
	c.lines(victim, 1)
	c.gone(victim)
	c.checkKept(victim, "unhealthy cluster")
	checkTally(t, c.lines(victim, 3), map[told]int{{"refused", "continued"}: 1, {"refused", "already-over"}: 2})
}

// checkKept waits until the event about an instance is in the queue of failed
// events, after all tries, with the last error, and the queue's alarm says so.
func (c *cluster) checkKept(instance, reason string) {
	c.t.Helper()
	queue := c.function() + "-failed"
	var kept struct {
		RequestContext struct{ ApproximateInvokeCount int }
		RequestPayload struct {
			Detail struct {
				Instance string `json:"EC2InstanceId"`
			}
		}
		ResponsePayload struct{ ErrorType, ErrorMessage string }
	}
	c.await("the event in the queue", func() error {
		messages := c.w.SQS.Messages(queue)
		if len(messages) != 1 {
			return fmt.Errorf("%d messages", len(messages))
		}
		return json.Unmarshal([]byte(messages[0]), &kept)
	})
	if kept.RequestPayload.Detail.Instance != instance || kept.RequestContext.ApproximateInvokeCount != 3 ||
		!strings.Contains(kept.ResponsePayload.ErrorType+kept.ResponsePayload.ErrorMessage, reason) {
		c.t.Errorf("kept %+v, want the event of %s after 3 tries because of %s", kept, instance, reason)
	}
	alarms, err := cloudwatch.NewFromConfig(c.w.AWSConfig()).DescribeAlarms(c.t.Context(), &cloudwatch.DescribeAlarmsInput{AlarmNames: []string{queue}})
	if err != nil || len(alarms.MetricAlarms) != 1 || alarms.MetricAlarms[0].StateValue != cloudwatchtypes.StateValueAlarm {
		c.t.Errorf("got alarms %+v, %v, want one in ALARM", alarms, err)
	}
}

// sentByLambda are the permissions that Lambda itself uses in the function's
// name: the lines and the kept events of these tests are their proof.
var sentByLambda = []string{"logs:CreateLogStream", "logs:PutLogEvents", "sqs:SendMessage"}

// checkRole checks that the function was denied nothing, and that it did not
// call anything that no permission names: the role is the one that the
// component renders.
func (c *cluster) checkRole() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range c.calls {
		if refusal, ok := errors.AsType[*api.Error](each.err); ok && (strings.Contains(refusal.Code, "Denied") || refusal.Code == "UnauthorizedOperation") {
			c.t.Errorf("%s was denied: %v", each.action, each.err)
		}
	}
}

// The function's role allows what it does, and nothing that it does not do.
func TestRoleIsLeast(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	victim := c.inService()[0]
	c.terminate(victim)
	c.lines(victim, 1)
	c.gone(victim)

	used := slices.Clone(sentByLambda)
	c.mu.Lock()
	for _, each := range c.calls {
		used = append(used, each.action)
	}
	c.mu.Unlock()
	slices.Sort(used)
	used = slices.Compact(used)
	if diff := cmp.Diff(used, c.granted()); diff != "" {
		t.Errorf("permissions (-used +granted):\n%s", diff)
	}
}

// granted lists the actions that the function's role allows.
func (c *cluster) granted() []string {
	c.t.Helper()
	ctx, client := c.t.Context(), iam.NewFromConfig(c.w.AWSConfig())
	function, err := lambda.NewFromConfig(c.w.AWSConfig()).GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: aws.String(c.function())})
	if err != nil {
		c.t.Fatal(err)
	}
	role := aws.String((*function.Role)[strings.LastIndex(*function.Role, "/")+1:])
	policies, err := client.ListRolePolicies(ctx, &iam.ListRolePoliciesInput{RoleName: role})
	if err != nil {
		c.t.Fatal(err)
	}
	attached, err := client.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{RoleName: role})
	if err != nil || len(attached.AttachedPolicies) > 0 {
		c.t.Fatalf("got managed policies %v, %v, want none", attached, err)
	}
	var granted []string
	for _, name := range policies.PolicyNames {
		out, err := client.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: role, PolicyName: aws.String(name)})
		if err != nil {
			c.t.Fatal(err)
		}
		granted = append(granted, actionsIn(c.t, *out.PolicyDocument)...)
	}
	slices.Sort(granted)
	return slices.Compact(granted)
}

// actionsIn lists the actions of a policy, as IAM returns it.
func actionsIn(t testing.TB, document string) []string {
	t.Helper()
	text, err := url.QueryUnescape(document)
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct{ Action []string }
	}
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		t.Fatalf("read the policy: %v", err)
	}
	var actions []string
	for _, statement := range policy.Statement {
		actions = append(actions, statement.Action...)
	}
	return actions
}
