package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// Health reports on this instance to its Auto Scaling Group.
type Health interface {
	ReportUnhealthy(ctx context.Context, instanceID string) error
}

// Registry is EtcFS's own list of its live nodes, which it keeps in etcd.
type Registry interface {
	Values(ctx context.Context, endpoints []string, prefix string) (map[string]string, error)
}

var (
	_ Health   = aws.Health{}
	_ Registry = etcd.Cluster{}
)

// failed does what the settings want done with an instance whose bootstrap
// failed. Failing user data does not fail EC2's status checks, so nobody would
// replace it otherwise.
func (b *Bootstrap) failed(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return cause // somebody stopped the bootstrap, or the machine
	}
	if err := b.releaseClaim(ctx); err != nil {
		b.Logger.Warn("a claim on the seed that this node may hold stays until it is old", "error", err)
	}
	if b.Settings.OnBootstrapFailure != settings.FailureReplace {
		b.Logger.Warn("the instance is kept as it is, as ETCFS_ON_BOOTSTRAP_FAILURE says")
		return cause
	}
	if err := b.identifyAfterAll(ctx); err != nil {
		b.Logger.Error("the instance cannot be reported unhealthy, because it does not know its ID", "error", err)
		return cause
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	launching := b.launching(ctx)
	if need := b.needed(ctx); need != "" {
		b.Logger.Warn("the instance is not reported unhealthy, and will try again", "reason", need)
		if launching { // or its group would terminate it when the hook's time is over
			cause = errors.Join(cause, b.Launch.Extend(ctx, b.Node.InstanceID))
		}
		return errors.Join(cause, b.tryAgain(ctx))
	}
	if launching {
		if err := b.Launch.Abandon(ctx, b.Node.InstanceID); err != nil {
			return errors.Join(cause, err)
		}
		b.Logger.Warn("abandoned the launch of this instance, its group will replace it", "instance", b.Node.InstanceID, "reason", cause)
		return cause
	}
	if err := b.Health.ReportUnhealthy(ctx, b.Node.InstanceID); err != nil {
		return errors.Join(cause, err)
	}
	b.Logger.Warn("reported this instance unhealthy, its group will replace it", "instance", b.Node.InstanceID)
	return cause
}

// identifyAfterAll finds out which instance this is, if it is not known: the
// phase beside identify may have failed before that was done.
func (b *Bootstrap) identifyAfterAll(ctx context.Context) error {
	if b.Node.InstanceID != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return b.identify().Run(ctx)
}

// releaseClaim lets others take over at once from a node that failed before it
// started an etcd: the claim is written as old as it can be. Should this node
// come back, it asserts its claim before it forms, and finds out.
func (b *Bootstrap) releaseClaim(ctx context.Context) error {
	hasData, err := b.hasEtcdData()
	cluster, fileErr := b.belongs()
	if err := errors.Join(err, fileErr); err != nil || hasData || cluster == forming || b.Node.InstanceID == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	item, _, err := b.Seed.Read(ctx)
	if err != nil || item == nil || item.State != membership.StateForming || item.InstanceID != b.Node.InstanceID {
		return err
	}
	released := *item
	released.CreatedAt = time.Unix(0, 0).UTC()
	won, err := b.Seed.Replace(ctx, *item, released)
	if won {
		b.Logger.Info("released the claim on the seed")
	}
	return err
}

// needed says why the cluster cannot spare this node, "" when it can.
//
// A voting member holds a copy of the metadata, which is lost with the
// instance, and the group replaces all that report themselves unhealthy at
// once. So if every node that has formed a cluster cannot mount, for a reason
// they share, or cannot come up because a majority lost power together, giving
// themselves away would destroy the filesystem. A member may go only when the
// nodes that work are a quorum without it, and without whatever else fails.
func (b *Bootstrap) needed(ctx context.Context) string {
	hasData, err := b.hasEtcdData()
	if err != nil {
		return err.Error()
	}
	if !hasData {
		return ""
	}
	cluster, err := b.belongs()
	if err != nil {
		return err.Error()
	}
	members, keys, err := b.readCluster(ctx, cluster)
	if err != nil {
		return fmt.Sprintf("it may hold a copy of the metadata, and who else does cannot be read: %v", err)
	}
	return neededBy(members, registered(b.Settings.ClusterName, keys), b.self())
}

func neededBy(members []membership.Member, registered map[string]string, self membership.Instance) string {
	voters, working, votes := 0, 0, false
	for _, member := range members {
		if member.Learner {
			continue
		}
		voters++
		if member.Of(self.ID, self.IP) {
			votes = true
			continue
		}
		for _, instanceID := range registered {
			if member.Of(instanceID, "") {
				working++
				break
			}
		}
	}
	quorum := voters/2 + 1
	if !votes || working >= quorum {
		return ""
	}
	return fmt.Sprintf("it holds a copy of the metadata, and of the %d members only %d others work, with %d being the quorum", voters, working, quorum)
}

// readCluster reads the members and EtcFS's nodes through this node's etcd, or
// through another's of the cluster that the data here belongs to.
func (b *Bootstrap) readCluster(ctx context.Context, cluster string) ([]membership.Member, map[string]string, error) {
	ips := []string{b.Node.PrivateIP}
	instances, err := b.Group.Instances(ctx)
	failures := []error{err}
	for _, instance := range instances.Live {
		if instance.IP != b.Node.PrivateIP && instance.IP != "" {
			ips = append(ips, instance.IP)
		}
	}
	for _, ip := range ips {
		members, keys, err := b.readThrough(ctx, ip, cluster)
		if err == nil {
			return members, keys, nil
		}
		failures = append(failures, err)
	}
	return nil, nil, errors.Join(failures...)
}

func (b *Bootstrap) readThrough(ctx context.Context, ip, cluster string) ([]membership.Member, map[string]string, error) {
	served, _, err := b.Etcd.ClusterID(ctx, ip)
	if err != nil {
		return nil, nil, err
	}
	if ip != b.Node.PrivateIP && served != cluster {
		return nil, nil, fmt.Errorf("%s serves etcd cluster %s, not %s", ip, served, cluster)
	}
	endpoints := []string{etcd.ClientURL(ip)}
	members, err := b.Etcd.Members(ctx, endpoints)
	if err != nil {
		return nil, nil, err
	}
	keys, err := b.Registry.Values(ctx, endpoints, membershipPrefix)
	return members, keys, err
}

// tryAgain starts the unit of later boots, which is repeated until it succeeds.
// It waits for this run to end. Before resume there is no such unit.
func (b *Bootstrap) tryAgain(ctx context.Context) error {
	installed, err := b.Services.Installed(bootstrapService)
	if err != nil || !installed {
		return err
	}
	return b.Services.StartNoBlock(ctx, UnitBootstrap)
}
