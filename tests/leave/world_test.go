// Package leave proves the way of a terminating node out of its cluster as a
// whole: the component's own resources in a region, the deployed binary behind
// the Lambda runtime API with exactly the permissions that it is deployed with,
// real lifecycle hooks, rules and Run Command, and whatever can go wrong on
// that way. Where nothing depends on etcd, the nodes are in memory; etcd_test.go
// has real ones.
package leave_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/cenkalti/backoff/v5"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

// bin is where `make build` leaves the binaries.
const bin = "../../bin"

// shared is the one region of the tests whose nodes are in memory.
var shared *world

// The test program is the stand-in program of the machines too.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	// These tests wait more than they compute. But each has a process of its own,
	// with seconds to do its work in.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err) // package testing has the flag
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	work, err := os.MkdirTemp("", "etcfs-leave-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(work)
	if missing() != "" {
		return m.Run() // the tests say why they skip
	}
	ctx := context.Background()
	if shared, err = newWorldInMemory(ctx, work); err != nil {
		fmt.Fprintf(os.Stderr, "start a region: %v\n", err)
		return 1
	}
	status := m.Run()
	if err := shared.Close(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "close the region: %v\n", err)
		return 1
	}
	return status
}

// missing says what is not there to run these tests, "" when all is.
func missing() string {
	for _, name := range []string{artifact.FunctionName, artifact.BootstrapName} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return name + " is not in bin: run make build"
		}
	}
	if os.Getenv("ETCFS_TOOLS") == "" {
		return "ETCFS_TOOLS does not name the folder of etcd and etcdctl (make test sets it)"
	}
	return ""
}

// world is a region with clusters in it that do not see each other.
type world struct {
	*region.Region
	deployer *deployer
	programs artifact.Bundle

	mu       sync.Mutex
	clusters map[string]*cluster
	made     atomic.Int32
}

// newWorldInMemory starts a region whose machines are in memory.
func newWorldInMemory(ctx context.Context, work string) (*world, error) {
	network, err := process.Reserve()
	if err != nil {
		return nil, err
	}
	folder, programs := filepath.Join(work, "region"), filepath.Join(work, "programs")
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Mkdir(programs, 0o755), bring(programs)); err != nil {
		return nil, errors.Join(err, network.Close())
	}
	machines := &computers{network: network}
	machines.world, err = newWorld(ctx, artifact.Folder(programs), region.Config{
		WorkDir: folder, Computers: machines, InvocationLag: 50 * time.Millisecond,
		RetryIntervals: [2]time.Duration{300 * time.Millisecond, 600 * time.Millisecond},
	})
	return machines.world, err
}

// newWorld starts a region.
func newWorld(ctx context.Context, programs artifact.Bundle, config region.Config) (*world, error) {
	w := &world{programs: programs, clusters: map[string]*cluster{}}
	config.Tools = os.Getenv("ETCFS_TOOLS")
	var err error
	if w.Region, err = region.New(ctx, config); err != nil {
		return nil, err
	}
	w.Intercept(w.intercept)
	w.Events.SetCopies(w.copies)
	if w.deployer, err = newDeployer(ctx, w.Region); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

// bring puts the programs of clusters in memory together: the real function,
// and a stand-in of the node's binary, which nothing runs and every cluster
// uploads.
func bring(folder string) error {
	function, err := filepath.Abs(filepath.Join(bin, artifact.FunctionName))
	if err != nil {
		return err
	}
	return errors.Join(
		os.Symlink(function, filepath.Join(folder, artifact.FunctionName)),
		os.WriteFile(filepath.Join(folder, artifact.BootstrapName), []byte("the node's program"), 0o600))
}

func (w *world) cluster(name string) *cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clusters[name]
}

// each visits the clusters.
func (w *world) each(visit func(*cluster)) {
	w.mu.Lock()
	clusters := slices.Collect(maps.Values(w.clusters))
	w.mu.Unlock()
	for _, c := range clusters {
		visit(c)
	}
}

// intercept hands the calls of a cluster's function to what the test does to
// them, and remembers them.
func (w *world) intercept(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
	var of *cluster
	w.each(func(each *cluster) {
		if c.Principal.Role != "" && c.Principal.Session == each.function() {
			of = each
		}
	})
	if of == nil {
		return next(ctx)
	}
	return of.intercept(ctx, c, next)
}

func (w *world) copies(e events.Event) int {
	copies := 1
	w.each(func(c *cluster) {
		if detail, err := json.Marshal(e.Detail); err == nil && bytes.Contains(detail, []byte(`"`+c.group()+`"`)) {
			copies = c.deliver(e)
		}
	})
	return copies
}

// computers are machines in memory that belong to clusters.
type computers struct {
	fake.Machines

	world   *world
	network *process.Network
}

func (c *computers) Gateway() string { return c.network.Gateway() }

// Subnet is larger than what a region of processes has: clusters are many.
func (c *computers) Subnet() string { return "10.0.0.0/16" }

func (c *computers) Close() error { return c.network.Close() }

func (c *computers) Start(ctx context.Context, spec ec2.MachineSpec) (ec2.Machine, error) {
	machine, err := c.Machines.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	n := &node{Machine: machine, id: spec.InstanceID, cluster: c.world.cluster(spec.Tags[settings.TagClusterName])}
	n.cluster.join(n)
	return n, nil
}

// node is an instance in memory. Its etcd is a line in its cluster's list.
type node struct {
	ec2.Machine

	id      string
	cluster *cluster
	offline atomic.Bool
}

func (n *node) AgentOnline() bool { return !n.offline.Load() }

// removal is the command that the function sends; nothing else may be sent.
var removal = regexp.MustCompile(`^"\$\{ETCFS_ROOT:-\}"/usr/local/bin/etcfs-bootstrap remove-member --timeout 12s --instance-id '(i-[0-9a-f]{17})'(?: --address '([0-9.]+)')?\n$`)

// Execute answers as etcfs-bootstrap does.
func (n *node) Execute(ctx context.Context, script string) (ec2.CommandResult, error) {
	parts := removal.FindStringSubmatch(script)
	if parts == nil {
		n.cluster.t.Errorf("%s was to run %q", n.id, script)
		return ec2.CommandResult{ExitCode: 2}, nil
	}
	n.cluster.mu.Lock()
	answer := n.cluster.answer
	n.cluster.mu.Unlock()
	if answer != nil {
		if result, ok := answer(ctx, n.id); ok {
			return result, ctx.Err()
		}
	}
	return n.cluster.remove(parts[1]), nil
}

// cluster is a cluster in memory, and its function.
type cluster struct {
	t    testing.TB
	w    *world
	name string

	mu      sync.Mutex
	nodes   map[string]*node
	members map[string]bool // by instance
	removed []string        // in order
	calls   []call
	events  []events.Event
	// answer stands in for a node's own answer, when it says so.
	answer func(ctx context.Context, survivor string) (ec2.CommandResult, bool)
	// meddle stands around the function's calls.
	meddle func(ctx context.Context, c *api.Call, next next) (any, error)
	// copiesOf says how often an event is delivered.
	copiesOf func(events.Event) int
}

type next = func(context.Context) (any, error)

// call is one call of the function that arrived, and how AWS answered.
type call struct {
	action string // as IAM calls it
	err    error
	at     time.Time
}

// newCluster deploys a cluster in memory and waits until all its nodes are in
// service.
func newCluster(t testing.TB, nodes int) *cluster {
	t.Helper()
	if reason := missing(); reason != "" {
		t.Skip(reason)
	}
	return shared.deploy(t, nodes, nil)
}

// deploy deploys a cluster of its own, which a test's end leaves without its
// function, and waits until all its nodes are in service.
func (w *world) deploy(t testing.TB, nodes int, inputs map[string]any) *cluster {
	t.Helper()
	c := &cluster{
		t: t, w: w, name: fmt.Sprintf("leave-%d", w.made.Add(1)),
		nodes: map[string]*node{}, members: map[string]bool{},
	}
	w.mu.Lock()
	w.clusters[c.name] = c
	w.mu.Unlock()
	t.Cleanup(c.close)
	all := map[string]any{"clusterName": c.name, "availabilityZone": "eu-west-1a", "minSize": 1, "maxSize": 7, "desiredCapacity": nodes}
	maps.Copy(all, inputs)
	if err := w.deployer.deploy(w.programs, all); err != nil {
		t.Fatal(err)
	}
	c.await("all nodes in service", func() error {
		if n := len(c.inService()); n != nodes {
			return fmt.Errorf("%d of %d", n, nodes)
		}
		return nil
	})
	return c
}

// close ends the function, whose process would stay to the region's end.
func (c *cluster) close() {
	if c.t.Failed() {
		for _, entry := range c.log() {
			c.t.Log(entry)
		}
	}
	_, _ = lambda.NewFromConfig(c.w.AWSConfig()).DeleteFunction(context.Background(), &lambda.DeleteFunctionInput{
		FunctionName: aws.String(c.function()), // it is not there when deploying failed
	})
}

func (c *cluster) group() string    { return c.name + "-asg" }
func (c *cluster) function() string { return c.name + "-graceful-leave" }

func (c *cluster) groups() *autoscaling.Client { return autoscaling.NewFromConfig(c.w.AWSConfig()) }

func (c *cluster) join(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[n.id] = n
	c.members[n.id] = true
}

// remove is what etcd does.
func (c *cluster) remove(instance string) ec2.CommandResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.members[instance] {
		return answer(0, bootstrap.Removal{Result: bootstrap.Absent})
	}
	delete(c.members, instance)
	c.removed = append(c.removed, instance)
	return answer(0, bootstrap.Removal{Result: bootstrap.Removed, MemberID: memberID(instance)})
}

// memberID is the ID of the member of an instance.
func memberID(instance string) string { return instance[len(instance)-16:] }

func answer(exitCode int, r bootstrap.Removal) ec2.CommandResult {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings can be marshalled
	}
	return ec2.CommandResult{ExitCode: exitCode, Stdout: string(text) + "\n"}
}

func (c *cluster) member(instance string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[instance]
}

// change changes how the cluster behaves.
func (c *cluster) change(to func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to()
}

func (c *cluster) intercept(ctx context.Context, request *api.Call, next next) (any, error) {
	c.mu.Lock()
	meddle := c.meddle
	c.mu.Unlock()
	arrive := func(ctx context.Context) (any, error) {
		result, err := next(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, call{request.IAMAction(), err, time.Now()})
		return result, err
	}
	if meddle == nil {
		return arrive(ctx)
	}
	return meddle(ctx, request, arrive)
}

func (c *cluster) deliver(e events.Event) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	if c.copiesOf != nil {
		return c.copiesOf(e)
	}
	return 1
}

// inService lists the nodes that the group counts on.
func (c *cluster) inService() []string {
	c.t.Helper()
	var ids []string
	for id, state := range c.states() {
		if state == "InService" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// states are the lifecycle states of the group's instances.
func (c *cluster) states() map[string]string {
	c.t.Helper()
	out, err := c.groups().DescribeAutoScalingGroups(c.t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{c.group()}})
	if err != nil {
		c.t.Fatal(err)
	}
	states := map[string]string{}
	for _, instance := range out.AutoScalingGroups[0].Instances {
		states[*instance.InstanceId] = string(instance.LifecycleState)
	}
	return states
}

// terminate takes a node away, as a scale-in does.
func (c *cluster) terminate(instance string) {
	c.t.Helper()
	_, err := c.groups().TerminateInstanceInAutoScalingGroup(c.t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &instance, ShouldDecrementDesiredCapacity: aws.Bool(true),
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// timeout changes the function's timeout: it works less long, and keeps the
// same time back.
func (c *cluster) timeout(seconds int32) {
	c.t.Helper()
	_, err := lambda.NewFromConfig(c.w.AWSConfig()).UpdateFunctionConfiguration(c.t.Context(), &lambda.UpdateFunctionConfigurationInput{
		FunctionName: aws.String(c.function()), Timeout: aws.Int32(seconds),
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// signal signals the function's processes.
func (c *cluster) signal(s syscall.Signal) { c.w.Lambda.Signal(c.function(), s) }

// limit is how long these tests wait for anything. It is there much sooner,
// unless the machine is very busy.
const limit = 3 * time.Minute

// await waits until check returns nil.
func (c *cluster) await(what string, check func() error) {
	c.t.Helper()
	_, err := backoff.Retry(c.t.Context(), func() (struct{}, error) { return struct{}{}, check() },
		backoff.WithBackOff(&backoff.ExponentialBackOff{
			InitialInterval: 10 * time.Millisecond, MaxInterval: 200 * time.Millisecond, Multiplier: 1.5, RandomizationFactor: 0.3,
		}), backoff.WithMaxElapsedTime(limit))
	if err != nil {
		c.t.Fatalf("wait for %s: %v", what, err)
	}
}

// gone waits until an instance has left the group.
func (c *cluster) gone(instance string) {
	c.t.Helper()
	c.await(instance+" to be gone", func() error {
		if state, there := c.states()[instance]; there {
			return errors.New(state)
		}
		return nil
	})
}

// log is everything in the function's log group.
func (c *cluster) log() []string {
	c.t.Helper()
	var entries []string
	pages := cloudwatchlogs.NewFilterLogEventsPaginator(cloudwatchlogs.NewFromConfig(c.w.AWSConfig()),
		&cloudwatchlogs.FilterLogEventsInput{LogGroupName: aws.String("/aws/lambda/" + c.function())})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.WithoutCancel(c.t.Context()))
		if err != nil {
			return append(entries, err.Error())
		}
		for _, event := range page.Events {
			entries = append(entries, aws.ToString(event.Message))
		}
	}
	return entries
}

// line is the one line that the function logs about an event.
type line struct {
	Level, Msg, Instance, Cluster, Group, Event, Outcome, Reason, Survivor, Member, Address, Completion string

	CompletionError string `json:"completion_error"`
	Attempts        int
	Asked           []asked
	Notes           []string
	Events          int
	Duration        *int64
	Metrics         json.RawMessage `json:"_aws"`
}

type asked struct{ Survivor, Result, Reason string }

// told is every line that the function has written so far.
func (c *cluster) told() []line {
	c.t.Helper()
	var lines []line
	for _, entry := range c.log() {
		var l line
		if json.Unmarshal([]byte(entry), &l) == nil && l.Msg == "scale-in" {
			lines = append(lines, l)
		}
	}
	return lines
}

// lines waits for so many lines about an instance, and returns them in order.
func (c *cluster) lines(instance string, count int) []line {
	c.t.Helper()
	var lines []line
	c.await(fmt.Sprintf("%d lines about %s", count, instance), func() error {
		lines = slices.DeleteFunc(c.told(), func(l line) bool { return l.Instance != instance })
		if len(lines) < count {
			return fmt.Errorf("%d so far", len(lines))
		}
		return nil
	})
	if len(lines) > count {
		c.t.Errorf("the function told %d times of %s, want %d", len(lines), instance, count)
	}
	return lines
}

// What can be done to the function's calls.

// refused answers calls of one action with an error, so many times; fewer than
// none is forever.
func refused(action string, times int, status int, code string) func(context.Context, *api.Call, next) (any, error) {
	left := times
	var mu sync.Mutex
	return func(ctx context.Context, c *api.Call, next next) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		if c.Action != action || left == 0 {
			return next(ctx)
		}
		left--
		return nil, api.Errorf(status, code, "a fault was injected")
	}
}

// lost loses the answer to the first call of each action, which happened if
// the call is let through.
func lost(through bool, actions ...string) func(context.Context, *api.Call, next) (any, error) {
	var seen sync.Map
	return func(ctx context.Context, c *api.Call, next next) (any, error) {
		if _, again := seen.LoadOrStore(c.Action, true); again || !slices.Contains(actions, c.Action) {
			return next(ctx)
		}
		if through {
			if _, err := next(ctx); err != nil {
				return nil, err
			}
		}
		return nil, api.ErrDropped
	}
}

// once does something else in place of the first call of an action.
func once(action string, instead func() (any, error)) func(context.Context, *api.Call, next) (any, error) {
	var done atomic.Bool
	return func(ctx context.Context, c *api.Call, next next) (any, error) {
		if c.Action != action || done.Swap(true) {
			return next(ctx)
		}
		return instead()
	}
}

// denied is IAM's answer to a call of any protocol.
func denied(c *api.Call) error {
	code := map[api.Protocol]string{api.EC2Query: "UnauthorizedOperation", api.JSON: "AccessDeniedException"}[c.Service.Protocol]
	if code == "" {
		code = "AccessDenied"
	}
	return api.Errorf(http.StatusForbidden, code, "not authorized to perform: %s", c.IAMAction())
}

// deniedUntilCompleted denies an action until a lifecycle action was tried to
// complete for the first time.
func deniedUntilCompleted(action string) func(context.Context, *api.Call, next) (any, error) {
	var tried atomic.Bool
	return func(ctx context.Context, c *api.Call, next next) (any, error) {
		refuse := c.Action == action && !tried.Load()
		if c.Action == "CompleteLifecycleAction" {
			tried.Store(true)
		}
		if refuse {
			return nil, denied(c)
		}
		return next(ctx)
	}
}
