package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

// settleLimit is how long the cluster may take to settle: several times what
// it needs on two slow cores.
const settleLimit = 2 * time.Minute

func (t *tour) startRegion(ctx context.Context) error {
	work := filepath.Join(t.work, "region")
	if err := os.Mkdir(work, 0o755); err != nil {
		return fmt.Errorf("create the region's folder: %w", err)
	}
	var err error
	t.region, err = region.New(ctx, region.Config{
		WorkDir: work,
		Standin: filepath.Join(t.root, "bin", "region", "standin"),
		Tools:   t.tools,
	})
	if err != nil {
		return err
	}
	t.terminal.Printf("   AWS endpoint %s, releases at %s\n", t.region.Endpoint(), t.region.ReleasesURL())
	return nil
}

func (t *tour) createStack(ctx context.Context) error {
	program := filepath.Join(t.root, "examples", "go")
	t.terminal.Printf("   compile %s and the Pulumi SDK, minutes the first time\n", program)
	var err error
	t.stack, err = stack.New(ctx, stack.Config{
		Folder:      t.work,
		Program:     program,
		Replace:     map[string]string{"github.com/etcfs/pulumi-etcfs/sdk": filepath.Join(t.root, "sdk")},
		Tools:       t.tools,
		Plugins:     map[string]string{"etcfs": filepath.Join(t.root, "bin"), "aws": filepath.Join(t.root, "bin", "region")},
		Environment: t.region.Environment(),
		Output:      t.pulumiOutput(),
	})
	if err != nil {
		return err
	}
	return t.stack.Set(ctx, "releasesUrl", t.region.ReleasesURL())
}

// pulumiOutput shows what Pulumi has done; what it is about to do is a status.
func (t *tour) pulumiOutput() io.Writer {
	return &lines{print: func(line string) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.Contains(line, " creating ("), strings.Contains(line, " deleting ("), strings.HasPrefix(line, "@ "):
			t.terminal.Status(line)
		default:
			t.terminal.Printf("   | %s\n", line)
		}
	}}
}

func (t *tour) up(ctx context.Context) error { return t.stack.Up(ctx) }

// open finds the cluster by the stack's outputs.
func (t *tour) open(ctx context.Context) error {
	outputs, err := t.stack.Outputs(ctx)
	if err != nil {
		return err
	}
	t.cluster = scenario.Open(t.region.AWSConfig(), scenario.Names{
		Cluster:  fmt.Sprint(outputs["clusterName"]),
		Group:    fmt.Sprint(outputs["autoScalingGroupName"]),
		LogGroup: "/aws/lambda/" + fmt.Sprint(outputs["gracefulLeaveFunctionName"]),
	})
	return nil
}

// settle waits until the cluster is as expected, and shows it.
func (t *tour) settle(ctx context.Context, expectation scenario.Expectation) error {
	ctx, t.giveUp = context.WithCancelCause(ctx)
	defer t.giveUp(nil)
	t.failed = nil
	view, err := t.cluster.Await(ctx, settleLimit, expectation, t)
	if err != nil {
		return err
	}
	t.terminal.Nodes(view)
	return nil
}

// tolerated is how many nodes may fail in one step. The group replaces them
// without end, but more than these show a fault that waiting does not mend.
const tolerated = 3

// Look shows what has changed since the last look, and what is missing.
func (t *tour) Look(e scenario.Expectation, v scenario.View, missing string, elapsed time.Duration) {
	for _, change := range t.chronicle.Tell(v) {
		t.terminal.Printf("   %5.1f s  %s\n", elapsed.Seconds(), change)
	}
	t.view = v
	for _, n := range v.Nodes {
		if !n.Healthy && !slices.Contains(t.failed, n.InstanceID) {
			t.failed = append(t.failed, n.InstanceID)
		}
	}
	if len(t.failed) > tolerated {
		t.giveUp(fmt.Errorf("%d nodes failed: %s", len(t.failed), strings.Join(t.failed, ", ")))
	}
	if missing != "" {
		t.terminal.Status(fmt.Sprintf("waiting for %s, %.0f s: %s", e.Name, elapsed.Seconds(), missing))
	}
}

// form waits for the first nodes, which boot since "pulumi up" made their group.
func form(nodes int) func(*tour, context.Context) error {
	return func(t *tour, ctx context.Context) error {
		if err := t.open(ctx); err != nil {
			return err
		}
		if err := t.settle(ctx, scenario.Settled(nodes)); err != nil {
			return err
		}
		launched := time.Now()
		for _, n := range t.view.Nodes {
			if n.Launched.Before(launched) {
				launched = n.Launched
			}
		}
		t.took("  from launch to the last mount", time.Since(launched), 30*time.Second)
		return nil
	}
}

func scale(nodes int) func(*tour, context.Context) error {
	return func(t *tour, ctx context.Context) error {
		if err := t.cluster.Scale(ctx, nodes); err != nil {
			return err
		}
		return t.settle(ctx, scenario.Settled(nodes))
	}
}

// scaleIn scales, and shows what the graceful-leave function did for each node
// that went.
func scaleIn(nodes int) func(*tour, context.Context) error {
	return func(t *tour, ctx context.Context) error {
		leaving := len(t.view.Nodes) - nodes
		if err := scale(nodes)(t, ctx); err != nil {
			return err
		}
		t.terminal.Printf("   lifecycle hook, rule and function ran a command on a survivor for each:\n")
		leaves, err := t.cluster.Leaves(ctx)
		if err != nil {
			return err
		}
		t.terminal.Leaves(leaves)
		return allRemoved(leaves, leaving)
	}
}

// allRemoved checks that the members went by way of the function, not by some
// later join.
func allRemoved(leaves []scenario.Leave, want int) error {
	removed := 0
	for _, l := range leaves {
		if l.Outcome == "removed" {
			removed++
		}
	}
	if removed != want {
		return fmt.Errorf("the graceful-leave function removed %d members, not %d", removed, want)
	}
	return nil
}

func (t *tour) killLeader(ctx context.Context) error {
	leader, err := t.view.Leader()
	if err != nil {
		return err
	}
	t.terminal.Printf("   power off %s, %s\n", leader.InstanceID, leader.Address)
	if err := t.region.Kill(leader.InstanceID); err != nil {
		return fmt.Errorf("kill %s: %w", leader.InstanceID, err)
	}
	return t.settle(ctx, scenario.Settled(len(t.view.Nodes)).Without(leader.InstanceID))
}

func (t *tour) upAgain(ctx context.Context) error { return t.stack.Up(ctx, "--expect-no-changes") }

func (t *tour) destroy(ctx context.Context) error {
	if err := t.stack.Destroy(ctx, "--remove"); err != nil {
		return err
	}
	left, err := t.cluster.Instances(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("instances are left: %v", left)
	}
	return nil
}
