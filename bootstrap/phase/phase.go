// Package phase is what the node's bootstrap is made of: named units of work
// that can be asked whether they are done, and one runner that does the rest.
package phase

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// Phase is one unit of work on a node.
type Phase struct {
	// Name appears in logs, in errors and on the command line.
	Name string
	// Timeout bounds Done and Run together.
	Timeout time.Duration
	// Done says whether there is nothing left to do. It only reads: the runner
	// asks before Run, and again after it.
	Done func(context.Context) (bool, error)
	// Run does the work. It may be called in any state that an earlier, broken
	// call has left behind, and when everything is done already.
	Run func(context.Context) error
}

// Stage is a list of phases that do not wait for one another.
type Stage []Phase

// Error is the failure of a phase.
type Error struct {
	// Phase is the name of the phase that failed.
	Phase string
	Err   error
}

func (e *Error) Error() string { return e.Phase + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// ErrUnfinished is the reason of a phase whose Run succeeded and whose Done
// still says no.
var ErrUnfinished = errors.New("not done although every step succeeded")

// Attributes of the runner's log lines.
const (
	keyPhase = "phase"
	keyStep  = "step"
	keyTook  = "took"
	keyError = "error"
)

// Runner runs phases. It writes the log lines of their start and end, so that
// no phase does that itself.
type Runner struct {
	Logger *slog.Logger
}

// Run runs the stages one after another, the phases of each at the same time.
// The first failure cancels the phases beside it, and no later stage starts.
// It is an *[Error].
func (r Runner) Run(ctx context.Context, stages ...Stage) error {
	total := 0
	for _, stage := range stages {
		total += len(stage)
	}
	number := 0
	for _, stage := range stages {
		group, groupCtx := errgroup.WithContext(ctx)
		for _, p := range stage {
			number++
			logger := r.Logger.With(keyPhase, p.Name, keyStep, fmt.Sprintf("%d/%d", number, total))
			group.Go(func() error { return run(groupCtx, logger, p) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// run runs one phase and gives its error the phase's name.
func run(ctx context.Context, logger *slog.Logger, p Phase) error {
	start := time.Now()
	took := func() slog.Attr { return slog.Duration(keyTook, time.Since(start).Round(time.Millisecond)) }

	ran, err := attempt(ctx, logger, p)
	switch {
	case err == nil && ran:
		logger.Info("done", took())
		return nil
	case err == nil:
		logger.Info("already done", took())
		return nil
	case ctx.Err() != nil:
		// Stopped from outside, or by the failure of a phase beside this one,
		// which is the one to report.
		logger.Warn("canceled", took(), slog.Any(keyError, err))
	default:
		logger.Error("failed", took(), slog.Any(keyError, err))
	}
	return &Error{Phase: p.Name, Err: err}
}

func attempt(parent context.Context, logger *slog.Logger, p Phase) (ran bool, err error) {
	if err := context.Cause(parent); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(parent, p.Timeout)
	defer cancel()
	defer func() {
		if err != nil && parent.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no success within %s: %w", p.Timeout, err)
		}
	}()

	done, err := p.Done(ctx)
	if err != nil {
		return false, fmt.Errorf("look at what is done: %w", err)
	}
	if done {
		return false, nil
	}
	logger.Info("start", "timeout", p.Timeout)
	if err := p.Run(ctx); err != nil {
		return true, err
	}
	done, err = p.Done(ctx)
	if err != nil {
		return true, fmt.Errorf("look at what was done: %w", err)
	}
	if !done {
		return true, ErrUnfinished
	}
	return true, nil
}
