package join_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// bootAll boots nodes at the same time.
func bootAll(t *testing.T, nodes ...*node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	boots, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		boots.Go(func() error { return n.boot(ctx) })
	}
	if err := boots.Wait(); err != nil {
		t.Fatal(err)
	}
}

// voters asks a node for the voting members, once each has published its name:
// etcd does that after it has begun to serve.
func voters(t *testing.T, through *node) map[string]uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		members, err := etcd.Cluster{}.Members(ctx, []string{etcd.ClientURL(through.IP)})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]uint64{}
		for _, member := range members {
			if member.Learner {
				t.Errorf("member %s does not vote", member)
			}
			if member.Started() {
				names[member.Name] = member.ID
			}
		}
		if len(names) == len(members) {
			return names
		}
	}
}

func wantVoters(t *testing.T, through *node, nodes ...*node) map[string]uint64 {
	t.Helper()
	got := voters(t, through)
	want := map[string]uint64{}
	for _, n := range nodes {
		name := membership.NodeID("demo", n.ID)
		want[name] = got[name]
		if got[name] == 0 {
			t.Errorf("%s is no voting member of %v", name, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("voting members are %v, want %v", got, want)
	}
	return got
}

// awaitHealth waits until the cluster serves through this node.
func (n *node) awaitHealth(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for (etcd.Cluster{}).Probe(ctx, n.IP).Health != membership.Healthy {
		if ctx.Err() != nil {
			t.Fatalf("%s is not healthy", n.ID)
		}
	}
}

// writer writes to the cluster without a pause and remembers how it went.
type writer struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	written int
	failed  []error
	longest time.Duration
}

func (n *node) write(t *testing.T) *writer {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.ClientURL(n.IP)}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w := &writer{stop: stop}
	w.done.Go(func() {
		defer func() { _ = client.Close() }()
		for ctx.Err() == nil {
			start := time.Now()
			// Detached from the stop, so that the last write ends as the others do.
			put, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			_, err := client.Put(put, "written", fmt.Sprint(w.written))
			cancel()
			w.written++
			w.longest = max(w.longest, time.Since(start))
			if err != nil {
				w.failed = append(w.failed, err)
			}
		}
	})
	return w
}

// finish asserts that every write was acknowledged.
func (w *writer) finish(t *testing.T, during string) {
	t.Helper()
	w.stop()
	w.done.Wait()
	t.Logf("%s: %d writes, longest pause %s", during, w.written, w.longest.Round(time.Millisecond))
	if w.longest > time.Second {
		t.Errorf("%s: the longest pause of a write was %s, want less than a second", during, w.longest)
	}
	if len(w.failed) > 0 {
		t.Errorf("%s: %d of %d writes failed, the first with %v", during, len(w.failed), w.written, w.failed[0])
	}
}

// TestLife is the life of one cluster: nodes boot together, die, come back,
// lose their disks and leave. It is the same on both series of etcd.
func TestLife(t *testing.T) {
	t.Parallel()
	for series, binary := range series {
		t.Run(series, func(t *testing.T) {
			t.Parallel()
			life(t, newWorld(t).with(binary))
		})
	}
}

func life(t *testing.T, w *world) {
	a, b, c := w.launch(t, ""), w.launch(t, ""), w.launch(t, "")
	bootAll(t, a, b, c)
	first := wantVoters(t, a, a, b, c)
	if w.item.State != membership.StateFormed || w.item.ClusterID == "" {
		t.Fatalf("seed item is %+v, want it formed with a cluster ID", *w.item)
	}
	formed := w.item.ClusterID

	t.Log("a second boot of everybody changes nothing")
	bootAll(t, a, b, c)
	if got := wantVoters(t, a, a, b, c); !maps.Equal(got, first) {
		t.Errorf("members are %v after a second boot, want %v", got, first)
	}

	t.Log("a reboot comes back as the same member, with its data")
	c.powerOff()
	bootAll(t, c)
	if got := wantVoters(t, a, a, b, c); !maps.Equal(got, first) {
		t.Errorf("members are %v after a reboot, want %v", got, first)
	}

	t.Log("two nodes join while a client writes, one at the address of a node that was killed")
	w.terminate(b)
	a.awaitHealth(t) // with b, the leader may have gone
	writes := a.write(t)
	d, e := w.launch(t, b.IP), w.launch(t, "")
	bootAll(t, d, e)
	writes.finish(t, "two joins, one dead member")
	wantVoters(t, a, a, c, d, e)

	t.Log("a node whose disk was lost comes back as another member")
	before := wantVoters(t, a, a, c, d, e)[membership.NodeID("demo", e.ID)]
	e.powerOff()
	e.root = t.TempDir()
	bootAll(t, e)
	after := wantVoters(t, a, a, c, d, e)[membership.NodeID("demo", e.ID)]
	if after == before {
		t.Errorf("member %x came back without its disk", before)
	}

	t.Log("a node leaves through another one, and leaving twice is no harm")
	for _, want := range []bootstrap.RemovalResult{bootstrap.Removed, bootstrap.Absent} {
		got, err := bootstrap.RemoveMember(t.Context(), etcd.Cluster{}, bootstrap.Node{InstanceID: a.ID, PrivateIP: a.IP}, e.ID, e.IP)
		if err != nil || got.Result != want {
			t.Errorf("removal of %s is %+v, %v, want %s", e.ID, got, err, want)
		}
	}
	wantVoters(t, a, a, c, d)

	if w.item.ClusterID != formed {
		t.Errorf("seed item names cluster %s in the end, want %s", w.item.ClusterID, formed)
	}
}

// TestWritesDuringJoins measures what a client that writes notices when nodes
// join all at once: no write may fail, and none may take a second.
func TestWritesDuringJoins(t *testing.T) {
	t.Parallel()
	for _, joining := range []int{3, 15} {
		t.Run(fmt.Sprintf("%d join one", joining), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			nodes := []*node{w.launch(t, "")}
			bootAll(t, nodes...)
			nodes[0].awaitHealth(t)
			writes := nodes[0].write(t)
			for range joining {
				nodes = append(nodes, w.launch(t, ""))
			}
			start := time.Now()
			bootAll(t, nodes[1:]...)
			took := time.Since(start)
			writes.finish(t, fmt.Sprintf("%d nodes joined one at once within %s", joining, took.Round(time.Millisecond)))
			wantVoters(t, nodes[0], nodes...)
		})
	}
}

// TestSlowSeed is the story of fault 8 of the shell bootstrap: a seed whose
// claim was taken over while it was slow must not form beside the new cluster.
func TestSlowSeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow, quick := w.launch(t, ""), w.launch(t, "")

	// The slow one has claimed, started its new etcd, and stopped right there.
	w.item = &membership.Item{
		ClusterName: "demo", SeedIP: slow.IP, InstanceID: slow.ID,
		CreatedAt: time.Now().Add(-time.Hour).Truncate(time.Second), State: membership.StateForming,
	}
	interrupted, stop := context.WithCancelCause(t.Context())
	errStopped := errors.New("the machine stops here")
	go func() {
		for interrupted.Err() == nil {
			if logs, _ := filepath.Glob(filepath.Join(slow.root, settings.EtcdWALDir, "*.wal")); len(logs) > 0 {
				stop(errStopped)
				return
			}
		}
	}()
	_ = slow.boot(interrupted)
	slow.powerOff()
	t.Log("slow seed stopped")

	// It is away for longer than a takeover takes.
	w.mu.Lock()
	w.item = &membership.Item{
		ClusterName: "demo", SeedIP: slow.IP, InstanceID: slow.ID,
		CreatedAt: time.Now().Add(-time.Hour).Truncate(time.Second), State: membership.StateForming,
	}
	w.mu.Unlock()
	bootAll(t, quick)
	formed := w.item.ClusterID

	bootAll(t, slow)
	wantVoters(t, quick, slow, quick)
	id, _, err := etcd.Cluster{}.ClusterID(t.Context(), slow.IP)
	if err != nil || id != formed {
		t.Errorf("the slow seed serves cluster %s (%v), want %s", id, err, formed)
	}
	if belongs, err := os.ReadFile(filepath.Join(slow.root, "/etc/etcfs/etcd-cluster")); string(belongs) != formed {
		t.Errorf("the slow seed's data is marked as of %q (%v), want %s", belongs, err, formed)
	}
}
