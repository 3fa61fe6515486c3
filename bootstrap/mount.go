package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// mount waits until the filesystem is mounted, which etcfuse does.
func (b *Bootstrap) mount() phase.Phase {
	return phase.Phase{
		Name:    PhaseMount,
		Timeout: 2 * time.Minute,
		Done:    b.mounted,
		Run: func(ctx context.Context) error {
			watch, err := b.watch(ctx, UnitMeta, UnitFuse)
			if err != nil {
				return err
			}
			return b.withJournal(ctx, phase.Poll(ctx, phase.Local, func(ctx context.Context) error {
				mounted, err := b.mounted(ctx)
				if mounted || err != nil {
					return err
				}
				for _, unit := range []string{UnitMeta, UnitFuse} {
					if _, err := watch.check(ctx, unit); err != nil {
						return err
					}
				}
				return fmt.Errorf("%s is not a mount point", settings.MountPoint)
			}))
		},
	}
}

func (b *Bootstrap) mounted(ctx context.Context) (bool, error) {
	err := exec.CommandContext(ctx, "mountpoint", "-q", b.path(settings.MountPoint)).Run()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return false, ctx.Err()
	}
	if err != nil {
		return false, fmt.Errorf("look for the mount: %w", err)
	}
	return true, nil
}
