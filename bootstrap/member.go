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
		Done: func(ctx context.Context) (bool, error) {
			hasData, err := b.hasEtcdData()
			if err != nil || !hasData || b.marked() {
				return false, err
			}
			// The last step of Run was to read that it votes. Another answer that
			// is lost now says nothing against it.
			return member || b.recorded(ctx) && b.votes(ctx), nil
		},
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
	switch {
	case hasData && b.marked():
		return b.resumeForming(ctx)
	case hasData:
		return b.returnAsMember(ctx)
	case b.marked():
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
	return b.join(ctx, endpointsOf(decision.Via))
}

// returnAsMember starts the etcd that was a member before, after a reboot or a
// broken run.
func (b *Bootstrap) returnAsMember(ctx context.Context) error {
	if err := b.Units.StartNoBlock(ctx, etcdUnit); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		view, err := b.look(ctx)
		if err != nil {
			return err
		}
		own, _, err := b.Etcd.ClusterID(ctx, b.Node.PrivateIP)
		known := view.Item != nil && view.Item.State == membership.StateFormed && view.Item.ClusterID != ""
		if err == nil && known && own != view.Item.ClusterID {
			return phase.Permanent(&RefusedError{fmt.Sprintf(
				"the etcd data of this node belongs to cluster %s, but the seed item names cluster %s, formed by %s: "+
					"terminate this instance, or, if its data is the one to keep, remove the seed item and the other nodes",
				own, view.Item.ClusterID, view.Item.InstanceID)})
		}
		// The others tell best whether this node is still a member; without any
		// of them (the whole cluster boots) its own etcd does.
		clusterID := own
		if err != nil && known {
			clusterID = view.Item.ClusterID
		}
		var endpoints []string
		switch {
		case clusterID != "":
			endpoints = endpointsOf(healthyMembers(view, clusterID))
		case err != nil:
			// Peers of a cluster that may be another one cannot tell that this
			// node's data is to go.
			return b.etcdFailure(ctx, err)
		}
		if len(endpoints) == 0 {
			if err != nil {
				return b.etcdFailure(ctx, err)
			}
			endpoints = []string{etcd.ClientURL(b.Node.PrivateIP)}
		}
		if err := b.step(ctx, endpoints); err != nil {
			return err
		}
		if known {
			return b.reassert(ctx, view)
		}
		// The item was lost, is the shell bootstrap's, or is the claim of a node
		// that did not see this one. The data is here: no daemon starts before
		// the item says so, and nobody else has won.
		for _, peer := range healthyMembers(view, "") {
			if peer.ClusterID != own {
				return fmt.Errorf("%s serves etcd cluster %s and this node cluster %s: two clusters use this volume", peer, peer.ClusterID, own)
			}
		}
		return b.record(ctx, view, own)
	})
}

// reassert dates the item of this node's cluster to now. With the user's word, a
// node that saw nobody answer may be taking a formed cluster's item over right
// now: one of the two writes fails, and after this one the item is too young to
// be taken over before everybody sees this node.
func (b *Bootstrap) reassert(ctx context.Context, view membership.View) error {
	item := *view.Item
	item.SeedIP, item.InstanceID, item.CreatedAt = b.Node.PrivateIP, b.Node.InstanceID, later(item, view.Now)
	won, err := b.write(ctx, view.Item, &item)
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

// recorded says whether this node's etcd serves the cluster that the seed item
// names. One that serves another is no reason to start a daemon, however well
// it does.
func (b *Bootstrap) recorded(ctx context.Context) bool {
	item, _, err := b.Seed.Read(ctx)
	if err != nil || item == nil || item.State != membership.StateFormed {
		return false
	}
	own, _, err := b.Etcd.ClusterID(ctx, b.Node.PrivateIP)
	return err == nil && own == item.ClusterID
}

// votes says whether this node's etcd runs and its member votes, as the cluster
// tells it.
func (b *Bootstrap) votes(ctx context.Context) bool {
	state, err := b.Units.State(ctx, etcdUnit)
	if err != nil || !runs(state) {
		return false
	}
	members, err := b.Etcd.Members(ctx, []string{etcd.ClientURL(b.Node.PrivateIP)})
	if err != nil {
		return false
	}
	step, _ := membership.Next(members, b.joiner(true))
	return step == membership.Joined
}

// reconsider has everything decided anew after a call to AWS that may have
// happened or not, unless trying again cannot help.
func reconsider(err error) error {
	if aws.Classify(err) == aws.Stop {
		return err
	}
	return fmt.Errorf("%w: %w", errReconsider, err)
}
