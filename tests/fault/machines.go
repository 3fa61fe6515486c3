package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
)

// What happens to a node that runs.
var (
	KillNode = Fault{
		Name: "KillNode", Does: "A node's power fails for good.", Targeted: true, Takes: true,
		Inject: onNode("the power fails", func(_ context.Context, w *World, _ *process.Machine) (Undo, error) {
			return nil, w.Region.Kill(w.Target)
		}),
	}
	FreezeNode = Fault{
		Name: "FreezeNode", Does: "A node stands still, its connections open, and goes on later.", Targeted: true, Takes: true,
		Inject: onNode("everything stands still", func(_ context.Context, _ *World, m *process.Machine) (Undo, error) {
			return unlessGone(m, m.Thaw), m.Freeze()
		}),
	}
	CutOffEtcd = Fault{
		Name: "CutOffEtcd", Does: "Nobody reaches the etcd of a node, nor does it reach anybody: its process is stopped, and continued later.", Targeted: true, Takes: true,
		Inject: onNode("etcd stands still", func(_ context.Context, _ *World, m *process.Machine) (Undo, error) {
			_, err := m.Signal("etcd", syscall.SIGSTOP)
			return unlessGone(m, func() error { _, err := m.Signal("etcd", syscall.SIGCONT); return err }), err
		}),
	}
	RebootNode = Fault{
		Name: "RebootNode", Does: "A node reboots in order.", Targeted: true, Takes: true,
		Inject: onNode("it reboots", func(ctx context.Context, _ *World, m *process.Machine) (Undo, error) { return nil, m.Reboot(ctx) }),
	}
	PowerCycleNode = Fault{
		Name: "PowerCycleNode", Does: "A node loses its power and boots again on the same disk.", Targeted: true, Takes: true,
		Inject: onNode("the power fails and comes back", func(ctx context.Context, _ *World, m *process.Machine) (Undo, error) { return nil, m.PowerCycle(ctx) }),
	}
	KillEtcd = Fault{Name: "KillEtcd", Does: "The etcd of a node is killed.", Targeted: true, Takes: true, Inject: killing("etcd")}
	KillMeta = Fault{Name: "KillMeta", Does: "The etcfuse-meta of a node is killed.", Targeted: true, Inject: killing("etcfuse-meta")}
	KillFuse = Fault{Name: "KillFuse", Does: "The etcfuse of a node is killed.", Targeted: true, Inject: killing("etcfuse")}
)

// What happens to a node that boots.
var (
	KillBootstrapAfterAdd = Fault{
		Name: "KillBootstrapAfterAdd", Boots: true,
		Does:   "The bootstrap of the next new node is killed once it has added its member, which etcd never started.",
		Inject: onBoot(wrote(`change="add as a learner"`), killBootstrap),
	}
	KillBootstrapAtConfigure = Fault{
		Name: "KillBootstrapAtConfigure", Does: "The bootstrap of the next new node is killed when it configures the daemons.", Boots: true,
		Inject: onBoot(wrote(starts(bootstrap.PhaseConfigure)), killBootstrap),
	}
	PowerCycleAtMember = Fault{
		Name: "PowerCycleAtMember", Does: "The next new node loses its power when it is to become a member, and boots again on the same disk.", Boots: true, Takes: true,
		Inject: onBoot(wrote(starts(bootstrap.PhaseMember)), func(ctx context.Context, _ *World, m *process.Machine, _ string) error { return m.PowerCycle(ctx) }),
	}
)

// KillAt kills the next new node when its bootstrap begins a phase.
func KillAt(phase string) Fault {
	return Fault{
		Name: "KillAt" + camel(phase), Does: "The power of the next new node fails for good when its bootstrap begins with " + phase + ".", Boots: true, Takes: true,
		Inject: onBoot(wrote(starts(phase)), func(_ context.Context, w *World, _ *process.Machine, instanceID string) error {
			return w.Region.Kill(instanceID)
		}),
	}
}

func camel(phase string) string {
	var name strings.Builder
	for word := range strings.SplitSeq(phase, "-") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// starts is what the bootstrap logs at the start of a phase.
func starts(phase string) string { return "msg=start phase=" + phase + " " }

func wrote(text string) func(*process.Machine) bool {
	return func(m *process.Machine) bool { return strings.Contains(m.Console(), text) }
}

func killBootstrap(_ context.Context, _ *World, m *process.Machine, _ string) error {
	_, err := m.Signal("etcfs-bootstrap", syscall.SIGKILL)
	return err
}

// onNode strikes the target.
func onNode(what string, strike func(context.Context, *World, *process.Machine) (Undo, error)) func(context.Context, *World) (Undo, error) {
	return func(ctx context.Context, w *World) (Undo, error) {
		machine, err := w.machine(w.Target)
		if err != nil {
			return nil, err
		}
		w.watcher.Struck(w.Target, what)
		undo, err := strike(ctx, w, machine)
		if err != nil {
			return nil, fmt.Errorf("strike %s: %w", w.Target, err)
		}
		if undo == nil {
			undo = func(context.Context) error { return nil }
		}
		return undo, nil
	}
}

func killing(program string) func(context.Context, *World) (Undo, error) {
	return onNode(program+" is killed", func(_ context.Context, _ *World, m *process.Machine) (Undo, error) {
		_, err := m.Signal(program, syscall.SIGKILL)
		return nil, err
	})
}

// unlessGone undoes what was done to a machine that still exists.
func unlessGone(m *process.Machine, undo func() error) Undo {
	return func(context.Context) error {
		select {
		case <-m.Exited():
			return nil
		default:
			return undo()
		}
	}
}

// look is how often a booting node is looked at.
const look = 10 * time.Millisecond

// onBoot strikes the first node launched from now on for which it is time,
// once.
func onBoot(isTime func(*process.Machine) bool, strike func(context.Context, *World, *process.Machine, string) error) func(context.Context, *World) (Undo, error) {
	return func(ctx context.Context, w *World) (Undo, error) {
		old := map[string]bool{}
		for _, instance := range w.Region.EC2.Instances() {
			old[instance.ID] = true
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan error, 1)
		go func() { done <- ambush(ctx, w, old, isTime, strike) }()
		var result error
		var once sync.Once
		return func(context.Context) error {
			once.Do(func() {
				cancel()
				result = <-done
			})
			return result
		}, nil
	}
}

func ambush(ctx context.Context, w *World, old map[string]bool, isTime func(*process.Machine) bool, strike func(context.Context, *World, *process.Machine, string) error) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, instance := range w.Nodes() {
			machine := w.Region.Machines.Machine(instance.ID)
			if old[instance.ID] || instance.State != ec2.StateRunning || machine == nil || !isTime(machine) {
				continue
			}
			w.watcher.Struck(instance.ID, "it is struck while it boots")
			err := strike(context.WithoutCancel(ctx), w, machine, instance.ID)
			select {
			case <-machine.Exited():
				return nil // by itself, or by somebody else, at the same moment
			default:
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("strike %s: %w", instance.ID, err)
			}
			return nil
		}
	}
}
