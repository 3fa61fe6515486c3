package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Expectation is a state that a cluster should come to.
type Expectation struct {
	// Name says what is expected, such as "3 nodes mounted".
	Name string
	// Missing says what a view lacks of it, "" when nothing.
	Missing func(View) string
}

// Settled expects exactly so many nodes, each in service, healthy, with a
// voting member and mounted, one of them the leader, and no member of an
// instance that is gone.
func Settled(nodes int) Expectation {
	return Expectation{fmt.Sprintf("%d nodes mounted", nodes), func(v View) string {
		var missing []string
		mounted, voters, leaders := 0, 0, 0
		for _, n := range v.InService() {
			if n.Mounted && n.Healthy {
				mounted++
			}
		}
		for _, n := range v.Nodes {
			if n.Member.Started && !n.Member.Learner {
				voters++
			}
			if n.Member.Leader {
				leaders++
			}
		}
		if mounted != nodes {
			missing = append(missing, fmt.Sprintf("%d of %d mounted", mounted, nodes))
		}
		if leaving := len(v.Nodes) - len(v.InService()); leaving > 0 {
			missing = append(missing, fmt.Sprintf("%d on the way in or out", leaving))
		}
		if total := len(v.Nodes); total != nodes {
			missing = append(missing, fmt.Sprintf("%d of %d instances", total, nodes))
		}
		if !v.Serving {
			return strings.Join(append(missing, "etcd does not serve"), ", ")
		}
		if voters != nodes {
			missing = append(missing, fmt.Sprintf("%d of %d voters", voters, nodes))
		}
		if leaders != 1 {
			missing = append(missing, "no leader")
		}
		if len(v.Strays) > 0 {
			missing = append(missing, "members without instance: "+strings.Join(v.Strays, ", "))
		}
		return strings.Join(missing, ", ")
	}}
}

// NobodyLeaves expects that no instance is being terminated.
func NobodyLeaves() Expectation {
	return Expectation{"nobody leaves", func(v View) string {
		var leaving []string
		for _, n := range v.Nodes {
			if strings.HasPrefix(n.GroupState, "Terminating") {
				leaving = append(leaving, n.InstanceID+" is "+n.GroupState)
			}
		}
		return strings.Join(leaving, ", ")
	}}
}

// Without adds to an expectation that an instance is gone from the group, and
// with it its member.
func (e Expectation) Without(instanceID string) Expectation {
	return Expectation{e.Name + " without " + instanceID, func(v View) string {
		if slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.InstanceID == instanceID }) {
			return instanceID + " is still in the group"
		}
		return e.Missing(v)
	}}
}

// Watcher is told what a wait sees, one look after the other.
type Watcher interface {
	// Look is told each view and what it lacks, "" at the end of the wait.
	Look(e Expectation, v View, missing string, elapsed time.Duration)
}

// TimeoutError says that a cluster did not come to an expected state in time.
type TimeoutError struct {
	Expectation Expectation
	Limit       time.Duration
	// Missing is what the last view lacked, or why there was none.
	Missing string
	View    View
	// Lost are the instances that were there and went away during the wait.
	Lost []string
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s: not within %s: %s", e.Expectation.Name, e.Limit, e.Missing)
}

// Concerned lists the instances whose consoles may tell why.
func (e *TimeoutError) Concerned() []string {
	concerned := slices.Clone(e.Lost)
	for _, n := range e.View.Nodes {
		if !n.Mounted || !n.Healthy || !n.Member.Started || n.Member.Learner {
			concerned = append(concerned, n.InstanceID)
		}
	}
	return concerned
}

// Await looks at the cluster until it is as expected, and returns that view.
// A look that fails is a view that could not be had, and is tried again. After
// the limit the error is a *TimeoutError.
func (c *Cluster) Await(ctx context.Context, limit time.Duration, e Expectation, watcher Watcher) (View, error) {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	timeout := &TimeoutError{Expectation: e, Limit: limit}
	seen := map[string]bool{}
	view, err := backoff.Retry(within, func() (View, error) {
		view, err := c.Look(within)
		if err != nil {
			if within.Err() == nil {
				timeout.Missing = err.Error()
			}
			return View{}, err
		}
		for _, n := range view.Nodes {
			seen[n.InstanceID] = true
		}
		timeout.View, timeout.Missing = view, e.Missing(view)
		watcher.Look(e, view, timeout.Missing, time.Since(start))
		if timeout.Missing != "" {
			return View{}, fmt.Errorf("%s: %s", e.Name, timeout.Missing)
		}
		return view, nil
	}, backoff.WithBackOff(polling(200*time.Millisecond, time.Second)), backoff.WithMaxElapsedTime(0))
	switch {
	case err == nil:
		return view, nil
	case ctx.Err() != nil:
		return View{}, fmt.Errorf("wait for %s: %w", e.Name, context.Cause(ctx))
	}
	for id := range seen {
		if !slices.ContainsFunc(timeout.View.Nodes, func(n Node) bool { return n.InstanceID == id }) {
			timeout.Lost = append(timeout.Lost, id)
		}
	}
	slices.Sort(timeout.Lost)
	return View{}, timeout
}
