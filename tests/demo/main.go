// Demo is a tour of a cluster's life on a machine without an AWS account: a
// region in a box is started, the real Pulumi CLI deploys examples/go into it,
// three nodes form a cluster, which grows to five, shrinks to three, loses its
// leader, recovers, and is destroyed. Run it by `make demo`: it needs the
// binaries in bin/ and, in ETCFS_TOOLS, the folder of the tools.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

// steps is the tour.
var steps = []step{
	{"start a region in a box", (*tour).startRegion, 0},
	{"create a stack of examples/go", (*tour).createStack, 0},
	{"pulumi up", (*tour).up, 5 * time.Second},
	{"three nodes form a cluster", form(3), 0},
	{"scale out to five nodes", scale(5), 0},
	{"scale in to three nodes", scaleIn(3), 0},
	{"lose the leader", (*tour).killLeader, 0},
	{"pulumi up again: no changes", (*tour).upAgain, 0},
	{"pulumi destroy", (*tour).destroy, 0},
}

type step struct {
	title string
	run   func(*tour, context.Context) error
	// target is how long it should take at most, 0 where that does not matter.
	target time.Duration
}

const usage = `Demo shows the life of an EtcFS cluster in a region in a box, on this machine only:
up, three nodes, scale to five and back, lose the leader, destroy. It leaves
nothing behind.

Usage: make demo, or, at the root of the repository after make build,
ETCFS_TOOLS=$(make -s tools) bin/region/demo
`

func main() {
	flags := flag.NewFlagSet("demo", flag.ExitOnError) // the common one has flags of what is imported
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	_ = flags.Parse(os.Args[1:]) // it exits instead
	if flags.NArg() > 0 {
		flags.Usage()
		os.Exit(2)
	}
	// Whatever ends the tour, everything is cleaned up; that is a matter of
	// seconds, so a second Ctrl-C does not cut it short.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A reader that goes away must end the tour, and not just kill it: with
	// somebody to notify, the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	terminal := newTerminal(os.Stdout, cancel)
	if err := run(ctx, terminal); err != nil {
		terminal.Printf("\ndemo: %v\n", err)
		os.Exit(1)
	}
	terminal.Printf("demo: ok\n")
}

// cleanupPatience is how long everything may take to stop.
const cleanupPatience = 30 * time.Second

func run(ctx context.Context, terminal *terminal) (err error) {
	t, err := newTour(terminal)
	if err != nil {
		return err
	}
	defer func() {
		if closing := within(context.WithoutCancel(ctx), cleanupPatience, t.close); closing != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", closing))
		}
	}()

	start := time.Now()
	for i, s := range steps {
		terminal.Heading(fmt.Sprintf("%d/%d %s", i+1, len(steps), s.title))
		began := time.Now()
		if err := within(ctx, stepLimit, func(ctx context.Context) error { return s.run(t, ctx) }); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("step %d, %s: %w", i+1, s.title, context.Cause(ctx))
			}
			t.explain(context.WithoutCancel(ctx), err)
			return fmt.Errorf("step %d, %s: %w", i+1, s.title, err)
		}
		t.took(fmt.Sprintf("%d %s", i+1, s.title), time.Since(began), s.target)
	}
	t.took("all of it", time.Since(start), 0)
	terminal.Durations(t.durations)
	return nil
}

// stepLimit is how long a step may take. What it waits for has shorter limits
// of its own, but for Pulumi.
const stepLimit = 5 * time.Minute

// within runs something that is interrupted when it takes too long.
func within(ctx context.Context, limit time.Duration, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	return run(ctx)
}

const (
	// consoles is of how many nodes a failure shows the console.
	consoles = 3
	// consoleLines is how much of it.
	consoleLines = 40
)

// explain shows the cluster and the consoles of nodes that a failure is about.
func (t *tour) explain(ctx context.Context, err error) {
	concerned := t.failed
	if timeout := (*scenario.TimeoutError)(nil); errors.As(err, &timeout) {
		concerned = append(concerned, timeout.Concerned()...)
	}
	if len(concerned) == 0 {
		return
	}
	t.terminal.Nodes(t.view)
	for _, id := range concerned[:min(consoles, len(concerned))] {
		console, err := t.cluster.Console(ctx, id, consoleLines)
		if err != nil {
			console = err.Error()
		}
		t.terminal.Printf("\nconsole of %s, its last %d lines:\n", id, consoleLines)
		fmt.Fprintln(t.terminal.Indented(), console)
	}
}
