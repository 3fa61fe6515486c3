package main_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// binary is the function as it is deployed.
var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "graceful-leave-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, contract.HandlerName)
	build := exec.CommandContext(context.Background(), "go", "build", "-tags=lambda.norpc", "-ldflags=-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the function: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

const (
	victim   = "i-00000000000000001"
	survivor = "i-0000000000000000a"
	token    = "87654321-4321-4321-4321-210987654321"
	event    = `{"version":"0","id":"12345678-1234-1234-1234-123456789012","detail-type":"EC2 Instance-terminate Lifecycle Action","source":"aws.autoscaling",
"detail":{"LifecycleActionToken":"` + token + `","AutoScalingGroupName":"demo-asg","LifecycleHookName":"demo-graceful-leave","EC2InstanceId":"` + victim + `","LifecycleTransition":"autoscaling:EC2_INSTANCE_TERMINATING"}}`
)

// The binary must start in a runtime that has nothing but the kernel.
func TestBinaryIsStaticForTheRuntime(t *testing.T) {
	t.Parallel()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Machine != elf.EM_X86_64 {
		t.Errorf("built for %s, want x86_64", file.Machine)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Error("the binary asks for a dynamic linker")
		}
	}
}

func TestDuplicateEventsEndToEnd(t *testing.T) {
	t.Parallel()
	aws := newAWS(t)
	runtime := newRuntime(t)
	function := start(t, runtime, aws.server.URL, nil)

	for i, want := range []struct{ outcome, completion string }{{"removed", "continued"}, {"absent", "already-over"}} {
		if got := runtime.invoke(t, event, contract.FunctionTimeout); got.failed {
			t.Errorf("invocation %d failed: %s", i, got.body)
		}
		line := function.line(t, i)
		if line.Instance != victim || line.Outcome != want.outcome || line.Completion != want.completion || line.Survivor != survivor {
			t.Errorf("invocation %d logged %+v, want %+v", i, line, want)
		}
	}
	if want := `"${ETCFS_ROOT:-}"/usr/local/bin/etcfs-bootstrap remove-member --timeout 12s --instance-id '` + victim + `' --address '10.0.0.1'`; aws.script() != want {
		t.Errorf("the survivor ran %s\nwant %s", aws.script(), want)
	}
}

func TestMissingConfigurationFailsTheInitialisation(t *testing.T) {
	t.Parallel()
	runtime := newRuntime(t)
	function := start(t, runtime, "http://127.0.0.1:1", map[string]string{contract.HookVariable: ""})
	var exit *exec.ExitError
	if err := function.wait(t); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("got %v, want exit status 1", err)
	}
	if output := function.output(); !strings.Contains(output, `"level":"ERROR"`) || !strings.Contains(output, contract.HookVariable) {
		t.Errorf("got output %s, want an error that names %s", output, contract.HookVariable)
	}
	if runtime.polled() {
		t.Error("the function asked for an event all the same")
	}
}

// An answer that SSM never gives, without the command, makes the function's
// code panic. The action is completed and the process lives on.
func TestPanicInsideEndToEnd(t *testing.T) {
	t.Parallel()
	aws := newAWS(t)
	aws.intercept("SendCommand", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	runtime := newRuntime(t)
	function := start(t, runtime, aws.server.URL, nil)

	got := runtime.invoke(t, event, contract.FunctionTimeout)
	if !got.failed || !strings.Contains(got.body, "panic") {
		t.Errorf("got %+v, want a failure that tells of the panic", got)
	}
	if line := function.line(t, 0); line.Outcome != "failed" || line.Completion != "continued" || !strings.Contains(line.Reason, "nil pointer") {
		t.Errorf("logged %+v, want a failure, completed", line)
	}
	aws.intercept("SendCommand", nil)
	if got := runtime.invoke(t, event, contract.FunctionTimeout); got.failed {
		t.Errorf("the invocation after the panic failed: %s", got.body)
	}
}

// AWS hangs, but for the call that completes the action: that is made within
// the time that is kept back before the deadline.
func TestDeadlineEndToEnd(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"DescribeInstances", "DescribeAutoScalingInstances", "DescribeInstanceInformation", "SendCommand", "GetCommandInvocation"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			aws := newAWS(t)
			aws.intercept(action, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			runtime := newRuntime(t)
			function := start(t, runtime, aws.server.URL, nil)

			deadline := contract.CompletionReserve + time.Second
			begun := time.Now()
			got := runtime.invoke(t, event, deadline)
			if took := time.Since(begun); took >= deadline {
				t.Errorf("took %s, longer than its deadline of %s", took, deadline)
			}
			if !got.failed || !strings.Contains(got.body, victim) {
				t.Errorf("got %+v, want a failure that names %s", got, victim)
			}
			if line := function.line(t, 0); line.Outcome != "failed" || line.Completion != "continued" {
				t.Errorf("logged %+v, want a failure, completed", line)
			}
		})
	}
}

// One connection that hangs costs the limit of one call, not the invocation.
func TestHangingConnectionIsTriedAgain(t *testing.T) {
	t.Parallel()
	aws := newAWS(t)
	var once sync.Once
	aws.intercept("CompleteLifecycleAction", func(w http.ResponseWriter, r *http.Request) {
		hung := false
		once.Do(func() { hung = true; <-r.Context().Done() })
		if !hung {
			aws.answer(w, r)
		}
	})
	runtime := newRuntime(t)
	function := start(t, runtime, aws.server.URL, nil)
	if got := runtime.invoke(t, event, contract.FunctionTimeout); got.failed {
		t.Errorf("the invocation failed: %s", got.body)
	}
	if line := function.line(t, 0); line.Outcome != "removed" || line.Completion != "continued" {
		t.Errorf("logged %+v, want removed, continued", line)
	}
}

// function is a process of the binary, started as Lambda starts it.
type function struct {
	command *exec.Cmd
	done    chan struct{}
	err     error

	mu    sync.Mutex
	log   bytes.Buffer
	wrote chan struct{} // has a token when the log has grown
}

type logLine struct {
	Instance, Survivor, Outcome, Reason, Completion string
}

// start runs the binary with nothing in its environment but what Lambda sets
// and the component configures.
func start(tb testing.TB, runtime *runtimeAPI, endpoint string, overrides map[string]string) *function {
	tb.Helper()
	environment := map[string]string{
		"AWS_LAMBDA_RUNTIME_API":    runtime.address,
		"AWS_REGION":                "eu-west-1",
		"AWS_ACCESS_KEY_ID":         "AKIDEXAMPLE",
		"AWS_SECRET_ACCESS_KEY":     "secret",
		"AWS_SESSION_TOKEN":         "session",
		"AWS_ENDPOINT_URL":          endpoint,
		contract.ClusterVariable:    "demo",
		contract.GroupVariable:      "demo-asg",
		contract.HookVariable:       "demo-graceful-leave",
		"LAMBDA_TASK_ROOT":          "/var/task",
		"AWS_EC2_METADATA_DISABLED": "true",
	}
	maps.Copy(environment, overrides)
	f := &function{command: exec.CommandContext(tb.Context(), binary), done: make(chan struct{}), wrote: make(chan struct{}, 1)}
	for name, value := range environment {
		f.command.Env = append(f.command.Env, name+"="+value)
	}
	f.command.Stdout, f.command.Stderr = f, f
	if err := f.command.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		f.err = f.command.Wait()
		close(f.done)
	}()
	tb.Cleanup(f.kill)
	return f
}

// kill ends the process, unless it has ended by itself.
func (f *function) kill() {
	_ = f.command.Process.Kill()
	<-f.done
}

func (f *function) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.wrote <- struct{}{}:
	default:
	}
	return f.log.Write(p)
}

func (f *function) output() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.String()
}

// wait returns how the process ended.
func (f *function) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-f.done:
		return f.err
	case <-time.After(30 * time.Second):
		t.Fatalf("the function still runs; its output:\n%s", f.output())
		return nil
	}
}

// line decodes the nth line of the log. The function writes it before it
// answers, but through a pipe: it may arrive a little later than the answer.
func (f *function) line(t *testing.T, n int) logLine {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		lines := strings.SplitAfter(f.output(), "\n")
		if len(lines) > n+1 {
			var line logLine
			if err := json.Unmarshal([]byte(lines[n]), &line); err != nil {
				t.Fatalf("read log line %d: %v\n%s", n, err, f.output())
			}
			return line
		}
		select {
		case <-f.wrote:
		case <-late:
			t.Fatalf("no log line %d in:\n%s", n, f.output())
		}
	}
}

// runtimeAPI is the Lambda Runtime API for one function:
// https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
type runtimeAPI struct {
	address string
	next    chan invocation
	results chan result

	mu    sync.Mutex
	polls int
}

type invocation struct {
	id       string
	event    string
	deadline time.Time
}

type result struct {
	id     string
	failed bool
	body   string
}

func newRuntime(tb testing.TB) *runtimeAPI {
	tb.Helper()
	r := &runtimeAPI{next: make(chan invocation), results: make(chan result, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.polls++
		r.mu.Unlock()
		select {
		case i := <-r.next:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", i.id)
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(i.deadline.UnixMilli(), 10))
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-west-1:123456789012:function:demo-graceful-leave")
			_, _ = io.WriteString(w, i.event)
		case <-request.Context().Done():
		}
	})
	finish := func(failed bool) http.HandlerFunc {
		return func(w http.ResponseWriter, request *http.Request) {
			body, _ := io.ReadAll(request.Body)
			r.results <- result{request.PathValue("id"), failed, string(body)}
			w.WriteHeader(http.StatusAccepted)
		}
	}
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", finish(false))
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", finish(true))
	server := httptest.NewServer(mux)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	r.address = strings.TrimPrefix(server.URL, "http://")
	return r
}

// invoke hands the function one event and returns its answer.
func (r *runtimeAPI) invoke(tb testing.TB, event string, timeout time.Duration) result {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), timeout+10*time.Second)
	defer cancel()
	select {
	case r.next <- invocation{"8476a536-e9f4-11e8-9739-2dfe598c3fcd", event, time.Now().Add(timeout)}:
	case <-ctx.Done():
		tb.Fatal("the function did not ask for an event")
	}
	select {
	case answer := <-r.results:
		return answer
	case <-ctx.Done():
		tb.Fatal("the function did not answer")
		return result{}
	}
}

func (r *runtimeAPI) polled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.polls > 0
}

// fakeAWS is one endpoint for the calls that the function makes: a cluster of
// two nodes, one of which leaves.
type fakeAWS struct {
	server *httptest.Server

	mu           sync.Mutex
	interceptors map[string]http.HandlerFunc
	removed      bool
	completed    bool
	ran          string
	command      string
}

func newAWS(tb testing.TB) *fakeAWS {
	tb.Helper()
	a := &fakeAWS{interceptors: map[string]http.HandlerFunc{}}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		a.mu.Lock()
		intercept := a.interceptors[actionOf(r, body)]
		a.mu.Unlock()
		if intercept != nil {
			intercept(w, r)
			return
		}
		a.answer(w, r)
	}))
	tb.Cleanup(func() {
		a.server.CloseClientConnections()
		a.server.Close()
	})
	return a
}

// intercept has an action answered otherwise; nil answers it as before.
func (a *fakeAWS) intercept(action string, handler http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.interceptors[action] = handler
}

func (a *fakeAWS) script() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ran
}

func actionOf(r *http.Request, body []byte) string {
	if _, action, ok := strings.Cut(r.Header.Get("X-Amz-Target"), "."); ok {
		return action
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return ""
	}
	return form.Get("Action")
}

func (a *fakeAWS) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := func(format string, arguments ...any) { _, _ = fmt.Fprintf(w, format, arguments...) }
	switch action := actionOf(r, body); action {
	case "DescribeInstances":
		item := `<item><instancesSet><item><instanceId>%s</instanceId><privateIpAddress>%s</privateIpAddress><tagSet><item><key>ClusterName</key><value>demo</value></item></tagSet></item></instancesSet></item>`
		instances := fmt.Sprintf(item, victim, "10.0.0.1")
		if !bytes.Contains(body, []byte("InstanceId.1")) {
			instances += fmt.Sprintf(item, survivor, "10.0.0.2")
		}
		reply(`<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet>%s</reservationSet></DescribeInstancesResponse>`, instances)
	case "DescribeAutoScalingInstances":
		reply(`<DescribeAutoScalingInstancesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribeAutoScalingInstancesResult><AutoScalingInstances><member><InstanceId>%s</InstanceId><LifecycleState>InService</LifecycleState></member></AutoScalingInstances></DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>`, survivor)
	case "DescribeInstanceInformation":
		reply(`{"InstanceInformationList":[{"InstanceId":%q,"PingStatus":"Online"}]}`, survivor)
	case "SendCommand":
		var input struct {
			InstanceIds []string
			Parameters  struct {
				Commands []string `json:"commands"`
			}
		}
		if err := json.Unmarshal(body, &input); err != nil || len(input.InstanceIds) != 1 || input.InstanceIds[0] != survivor {
			w.WriteHeader(http.StatusBadRequest)
			reply(`{"__type":"InvalidInstanceId"}`)
			return
		}
		a.ran = strings.Join(input.Parameters.Commands, "\n")
		a.command = "" // not known at the first poll
		reply(`{"Command":{"CommandId":"11111111-2222-3333-4444-555555555555"}}`)
	case "GetCommandInvocation":
		if a.command == "" {
			a.command = "known"
			w.WriteHeader(http.StatusBadRequest)
			reply(`{"__type":"InvocationDoesNotExist"}`)
			return
		}
		answer := `{\"result\":\"removed\",\"memberId\":\"8e9e05c52164694d\"}\n`
		if a.removed {
			answer = `{\"result\":\"absent\"}\n`
		}
		a.removed = true
		reply(`{"Status":"Success","StatusDetails":"Success","ResponseCode":0,"StandardOutputContent":"%s"}`, answer)
	case "CompleteLifecycleAction":
		if a.completed {
			w.WriteHeader(http.StatusBadRequest)
			reply(`<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><Error><Type>Sender</Type><Code>ValidationError</Code><Message>No active Lifecycle Action found with token %s</Message></Error></ErrorResponse>`, token)
			return
		}
		a.completed = true
		reply(`<CompleteLifecycleActionResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><CompleteLifecycleActionResult/></CompleteLifecycleActionResponse>`)
	default:
		w.WriteHeader(http.StatusBadRequest)
		reply(`{"__type":"InvalidAction","message":%q}`, action)
	}
}
