package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

var (
	running = systemd.State{Active: "active", Sub: "running", Result: "success"}
	dead    = systemd.State{Active: "failed", Sub: "failed", Result: "exit-code"}
)

// healthy has etcfuse-meta open its socket when it starts, and etcfuse insist
// on finding it.
func healthy(t *testing.T, b *Bootstrap) func(string) systemd.State {
	return func(unit string) systemd.State {
		socket := b.path(settings.SocketFile)
		switch unit {
		case UnitMeta:
			if _, err := os.Lstat(socket); err == nil {
				t.Error("a stale socket was there when etcfuse-meta started")
			}
			listen(t, socket)
		case UnitFuse:
			if !b.socketExists() {
				return dead
			}
		}
		return running
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	b, daemons := newNode(t)
	daemons.onStart = healthy(t, b)
	twice(t, b, b.start())
	if want := []string{UnitMeta, UnitFuse}; !slices.Equal(daemons.started, want) {
		t.Errorf("started %v, want %v once each and in this order", daemons.started, want)
	}
	for _, dir := range []string{settings.MountPoint, filepath.Dir(settings.SocketFile)} {
		if info, err := os.Stat(b.path(dir)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, want a folder", dir, err)
		}
	}

	// etcfuse has crashed.
	daemons.states[UnitFuse] = dead
	daemons.started = nil
	twice(t, b, b.start())
	if want := []string{UnitFuse}; !slices.Equal(daemons.started, want) {
		t.Errorf("started %v, want %v", daemons.started, want)
	}
	// Both were killed, and the socket is left.
	clear(daemons.states)
	twice(t, b, b.start())
}

func TestStartFailsFast(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meta, fuse systemd.State
		want       string
	}{
		"etcfuse-meta has failed": {dead, running, "etcfuse-meta.service has failed: it is failed, result exit-code"},
		"etcfuse has failed":      {running, dead, "etcfuse.service has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, daemons := newNode(t)
			var log bytes.Buffer
			b.Logger = slog.New(slog.NewTextHandler(&log, nil))
			daemons.onStart = func(unit string) systemd.State {
				if unit == UnitMeta {
					if test.meta.Running() {
						listen(t, b.path(settings.SocketFile))
					}
					return test.meta
				}
				return test.fuse
			}
			daemons.journal = map[string][]string{}
			for _, unit := range []string{UnitMeta, UnitFuse} {
				for i := range 100 {
					daemons.journal[unit] = append(daemons.journal[unit], fmt.Sprintf("%s says %d.", unit, i))
				}
			}
			err := runPhase(t, b, b.start())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			for _, unit := range []string{UnitMeta, UnitFuse} {
				if got := strings.Count(log.String(), unit+" says"); got != journalLines {
					t.Errorf("the log has %d lines of the journal of %s, want %d", got, unit, journalLines)
				}
				if !strings.Contains(log.String(), unit+" says 99.") || strings.Contains(log.String(), unit+" says 39.") {
					t.Errorf("the lines of %s are not the last ones", unit)
				}
			}
		})
	}
}

func TestStartNoticesACrashLoop(t *testing.T) {
	t.Parallel()
	b, daemons := newNode(t)
	// Crashes of long ago do not count.
	daemons.states[UnitMeta] = systemd.State{Active: "activating", Restarts: 7}
	watch, err := b.watch(t.Context(), UnitMeta)
	if err != nil {
		t.Fatal(err)
	}
	for restarts, hopeless := range map[int]bool{7: false, 7 + crashes - 1: false, 7 + crashes: true} {
		daemons.states[UnitMeta] = systemd.State{Active: "activating", Sub: "auto-restart", Restarts: restarts}
		if _, err := watch.check(t.Context(), UnitMeta); (err != nil) != hopeless {
			t.Errorf("after %d restarts: got %v, want hopeless %t", restarts, err, hopeless)
		}
	}
}

// stubMountpoint makes a PATH with a mountpoint that says yes when a file
// exists.
func stubMountpoint(t *testing.T, b *Bootstrap) (path, mounted string) {
	t.Helper()
	mounted = filepath.Join(t.TempDir(), "mounted")
	return stubCommand(t, "mountpoint", fmt.Sprintf(`[ "$*" = "-q %s" ] || exit 64; [ -e %s ]`, b.path(settings.MountPoint), mounted)), mounted
}

func TestMount(t *testing.T) {
	b, daemons := newNode(t)
	path, mounted := stubMountpoint(t, b)
	t.Setenv("PATH", path)
	daemons.states[UnitMeta], daemons.states[UnitFuse] = running, running
	p := b.mount()
	if isDone(t, p) {
		t.Fatal("it is mounted before it is")
	}
	// It appears while the phase waits.
	asked := p.Done
	p.Done = func(ctx context.Context) (bool, error) {
		done, err := asked(ctx)
		return done, errors.Join(err, os.WriteFile(mounted, nil, 0o644))
	}
	if err := runPhase(t, b, p); err != nil {
		t.Fatal(err)
	}
	if !isDone(t, b.mount()) {
		t.Error("it is not mounted after it is")
	}
}

func TestMountFailsFast(t *testing.T) {
	b, daemons := newNode(t)
	path, _ := stubMountpoint(t, b)
	t.Setenv("PATH", path)
	daemons.states[UnitMeta], daemons.states[UnitFuse] = running, dead
	err := runPhase(t, b, b.mount())
	if err == nil || !strings.Contains(err.Error(), "mount: etcfuse.service has failed") {
		t.Errorf("got error %v", err)
	}
}

// reports are the instances that were reported unhealthy.
type reports struct {
	instances []string
	err       error
}

func (r *reports) ReportUnhealthy(_ context.Context, instanceID string) error {
	r.instances = append(r.instances, instanceID)
	return r.err
}

// metadata is an instance's own of itself.
type metadata aws.Identity

func (m metadata) Identity(context.Context) (aws.Identity, error) { return aws.Identity(m), nil }

// working lists the nodes that are registered in EtcFS.
type working []string

func (w working) Values(_ context.Context, endpoints []string, _ string) (map[string]string, error) {
	if w == nil {
		return nil, errors.New(endpoints[0] + " does not answer")
	}
	keys := map[string]string{}
	for _, id := range w {
		keys["demo-"+id] = "{}"
	}
	return keys, nil
}

// voters is an etcd cluster of these nodes.
type voters struct {
	Etcd
	ids   []string
	other string // the cluster that answers, if it is not this node's own etcd
}

func (v voters) ClusterID(_ context.Context, ip string) (string, bool, error) {
	switch {
	case v.other == "":
		return "c1", false, nil
	case ip == testIdentity.PrivateIP:
		return "", false, errors.New("connection refused")
	default:
		return v.other, false, nil
	}
}

func (v voters) Members(context.Context, []string) ([]membership.Member, error) {
	var list []membership.Member
	for i, id := range v.ids {
		name, learner := strings.CutSuffix(id, " learns")
		list = append(list, membership.Member{ID: uint64(i), Name: "demo-" + name, Learner: learner})
	}
	return list, nil
}

type nobody struct{}

func (nobody) Instances(context.Context) (membership.Instances, error) {
	return membership.Instances{}, nil
}

// neighbor is a group with another instance.
type neighbor struct{}

func (neighbor) Instances(context.Context) (membership.Instances, error) {
	return membership.Instances{Live: []membership.Instance{{ID: nodeA, IP: "192.0.2.1"}}}, nil
}

func TestFailure(t *testing.T) {
	t.Parallel()
	boom := &phase.Error{Phase: PhaseMount, Err: errors.New("boom")}
	self, a, c, d := testInstance, nodeA, nodeB, nodeC
	for name, test := range map[string]struct {
		prepare  func(*Bootstrap, *reports)
		stopped  bool
		members  []string // with etcd data on this node, when there are any
		other    string   // the cluster of the node that answers, when its own etcd does not
		working  working
		report   bool
		tryAgain bool
		want     string
	}{
		"before it has joined":          {report: true},
		"the report fails too":          {prepare: func(_ *Bootstrap, r *reports) { r.err = errors.New("denied") }, report: true, want: "mount: boom\ndenied"},
		"the instance is to be kept":    {prepare: func(b *Bootstrap, _ *reports) { b.Settings.OnBootstrapFailure = settings.FailureKeep }},
		"stopped by somebody":           {stopped: true},
		"before it was identified":      {prepare: func(b *Bootstrap, _ *reports) { b.Node, b.Metadata = Node{}, metadata(testIdentity) }, report: true},
		"it does not know itself":       {prepare: func(b *Bootstrap, _ *reports) { b.Node, b.Metadata = Node{}, metadata{Region: "us-east-1"} }},
		"the only member":               {members: []string{self}, working: working{}, tryAgain: true},
		"one of two":                    {members: []string{self, a}, working: working{a}, tryAgain: true},
		"one of three, two work":        {members: []string{self, a, c}, working: working{a, c}, report: true},
		"one of three, one works":       {members: []string{self, a, c}, working: working{a}, tryAgain: true},
		"one of three, none works":      {members: []string{self, a, c}, working: working{}, tryAgain: true},
		"one of four, two work":         {members: []string{self, a, c, d}, working: working{a, c}, tryAgain: true},
		"one of four, three work":       {members: []string{self, a, c, d}, working: working{a, c, d}, report: true},
		"a learner":                     {members: []string{self + " learns", a}, working: working{a}, report: true},
		"removed in the meantime":       {members: []string{a}, working: working{a}, report: true},
		"the cluster does not answer":   {members: []string{self, a, c}, working: nil, tryAgain: true},
		"removed, another one says":     {members: []string{a}, other: "c1", working: working{a}, report: true},
		"another cluster's node says":   {members: []string{a}, other: "c2", working: working{a}, tryAgain: true},
		"it still counts as registered": {members: []string{self, a}, working: working{self}, tryAgain: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, daemons := newNode(t)
			var r reports
			b.Health, b.Group = &r, neighbor{}
			b.Etcd, b.Registry = voters{ids: test.members, other: test.other}, test.working
			daemons.onStart = func(string) systemd.State { return running }
			if err := daemons.Install(t.Context(), bootstrapService); err != nil {
				t.Fatal(err)
			}
			if test.members != nil {
				put(t, b, settings.EtcdWALDir+"/0.wal", "", 0o600)
				put(t, b, clusterFile, "c1", 0o644)
			}
			if test.prepare != nil {
				test.prepare(b, &r)
			}
			if test.want == "" {
				test.want = "mount: boom"
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.stopped {
				cancel()
			}
			err := b.failed(ctx, boom)
			if err == nil || err.Error() != test.want || !errors.Is(err, boom) {
				t.Errorf("got error %q, want %q with the cause in its chain", err, test.want)
			}
			if got := slices.Equal(r.instances, []string{testInstance}); got != test.report {
				t.Errorf("reported unhealthy %v, want a report %t", r.instances, test.report)
			}
			if got := slices.Equal(daemons.started, []string{UnitBootstrap}); got != test.tryAgain {
				t.Errorf("started %v, want another try %t", daemons.started, test.tryAgain)
			}
		})
	}
}

// A node that fails before its etcd has started must not keep the others waiting
// for the ten minutes that a claim is good for.
func TestFailureReleasesTheClaim(t *testing.T) {
	t.Parallel()
	mine := membership.Item{
		ClusterName: "demo", SeedIP: testIdentity.PrivateIP, InstanceID: testInstance,
		CreatedAt: time.Unix(1_700_000_000, 0).UTC(), State: membership.StateForming,
	}
	others, formed := mine, mine
	others.InstanceID = nodeA
	formed.State, formed.ClusterID = membership.StateFormed, "c1"
	for name, test := range map[string]struct {
		item    membership.Item
		file    string // that is on this node
		release bool
	}{
		"its own claim":                       {item: mine, release: true},
		"another's claim":                     {item: others},
		"the cluster has formed":              {item: formed},
		"its etcd has data":                   {item: mine, file: settings.EtcdWALDir + "/0.wal"},
		"its etcd may start any moment still": {item: mine, file: clusterFile},
	} {
		b, _ := newNode(t)
		seed := &table{item: &test.item}
		b.Seed, b.Health, b.Group, b.Registry = seed, &reports{}, nobody{}, working{}
		if test.file != "" {
			put(t, b, test.file, forming, 0o600)
		}
		want := test.item
		if test.release {
			want.CreatedAt = time.Unix(0, 0).UTC()
		}
		boom := &phase.Error{Phase: PhaseInstallEtcd, Err: errors.New("boom")}
		if err := b.failed(t.Context(), boom); !errors.Is(err, boom) {
			t.Errorf("%s: got error %v, want the cause", name, err)
		}
		if *seed.item != want {
			t.Errorf("%s: the item is %+v, want %+v", name, *seed.item, want)
		}
	}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	want := []string{"identify", "resume", "install-etcd", "install-etcfs", "attach", "elect", "member", "configure", "start", "mount", "ready"}
	if got := Phases(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	b, _ := newNode(t)
	for _, name := range want {
		if p, err := b.phase(name); err != nil || p.Name != name || p.Timeout == 0 {
			t.Errorf("%s: got %q with timeout %s, %v", name, p.Name, p.Timeout, err)
		}
	}
	if err := b.RunPhase(t.Context(), "celebrate"); err == nil {
		t.Error("an unknown phase was run")
	}
}
