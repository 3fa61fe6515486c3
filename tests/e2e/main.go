// E2e tells the life of a cluster on systemd machines: the user data that the
// real Pulumi CLI has put into a launch template runs unchanged on machines
// that boot as EC2 instances do (see tests/host). Run it by `make e2e`: it
// needs root, the binaries in bin/ and, in ETCFS_TOOLS, the folder of the tools.
//
// Its last line is "e2e: ok", or "e2e: skipped: REASON" on a machine where
// systemd machines cannot run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/host"
)

const usage = `E2e tells the life of an EtcFS cluster on systemd machines, on this machine only. It
takes some minutes, needs root, systemd-nspawn and debootstrap, and leaves
nothing behind but the machines' disk in the user's cache folder.

Usage: make e2e, or, at the root of the repository after make build,
ETCFS_TOOLS=$(make -s tools) bin/region/e2e

ETCFS_E2E_VERBOSE=1 in the environment shows what the region does, too.
`

func main() {
	flags := flag.NewFlagSet("e2e", flag.ExitOnError) // the common one has flags of what is imported
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	// The program gives them to itself, in its namespaces.
	image := flags.String("image", "", "folder of the machines' disk")
	work := flags.String("work", "", "empty folder for everything that is written")
	_ = flags.Parse(os.Args[1:]) // it exits instead
	if flags.NArg() > 0 {
		flags.Usage()
		os.Exit(2)
	}
	// Whatever ends the story, everything is cleaned up; that is a matter of
	// seconds, so a second Ctrl-C does not cut it short.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A reader that goes away must end the story, and not just kill the program.
	signal.Ignore(syscall.SIGPIPE)
	if host.Inside() {
		ctx, gone := context.WithCancelCause(ctx)
		if err := tell(ctx, &reader{gone}, *image, *work); err != nil {
			fmt.Println("\ne2e:", err)
			os.Exit(1)
		}
		return
	}
	status, err := prepare(ctx)
	if err != nil {
		fmt.Println("\ne2e:", err)
		status = 1
	}
	if err == nil && status == 0 {
		fmt.Println("e2e: ok")
	}
	if errors.Is(err, errUnusable) {
		status = 0
	}
	os.Exit(status)
}

// reader is who reads the story. When nobody does any more, it ends.
type reader struct{ gone context.CancelCauseFunc }

// Write writes to standard output.
func (r *reader) Write(p []byte) (int, error) {
	n, err := os.Stdout.Write(p)
	if err != nil {
		r.gone(err)
	}
	return n, err
}

var errUnusable = errors.New("skipped")

// prepare makes what outlives the namespaces, and enters them.
func prepare(ctx context.Context) (status int, err error) {
	if reason := host.Unusable(ctx); reason != "" {
		return 0, fmt.Errorf("%w: %s", errUnusable, reason)
	}
	if err := host.Sweep(); err != nil {
		return 0, fmt.Errorf("sweep what an earlier run left: %w", err)
	}
	defer func() { err = errors.Join(err, host.Sweep()) }()
	cache, err := os.UserCacheDir()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	image, err := host.Image(ctx, filepath.Join(cache, "pulumi-etcfs", "host"), func(line string) { fmt.Println(line) })
	if err != nil {
		return 0, err
	}
	fmt.Printf("image: ready after %.1f s\n", time.Since(start).Seconds())
	work, err := os.MkdirTemp("", "etcfs-e2e-")
	if err != nil {
		return 0, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	return host.Enter(ctx, "-image="+image, "-work="+work)
}
