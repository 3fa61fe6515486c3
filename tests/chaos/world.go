package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/etcfs/pulumi-etcfs/tests/fault"
	"github.com/etcfs/pulumi-etcfs/tests/invariant"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

// world is a region with a cluster that the real Pulumi CLI deploys, and what
// watches it.
type world struct {
	*fault.World
	journal   *journal
	root      string // of the repository
	tools     string // the folder of pulumi and etcd
	work      string // a temporary folder for everything
	cluster   *scenario.Cluster
	recorder  *recorder
	chronicle scenario.Chronicle
	group     string

	// watching ends with the world.
	watching context.Context //nolint:containedctx // samplers and clients live as long as the world
	unwatch  context.CancelFunc
	watchers sync.WaitGroup
}

// heartbeat is the lifecycle hook's, shorter than the component's own, so that
// an event that is lost costs a run one minute and not three.
const heartbeat = time.Minute

// firstNodes is how many nodes form the cluster.
const firstNodes = 3

func newWorld(ctx context.Context, j *journal, p plan) (_ *world, err error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		return nil, errors.New("ETCFS_TOOLS does not name the folder of pulumi and etcd; use `make chaos`")
	}
	w := &world{journal: j, root: root, tools: tools, recorder: newRecorder(j)}
	w.watching, w.unwatch = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
		}
	}()
	if w.work, err = os.MkdirTemp("", "etcfs-chaos-work-"); err != nil {
		return nil, fmt.Errorf("create a temporary folder: %w", err)
	}
	folder := filepath.Join(w.work, "region")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, fmt.Errorf("create the region's folder: %w", err)
	}
	r, err := region.New(ctx, region.Config{
		WorkDir: folder, Standin: filepath.Join(root, "bin", "region", "standin"), Tools: tools,
		AgentDelay: time.Second, InstanceStore: true, InvocationLag: 300 * time.Millisecond,
		RetryIntervals: [2]time.Duration{5 * time.Second, 10 * time.Second}, Logger: j.logger,
	})
	if err != nil {
		return nil, err
	}
	w.World = fault.NewWorld(r, "", p.seed, w.recorder) // deploy names the cluster
	r.Intercept(w.recorder.call)
	r.EC2.Watch(w.changed)
	return w, nil
}

// deployLimit is how long deploying may take, whatever hinders it.
const deployLimit = 5 * time.Minute

// deploy runs pulumi up.
func (w *world) deploy(ctx context.Context, maxSize int) error {
	w.journal.tell("pulumi up")
	ctx, cancel := context.WithTimeoutCause(ctx, deployLimit, fmt.Errorf("the cluster is not deployed within %s", deployLimit))
	defer cancel()
	s, err := stack.New(ctx, stack.Config{
		Folder:      w.work,
		Program:     filepath.Join(w.root, "examples", "go"),
		Replace:     map[string]string{"github.com/etcfs/pulumi-etcfs/sdk": filepath.Join(w.root, "sdk")},
		Tools:       w.tools,
		Plugins:     map[string]string{"etcfs": filepath.Join(w.root, "bin"), "aws": filepath.Join(w.root, "bin", "region")},
		Environment: w.Region.Environment(),
		Output:      io.Discard, // a failure repeats it
	})
	if err != nil {
		return err
	}
	for key, value := range map[string]string{
		"releasesUrl": w.Region.ReleasesURL(), "maxSize": fmt.Sprint(maxSize), "desiredCapacity": fmt.Sprint(firstNodes),
		"volumeSize": fmt.Sprint(max(10, maxSize)), // each node takes a GiB at a time
	} {
		if err := s.Set(ctx, key, value); err != nil {
			return err
		}
	}
	if err := s.Up(ctx); err != nil {
		return err
	}
	outputs, err := s.Outputs(ctx)
	if err != nil {
		return err
	}
	names := scenario.Names{Cluster: fmt.Sprint(outputs["clusterName"]), Group: fmt.Sprint(outputs["autoScalingGroupName"])}
	w.World.Cluster, w.group = names.Cluster, names.Group
	w.cluster = scenario.Open(w.Region.AWSConfig(), names)
	_, err = autoscaling.NewFromConfig(w.Region.AWSConfig()).PutLifecycleHook(ctx, &autoscaling.PutLifecycleHookInput{
		AutoScalingGroupName: &w.group, LifecycleHookName: aws.String(fmt.Sprint(outputs["gracefulLeaveFunctionName"])),
		HeartbeatTimeout: aws.Int32(int32(heartbeat.Seconds())),
	})
	if err != nil {
		return fmt.Errorf("shorten the hook's heartbeat: %w", err)
	}
	return nil
}

// changed follows an instance; a new one's etcd is sampled from now on.
func (w *world) changed(i ec2.Instance) {
	w.recorder.changed(i)
	if i.State == ec2.StateRunning && i.PrivateIP != "" {
		ctx, cancel := context.WithCancel(w.watching)
		if machine := w.Region.Machines.Machine(i.ID); machine != nil {
			go func() { <-machine.Exited(); cancel() }()
		}
		w.watchers.Go(func() { defer cancel(); w.recorder.sample(ctx, i.PrivateIP) })
	}
}

// form waits for the first nodes and lets the clients begin.
func (w *world) form(ctx context.Context) error {
	if _, err := w.settle(ctx, firstNodes); err != nil {
		return err
	}
	for number := range clients {
		w.watchers.Go(func() {
			if err := client(w.watching, w.World, w.recorder, number); err != nil {
				w.journal.tell("%v", err)
			}
		})
	}
	return nil
}

// settleLimit is how long the cluster may take to be as it should.
const settleLimit = 3 * time.Minute

func (w *world) settle(ctx context.Context, nodes int) (scenario.View, error) {
	w.journal.tell("waiting for %d nodes", nodes)
	view, err := w.cluster.Await(ctx, settleLimit, scenario.Settled(nodes), w)
	if timeout, ok := errors.AsType[*scenario.TimeoutError](err); ok {
		for _, n := range timeout.View.Nodes {
			w.journal.tell("%s %s, member %s, mounted %t, healthy %t, %s", n.InstanceID, n.Address, n.Member, n.Mounted, n.Healthy, n.GroupState)
		}
	}
	return view, err
}

// Look tells what has changed.
func (w *world) Look(_ scenario.Expectation, v scenario.View, _ string, _ time.Duration) {
	for _, change := range w.chronicle.Tell(v) {
		w.journal.tell("%s", change)
	}
}

// joinAtOnce lets nodes join all at once and measures how the clients fare.
func (w *world) joinAtOnce(ctx context.Context, nodes int) error {
	from := time.Now()
	if err := w.cluster.Scale(ctx, firstNodes+nodes); err != nil {
		return err
	}
	if _, err := w.settle(ctx, firstNodes+nodes); err != nil {
		return err
	}
	took := time.Since(from)
	fmt.Printf("chaos: %d nodes joined 3 at once in %s: %s\n", nodes, took.Round(100*time.Millisecond), measured(w.recorder.snapshot(), from, time.Now()))
	return nil
}

// finish sets down how the history ends, and how many nodes there should be.
func (w *world) finish(v scenario.View, nodes int) *invariant.History {
	h := w.recorder.snapshot()
	h.Ended, h.Wanted = time.Now(), nodes
	for i := range h.Instances {
		for _, n := range v.Nodes {
			if n.InstanceID == h.Instances[i].ID {
				h.Instances[i].Mounted = n.Mounted
			}
		}
	}
	return h
}

// consoles keeps what the machines that are there have written.
func (w *world) consoles() error {
	if w.World == nil {
		return nil
	}
	var problems []error
	for _, instance := range w.Region.EC2.Instances() {
		if machine := w.Region.Machines.Machine(instance.ID); machine != nil {
			problems = append(problems, os.WriteFile(w.journal.path("console-"+instance.ID+".txt"), []byte(machine.Console()), 0o644))
		}
	}
	return errors.Join(problems...)
}

func (w *world) close(ctx context.Context) error {
	w.unwatch()
	w.watchers.Wait()
	var problems []error
	if w.World != nil {
		w.World.Close()
		problems = append(problems, w.Region.Close(ctx))
	}
	return errors.Join(append(problems, os.RemoveAll(w.work))...)
}
