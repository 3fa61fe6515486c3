// Package refresh_test updates clusters whose nodes really run, through the
// real Pulumi CLI: a new launch template replaces one node after the other,
// while clients write.
package refresh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/lambda/contract"
	"github.com/etcfs/pulumi-etcfs/tests/fault"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	regionec2 "github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

// The test program is the stand-in program of the machines too.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	os.Exit(m.Run())
}

const (
	nodes = 3
	// limit is how long one step may take, on a machine that is busy.
	limit = 3 * time.Minute
	// warmup is the component's, and shorter than that is what the tests wait:
	// what it gives time for must hold without it.
	warmup, hurried = "30", "1"
)

// world is a region with a cluster that Pulumi has made.
type world struct {
	*region.Region
	*scenario.Cluster
	t       *testing.T
	stack   *stack.Stack
	output  bytes.Buffer // what Pulumi says
	journal journal
	group   string
	volume  string
}

// newWorld makes a region, and a stack with nothing in it.
func newWorld(t *testing.T) *world {
	t.Helper()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of the Pulumi CLI and etcd (make test sets it)")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	w := &world{t: t}
	if w.Region, err = region.New(ctx, region.Config{WorkDir: t.TempDir(), Standin: program, Tools: tools}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	// Attachments and events are followed from the first one on.
	t.Cleanup(fault.NewWorld(w.Region, "demo", 1, &w.journal).Close)
	w.Intercept(w.hurry)
	plugins, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	w.stack, err = stack.New(ctx, stack.Config{
		Folder: t.TempDir(), Program: "testdata/program", Tools: tools, Output: &w.output,
		Plugins:     map[string]string{"etcfs": plugins, "aws": filepath.Join(plugins, "region")},
		Environment: w.Environment(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.set("releasesUrl", w.ReleasesURL())
	return w
}

// create makes the cluster, and returns when pulumi up does: with mounted nodes.
func (w *world) create() scenario.View {
	w.t.Helper()
	w.up()
	outputs, err := w.stack.Outputs(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.group, w.volume = fmt.Sprint(outputs["group"]), fmt.Sprint(outputs["volume"])
	w.Cluster = scenario.Open(w.AWSConfig(), scenario.Names{
		Cluster: "demo", Group: w.group, LogGroup: "/aws/lambda/" + fmt.Sprint(outputs["function"]),
	})
	return w.settled()
}

func (w *world) close() {
	if w.t.Failed() {
		for _, instance := range w.EC2.Instances() {
			if machine := w.Machines.Machine(instance.ID); machine != nil {
				w.t.Logf("console of %s:\n%s", instance.ID, machine.Console())
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		w.t.Error(err)
	}
}

// hurry shortens the warm-up of an instance refresh.
func (w *world) hurry(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
	if c.Action == "StartInstanceRefresh" {
		const name = "Preferences.InstanceWarmup"
		if got := c.Params.Get(name); got != warmup {
			w.t.Errorf("the refresh is asked for with a warm-up of %q, want %q", got, warmup)
		}
		c.Params[name] = hurried
	}
	return next(ctx)
}

func (w *world) set(key, value string) {
	w.t.Helper()
	if err := w.stack.Set(w.t.Context(), key, value); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) up(arguments ...string) {
	w.t.Helper()
	w.output.Reset()
	if err := w.stack.Up(w.t.Context(), arguments...); err != nil {
		w.t.Fatalf("%v\n%s", err, &w.output)
	}
}

// described is the group as AWS has it.
func (w *world) described() types.AutoScalingGroup {
	w.t.Helper()
	out, err := autoscaling.NewFromConfig(w.AWSConfig()).DescribeAutoScalingGroups(w.t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{w.group},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(out.AutoScalingGroups) != 1 {
		w.t.Fatalf("got %d groups, want one", len(out.AutoScalingGroups))
	}
	return out.AutoScalingGroups[0]
}

// refreshed waits until the group's instance refresh has replaced every
// instance, and the cluster has settled.
func (w *world) refreshed() scenario.View {
	w.t.Helper()
	groups := autoscaling.NewFromConfig(w.AWSConfig())
	within, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	err := poll(within, func() error {
		out, err := groups.DescribeInstanceRefreshes(within, &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: &w.group})
		if err != nil {
			return err
		}
		if len(out.InstanceRefreshes) == 0 || out.InstanceRefreshes[0].Status != types.InstanceRefreshStatusSuccessful {
			return fmt.Errorf("the instance refreshes are %+v", out.InstanceRefreshes)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.settled()
}

func (w *world) settled() scenario.View {
	w.t.Helper()
	view, err := w.Await(w.t.Context(), limit, scenario.Settled(nodes), quiet{})
	if err != nil {
		w.t.Fatal(err)
	}
	return view
}

// run runs a script on a node, which must succeed.
func (w *world) run(instanceID, script string) string {
	w.t.Helper()
	result, err := w.Run(w.t.Context(), instanceID, script)
	if err != nil {
		w.t.Fatal(err)
	}
	if result.ExitCode != 0 {
		w.t.Fatalf("%q on %s exits with %d: %s", script, instanceID, result.ExitCode, result.Stderr)
	}
	return strings.TrimSpace(result.Stdout)
}

func ids(v scenario.View) []string {
	var list []string
	for _, n := range v.Nodes {
		list = append(list, n.InstanceID)
	}
	return list
}

const file = "$ETCFS_ROOT" + settings.MountPoint + "/before"

// A new release rolls through the cluster: each new node has mounted before an
// old one leaves, the volume never has more than one attachment too many, and
// etcd serves all the time.
func TestNewReleaseRollsThroughTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.create()
	w.run(before.Nodes[0].InstanceID, "echo kept >"+file)
	if err := w.Releases.PublishEtcFS(etcfs.Release{Version: "0.37.0", Config: true, VolumeID: true}); err != nil {
		t.Fatal(err)
	}
	w.journal.forget()
	watch := w.watch(before)

	w.set("etcfsVersion", "0.37.0")
	w.up()
	after := w.refreshed()
	watch.end()
	if watch.fewest < nodes {
		t.Errorf("only %d voters ran, want %d at any time: %s", watch.fewest, nodes, watch.worst)
	}

	w.journal.oneAfterTheOther(t, ids(before), ids(after))
	w.replaced(before, "2")
	for _, n := range after.Nodes {
		if got, want := w.run(n.InstanceID, "rpm -q --qf '%{VERSION}' etcfuse"), "0.37.0"; got != want {
			t.Errorf("%s runs EtcFS %s, want %s", n.InstanceID, got, want)
		}
		if got, want := w.run(n.InstanceID, "cat "+file), "kept"; got != want {
			t.Errorf("%s reads %q in a file from before, want %q", n.InstanceID, got, want)
		}
	}
	leaves, err := w.Leaves(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, leave := range leaves {
		if leave.Outcome != "removed" || leave.Completion != "continued" {
			t.Errorf("the member of %s: %s, and its termination: %s, want removed and continued", leave.Instance, leave.Outcome, leave.Completion)
		}
	}
	if got, want := len(leaves), nodes; got != want {
		t.Errorf("%d instances left by way of the graceful-leave function, want %d", got, want)
	}
	w.up("--expect-no-changes")
	w.destroyed()
	w.allowed()
}

// An up that waits for its nodes waits on when some of them cannot boot and are
// replaced. Later, a template that no node can boot from takes no node away,
// and another up puts its own in place of it, in the middle of the refresh.
func TestNodesThatCannotBoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Releases.Fail("checksums.txt", http.StatusNotFound, 2)
	before := w.create()
	if got, want := w.journal.count(failed), 2; got != want {
		t.Errorf("%d launches failed while up waited, want %d", got, want)
	}
	w.journal.forget()
	watch := w.watch(before)

	w.set("etcfsVersion", "0.99.0") // there is no such release
	w.up()
	w.awaitFailures(2)
	view, err := w.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range before.Nodes {
		if i := slices.Index(ids(view), n.InstanceID); i < 0 || !view.Nodes[i].Mounted || view.Nodes[i].GroupState != "InService" {
			t.Errorf("%s was in service and mounted, and is not: %+v", n.InstanceID, view.Nodes)
		}
	}
	for what, want := range map[string]int{inService: 0, terminated: w.journal.count(failed)} {
		if got := w.journal.count(what); got > want {
			t.Errorf("%d instances are %s, want at most %d", got, what, want)
		}
	}

	w.set("etcfsVersion", "0.36.0")
	w.set("instanceType", "m5.large")
	w.up()
	after := w.refreshed()
	watch.end()
	w.replaced(before, "3")
	for _, n := range after.Nodes {
		if instance, _ := w.EC2.Instance(n.InstanceID); instance.Type != "m5.large" {
			t.Errorf("%s is an %s, want an m5.large", n.InstanceID, instance.Type)
		}
	}
	w.destroyed()
	w.allowed()
}

// An up that is interrupted while it waits for nodes that cannot boot is
// repeated, or destroyed, as if it had failed.
func TestUpIsInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("etcfsVersion", "0.37.0") // which is not there yet
	for _, then := range []func(){
		func() { w.destroyed() },
		func() {
			if err := w.Releases.PublishEtcFS(etcfs.Release{Version: "0.37.0", Config: true, VolumeID: true}); err != nil {
				t.Fatal(err)
			}
			w.create()
			w.up("--expect-no-changes")
			w.destroyed()
		},
	} {
		w.journal.forget()
		ctx, interrupt := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.stack.Up(ctx) }()
		w.awaitFailures(1)
		select {
		case err := <-done:
			t.Fatalf("up ended while nodes were still tried: %v", err)
		default:
		}
		interrupt()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("up that is interrupted: got %v, want it cancelled", err)
		}
		then()
	}
}

// awaitFailures waits until so many launches have been given up.
func (w *world) awaitFailures(count int) {
	w.t.Helper()
	within, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := poll(within, func() error {
		if tries := w.journal.count(failed); tries < count {
			return fmt.Errorf("%d launches have failed, not %d", tries, count)
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// replaced checks that the group has other instances than before, all of them
// of one version of the template, which is the group's.
func (w *world) replaced(before scenario.View, version string) {
	w.t.Helper()
	group := w.described()
	if got := aws.ToString(group.LaunchTemplate.Version); got != version {
		w.t.Errorf("the group launches from version %s of the template, want %s", got, version)
	}
	for _, instance := range group.Instances {
		if id := aws.ToString(instance.InstanceId); slices.Contains(ids(before), id) {
			w.t.Errorf("%s was not replaced", id)
		} else if got := aws.ToString(instance.LaunchTemplate.Version); got != version {
			w.t.Errorf("%s has version %s of the template, want %s", id, got, version)
		}
	}
}

// destroyed destroys the stack as it is, and checks that no instance waited for
// a hook on its way, and that nothing was tried before its time: the volume
// last, when nothing is attached any more.
func (w *world) destroyed() {
	w.t.Helper()
	w.journal.forget()
	var refused []string
	var mu sync.Mutex
	remove := w.Intercept(func(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
		result, err := next(ctx)
		if err != nil && strings.HasPrefix(c.Action, "Delete") {
			mu.Lock()
			defer mu.Unlock()
			refused = append(refused, fmt.Sprintf("%s: %v", c.Action, err))
		}
		return result, err
	})
	defer remove()
	begun := time.Now()
	if err := w.stack.Destroy(w.t.Context()); err != nil {
		w.t.Fatalf("%v\n%s", err, &w.output)
	}
	took := time.Since(begun)
	w.t.Logf("destroy took %s", took.Round(100*time.Millisecond))
	if took > contract.HookHeartbeat/2 {
		w.t.Errorf("destroy took %s, which is long for one that waits for nothing", took)
	}
	if waited := w.journal.count(leaving); waited > 0 {
		w.t.Errorf("%d instances waited for the hook on their way", waited)
	}
	if len(refused) > 0 {
		w.t.Errorf("what was deleted too early was refused: %q", refused)
	}
	for _, instance := range w.EC2.Instances() {
		if instance.State != regionec2.StateTerminated {
			w.t.Errorf("after destroy %s is %s", instance.ID, instance.State)
		}
	}
	volumes, err := ec2.NewFromConfig(w.AWSConfig()).DescribeVolumes(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := len(volumes.Volumes); got > 0 {
		w.t.Errorf("after destroy there are %d volumes", got)
	}
}

// allowed checks that no role was refused anything.
func (w *world) allowed() {
	w.t.Helper()
	for _, refusal := range w.IAM.Refusals() {
		if refusal.Access.Action == "logs:CreateLogGroup" {
			continue // Lambda would make the log group, which the stack has made
		}
		w.t.Errorf("%s is not allowed %s on %s", refusal.Principal.Role, refusal.Access.Action, refusal.Access.Resource)
	}
}
