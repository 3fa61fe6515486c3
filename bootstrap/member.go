package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// errReconsider says that what was decided no longer holds and nothing was
// changed that would matter: look and decide again.
var errReconsider = errors.New("the cluster has changed since the decision")

// member gives this node its etcd member: it forms the cluster, joins it, or
// comes back as the member it was.
func (b *Bootstrap) member() phase.Phase {
	member := false
	return phase.Phase{
		Name:    PhaseMember,
		Timeout: membership.TakeoverAge + membership.Patience,
		// A run before this one may have ended between etcd's start and the write
		// that dates the seed item, so looking does not tell.
		Done: func(context.Context) (bool, error) { return member, nil },
		Run: func(ctx context.Context) error {
			err := b.becomeMember(ctx)
			if err != nil {
				b.giveUp(ctx)
			}
			member = err == nil
			return err
		},
	}
}

func (b *Bootstrap) becomeMember(ctx context.Context) error {
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		err := b.tryMember(ctx)
		if err == nil || !errors.Is(err, errReconsider) {
			return phase.Permanent(err)
		}
		b.Logger.Info("reconsider", "reason", err.Error())
		return err
	})
}

func (b *Bootstrap) tryMember(ctx context.Context) error {
	hasData, err := b.hasEtcdData()
	if err != nil {
		return err
	}
	cluster, err := b.belongs()
	if err != nil {
		return err
	}
	switch {
	case hasData && cluster == forming:
		return b.recordFormed(ctx)
	case hasData:
		return b.returnAsMember(ctx, cluster)
	case cluster == forming:
		// A run before this one was cut off between the start of a new etcd and
		// its first write, and may have left it starting.
		if err := b.stopEtcd(ctx); err != nil {
			return err
		}
		if hasData, err = b.hasEtcdData(); err != nil || hasData {
			return errors.Join(err, fmt.Errorf("%w: etcd has started by itself", errReconsider))
		}
	}
	// The decision of the elect phase may be minutes old.
	decision, err := b.decide(ctx)
	if err != nil {
		return err
	}
	if decision.Action == membership.Form {
		return b.form(ctx, decision.item)
	}
	cluster = decision.Via[0].ClusterID
	if err := b.join(ctx, cluster, endpointsOf(decision.Via)); err != nil {
		return err
	}
	return b.returnAsMember(ctx, cluster)
}

// returnAsMember starts the etcd that is a member of a cluster, after a reboot or
// a broken run, or goes on after a join: it ends with the seed item naming the
// cluster by this node, now.
func (b *Bootstrap) returnAsMember(ctx context.Context, cluster string) error {
	if err := b.Units.StartNoBlock(ctx, etcdUnit); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		view, err := b.look(ctx)
		if err != nil {
			return err
		}
		served, _, ownErr := b.Etcd.ClusterID(ctx, b.Node.PrivateIP)
		if ownErr == nil {
			cluster = served
		}
		known := view.Item != nil && view.Item.State == membership.StateFormed && view.Item.ClusterID != ""
		if known && cluster != "" && cluster != view.Item.ClusterID {
			return phase.Permanent(&RefusedError{fmt.Sprintf(
				"the etcd data of this node belongs to cluster %s, but the seed item names cluster %s, formed by %s: "+
					"terminate this instance, or, if its data is the one to keep, remove the seed item and the other nodes",
				cluster, view.Item.ClusterID, view.Item.InstanceID)})
		}
		// The others tell best whether this node is still a member; without any
		// of them (the whole cluster boots) its own etcd does. Those of a cluster
		// that may be another one cannot tell that this node's data is to go.
		var endpoints []string
		if cluster != "" {
			endpoints = endpointsOf(healthyMembers(view, cluster))
		}
		if len(endpoints) == 0 {
			if ownErr != nil {
				return b.etcdFailure(ctx, ownErr)
			}
			endpoints = []string{etcd.ClientURL(b.Node.PrivateIP)}
		}
		if err := b.step(ctx, cluster, endpoints); err != nil {
			return err
		}
		if known {
			return b.reassert(ctx, cluster)
		}
		// The item was lost, is the shell bootstrap's, or is the claim of a node
		// that did not see this one. The data is here: no daemon starts before
		// the item says so, and nobody else has won.
		if rival := view.Rival(cluster); rival != "" {
			return errors.New(rival)
		}
		return b.record(ctx, view, cluster)
	})
}

// reassert dates the item of this node's cluster to now, as every node does that
// has become a member or comes back as one. With the user's word, a node that saw
// nobody answer may be taking a formed cluster's item over right now: one of the
// two writes fails, and after this one the item is too young to be taken over
// before everybody counts this node as one that may hold the metadata.
//
// The item is read anew: a look that waits for a silent peer takes seconds, in
// which another one of sixteen nodes that come back together has written.
func (b *Bootstrap) reassert(ctx context.Context, cluster string) error {
	old, now, err := b.Seed.Read(ctx)
	if err := transient(&b.seen.reading, err); err != nil {
		return err
	}
	if old == nil || old.State != membership.StateFormed || old.ClusterID != cluster {
		return errors.New("the seed item has changed meanwhile")
	}
	item := *old
	item.SeedIP, item.InstanceID, item.CreatedAt = b.Node.PrivateIP, b.Node.InstanceID, later(item, now)
	won, err := b.write(ctx, old, &item)
	if err == nil && !won {
		return errors.New("the seed item has changed meanwhile")
	}
	return err
}

// healthyMembers are the voting peers of one cluster that can be asked for its
// members; of any, when the ID is "".
func healthyMembers(view membership.View, clusterID string) []membership.Peer {
	return slices.DeleteFunc(slices.Clone(view.Peers), func(p membership.Peer) bool {
		return p.Health != membership.Healthy || p.Learner || clusterID != "" && p.ClusterID != clusterID
	})
}

// itemCluster is the ID of the cluster that the seed item names, "" when it
// names none.
func itemCluster(view membership.View) string {
	if view.Item == nil {
		return ""
	}
	return view.Item.ClusterID
}

// reconsider has everything decided anew after a call to AWS that may have
// happened or not, unless trying again cannot help.
func reconsider(err error) error {
	if aws.Classify(err) == aws.Stop {
		return err
	}
	return fmt.Errorf("%w: %w", errReconsider, err)
}
