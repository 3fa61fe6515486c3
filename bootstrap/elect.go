package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// SeedTable holds the seed item of the cluster.
type SeedTable interface {
	// Read returns the item, nil when there is none, and the time by the clock
	// that all nodes share.
	Read(context.Context) (*membership.Item, time.Time, error)
	// Create writes the item if there is none.
	Create(context.Context, membership.Item) (won bool, err error)
	// Replace writes the item if the present one is exactly old.
	Replace(ctx context.Context, old, item membership.Item) (won bool, err error)
}

// Group lists the instances that carry the cluster's tag.
type Group interface {
	// Instances returns all of them, or an error: never a part.
	Instances(context.Context) (membership.Instances, error)
}

// Etcd reads and changes the cluster that the nodes' etcd form.
type Etcd interface {
	Probe(ctx context.Context, ip string) etcd.Reading
	ClusterID(ctx context.Context, ip string) (id string, learner bool, err error)
	ClusterVersion(ctx context.Context, endpoints []string) (string, error)
	Members(ctx context.Context, endpoints []string) ([]membership.Member, error)
	AddLearner(ctx context.Context, endpoints []string, peerURL string) (id uint64, err error)
	Promote(ctx context.Context, endpoints []string, id uint64) error
	Remove(ctx context.Context, endpoints []string, id uint64) error
	// Settle writes a learner's fate down, unless it has one, and returns the
	// one that it has.
	Settle(ctx context.Context, endpoints []string, id uint64, fate membership.Fate) (membership.Fate, error)
}

var (
	_ SeedTable = aws.SeedTable{}
	_ Group     = aws.Group{}
	_ Etcd      = etcd.Cluster{}
)

// pace is how often a node looks at its cluster. Sixteen nodes that wait for
// one seed stay far below the request rate that EC2 allows an account.
var pace = phase.Pace{First: 200 * time.Millisecond, Longest: 2 * time.Second}

// RefusedError says that this node may neither join nor form a cluster.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// observer remembers what a node has seen and done since it began.
type observer struct {
	item         *membership.Item
	since        time.Time            // neither has the item changed since, nor has its cluster been healthy
	healthySince map[string]time.Time // by instance ID and cluster ID
	memberSeen   bool
	reading      aws.Patience
	writing      aws.Patience
	added        uint64               // the member that this node has added itself
	buried       time.Time            // when nobody was found dead
	absentSince  map[uint64]time.Time // by member, since when its instance is not listed
	looked       time.Time            // when the members' instances were last looked for
	queue        uint64               // the member that joins before this node
	queued       time.Time            // since when it does
	lastReason   string
}

// elect claims the seed as early as possible, so that the others know whom to
// wait for while this node still installs. It changes nothing but the seed
// item.
func (b *Bootstrap) elect() phase.Phase {
	elected := false
	return phase.Phase{
		Name:    PhaseElect,
		Timeout: membership.TakeoverAge + membership.Patience,
		Done: func(context.Context) (bool, error) {
			hasData, err := b.hasEtcdData()
			return elected || hasData, err
		},
		Run: func(ctx context.Context) error {
			_, err := b.decide(ctx)
			elected = err == nil
			return err
		},
	}
}

// settled is a decision to form or to join, and the seed item on which it
// rests.
type settled struct {
	membership.Decision
	item membership.Item
}

// decide looks, decides and writes the seed item until this node is to form
// the cluster or to join it.
func (b *Bootstrap) decide(ctx context.Context) (settled, error) {
	var result settled
	err := phase.Poll(ctx, pace, func(ctx context.Context) error {
		view, err := b.look(ctx)
		if err != nil {
			return err
		}
		decision := membership.Decide(view)
		b.report(decision)
		switch decision.Action {
		case membership.Wait:
			return errors.New(decision.Reason)
		case membership.Refuse:
			return phase.Permanent(&RefusedError{decision.Reason})
		case membership.Form:
			result = settled{decision, *view.Item}
			return nil
		case membership.Claim, membership.TakeOver, membership.Join:
			won, err := b.write(ctx, view.Item, decision.Write)
			if err != nil {
				return err
			}
			if decision.Action == membership.Join && (won || !decision.MustWrite) {
				result = settled{Decision: decision}
				return nil
			}
			if !won {
				return errors.New("another node wrote the seed item first")
			}
			// The claim is written; what follows rests on a fresh look.
			return errors.New("the seed item names this node now")
		default:
			return phase.Permanent(fmt.Errorf("decision %d is unknown", decision.Action))
		}
	})
	return result, err
}

// write replaces the item that was read, or creates it. Nothing to write is a
// success. Only an error that waiting cannot mend is permanent.
func (b *Bootstrap) write(ctx context.Context, old, item *membership.Item) (won bool, err error) {
	switch {
	case item == nil:
		return true, nil
	case old == nil:
		won, err = b.Seed.Create(ctx, *item)
	default:
		won, err = b.Seed.Replace(ctx, *old, *item)
	}
	return won, transient(&b.seen.writing, err)
}

// later is a time for an item that replaces another: never the same, so that a
// write which rests on the old one and is still under way fails.
func later(item membership.Item, now time.Time) time.Time {
	if next := item.CreatedAt.Add(time.Second); now.Before(next) {
		return next
	}
	return now
}

// look reads the seed item, lists the instances and probes every peer. Only an
// error that waiting cannot mend is permanent.
func (b *Bootstrap) look(ctx context.Context) (membership.View, error) {
	var (
		item      *membership.Item
		now       time.Time
		instances membership.Instances
	)
	reads, readCtx := errgroup.WithContext(ctx)
	reads.Go(func() (err error) { item, now, err = b.Seed.Read(readCtx); return err })
	reads.Go(func() (err error) { instances, err = b.Group.Instances(readCtx); return err })
	if err := transient(&b.seen.reading, reads.Wait()); err != nil {
		return membership.View{}, err
	}

	view := membership.View{
		ClusterName: b.Settings.ClusterName,
		VolumeID:    b.Settings.VolumeID,
		Self:        b.self(),
		Item:        item,
		Now:         now,
		Recovery:    b.Settings.Recovery,
		Stopped:     instances.Stopped,
	}
	for _, instance := range instances.Live {
		if instance.ID == view.Self.ID {
			view.Listed = true
			continue
		}
		view.Peers = append(view.Peers, membership.Peer{Instance: instance})
	}
	var probes errgroup.Group
	for i := range view.Peers {
		peer := &view.Peers[i]
		// A pending instance has no address yet, and one at this node's own is
		// gone, though still listed.
		if peer.IP == "" || peer.IP == view.Self.IP {
			continue
		}
		probes.Go(func() error {
			reading := b.Etcd.Probe(ctx, peer.IP)
			peer.Health, peer.ClusterID, peer.Learner, peer.Reason = reading.Health, reading.ClusterID, reading.Learner, reading.Reason
			if peer.Health == membership.Healthy && (item == nil || item.State == membership.StateUnknown) {
				peer.Unused = b.unused(ctx, peer.IP)
			}
			return nil
		})
	}
	_ = probes.Wait() // a probe has no error
	b.seen.note(&view)
	return view, nil
}

// unused says whether the etcd of a node is its cluster's only member, and no node
// of EtcFS is registered there, as far as it tells.
func (b *Bootstrap) unused(ctx context.Context, ip string) bool {
	endpoints := []string{etcd.ClientURL(ip)}
	members, err := b.Etcd.Members(ctx, endpoints)
	if err == nil && len(members) > 1 {
		return false
	}
	nodes, err := b.Registry.Values(ctx, endpoints, membershipPrefix)
	return err != nil || len(nodes) == 0
}

// note adds to the view what only the views before it can tell.
func (o *observer) note(view *membership.View) {
	now := time.Now()
	item := view.Item
	changed := (item == nil) != (o.item == nil) || item != nil && *item != *o.item
	joinable := item != nil && item.State == membership.StateFormed && len(healthyMembers(*view, item.ClusterID)) > 0
	if o.since.IsZero() || changed || joinable {
		o.item, o.since = item, now
	}
	view.Waited = now.Sub(o.since)
	since := map[string]time.Time{}
	for i := range view.Peers {
		peer := &view.Peers[i]
		if peer.Health != membership.Silent {
			o.memberSeen = true
		}
		if peer.Health != membership.Healthy {
			continue
		}
		key := peer.ID + " " + peer.ClusterID
		first, ok := o.healthySince[key]
		if !ok {
			first = now
		}
		since[key] = first
		peer.HealthyFor = now.Sub(first)
	}
	o.healthySince = since
	view.MemberSeen = o.memberSeen
}

// transient marks the errors of AWS that waiting cannot mend, and forgets with
// a success how long there have been others.
func transient(patience *aws.Patience, err error) error {
	switch {
	case err == nil:
		*patience = aws.Patience{}
		return nil
	case patience.Over(err):
		return phase.Permanent(err)
	default:
		return err
	}
}

// report logs a decision when it is another one than before.
func (b *Bootstrap) report(d membership.Decision) {
	if d.Reason == b.seen.lastReason {
		return
	}
	b.seen.lastReason = d.Reason
	b.Logger.Info("decided", "action", d.Action.String(), "reason", d.Reason)
}

// self is this node as the others list it.
func (b *Bootstrap) self() membership.Instance {
	return membership.Instance{ID: b.Node.InstanceID, IP: b.Node.PrivateIP, Node: true}
}

// endpointsOf are the client addresses of some nodes.
func endpointsOf(peers []membership.Peer) []string {
	endpoints := make([]string, len(peers))
	for i, peer := range peers {
		endpoints[i] = etcd.ClientURL(peer.IP)
	}
	slices.Sort(endpoints)
	return endpoints
}
