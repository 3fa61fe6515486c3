package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// Volume is the shared volume.
type Volume interface {
	// Attached says whether the instance has the volume.
	Attached(ctx context.Context, instanceID string) (bool, error)
	// Attach brings the volume one step closer to the instance. It is called
	// again until it returns nil or an *[aws.RefusedError].
	Attach(ctx context.Context, instanceID, zone string) error
}

var _ Volume = (*aws.Volume)(nil)

// attach brings the shared volume to this instance and finds the device that
// it has become.
func (b *Bootstrap) attach() phase.Phase {
	return phase.Phase{
		Name: PhaseAttach,
		// Sixteen nodes that are replaced at once wait for the attachments of
		// those on their way out.
		Timeout: 10 * time.Minute,
		Done: func(ctx context.Context) (bool, error) {
			if _, err := findDevice(b.Root, b.Settings.VolumeID); err != nil {
				return false, nil //nolint:nilerr // Run waits for it, and tells what is wrong
			}
			attached, err := b.Volume.Attached(ctx, b.Node.InstanceID)
			if err != nil && aws.Classify(err) != aws.Stop {
				return false, nil // Run asks again, with patience
			}
			return attached, err
		},
		Run: func(ctx context.Context) error {
			err := phase.Poll(ctx, phase.Remote, func(ctx context.Context) error {
				err := b.Volume.Attach(ctx, b.Node.InstanceID, b.Node.AvailabilityZone)
				if _, refused := errors.AsType[*aws.RefusedError](err); refused {
					return phase.Permanent(err)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("attach the shared volume %s: %w", b.Settings.VolumeID, err)
			}
			return phase.Poll(ctx, phase.Local, func(context.Context) error {
				device, err := findDevice(b.Root, b.Settings.VolumeID)
				if err == nil {
					b.Logger.Info("attached", "volume", b.Settings.VolumeID, "device", device)
				}
				return err
			})
		},
	}
}
