// Package fault is a catalogue of what goes wrong around a cluster: AWS that
// throttles, refuses and forgets to answer, lists that lack instances, events
// that are lost, nodes that die at any moment, stand still or come back,
// downloads that break, clocks that are wrong. Each fault is a value with a
// name, made of the means that a region has.
//
// A cut between two particular nodes is not among them: machines that are
// processes share one loopback interface, and the kernel divides it for root
// only. A node that all others cannot reach is ([CutOffEtcd], [FreezeNode]);
// links cut one by one are played in memory, by the histories of package
// bootstrap.
package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
)

// Fault is one kind of trouble.
type Fault struct {
	Name string
	// Does says in a sentence what the fault does.
	Does string
	// Targeted faults hit the World's target, which is a node that runs.
	Targeted bool
	// Takes says that the fault takes away a node: it does not answer while the
	// fault lasts, or never again. Whoever injects it has to see to it that a
	// majority is left.
	Takes bool
	// Boots says that the fault waits for the next node that boots.
	Boots bool
	// Hinders says that the graceful-leave function may be unable to do its work
	// while the fault lasts.
	Hinders bool
	// Inject makes the trouble, until Undo is called.
	Inject func(context.Context, *World) (Undo, error)
}

func (f Fault) String() string { return f.Name }

// Undo ends a fault. What the fault has destroyed stays destroyed. Calling it
// again changes nothing.
type Undo func(context.Context) error

// World is where faults are injected.
type World struct {
	Region *region.Region
	// Cluster is the name of the cluster whose nodes are hit.
	Cluster string
	// Target is the instance that a targeted fault hits.
	Target string

	watcher Watcher
	board   *board
}

// Watcher is told what happens in a world.
type Watcher interface {
	// Struck is told right before a fault strikes an instance.
	Struck(instanceID, what string)
	// Emitted is told each event of the region's bus, before a fault gets at it.
	Emitted(events.Event)
}

// board holds what is in force. The region has one hook of each kind.
type board struct {
	remove  func()
	watcher Watcher

	mu     sync.Mutex
	rng    *rand.Rand
	calls  []*api.Interceptor
	copies []*func(events.Event) int
	clocks []*func(api.Principal) time.Duration
}

// NewWorld makes a region ready for faults in a cluster. Everything random
// comes from the seed. Close takes the hooks out of the region again.
func NewWorld(r *region.Region, cluster string, seed uint64, watcher Watcher) *World {
	b := &board{rng: rand.New(rand.NewPCG(seed, seed)), watcher: watcher}
	b.remove = r.Intercept(b.intercept)
	r.Events.SetCopies(b.copiesOf)
	r.SetClock(b.clockOf)
	return &World{Region: r, Cluster: cluster, watcher: watcher, board: b}
}

// At is the same world with another target.
func (w *World) At(instanceID string) *World {
	targeted := *w
	targeted.Target = instanceID
	return &targeted
}

// Close takes the hooks out of the region.
func (w *World) Close() {
	w.board.remove()
	w.Region.Events.SetCopies(nil)
	w.Region.SetClock(nil)
}

// chance is true as often as p says.
func (w *World) chance(p float64) bool {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	return w.board.rng.Float64() < p
}

// between is a random duration.
func (w *World) between(least, most time.Duration) time.Duration {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	return least + time.Duration(w.board.rng.Int64N(int64(most-least)))
}

// put adds a value to one of the board's lists and returns how to take it out.
func put[T any](w *World, list *[]*T, value T) Undo {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	entry := &value
	*list = append(slices.Clone(*list), entry)
	return func(context.Context) error {
		w.board.mu.Lock()
		defer w.board.mu.Unlock()
		*list = slices.DeleteFunc(slices.Clone(*list), func(each *T) bool { return each == entry })
		return nil
	}
}

func (b *board) intercept(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
	b.mu.Lock()
	calls := b.calls
	b.mu.Unlock()
	for _, each := range calls {
		inner := next
		next = func(ctx context.Context) (any, error) { return (*each)(ctx, c, inner) }
	}
	return next(ctx)
}

func (b *board) copiesOf(e events.Event) int {
	b.watcher.Emitted(e)
	b.mu.Lock()
	copies := b.copies
	b.mu.Unlock()
	count := 1
	for _, each := range copies {
		count *= (*each)(e)
	}
	return count
}

func (b *board) clockOf(p api.Principal) time.Duration {
	b.mu.Lock()
	clocks := b.clocks
	b.mu.Unlock()
	var ahead time.Duration
	for _, each := range clocks {
		ahead += (*each)(p)
	}
	return ahead
}

// Nodes lists the cluster's instances that run or are about to.
func (w *World) Nodes() []ec2.Instance {
	return slices.DeleteFunc(w.Region.EC2.Instances(), func(i ec2.Instance) bool {
		return i.Tags[settings.TagClusterName] != w.Cluster || i.State != ec2.StatePending && i.State != ec2.StateRunning
	})
}

// machine is the computer of an instance.
func (w *World) machine(instanceID string) (*process.Machine, error) {
	machine := w.Region.Machines.Machine(instanceID)
	if machine == nil {
		return nil, fmt.Errorf("%s has no machine", instanceID)
	}
	return machine, nil
}

// isNode says whether an instance of the region calls.
func isNode(p api.Principal) bool { return strings.HasPrefix(p.Session, "i-") }

// isFunction says whether a function calls. The administrator is neither.
func isFunction(p api.Principal) bool { return p.Role != "" && !isNode(p) }
