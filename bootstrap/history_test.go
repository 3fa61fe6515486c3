package bootstrap

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

var histories = flag.Int("histories", 100, "how many histories TestHistories plays; each has its number as seed")

// TestHistories lets nodes boot, crash, pause, lose answers, reboot, leave and
// come, on a network that breaks, and asserts what may never happen: daemons on
// two clusters for one volume, and the removal of a live member. In the end,
// with the trouble over, new nodes must get in if the cluster has its quorum.
func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*histories) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { history(t, seed) })
		})
	}
}

func history(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	w.trouble = float64(w.pick(4)) / 8
	w.reform, w.replace, w.strict = w.pick(4) == 0, w.pick(2) == 0, w.pick(2) == 0
	for range 1 + w.pick(4) {
		w.launch().boot()
	}
	for range 10 + w.pick(30) {
		pass(time.Duration(w.pick(120)) * time.Second)
		alive := w.alive()
		if len(alive) == 0 {
			w.launch().boot()
			continue
		}
		m := alive[w.pick(len(alive))]
		switch w.pick(12) {
		case 0: // scale out
			if len(alive) < 7 {
				w.launch().boot()
			}
		case 1:
			w.event("hard kill", m)
			w.crash(m, true, true)
		case 2:
			w.event("reboot", m)
			w.crash(m, true, false)
			m.boot()
		case 3:
			w.event("the bootstrap process dies and is started again", m)
			w.crash(m, false, false)
			m.boot()
		case 4:
			w.event("one link is cut", m)
			w.setLink(m, alive[w.pick(len(alive))], true)
		case 5:
			w.event("the bootstrap process dies for good", m)
			w.crash(m, false, false)
		case 6: // somebody stops an instance, or starts one
			if stopped := w.stopped(); len(stopped) > 0 {
				m = stopped[w.pick(len(stopped))]
				w.event("the instance is started", m)
				w.start(m)
			} else {
				w.event("the instance is stopped", m)
				w.stop(m)
			}
		case 7:
			if w.mayLeave(m) {
				w.event("a graceful leave", m)
				w.leave(m)
			}
		case 8:
			w.event("a shell node joins through it", m)
			w.shellJoins(m)
		default:
			w.setLink(m, alive[w.pick(len(alive))], false)
		}
	}
	w.judge(t)

	// The trouble is over: whoever has not got in yet does, if anybody can, or is
	// replaced, and one more node clears away the dead.
	w.mu.Lock()
	w.trouble, w.cut, w.replace = 0, map[[2]string]bool{}, true
	w.mu.Unlock()
	for _, m := range w.alive() {
		w.crash(m, false, false)
		m.boot()
	}
	for _, m := range w.stopped() {
		w.start(m)
	}
	pass(time.Hour)
	w.launch().boot()
	pass(time.Hour)
	w.judge(t)
	w.judgeAdmission(t)
	w.end(t)
}

func (w *world) judge(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) > 0 {
		t.Error(strings.Join(w.problems, "\n"))
	}
}

// judgeAdmission asserts that a cluster with a quorum has taken everybody in,
// and let go of everybody who is gone.
func (w *world) judgeAdmission(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.item == nil || w.item.State != membership.StateFormed {
		// Recovery does not pass by what a node may still hold.
		if w.reform && slices.ContainsFunc(w.machines, func(m *machine) bool { return m.listed && m.running }) {
			return
		}
		if c := w.clusters[w.recorded]; w.shell && c != nil {
			w.excuse(t, c)
			return
		}
		t.Errorf("after two quiet hours the seed item is %+v, want it formed", w.item)
		return
	}
	c := w.clusters[w.item.ClusterID]
	w.publish(c)
	if !slices.ContainsFunc(w.machines, func(m *machine) bool { return m.listed && m.cluster == c.id && m.serves() && w.quorate(m) }) {
		w.excuse(t, c)
		return
	}
	var got, want []string
	for _, m := range w.machines {
		refused := w.reform && m.running && m.cluster != c.id // with the data from before the recovery
		if m.listed && !refused {
			want = append(want, membership.NodeID("demo", m.ID))
		}
	}
	for _, member := range c.members {
		if !member.Learner {
			got = append(got, member.Name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("voting members are %v, want %v", got, want)
	}
}

// excuse asserts that a cluster that does not serve has lost its quorum to
// terminated instances, which nothing here could have helped.
func (w *world) excuse(t *testing.T, c *cluster) {
	t.Helper()
	voters, lost := 0, 0
	for _, member := range c.members {
		if member.Learner {
			continue
		}
		voters++
		if m := w.holder(c, member.ID); m == nil || !m.listed {
			lost++
		}
	}
	if lost < voters-voters/2 {
		t.Errorf("cluster %s does not serve, although only %d of its %d voters were terminated: %v", c.id, lost, voters, c.members)
	}
}
