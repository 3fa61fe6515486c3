package phase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pace is how often something is asked: the first pause and the longest one.
// Each pause is longer than the one before, and jittered, so that nodes which
// booted together do not ask together.
type Pace struct {
	First, Longest time.Duration
}

// Paces for what happens on this machine and for what happens elsewhere.
var (
	Local  = Pace{First: 50 * time.Millisecond, Longest: 500 * time.Millisecond}
	Remote = Pace{First: 250 * time.Millisecond, Longest: 5 * time.Second}
)

// Poll calls attempt until it succeeds, until it returns a [Permanent] error,
// or until ctx is over. In the last case the error tells what the last attempt
// said, which is what somebody who reads it needs, beside the end of ctx.
func Poll(ctx context.Context, pace Pace, attempt func(context.Context) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = pace.First
	pauses.MaxInterval = pace.Longest
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := attempt(ctx)
		// An attempt that was cut off by the end of ctx has seen nothing, so
		// what the one before it saw says more.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	if cause := context.Cause(ctx); err != nil && cause != nil && last != nil && !errors.Is(last, cause) {
		return fmt.Errorf("%w (%w)", last, cause)
	}
	return err
}

// Permanent marks an error that another attempt cannot help. [Poll] returns it
// without the mark.
func Permanent(err error) error { return backoff.Permanent(err) }
