package bootstrap

import (
	"fmt"
	"os"
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

// TestSixteenReturnBesideASilentOne: a whole cluster boots again, beside a machine
// at which nothing even refuses a connection, so that every look takes seconds. All
// date the item, one after another.
func TestSixteenReturnBesideASilentOne(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		w.launchAt("10.0.1.99")
		var nodes []*machine
		for i := range 16 {
			m := w.launchAt(fmt.Sprintf("10.0.1.%d", i+1))
			m.boot()
			nodes = append(nodes, m)
		}
		pass(2 * time.Minute)
		for _, m := range nodes {
			w.crash(m, true, false)
		}
		w.silence = 4 * time.Second
		for _, m := range nodes {
			m.boot()
		}
		pass(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range nodes {
			if m.mounted == "" {
				t.Errorf("%s is not back after a minute", m.ID)
			}
		}
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
// item of the lost cluster over, as EC2 does not list the one with the data, and
// before its write arrives that comes back, where the other cannot see it. Only
// one of the two may start a daemon, also when the bootstrap that comes back is
// killed before it has dated the item, and started again.
func TestReturnDuringReform(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"undisturbed": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				w.reform = true
				a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
				a.boot()
				pass(time.Minute)
				formed := w.etcdOf(a)
				w.crash(a, true, false)
				w.unlist(a, membership.TakeoverAge+time.Minute)
				pass(membership.TakeoverAge)
				w.mu.Lock()
				late, kill := false, killed
				w.hook = func(m *machine, call string) {
					w.mu.Lock()
					now := m == b && call == "write the item" && !late
					late = late || now
					die := m == a && call == "write the item" && late && kill
					kill = kill && !die
					w.mu.Unlock()
					if now {
						w.setLink(a, b, true)
						a.boot()
						pass(2 * time.Minute)
					}
					if die {
						go func() {
							w.crash(a, false, false)
							pass(15 * time.Second)
							a.boot()
						}()
						pass(time.Second)
					}
				}
				w.mu.Unlock()
				b.boot()
				pass(10 * time.Minute)
				w.setLink(a, b, false)
				pass(10 * time.Minute)
				w.mu.Lock()
				if !late || kill || len(w.daemons) != 1 || !w.daemons[formed] {
					t.Errorf("the write was late: %t, still to be killed: %t; daemons were started on %v, want them on %s only", late, kill, w.daemons, formed)
				}
				w.mu.Unlock()
				w.judgeAdmission(t)
			})
		})
	}
}

// TestYoungMemberAfterReform: recovery: reform was left in the settings. The seed
// has gone, and the one member that is left has joined only just, so it is too
// young to be told from a node that boots for the first time. Whoever cannot see
// it does not form beside it.
func TestYoungMemberAfterReform(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(w *world, member, other *machine){
		"the link is cut":    func(w *world, member, other *machine) { w.setLink(member, other, true) },
		"the member reboots": func(w *world, member, _ *machine) { w.crash(member, true, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				w.reform = true
				seed := w.launchAt("10.0.0.1")
				seed.boot()
				pass(membership.TakeoverAge + time.Minute)
				member := w.launchAt("10.0.0.2")
				member.boot()
				pass(time.Minute)
				w.leave(seed)
				other := w.launchAt("10.0.0.3")
				disturb(w, member, other)
				other.boot()
				pass(time.Minute)
				if disturbed := !member.running; disturbed {
					member.boot()
				}
				pass(10 * time.Minute)
				w.setLink(member, other, false)
				pass(10 * time.Minute)
				w.mu.Lock()
				if len(w.daemons) != 1 {
					t.Errorf("daemons were started on %v: the files are lost", w.daemons)
				}
				w.mu.Unlock()
				w.judgeAdmission(t)
			})
		})
	}
}

// recovered has the user accept that a cluster is lost, and another one formed. But
// the one node of the first is there again, with its data, and down.
func (w *world) recovered(t *testing.T) (first, second *machine) {
	t.Helper()
	w.reform = true
	first, second = w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
	first.boot()
	pass(time.Minute)
	w.crash(first, true, false)
	w.unlist(first, time.Hour)
	pass(membership.TakeoverAge)
	second.boot()
	pass(5 * time.Minute)
	if old, formed := w.etcdOf(first), w.etcdOf(second); formed == "" || formed == old {
		t.Fatalf("the second node is in cluster %q, want it to have formed one of its own", formed)
	}
	w.unlist(first, 0)
	return first, second
}

// TestDataOfAnotherClusterIsKept: a node with the data of another cluster than the
// recorded one refuses, so that the user may still choose it, also while its
// etcd is not up yet and the others are asked.
func TestDataOfAnotherClusterIsKept(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, _ := w.recovered(t)
		old := w.etcdOf(a)
		w.mu.Lock()
		w.slow = time.Minute
		w.mu.Unlock()
		a.boot()
		pass(5 * time.Minute)
		if _, err := os.Stat(a.log()); err != nil || w.etcdOf(a) != old {
			t.Errorf("%s is in %s, %v, want it to have kept the data of cluster %s", a.ID, w.etcdOf(a), err, old)
		}
	})
}

// TestFormedWithoutItem: a node was cut off before its new etcd was recorded,
// another one took over and its cluster was, and then the table is emptied. The
// first one's etcd is not recorded in its place, be it one that serves or one that
// never will, nor may a third node take it for the cluster.
func TestFormedWithoutItem(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"its etcd serves": false, "its etcd never will": true} {
		for other, stopped := range map[string]bool{"the other serves": false, "the other is stopped": true} {
			t.Run(name+", "+other, func(t *testing.T) {
				t.Parallel()
				story(t, func(t *testing.T, w *world) {
					a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
					a.boot()
					for w.etcdOf(a) == "" {
						pass(10 * time.Millisecond)
					}
					w.crash(a, true, false)
					pass(membership.TakeoverAge + time.Minute)
					b.boot()
					pass(time.Minute)
					formed := w.etcdOf(b)
					if stopped {
						w.stop(b)
					}
					w.mu.Lock()
					w.item, a.broken = nil, broken
					w.mu.Unlock()
					a.boot()
					pass(time.Minute)
					w.launchAt("10.0.0.3").boot()
					pass(30 * time.Minute)
					if stopped {
						w.start(b)
						pass(30 * time.Minute)
					}
					w.mu.Lock()
					if len(w.daemons) != 1 || !w.daemons[formed] {
						t.Errorf("daemons were started on %v, want them on %s only", w.daemons, formed)
					}
					w.mu.Unlock()
					w.judgeAdmission(t)
				})
			})
		}
	}
}

// TestLostSeedIsNotJoined: the bootstrap of a seed was killed before its cluster was
// recorded, on a machine that was cut off for so long that another node took over.
// With the item that told so gone, its etcd still serves, and the other node is
// stopped, or out of reach: nobody takes the seed's for the cluster.
func TestLostSeedIsNotJoined(t *testing.T) {
	t.Parallel()
	for name, shell := range map[string]bool{"the table was emptied": false, "a shell node has the item": true} {
		for other, stopped := range map[string]bool{"the other is out of reach": false, "the other is stopped": true} {
			t.Run(name+", "+other, func(t *testing.T) {
				t.Parallel()
				story(t, func(t *testing.T, w *world) {
					a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
					a.boot()
					for w.etcdOf(a) == "" {
						pass(10 * time.Millisecond)
					}
					w.crash(a, false, false)
					w.setLink(a, b, true)
					pass(membership.TakeoverAge + time.Minute)
					b.boot()
					pass(time.Minute)
					formed, c := w.etcdOf(b), w.launchAt("10.0.0.3")
					w.shellJoins(b)
					if stopped {
						w.stop(b)
					}
					w.mu.Lock()
					if w.shell = shell; !shell {
						w.item = nil
					}
					w.mu.Unlock()
					w.setLink(b, c, !stopped)
					c.boot()
					pass(15 * time.Minute)
					if stopped {
						w.start(b)
					}
					w.setLink(b, c, false)
					w.setLink(a, b, false)
					w.crash(a, false, false)
					a.boot()
					pass(time.Hour)
					w.mu.Lock()
					if len(w.daemons) != 1 || !w.daemons[formed] {
						t.Errorf("daemons were started on %v, want them on %s only", w.daemons, formed)
					}
					w.mu.Unlock()
				})
			})
		}
	}
}

// TestShellJoinsWhileForming: a node of the shell bootstrap points the item at
// whom it joins through: at a seed that has not recorded its own cluster yet, or at
// a member, where the seed's bootstrap was killed and another node has recorded it.
// Neither is a takeover, and the seed's etcd is kept.
func TestShellJoinsWhileForming(t *testing.T) {
	t.Parallel()
	for name, joined := range map[string]bool{"through the seed": false, "through a member": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				a, b := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
				a.boot()
				for w.etcdOf(a) == "" {
					pass(10 * time.Millisecond)
				}
				formed := w.etcdOf(a)
				if joined {
					w.crash(a, false, false)
					b.boot()
					pass(5 * time.Minute)
					w.shellJoins(b)
					a.boot()
				} else {
					w.mu.Lock()
					w.item, w.shell = &membership.Item{ClusterName: "demo", SeedIP: a.IP, CreatedAt: time.Now().Truncate(time.Second)}, true
					w.mu.Unlock()
					pass(time.Minute)
					b.boot()
				}
				pass(5 * time.Minute)
				w.mu.Lock()
				if a.mounted != formed || b.mounted != formed {
					t.Errorf("daemons were started on %q and %q, want them on %s", a.mounted, b.mounted, formed)
				}
				w.mu.Unlock()
				w.judgeAdmission(t)
			})
		})
	}
}

// TestRefusedBesideAShellItem: the item named another cluster than that of the data
// on a node, which refuses. Then a shell node joins the recorded one, and its item
// does not tell any more. Still the node does not have its own recorded, also where
// it sees nobody else.
func TestRefusedBesideAShellItem(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, b := w.recovered(t)
		a.boot()
		pass(5 * time.Minute)
		w.shellJoins(b)
		w.setLink(a, b, true)
		pass(time.Hour)
		w.mu.Lock()
		if a.mounted != "" || b.mounted == "" {
			t.Errorf("daemons were started on %q and %q, want only the other on what was recorded last", a.mounted, b.mounted)
		}
		// The user removes the item and the other nodes.
		w.item, w.daemons = nil, map[string]bool{}
		w.mu.Unlock()
		w.crash(b, true, true)
		pass(30 * time.Minute)
		w.mu.Lock()
		if a.mounted == "" {
			t.Error("the data that the user has chosen is not used")
		}
		w.mu.Unlock()
	})
}

// TestShellTakesOverWhileMemberReboots: the only member reboots, and a node of
// the shell bootstrap finds nobody and takes the old item over. It starts its
// etcd and its daemons a little later, without another write.
func TestShellTakesOverWhileMemberReboots(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, shell := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2")
		a.boot()
		pass(membership.TakeoverAge + time.Minute)
		w.crash(a, true, false)
		w.mu.Lock()
		w.item = &membership.Item{ClusterName: "demo", SeedIP: shell.IP, CreatedAt: time.Now().Truncate(time.Second)}
		w.mu.Unlock()
		a.boot()
		pass(5 * time.Second)
		w.mu.Lock()
		w.clusters["shell"] = newCluster("shell", shell.IP)
		shell.boots("shell", 1)
		shell.mounted = "shell"
		w.mu.Unlock()
		pass(5 * time.Minute)
		w.mu.Lock()
		if a.mounted != "" {
			t.Errorf("%s has a daemon on %s, and the shell's node on %s; the item is %+v", a.ID, a.mounted, shell.mounted, w.item)
		}
		w.mu.Unlock()
	})
}

// TestStoppedMember: the only member is stopped where nothing but its disk proves
// that the cluster has formed. Nobody forms another one, and the member is back
// once it is started.
func TestStoppedMember(t *testing.T) {
	t.Parallel()
	for name, item := range map[string]*membership.Item{
		"the table was emptied":         nil,
		"a shell node has the item":     {ClusterName: "demo", SeedIP: "10.0.0.1"},
		"the user accepts a loss":       {ClusterName: "demo", SeedIP: "10.0.0.1", State: membership.StateFormed, ClusterID: "c0"},
		"the item is another volume's ": {ClusterName: "demo", SeedIP: "10.0.0.1", State: membership.StateUnknown, VolumeID: "vol-0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				a := w.launchAt("10.0.0.1")
				a.boot()
				pass(time.Minute)
				formed := w.etcdOf(a)
				w.stop(a)
				w.mu.Lock()
				if item != nil {
					item.CreatedAt = time.Now().Truncate(time.Second)
					w.reform = item.State == membership.StateFormed
				}
				if w.item = item; w.reform {
					w.item.ClusterID = formed
				}
				w.mu.Unlock()
				b := w.launchAt("10.0.0.2")
				b.boot()
				pass(25 * time.Minute)
				w.start(a)
				pass(time.Hour)
				w.mu.Lock()
				if len(w.daemons) != 1 || !w.daemons[formed] {
					t.Errorf("daemons were started on %v, want them on %s only", w.daemons, formed)
				}
				w.mu.Unlock()
				w.judgeAdmission(t)
			})
		})
	}
}

// TestAddressOfADeadMemberIsAStrangers: a member's instance is gone, and its
// address belongs to a machine of somebody else. What answers there proves
// nothing against EC2's word, nor does the etcd of another cluster.
func TestAddressOfADeadMemberIsAStrangers(t *testing.T) {
	t.Parallel()
	for name, forgotten := range map[string]bool{"EC2 says so": false, "EC2 has forgotten it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				a, b, dead := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2"), w.launchAt("10.0.0.3")
				a.boot()
				b.boot()
				dead.boot()
				pass(3 * time.Minute)
				w.crash(dead, true, true)
				stranger := w.launchAt("10.0.0.3")
				w.mu.Lock()
				dead.forgotten = forgotten
				stranger.listed, stranger.forgotten = false, true
				w.clusters["other"] = newCluster("other", stranger.IP)
				stranger.boots("other", 1)
				if !forgotten {
					stranger.ready = time.Now().Add(time.Hour) // its etcd answers, and serves no cluster
				}
				w.mu.Unlock()
				c := w.launchAt("10.0.0.4")
				c.boot()
				pass(10 * time.Minute)
				w.judgeAdmission(t)
			})
		})
	}
}

// TestForgottenMemberIsRemoved: EC2 has forgotten that a member's instance was
// terminated, and etcd would take a new one in all the same, as most are up. The
// dead one goes first: nobody looks again before the next node joins.
func TestForgottenMemberIsRemoved(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		for _, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"} {
			w.launchAt(ip).boot()
		}
		pass(3 * time.Minute)
		dead := w.alive()[0]
		w.crash(dead, true, true)
		w.mu.Lock()
		dead.forgotten = true
		w.mu.Unlock()
		w.launchAt("10.0.0.6").boot()
		pass(membership.AbsentAge + time.Minute)
		w.judgeAdmission(t)
	})
}

// TestAbsenceIsWatched: two lists, a quarter of an hour apart, both miss a member
// by chance. That is no absence of a quarter of an hour.
func TestAbsenceIsWatched(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, x, joiner := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2"), w.launchAt("10.0.0.3")
		a.boot()
		x.boot()
		pass(2 * time.Minute)
		b := &Bootstrap{
			Settings: settings.Settings{ClusterName: "demo"}, Node: Node{InstanceID: joiner.ID, PrivateIP: joiner.IP}, Logger: w.logger,
			Group: groupOf{joiner}, Etcd: etcdOf{joiner}, Registry: registryOf{joiner},
		}
		endpoints := []string{"http://10.0.0.1:2379"}
		absent := func() time.Duration {
			w.unlist(x, 5*time.Second)
			members, err := b.Etcd.Members(t.Context(), endpoints)
			if err != nil {
				t.Fatal(err)
			}
			known, err := b.evidence(t.Context(), endpoints, members)
			if err != nil || len(known.Absent) != 1 {
				t.Fatalf("absent are %v, %v, want one", known.Absent, err)
			}
			return known.Absent[x.member]
		}
		absent()
		pass(15 * time.Minute)
		if got := absent(); got != 0 {
			t.Errorf("absent for %s, want it to begin anew", got)
		}
		pass(lookPause - time.Second)
		if got := absent(); got < lookPause-time.Second {
			t.Errorf("absent for %s, want it to go on", got)
		}
	})
}

// TestStoppedMemberIsNotBuried: a member's instance is stopped, and may be started
// in the very moment in which a joining node would remove it.
func TestStoppedMemberIsNotBuried(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		a, b, c := w.launchAt("10.0.0.1"), w.launchAt("10.0.0.2"), w.launchAt("10.0.0.3")
		a.boot()
		b.boot()
		c.boot()
		pass(3 * time.Minute)
		before := b.member
		w.stop(b)
		pass(10 * time.Minute)
		w.launchAt("10.0.0.4").boot()
		pass(10 * time.Minute)
		w.start(b)
		pass(10 * time.Minute)
		if b.member != before {
			t.Errorf("%s is member %x, want it to have stayed %x", b.ID, b.member, before)
		}
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
