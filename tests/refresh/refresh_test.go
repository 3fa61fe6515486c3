// Package refresh_test updates clusters whose nodes really run, through the
// real Pulumi CLI: a new launch template replaces one node after the other,
// while clients write.
package refresh_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/tests/fault"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
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

// newWorld makes a cluster, and returns when pulumi up does: with mounted nodes.
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
	w.up()
	outputs, err := w.stack.Outputs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.group, w.volume = fmt.Sprint(outputs["group"]), fmt.Sprint(outputs["volume"])
	w.Cluster = scenario.Open(w.AWSConfig(), scenario.Names{
		Cluster: "demo", Group: w.group, LogGroup: "/aws/lambda/" + fmt.Sprint(outputs["function"]),
	})
	return w
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
	before := w.settled()
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

// A template that no node can boot from takes no node away, and another pulumi
// up puts its own in place of it, in the middle of the refresh.
func TestTemplateThatCannotBootIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.settled()
	w.journal.forget()
	watch := w.watch(before)

	w.set("etcfsVersion", "0.99.0") // there is no such release
	w.up()
	within, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := poll(within, func() error {
		if tries := w.journal.count(failed); tries < 2 {
			return fmt.Errorf("%d launches have failed", tries)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
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

// destroyed destroys the stack with its nodes running.
func (w *world) destroyed() {
	w.t.Helper()
	begun := time.Now()
	if err := w.stack.Destroy(w.t.Context()); err != nil {
		w.t.Fatalf("%v\n%s", err, &w.output)
	}
	w.t.Logf("destroy took %s", time.Since(begun).Round(100*time.Millisecond))
	for _, instance := range w.EC2.Instances() {
		if instance.State != "terminated" {
			w.t.Errorf("after destroy %s is %s", instance.ID, instance.State)
		}
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
