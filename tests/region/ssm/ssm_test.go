package ssm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/cenkalti/backoff/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	region "github.com/etcfs/pulumi-etcfs/tests/region/ssm"
)

const image = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"

// shell is a machine whose scripts run in a shell of this one; there is nothing
// else to it.
type shell struct {
	ec2.Machine
	offline, dead atomic.Bool
}

func (s *shell) AgentOnline() bool { return !s.offline.Load() }

func (s *shell) Execute(ctx context.Context, script string) (ec2.CommandResult, error) {
	if s.dead.Load() {
		return ec2.CommandResult{}, errors.New("machine has no power")
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.WaitDelay = 100 * time.Millisecond // a killed shell's children may hold its output
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return ec2.CommandResult{}, err
	}
	return ec2.CommandResult{ExitCode: command.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}, nil
}

// node is an instance, perhaps with a machine.
type node struct {
	ec2.Instance
	machine *shell
}

// fleet is a list of instances.
type fleet []node

func (f fleet) Instances() (all []ec2.Instance) {
	for _, n := range f {
		all = append(all, n.Instance)
	}
	return all
}

func (f fleet) Instance(id string) (ec2.Instance, bool) {
	for _, n := range f {
		if n.ID == id {
			return n.Instance, true
		}
	}
	return ec2.Instance{}, false
}

func (f fleet) Machine(id string) (ec2.Machine, bool) {
	for _, n := range f {
		if n.ID == id && n.machine != nil {
			return n.machine, true
		}
	}
	return nil, false
}

func id(n int) string { return fmt.Sprintf("i-%017x", n) }

func start(t *testing.T, lag time.Duration, instances ...node) (*apitest.Endpoint, *ssm.Client) {
	t.Helper()
	manager := region.New(region.Config{
		Account: apitest.Account, Region: apitest.Region, Instances: fleet(instances), Lag: lag,
		Parameters: map[string]string{image: "ami-0123456789abcdef0"},
	})
	t.Cleanup(manager.Close)
	endpoint := apitest.New(t, manager.Service())
	return endpoint, ssm.NewFromConfig(endpoint.Config())
}

func running(n int) node {
	return node{
		ec2.Instance{ID: id(n), State: ec2.StateRunning, PrivateIP: fmt.Sprintf("10.0.0.%d", n), Tags: map[string]string{"ClusterName": "demo"}},
		&shell{},
	}
}

func send(t *testing.T, client *ssm.Client, parameters map[string][]string, instances ...string) string {
	t.Helper()
	out, err := client.SendCommand(t.Context(), &ssm.SendCommandInput{
		DocumentName: aws.String("AWS-RunShellScript"), InstanceIds: instances, Parameters: parameters, TimeoutSeconds: aws.Int32(30), Comment: aws.String("test"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return *out.Command.CommandId
}

// await polls an invocation until its status is one of those named.
func await(t *testing.T, client *ssm.Client, command, instance string, statuses ...types.CommandInvocationStatus) *ssm.GetCommandInvocationOutput {
	t.Helper()
	out, err := backoff.Retry(t.Context(), func() (*ssm.GetCommandInvocationOutput, error) {
		out, err := client.GetCommandInvocation(t.Context(), &ssm.GetCommandInvocationInput{CommandId: &command, InstanceId: &instance})
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		if slices.Contains(statuses, out.Status) {
			return out, nil
		}
		return nil, fmt.Errorf("invocation is %s (%s), want one of %v", out.Status, *out.StatusDetails, statuses)
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{InitialInterval: 5 * time.Millisecond, Multiplier: 1.5, RandomizationFactor: 0.5, MaxInterval: 100 * time.Millisecond}),
		backoff.WithMaxElapsedTime(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCommandRuns(t *testing.T) {
	t.Parallel()
	_, client := start(t, 0, running(1))
	directory := t.TempDir()
	for _, test := range []struct {
		name           string
		parameters     map[string][]string
		status         types.CommandInvocationStatus
		detail         string
		code           int32
		stdout, stderr string
	}{
		{"success", map[string][]string{"commands": {"x=1", "echo $x; echo two >&2"}}, "Success", "Success", 0, "1\n", "two\n"},
		{"failure", map[string][]string{"commands": {"echo refused", "exit 3"}}, "Failed", "Failed", 3, "refused\n", "\nfailed to run commands: exit status 3"},
		{"directory", map[string][]string{"commands": {"pwd"}, "workingDirectory": {directory}}, "Success", "Success", 0, directory + "\n", ""},
		{"timeout", map[string][]string{"commands": {"echo begun; exec sleep 60"}, "executionTimeout": {"1"}}, "TimedOut", "ExecutionTimedOut", 137, "begun\n", ""},
		{"long output", map[string][]string{"commands": {"head -c 30000 /dev/zero | tr '\\0' x"}}, "Success", "Success", 0, strings.Repeat("x", 24000-23) + "\n---Output truncated---", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := await(t, client, send(t, client, test.parameters, id(1)), id(1), "Success", "Failed", "TimedOut", "Cancelled")
			got := []any{out.Status, *out.StatusDetails, out.ResponseCode, *out.StandardOutputContent, *out.StandardErrorContent, *out.Comment}
			want := []any{test.status, test.detail, test.code, test.stdout, test.stderr, "test"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("invocation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvocationAppearsLate(t *testing.T) {
	t.Parallel()
	const lag = 200 * time.Millisecond
	_, client := start(t, lag, running(1))
	sent := time.Now()
	command := send(t, client, map[string][]string{"commands": {"true"}}, id(1))
	get := func() error {
		_, err := client.GetCommandInvocation(t.Context(), &ssm.GetCommandInvocationInput{CommandId: &command, InstanceId: aws.String(id(1))})
		return err
	}
	if err := get(); apitest.Code(err) != "InvocationDoesNotExist" && time.Since(sent) < lag {
		t.Errorf("right after the command was sent: got %v, want InvocationDoesNotExist", err)
	}
	if _, err := backoff.Retry(t.Context(), func() (struct{}, error) { return struct{}{}, get() }, backoff.WithMaxElapsedTime(10*time.Second)); err != nil {
		t.Errorf("a while later: %v", err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	_, client := start(t, 0, running(1), running(2))
	command := send(t, client, map[string][]string{"commands": {"exec sleep 60"}}, id(1), id(2))
	await(t, client, command, id(1), "InProgress")
	if _, err := client.CancelCommand(t.Context(), &ssm.CancelCommandInput{CommandId: &command, InstanceIds: []string{id(1)}}); err != nil {
		t.Fatal(err)
	}
	out := await(t, client, command, id(1), "Cancelled")
	if got, want := out.ResponseCode, int32(137); got != want {
		t.Errorf("exit code of a cancelled script: got %d, want %d", got, want)
	}
	await(t, client, command, id(2), "InProgress")
	_, err := client.CancelCommand(t.Context(), &ssm.CancelCommandInput{CommandId: aws.String("00000000-0000-0000-0000-000000000000")})
	if got, want := apitest.Code(err), "InvalidCommandId"; got != want {
		t.Errorf("cancelling no command: got %q (%v), want %q", got, err, want)
	}
}

// Of a machine that dies with the script nobody hears: its command seems to run
// until its time is over, so that callers need deadlines of their own.
func TestMachineDies(t *testing.T) {
	t.Parallel()
	victim := running(1)
	victim.machine.dead.Store(true)
	_, client := start(t, 0, victim)
	command := send(t, client, map[string][]string{"commands": {"true"}}, id(1))
	out := await(t, client, command, id(1), "InProgress")
	if got, want := out.ResponseCode, int32(-1); got != want {
		t.Errorf("exit code: got %d, want %d", got, want)
	}
}

func TestSendCommandRefuses(t *testing.T) {
	t.Parallel()
	offline, gone, off := running(2), running(3), running(4)
	offline.machine.offline.Store(true)
	gone.State = ec2.StateTerminated
	off.machine = nil
	_, client := start(t, 0, running(1), offline, gone, off)
	good := map[string][]string{"commands": {"true"}}
	shellScript := "AWS-RunShellScript"
	for name, test := range map[string]struct {
		in   ssm.SendCommandInput
		want string
	}{
		"unknown instance":    {ssm.SendCommandInput{DocumentName: &shellScript, Parameters: good, InstanceIds: []string{id(9)}}, "InvalidInstanceId"},
		"agent not online":    {ssm.SendCommandInput{DocumentName: &shellScript, Parameters: good, InstanceIds: []string{id(1), id(2)}}, "InvalidInstanceId"},
		"terminated":          {ssm.SendCommandInput{DocumentName: &shellScript, Parameters: good, InstanceIds: []string{id(3)}}, "InvalidInstanceId"},
		"no machine":          {ssm.SendCommandInput{DocumentName: &shellScript, Parameters: good, InstanceIds: []string{id(4)}}, "InvalidInstanceId"},
		"another document":    {ssm.SendCommandInput{DocumentName: aws.String("AWS-RunPowerShellScript"), Parameters: good, InstanceIds: []string{id(1)}}, "InvalidDocument"},
		"no commands":         {ssm.SendCommandInput{DocumentName: &shellScript, InstanceIds: []string{id(1)}}, "InvalidParameters"},
		"unknown parameter":   {ssm.SendCommandInput{DocumentName: &shellScript, InstanceIds: []string{id(1)}, Parameters: map[string][]string{"commands": {"true"}, "shell": {"sh"}}}, "InvalidParameters"},
		"execution timeout":   {ssm.SendCommandInput{DocumentName: &shellScript, InstanceIds: []string{id(1)}, Parameters: map[string][]string{"commands": {"true"}, "executionTimeout": {"2m"}}}, "InvalidParameters"},
		"delivery timeout":    {ssm.SendCommandInput{DocumentName: &shellScript, InstanceIds: []string{id(1)}, Parameters: good, TimeoutSeconds: aws.Int32(29)}, "ValidationException"},
		"targets":             {ssm.SendCommandInput{DocumentName: &shellScript, Parameters: good, Targets: []types.Target{{Key: aws.String("tag:a"), Values: []string{"b"}}}}, "ValidationException"},
		"no instances at all": {ssm.SendCommandInput{DocumentName: &shellScript, Parameters: good}, "ValidationException"},
	} {
		_, err := client.SendCommand(t.Context(), &test.in)
		if got := apitest.Code(err); got != test.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, test.want)
		}
	}
}

func TestListCommandInvocations(t *testing.T) {
	t.Parallel()
	_, client := start(t, 0, running(1), running(2), running(3))
	command := send(t, client, map[string][]string{"commands": {"echo hello"}}, id(1), id(2), id(3))
	for n := range 3 {
		await(t, client, command, id(n+1), "Success")
	}
	var got []string
	pages := ssm.NewListCommandInvocationsPaginator(client, &ssm.ListCommandInvocationsInput{CommandId: &command, Details: true, MaxResults: aws.Int32(2)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.CommandInvocations {
			got = append(got, *i.InstanceId+" "+string(i.Status)+" "+*i.CommandPlugins[0].Output)
		}
	}
	want := []string{id(3) + " Success hello\n", id(2) + " Success hello\n", id(1) + " Success hello\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("invocations (-want +got):\n%s", diff)
	}
}

func TestDescribeInstanceInformation(t *testing.T) {
	t.Parallel()
	var instances []node
	for n := range 7 {
		instances = append(instances, running(n))
	}
	lost := instances[6].machine
	never := running(7)
	never.machine.offline.Store(true)
	instances = append(instances, never)
	_, client := start(t, 0, instances...)
	list := func(filters ...types.InstanceInformationStringFilter) map[string]types.PingStatus {
		t.Helper()
		found := map[string]types.PingStatus{}
		pages := ssm.NewDescribeInstanceInformationPaginator(client, &ssm.DescribeInstanceInformationInput{Filters: filters, MaxResults: aws.Int32(5)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range page.InstanceInformationList {
				found[*i.InstanceId] = i.PingStatus
			}
		}
		return found
	}
	want := map[string]types.PingStatus{}
	for n := range 7 {
		want[id(n)] = types.PingStatusOnline
	}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	lost.offline.Store(true)
	want = map[string]types.PingStatus{id(1): types.PingStatusOnline, id(6): types.PingStatusConnectionLost}
	if diff := cmp.Diff(want, list(types.InstanceInformationStringFilter{Key: aws.String("InstanceIds"), Values: []string{id(1), id(6), id(7)}})); diff != "" {
		t.Errorf("some, one of which was lost (-want +got):\n%s", diff)
	}
	_, err := client.DescribeInstanceInformation(t.Context(), &ssm.DescribeInstanceInformationInput{
		Filters: []types.InstanceInformationStringFilter{{Key: aws.String("tag:ClusterName"), Values: []string{"demo"}}},
	})
	if got, want := apitest.Code(err), "InvalidInstanceInformationFilterValue"; got != want {
		t.Errorf("a filter that is not there: got %q (%v), want %q", got, err, want)
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	_, client := start(t, 0)
	one, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(image)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *one.Parameter.Value, "ami-0123456789abcdef0"; got != want {
		t.Errorf("value: got %s, want %s", got, want)
	}
	_, err = client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/none")})
	if got, want := apitest.Code(err), "ParameterNotFound"; got != want {
		t.Errorf("a parameter that is not there: got %q (%v), want %q", got, err, want)
	}
	several, err := client.GetParameters(t.Context(), &ssm.GetParametersInput{Names: []string{image, "/none"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(several.Parameters), 1; got != want {
		t.Errorf("found: got %d, want %d", got, want)
	}
	if diff := cmp.Diff([]string{"/none"}, several.InvalidParameters); diff != "" {
		t.Errorf("not found (-want +got):\n%s", diff)
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	endpoint, client := start(t, 0, running(1))
	ctx := t.Context()
	sendOne := func() error {
		_, err := client.SendCommand(ctx, &ssm.SendCommandInput{
			DocumentName: aws.String("AWS-RunShellScript"), InstanceIds: []string{id(1)}, Parameters: map[string][]string{"commands": {"true"}},
		})
		return err
	}
	endpoint.RequireAccess(t, "ssm:SendCommand", "arn:aws:ssm:eu-west-1::document/AWS-RunShellScript", sendOne)
	endpoint.RequireAccess(t, "ssm:SendCommand", "arn:aws:ec2:eu-west-1:123456789012:instance/"+id(1), sendOne)
	endpoint.Asked()
	if err := sendOne(); err != nil {
		t.Fatal(err)
	}
	asked := endpoint.Asked()
	want := map[string]string{"ssm:resourceTag/ClusterName": "demo", "aws:ResourceTag/ClusterName": "demo"}
	if diff := cmp.Diff(want, asked[len(asked)-1].Context); diff != "" {
		t.Errorf("context of the instance (-want +got):\n%s", diff)
	}
	command := send(t, client, map[string][]string{"commands": {"true"}}, id(1))
	await(t, client, command, id(1), "Success")
	for action, call := range map[string]func() error{
		"GetCommandInvocation": func() error {
			_, err := client.GetCommandInvocation(ctx, &ssm.GetCommandInvocationInput{CommandId: &command, InstanceId: aws.String(id(1))})
			return err
		},
		"ListCommandInvocations": func() error {
			_, err := client.ListCommandInvocations(ctx, &ssm.ListCommandInvocationsInput{})
			return err
		},
		"CancelCommand": func() error {
			_, err := client.CancelCommand(ctx, &ssm.CancelCommandInput{CommandId: &command})
			return err
		},
		"DescribeInstanceInformation": func() error {
			_, err := client.DescribeInstanceInformation(ctx, &ssm.DescribeInstanceInformationInput{})
			return err
		},
	} {
		endpoint.RequireAccess(t, "ssm:"+action, "*", call)
	}
	onParameter := "arn:aws:ssm:eu-west-1::parameter" + image
	endpoint.RequireAccess(t, "ssm:GetParameter", onParameter, func() error {
		_, err := client.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(image)})
		return err
	})
	endpoint.RequireAccess(t, "ssm:GetParameters", onParameter, func() error {
		_, err := client.GetParameters(ctx, &ssm.GetParametersInput{Names: []string{image}})
		return err
	})
}
