package join_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

// release is one of etcd: what the settings call it, and its binary in the folder
// of the tools.
type release struct{ version, binary string }

// series are the series of etcd that a cluster may run. The releases are at least
// those of tools.
var series = map[string]release{"3.5": {"v3.5.20", "etcd-3.5/etcd"}, "3.6": {"v3.6.0", "etcd"}}

// with makes the etcd of nodes that start from now on another one.
func (w *world) with(r release) *world {
	w.version, w.etcd = r.version, filepath.Join(os.Getenv("ETCFS_TOOLS"), r.binary)
	return w
}

// version is the release of etcd that a node runs.
func (n *node) version(t *testing.T) string {
	t.Helper()
	status, err := n.client(t).Status(t.Context(), etcd.ClientURL(n.IP))
	if err != nil {
		t.Fatal(err)
	}
	return status.Version
}

// TestSeriesMixed: a cluster of etcd 3.5 goes over to 3.6 one node after the
// other, as a changed etcdVersion has it, and does not go back.
func TestSeriesMixed(t *testing.T) {
	t.Parallel()
	w := newWorld(t).with(series["3.5"])
	a, b := w.launch(t, ""), w.launch(t, "")
	bootAll(t, a, b)
	a.put(t, "written on 3.5")

	t.Log("a node of 3.6 joins")
	w.with(series["3.6"])
	c := w.launch(t, "")
	bootAll(t, c)
	wantVoters(t, a, a, b, c)
	for n, want := range map[*node]string{a: "3.5.", b: "3.5.", c: "3.6."} {
		if got := n.version(t); !strings.HasPrefix(got, want) {
			t.Errorf("%s runs etcd %s, want %sx", n.ID, got, want)
		}
	}
	if got := c.keys(t); got != 1 {
		t.Errorf("the node of 3.6 has %d keys, want the one that was written", got)
	}

	t.Log("one of 3.5 joins and reboots beside it")
	w.with(series["3.5"])
	d := w.launch(t, "")
	bootAll(t, d)
	before := wantVoters(t, a, a, b, c, d)
	b.powerOff()
	bootAll(t, b)
	if got := wantVoters(t, a, a, b, c, d); !maps.Equal(got, before) {
		t.Errorf("members are %v after a reboot, want %v", got, before)
	}

	t.Log("those of 3.5 are replaced")
	w.with(series["3.6"])
	for _, n := range []*node{a, b, d} {
		if err := w.leave(t.Context(), n, c); err != nil {
			t.Fatal(err)
		}
		bootAll(t, w.launch(t, ""))
	}
	c.awaitClusterVersion(t, "3.6.0")
	c.awaitHealth(t)
	writes := c.write(t)

	t.Log("one of 3.5 is too old by now, and is refused before it becomes a learner")
	w.with(series["3.5"])
	members := c.read(t)
	e := w.launch(t, "")
	err := e.boot(t.Context())
	if refused := (*bootstrap.RefusedError)(nil); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "set etcdVersion to a release of that series") {
		t.Errorf("boot of a node of 3.5: %v, want it refused with the remedy", err)
	}
	if got := c.read(t); !slices.EqualFunc(got, members, func(a, b membership.Member) bool { return a.ID == b.ID }) {
		t.Errorf("members are %v, want %v", got, members)
	}
	writes.finish(t, "a node of 3.5 at a cluster of 3.6")
}

// awaitClusterVersion waits until the members have agreed on a version, which
// they look at every few seconds.
func (n *node) awaitClusterVersion(t *testing.T, want string) {
	t.Helper()
	await(t.Context(), t, "version "+want, func() error {
		got, err := etcd.Cluster{}.ClusterVersion(t.Context(), []string{etcd.ClientURL(n.IP)})
		if err == nil && got != want {
			err = fmt.Errorf("the cluster's version is %s", got)
		}
		return err
	})
}

// await waits for up to a minute until a condition holds.
func await(ctx context.Context, t *testing.T, what string, holds func() error) {
	t.Helper()
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, holds() },
		backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxElapsedTime(time.Minute))
	if err != nil {
		t.Fatalf("await %s: %v", what, err)
	}
}
