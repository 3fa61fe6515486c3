package join_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

var errLost = errors.New("the answer is lost")

// lossy is etcd of which some changes happen without an answer.
type lossy struct {
	bootstrap.Etcd
	mu   sync.Mutex
	lose map[string]int // how many answers to each change
	lost []string
	// done is called after a change was made, before its answer.
	done func(change string)
}

func (l *lossy) answer(change string, err error) error {
	if err == nil && l.done != nil {
		l.done(change)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.lose[change] == 0 {
		return err
	}
	l.lose[change]--
	l.lost = append(l.lost, change)
	return errLost
}

func (l *lossy) AddLearner(ctx context.Context, endpoints []string, peerURL string) (uint64, error) {
	id, err := l.Etcd.AddLearner(ctx, endpoints, peerURL)
	if err := l.answer("add", err); err != nil {
		return 0, err
	}
	return id, nil
}

func (l *lossy) Promote(ctx context.Context, endpoints []string, id uint64) error {
	return l.answer("promote", l.Etcd.Promote(ctx, endpoints, id))
}

func (l *lossy) Remove(ctx context.Context, endpoints []string, id uint64) error {
	return l.answer("remove", l.Etcd.Remove(ctx, endpoints, id))
}

func TestLostAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, c := w.launch(t, ""), w.launch(t, ""), w.launch(t, "")
	bootAll(t, a, b, c)
	w.terminate(b)

	d := w.launch(t, "")
	faults := &lossy{Etcd: etcd.Cluster{}, lose: map[string]int{"add": 1, "promote": 1, "remove": 1}}
	d.members = faults
	bootAll(t, d)
	wantVoters(t, a, a, c, d)
	if len(faults.lost) != 3 {
		t.Errorf("answers lost: %v, want one of each change", faults.lost)
	}
}

func TestJoinerKilledBetweenAddAndStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.launch(t, "")
	bootAll(t, a)

	killed := func(n *node) {
		t.Helper()
		before := len(a.read(t))
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		n.members = &lossy{Etcd: unclean{}, done: func(change string) {
			if change == "add" {
				kill()
			}
		}}
		if err := n.boot(ctx); err == nil {
			t.Fatalf("%s has joined, want it killed", n.ID)
		}
		n.members = etcd.Cluster{}
		if members := a.read(t); len(members) != before+1 {
			t.Fatalf("members are %v, want an unstarted one left behind", members)
		}
	}

	t.Log("it boots again")
	b := w.launch(t, "")
	killed(b)
	bootAll(t, b)
	wantVoters(t, a, a, b)

	t.Log("it is gone, and another one has its address")
	c := w.launch(t, "")
	killed(c)
	w.terminate(c)
	d := w.launch(t, c.IP)
	bootAll(t, d)
	wantVoters(t, a, a, b, d)

	t.Log("it is gone, and another one joins from elsewhere")
	e := w.launch(t, "")
	killed(e)
	w.terminate(e)
	f := w.launch(t, "")
	bootAll(t, f)
	wantVoters(t, a, a, b, d, f)
}

// unclean is etcd without the removal that a join that was given up makes: a
// killed process makes none.
type unclean struct{ etcd.Cluster }

func (unclean) Remove(context.Context, []string, uint64) error { return errLost }

// TestLearnerOfLostDisk: a learner had caught up when its machine was lost, and
// the address is used again at once. etcd would still promote that member, and
// panics as it on another disk: with it as the second voter the cluster would
// be lost.
func TestLearnerOfLostDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.launch(t, ""), w.launch(t, "")
	bootAll(t, a)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	b.members = &noPromotion{kill: kill}
	if err := b.boot(ctx); err == nil {
		t.Fatal("the learner was promoted, want it killed before")
	}
	w.terminate(b)

	c := w.launch(t, b.IP)
	bootAll(t, c)
	wantVoters(t, a, a, c)
	a.awaitHealth(t)
}

// noPromotion kills the joiner once its learner is in sync.
type noPromotion struct {
	unclean
	kill func()
}

func (n *noPromotion) Promote(ctx context.Context, endpoints []string, id uint64) error {
	members, err := n.Members(ctx, endpoints)
	if err != nil {
		return err
	}
	for _, member := range members {
		if member.ID == id && member.Started() {
			n.kill()
		}
	}
	return errLost
}

// TestLeftoverDatabase: etcd that starts without a write-ahead log takes up the
// database that it finds, and skips as many entries of the cluster's log as
// that has seen.
func TestLeftoverDatabase(t *testing.T) {
	t.Parallel()
	w, old := newWorld(t), newWorld(t)
	stale := old.launch(t, "")
	bootAll(t, stale)
	for i := range 20 {
		stale.put(t, fmt.Sprintf("stale%d", i))
	}
	stale.shutDown(t) // it writes its database out
	leave := func(n *node) {
		if err := os.CopyFS(filepath.Join(n.root, settings.EtcdDataDir), os.DirFS(filepath.Join(stale.root, settings.EtcdDataDir))); err != nil {
			t.Fatal(err)
		}
	}

	a, b := w.launch(t, ""), w.launch(t, "")
	leave(a)
	bootAll(t, a)
	for i := range 10 {
		a.put(t, fmt.Sprintf("written%d", i))
	}
	leave(b)
	bootAll(t, b)
	for _, n := range []*node{a, b} {
		if got := n.keys(t); got != 10 {
			t.Errorf("%s has %d keys, want the 10 that were written to this cluster", n.ID, got)
		}
	}
}

// TestUnrecordedCluster: a node whose etcd works, and serves another cluster
// than the recorded one, is refused, and refused again when it tries again.
func TestUnrecordedCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.launch(t, "")
	bootAll(t, a)
	w.item = &membership.Item{
		ClusterName: "demo", SeedIP: "127.0.0.9", InstanceID: "i-0000000000000beef",
		CreatedAt: time.Now().Truncate(time.Second), State: membership.StateFormed, ClusterID: "c1",
	}
	for range 3 {
		err := a.boot(t.Context())
		if refused := (*bootstrap.RefusedError)(nil); !errors.As(err, &refused) {
			t.Errorf("boot beside the recorded cluster: %v, want it refused", err)
		}
	}

	t.Log("an item that was lost is written again by whoever has the data")
	w.item = nil
	bootAll(t, a)
	id, _, err := etcd.Cluster{}.ClusterID(t.Context(), a.IP)
	if err != nil || w.item == nil || w.item.State != membership.StateFormed || w.item.ClusterID != id {
		t.Errorf("seed item is %+v, want it formed with cluster %s (%v)", w.item, id, err)
	}
}

// TestDataOfAnotherCluster: a node comes back with the data of a cluster, but
// another one has been recorded. It keeps the data, which may be the one to keep,
// whether its etcd comes up or not, and whatever the others say of its member.
func TestDataOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.launch(t, "")
	bootAll(t, a)
	formed := w.item.ClusterID
	a.powerOff()
	w.mu.Lock()
	listed := w.instances.Live
	w.item, w.instances.Live = nil, nil
	w.mu.Unlock()
	b := w.launch(t, "")
	bootAll(t, b)
	w.mu.Lock()
	w.instances.Live = append(w.instances.Live, listed...)
	w.mu.Unlock()
	for _, a.broken = range []bool{true, false} {
		err := a.boot(t.Context())
		if refused := (*bootstrap.RefusedError)(nil); !errors.As(err, &refused) || !strings.Contains(refused.Reason, formed) {
			t.Errorf("boot beside another cluster, with an etcd that is broken: %t: %v, want the data of cluster %s refused", a.broken, err, formed)
		}
	}
	wantVoters(t, b, b)

	t.Log("the user chooses the data of the first")
	b.powerOff()
	w.mu.Lock()
	w.item, w.instances.Live = nil, listed
	w.mu.Unlock()
	bootAll(t, a)
	wantVoters(t, a, a)
	if w.item == nil || w.item.ClusterID != formed {
		t.Errorf("the seed item is %+v, want it to name cluster %s", w.item, formed)
	}
}

func TestThrottledAndDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, code := range []string{"UnauthorizedOperation", "UnauthorizedOperation", "RequestLimitExceeded", "InternalError", "UnauthorizedOperation"} {
		w.refusals = append(w.refusals, &smithy.GenericAPIError{Code: code, Message: "no"})
	}
	a, b := w.launch(t, ""), w.launch(t, "")
	bootAll(t, a, b)
	wantVoters(t, a, a, b)
	if len(w.refusals) > 0 {
		t.Errorf("%d refusals are left", len(w.refusals))
	}
}

// TestJoinsWhileOthersMove: nodes join while one leaves through the
// graceful-leave function's command, and while the leader moves.
func TestJoinsWhileOthersMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, c, d := w.launch(t, ""), w.launch(t, ""), w.launch(t, ""), w.launch(t, "")
	bootAll(t, a, b, c, d)
	e, f := w.launch(t, ""), w.launch(t, "")

	var moves errgroup.Group
	joining, joined := context.WithCancel(t.Context())
	defer joined()
	moved := 0
	moves.Go(func() error {
		for joining.Err() == nil {
			if moveLeader(joining, a, b, c, d, e, f) == nil {
				moved++
			}
			select {
			case <-joining.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		return nil
	})
	moves.Go(func() error { return w.leave(t.Context(), d, a) })
	bootAll(t, e, f)
	joined()
	if err := moves.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("the leader moved %d times", moved)
	if moved == 0 {
		t.Error("the leader never moved")
	}
	a.awaitHealth(t)
	wantVoters(t, a, a, b, c, e, f)
}

// TestEverybodyReboots: the whole cluster loses power and comes back as it was.
func TestEverybodyReboots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, c := w.launch(t, ""), w.launch(t, ""), w.launch(t, "")
	bootAll(t, a, b, c)
	a.put(t, "kept")
	before := wantVoters(t, a, a, b, c)
	for _, n := range []*node{a, b, c} {
		n.powerOff()
	}
	bootAll(t, a, b, c)
	for name, id := range wantVoters(t, b, a, b, c) {
		if before[name] != id {
			t.Errorf("%s is member %x, and was %x", name, id, before[name])
		}
	}
	if got := c.keys(t); got != 1 {
		t.Errorf("%d keys are left, want the one that was written", got)
	}
}

func (n *node) read(t *testing.T) []membership.Member {
	t.Helper()
	members, err := etcd.Cluster{}.Members(t.Context(), []string{etcd.ClientURL(n.IP)})
	if err != nil {
		t.Fatal(err)
	}
	return members
}

func (n *node) client(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.ClientURL(n.IP)}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// written is the prefix of the keys that a test writes; the bootstrap has some of
// its own.
const written = "written/"

func (n *node) put(t *testing.T, key string) {
	t.Helper()
	if _, err := n.client(t).Put(t.Context(), written+key, ""); err != nil {
		t.Fatal(err)
	}
}

// keys counts the keys that this node has by itself, once it has them all.
func (n *node) keys(t *testing.T) int64 {
	t.Helper()
	client := n.client(t)
	if _, err := client.Get(t.Context(), written, clientv3.WithPrefix()); err != nil { // waits for what is committed
		t.Fatal(err)
	}
	response, err := client.Get(t.Context(), written, clientv3.WithPrefix(), clientv3.WithSerializable(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return response.Count
}

// moveLeader hands the leadership from whoever has it to another voter.
func moveLeader(ctx context.Context, nodes ...*node) error {
	for _, n := range nodes {
		if err := n.handOver(ctx); !errors.Is(err, errNotLeader) {
			return err
		}
	}
	return errNotLeader
}

var errNotLeader = errors.New("does not lead")

// handOver hands the leadership to another voter, if this node has it.
func (n *node) handOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.ClientURL(n.IP)}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	status, err := client.Status(ctx, etcd.ClientURL(n.IP))
	if err != nil || status.Leader != status.Header.MemberId {
		return errNotLeader // one that is gone, or not there yet, does not lead either
	}
	members, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, member := range members.Members {
		if member.ID == status.Leader || member.IsLearner {
			continue
		}
		if _, err = client.MoveLeader(ctx, member.ID); err == nil {
			return nil
		}
	}
	return err
}

// TestClusterOutOfSpace: etcd that has reached its quota takes no member in. The
// node that waits says so, and joins once the alarm is over.
func TestClusterOutOfSpace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.launch(t, ""), w.launch(t, "")
	bootAll(t, a)
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		_, err := etcdserverpb.NewMaintenanceClient(a.client(t).ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	want := etcd.Reading{Health: membership.Answering, Reason: "ALARM NOSPACE"}
	if got := (etcd.Cluster{}).Probe(t.Context(), a.IP); got != want {
		t.Errorf("a full etcd reads %+v, want %+v", got, want)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := b.boot(ctx); err == nil || !strings.Contains(err.Error(), a.ID+" at "+a.IP+" (ALARM NOSPACE)") {
		t.Errorf("boot beside a full etcd: %v, want the alarm named", err)
	}
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	bootAll(t, b)
	wantVoters(t, a, a, b)
}
