package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/host"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

// chapters is the story.
var chapters = []chapter{
	{"a region whose instances are systemd machines", (*story).startRegion},
	{"pulumi up: three nodes", (*story).up},
	{"a file written on one node is read on the others", (*story).share},
	{"etcfuse is killed", (*story).killDaemon},
	{"scale out to five nodes", scale(5)},
	{"scale in to three nodes", (*story).scaleIn},
	{"a node loses its power", (*story).loseNode},
	{"a node is cut off", (*story).cutOff},
	{"a node reboots", (*story).reboot},
	{"a node whose daemon never mounts", (*story).neverMount},
	{"pulumi destroy", (*story).destroy},
	{"a release of EtcFS without configuration file", (*story).olderRelease},
}

type chapter struct {
	title string
	run   func(*story, context.Context) error
}

// story is the state; each chapter uses what those before it made.
type story struct {
	out         io.Writer
	image, work string
	root        string // of the repository
	tools       string // the folder of pulumi and etcd
	start       time.Time
	machines    *host.Machines
	region      *region.Region
	stack       *stack.Stack
	cluster     *scenario.Cluster
	view        scenario.View // what was seen last
	chronicle   scenario.Chronicle
	lines       []string // what the chapters took
}

// cleanupPatience is how long everything may take to stop.
const cleanupPatience = 45 * time.Second

func tell(ctx context.Context, out io.Writer, image, work string) (err error) {
	if err := host.Settle(ctx); err != nil {
		return err
	}
	s := &story{out: out, image: image, work: work, tools: os.Getenv("ETCFS_TOOLS"), start: time.Now()}
	if s.root, err = os.Getwd(); err != nil {
		return err
	}
	if s.tools == "" {
		return errors.New("ETCFS_TOOLS does not name the folder of pulumi and etcd; use `make e2e`")
	}
	defer func() {
		if closing := within(context.WithoutCancel(ctx), cleanupPatience, s.close); closing != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", closing))
		}
	}()
	for i, c := range chapters {
		s.print("\n== %d/%d %s\n", i+1, len(chapters), c.title)
		start := time.Now()
		if err := within(ctx, chapterLimit, func(ctx context.Context) error { return c.run(s, ctx) }); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("chapter %d, %s: %w", i+1, c.title, context.Cause(ctx))
			}
			s.explain(context.WithoutCancel(ctx), err)
			return fmt.Errorf("chapter %d, %s: %w", i+1, c.title, err)
		}
		s.lines = append(s.lines, fmt.Sprintf("%6.1f s  %s", time.Since(start).Seconds(), c.title))
	}
	s.print("\n")
	for _, line := range s.lines {
		s.print("   %s\n", line)
	}
	s.print("   %6.1f s  all of it\n", time.Since(s.start).Seconds())
	return nil
}

// chapterLimit is how long a chapter may take. What it waits for has shorter
// limits of its own, but for Pulumi and machines that boot again.
const chapterLimit = 10 * time.Minute

// within runs something that is interrupted when it takes too long, and is not
// waited for when that does not help: the end of the program ends everything.
func within(ctx context.Context, limit time.Duration, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(interruptPatience):
		return context.Cause(ctx)
	}
}

// interruptPatience is how long something may take to end that was interrupted.
const interruptPatience = 30 * time.Second

func (s *story) print(format string, arguments ...any) {
	fmt.Fprintf(s.out, format, arguments...) // the reader ends the story
}

// say tells a line of the present chapter.
func (s *story) say(format string, arguments ...any) {
	s.print("  %6.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, arguments...))
}

func (s *story) close(ctx context.Context) error {
	switch {
	case s.region != nil:
		return s.region.Close(ctx)
	case s.machines != nil:
		return s.machines.Close()
	}
	return nil
}

// explain shows the consoles of the nodes that a failure is about.
func (s *story) explain(ctx context.Context, err error) {
	timeout := (*scenario.TimeoutError)(nil)
	if !errors.As(err, &timeout) {
		return
	}
	for _, n := range timeout.View.Nodes {
		s.say("%s %s, member %s, mounted %t, %s", n.InstanceID, n.Address, n.Member, n.Mounted, n.GroupState)
	}
	for _, id := range timeout.Concerned() {
		const lines = 60
		console, err := s.cluster.Console(ctx, id, lines)
		if err != nil {
			console = err.Error()
		}
		s.print("\nconsole of %s, its last %d lines:\n%s\n", id, lines, console)
	}
}

func (s *story) startRegion(ctx context.Context) (err error) {
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("ETCFS_E2E_VERBOSE") != "" {
		logger = slog.New(slog.NewTextHandler(s.out, nil))
	}
	folders := map[string]string{"machines": "", "region": "", "stack": ""}
	for name := range folders {
		folders[name] = filepath.Join(s.work, name)
		if err := os.Mkdir(folders[name], 0o755); err != nil {
			return fmt.Errorf("make the work folder: %w", err)
		}
	}
	s.machines, err = host.New(ctx, host.Config{
		Image: s.image, WorkDir: folders["machines"], Program: filepath.Join(s.root, "bin", "region", "standin"),
		Region: regionName, Logger: logger,
	})
	if err != nil {
		return err
	}
	s.region, err = region.New(ctx, region.Config{
		WorkDir: folders["region"], Tools: s.tools, Region: regionName, Computers: s.machines, EtcFS: releases[0], Logger: logger,
	})
	if err != nil {
		return err
	}
	s.machines.Serve(s.region.Handler())
	for _, older := range releases[1:] {
		if err := s.region.Releases.PublishEtcFS(older); err != nil {
			return err
		}
	}
	s.stack, err = stack.New(ctx, stack.Config{
		Folder: folders["stack"], Program: filepath.Join(s.root, "tests", "e2e", "program"), Tools: s.tools,
		Plugins:     map[string]string{"etcfs": filepath.Join(s.root, "bin"), "aws": filepath.Join(s.root, "bin", "region")},
		Environment: s.region.Environment(),
		Output:      io.Discard,
	})
	if err != nil {
		return err
	}
	return s.stack.Set(ctx, "releasesUrl", s.region.ReleasesURL())
}

const regionName = "eu-west-1"
