package bootstrap

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// story plays what chance seldom meets in the world of the histories.
func story(t *testing.T, tell func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		tell(t, w)
		w.judge(t)
		w.end(t)
	})
}

// TestStuckJoiner: a bootstrap was killed between add and start, on a machine
// that lives on. Others wait behind its member, but not for ever.
func TestStuckJoiner(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, dead, c := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2"), w.launchAt("10.0.0.3")
		a.boot()
		pass(time.Minute)
		w.addLearner(a.cluster, dead.IP)
		c.boot()
		pass(membership.StuckAge + time.Minute)
		w.mu.Lock()
		if member := w.clusters[a.cluster].member(c.member); c.cluster != a.cluster || member == nil || member.Learner {
			t.Errorf("%s still waits: its member is %v", c.ID, member)
		}
		w.mu.Unlock()
		dead.boot()
		pass(time.Minute)
		w.judgeAdmission(t)
	})
}

// TestLearnerThatGetsOnInTheLastMoment: a node waits behind a learner for so long
// that it is about to remove it, and right then that node's bootstrap is started
// again. Whoever writes its word down first has it; a member that votes is never
// removed.
func TestLearnerThatGetsOnInTheLastMoment(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"settle", "remove"} {
		t.Run("before "+last, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				a, slow, c := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2"), w.launchAt("10.0.0.3")
				a.boot()
				pass(time.Minute)
				id := w.addLearner(a.cluster, slow.IP)
				w.mu.Lock()
				slow.boots(a.cluster, id)
				slow.ready = time.Now()
				resumed := false
				w.hook = func(m *machine, call string) {
					w.mu.Lock()
					now := m == c && call == last && !resumed
					resumed = resumed || now
					w.mu.Unlock()
					if now {
						slow.boot()
						pass(2 * time.Second)
					}
				}
				w.mu.Unlock()
				c.boot()
				pass(membership.StuckAge + 2*time.Minute)
				w.mu.Lock()
				stayed := w.clusters[a.cluster].member(id) != nil
				w.mu.Unlock()
				if want := last == "settle"; !resumed || stayed != want {
					t.Errorf("resumed %t, and the member stayed: %t, want %t", resumed, stayed, want)
				}
				w.judgeAdmission(t)
			})
		})
	}
}

// TestLearnerThatMeantToVote: a bootstrap was killed for good between writing
// down that its learner votes and promoting it. Nobody may remove the learner,
// so who waits behind it promotes it in its stead, once its etcd runs.
func TestLearnerThatMeantToVote(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, dead, c := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2"), w.launchAt("10.0.0.3")
		a.boot()
		pass(time.Minute)
		id := w.addLearner(a.cluster, dead.IP)
		w.mu.Lock()
		dead.boots(a.cluster, id)
		dead.running = false
		w.clusters[a.cluster].fates[id] = membership.FateVote
		w.mu.Unlock()
		c.boot()
		pass(membership.StuckAge + 2*time.Minute)
		w.mu.Lock()
		member := w.clusters[a.cluster].member(id)
		if member == nil || !member.Learner {
			t.Errorf("the learner is %v, want it left as it is while its etcd is down", member)
		}
		dead.starts()
		w.mu.Unlock()
		pass(2 * time.Minute)
		w.judgeAdmission(t)
	})
}

// TestUnlistedMember: EC2 does not list a node for an hour, and it cannot be
// reached by the one that joins, which has all the time to bury it, as it waits
// behind another one. The node's lease in EtcFS says that it is there.
func TestUnlistedMember(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
		a.boot()
		b.boot()
		pass(2 * time.Minute)
		c, dead := w.launchAt("10.0.0.3"), w.launchAt("10.0.0.4")
		w.addLearner(a.cluster, dead.IP)
		w.setLink(b, c, true)
		w.mu.Lock()
		b.visible = time.Now().Add(time.Hour)
		w.mu.Unlock()
		c.boot()
		pass(2 * time.Hour)
		dead.boot()
		pass(time.Minute)
		w.judgeAdmission(t)
	})
}

// TestReturnDuringReform: the user accepts a loss, a node has decided to take the
// item of the lost cluster over, and before its write arrives the node with the
// data comes back, where the other cannot see it. Only one of the two may start
// a daemon.
func TestReturnDuringReform(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		w.reform = true
		a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
		a.boot()
		pass(time.Minute)
		formed := w.etcdOf(a)
		w.stop(a)
		pass(membership.TakeoverAge)
		w.mu.Lock()
		late := false
		w.hook = func(m *machine, call string) {
			w.mu.Lock()
			now := m == b && call == "write the item" && !late
			late = late || now
			w.mu.Unlock()
			if now {
				w.setLink(a, b, true)
				w.start(a)
				pass(time.Minute)
			}
		}
		w.mu.Unlock()
		b.boot()
		pass(10 * time.Minute)
		w.setLink(a, b, false)
		pass(10 * time.Minute)
		w.mu.Lock()
		if !late || len(w.daemons) != 1 || !w.daemons[formed] {
			t.Errorf("the write was late: %t; daemons were started on %v, want them on %s only", late, w.daemons, formed)
		}
		w.mu.Unlock()
		w.judgeAdmission(t)
	})
}

// TestUnnamedLearnerOfAnotherDisk: a node died before its learner had a name,
// and another one has its address. Its member's log is lost.
func TestUnnamedLearnerOfAnotherDisk(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a := w.launchAt("10.0.0.1")
		a.boot()
		pass(time.Minute)
		id := w.addLearner(a.cluster, "10.0.0.2")
		w.clusters[a.cluster].logs[id] = &machine{Instance: membership.Instance{ID: "i-0000000000000dead"}}
		w.launchAt("10.0.0.2").boot()
		pass(time.Minute)
		w.judgeAdmission(t)
	})
}

// TestLearnerThatIsDownIsNotPromoted: etcd would promote it, as it had caught
// up, and a single voter would lose its quorum to it.
func TestLearnerThatIsDownIsNotPromoted(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
		a.boot()
		pass(time.Minute)
		id := w.addLearner(a.cluster, b.IP)
		w.mu.Lock()
		b.boots(a.cluster, id)
		b.running, b.broken = false, true
		w.mu.Unlock()
		b.boot()
		pass(time.Minute)
	})
}

// TestEtcdThatServesIsNotThrownAway: a seed whose claim was taken over while its
// etcd started has it recorded, if nobody else was faster. Another node that
// has seen it healthy for long may be about to do the same.
func TestEtcdThatServesIsNotThrownAway(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
		a.boot()
		for w.etcdOf(a) == "" {
			pass(10 * time.Millisecond)
		}
		w.mu.Lock()
		formed := a.cluster
		w.item = &membership.Item{ClusterName: "demo", SeedIP: b.IP, InstanceID: b.ID, CreatedAt: time.Now().Truncate(time.Second), State: membership.StateForming}
		w.mu.Unlock()
		pass(time.Minute)
		b.boot()
		pass(time.Minute)
		if w.item.ClusterID != formed {
			t.Errorf("seed item is %+v, want it formed with cluster %s", w.item, formed)
		}
		w.judgeAdmission(t)
	})
}

// TestAddressesThatAreNobodys: no other instance is behind this node's own
// address, nor behind none, which a dialer takes for this machine.
func TestAddressesThatAreNobodys(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a := w.launchAt("10.0.0.1")
		a.boot()
		pass(time.Minute)
		w.launchAt("") // pending
		gone := w.launchAt(a.IP)
		w.machines = append([]*machine{gone}, w.machines[:2]...) // an address has the latest
		b := &Bootstrap{
			Settings: settings.Settings{ClusterName: "demo"}, Node: Node{InstanceID: a.ID, PrivateIP: a.IP},
			Seed: seedOf{a}, Group: groupOf{a}, Etcd: etcdOf{a},
		}
		view, err := b.look(t.Context())
		if err != nil || len(view.Peers) != 2 {
			t.Fatalf("got %d peers, %v, want 2", len(view.Peers), err)
		}
		for _, peer := range view.Peers {
			if peer.Health != membership.Silent {
				t.Errorf("%s at %q is %s, want it silent", peer.ID, peer.IP, peer.Health)
			}
		}
	})
}

// TestPatience: what was waited for one thing does not count for another.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		forming := &membership.Item{State: membership.StateForming}
		formed := &membership.Item{State: membership.StateFormed, ClusterID: "c1"}
		healthy := []membership.Peer{{Health: membership.Healthy, ClusterID: "c1"}}
		other := []membership.Peer{{Health: membership.Healthy, ClusterID: "c2"}}
		var seen observer
		for i, tt := range []struct {
			item  *membership.Item
			peers []membership.Peer
			want  time.Duration // a minute after the look before it
		}{
			{nil, nil, 0},
			{nil, nil, time.Minute},
			{forming, nil, 0},
			{forming, healthy, time.Minute},
			{formed, nil, 0},
			{formed, other, time.Minute},
			{formed, healthy, 0},
			{formed, nil, time.Minute},
			{formed, nil, 2 * time.Minute},
		} {
			view := membership.View{Item: tt.item, Peers: tt.peers}
			seen.note(&view)
			if view.Waited != tt.want {
				t.Errorf("look %d: waited %s, want %s", i, view.Waited, tt.want)
			}
			pass(time.Minute)
		}
	})
}
