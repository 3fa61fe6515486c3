// Package invariant judges what happened to a cluster while things went wrong:
// a recorded history goes in, the sentence of what must never have happened
// comes out.
//
// Every validator first checks that the history holds enough to be judged by:
// one that has nothing to look at refuses, it does not pass.
package invariant

import (
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

// History is what was recorded of one run.
type History struct {
	// Healed is when the last fault ended; Ended is when the cluster had been
	// given its time to settle since.
	Healed, Ended time.Time
	// Wanted is how many nodes there should be in the end.
	Wanted int

	Instances  []Instance
	Outages    []Outage
	Samples    []Sample
	Seeds      []Seed
	Actions    []Action
	Operations []Operation
	// Hindrances are the times in which the graceful-leave function could not be
	// relied on, because of a fault.
	Hindrances []Interval
}

// Interval is a part of the history. Its end is zero while it is not over.
type Interval struct{ From, To time.Time }

func (i Interval) overlaps(o Interval) bool {
	return (o.To.IsZero() || !i.From.After(o.To)) && (i.To.IsZero() || !o.From.After(i.To))
}

func (i Interval) contains(t time.Time) bool { return i.overlaps(Interval{t, t}) }

// Instance is one instance of the group.
type Instance struct {
	ID, Address string
	Launched    time.Time
	// Leaving is when the instance was lost, or when its group began to
	// terminate it; zero when neither has happened.
	Leaving time.Time
	// Mounted says whether it had the filesystem mounted in the end.
	Mounted bool
}

// Outage is a time in which an instance was there and did not answer.
type Outage struct {
	Instance string
	Interval
}

// Sample is how the members were told by one linearizable reading.
type Sample struct {
	Interval
	// Cluster is etcd's ID of the cluster, in hexadecimal.
	Cluster string
	Members []membership.Member
}

// Seed is one version of the seed item.
type Seed struct {
	At   time.Time
	Item membership.Item
}

// Action is one lifecycle action of a terminating instance.
type Action struct {
	Instance string
	Interval
	// Completed says that somebody completed it; otherwise its heartbeat ran
	// out.
	Completed bool
}

// Operation is what a client did to one key.
type Operation struct {
	Client int
	Key    string
	// Write says that Value was written; otherwise it was read.
	Write bool
	Value string
	Interval
	// Known says that the answer arrived. Without it a write may have happened
	// at any time since, or never.
	Known bool
}

// instanceOf finds a member's instance, nil when there was none.
func (h *History) instanceOf(m membership.Member) *Instance {
	for i := range slices.Backward(h.Instances) {
		instance := &h.Instances[i]
		if m.Started() && strings.HasSuffix(m.Name, "-"+instance.ID) || !m.Started() && m.Of(instance.ID, instance.Address) {
			return instance
		}
	}
	return nil
}

// up says whether an instance could answer at a time.
func (h *History) up(instance *Instance, at time.Time) bool {
	if instance == nil || at.Before(instance.Launched) || !instance.Leaving.IsZero() && !at.Before(instance.Leaving) {
		return false
	}
	return !slices.ContainsFunc(h.Outages, func(o Outage) bool { return o.Instance == instance.ID && o.contains(at) })
}
