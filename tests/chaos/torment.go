package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/fault"
	"github.com/etcfs/pulumi-etcfs/tests/invariant"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

const (
	minNodes, maxNodes = 3, 5
	// atOnce is how many faults are in force at the same time.
	atOnce = 3
	// recovery is how long a node may take after a fault before it counts as one
	// that answers.
	recovery = 15 * time.Second
)

// tormentor injects faults and scales, as the seed decides.
type tormentor struct {
	*world
	rng     *rand.Rand
	deck    []fault.Fault // all of the catalogue, before any comes again
	allowed []fault.Fault
	active  []*injected
	desired int
	count   map[string]int
}

// injected is a fault in force.
type injected struct {
	fault.Fault
	target string
	until  time.Time
	undo   fault.Undo
	over   []func(time.Time)
}

func (in *injected) String() string { return strings.TrimSpace(in.Name + " " + in.target) }

func newTormentor(w *world, p plan) *tormentor {
	t := &tormentor{world: w, rng: rand.New(rand.NewPCG(p.seed, 1)), desired: firstNodes, count: map[string]int{}}
	for _, f := range fault.All() {
		if p.faults == "" || slices.Contains(strings.Split(p.faults, ","), f.Name) {
			t.allowed = append(t.allowed, f)
		}
	}
	return t
}

// deal shuffles the whole catalogue into the deck.
func (t *tormentor) deal() {
	t.deck = slices.Clone(t.allowed)
	t.rng.Shuffle(len(t.deck), func(i, j int) { t.deck[i], t.deck[j] = t.deck[j], t.deck[i] })
}

// form has the cluster form under two faults of its surroundings. No node dies:
// the seed's claim would have to be ten minutes old first.
func (t *tormentor) form(ctx context.Context, deploy func(context.Context) error) error {
	t.deal()
	around := slices.DeleteFunc(slices.Clone(t.deck), func(f fault.Fault) bool { return f.Targeted || f.Boots })
	for _, f := range around[:min(2, len(around))] {
		if err := t.apply(ctx, f, t.World); err != nil {
			return err
		}
	}
	t.deck = nil
	err := deploy(ctx)
	pause(ctx, time.Duration(t.rng.IntN(8000))*time.Millisecond)
	if err := errors.Join(err, t.heal(ctx, true)); err != nil {
		return err
	}
	return t.world.form(ctx)
}

// torment injects faults for a while, heals the cluster, lets it settle and
// judges what happened.
func (t *tormentor) torment(ctx context.Context, duration time.Duration) error {
	end := time.Now().Add(duration)
	for time.Now().Before(end) {
		if err := t.step(ctx); err != nil {
			return errors.Join(err, t.heal(context.WithoutCancel(ctx), true))
		}
		pause(ctx, time.Duration(300+t.rng.IntN(1200))*time.Millisecond)
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), t.heal(context.WithoutCancel(ctx), true))
		}
	}
	if err := t.heal(ctx, true); err != nil {
		return err
	}
	t.recorder.healed()
	return t.judge(ctx)
}

// judge lets the cluster settle, with one join, which clears away the dead,
// and one node that leaves in peace.
func (t *tormentor) judge(ctx context.Context) error {
	t.journal.tell("all faults are over")
	// One whose event was lost keeps its member, and waits for its heartbeat to
	// end. The join comes after that.
	if _, err := t.cluster.Await(ctx, settleLimit, scenario.NobodyLeaves(), t.world); err != nil {
		return err
	}
	var last error
	for _, nodes := range []int{t.desired + 1, t.desired} {
		from := time.Now()
		if err := t.cluster.Scale(ctx, nodes); err != nil {
			return err
		}
		view, err := t.settle(ctx, nodes)
		if timeout, ok := errors.AsType[*scenario.TimeoutError](err); ok {
			// The validators may say more than that it does not settle.
			return errors.Join(err, invariant.Judge(t.finish(timeout.View, nodes)))
		}
		if err != nil {
			return err
		}
		if nodes > t.desired {
			t.journal.tell("a join, with whatever else there was to mend: %s", measured(t.recorder.snapshot(), from, time.Now()))
			continue
		}
		pause(ctx, 2*samplePause) // one more sample
		last = invariant.Judge(t.finish(view, nodes))
	}
	t.summary()
	return last
}

func (t *tormentor) summary() {
	h := t.recorder.snapshot()
	m := measured(h, h.Operations[0].From, time.Now())
	t.journal.tell("%d faults of %d kinds, %d instances, %d lifecycle actions, %d versions of the seed item, %d operations",
		sum(t.count), len(t.count), len(h.Instances), len(h.Actions), len(h.Seeds), len(h.Operations))
	t.journal.tell("under all faults: %s", m)
}

func sum(counts map[string]int) int {
	total := 0
	for _, count := range counts {
		total += count
	}
	return total
}

// step does one thing.
func (t *tormentor) step(ctx context.Context) error {
	if err := t.heal(ctx, false); err != nil {
		return err
	}
	switch choice := t.rng.IntN(10); {
	case choice == 0 && t.desired < maxNodes:
		return t.scale(ctx, t.desired+1)
	case choice == 1 && t.desired > minNodes && t.canSpare():
		return t.scale(ctx, t.desired-1)
	case len(t.active) < atOnce:
		return t.inject(ctx)
	}
	return nil
}

func (t *tormentor) scale(ctx context.Context, nodes int) error {
	t.journal.tell("scale from %d to %d nodes", t.desired, nodes)
	t.desired = nodes
	return t.cluster.Scale(ctx, nodes)
}

// canSpare says whether the cluster keeps its majority when it loses one node
// more. A fault that waits for a node to take counts as if it had taken it.
func (t *tormentor) canSpare() bool {
	spare := t.recorder.spare()
	for _, each := range t.active {
		if each.Takes && each.Boots {
			spare--
		}
	}
	return spare > 0
}

// inject takes the next fault of the deck that is possible now.
func (t *tormentor) inject(ctx context.Context) error {
	if len(t.deck) == 0 {
		t.deal()
	}
	i := slices.IndexFunc(t.deck, t.possible)
	if i < 0 {
		return nil
	}
	f := t.deck[i]
	t.deck = slices.Delete(t.deck, i, i+1)
	w := t.World
	if f.Targeted {
		targets := t.targets()
		if len(targets) == 0 {
			return nil
		}
		w = w.At(targets[t.rng.IntN(len(targets))])
	}
	return t.apply(ctx, f, w)
}

// apply injects a fault.
func (t *tormentor) apply(ctx context.Context, f fault.Fault, w *fault.World) error {
	in := &injected{Fault: f, target: w.Target, until: time.Now().Add(time.Duration(2+t.rng.IntN(7)) * time.Second)}
	if f.Boots {
		in.until = time.Now().Add(20 * time.Second)
	}
	t.journal.tell("%s: %s", in, f.Does)
	switch {
	case f.Name == fault.KillNode.Name:
		t.recorder.lost(w.Target)
	case f.Takes && f.Targeted:
		in.over = append(in.over, t.recorder.outage(w.Target))
	}
	if f.Hinders {
		in.over = append(in.over, t.recorder.hindrance())
	}
	var err error
	if in.undo, err = f.Inject(ctx, w); err != nil {
		for _, over := range in.over {
			over(time.Now())
		}
		if !t.exists(w.Target) && f.Targeted {
			return nil // it was terminated at this very moment
		}
		return fmt.Errorf("inject %s: %w", f.Name, err)
	}
	t.count[f.Name]++
	t.active = append(t.active, in)
	if f.Boots {
		return t.boot(ctx)
	}
	return nil
}

// possible says whether a fault can be injected now.
func (t *tormentor) possible(f fault.Fault) bool {
	switch {
	case f.Takes && !t.canSpare():
		return false
	case slices.ContainsFunc(t.active, func(each *injected) bool { return each.Boots && f.Boots || each.Name == f.Name }):
		return false
	}
	return true
}

// targets are the nodes that run and stay, and that no fault holds.
func (t *tormentor) targets() []string {
	var list []string
	h := t.recorder.snapshot()
	for _, instance := range h.Instances {
		now, ok := t.Region.EC2.Instance(instance.ID)
		if ok && now.State == ec2.StateRunning && instance.Leaving.IsZero() && !out(h, instance.ID, time.Now()) {
			list = append(list, instance.ID)
		}
	}
	return list
}

func (t *tormentor) exists(instanceID string) bool {
	i, ok := t.Region.EC2.Instance(instanceID)
	return ok && i.State == ec2.StateRunning
}

// boot has a node launched, for a fault that waits for one.
func (t *tormentor) boot(ctx context.Context) error {
	if t.desired < maxNodes {
		return t.scale(ctx, t.desired+1)
	}
	targets := t.targets()
	if len(targets) == 0 || !t.canSpare() {
		return nil
	}
	target := targets[t.rng.IntN(len(targets))]
	t.recorder.lost(target)
	t.recorder.Struck(target, "the power fails")
	if err := t.Region.Kill(target); err != nil && t.exists(target) {
		return fmt.Errorf("kill %s: %w", target, err)
	}
	return nil
}

// heal ends the faults whose time is over, or all of them.
func (t *tormentor) heal(ctx context.Context, all bool) error {
	var problems []error
	t.active = slices.DeleteFunc(t.active, func(in *injected) bool {
		if !all && time.Now().Before(in.until) {
			return false
		}
		if err := in.undo(ctx); err != nil {
			problems = append(problems, fmt.Errorf("end %s: %w", in.Name, err))
		}
		for _, over := range in.over {
			over(time.Now().Add(recovery))
		}
		t.journal.tell("%s is over", in)
		return true
	})
	return errors.Join(problems...)
}
