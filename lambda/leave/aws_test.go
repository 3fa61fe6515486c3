package leave_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
	"github.com/etcfs/pulumi-etcfs/lambda/leave"
)

// reply is one answer of an AWS endpoint, as it comes over the wire.
type reply struct {
	status int
	body   string
}

// endpoint answers one request after another, the last reply again and again.
// It is in memory, so that the SDK's own waits take no time in a test.
type endpoint struct {
	replies  []reply
	requests []string // the bodies
	actions  []string
	times    []time.Time
}

// config is that of an SDK which talks to the endpoint.
func (e *endpoint) config() aws.Config {
	return aws.Config{
		Region: "eu-west-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}, nil
		}),
		HTTPClient: smithyhttp.ClientDoFunc(e.do),
	}
}

func (e *endpoint) do(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	e.requests = append(e.requests, string(body))
	e.actions = append(e.actions, request.Header.Get("X-Amz-Target"))
	e.times = append(e.times, time.Now())
	next := e.replies[min(len(e.requests), len(e.replies))-1]
	recorder := httptest.NewRecorder()
	recorder.WriteHeader(next.status)
	_, _ = recorder.WriteString(next.body) // a recorder does not fail
	return recorder.Result(), nil
}

// form decodes the nth request of a Query service.
func (e *endpoint) form(t *testing.T, n int) url.Values {
	t.Helper()
	values, err := url.ParseQuery(e.requests[n])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func ok(body string) reply { return reply{http.StatusOK, body} }

func ec2Error(code, message string) reply {
	return reply{http.StatusBadRequest, fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>`, code, message)}
}

func queryError(status int, code, message string) reply {
	return reply{status, fmt.Sprintf(`<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">
  <Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error>
  <RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId>
</ErrorResponse>`, code, message)}
}

func jsonError(code, message string) reply {
	return reply{http.StatusBadRequest, fmt.Sprintf(`{"__type":%q,"message":%q}`, code, message)}
}

const reservations = `<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId><reservationSet>%s</reservationSet>%s</DescribeInstancesResponse>`

func reservation(instances string) string {
	return "<item><reservationId>r-1</reservationId><instancesSet>" + instances + "</instancesSet></item>"
}

func TestEC2Lookup(t *testing.T) {
	t.Parallel()
	tags := "<tagSet><item><key>Name</key><value>demo-asg-node</value></item><item><key>ClusterName</key><value>demo</value></item></tagSet>"
	for name, c := range map[string]struct {
		reply reply
		want  leave.Instance
		found bool
	}{
		"running": {ok(fmt.Sprintf(reservations, reservation("<item><instanceId>"+victim+"</instanceId><privateIpAddress>10.0.0.1</privateIpAddress>"+tags+"</item>"), "")),
			leave.Instance{Cluster: "demo", Address: "10.0.0.1"}, true},
		"terminated": {ok(fmt.Sprintf(reservations, reservation("<item><instanceId>"+victim+"</instanceId><instanceState><code>48</code><name>terminated</name></instanceState></item>"), "")),
			leave.Instance{}, true},
		"forgotten":  {ec2Error("InvalidInstanceID.NotFound", "The instance ID '"+victim+"' does not exist"), leave.Instance{}, false},
		"no listing": {ok(fmt.Sprintf(reservations, "", "")), leave.Instance{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			aws := &endpoint{replies: []reply{c.reply}}
			got, found, err := leave.EC2{Client: ec2.NewFromConfig(aws.config())}.Lookup(t.Context(), victim)
			if err != nil || found != c.found || got != c.want {
				t.Errorf("got %+v, %v, %v, want %+v, %v", got, found, err, c.want, c.found)
			}
			if form := aws.form(t, 0); form.Get("Action") != "DescribeInstances" || form.Get("InstanceId.1") != victim {
				t.Errorf("asked %v, want DescribeInstances of %s", form, victim)
			}
		})
	}

	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		aws := &endpoint{replies: []reply{{http.StatusForbidden, ec2Error("UnauthorizedOperation", "You are not authorized to perform this operation.").body}}}
		_, _, err := leave.EC2{Client: ec2.NewFromConfig(aws.config())}.Lookup(t.Context(), victim)
		if !strings.Contains(errorText(err), "UnauthorizedOperation") {
			t.Errorf("got error %v, want UnauthorizedOperation", err)
		}
	})
}

func TestEC2Running(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		item := func(id string) string { return "<item><instanceId>" + id + "</instanceId></item>" }
		aws := &endpoint{replies: []reply{
			ok(fmt.Sprintf(reservations, reservation(item(nodeA)), "<nextToken>more</nextToken>")),
			ok(fmt.Sprintf(reservations, "", "<nextToken>still-more</nextToken>")), // a page may be empty
			ec2Error("RequestLimitExceeded", "Request limit exceeded."),
			ok(fmt.Sprintf(reservations, reservation(item(nodeB))+reservation(item(nodeC)), "")),
		}}
		got, err := leave.EC2{Client: ec2.NewFromConfig(aws.config())}.Running(t.Context(), "demo")
		if want := []string{nodeA, nodeB, nodeC}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		form := aws.form(t, 0)
		for i, filter := range [][2]string{{"tag:ClusterName", "demo"}, {"tag:Role", "etcfs-node"}, {"instance-state-name", "running"}} {
			prefix := fmt.Sprintf("Filter.%d.", i+1)
			if name, value := form.Get(prefix+"Name"), form.Get(prefix+"Value.1"); name != filter[0] || value != filter[1] {
				t.Errorf("filter %d is %s=%s, want %s=%s", i+1, name, value, filter[0], filter[1])
			}
		}
	})
}

func TestAutoScalingLeaving(t *testing.T) {
	t.Parallel()
	const page = `<DescribeAutoScalingInstancesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribeAutoScalingInstancesResult><AutoScalingInstances>%s</AutoScalingInstances>%s</DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>`
	member := func(id, state string) string {
		return "<member><InstanceId>" + id + "</InstanceId><LifecycleState>" + state + "</LifecycleState></member>"
	}
	states := []struct {
		state   string
		leaving bool
	}{
		{"Pending", false}, {"Pending:Wait", false}, {"InService", false}, {"Standby", false}, {"Detaching", false}, {"Warmed:Terminating:Wait", false},
		{"Terminating", true}, {"Terminating:Wait", true}, {"Terminating:Proceed", true}, {"Terminating:Retained", true}, {"Terminated", true},
	}
	var ids []string
	var members [2]string
	want := map[string]bool{}
	for i, s := range states {
		id := fmt.Sprintf("i-%017x", i)
		ids = append(ids, id)
		members[i%2] += member(id, s.state)
		if s.leaving {
			want[id] = true
		}
	}
	ids = append(ids, nodeC) // belongs to no group
	aws := &endpoint{replies: []reply{
		ok(fmt.Sprintf(page, members[0], "<NextToken>more</NextToken>")), ok(fmt.Sprintf(page, members[1], "")),
	}}
	got, err := leave.AutoScaling{Client: autoscaling.NewFromConfig(aws.config())}.Leaving(t.Context(), ids)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("got error %v and (-want +got):\n%s", err, diff)
	}
	if form := aws.form(t, 0); form.Get("InstanceIds.member.12") != nodeC {
		t.Errorf("asked for %v, want the twelfth instance to be %s", form, nodeC)
	}
}

// DescribeAutoScalingInstances refuses more than fifty instances.
func TestAutoScalingLeavingAsksForFiftyAtATime(t *testing.T) {
	t.Parallel()
	aws := &endpoint{replies: []reply{ok(`<DescribeAutoScalingInstancesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribeAutoScalingInstancesResult><AutoScalingInstances/></DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>`)}}
	ids := make([]string, 51)
	for i := range ids {
		ids[i] = fmt.Sprintf("i-%017x", i)
	}
	if _, err := (leave.AutoScaling{Client: autoscaling.NewFromConfig(aws.config())}).Leaving(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	if len(aws.requests) != 2 || aws.form(t, 1).Get("InstanceIds.member.1") != ids[50] {
		t.Errorf("got %d requests, want 2, the second for the last instance", len(aws.requests))
	}
}

const completed = `<CompleteLifecycleActionResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><CompleteLifecycleActionResult/><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></CompleteLifecycleActionResponse>`

func TestAutoScalingContinue(t *testing.T) {
	t.Parallel()
	whole := leave.Action{Group: "demo-asg", Hook: "demo-graceful-leave", Token: token, Instance: victim}
	contention := queryError(http.StatusInternalServerError, "ResourceContention", "You already have a pending update to an Amazon EC2 Auto Scaling resource.")
	throttled := queryError(http.StatusBadRequest, "Throttling", "Rate exceeded")
	for name, c := range map[string]struct {
		replies []reply
		action  leave.Action
		active  bool
		tries   int
		err     string
	}{
		"active":                 {[]reply{ok(completed)}, whole, true, 1, ""},
		"over, told by token":    {[]reply{queryError(400, "ValidationError", "No active Lifecycle Action found with token "+token)}, whole, false, 1, ""},
		"over, told by instance": {[]reply{queryError(400, "ValidationError", "No active Lifecycle Action found with instance ID "+victim)}, whole, false, 1, ""},
		"no such group":          {[]reply{queryError(400, "ValidationError", "AutoScalingGroup name not found - AutoScalingGroup demo-asg not found")}, whole, false, 1, ""},
		"no such hook":           {[]reply{queryError(400, "ValidationError", "No Lifecycle Hook found with name demo-graceful-leave in the group demo-asg")}, whole, false, 1, ""},
		"another refusal":        {[]reply{queryError(400, "ValidationError", "1 validation error detected")}, whole, false, 1, "1 validation error"},
		"denied":                 {[]reply{queryError(403, "AccessDenied", "User is not authorized to perform: autoscaling:CompleteLifecycleAction")}, whole, false, 1, "AccessDenied"},
		"contention":             {[]reply{contention, contention, contention, contention, contention, ok(completed)}, whole, true, 6, ""},
		"throttled":              {[]reply{throttled, throttled, throttled, throttled, ok(completed)}, whole, true, 5, ""},
		"unavailable":            {[]reply{{http.StatusServiceUnavailable, ""}, {http.StatusBadGateway, "<html>"}, contention, ok(completed)}, whole, true, 4, ""},
		"contention, then over":  {[]reply{contention, queryError(400, "ValidationError", "No active Lifecycle Action found with token "+token)}, whole, false, 2, ""},
		"no token":               {[]reply{ok(completed)}, leave.Action{Group: "demo-asg", Hook: "demo-graceful-leave", Instance: victim}, true, 1, ""},
		"no instance":            {[]reply{ok(completed)}, leave.Action{Group: "demo-asg", Hook: "demo-graceful-leave", Token: token, Instance: "nonsense"}, true, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				aws := &endpoint{replies: c.replies}
				ctx, cancel := context.WithTimeout(t.Context(), contract.FunctionTimeout)
				defer cancel()
				active, err := leave.AutoScaling{Client: autoscaling.NewFromConfig(aws.config())}.Continue(ctx, c.action)
				if got := errorText(err); active != c.active || !strings.Contains(got, c.err) || c.err == "" && got != "" {
					t.Errorf("got active %v, error %q, want %v, %q", active, got, c.active, c.err)
				}
				if len(aws.requests) != c.tries {
					t.Errorf("asked %d times, want %d", len(aws.requests), c.tries)
				}
				want := url.Values{
					"Action": {"CompleteLifecycleAction"}, "Version": {"2011-01-01"}, "LifecycleActionResult": {"CONTINUE"},
					"AutoScalingGroupName": {"demo-asg"}, "LifecycleHookName": {"demo-graceful-leave"},
				}
				if c.action.Token != "" {
					want.Set("LifecycleActionToken", token)
				}
				if c.action.Instance == victim {
					want.Set("InstanceId", victim)
				}
				if diff := cmp.Diff(want, aws.form(t, 0)); diff != "" {
					t.Errorf("request (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Contention that does not pass is tried to the end of the time, at least every
// two seconds, and no longer.
func TestAutoScalingContinueTriesToTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		aws := &endpoint{replies: []reply{queryError(http.StatusInternalServerError, "ResourceContention", "pending update")}}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), contract.CompletionReserve-contract.ReportReserve)
		defer cancel()
		_, err := leave.AutoScaling{Client: autoscaling.NewFromConfig(aws.config())}.Continue(ctx, leave.Action{Group: "g", Hook: "h", Token: token})
		if err == nil {
			t.Error("got no error")
		}
		if took := time.Since(start); took > contract.CompletionReserve-contract.ReportReserve {
			t.Errorf("took %s, longer than its context", took)
		}
		if len(aws.times) < 5 {
			t.Errorf("asked %d times, want 5 at least", len(aws.times))
		}
		for i := 1; i < len(aws.times); i++ {
			if gap := aws.times[i].Sub(aws.times[i-1]); gap > 2*time.Second {
				t.Errorf("waited %s before try %d, want 2s at most", gap, i+1)
			}
		}
	})
}

func TestSSMOnline(t *testing.T) {
	t.Parallel()
	aws := &endpoint{replies: []reply{
		ok(`{"InstanceInformationList":[{"InstanceId":"` + nodeA + `","PingStatus":"Online"}],"NextToken":"more"}`),
		ok(`{"InstanceInformationList":[{"InstanceId":"` + nodeB + `","PingStatus":"ConnectionLost"}]}`),
	}}
	got, err := leave.SSM{Client: ssm.NewFromConfig(aws.config())}.Online(t.Context(), []string{nodeA, nodeB, nodeC})
	if diff := cmp.Diff(map[string]bool{nodeA: true}, got); err != nil || diff != "" {
		t.Errorf("got error %v and (-want +got):\n%s", err, diff)
	}
	want := `{"Filters":[{"Key":"InstanceIds","Values":["` + nodeA + `","` + nodeB + `","` + nodeC + `"]}]}`
	if !sameJSON(t, aws.requests[0], want) {
		t.Errorf("asked %s\nwant %s", aws.requests[0], want)
	}
}

func TestSSMSend(t *testing.T) {
	t.Parallel()
	aws := &endpoint{replies: []reply{ok(`{"Command":{"CommandId":"11111111-2222-3333-4444-555555555555","Status":"Pending"}}`)}}
	command, err := leave.SSM{Client: ssm.NewFromConfig(aws.config())}.Send(t.Context(), nodeA, withAddress, strings.Repeat("c", 101))
	if want := "11111111-2222-3333-4444-555555555555"; err != nil || command != want {
		t.Errorf("got %q, %v, want %q", command, err, want)
	}
	encoded, _ := json.Marshal(withAddress) // a string always encodes
	want := `{"DocumentName":"AWS-RunShellScript","InstanceIds":["` + nodeA + `"],"TimeoutSeconds":30,"Comment":"` + strings.Repeat("c", 100) +
		`","Parameters":{"commands":[` + string(encoded) + `],"executionTimeout":["15"]}}`
	if !sameJSON(t, aws.requests[0], want) {
		t.Errorf("asked %s\nwant %s", aws.requests[0], want)
	}
	if aws.actions[0] != "AmazonSSM.SendCommand" {
		t.Errorf("called %s, want AmazonSSM.SendCommand", aws.actions[0])
	}
}

func TestSSMSendToUnregisteredAgent(t *testing.T) {
	t.Parallel()
	aws := &endpoint{replies: []reply{jsonError("InvalidInstanceId", "Instances [["+nodeA+"]] not in a valid state for account 123456789012")}}
	_, err := leave.SSM{Client: ssm.NewFromConfig(aws.config())}.Send(t.Context(), nodeA, withAddress, "")
	if !strings.Contains(errorText(err), "not in a valid state") {
		t.Errorf("got error %v, want SSM's own", err)
	}
	if len(aws.requests) != 1 {
		t.Errorf("asked %d times, want once: the next survivor is a better use of the time", len(aws.requests))
	}
}

func TestSSMResult(t *testing.T) {
	t.Parallel()
	invocation := func(status, details string, code int) reply {
		return ok(fmt.Sprintf(`{"CommandId":"c","InstanceId":"i","Status":%q,"StatusDetails":%q,"ResponseCode":%d,"StandardOutputContent":"out","StandardErrorContent":"err"}`, status, details, code))
	}
	for name, c := range map[string]struct {
		replies []reply
		want    leave.Invocation
	}{
		"not known yet": {[]reply{jsonError("InvocationDoesNotExist", "")}, leave.Invocation{Status: "InvocationDoesNotExist"}},
		"pending":       {[]reply{invocation("Pending", "Pending", -1)}, leave.Invocation{Status: "Pending", ExitCode: -1, Stdout: "out", Stderr: "err"}},
		"in progress":   {[]reply{invocation("InProgress", "InProgress", -1)}, leave.Invocation{Status: "InProgress", ExitCode: -1, Stdout: "out", Stderr: "err"}},
		"delayed":       {[]reply{invocation("Delayed", "Delayed", -1)}, leave.Invocation{Status: "Delayed", ExitCode: -1, Stdout: "out", Stderr: "err"}},
		"success":       {[]reply{invocation("Success", "Success", 0)}, leave.Invocation{Ended: true, Status: "Success", Stdout: "out", Stderr: "err"}},
		"refused":       {[]reply{invocation("Failed", "Failed", 3)}, leave.Invocation{Ended: true, Status: "Failed", ExitCode: 3, Stdout: "out", Stderr: "err"}},
		"undeliverable": {[]reply{invocation("Failed", "Undeliverable", -1)}, leave.Invocation{Ended: true, Status: "Undeliverable", ExitCode: -1, Stdout: "out", Stderr: "err"}},
		"timed out":     {[]reply{invocation("TimedOut", "DeliveryTimedOut", -1)}, leave.Invocation{Ended: true, Status: "DeliveryTimedOut", ExitCode: -1, Stdout: "out", Stderr: "err"}},
		"cancelled":     {[]reply{invocation("Cancelled", "Cancelled", -1)}, leave.Invocation{Ended: true, Status: "Cancelled", ExitCode: -1, Stdout: "out", Stderr: "err"}},
		"no details":    {[]reply{invocation("Success", "", 0)}, leave.Invocation{Ended: true, Status: "Success", Stdout: "out", Stderr: "err"}},
		"throttled":     {[]reply{jsonError("ThrottlingException", "Rate exceeded"), invocation("Success", "Success", 0)}, leave.Invocation{Ended: true, Status: "Success", Stdout: "out", Stderr: "err"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				aws := &endpoint{replies: c.replies}
				got, err := leave.SSM{Client: ssm.NewFromConfig(aws.config())}.Result(t.Context(), nodeA, "c")
				if err != nil || got != c.want {
					t.Errorf("got %+v, %v, want %+v", got, err, c.want)
				}
				if want := `{"CommandId":"c","InstanceId":"` + nodeA + `"}`; !sameJSON(t, aws.requests[0], want) {
					t.Errorf("asked %s, want %s", aws.requests[0], want)
				}
			})
		})
	}
}

func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%v in %s", err, want)
	}
	return cmp.Equal(g, w)
}
