package bootstrap

import (
	"context"
	"fmt"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// Metadata tells an instance who it is.
type Metadata interface {
	Identity(context.Context) (aws.Identity, error)
}

var _ Metadata = aws.Metadata{}

// identify finds out which instance this is.
func (b *Bootstrap) identify() phase.Phase {
	return phase.Phase{
		Name:    PhaseIdentify,
		Timeout: 2 * time.Minute, // the network may come up after the bootstrap
		Done: func(context.Context) (bool, error) {
			return b.Node.InstanceID != "", nil
		},
		Run: func(ctx context.Context) error {
			var identity aws.Identity
			err := phase.Poll(ctx, phase.Remote, func(ctx context.Context) (err error) {
				identity, err = b.Metadata.Identity(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if identity.Region != b.Settings.Region {
				return fmt.Errorf("this instance is in %s, but its settings are for a cluster in %s: ETCFS_REGION is wrong, or the user data is another cluster's",
					identity.Region, b.Settings.Region)
			}
			b.Node = Node(identity)
			b.Logger.Info("identified", "node", b.Node.ID(b.Settings.ClusterName),
				"address", b.Node.PrivateIP, "zone", b.Node.AvailabilityZone)
			return nil
		},
	}
}
