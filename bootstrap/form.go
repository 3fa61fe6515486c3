package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// form starts a new etcd cluster with this node as its only member. The claim
// is asserted once more right before: a node that was slow, and taken over in
// the meantime, finds out here and joins instead.
func (b *Bootstrap) form(ctx context.Context, claim membership.Item) error {
	_, now, err := b.Seed.Read(ctx)
	if err != nil {
		return reconsider(err)
	}
	asserted := claim
	asserted.CreatedAt = later(claim, now)
	won, err := b.Seed.Replace(ctx, claim, asserted)
	if err != nil {
		return reconsider(err)
	}
	if !won {
		return fmt.Errorf("%w: the claim was taken over before etcd started", errReconsider)
	}
	// A new etcd takes up the database that it finds, whosever it was.
	if err := b.wipe(ctx); err != nil {
		return err
	}
	if err := b.belong(forming); err != nil {
		return err
	}
	name, peerURL := b.Node.ID(b.Settings.ClusterName), etcd.PeerURL(b.Node.PrivateIP)
	// etcd derives the cluster's ID from the token and the address. With the
	// claim in the token, two clusters that were ever formed at one address
	// have two IDs.
	token := fmt.Sprintf("%s-%s-%d", b.Settings.ClusterName, b.Node.InstanceID, asserted.CreatedAt.Unix())
	if err := b.startEtcd(ctx, etcdFlags{state: "new", initialCluster: name + "=" + peerURL, token: token}); err != nil {
		return err
	}
	return b.recordFormed(ctx)
}

// formPatience is how long this node's own new etcd may take to serve. One that
// was killed in its first moments has a write-ahead log without the entry that
// makes it a member, and never will.
const formPatience = 30 * time.Second

// recordFormed waits for this node's own new etcd and has the seed item name
// its cluster. Only then may a daemon touch the volume.
//
// An item that does not say formed, whoever claims it, proves that no cluster
// has been recorded, so whichever healthy one is written first is the cluster.
// A node that was taken over while its etcd started does not throw an etcd away
// that others may be about to record: it tries to be first. Once another
// cluster has been recorded nobody will ever record this one, and it is given
// up.
func (b *Bootstrap) recordFormed(ctx context.Context) error {
	var started time.Time
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		view, err := b.look(ctx)
		if err != nil {
			return err
		}
		item := view.Item
		if item == nil {
			// The claim is gone, and nothing tells any more that it was not taken over,
			// and another cluster recorded. What forbids a first claim forbids this.
			if decision := membership.Decide(view); decision.Action != membership.Claim {
				started = time.Time{}
				return b.follow(ctx, decision)
			}
		}
		if started.IsZero() {
			started = time.Now()
			if err := b.Units.StartNoBlock(ctx, etcdUnit); err != nil {
				return phase.Permanent(fmt.Errorf("start etcd: %w", err))
			}
		}
		own, _, ownErr := b.Etcd.ClusterID(ctx, b.Node.PrivateIP)
		switch {
		case item != nil && item.State == membership.StateFormed:
			switch {
			case ownErr != nil:
				return b.askAbout(ctx, view, ownErr)
			case own == item.ClusterID:
				// Recorded, perhaps by another node on this one's behalf, and long ago.
				if err := b.reassert(ctx, own); err != nil {
					return err
				}
				return b.belong(own)
			default:
				return b.abandon(ctx, own)
			}
		case item != nil && item.State == membership.StateUnknown && ownErr == nil:
			return b.besideShell(ctx, view, own)
		case ownErr == nil:
			return b.record(ctx, view, own)
		case time.Since(started) > formPatience:
			return b.startOver(ctx, view, "the new etcd did not come up")
		default:
			return b.etcdFailure(ctx, ownErr)
		}
	})
}

// follow does what a node without an etcd decides while there is no seed item. It
// has the cluster that it finds recorded; the next reading compares that one with
// its own. As long as it waits, nobody may find its etcd and take it for the
// cluster.
func (b *Bootstrap) follow(ctx context.Context, decision membership.Decision) error {
	b.report(decision)
	if decision.Action == membership.Join {
		if _, err := b.write(ctx, nil, decision.Write); err != nil {
			return err
		}
		return errors.New("the seed item is being written")
	}
	if err := b.stopEtcd(ctx); err != nil {
		return err
	}
	if decision.Action == membership.Refuse {
		return phase.Permanent(&RefusedError{decision.Reason})
	}
	return errors.New(decision.Reason)
}

// record has the seed item, which does not say formed, name the cluster that
// this node's etcd serves. The next reading tells whether it does.
func (b *Bootstrap) record(ctx context.Context, view membership.View, clusterID string) error {
	if reading := b.Etcd.Probe(ctx, b.Node.PrivateIP); reading.Health != membership.Healthy {
		return errors.New("this node's etcd is not healthy yet")
	}
	_, err := b.write(ctx, view.Item, &membership.Item{
		ClusterName: b.Settings.ClusterName, SeedIP: b.Node.PrivateIP, InstanceID: b.Node.InstanceID,
		CreatedAt: view.Now, State: membership.StateFormed, ClusterID: clusterID, VolumeID: view.VolumeID,
	})
	if err != nil {
		return err
	}
	return errors.New("the seed item is being written")
}

// askAbout finds out from the members of the recorded cluster whether the data
// here, of which etcd does not come up, is one of theirs.
func (b *Bootstrap) askAbout(ctx context.Context, view membership.View, ownErr error) error {
	endpoints := endpointsOf(healthyMembers(view, view.Item.ClusterID))
	if len(endpoints) == 0 || view.Item.ClusterID == "" {
		return b.etcdFailure(ctx, ownErr)
	}
	members, err := b.Etcd.Members(ctx, endpoints)
	if err != nil {
		return err
	}
	if step, _ := membership.Next(members, b.joiner(true)); step != membership.Joined && step != membership.Promote {
		return phase.Permanent(b.giveWay(ctx, "the recorded cluster does not have the member that formed here"))
	}
	if err := b.belong(view.Item.ClusterID); err != nil {
		return phase.Permanent(err)
	}
	return phase.Permanent(fmt.Errorf("%w: this node is a member of the recorded cluster", errReconsider))
}

// startOver decides anew without the etcd formed here. It is stopped, and then
// the item is written, so that a write which would record its cluster and is
// still under way fails.
func (b *Bootstrap) startOver(ctx context.Context, view membership.View, reason string) error {
	if err := b.stopEtcd(ctx); err != nil {
		return err
	}
	touched := membership.Item{
		ClusterName: b.Settings.ClusterName, SeedIP: b.Node.PrivateIP, InstanceID: b.Node.InstanceID,
		CreatedAt: view.Now, State: membership.StateForming, VolumeID: view.VolumeID,
	}
	if view.Item != nil {
		touched = *view.Item
		touched.CreatedAt = later(touched, view.Now)
	}
	won, err := b.write(ctx, view.Item, &touched)
	if err != nil {
		return err
	}
	if !won {
		return phase.Permanent(fmt.Errorf("%w: the seed item changed while etcd was started over", errReconsider))
	}
	return phase.Permanent(b.giveWay(ctx, reason))
}

// besideShell decides between an etcd that this node formed and an item of the
// shell bootstrap, which a node of that writes when it takes over and when it
// joins. One that takes over starts its daemons without a further write, so this
// node has lost already. One that joins names whom it joins through, before it is
// a member: a cluster that it finds gone by then holds it up for good.
func (b *Bootstrap) besideShell(ctx context.Context, view membership.View, own string) error {
	rival := view.Rival(own)
	if rival == "" {
		return b.record(ctx, view, own)
	}
	members, err := b.Etcd.Members(ctx, []string{etcd.ClientURL(b.Node.PrivateIP)})
	if err != nil {
		return b.etcdFailure(ctx, err)
	}
	if len(members) > 1 {
		return errors.New(rival)
	}
	return b.startOver(ctx, view, rival)
}

// abandon gives up a cluster that this node formed and that the seed item does
// not name. It is empty: this node has not started a daemon on it, and nobody
// joins a cluster that the item does not name. That nobody did is checked all
// the same, as the item may have been lost after others joined.
func (b *Bootstrap) abandon(ctx context.Context, clusterID string) error {
	members, err := b.Etcd.Members(ctx, []string{etcd.ClientURL(b.Node.PrivateIP)})
	if err != nil {
		return b.etcdFailure(ctx, err)
	}
	if len(members) > 1 {
		return phase.Permanent(&RefusedError{fmt.Sprintf(
			"etcd cluster %s was formed by this node and has %d members, but the seed item does not name it", clusterID, len(members))})
	}
	return phase.Permanent(b.giveWay(ctx, "another cluster was recorded while etcd started"))
}

// giveWay removes the etcd that was formed here and has everything decided
// anew.
func (b *Bootstrap) giveWay(ctx context.Context, reason string) error {
	b.Logger.Warn("give up the etcd formed here", "reason", reason)
	if err := b.wipe(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", errReconsider, reason)
}
