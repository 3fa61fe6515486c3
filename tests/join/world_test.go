// Package join proves the path into the cluster against real etcd servers:
// the bootstrap's own elect and member phases, with the seed table and the
// list of instances in memory and etcd's processes started by the test.
package join_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
)

// world is one cluster: its seed item, its instances and their etcd.
type world struct {
	network *process.Network
	etcd    string // the server's binary
	version string // what the settings call it

	mu        sync.Mutex
	item      *membership.Item
	instances membership.Instances
	refusals  []error // of EC2, one for each of the next lists
	launched  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of etcd; make test does")
	}
	network, err := process.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	return (&world{network: network}).with(series["3.6"])
}

func (w *world) Read(context.Context) (*membership.Item, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().Truncate(time.Second)
	if w.item == nil {
		return nil, now, nil
	}
	item := *w.item
	return &item, now, nil
}

func (w *world) Create(_ context.Context, item membership.Item) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.item != nil {
		return *w.item == item, nil
	}
	w.item = &item
	return true, nil
}

func (w *world) Replace(_ context.Context, old, item membership.Item) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.item == nil || *w.item != old {
		return w.item != nil && *w.item == item, nil
	}
	w.item = &item
	return true, nil
}

func (w *world) Instances(context.Context) (membership.Instances, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refusals) > 0 {
		err := w.refusals[0]
		w.refusals = w.refusals[1:]
		return membership.Instances{}, err
	}
	return membership.Instances{Live: slices.Clone(w.instances.Live), Terminated: slices.Clone(w.instances.Terminated)}, nil
}

// node is one instance with its disk and its etcd.
type node struct {
	membership.Instance
	world *world
	root  string
	log   *testLog
	// members is how the node changes the membership.
	members bootstrap.Etcd

	// broken says that its etcd does not come up.
	broken bool

	mu      sync.Mutex
	process *exec.Cmd
	exited  chan struct{}
}

// launch adds an instance. An address of an instance that is gone may be given
// again.
func (w *world) launch(t *testing.T, ip string) *node {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.launched++
	if ip == "" {
		ip = strings.TrimSuffix(w.network.Gateway(), ".1") + fmt.Sprintf(".%d", 9+w.launched)
	}
	n := &node{
		Instance: membership.Instance{ID: fmt.Sprintf("i-%017x", w.launched), IP: ip, Launched: time.Now(), Node: true},
		world:    w, root: t.TempDir(), log: &testLog{t: t}, members: etcd.Cluster{},
	}
	w.instances.Live = append(w.instances.Live, n.Instance)
	t.Cleanup(n.powerOff)
	return n
}

// terminate takes the instance away as a hard kill does.
func (w *world) terminate(n *node) {
	n.powerOff()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instances.Live = slices.DeleteFunc(w.instances.Live, func(i membership.Instance) bool { return i.ID == n.ID })
	w.instances.Terminated = append(w.instances.Terminated, n.ID)
}

// boot runs the two phases, as the sequence of a boot does.
func (n *node) boot(ctx context.Context) error {
	for _, phase := range []string{bootstrap.PhaseElect, bootstrap.PhaseMember} {
		b := &bootstrap.Bootstrap{
			Settings: settings.Settings{ClusterName: "demo", Region: "eu-west-1", EtcdVersion: n.world.version},
			Root:     n.root, Logger: slog.New(slog.NewTextHandler(n.log, nil)).With("node", n.ID),
			Metadata: n, Seed: n.world, Group: n.world, Etcd: n.members, Registry: etcd.Cluster{}, Units: n,
		}
		if err := b.RunPhase(ctx, phase); err != nil {
			return fmt.Errorf("%s: %w", n.ID, err)
		}
	}
	return nil
}

func (n *node) Identity(context.Context) (aws.Identity, error) {
	return aws.Identity{InstanceID: n.ID, PrivateIP: n.IP, Region: "eu-west-1"}, nil
}

// The service manager, as far as the member phase uses it.

func (n *node) Installed(files ...systemd.File) (bool, error) {
	return (&systemd.Manager{Root: n.root}).Installed(files...)
}

func (n *node) Install(_ context.Context, files ...systemd.File) error {
	for _, file := range files {
		path := filepath.Join(n.root, file.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file.Content), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// StartNoBlock runs the ExecStart of the unit with the paths of this node's
// disk.
func (n *node) StartNoBlock(_ context.Context, unit string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken || n.process != nil && !closed(n.exited) {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(n.root, systemd.UnitDir, unit))
	if err != nil {
		return err
	}
	_, command, _ := strings.Cut(string(content), "ExecStart=")
	command, _, _ = strings.Cut(command, "\nRestart")
	arguments := strings.Fields(strings.ReplaceAll(command, "\\\n", " "))[1:]
	for i, argument := range arguments {
		arguments[i] = strings.Replace(argument, "=/", "="+n.root+"/", 1)
	}
	n.process = exec.Command(n.world.etcd, append(arguments, "--log-level=fatal")...) //nolint:noctx // its life is the machine's
	n.process.Env = []string{}                                                        // etcd reads its flags from ETCD_… too
	n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.process.Stderr = n.log
	if err := n.process.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	n.exited = exited
	go func(process *exec.Cmd) {
		_ = process.Wait() // whether and why it ended shows in the members
		close(exited)
	}(n.process)
	return nil
}

// leave takes a node away as scale-in does, through another one. An etcd that has
// just started, or been elected, does not know yet that the others are well, and
// has it refused. The function tries again, and so does this.
func (w *world) leave(ctx context.Context, n, through *node) error {
	for {
		got, err := bootstrap.RemoveMember(ctx, etcd.Cluster{}, bootstrap.Node{InstanceID: through.ID, PrivateIP: through.IP}, n.ID, n.IP)
		switch {
		case err != nil:
			return err
		case got.Result == bootstrap.Removed:
			w.terminate(n)
			return nil
		case got.Result != bootstrap.Refused:
			return fmt.Errorf("removal of %s is %+v, want it removed", n.ID, got)
		}
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Stop ends etcd.
func (n *node) Stop(context.Context, string) error {
	n.powerOff()
	return nil
}

// State tells whether etcd runs.
func (n *node) State(context.Context, string) (systemd.State, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.process == nil:
		return systemd.State{Active: "inactive"}, nil
	case closed(n.exited):
		return systemd.State{Active: "failed"}, nil
	default:
		return systemd.State{Active: "active"}, nil
	}
}

// shutDown ends etcd as the service manager does.
func (n *node) shutDown(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-n.exited
	n.process = nil
}

// powerOff kills etcd, as the loss of the machine's power does.
func (n *node) powerOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return
	}
	_ = n.process.Process.Kill() // it may have ended by itself
	<-n.exited
	n.process = nil
}

// testLog writes a node's log to the test's.
type testLog struct{ t *testing.T }

func (l *testLog) Write(line []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(line), "\n"))
	return len(line), nil
}
