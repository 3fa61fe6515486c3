package boot_test

import (
	"context"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

// eventually waits up to a minute until a check succeeds.
func eventually(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return phase.Poll(ctx, phase.Local, func(context.Context) error { return check() })
}

// unwatched is a watcher that wants to know nothing.
type unwatched struct{}

func (unwatched) Look(scenario.Expectation, scenario.View, string, time.Duration) {}
