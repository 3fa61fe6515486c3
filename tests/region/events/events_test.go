package events_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
	"github.com/etcfs/pulumi-etcfs/tests/region/lambda"
)

var _ events.Functions = (*lambda.Functions)(nil)

const (
	ruleName = "demo-asg-terminating"
	ruleARN  = "arn:aws:events:eu-west-1:123456789012:rule/" + ruleName
	function = "arn:aws:lambda:eu-west-1:123456789012:function:demo-graceful-leave"
	group    = "arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:u:autoScalingGroupName/demo-asg"
	pattern  = `{"source":["aws.autoscaling"],"detail-type":["EC2 Instance-terminate Lifecycle Action"],` +
		`"detail":{"AutoScalingGroupName":["demo-asg"],"LifecycleHookName":["demo-graceful-leave"]}}`
)

// functions records what it is asked to invoke.
type functions struct {
	mu     sync.Mutex
	calls  []call
	refuse bool
}

type call struct{ Service, Resource, Function, Payload string }

func (f *functions) InvokeFor(service, resourceARN, functionARN string, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse {
		return errors.New("no permission")
	}
	f.calls = append(f.calls, call{service, resourceARN, functionARN, string(payload)})
	return nil
}

// queues records what it is asked to send.
type queues struct{ letters []letter }

type letter struct {
	Service, Source, Queue, Body string
	Attributes                   map[string]string
}

func (q *queues) SendFor(service, sourceARN, queueARN, body string, attributes map[string]string) error {
	q.letters = append(q.letters, letter{service, sourceARN, queueARN, body, attributes})
	return nil
}

// An event that its target refuses is in the target's dead-letter queue.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	const queue = "arn:aws:sqs:eu-west-1:123456789012:failed"
	letters := &queues{}
	bus := events.New(events.Config{
		Account: apitest.Account, Region: apitest.Region, Functions: &functions{refuse: true}, Queues: letters, Logger: slog.New(slog.DiscardHandler),
	})
	client := eventbridge.NewFromConfig(apitest.New(t, bus.Service()).Config())
	putRule(t, client)
	target := types.Target{Id: aws.String("leave"), Arn: aws.String(function), DeadLetterConfig: &types.DeadLetterConfig{Arn: aws.String(queue)}}
	if _, err := client.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: aws.String(ruleName), Targets: []types.Target{target}}); err != nil {
		t.Fatal(err)
	}
	listed, err := client.ListTargetsByRule(t.Context(), &eventbridge.ListTargetsByRuleInput{Rule: aws.String(ruleName)})
	if err != nil || aws.ToString(listed.Targets[0].DeadLetterConfig.Arn) != queue {
		t.Errorf("target: got %+v, %v, want the queue", listed, err)
	}
	bus.Emit(t.Context(), "aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", nil, map[string]string{
		"AutoScalingGroupName": "demo-asg", "LifecycleHookName": "demo-graceful-leave", "EC2InstanceId": "i-1",
	})
	if len(letters.letters) != 1 {
		t.Fatalf("got letters %v, want one", letters.letters)
	}
	got := letters.letters[0]
	if !strings.Contains(got.Body, `"EC2InstanceId":"i-1"`) {
		t.Errorf("letter: got %s, want the event", got.Body)
	}
	got.Body = ""
	want := letter{"events.amazonaws.com", ruleARN, queue, "", map[string]string{"RULE_ARN": ruleARN, "TARGET_ARN": function, "ERROR_MESSAGE": "no permission"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("letter (-want +got):\n%s", diff)
	}
}

func start(t *testing.T) (*events.Bus, *functions, *apitest.Endpoint, *eventbridge.Client) {
	t.Helper()
	targets := &functions{}
	bus := events.New(events.Config{Account: apitest.Account, Region: apitest.Region, Functions: targets, Queues: &queues{}, Logger: slog.New(slog.DiscardHandler)})
	endpoint := apitest.New(t, bus.Service())
	return bus, targets, endpoint, eventbridge.NewFromConfig(endpoint.Config())
}

func putRule(t *testing.T, client *eventbridge.Client) {
	t.Helper()
	out, err := client.PutRule(t.Context(), &eventbridge.PutRuleInput{
		Name: aws.String(ruleName), EventPattern: aws.String(pattern), Description: aws.String("Terminating nodes"),
		Tags: []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := *out.RuleArn; got != ruleARN {
		t.Fatalf("ARN: got %s, want %s", got, ruleARN)
	}
}

func putTarget(t *testing.T, client *eventbridge.Client) {
	t.Helper()
	if _, err := client.PutTargets(t.Context(), &eventbridge.PutTargetsInput{
		Rule: aws.String(ruleName), Targets: []types.Target{{Id: aws.String("leave"), Arn: aws.String(function)}},
	}); err != nil {
		t.Fatal(err)
	}
}

type lifecycleAction struct {
	AutoScalingGroupName, LifecycleHookName, EC2InstanceID string
}

func emit(t *testing.T, bus *events.Bus, groupName string) {
	t.Helper()
	bus.Emit(t.Context(), "aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", []string{group},
		lifecycleAction{groupName, "demo-graceful-leave", "i-0123456789abcdef0"})
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	bus, targets, _, client := start(t)
	putRule(t, client)
	putTarget(t, client)
	emit(t, bus, "demo-asg")
	emit(t, bus, "another-asg")
	bus.Emit(t.Context(), "aws.ec2", "EC2 Instance State-change Notification", nil, map[string]string{"state": "running"})
	if len(targets.calls) != 1 {
		t.Fatalf("got %d invocations, want the one of this group", len(targets.calls))
	}
	got := targets.calls[0]
	var event map[string]any
	if err := json.Unmarshal([]byte(got.Payload), &event); err != nil {
		t.Fatal(err)
	}
	if at, err := time.Parse("2006-01-02T15:04:05Z", event["time"].(string)); err != nil || time.Since(at) > time.Minute {
		t.Errorf("time: got %v (%v), want the present in whole seconds", event["time"], err)
	}
	if id := event["id"].(string); len(id) != 36 {
		t.Errorf("id: got %q, want a UUID", id)
	}
	delete(event, "id")
	delete(event, "time")
	want := map[string]any{
		"version": "0", "source": "aws.autoscaling", "detail-type": "EC2 Instance-terminate Lifecycle Action",
		"account": apitest.Account, "region": apitest.Region, "resources": []any{group},
		"detail": map[string]any{"AutoScalingGroupName": "demo-asg", "LifecycleHookName": "demo-graceful-leave", "EC2InstanceID": "i-0123456789abcdef0"},
	}
	if diff := cmp.Diff(want, event); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	got.Payload = ""
	if diff := cmp.Diff(call{Service: "events.amazonaws.com", Resource: ruleARN, Function: function}, got); diff != "" {
		t.Errorf("invocation (-want +got):\n%s", diff)
	}
}

func TestDeliveryFaults(t *testing.T) {
	t.Parallel()
	bus, targets, _, client := start(t)
	putRule(t, client)
	putTarget(t, client)
	for name, test := range map[string]struct {
		prepare func()
		want    int
	}{
		"as it should be": {func() {}, 1},
		"lost":            {func() { bus.SetCopies(func(events.Event) int { return 0 }) }, 0},
		"twice":           {func() { bus.SetCopies(func(events.Event) int { return 2 }) }, 2},
		"refused":         {func() { targets.refuse = true }, 0},
		"disabled": {func() {
			if _, err := client.DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: aws.String(ruleName)}); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		bus.SetCopies(nil)
		targets.refuse, targets.calls = false, nil
		if _, err := client.EnableRule(t.Context(), &eventbridge.EnableRuleInput{Name: aws.String(ruleName)}); err != nil {
			t.Fatal(err)
		}
		test.prepare()
		emit(t, bus, "demo-asg")
		if got := len(targets.calls); got != test.want {
			t.Errorf("%s: got %d invocations, want %d", name, got, test.want)
		}
	}
}

func TestRuleLifeCycle(t *testing.T) {
	t.Parallel()
	_, _, _, client := start(t)
	ctx, name := t.Context(), aws.String(ruleName)
	_, err := client.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: name})
	if got, want := apitest.Code(err), "ResourceNotFoundException"; got != want {
		t.Errorf("no rule: got %q (%v), want %q", got, err, want)
	}
	putRule(t, client)
	putTarget(t, client)
	rule, err := client.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		[]any{ruleARN, pattern, "Terminating nodes", types.RuleStateEnabled, "default"},
		[]any{*rule.Arn, *rule.EventPattern, *rule.Description, rule.State, *rule.EventBusName},
	); diff != "" {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
	tags := func(want map[string]string) {
		t.Helper()
		out, err := client.ListTagsForResource(ctx, &eventbridge.ListTagsForResourceInput{ResourceARN: aws.String(ruleARN)})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, tag := range out.Tags {
			got[*tag.Key] = *tag.Value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tags (-want +got):\n%s", diff)
		}
	}
	tags(map[string]string{"ClusterName": "demo"})
	if _, err := client.TagResource(ctx, &eventbridge.TagResourceInput{
		ResourceARN: aws.String(ruleARN), Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UntagResource(ctx, &eventbridge.UntagResourceInput{ResourceARN: aws.String(ruleARN), TagKeys: []string{"ClusterName"}}); err != nil {
		t.Fatal(err)
	}
	tags(map[string]string{"a": "b"})
	_, err = client.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: name})
	if got, want := apitest.Code(err), "ValidationException"; got != want {
		t.Errorf("delete a rule with targets: got %q (%v), want %q", got, err, want)
	}
	targets, err := client.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{Rule: name, EventBusName: aws.String("default")})
	if err != nil {
		t.Fatal(err)
	}
	if len(targets.Targets) != 1 || *targets.Targets[0].Arn != function {
		t.Errorf("targets: got %v, want %s", targets.Targets, function)
	}
	if _, err := client.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: name, Ids: []string{"leave"}}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // deleting it again is no error
		if _, err := client.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: name}); err != nil {
			t.Error(err)
		}
	}
	rules, err := client.ListRules(ctx, &eventbridge.ListRulesInput{})
	if err != nil {
		t.Fatal(err)
	}
	if len(rules.Rules) != 0 {
		t.Errorf("rules: got %v, want none", rules.Rules)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	_, _, _, client := start(t)
	putRule(t, client)
	for name, test := range map[string]struct {
		in   eventbridge.PutRuleInput
		want string
	}{
		"a name with a slash":    {eventbridge.PutRuleInput{Name: aws.String("a/b"), EventPattern: aws.String(pattern)}, "ValidationException"},
		"a long name":            {eventbridge.PutRuleInput{Name: aws.String(strings.Repeat("a", 65)), EventPattern: aws.String(pattern)}, "ValidationException"},
		"no pattern":             {eventbridge.PutRuleInput{Name: aws.String("a")}, "ValidationException"},
		"a schedule":             {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String(pattern), ScheduleExpression: aws.String("rate(1 hour)")}, "ValidationException"},
		"another bus":            {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String(pattern), EventBusName: aws.String("b")}, "ResourceNotFoundException"},
		"no JSON":                {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String("{")}, "InvalidEventPatternException"},
		"no object":              {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String("[]")}, "InvalidEventPatternException"},
		"an empty object":        {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String("{}")}, "InvalidEventPatternException"},
		"a literal for an array": {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String(`{"source":"aws.ec2"}`)}, "InvalidEventPatternException"},
		"an empty array":         {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String(`{"source":[]}`)}, "InvalidEventPatternException"},
		"an unknown rule":        {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String(`{"source":[{"wildcard":"a*"}]}`)}, "InvalidEventPatternException"},
		"two rules in one":       {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String(`{"source":[{"prefix":"a","suffix":"b"}]}`)}, "InvalidEventPatternException"},
		"a long pattern":         {eventbridge.PutRuleInput{Name: aws.String("a"), EventPattern: aws.String(`{"source":["` + strings.Repeat("a", 4096) + `"]}`)}, "InvalidEventPatternException"},
	} {
		_, err := client.PutRule(t.Context(), &test.in)
		if got := apitest.Code(err); got != test.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, test.want)
		}
	}
	var six []types.Target
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		six = append(six, types.Target{Id: aws.String(id), Arn: aws.String(function)})
	}
	for name, test := range map[string]struct {
		rule    string
		targets []types.Target
		want    string
	}{
		"no such rule":        {"none", six[:1], "ResourceNotFoundException"},
		"six targets":         {ruleName, six, "LimitExceededException"},
		"a queue":             {ruleName, []types.Target{{Id: aws.String("q"), Arn: aws.String("arn:aws:sqs:eu-west-1:123456789012:q")}}, "ValidationException"},
		"a dead-letter topic": {ruleName, []types.Target{{Id: aws.String("q"), Arn: aws.String(function), DeadLetterConfig: &types.DeadLetterConfig{Arn: aws.String("arn:aws:sns:eu-west-1:123456789012:q")}}}, "ValidationException"},
		"too many retries":    {ruleName, []types.Target{{Id: aws.String("q"), Arn: aws.String(function), RetryPolicy: &types.RetryPolicy{MaximumRetryAttempts: aws.Int32(186)}}}, "ValidationException"},
	} {
		_, err := client.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: aws.String(test.rule), Targets: test.targets})
		if got := apitest.Code(err); got != test.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, test.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	_, _, _, client := start(t)
	for _, test := range []struct {
		pattern, event string
		want           bool
	}{
		{`{"a":["x"]}`, `{"a":"x"}`, true},
		{`{"a":["x"]}`, `{"a":"y"}`, false},
		{`{"a":["x"]}`, `{"b":"x"}`, false},
		{`{"a":["x","y"]}`, `{"a":"y"}`, true},
		{`{"a":["x"],"b":["y"]}`, `{"a":"x","b":"z"}`, false},
		{`{"a":["x"]}`, `{"a":["w","x"]}`, true}, // one member of a list in the event is enough
		{`{"a":["x"]}`, `{"a":{"x":"x"}}`, false},
		{`{"a":[1]}`, `{"a":1}`, true},
		{`{"a":[1]}`, `{"a":1.0}`, false}, // numbers are compared as they are written
		{`{"a":["1"]}`, `{"a":1}`, false},
		{`{"a":[true,null]}`, `{"a":null}`, true},
		{`{"a":[null]}`, `{}`, false},
		{`{"a":{"b":["x"]}}`, `{"a":{"b":"x"}}`, true},
		{`{"a":{"b":["x"]}}`, `{"a":{"c":"x"}}`, false},
		{`{"a":{"b":["x"]}}`, `{"a":"x"}`, false},
		{`{"a":{"b":["x"]}}`, `{"a":[{"b":"w"},{"b":"x"}]}`, true},
		{`{"a":{"b":["x"],"c":["y"]}}`, `{"a":[{"b":"x"},{"c":"y"}]}`, false}, // of one and the same member
		{`{"a":[{"prefix":"ab"}]}`, `{"a":"abc"}`, true},
		{`{"a":[{"prefix":"ab"}]}`, `{"a":"bab"}`, false},
		{`{"a":[{"prefix":""}]}`, `{}`, false},
		{`{"a":[{"suffix":"bc"}]}`, `{"a":"abc"}`, true},
		{`{"a":[{"equals-ignore-case":"ABC"}]}`, `{"a":"abc"}`, true},
		{`{"a":["z",{"prefix":"ab"}]}`, `{"a":"abc"}`, true},
		{`{"a":[{"anything-but":"x"}]}`, `{"a":"y"}`, true},
		{`{"a":[{"anything-but":"x"}]}`, `{"a":"x"}`, false},
		{`{"a":[{"anything-but":"x"}]}`, `{}`, false},
		{`{"a":[{"anything-but":["x",1]}]}`, `{"a":1}`, false},
		{`{"a":[{"anything-but":["x",1]}]}`, `{"a":2}`, true},
		{`{"a":[{"anything-but":{"prefix":"in"}}]}`, `{"a":"initializing"}`, false},
		{`{"a":[{"anything-but":{"prefix":"in"}}]}`, `{"a":"running"}`, true},
		{`{"a":[{"exists":true}]}`, `{"a":""}`, true},
		{`{"a":[{"exists":true}]}`, `{"b":""}`, false},
		{`{"a":[{"exists":true}]}`, `{"a":{"b":""}}`, false}, // works on leaves only
		{`{"a":[{"exists":false}]}`, `{"b":""}`, true},
		{`{"a":{"b":[{"exists":false}]}}`, `{}`, true},
		{`{"a":{"b":[{"exists":false}]}}`, `{"a":{"b":1}}`, false},
	} {
		out, err := client.TestEventPattern(t.Context(), &eventbridge.TestEventPatternInput{EventPattern: &test.pattern, Event: &test.event})
		if err != nil {
			t.Errorf("%s: %v", test.pattern, err)
			continue
		}
		if out.Result != test.want {
			t.Errorf("%s on %s: got %v, want %v", test.pattern, test.event, out.Result, test.want)
		}
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	_, _, endpoint, client := start(t)
	ctx, name := t.Context(), aws.String(ruleName)
	for _, call := range []struct {
		action string
		do     func() error
	}{
		{"PutRule", func() error {
			_, err := client.PutRule(ctx, &eventbridge.PutRuleInput{Name: name, EventPattern: aws.String(pattern)})
			return err
		}},
		{"DescribeRule", func() error {
			_, err := client.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: name})
			return err
		}},
		{"EnableRule", func() error { _, err := client.EnableRule(ctx, &eventbridge.EnableRuleInput{Name: name}); return err }},
		{"DisableRule", func() error { _, err := client.DisableRule(ctx, &eventbridge.DisableRuleInput{Name: name}); return err }},
		{"PutTargets", func() error {
			_, err := client.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: name, Targets: []types.Target{{Id: aws.String("a"), Arn: aws.String(function)}}})
			return err
		}},
		{"ListTargetsByRule", func() error {
			_, err := client.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{Rule: name})
			return err
		}},
		{"RemoveTargets", func() error {
			_, err := client.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: name, Ids: []string{"a"}})
			return err
		}},
		{"TagResource", func() error {
			_, err := client.TagResource(ctx, &eventbridge.TagResourceInput{ResourceARN: aws.String(ruleARN), Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
			return err
		}},
		{"UntagResource", func() error {
			_, err := client.UntagResource(ctx, &eventbridge.UntagResourceInput{ResourceARN: aws.String(ruleARN), TagKeys: []string{"a"}})
			return err
		}},
		{"ListTagsForResource", func() error {
			_, err := client.ListTagsForResource(ctx, &eventbridge.ListTagsForResourceInput{ResourceARN: aws.String(ruleARN)})
			return err
		}},
		{"DeleteRule", func() error { _, err := client.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: name}); return err }},
	} {
		endpoint.RequireAccess(t, "events:"+call.action, ruleARN, call.do)
	}
	endpoint.RequireAccess(t, "events:ListRules", "*", func() error { _, err := client.ListRules(ctx, &eventbridge.ListRulesInput{}); return err })
	endpoint.RequireAccess(t, "events:TestEventPattern", "*", func() error {
		_, err := client.TestEventPattern(ctx, &eventbridge.TestEventPatternInput{EventPattern: aws.String(pattern), Event: aws.String("{}")})
		return err
	})
}
