package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// Health reports on this instance to its Auto Scaling Group.
type Health interface {
	ReportUnhealthy(ctx context.Context, instanceID string) error
}

var _ Health = aws.Health{}

// completeFile exists from the first time on that this node has come up.
const completeFile = "/var/lib/etcfs-bootstrap/complete"

// failed does what the settings want done with an instance whose bootstrap
// failed. Failing user data does not fail EC2's status checks, so nobody would
// replace it otherwise.
//
// A node that has been up before is never given away: it holds a copy of the
// metadata. Nodes that lost power together cannot come up for as long as a
// majority is away, and if each reported itself unhealthy for that, the group
// would terminate them all at once, and the filesystem with them. The unit of
// later boots tries again instead.
func (b *Bootstrap) failed(ctx context.Context, cause error) error {
	complete, err := b.wasComplete()
	switch {
	case ctx.Err() != nil:
		return cause // somebody stopped the bootstrap, or the machine
	case b.Settings.OnBootstrapFailure != settings.FailureReplace:
		b.Logger.Warn("the instance is kept as it is, as ETCFS_ON_BOOTSTRAP_FAILURE says")
		return cause
	case b.Node.InstanceID == "":
		b.Logger.Error("the instance cannot be reported unhealthy, because it does not know its ID")
		return cause
	case err != nil:
		return errors.Join(cause, err)
	case complete:
		b.Logger.Warn("the instance is not reported unhealthy: it has been up before and holds a copy of the cluster's metadata")
		return cause
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := b.Health.ReportUnhealthy(ctx, b.Node.InstanceID); err != nil {
		return errors.Join(cause, err)
	}
	b.Logger.Warn("reported this instance unhealthy, its group will replace it", "instance", b.Node.InstanceID)
	return cause
}

func (b *Bootstrap) wasComplete() (bool, error) {
	_, err := os.Stat(b.path(completeFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look whether this node has been up before: %w", err)
	}
	return true, nil
}

func (b *Bootstrap) complete() error {
	if complete, err := b.wasComplete(); complete || err != nil {
		return err
	}
	return b.writeFile(completeFile, b.Node.InstanceID+"\n", 0o644)
}
