package leave_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/lambda/contract"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

// told is what the function is to tell of one invocation: the outcome and the
// completion. What is between bars is as good.
type told struct{ outcome, completion string }

// brief is a timeout that leaves the function five seconds to work besides the
// time that it keeps back.
const brief = int32((contract.CompletionReserve + 5*time.Second) / time.Second)

// A termination goes on and the member is gone, whatever goes wrong; the
// function itself completes the action, in its first invocation unless it died
// there or Auto Scaling refused.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		// timeout is the function's, in seconds; 0 as it is deployed.
		timeout int32
		// prepare brings the fault about; others are the two nodes that stay.
		prepare func(c *cluster, others []string)
		// want is what is told, invocation by invocation.
		want []told
		// asked is how the nodes that were asked answered, in the first
		// invocation that told: results, and parts of the reasons.
		asked []asked
		note  string
		// slow is for what spends the function's time to the end, or dies in it.
		slow bool
	}{
		"nothing": {
			prepare: func(*cluster, []string) {},
			want:    []told{{"removed", "continued"}}, asked: []asked{{Result: "removed"}},
		},

		// Nodes.
		"an agent is offline": {
			prepare: func(c *cluster, others []string) { c.nodes[others[0]].offline.Store(true) },
			want:    []told{{"removed", "continued"}}, asked: []asked{{Result: "removed"}},
		},
		"every agent is offline at first": {
			timeout: brief,
			prepare: func(c *cluster, others []string) {
				offline := func(is bool) {
					for _, id := range others {
						c.nodes[id].offline.Store(is)
					}
				}
				offline(true)
				c.meddle = onCompletion(func() { offline(false) })
			},
			want: []told{{"failed", "continued"}, {"removed", "already-over"}},
		},
		"an agent is not what it seems": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("SendCommand", 1, http.StatusBadRequest, "InvalidInstanceId")
			},
			want:  []told{{"removed", "continued"}},
			asked: []asked{{Result: "failed", Reason: "InvalidInstanceId"}, {Result: "removed"}},
		},
		"a command is undeliverable": {
			prepare: func(c *cluster, others []string) {
				first := answerFirst(ec2.CommandResult{})
				c.answer = first
				c.meddle = once("GetCommandInvocation", func() (any, error) {
					return map[string]any{"Status": "Failed", "StatusDetails": "Undeliverable", "ResponseCode": -1}, nil
				})
			},
			want:  []told{{"removed", "continued"}},
			asked: []asked{{Result: "failed", Reason: "Undeliverable with exit code -1"}, {Result: "removed"}},
		},
		"a node lacks the program": {
			prepare: func(c *cluster, _ []string) {
				c.answer = answerFirst(ec2.CommandResult{ExitCode: 127, Stderr: "sh: 1: /usr/local/bin/etcfs-bootstrap: not found"})
			},
			want:  []told{{"removed", "continued"}},
			asked: []asked{{Result: "failed", Reason: "exit code 127: it printed no answer: sh: 1: /usr/local/bin/etcfs-bootstrap: not found"}, {Result: "removed"}},
		},
		"a node says nothing": {
			prepare: func(c *cluster, _ []string) { c.answer = answerFirst(ec2.CommandResult{}) },
			want:    []told{{"removed", "continued"}},
			asked:   []asked{{Result: "failed", Reason: "it printed no answer"}, {Result: "removed"}},
		},
		"a node is too slow": {
			prepare: func(c *cluster, _ []string) {
				var asked atomic.Bool
				c.answer = func(ctx context.Context, _ string) (ec2.CommandResult, bool) {
					if asked.Swap(true) {
						return ec2.CommandResult{}, false
					}
					<-ctx.Done()
					return ec2.CommandResult{}, true
				}
			},
			want:  []told{{"removed", "continued"}},
			asked: []asked{{Result: "failed"}, {Result: "removed"}},
		},
		"every node fails at first": {
			timeout: brief,
			prepare: func(c *cluster, _ []string) {
				failing := new(atomic.Bool)
				failing.Store(true)
				c.answer = func(context.Context, string) (ec2.CommandResult, bool) {
					return ec2.CommandResult{ExitCode: 1, Stderr: "connection refused"}, failing.Load()
				}
				c.meddle = onCompletion(func() { failing.Store(false) })
			},
			want:  []told{{"failed", "continued"}, {"removed", "already-over"}},
			asked: []asked{{Result: "failed", Reason: "exit code 1: it printed no answer: connection refused"}},
		},
		"etcd refuses at first": {
			prepare: func(c *cluster, _ []string) {
				var times atomic.Int32
				c.answer = func(context.Context, string) (ec2.CommandResult, bool) { return refusal, times.Add(1) <= 2 }
			},
			want:  []told{{"removed", "continued"}},
			asked: []asked{{Result: "refused", Reason: "unhealthy cluster"}},
		},
		"etcd refuses to the end": {
			timeout: brief,
			prepare: func(c *cluster, _ []string) {
				refusing := new(atomic.Bool)
				refusing.Store(true)
				c.answer = func(context.Context, string) (ec2.CommandResult, bool) { return refusal, refusing.Load() }
				c.meddle = onCompletion(func() { refusing.Store(false) })
			},
			want:  []told{{"refused", "continued"}, {"removed", "already-over"}},
			asked: []asked{{Result: "refused", Reason: "unhealthy cluster"}},
		},

		// Calls that are throttled more often than the SDK tries them.
		"EC2 throttles": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("DescribeInstances", 4, http.StatusServiceUnavailable, "RequestLimitExceeded")
			},
			want: []told{{"removed", "continued"}}, note: "look up the instance",
		},
		"Auto Scaling throttles": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("DescribeAutoScalingInstances", 4, http.StatusBadRequest, "Throttling")
			},
			want: []told{{"removed", "continued"}}, note: "tell which nodes are leaving",
		},
		"the inventory throttles": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("DescribeInstanceInformation", 4, http.StatusBadRequest, "ThrottlingException")
			},
			want: []told{{"removed", "continued"}}, note: "tell which SSM agents are online",
		},
		"Run Command throttles commands": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("SendCommand", 4, http.StatusBadRequest, "ThrottlingException")
			},
			want:  []told{{"removed", "continued"}},
			asked: []asked{{Result: "failed", Reason: "ThrottlingException"}, {Result: "removed"}},
		},
		"Run Command throttles results": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("GetCommandInvocation", 4, http.StatusBadRequest, "ThrottlingException")
			},
			want: []told{{"removed", "continued"}}, asked: []asked{{Result: "removed"}},
		},
		"completing is throttled": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("CompleteLifecycleAction", 4, http.StatusBadRequest, "Throttling")
			},
			want: []told{{"removed", "continued"}},
		},
		"the group is busy": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = refused("CompleteLifecycleAction", 4, http.StatusInternalServerError, "ResourceContention")
			},
			want: []told{{"removed", "continued"}},
		},
		"the group is busy to the end": {
			timeout: brief, slow: true,
			prepare: func(c *cluster, _ []string) {
				begun := time.Now()
				busy := refused("CompleteLifecycleAction", -1, http.StatusInternalServerError, "ResourceContention")
				c.meddle = func(ctx context.Context, call *api.Call, next next) (any, error) {
					if time.Since(begun) > time.Duration(brief)*time.Second {
						return next(ctx)
					}
					return busy(ctx, call, next)
				}
			},
			want: []told{{"removed", "not-completed"}, {"absent", "continued"}},
		},

		// Calls that are denied.
		"nodes cannot be listed at first": {
			timeout: brief,
			prepare: func(c *cluster, _ []string) { c.meddle = deniedUntilCompleted("DescribeInstances") },
			want:    []told{{"failed", "continued"}, {"removed", "already-over"}}, note: "look up the instance",
		},
		"the group's states are denied": {
			prepare: func(c *cluster, _ []string) { c.meddle = deny("DescribeAutoScalingInstances") },
			want:    []told{{"removed", "continued"}}, note: "tell which nodes are leaving",
		},
		"the inventory is denied": {
			prepare: func(c *cluster, _ []string) { c.meddle = deny("DescribeInstanceInformation") },
			want:    []told{{"removed", "continued"}}, note: "tell which SSM agents are online",
		},
		"commands are denied at first": {
			timeout: brief,
			prepare: func(c *cluster, _ []string) { c.meddle = deniedUntilCompleted("SendCommand") },
			want:    []told{{"failed", "continued"}, {"removed", "already-over"}},
		},
		"results are denied at first": {
			timeout: brief,
			prepare: func(c *cluster, _ []string) { c.meddle = deniedUntilCompleted("GetCommandInvocation") },
			want:    []told{{"failed", "continued"}, {"absent", "already-over"}},
		},
		"completing is denied at first": {
			prepare: func(c *cluster, _ []string) { c.meddle = deniedUntilCompleted("CompleteLifecycleAction") },
			want:    []told{{"removed", "not-completed"}, {"absent", "continued"}},
		},

		// Connections that break.
		"the answer of SendCommand is lost": {
			prepare: func(c *cluster, _ []string) { c.meddle = lost(true, "SendCommand") },
			want:    []told{{"removed|absent", "continued"}},
		},
		"the answer of CompleteLifecycleAction is lost": {
			prepare: func(c *cluster, _ []string) { c.meddle = lost(true, "CompleteLifecycleAction") },
			want:    []told{{"removed", "already-over"}},
		},
		"every first call is lost": {
			prepare: func(c *cluster, _ []string) { c.meddle = lost(false, everyAction...) },
			want:    []told{{"removed", "continued"}},
		},
		"every first answer is lost": {
			prepare: func(c *cluster, _ []string) { c.meddle = lost(true, everyAction...) },
			want:    []told{{"removed|absent", "already-over"}},
		},

		// The function.
		"the function dies before it has sent the command": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = once("SendCommand", func() (any, error) { c.signal(syscall.SIGKILL); return nil, api.ErrDropped })
			},
			want: []told{{"removed", "continued"}},
		},
		"the function dies before it has completed the action": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = once("CompleteLifecycleAction", func() (any, error) { c.signal(syscall.SIGKILL); return nil, api.ErrDropped })
			},
			want: []told{{"absent", "continued"}},
		},
		"the function hangs until its timeout": {
			timeout: brief, slow: true,
			prepare: func(c *cluster, _ []string) {
				c.meddle = once("SendCommand", func() (any, error) { c.signal(syscall.SIGSTOP); return nil, api.ErrDropped })
			},
			want: []told{{"removed", "continued"}},
		},
		"the function panics": {
			prepare: func(c *cluster, _ []string) {
				c.meddle = once("SendCommand", func() (any, error) { return struct{}{}, nil }) // without the command
			},
			want: []told{{"failed", "continued"}, {"removed", "already-over"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			if s.timeout != 0 {
				c.timeout(s.timeout)
			}
			nodes := c.inService()
			victim := nodes[0]
			c.change(func() { s.prepare(c, nodes[1:]) })

			begun := time.Now()
			c.terminate(victim)
			lines := c.lines(victim, len(s.want))
			c.gone(victim)

			var got []told
			for i, l := range lines {
				is := told{l.Outcome, l.Completion}
				if i < len(s.want) && slices.Contains(strings.Split(s.want[i].outcome, "|"), l.Outcome) {
					is.outcome = s.want[i].outcome
				}
				got = append(got, is)
			}
			if diff := cmp.Diff(s.want, got, cmp.AllowUnexported(told{})); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if c.member(victim) {
				t.Errorf("the member of %s is still there", victim)
			}
			checkAsked(t, s.asked, lines[0])
			// A function that ends for want of time may note what it could not await.
			if notes := strings.Join(lines[0].Notes, "\n"); !strings.Contains(notes, s.note) || s.note == "" && s.timeout == 0 && notes != "" {
				t.Errorf("got notes %q, want %q in them", notes, s.note)
			}
			for _, l := range lines {
				checkLine(t, c, victim, l)
			}
			c.checkRole()
			// The heartbeat is three minutes: it was not what let the instance go.
			at := c.completed()
			if at.IsZero() {
				t.Fatal("the function did not complete the action")
			}
			took := at.Sub(begun)
			if working := contract.FunctionTimeout - contract.CompletionReserve; !s.slow && took > working {
				t.Errorf("the action was completed after %s, want it within %s", took, working)
			}
			t.Logf("the action was completed after %s", took.Round(time.Millisecond))
		})
	}
}

var everyAction = []string{
	"DescribeInstances", "DescribeAutoScalingInstances", "DescribeInstanceInformation", "SendCommand", "GetCommandInvocation", "CompleteLifecycleAction",
}

var refusal = answer(3, bootstrap.Removal{Result: bootstrap.Refused, MemberID: "8e9e05c52164694d", Reason: "etcdserver: unhealthy cluster"})

// answerFirst has the first node that is asked answer so.
func answerFirst(result ec2.CommandResult) func(context.Context, string) (ec2.CommandResult, bool) {
	var asked atomic.Bool
	return func(context.Context, string) (ec2.CommandResult, bool) { return result, !asked.Swap(true) }
}

func deny(action string) func(context.Context, *api.Call, next) (any, error) {
	return func(ctx context.Context, c *api.Call, next next) (any, error) {
		if c.Action == action {
			return nil, denied(c)
		}
		return next(ctx)
	}
}

// onCompletion does something once an action is completed.
func onCompletion(do func()) func(context.Context, *api.Call, next) (any, error) {
	var once sync.Once
	return func(ctx context.Context, c *api.Call, next next) (any, error) {
		result, err := next(ctx)
		if c.Action == "CompleteLifecycleAction" && err == nil {
			once.Do(do)
		}
		return result, err
	}
}

// completed is when the function's call completed an action, also when the
// answer was lost, the zero time if none did.
func (c *cluster) completed() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range c.calls {
		if each.action == "autoscaling:CompleteLifecycleAction" && each.err == nil {
			return each.at
		}
	}
	return time.Time{}
}

func checkAsked(t *testing.T, want []asked, l line) {
	t.Helper()
	if want == nil {
		return
	}
	if len(l.Asked) < len(want) {
		t.Errorf("asked %+v, want %+v", l.Asked, want)
		return
	}
	for i, w := range want {
		if got := l.Asked[i]; got.Result != w.Result || !strings.Contains(got.Reason, w.Reason) {
			t.Errorf("asked %d: got %+v, want %+v", i, got, w)
		}
	}
}

// checkLine checks what every line is to tell.
func checkLine(t *testing.T, c *cluster, instance string, l line) {
	t.Helper()
	if l.Cluster != c.name || l.Group != c.group() || l.Instance != instance || l.Event == "" || l.Events != 1 || l.Duration == nil {
		t.Errorf("the line lacks something: %+v", l)
	}
	again := l.Outcome == "failed" || l.Outcome == "refused" || l.Completion == "not-completed"
	if level := map[bool]string{true: "ERROR", false: "INFO"}[again]; l.Level != level {
		t.Errorf("%s, %s is told at level %s, want %s", l.Outcome, l.Completion, l.Level, level)
	}
	if (l.Reason != "") != (l.Outcome == "failed" || l.Outcome == "refused" || l.Outcome == "no-survivor" || l.Outcome == "ignored") {
		t.Errorf("the reason of %s is %q", l.Outcome, l.Reason)
	}
	if answered := l.Outcome == "removed" || l.Outcome == "absent" || l.Outcome == "refused"; answered != (l.Survivor != "") || l.Survivor == instance {
		t.Errorf("the survivor of %s is %q", l.Outcome, l.Survivor)
	}
	if l.Outcome == "removed" && l.Member != memberID(instance) {
		t.Errorf("the member is %q, want %q", l.Member, memberID(instance))
	}
	if (l.CompletionError != "") != (l.Completion == "not-completed") {
		t.Errorf("the completion's error is %q, it is %s", l.CompletionError, l.Completion)
	}
	const metrics = `"CloudWatchMetrics":[{"Namespace":"EtcFS/ScaleIn","Dimensions":[["cluster","outcome"]],` +
		`"Metrics":[{"Name":"events","Unit":"Count"},{"Name":"duration","Unit":"Milliseconds"}]}]`
	if !strings.Contains(string(l.Metrics), metrics) {
		t.Errorf("the metric document is %s, want %s in it", l.Metrics, metrics)
	}
}
