package leave_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
	"github.com/etcfs/pulumi-etcfs/lambda/leave"
)

const (
	withAddress    = withoutAddress + " --address '10.0.0.1'"
	withoutAddress = `"${ETCFS_ROOT:-}"/usr/local/bin/etcfs-bootstrap remove-member --timeout 12s --instance-id 'i-00000000000000001'`
)

var errDenied = errors.New("AccessDeniedException: not authorized")

// A removal that succeeds, whatever it takes: no error, action completed.
func TestRemoval(t *testing.T) {
	t.Parallel()
	type want struct {
		outcome     leave.Outcome
		survivor    string
		member      string
		asked       []string // in order
		script      string
		note        string // a part of one of the notes
		took        time.Duration
		takesAtMost time.Duration
	}
	for name, c := range map[string]struct {
		world *world
		want  want
	}{
		"the member is removed": {
			&world{running: []string{victim, nodeA}, online: []string{nodeA}},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", asked: []string{nodeA}, script: withAddress, takesAtMost: 0},
		},
		"there was no member": {
			&world{running: []string{nodeA}, result: always(success(`{"result":"absent"}`))},
			want{outcome: leave.Absent, survivor: nodeA, asked: []string{nodeA}, script: withAddress},
		},
		"output before the answer": {
			&world{running: []string{nodeA}, result: always(success("warning: something\n\n{\"result\":\"absent\"}\n\n"))},
			want{outcome: leave.Absent, survivor: nodeA, asked: []string{nodeA}, script: withAddress},
		},
		"nodes that leave themselves are not asked": {
			&world{running: []string{nodeA, victim, nodeB, nodeC}, leaving: []string{nodeA, nodeC}, online: []string{nodeA, nodeC}},
			want{outcome: leave.Removed, survivor: nodeB, member: "8e9e05c52164694d", asked: []string{nodeB}, script: withAddress},
		},
		"agents that are online are asked first": {
			&world{running: []string{nodeA, nodeB, nodeC}, online: []string{nodeC}},
			want{outcome: leave.Removed, survivor: nodeC, member: "8e9e05c52164694d", asked: []string{nodeC}, script: withAddress},
		},
		"SSM does not know the first": {
			&world{running: []string{nodeA, nodeB}, online: []string{nodeA}, send: func(_ context.Context, id string) error {
				if id == nodeA {
					return errors.New("InvalidInstanceId: Instances [[i-0000000000000000a]] not in a valid state for account 123456789012")
				}
				return nil
			}},
			want{outcome: leave.Removed, survivor: nodeB, member: "8e9e05c52164694d", asked: []string{nodeA, nodeB}, script: withAddress},
		},
		"the first is undeliverable": {
			&world{running: []string{nodeA, nodeB}, online: []string{nodeA}, result: first(nodeA, leave.Invocation{Ended: true, Status: "Undeliverable", ExitCode: -1})},
			want{outcome: leave.Absent, survivor: nodeB, asked: []string{nodeA, nodeB}, script: withAddress},
		},
		"the first fails": {
			&world{running: []string{nodeA, nodeB}, online: []string{nodeA}, result: first(nodeA, failure(127, "", "sh: etcfs-bootstrap: not found"))},
			want{outcome: leave.Absent, survivor: nodeB, asked: []string{nodeA, nodeB}, script: withAddress},
		},
		"the first prints nonsense": {
			&world{running: []string{nodeA, nodeB}, online: []string{nodeA}, result: first(nodeA, success("done"))},
			want{outcome: leave.Absent, survivor: nodeB, asked: []string{nodeA, nodeB}, script: withAddress},
		},
		"the first has an answer of its own": {
			&world{running: []string{nodeA, nodeB}, online: []string{nodeA}, result: first(nodeA, success(`{"result":"perhaps"}`))},
			want{outcome: leave.Absent, survivor: nodeB, asked: []string{nodeA, nodeB}, script: withAddress},
		},
		"the first is too slow": {
			&world{running: []string{nodeA, nodeB}, online: []string{nodeA}, result: first(nodeA, inProgress)},
			want{outcome: leave.Absent, survivor: nodeB, asked: []string{nodeA, nodeB}, script: withAddress,
				took: contract.CommandLimit, takesAtMost: contract.CommandLimit},
		},
		"the first hangs when it is sent to": {
			&world{running: []string{nodeA, nodeB}, online: []string{nodeA}, send: func(ctx context.Context, id string) error {
				if id == nodeA {
					return hang(ctx)
				}
				return nil
			}},
			want{outcome: leave.Removed, survivor: nodeB, member: "8e9e05c52164694d", asked: []string{nodeA, nodeB}, script: withAddress,
				took: contract.CommandLimit, takesAtMost: contract.CommandLimit},
		},
		"SSM knows the invocation later than the command": {
			&world{running: []string{nodeA}, result: func(_ context.Context, _ string, elapsed time.Duration) (leave.Invocation, error) {
				switch {
				case elapsed < time.Second:
					return leave.Invocation{Status: "InvocationDoesNotExist"}, nil
				case elapsed < 3*time.Second:
					return inProgress, nil
				}
				return success(`{"result":"absent"}`), nil
			}},
			want{outcome: leave.Absent, survivor: nodeA, asked: []string{nodeA}, script: withAddress, took: 3 * time.Second, takesAtMost: 7 * time.Second},
		},
		"a poll fails": {
			&world{running: []string{nodeA}, result: func(_ context.Context, _ string, elapsed time.Duration) (leave.Invocation, error) {
				if elapsed == 0 {
					return leave.Invocation{}, errors.New("connection reset by peer")
				}
				return success(`{"result":"absent"}`), nil
			}},
			want{outcome: leave.Absent, survivor: nodeA, asked: []string{nodeA}, script: withAddress, takesAtMost: time.Second},
		},
		"etcd refuses at first": {
			&world{running: []string{nodeA}, result: untilFrom(20*time.Second,
				failure(3, `{"result":"refused","memberId":"1","reason":"unhealthy cluster"}`, ""), success(`{"result":"removed","memberId":"1"}`))},
			want{outcome: leave.Removed, survivor: nodeA, member: "1", script: withAddress, took: 20 * time.Second, takesAtMost: 27 * time.Second},
		},
		"the only agent registers later": {
			&world{running: []string{nodeA}, send: failUntilFrom(10*time.Second, errors.New("InvalidInstanceId"))},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", script: withAddress, took: 10 * time.Second, takesAtMost: 17 * time.Second},
		},
		"the nodes cannot be listed at first": {
			&world{running: []string{nodeA}, list: failListUntilFrom(5 * time.Second)},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", asked: []string{nodeA}, script: withAddress, took: 5 * time.Second, takesAtMost: 12 * time.Second},
		},
		"last node": {
			&world{running: []string{victim}},
			want{outcome: leave.NoSurvivor},
		},
		"all nodes leave at once": {
			&world{running: []string{victim, nodeA, nodeB}, leaving: []string{victim, nodeA, nodeB}},
			want{outcome: leave.NoSurvivor},
		},
		"EC2 has forgotten the instance": {
			&world{running: []string{nodeA}, lookup: found(leave.Instance{}, false, nil), result: always(success(`{"result":"removed","memberId":"2"}`))},
			want{outcome: leave.Removed, survivor: nodeA, member: "2", asked: []string{nodeA}, script: withoutAddress, note: "does not know the instance"},
		},
		"the terminated instance has neither tags nor address": {
			&world{running: []string{nodeA}, lookup: found(leave.Instance{}, true, nil)},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", asked: []string{nodeA}, script: withoutAddress},
		},
		"the instance cannot be looked up": {
			&world{running: []string{nodeA}, lookup: found(leave.Instance{}, false, errDenied)},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", asked: []string{nodeA}, script: withoutAddress, note: "look up the instance: AccessDenied"},
		},
		"an address is never more than a word to the shell": {
			&world{running: []string{nodeA}, lookup: found(leave.Instance{Address: "10.0.0.1'; reboot #"}, true, nil)},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", asked: []string{nodeA}, script: withoutAddress + ` --address '10.0.0.1'\''; reboot #'`},
		},
		"the group's states cannot be told": {
			&world{running: []string{nodeA}, tellGroup: deny},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", asked: []string{nodeA}, script: withAddress, note: "tell which nodes are leaving: AccessDenied"},
		},
		"the agents' states cannot be told": {
			&world{running: []string{nodeA}, tellAgents: deny},
			want{outcome: leave.Removed, survivor: nodeA, member: "8e9e05c52164694d", asked: []string{nodeA}, script: withAddress, note: "tell which SSM agents are online: AccessDenied"},
		},
		"the instance is another cluster's": {
			&world{running: []string{nodeA}, lookup: found(leave.Instance{Cluster: "other", Address: "10.0.0.1"}, true, nil)},
			want{outcome: leave.Ignored},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line, err := c.world.handle(t, event(nil))
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
				if line.Outcome != c.want.outcome || line.Survivor != c.want.survivor || line.Member != c.want.member {
					t.Errorf("got outcome %q by %q with member %q (%s), want %q by %q with %q",
						line.Outcome, line.Survivor, line.Member, line.Reason, c.want.outcome, c.want.survivor, c.want.member)
				}
				if want := c.want.asked; want != nil && !slices.Equal(c.world.asked, want) {
					t.Errorf("asked %v, want %v", c.world.asked, want)
				}
				told := 0
				for _, asked := range line.Asked {
					told += asked.Times
				}
				if line.Attempts != len(c.world.asked) || told != line.Attempts {
					t.Errorf("logged %d attempts, %d of them told, want %d", line.Attempts, told, len(c.world.asked))
				}
				for _, script := range c.world.scripts {
					if script != c.want.script {
						t.Errorf("ran %s\nwant %s", script, c.want.script)
					}
				}
				if notes := strings.Join(line.Notes, "\n"); !strings.Contains(notes, c.want.note) || c.want.note == "" && notes != "" {
					t.Errorf("got notes %q, want %q in them", notes, c.want.note)
				}
				took := time.Duration(line.Duration) * time.Millisecond
				if most := max(c.want.takesAtMost, c.want.took); took < c.want.took || took > most {
					t.Errorf("took %s, want %s to %s", took, c.want.took, most)
				}
				wantCompleted(t, c.world, line, leave.Completed)
			})
		})
	}
}

func wantCompleted(t *testing.T, w *world, line logLine, want leave.Completion) {
	t.Helper()
	action := leave.Action{
		EventID: "12345678-1234-1234-1234-123456789012",
		Group:   config.Group, Hook: config.Hook, Token: token, Instance: victim,
	}
	if diff := cmp.Diff([]leave.Action{action}, w.completed); diff != "" {
		t.Errorf("completed actions (-want +got):\n%s", diff)
	}
	if line.Completion != want {
		t.Errorf("got completion %q (%s), want %q", line.Completion, line.CompletionError, want)
	}
}

// Whatever goes wrong, and wherever, the action is completed before the
// function's deadline, and the error tells Lambda to try again.
func TestAlwaysCompletes(t *testing.T) {
	t.Parallel()
	working := contract.FunctionTimeout - contract.CompletionReserve
	onResult := func(f func(context.Context) error) func(context.Context, string, time.Duration) (leave.Invocation, error) {
		return func(ctx context.Context, _ string, _ time.Duration) (leave.Invocation, error) {
			return inProgress, f(ctx)
		}
	}
	explode := func(context.Context) error { panic("boom") }
	for name, c := range map[string]struct {
		world   *world
		outcome leave.Outcome
		reason  string
		took    time.Duration
	}{
		"etcd refuses to the end": {
			&world{result: always(failure(3, `{"result":"refused","memberId":"1","reason":"would lose quorum"}`, ""))},
			leave.Refused, "would lose quorum", working,
		},
		"refused, then unreachable": {
			&world{send: failFrom(20*time.Second, errDenied),
				result: always(failure(3, `{"result":"refused","memberId":"1","reason":"would lose quorum"}`, ""))},
			leave.Refused, "would lose quorum", working,
		},
		"every command fails": {
			&world{result: always(failure(1, "", "dial tcp 127.0.0.1:2379: connection refused"))},
			leave.Failed, "connection refused", working,
		},
		"every survivor is too slow": {&world{result: always(inProgress)}, leave.Failed, "too slow (InProgress)", working},
		"every poll is refused":      {&world{result: onResult(deny)}, leave.Failed, "AccessDenied", working},
		"sending is denied":          {&world{send: denySend}, leave.Failed, "AccessDenied", working},
		"listing is denied":          {&world{list: deny}, leave.Failed, "AccessDenied", working},

		"looking up hangs":           {&world{lookup: func(ctx context.Context) (leave.Instance, bool, error) { return leave.Instance{}, false, hang(ctx) }}, leave.Failed, "", working},
		"listing hangs":              {&world{list: hang}, leave.Failed, "list the cluster's running nodes", working},
		"telling the group hangs":    {&world{tellGroup: hang}, leave.Failed, "", working},
		"telling the agents hangs":   {&world{tellAgents: hang}, leave.Failed, "", working},
		"sending hangs":              {&world{send: func(ctx context.Context, _ string) error { return hang(ctx) }}, leave.Failed, "", working},
		"polling hangs":              {&world{result: onResult(hang)}, leave.Failed, "", working},
		"looking up panics":          {&world{lookup: func(context.Context) (leave.Instance, bool, error) { panic("boom") }}, leave.Failed, "panic: boom", 0},
		"listing panics":             {&world{list: explode}, leave.Failed, "panic: boom", 0},
		"telling the group panics":   {&world{tellGroup: explode}, leave.Failed, "panic: boom", 0},
		"telling the agents panics":  {&world{tellAgents: explode}, leave.Failed, "panic: boom", 0},
		"polling panics":             {&world{result: onResult(explode)}, leave.Failed, "panic: boom", 0},
		"a panic is told with place": {&world{list: explode}, leave.Failed, "leave_test.go", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.world.running = []string{victim, nodeA, nodeB}
				line, err := c.world.handle(t, event(nil))
				if line.Outcome != c.outcome || !strings.Contains(line.Reason, c.reason) {
					t.Errorf("got outcome %q because %q, want %q because %q", line.Outcome, line.Reason, c.outcome, c.reason)
				}
				if err == nil || !strings.Contains(err.Error(), victim) {
					t.Errorf("got error %v, want one that names %s", err, victim)
				}
				if line.Level != "ERROR" {
					t.Errorf("logged at %s, want ERROR", line.Level)
				}
				if took := time.Duration(line.Duration) * time.Millisecond; took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				wantCompleted(t, c.world, line, leave.Completed)
			})
		})
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		finish func(context.Context) (bool, error)
		want   leave.Completion
		err    string
	}{
		"active":       {func(context.Context) (bool, error) { return true, nil }, leave.Completed, ""},
		"over already": {func(context.Context) (bool, error) { return false, nil }, leave.AlreadyOver, ""},
		"denied":       {func(context.Context) (bool, error) { return false, errDenied }, leave.NotCompleted, "complete the lifecycle action: AccessDenied"},
		"hangs":        {func(ctx context.Context) (bool, error) { return false, hang(ctx) }, leave.NotCompleted, "deadline exceeded"},
		"panics":       {func(context.Context) (bool, error) { panic("boom") }, leave.NotCompleted, "panic: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{running: []string{nodeA}, finish: c.finish}
				line, err := w.handle(t, event(nil))
				if line.Outcome != leave.Removed {
					t.Errorf("got outcome %q, want removed", line.Outcome)
				}
				if got := errorText(err); !strings.Contains(got, c.err) || c.err == "" && got != "" {
					t.Errorf("got error %q, want %q", got, c.err)
				}
				if !strings.Contains(line.CompletionError, c.err) {
					t.Errorf("logged the completion's error %q, want %q", line.CompletionError, c.err)
				}
				wantCompleted(t, w, line, c.want)
			})
		})
	}
}

// Lambda may tell a function to end before its deadline; the action is
// completed nevertheless.
func TestCompletesAfterCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{running: []string{nodeA}, result: func(context.Context, string, time.Duration) (leave.Invocation, error) {
			cancel()
			return inProgress, nil
		}}
		line, _, err := w.handleContext(ctx, t, event(nil))
		if err == nil || line.Outcome != leave.Failed {
			t.Errorf("got outcome %q and error %v, want a failure", line.Outcome, err)
		}
		wantCompleted(t, w, line, leave.Completed)
	})
}

func TestCompletesWithLittleTimeLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), contract.CompletionReserve/2)
		defer cancel()
		w := &world{running: []string{nodeA}, list: func(ctx context.Context) error { return ctx.Err() }}
		line, _, err := w.handleContext(ctx, t, event(nil))
		if err == nil || line.Outcome != leave.Failed {
			t.Errorf("got outcome %q and error %v, want a failure", line.Outcome, err)
		}
		wantCompleted(t, w, line, leave.Completed)
	})
}

// Events that ask nothing of the function touch nothing.
func TestForeignEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ event, reason string }{
		"launch": {event(map[string]any{"detail-type": "EC2 Instance-launch Lifecycle Action", "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}), "detail-type"},
		"launch transition under the terminate type": {event(map[string]any{"LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}), "LifecycleTransition"},
		"termination that is over":                   {event(map[string]any{"detail-type": "EC2 Instance Terminate Successful"}), "detail-type"},
		"another group":                              {event(map[string]any{"AutoScalingGroupName": "demo-asg-2"}), `group "demo-asg-2"`},
		"another hook":                               {event(map[string]any{"LifecycleHookName": "drain"}), `hook "drain"`},
		"no detail-type":                             {event(map[string]any{"detail-type": nil}), "detail-type"},
		"no transition":                              {event(map[string]any{"LifecycleTransition": nil}), "LifecycleTransition"},
		"test notification as transition":            {event(map[string]any{"LifecycleTransition": "autoscaling:TEST_NOTIFICATION"}), "test notification"},
		"test notification":                          {`{"AccountId":"123456789012","RequestId":"1","AutoScalingGroupARN":"arn","AutoScalingGroupName":"demo-asg","Service":"AWS Auto Scaling","Event":"autoscaling:TEST_NOTIFICATION","Time":"2026-11-29T10:00:00Z"}`, "test notification"},
		"empty":                                      {`{}`, "detail-type"},
		"no object":                                  {`"hello"`, "not an event"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{running: []string{nodeA}}
			line, err := w.handle(t, c.event)
			if err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if line.Outcome != leave.Ignored || !strings.Contains(line.Reason, c.reason) {
				t.Errorf("got outcome %q because %q, want ignored because of %q", line.Outcome, line.Reason, c.reason)
			}
			if len(w.asked) != 0 || len(w.completed) != 0 || line.Completion != "" {
				t.Errorf("asked %v and completed %v (%q), want nothing", w.asked, w.completed, line.Completion)
			}
		})
	}
}

// An action of ours that names no instance is completed by its token.
func TestEventWithoutInstance(t *testing.T) {
	t.Parallel()
	for _, id := range []any{nil, "", "i-1", "i-00000000000000001; reboot"} {
		w := &world{running: []string{nodeA}}
		line, err := w.handle(t, event(map[string]any{"EC2InstanceId": id}))
		if err != nil || line.Outcome != leave.Ignored || line.Completion != leave.Completed {
			t.Errorf("%v: got outcome %q, completion %q, error %v; want ignored, continued and none", id, line.Outcome, line.Completion, err)
		}
		if len(w.asked) != 0 || len(w.completed) != 1 || w.completed[0].Token != token {
			t.Errorf("%v: asked %v and completed %v, want nobody and the action by its token", id, w.asked, w.completed)
		}
	}
}

// Of the survivors that are equally good each one gets its turn.
func TestSurvivorsAreChosenAtRandom(t *testing.T) {
	t.Parallel()
	first := map[string]int{}
	for range 200 {
		w := &world{running: []string{nodeA, nodeB, nodeC}, online: []string{nodeA, nodeB}}
		if _, err := w.handle(t, event(nil)); err != nil {
			t.Fatal(err)
		}
		first[w.asked[0]]++
	}
	if first[nodeA] == 0 || first[nodeB] == 0 || first[nodeC] != 0 {
		t.Errorf("asked first: %v, want only %s and %s, each at times", first, nodeA, nodeB)
	}
}

// Five of seven nodes leave at once: etcd lets one member go at a time, and
// each of the five invocations gets its own removed in time.
func TestSeveralLeaveAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const settling = 5 * time.Second // etcd's HealthInterval
		var (
			mu      sync.Mutex
			removed int
			last    = time.Now().Add(-settling)
			done    sync.WaitGroup
		)
		etcd := func(context.Context, string, time.Duration) (leave.Invocation, error) {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(last) < settling {
				return failure(3, `{"result":"refused","reason":"etcdserver: unhealthy cluster"}`, ""), nil
			}
			last = time.Now()
			removed++
			return success(`{"result":"removed","memberId":"1"}`), nil
		}
		for range 5 {
			done.Go(func() {
				w := &world{running: []string{victim, nodeA, nodeB, nodeC}, leaving: []string{nodeC}, result: etcd}
				line, err := w.handle(t, event(nil))
				if err != nil || line.Outcome != leave.Removed {
					t.Errorf("got outcome %q (%s), error %v, want removed", line.Outcome, line.Reason, err)
				}
			})
		}
		done.Wait()
		if removed != 5 {
			t.Errorf("%d members were removed, want 5", removed)
		}
	})
}

// Answers that repeat themselves are told once.
func TestLogLineSumsUpRepeatedAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{running: []string{nodeA}, result: untilFrom(30*time.Second,
			failure(3, `{"result":"refused","memberId":"1","reason":"unhealthy cluster"}`, ""), success(`{"result":"removed","memberId":"1"}`))}
		line, err := w.handle(t, event(nil))
		if err != nil {
			t.Fatal(err)
		}
		if len(line.Asked) != 2 || line.Asked[0].Times != line.Attempts-1 || line.Asked[0].Reason != "unhealthy cluster" ||
			line.Asked[1].Times != 1 || line.Asked[1].Result != leave.Removed {
			t.Errorf("of %d attempts told %+v, want the refusals and the removal", line.Attempts, line.Asked)
		}
	})
}

// The log line is also a document of CloudWatch's embedded metric format: the
// dimensions are strings and the metrics numbers at its top level.
func TestLogLineIsAnEmbeddedMetricDocument(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{running: []string{nodeA}, result: untilFrom(2*time.Second, inProgress, success(`{"result":"removed","memberId":"1"}`))}
		_, raw, err := w.handleContext(t.Context(), t, event(nil))
		if err != nil {
			t.Fatal(err)
		}
		var document map[string]any
		if err := json.Unmarshal([]byte(raw), &document); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"Timestamp": float64(time.Now().UnixMilli()),
			"CloudWatchMetrics": []any{map[string]any{
				"Namespace":  "EtcFS/ScaleIn",
				"Dimensions": []any{[]any{"cluster", "outcome"}},
				"Metrics": []any{
					map[string]any{"Name": "events", "Unit": "Count"},
					map[string]any{"Name": "duration", "Unit": "Milliseconds"},
				},
			}},
		}
		if diff := cmp.Diff(want, document["_aws"]); diff != "" {
			t.Errorf("metric document (-want +got):\n%s", diff)
		}
		if document["cluster"] != "demo" || document["outcome"] != "removed" || document["events"] != 1.0 {
			t.Errorf("got cluster %v, outcome %v, events %v, want demo, removed and 1", document["cluster"], document["outcome"], document["events"])
		}
		if duration, ok := document["duration"].(float64); !ok || duration < 2000 {
			t.Errorf("got duration %v, want milliseconds from 2000 up", document["duration"])
		}
	})
}

func TestConfigFromEnvironment(t *testing.T) {
	t.Parallel()
	complete := map[string]string{"ETCFS_CLUSTER_NAME": "demo", "ETCFS_GROUP_NAME": "demo-asg", "ETCFS_HOOK_NAME": "demo-graceful-leave"}
	got, err := leave.ConfigFromEnvironment(func(name string) string { return complete[name] })
	if err != nil || got != config {
		t.Errorf("got %+v, %v, want %+v", got, err, config)
	}
	for name := range complete {
		_, err := leave.ConfigFromEnvironment(func(n string) string {
			if n == name {
				return ""
			}
			return complete[n]
		})
		if want := "missing in the function's environment: " + name; errorText(err) != want {
			t.Errorf("without %s: got error %v, want %s", name, err, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Behaviours of a world.

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func deny(context.Context) error { return errDenied }

func denySend(context.Context, string) error { return errDenied }

func found(instance leave.Instance, found bool, err error) func(context.Context) (leave.Instance, bool, error) {
	return func(context.Context) (leave.Instance, bool, error) { return instance, found, err }
}

func always(invocation leave.Invocation) func(context.Context, string, time.Duration) (leave.Invocation, error) {
	return func(context.Context, string, time.Duration) (leave.Invocation, error) { return invocation, nil }
}

// first has one survivor end so; the others know no member.
func first(survivor string, invocation leave.Invocation) func(context.Context, string, time.Duration) (leave.Invocation, error) {
	return func(_ context.Context, id string, _ time.Duration) (leave.Invocation, error) {
		if id == survivor {
			return invocation, nil
		}
		return success(`{"result":"absent"}`), nil
	}
}

// since tells whether so much time has gone by since it was called first.
func since(after time.Duration) func() bool {
	var start time.Time
	return func() bool {
		if start.IsZero() {
			start = time.Now()
		}
		return time.Since(start) >= after
	}
}

func untilFrom(after time.Duration, before, then leave.Invocation) func(context.Context, string, time.Duration) (leave.Invocation, error) {
	late := since(after)
	return func(context.Context, string, time.Duration) (leave.Invocation, error) {
		if late() {
			return then, nil
		}
		return before, nil
	}
}

func failUntilFrom(after time.Duration, err error) func(context.Context, string) error {
	late := since(after)
	return func(context.Context, string) error {
		if late() {
			return nil
		}
		return err
	}
}

func failFrom(after time.Duration, err error) func(context.Context, string) error {
	late := since(after)
	return func(context.Context, string) error {
		if late() {
			return err
		}
		return nil
	}
}

func failListUntilFrom(after time.Duration) func(context.Context) error {
	late := since(after)
	return func(context.Context) error {
		if late() {
			return nil
		}
		return errDenied
	}
}
