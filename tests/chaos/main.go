// Chaos runs a cluster in a region in a box, does to it whatever the catalogue
// of faults holds, in an order that the seed decides, while clients write and
// read through etcd, and judges what happened. Run it by `make chaos`: it needs
// the binaries in bin/ and, in ETCFS_TOOLS, the folder of the tools.
//
// A seed repeats the choice of faults and targets as far as the cluster takes
// the same course; processes and clocks are real.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const usage = `Chaos injects faults into an EtcFS cluster in a region in a box, on this machine
only, and judges what came of it. When something was wrong it leaves the log of
all that happened, and says where.

Usage: make chaos DURATION=1m SEED=1, or, at the root of the repository after
make build, ETCFS_TOOLS=$(make -s tools) bin/region/chaos [flags]

`

func main() {
	flags := flag.NewFlagSet("chaos", flag.ExitOnError) // the common one has flags of what is imported
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	duration := flags.Duration("duration", 10*time.Minute, "how long faults are injected; forming and settling come on top")
	seedText := flags.String("seed", "", "seed of every choice, random when it is empty")
	only := flags.String("faults", "", "names of the only faults to inject, separated by commas")
	nodes := flags.Int("join", 0, "no faults: let so many nodes join three at once, and measure")
	_ = flags.Parse(os.Args[1:]) // it exits instead
	if flags.NArg() > 0 {
		flags.Usage()
		os.Exit(2)
	}

	seed := rand.Uint64()
	if *seedText != "" {
		var err error
		if seed, err = strconv.ParseUint(*seedText, 10, 64); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: seed %q is no number\n", *seedText)
			os.Exit(2)
		}
	}
	fmt.Printf("chaos: seed %d\n", seed)

	// Sockets break all the time here. Where nobody reads the progress any more,
	// the run goes on to its end all the same, and cleans up.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := run(ctx, plan{seed: seed, duration: *duration, faults: *only, joining: *nodes}); err != nil {
		fmt.Printf("\nchaos: %v\nchaos: failed with seed %d\n", err, seed)
		os.Exit(1)
	}
	fmt.Println("chaos: ok")
}

// plan is what to run.
type plan struct {
	seed     uint64
	duration time.Duration
	faults   string
	// joining is how many nodes join at once in place of faults, 0 for faults.
	joining int
}

// cleanupPatience is how long everything may take to stop.
const cleanupPatience = 30 * time.Second

func run(ctx context.Context, p plan) (err error) {
	j, err := openJournal(p.seed)
	if err != nil {
		return err
	}
	defer func() { err = j.close(err) }()
	w, err := newWorld(ctx, j, p)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.recorder.save(j.path("history.json")), w.consoles())
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
		defer cancel()
		if closing := w.close(within); closing != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", closing))
		}
	}()
	deploy := func(ctx context.Context) error { return w.deploy(ctx, max(maxNodes+1, firstNodes+p.joining)) }
	if p.joining > 0 {
		if err := deploy(ctx); err != nil {
			return err
		}
		if err := w.form(ctx); err != nil {
			return err
		}
		return w.joinAtOnce(ctx, p.joining)
	}
	t := newTormentor(w, p)
	if err := t.form(ctx, deploy); err != nil {
		return err
	}
	return t.torment(ctx, p.duration)
}
