package lambda_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtime "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/cenkalti/backoff/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
	region "github.com/etcfs/pulumi-etcfs/tests/region/lambda"
	"github.com/etcfs/pulumi-etcfs/tests/region/logs"
	"github.com/etcfs/pulumi-etcfs/tests/region/sqs"
)

// The functions of these tests are this test binary, with the real Lambda
// library for Go in it.
func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		runtime.Start(handle)
		return
	}
	os.Exit(m.Run())
}

type event struct {
	Do   string
	File string
}

type answer struct {
	RequestID, ARN, Name, Region, Endpoint, AccessKey, Token, Variable string
	Remaining                                                          time.Duration
	Process                                                            int
}

func handle(ctx context.Context, e event) (answer, error) {
	fmt.Println("doing", e.Do)
	switch e.Do {
	case "fail":
		return answer{}, errors.New("refused")
	case "exit":
		os.Exit(7)
	case "hang":
		select {}
	case "fail twice": // keeps count in a file: an environment ends with an exit
		file, err := os.OpenFile(e.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return answer{}, err
		}
		if _, err := file.WriteString("x"); err != nil {
			return answer{}, err
		}
		info, err := file.Stat()
		if err != nil {
			return answer{}, err
		}
		if info.Size() < 3 {
			return answer{}, errors.New("try again")
		}
	}
	deadline, _ := ctx.Deadline()
	invoked, _ := lambdacontext.FromContext(ctx)
	return answer{
		invoked.AwsRequestID, invoked.InvokedFunctionArn, lambdacontext.FunctionName, os.Getenv("AWS_REGION"), os.Getenv("AWS_ENDPOINT_URL"),
		os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SESSION_TOKEN"), os.Getenv("ETCFS_VARIABLE"), time.Until(deadline), os.Getpid(),
	}, nil
}

const (
	name    = "demo-graceful-leave"
	arn     = "arn:aws:lambda:eu-west-1:123456789012:function:" + name
	rule    = "arn:aws:events:eu-west-1:123456789012:rule/demo-asg-terminating"
	roleARN = "arn:aws:iam::123456789012:role/demo-leave"
)

// roles has one role, that Lambda may assume.
type roles struct{}

func (roles) Trusts(role, service string) bool {
	return role == "demo-leave" && service == "lambda.amazonaws.com"
}

func (roles) Assume(role, session string) (iam.Credentials, error) {
	return iam.Credentials{AccessKeyID: "ASIA" + role, SecretAccessKey: "secret", Token: "token of " + session}, nil
}

// judge is the authorizer of what functions do, as opposed to who calls them.
type judge struct{ deny string }

func (j judge) Authorize(p api.Principal, a api.Access) error {
	if p.Role != "demo-leave" || p.Session != name {
		return fmt.Errorf("principal is %+v, want the function's role in a session of its name", p)
	}
	if a.Action == j.deny {
		return errors.New("denied")
	}
	return nil
}

type world struct {
	functions *region.Functions
	logs      *logs.Logs
	queues    *sqs.Queues
	endpoint  *apitest.Endpoint
	client    *lambda.Client
	directory string
}

func start(t *testing.T, deny string) *world {
	t.Helper()
	w := &world{logs: logs.New(logs.Config{Account: apitest.Account, Region: apitest.Region}), directory: t.TempDir()}
	w.queues = sqs.New(sqs.Config{Account: apitest.Account, Region: apitest.Region, Authorizer: judge{deny}})
	w.functions = region.New(region.Config{
		Account: apitest.Account, Region: apitest.Region, Directory: w.directory, Address: "127.0.0.1", Endpoint: "http://127.0.0.1:1",
		Roles: roles{}, Authorizer: judge{deny}, Logs: w.logs, Queues: w.queues, RetryIntervals: [2]time.Duration{time.Millisecond, time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(w.functions.Close)
	w.endpoint = apitest.New(t, w.functions.Service(), w.queues.Service())
	w.client = lambda.NewFromConfig(w.endpoint.Config())
	return w
}

// archive is a zip archive with one file.
func archive(t *testing.T, file, content string, mode fs.FileMode) []byte {
	t.Helper()
	var buffer bytes.Buffer
	writer := zip.NewWriter(&buffer)
	header := &zip.FileHeader{Name: file, Method: zip.Deflate}
	header.SetMode(mode)
	entry, err := writer.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entry.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func bootstrap(t *testing.T) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return archive(t, "bootstrap", "#!/bin/sh\nexec '"+self+"'\n", 0o755)
}

func input(zipFile []byte) *lambda.CreateFunctionInput {
	return &lambda.CreateFunctionInput{
		FunctionName: aws.String(name), Role: aws.String(roleARN), Handler: aws.String("bootstrap"), Runtime: types.RuntimeProvidedal2023,
		Architectures: []types.Architecture{types.ArchitectureX8664}, Code: &types.FunctionCode{ZipFile: zipFile}, Timeout: aws.Int32(30),
		Environment: &types.Environment{Variables: map[string]string{"ETCFS_VARIABLE": "value"}}, Tags: map[string]string{"ClusterName": "demo"},
	}
}

func (w *world) create(t *testing.T, in *lambda.CreateFunctionInput) {
	t.Helper()
	if _, err := w.client.CreateFunction(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if err := lambda.NewFunctionActiveV2Waiter(w.client).Wait(t.Context(), &lambda.GetFunctionInput{FunctionName: in.FunctionName}, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func (w *world) invoke(t *testing.T, do string) *lambda.InvokeOutput {
	t.Helper()
	out, err := w.client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String(name), Payload: []byte(`{"Do":"` + do + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *world) ask(t *testing.T) answer {
	t.Helper()
	out := w.invoke(t, "answer")
	var got answer
	if err := json.Unmarshal(out.Payload, &got); err != nil || out.FunctionError != nil {
		t.Fatalf("got %s (%v)", out.Payload, err)
	}
	return got
}

// await polls until check is content.
func await(t *testing.T, check func() error) {
	t.Helper()
	if _, err := backoff.Retry(t.Context(), func() (struct{}, error) { return struct{}{}, check() },
		backoff.WithBackOff(&backoff.ExponentialBackOff{InitialInterval: 5 * time.Millisecond, Multiplier: 1.5, RandomizationFactor: 0.5, MaxInterval: 100 * time.Millisecond}),
		backoff.WithMaxElapsedTime(10*time.Second)); err != nil {
		t.Fatal(err)
	}
}

func TestInvoke(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	w.create(t, input(bootstrap(t)))
	first := w.ask(t)
	if first.RequestID == "" || first.Remaining <= 0 || first.Remaining > 30*time.Second {
		t.Errorf("got request %q with %s left, want some request with up to 30s", first.RequestID, first.Remaining)
	}
	want := answer{
		ARN: arn, Name: name, Region: apitest.Region, Endpoint: "http://127.0.0.1:1", AccessKey: "ASIAdemo-leave", Token: "token of " + name, Variable: "value",
		RequestID: first.RequestID, Remaining: first.Remaining, Process: first.Process,
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("what the function sees (-want +got):\n%s", diff)
	}
	if second := w.ask(t); second.Process != first.Process {
		t.Errorf("second invocation: got process %d, want the warm %d", second.Process, first.Process)
	}

	out := w.invoke(t, "fail")
	if got, want := string(out.Payload), `{"errorMessage":"refused","errorType":"errorString"}`; aws.ToString(out.FunctionError) != "Unhandled" || got != want {
		t.Errorf("an error: got %s %s, want Unhandled %s", aws.ToString(out.FunctionError), got, want)
	}
	if third := w.ask(t); third.Process != first.Process {
		t.Errorf("after an error: got process %d, want the warm %d", third.Process, first.Process)
	}

	out = w.invoke(t, "exit")
	if got := string(out.Payload); aws.ToString(out.FunctionError) != "Unhandled" || !strings.Contains(got, `"Runtime.ExitError"`) || !strings.Contains(got, "exit status 7") {
		t.Errorf("an exit: got %s %s, want an Unhandled Runtime.ExitError with exit status 7", aws.ToString(out.FunctionError), got)
	}
	if fourth := w.ask(t); fourth.Process == first.Process {
		t.Error("after an exit: got the process that ended, want another")
	}

	if got := w.logs.Messages("/aws/lambda/" + name); !strings.Contains(strings.Join(got, "\n"), "doing exit") || !strings.Contains(got[0], "START RequestId: "+first.RequestID) {
		t.Errorf("log: got %q, want START of the first request first and all that was printed", got)
	}
}

func TestTimeoutKills(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	in := input(bootstrap(t))
	in.Timeout = aws.Int32(1)
	w.create(t, in)
	before := w.ask(t)
	out := w.invoke(t, "hang")
	if got := string(out.Payload); aws.ToString(out.FunctionError) != "Unhandled" || !strings.Contains(got, "Task timed out after 1.00 seconds") {
		t.Errorf("got %s %s, want Unhandled: task timed out", aws.ToString(out.FunctionError), got)
	}
	if err := syscall.Kill(before.Process, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after its time: got %v, want it gone", before.Process, err)
	}
}

func TestCloseEndsProcesses(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	w.create(t, input(bootstrap(t)))
	idle := w.ask(t)
	result := make(chan error, 1)
	go func() {
		_, err := w.client.Invoke(context.WithoutCancel(t.Context()), &lambda.InvokeInput{FunctionName: aws.String(name), Payload: []byte(`{"Do":"hang"}`)})
		result <- err
	}()
	await(t, func() error {
		if got := strings.Join(w.logs.Messages("/aws/lambda/"+name), "\n"); !strings.Contains(got, "doing hang") {
			return fmt.Errorf("log is %q", got)
		}
		return nil
	})
	w.functions.Close()
	if err := <-result; err != nil {
		t.Errorf("the invocation that Close ends: got %v, want a function error", err)
	}
	if err := syscall.Kill(idle.Process, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after Close: got %v, want it gone", idle.Process, err)
	}
	if _, err := w.client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String(name)}); err == nil {
		t.Error("invoke after Close: succeeds, want a failure")
	}
}

func TestAsynchronousRetries(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	w.create(t, input(bootstrap(t)))
	for _, test := range []struct {
		name    string
		retries *int32
		tries   int64
	}{
		{"by default twice", nil, 3},
		{"as configured", aws.Int32(1), 2},
		{"not at all", aws.Int32(0), 1},
	} {
		if test.retries != nil {
			if _, err := w.client.PutFunctionEventInvokeConfig(t.Context(), &lambda.PutFunctionEventInvokeConfigInput{
				FunctionName: aws.String(name), MaximumRetryAttempts: test.retries,
			}); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(t.TempDir(), "tries")
		payload, err := json.Marshal(event{"fail twice", file})
		if err != nil {
			t.Fatal(err)
		}
		out, err := w.client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String(name), InvocationType: types.InvocationTypeEvent, Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := out.StatusCode, int32(202); got != want {
			t.Errorf("%s: got status %d, want %d", test.name, got, want)
		}
		await(t, func() error {
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			if got := info.Size(); got != test.tries {
				return fmt.Errorf("%s: got %d tries, want %d", test.name, got, test.tries)
			}
			return nil
		})
	}
}

// What a function fails for good is in its queue, with how it came to that.
func TestDestinationOfFailures(t *testing.T) {
	t.Parallel()
	const queue = "arn:aws:sqs:eu-west-1:123456789012:failed"
	configure := func(w *world, to string) error {
		_, err := w.client.PutFunctionEventInvokeConfig(t.Context(), &lambda.PutFunctionEventInvokeConfigInput{
			FunctionName: aws.String(name), MaximumRetryAttempts: aws.Int32(1),
			DestinationConfig: &types.DestinationConfig{OnFailure: &types.OnFailure{Destination: aws.String(to)}},
		})
		return err
	}
	w := start(t, "")
	w.create(t, input(bootstrap(t)))
	if _, err := w.queues.Create("failed"); err != nil {
		t.Fatal(err)
	}
	if err := configure(w, queue); err != nil {
		t.Fatal(err)
	}
	got, err := w.client.GetFunctionEventInvokeConfig(t.Context(), &lambda.GetFunctionEventInvokeConfigInput{FunctionName: aws.String(name)})
	if err != nil || aws.ToString(got.DestinationConfig.OnFailure.Destination) != queue {
		t.Errorf("configuration: got %+v, %v, want the queue", got, err)
	}
	if _, err := w.client.Invoke(t.Context(), &lambda.InvokeInput{
		FunctionName: aws.String(name), InvocationType: types.InvocationTypeEvent, Payload: []byte(`{"Do":"fail"}`),
	}); err != nil {
		t.Fatal(err)
	}
	var record struct {
		RequestContext struct {
			Condition              string
			ApproximateInvokeCount int
		}
		RequestPayload  event
		ResponsePayload struct{ ErrorMessage string }
	}
	await(t, func() error {
		messages := w.queues.Messages("failed")
		if len(messages) != 1 {
			return fmt.Errorf("got messages %q, want one", messages)
		}
		return json.Unmarshal([]byte(messages[0]), &record)
	})
	if record.RequestContext.Condition != "RetriesExhausted" || record.RequestContext.ApproximateInvokeCount != 2 ||
		record.RequestPayload.Do != "fail" || record.ResponsePayload.ErrorMessage != "refused" {
		t.Errorf("got record %+v, want the event with its second failure", record)
	}

	for what, err := range map[string]error{
		"no queue": configure(w, "arn:aws:sns:eu-west-1:123456789012:topic"),
		"a role that must not send": func() error {
			w := start(t, "sqs:SendMessage")
			w.create(t, input(bootstrap(t)))
			return configure(w, queue)
		}(),
	} {
		if got, want := apitest.Code(err), "InvalidParameterValueException"; got != want {
			t.Errorf("%s: got %v, want %s", what, err, want)
		}
	}
}

func TestResourcePolicy(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	w.create(t, input(bootstrap(t)))
	ctx := t.Context()
	invoke := func(service, source string) string {
		if refusal, ok := errors.AsType[*api.Error](w.functions.InvokeFor(service, source, arn, []byte(`{}`))); ok {
			return refusal.Code
		}
		return ""
	}
	if got, want := invoke("events.amazonaws.com", rule), "AccessDeniedException"; got != want {
		t.Errorf("without a permission: got %q, want %q", got, want)
	}
	_, err := w.client.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: aws.String(name)})
	if got, want := apitest.Code(err), "ResourceNotFoundException"; got != want {
		t.Errorf("policy without a permission: got %q (%v), want %q", got, err, want)
	}
	add := &lambda.AddPermissionInput{
		FunctionName: aws.String(name), StatementId: aws.String("events"), Action: aws.String("lambda:InvokeFunction"),
		Principal: aws.String("events.amazonaws.com"), SourceArn: aws.String(rule),
	}
	if _, err := w.client.AddPermission(ctx, add); err != nil {
		t.Fatal(err)
	}
	_, err = w.client.AddPermission(ctx, add)
	if got, want := apitest.Code(err), "ResourceConflictException"; got != want {
		t.Errorf("the same statement twice: got %q (%v), want %q", got, err, want)
	}
	for _, test := range []struct{ service, source, want string }{
		{"events.amazonaws.com", rule, ""},
		{"events.amazonaws.com", rule + "-2", "AccessDeniedException"},
		{"sns.amazonaws.com", rule, "AccessDeniedException"},
	} {
		if got := invoke(test.service, test.source); got != test.want {
			t.Errorf("%s for %s: got %q, want %q", test.service, test.source, got, test.want)
		}
	}
	policy, err := w.client.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: aws.String(arn)})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Version":"2012-10-17","Id":"default","Statement":[{"Sid":"events","Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},` +
		`"Action":"lambda:InvokeFunction","Resource":"` + arn + `","Condition":{"ArnLike":{"AWS:SourceArn":"` + rule + `"}}}]}`
	if got := *policy.Policy; got != want {
		t.Errorf("policy:\ngot  %s\nwant %s", got, want)
	}
	remove := func() error {
		_, err := w.client.RemovePermission(ctx, &lambda.RemovePermissionInput{FunctionName: aws.String(name), StatementId: aws.String("events")})
		return err
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if got, want := apitest.Code(remove()), "ResourceNotFoundException"; got != want {
		t.Errorf("removing it twice: got %q, want %q", got, want)
	}
	if got, want := invoke("events.amazonaws.com", rule), "AccessDeniedException"; got != want {
		t.Errorf("once it is removed: got %q, want %q", got, want)
	}
}

func TestUpdates(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	w.create(t, input(bootstrap(t)))
	ctx := t.Context()
	before := w.ask(t)
	if _, err := w.client.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{
		FunctionName: aws.String(name), Timeout: aws.Int32(20), Environment: &types.Environment{Variables: map[string]string{"ETCFS_VARIABLE": "other"}},
	}); err != nil {
		t.Fatal(err)
	}
	after := w.ask(t)
	if after.Process == before.Process || after.Variable != "other" || after.Remaining > 20*time.Second {
		t.Errorf("after the update: got process %d with %q and %s left, want a new process with other and up to 20s", after.Process, after.Variable, after.Remaining)
	}
	configuration, err := w.client.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: aws.String(name)})
	if err != nil {
		t.Fatal(err)
	}
	oldSum := *configuration.CodeSha256
	if _, err := w.client.UpdateFunctionCode(ctx, &lambda.UpdateFunctionCodeInput{
		FunctionName: aws.String(name), ZipFile: archive(t, "bootstrap", "#!/bin/sh\necho new code; exit 3\n", 0o755),
	}); err != nil {
		t.Fatal(err)
	}
	out := w.invoke(t, "answer")
	if got := string(out.Payload); !strings.Contains(got, "exit status 3") {
		t.Errorf("new code: got %s, want exit status 3", got)
	}
	function, err := w.client.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String(name)})
	if err != nil {
		t.Fatal(err)
	}
	if got := *function.Configuration.CodeSha256; got == oldSum {
		t.Errorf("sum of the new code: got the old one's %s", got)
	}
	c := function.Configuration
	got := []any{*c.FunctionArn, c.Runtime, *c.Role, *c.Handler, *c.Timeout, *c.MemorySize, c.Architectures, c.State, c.LastUpdateStatus, function.Tags}
	want := []any{
		arn, types.RuntimeProvidedal2023, roleARN, "bootstrap", int32(20), int32(128), []types.Architecture{types.ArchitectureX8664}, types.StateActive,
		types.LastUpdateStatusSuccessful, map[string]string{"ClusterName": "demo"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("function (-want +got):\n%s", diff)
	}
	if _, err := w.client.DeleteFunction(ctx, &lambda.DeleteFunctionInput{FunctionName: aws.String(name)}); err != nil {
		t.Fatal(err)
	}
	_, err = w.client.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String(name)})
	if got, want := apitest.Code(err), "ResourceNotFoundException"; got != want {
		t.Errorf("a deleted function: got %q (%v), want %q", got, err, want)
	}
	left, err := os.ReadDir(w.directory)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("code of deleted functions: got %v, want none", left)
	}
}

func TestBrokenCode(t *testing.T) {
	t.Parallel()
	for test, zipFile := range map[string][]byte{
		"no bootstrap":   archive(t, "main", "#!/bin/sh\n", 0o755),
		"not executable": archive(t, "bootstrap", "#!/bin/sh\n", 0o644),
	} {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			w := start(t, "")
			w.create(t, input(zipFile))
			out := w.invoke(t, "answer")
			if got, want := string(out.Payload), "Runtime.InvalidEntrypoint"; !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	good := bootstrap(t)
	for test, change := range map[string]struct {
		change func(*lambda.CreateFunctionInput)
		want   string
	}{
		"long name":       {func(in *lambda.CreateFunctionInput) { in.FunctionName = aws.String(strings.Repeat("a", 65)) }, "ValidationException"},
		"another runtime": {func(in *lambda.CreateFunctionInput) { in.Runtime = types.RuntimePython312 }, "InvalidParameterValueException"},
		"no handler":      {func(in *lambda.CreateFunctionInput) { in.Handler = nil }, "InvalidParameterValueException"},
		"long timeout":    {func(in *lambda.CreateFunctionInput) { in.Timeout = aws.Int32(901) }, "ValidationException"},
		"two architectures": {func(in *lambda.CreateFunctionInput) {
			in.Architectures = []types.Architecture{types.ArchitectureX8664, types.ArchitectureArm64}
		}, "InvalidParameterValueException"},
		"no zip":           {func(in *lambda.CreateFunctionInput) { in.Code.ZipFile = []byte("zip") }, "InvalidParameterValueException"},
		"zip that escapes": {func(in *lambda.CreateFunctionInput) { in.Code.ZipFile = archive(t, "../bootstrap", "", 0o755) }, "InvalidParameterValueException"},
		"untrusting role": {func(in *lambda.CreateFunctionInput) {
			in.Role = aws.String("arn:aws:iam::123456789012:role/nodes")
		}, "InvalidParameterValueException"},
		"reserved variable": {func(in *lambda.CreateFunctionInput) { in.Environment.Variables["AWS_REGION"] = "x" }, "InvalidParameterValueException"},
		"many variables":    {func(in *lambda.CreateFunctionInput) { in.Environment.Variables["BIG"] = strings.Repeat("x", 4096) }, "InvalidParameterValueException"},
		"a VPC":             {func(in *lambda.CreateFunctionInput) { in.VpcConfig = &types.VpcConfig{SubnetIds: []string{"subnet-1"}} }, "InvalidParameterValueException"},
		"tracing": {func(in *lambda.CreateFunctionInput) {
			in.TracingConfig = &types.TracingConfig{Mode: types.TracingModeActive}
		}, "InvalidParameterValueException"},
	} {
		in := input(good)
		change.change(in)
		_, err := w.client.CreateFunction(t.Context(), in)
		if got := apitest.Code(err); got != change.want {
			t.Errorf("%s: got %q (%v), want %q", test, got, err, change.want)
		}
	}
	w.create(t, input(good))
	_, err := w.client.CreateFunction(t.Context(), input(good))
	if got, want := apitest.Code(err), "ResourceConflictException"; got != want {
		t.Errorf("create it twice: got %q (%v), want %q", got, err, want)
	}
	left, err := os.ReadDir(w.directory)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(left), 1; got != want {
		t.Errorf("unpacked archives: got %d, want %d", got, want)
	}
}

func TestLogNeedsPermission(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		deny   string
		exists bool
		want   bool
	}{
		{"", true, true},
		{"", false, true},
		{"logs:CreateLogGroup", true, true},
		{"logs:CreateLogGroup", false, false},
		{"logs:CreateLogStream", true, false},
		{"logs:PutLogEvents", true, false},
	} {
		t.Run(fmt.Sprintf("%s %v", test.deny, test.exists), func(t *testing.T) {
			t.Parallel()
			w := start(t, test.deny)
			group := "/aws/lambda/" + name
			if test.exists {
				if err := w.logs.CreateGroup(group); err != nil {
					t.Fatal(err)
				}
			}
			w.create(t, input(bootstrap(t)))
			w.ask(t)
			if got := len(w.logs.Messages(group)) > 0; got != test.want {
				t.Errorf("logged: got %v, want %v", got, test.want)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	ctx, function := t.Context(), aws.String(name)
	zipFile := archive(t, "bootstrap", "#!/bin/sh\n", 0o755)
	w.endpoint.Deny("iam:PassRole")
	if _, err := w.client.CreateFunction(ctx, input(zipFile)); apitest.Code(err) != "AccessDeniedException" {
		t.Errorf("a caller who may not pass the role: got %v, want AccessDeniedException", err)
	}
	w.endpoint.Deny()
	for _, call := range []struct {
		action string
		do     func() error
	}{
		{"CreateFunction", func() error { _, err := w.client.CreateFunction(ctx, input(zipFile)); return err }},
		{"GetFunction", func() error {
			_, err := w.client.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: function})
			return err
		}},
		{"GetFunctionConfiguration", func() error {
			_, err := w.client.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: function})
			return err
		}},
		{"GetFunctionCodeSigningConfig", func() error {
			_, err := w.client.GetFunctionCodeSigningConfig(ctx, &lambda.GetFunctionCodeSigningConfigInput{FunctionName: function})
			return err
		}},
		{"UpdateFunctionConfiguration", func() error {
			_, err := w.client.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{FunctionName: function, Timeout: aws.Int32(5)})
			return err
		}},
		{"UpdateFunctionCode", func() error {
			_, err := w.client.UpdateFunctionCode(ctx, &lambda.UpdateFunctionCodeInput{FunctionName: function, ZipFile: zipFile})
			return err
		}},
		{"InvokeFunction", func() error { _, err := w.client.Invoke(ctx, &lambda.InvokeInput{FunctionName: function}); return err }},
		{"AddPermission", func() error {
			_, err := w.client.AddPermission(ctx, &lambda.AddPermissionInput{
				FunctionName: function, StatementId: aws.String("events"), Action: aws.String("lambda:InvokeFunction"), Principal: aws.String("events.amazonaws.com"),
			})
			return err
		}},
		{"GetPolicy", func() error {
			_, err := w.client.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: function})
			return err
		}},
		{"RemovePermission", func() error {
			_, err := w.client.RemovePermission(ctx, &lambda.RemovePermissionInput{FunctionName: function, StatementId: aws.String("events")})
			return err
		}},
		{"PutFunctionEventInvokeConfig", func() error {
			_, err := w.client.PutFunctionEventInvokeConfig(ctx, &lambda.PutFunctionEventInvokeConfigInput{FunctionName: function, MaximumRetryAttempts: aws.Int32(1)})
			return err
		}},
		{"GetFunctionEventInvokeConfig", func() error {
			out, err := w.client.GetFunctionEventInvokeConfig(ctx, &lambda.GetFunctionEventInvokeConfigInput{FunctionName: function})
			if err == nil && (*out.MaximumRetryAttempts != 1 || *out.MaximumEventAgeInSeconds != 21600) {
				t.Errorf("invoke config: got %d retries within %ds, want 1 within 21600s", *out.MaximumRetryAttempts, *out.MaximumEventAgeInSeconds)
			}
			return err
		}},
		{"DeleteFunctionEventInvokeConfig", func() error {
			_, err := w.client.DeleteFunctionEventInvokeConfig(ctx, &lambda.DeleteFunctionEventInvokeConfigInput{FunctionName: function})
			return err
		}},
		{"TagResource", func() error {
			_, err := w.client.TagResource(ctx, &lambda.TagResourceInput{Resource: aws.String(arn), Tags: map[string]string{"a": "b"}})
			return err
		}},
		{"UntagResource", func() error {
			_, err := w.client.UntagResource(ctx, &lambda.UntagResourceInput{Resource: aws.String(arn), TagKeys: []string{"ClusterName"}})
			return err
		}},
		{"ListTags", func() error {
			out, err := w.client.ListTags(ctx, &lambda.ListTagsInput{Resource: aws.String(arn)})
			if err == nil && !cmp.Equal(out.Tags, map[string]string{"a": "b"}) {
				t.Errorf("tags: got %v, want a=b", out.Tags)
			}
			return err
		}},
		{"DeleteFunction", func() error {
			_, err := w.client.DeleteFunction(ctx, &lambda.DeleteFunctionInput{FunctionName: function})
			return err
		}},
	} {
		w.endpoint.RequireAccess(t, "lambda:"+call.action, arn, call.do)
	}
	w.endpoint.RequireAccess(t, "lambda:ListFunctions", "*", func() error { _, err := w.client.ListFunctions(ctx, &lambda.ListFunctionsInput{}); return err })
}
