package invariant_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/tests/invariant"
)

var began = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

func between(from, to float64) invariant.Interval {
	return invariant.Interval{From: at(from), To: at(to)}
}

func id(n int) string { return fmt.Sprintf("i-%017x", n) }

func voter(n int) membership.Member {
	return membership.Member{ID: uint64(n), Name: "demo-" + id(n), PeerURLs: []string{fmt.Sprintf("http://10.0.0.%d:2380", n)}}
}

func sample(from float64, cluster string, members ...int) invariant.Sample {
	s := invariant.Sample{Interval: between(from, from+0.1), Cluster: cluster}
	for _, n := range members {
		s.Members = append(s.Members, voter(n))
	}
	return s
}

// good is a history as it should be: three nodes form, the third leaves in
// order and a fourth takes its place, while a client writes and reads.
func good() *invariant.History {
	h := &invariant.History{Healed: at(60), Ended: at(100), Wanted: 3}
	for n := 1; n <= 4; n++ {
		h.Instances = append(h.Instances, invariant.Instance{ID: id(n), Address: fmt.Sprintf("10.0.0.%d", n), Launched: at(0), Mounted: n != 3})
	}
	h.Instances[2].Leaving = at(30)
	h.Samples = []invariant.Sample{
		sample(5, "c", 1), sample(10, "c", 1, 2, 3), sample(29, "c", 1, 2, 3), sample(31, "c", 1, 2), sample(40, "c", 1, 2, 4), sample(90, "c", 1, 2, 4),
	}
	seed := func(second float64, state membership.State, cluster string) invariant.Seed {
		return invariant.Seed{At: at(second), Item: membership.Item{ClusterName: "demo", InstanceID: id(1), State: state, ClusterID: cluster}}
	}
	h.Seeds = []invariant.Seed{seed(1, membership.StateForming, ""), seed(5, membership.StateFormed, "c")}
	h.Actions = []invariant.Action{{Instance: id(3), Interval: between(30, 32), Completed: true}}
	for i := range 90 {
		o := invariant.Operation{Key: "k", Write: i%2 == 0, Value: fmt.Sprint(i), Interval: between(10+float64(i), 10.5+float64(i)), Known: true}
		if !o.Write {
			o.Value = fmt.Sprint(i - 1)
		}
		h.Operations = append(h.Operations, o)
	}
	return h
}

func TestGoodHistory(t *testing.T) {
	t.Parallel()
	if err := invariant.Judge(good()); err != nil {
		t.Error(err)
	}
}

// Each validator finds what it is there for, in a history that differs from the
// good one in just that.
func TestValidatorsCanFail(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, c := range []struct {
		name      string
		validator invariant.Validator
		spoil     func(*invariant.History)
		want      string // "" when the validator must not mind
	}{
		{"the seed item names another cluster", invariant.OneCluster, func(h *invariant.History) {
			other := h.Seeds[1]
			other.At, other.Item.ClusterID = at(50), "d"
			h.Seeds = append(h.Seeds, other)
		}, "and cluster d at 03:00:50"},
		{"two nodes have formed another cluster", invariant.OneCluster, func(h *invariant.History) {
			h.Samples = append(h.Samples, sample(6, "d", 2, 4))
		}, "cluster d had 2 members"},
		{"a slow winner gives way", invariant.OneCluster, func(h *invariant.History) {
			h.Samples = append(h.Samples, sample(6, "d", 2))
		}, ""},
		{"a slow winner does not", invariant.OneCluster, func(h *invariant.History) {
			h.Samples = append(h.Samples, sample(70, "d", 2))
		}, "cluster d still answered at 03:01:10"},

		{"a member of a node that stays is removed", invariant.LiveMembersStay, func(h *invariant.History) {
			h.Samples = append(h.Samples, sample(95, "c", 1, 4))
		}, id(2) + " stayed until the end"},
		{"it is removed before its node leaves", invariant.LiveMembersStay, func(h *invariant.History) {
			h.Instances[2].Leaving = at(35)
		}, id(3) + " stayed until 03:00:35"},
		{"a node that does not answer is removed", invariant.LiveMembersStay, func(h *invariant.History) {
			h.Instances[2].Leaving = time.Time{}
			h.Outages = []invariant.Outage{{Instance: id(3), Interval: between(20, 60)}}
		}, id(3) + " stayed until the end"},
		{"an older reading arrives late", invariant.LiveMembersStay, func(h *invariant.History) {
			late := sample(28, "c", 1, 2, 3)
			late.To = at(33)
			h.Samples = append(h.Samples, late)
		}, ""},

		{"a read misses the last write", invariant.NoWriteLost, func(h *invariant.History) {
			h.Operations[41].Value = "38"
		}, "on key k have no order"},
		{"a write that nobody knows of is read", invariant.NoWriteLost, func(h *invariant.History) {
			h.Operations[40].Known = false
		}, ""},
		{"a write that nobody knows of is not read", invariant.NoWriteLost, func(h *invariant.History) {
			h.Operations[40].Known, h.Operations[41].Value = false, "38"
		}, ""},
		{"such a write comes and goes", invariant.NoWriteLost, func(h *invariant.History) {
			h.Operations[40].Known = false
			h.Operations[42].Known, h.Operations[42].Write = false, false
			h.Operations[43].Value = "38"
		}, "on key k have no order"},

		{"nobody can write for half a minute", invariant.QuorumKept, func(h *invariant.History) {
			forget(h, 50, 80)
		}, "although a majority was up from"},
		{"nobody can write while the majority is away", invariant.QuorumKept, func(h *invariant.History) {
			forget(h, 50, 80)
			h.Outages = []invariant.Outage{{Instance: id(1), Interval: between(50, 80)}, {Instance: id(4), Interval: between(48, 79)}}
		}, ""},
		{"nobody can write while one is away", invariant.QuorumKept, func(h *invariant.History) {
			forget(h, 50, 80)
			h.Outages = []invariant.Outage{{Instance: id(1), Interval: between(50, 80)}}
		}, "although a majority was up from"},
		{"nobody can write at the end", invariant.QuorumKept, func(h *invariant.History) {
			forget(h, 70, 101)
		}, "although a majority was up from"},

		{"the dead member is there in the end", invariant.DeadMembersGone, func(h *invariant.History) {
			h.Samples[5] = sample(90, "c", 1, 2, 3, 4)
		}, "but " + id(3) + " left at 03:00:30"},
		{"so is one that nobody knows", invariant.DeadMembersGone, func(h *invariant.History) {
			h.Samples[5] = sample(90, "c", 1, 2, 4, 9)
		}, "belongs to no instance"},
		{"a node has no member", invariant.DeadMembersGone, func(h *invariant.History) {
			h.Samples[5] = sample(90, "c", 1, 2)
		}, id(4) + " has no voting member"},
		{"a node learns for ever", invariant.DeadMembersGone, func(h *invariant.History) {
			h.Samples[5].Members[2].Learner = true
		}, "does not vote"},

		{"an instance waits for ever", invariant.HooksCompleted, func(h *invariant.History) {
			h.Actions[0].To, h.Actions[0].Completed = time.Time{}, false
		}, "was never completed"},
		{"the heartbeat runs out", invariant.HooksCompleted, func(h *invariant.History) {
			h.Actions[0].Completed = false
		}, "ran out at 03:00:32"},
		{"it does while the function cannot work", invariant.HooksCompleted, func(h *invariant.History) {
			h.Actions[0].Completed = false
			h.Hindrances = []invariant.Interval{between(31, 31.5)}
		}, ""},
		{"it does after the function could not work", invariant.HooksCompleted, func(h *invariant.History) {
			h.Actions[0].Completed = false
			h.Hindrances = []invariant.Interval{between(20, 29)}
		}, "ran out at 03:00:32"},

		{"a node has not mounted", invariant.NodesMounted, func(h *invariant.History) {
			h.Instances[3].Mounted = false
		}, id(4) + ", launched at 03:00:00.000, is there and has not mounted"},
		{"a node is missing", invariant.NodesMounted, func(h *invariant.History) {
			h.Wanted = 4
		}, "3 nodes are mounted, not 4"},
	} {
		tested[c.validator.Name] = true
		t.Run(c.validator.Name+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			h := good()
			c.spoil(h)
			err := c.validator.Apply(h)
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v, want no complaint", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.validator.Holds) {
				t.Errorf("got %v, want the validator's sentence and %q", err, c.want)
			}
			if errors.Is(err, invariant.ErrTooLittle) {
				t.Errorf("got %v, want a judgement", err)
			}
		})
	}
	for _, v := range invariant.All() {
		if !tested[v.Name] {
			t.Errorf("nothing proves that %s can fail", v.Name)
		}
	}
}

// forget makes the writes of a time fail.
func forget(h *invariant.History, from, to float64) {
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Write && o.From.After(at(from)) && o.From.Before(at(to)) {
			o.Known = false
		}
	}
}

// Without anything to look at, each validator refuses to judge.
func TestValidatorsRefuseToGuess(t *testing.T) {
	t.Parallel()
	for _, v := range invariant.All() {
		if err := v.Apply(&invariant.History{}); !errors.Is(err, invariant.ErrTooLittle) {
			t.Errorf("%s: an empty history gets %v, want that too little has happened", v.Name, err)
		}
	}
	for name, take := range map[string]func(*invariant.History){
		invariant.OneCluster.Name:      func(h *invariant.History) { h.Seeds = h.Seeds[:1] },
		invariant.LiveMembersStay.Name: func(h *invariant.History) { h.Samples = h.Samples[:3] },
		invariant.NoWriteLost.Name:     func(h *invariant.History) { h.Operations = h.Operations[:15] },
		invariant.QuorumKept.Name:      func(h *invariant.History) { h.Samples = nil },
		invariant.DeadMembersGone.Name: func(h *invariant.History) { h.Samples = h.Samples[:5] },
		invariant.HooksCompleted.Name:  func(h *invariant.History) { h.Actions = nil },
		invariant.NodesMounted.Name:    func(h *invariant.History) { h.Wanted = 0 },
	} {
		h := good()
		take(h)
		for _, v := range invariant.All() {
			if err := v.Apply(h); v.Name == name && !errors.Is(err, invariant.ErrTooLittle) {
				t.Errorf("%s: got %v, want that too little has happened", name, err)
			}
		}
	}
}
