package bootstrap

import (
	"context"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// Launch is the lifecycle hook that this instance's group launches nodes
// through, so that one counts as in service once it has mounted.
type Launch interface {
	Waits(ctx context.Context, instanceID string) (bool, error)
	Continue(ctx context.Context, instanceID string) error
	Abandon(ctx context.Context, instanceID string) error
	Extend(ctx context.Context, instanceID string) error
}

var _ Launch = aws.Launch{}

// ready tells the group that the node has mounted. Without a launching hook,
// or once the instance is in service, there is nothing to do.
func (b *Bootstrap) ready() phase.Phase {
	return phase.Phase{
		Name:    PhaseReady,
		Timeout: 3 * time.Minute,
		Done: func(ctx context.Context) (bool, error) {
			if b.Settings.LaunchHook == "" {
				return true, nil
			}
			waits, err := b.Launch.Waits(ctx, b.Node.InstanceID)
			return !waits, err
		},
		Run: func(ctx context.Context) error {
			return b.Launch.Continue(ctx, b.Node.InstanceID)
		},
	}
}

// launching tells whether the instance still waits to be put into service. If
// that cannot be told, it does not count as waiting: its group then takes a
// report on its health.
func (b *Bootstrap) launching(ctx context.Context) bool {
	if b.Settings.LaunchHook == "" {
		return false
	}
	waits, err := b.Launch.Waits(ctx, b.Node.InstanceID)
	if err != nil {
		b.Logger.Warn("cannot tell whether this instance waits for its launching hook", "error", err)
	}
	return waits
}
