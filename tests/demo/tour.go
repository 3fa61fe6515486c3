package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

// tour is the state of the demo; each step uses what those before it made.
type tour struct {
	terminal  *terminal
	root      string // of the repository
	tools     string // the folder of pulumi and etcd
	work      string // a temporary folder for everything
	region    *region.Region
	stack     *stack.Stack
	cluster   *scenario.Cluster
	view      scenario.View // what was seen last
	chronicle scenario.Chronicle
	failed    []string // the instances that became unhealthy in this step
	giveUp    func(error)
	durations []duration
}

// duration is how long something took.
type duration struct {
	what   string
	took   time.Duration
	target time.Duration // 0 where there is none
}

func newTour(terminal *terminal) (*tour, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		return nil, errors.New("ETCFS_TOOLS does not name the folder of pulumi and etcd; use `make demo`")
	}
	work, err := os.MkdirTemp("", "etcfs-demo-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary folder: %w", err)
	}
	return &tour{terminal: terminal, root: root, tools: tools, work: work}, nil
}

// close ends the region with everything in it and removes what is on disk.
func (t *tour) close(ctx context.Context) error {
	var failures []error
	if t.region != nil {
		t.terminal.Status("stopping the region")
		failures = append(failures, t.region.Close(ctx))
	}
	return errors.Join(append(failures, os.RemoveAll(t.work))...)
}

func (t *tour) took(what string, took, target time.Duration) {
	t.durations = append(t.durations, duration{what, took, target})
}
