package leave_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
	"github.com/etcfs/pulumi-etcfs/lambda/leave"
)

const (
	victim = "i-00000000000000001"
	nodeA  = "i-0000000000000000a"
	nodeB  = "i-0000000000000000b"
	nodeC  = "i-0000000000000000c"
	token  = "87654321-4321-4321-4321-210987654321"
)

var config = leave.Config{Cluster: "demo", Group: "demo-asg", Hook: "demo-graceful-leave"}

// world is AWS as the handler sees it, in memory. A nil function is AWS on a
// good day.
type world struct {
	running         []string
	leaving, online []string

	lookup     func(ctx context.Context) (leave.Instance, bool, error)
	list       func(ctx context.Context) error
	tellGroup  func(ctx context.Context) error
	tellAgents func(ctx context.Context) error
	send       func(ctx context.Context, survivor string) error
	// result answers a poll that comes so long after the command was sent.
	result func(ctx context.Context, survivor string, elapsed time.Duration) (leave.Invocation, error)
	finish func(ctx context.Context) (active bool, err error)

	mu        sync.Mutex
	asked     []string
	scripts   []string
	sent      map[string]time.Time
	completed []leave.Action
}

func (w *world) Lookup(ctx context.Context, id string) (leave.Instance, bool, error) {
	if id != victim {
		return leave.Instance{}, false, fmt.Errorf("looked up %s, not the instance that leaves", id)
	}
	if w.lookup != nil {
		return w.lookup(ctx)
	}
	return leave.Instance{Cluster: "demo", Address: "10.0.0.1"}, true, nil
}

func (w *world) Running(ctx context.Context, cluster string) ([]string, error) {
	if cluster != config.Cluster {
		return nil, fmt.Errorf("listed the nodes of %q", cluster)
	}
	if w.list != nil {
		if err := w.list(ctx); err != nil {
			return nil, err
		}
	}
	return slices.Clone(w.running), nil
}

func (w *world) Leaving(ctx context.Context, ids []string) (map[string]bool, error) {
	if w.tellGroup != nil {
		if err := w.tellGroup(ctx); err != nil {
			return nil, err
		}
	}
	return among(ids, w.leaving), nil
}

func (w *world) Online(ctx context.Context, ids []string) (map[string]bool, error) {
	if w.tellAgents != nil {
		if err := w.tellAgents(ctx); err != nil {
			return nil, err
		}
	}
	return among(ids, w.online), nil
}

func among(ids, chosen []string) map[string]bool {
	set := map[string]bool{}
	for _, id := range ids {
		if slices.Contains(chosen, id) {
			set[id] = true
		}
	}
	return set
}

func (w *world) Send(ctx context.Context, survivor, script, _ string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, survivor)
	w.scripts = append(w.scripts, script)
	if w.send != nil {
		if err := w.send(ctx, survivor); err != nil {
			return "", err
		}
	}
	command := fmt.Sprintf("command-%d", len(w.asked))
	if w.sent == nil {
		w.sent = map[string]time.Time{}
	}
	w.sent[command] = time.Now()
	return command, nil
}

func (w *world) Result(ctx context.Context, survivor, command string) (leave.Invocation, error) {
	w.mu.Lock()
	elapsed := time.Since(w.sent[command])
	w.mu.Unlock()
	if w.result != nil {
		return w.result(ctx, survivor, elapsed)
	}
	return success(`{"result":"removed","memberId":"8e9e05c52164694d","reason":""}`), nil
}

func (w *world) Continue(ctx context.Context, action leave.Action) (bool, error) {
	w.mu.Lock()
	w.completed = append(w.completed, action)
	w.mu.Unlock()
	if w.finish != nil {
		return w.finish(ctx)
	}
	return true, ctx.Err()
}

func success(stdout string) leave.Invocation {
	return leave.Invocation{Ended: true, Status: "Success", Stdout: stdout}
}

func failure(exitCode int, stdout, stderr string) leave.Invocation {
	return leave.Invocation{Ended: true, Status: "Failed", ExitCode: exitCode, Stdout: stdout, Stderr: stderr}
}

var inProgress = leave.Invocation{Status: "InProgress"}

// logLine is the handler's log line, decoded.
type logLine struct {
	Level, Msg      string
	Event           string
	Instance        string
	Cluster, Group  string
	Address         string
	Survivor        string
	Member          string
	Outcome         leave.Outcome
	Reason          string
	Completion      leave.Completion
	CompletionError string `json:"completion_error"`
	Attempts        int
	Asked           []struct {
		Survivor string
		Result   leave.Outcome
		Reason   string
		Times    int
		Duration int64
	}
	Notes    []string
	Events   int
	Duration int64
}

// handle lets the handler deal with an event as Lambda does, with its deadline,
// and returns what it logged.
func (w *world) handle(t *testing.T, event string) (logLine, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), contract.FunctionTimeout)
	defer cancel()
	line, _, err := w.handleContext(ctx, t, event)
	if ctx.Err() != nil {
		t.Errorf("the handler returned after its deadline")
	}
	return line, err
}

func (w *world) handleContext(ctx context.Context, t *testing.T, event string) (line logLine, raw string, err error) {
	t.Helper()
	var log bytes.Buffer
	handler := leave.Handler{
		Config: config, Instances: w, Groups: w, Commands: w,
		Log: slog.New(slog.NewJSONHandler(&log, nil)),
	}
	err = handler.Handle(ctx, json.RawMessage(event))
	if lines := bytes.Count(log.Bytes(), []byte("\n")); lines != 1 {
		t.Fatalf("got %d log lines, want 1:\n%s", lines, &log)
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("read the log line: %v\n%s", err, &log)
	}
	return line, log.String(), err
}

// event renders a lifecycle event; changes replace or, when nil, remove members
// of its detail, and "detail-type" of the event itself.
func event(changes map[string]any) string {
	detail := map[string]any{
		"LifecycleActionToken": token,
		"AutoScalingGroupName": config.Group,
		"LifecycleHookName":    config.Hook,
		"EC2InstanceId":        victim,
		"LifecycleTransition":  "autoscaling:EC2_INSTANCE_TERMINATING",
		"Origin":               "AutoScalingGroup",
		"Destination":          "EC2",
	}
	whole := map[string]any{
		"version":     "0",
		"id":          "12345678-1234-1234-1234-123456789012",
		"detail-type": "EC2 Instance-terminate Lifecycle Action",
		"source":      "aws.autoscaling",
		"account":     "123456789012",
		"time":        "2026-11-29T10:00:00Z",
		"region":      "eu-west-1",
		"resources":   []string{"arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:00000000-0000-0000-0000-000000000000:autoScalingGroupName/demo-asg"},
		"detail":      detail,
	}
	for name, value := range changes {
		target := detail
		if name == "detail-type" {
			target = whole
		}
		if value == nil {
			delete(target, name)
		} else {
			target[name] = value
		}
	}
	encoded, err := json.Marshal(whole)
	if err != nil {
		panic(err) // of a map of strings: cannot be
	}
	return string(encoded)
}
