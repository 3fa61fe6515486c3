package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// join makes this node a voting member of the cluster, which is behind the
// endpoints.
func (b *Bootstrap) join(ctx context.Context, clusterID string, endpoints []string) error {
	failures := 0
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		err := b.step(ctx, clusterID, endpoints)
		if errors.Is(err, errUnderway) {
			err = phase.Poll(ctx, phase.Local, func(ctx context.Context) error {
				err := b.step(ctx, clusterID, endpoints)
				if errors.Is(err, errUnderway) {
					return err
				}
				return phase.Permanent(err)
			})
		}
		if !errors.Is(err, errUnreadable) {
			failures = 0
			return err
		}
		// The members that were healthy may all have left since.
		if failures++; failures >= 5 {
			return phase.Permanent(fmt.Errorf("%w: %w", errReconsider, err))
		}
		return err
	})
}

// errUnderway says that this node has its member: what is left, etcd's start
// and the promotion, takes less time than the pauses between tries to be
// admitted.
var errUnderway = errors.New("joining")

// errUnreadable says that nobody told the members of the cluster.
var errUnreadable = errors.New("the members cannot be read")

// step reads the members and brings this node one step closer to being one
// that votes: nil once it does. Every change is made at most once per reading,
// so an answer that was lost is found out by the next one.
func (b *Bootstrap) step(ctx context.Context, clusterID string, endpoints []string) error {
	began := time.Now()
	members, err := b.Etcd.Members(ctx, endpoints)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	hasData, err := b.hasEtcdData()
	if err != nil {
		return phase.Permanent(err)
	}
	name, peerURL := b.Node.ID(b.Settings.ClusterName), etcd.PeerURL(b.Node.PrivateIP)
	next, member := membership.Next(members, b.joiner(hasData))
	switch next {
	case membership.Joined:
		return nil
	case membership.Promote:
		// etcd promotes a learner that had caught up even if it is down now, and a
		// voter that is down may cost the quorum. Not waiting for this member's
		// own client port, which may open much later than it can vote.
		if state, err := b.Units.State(ctx, etcdUnit); err != nil || !runs(state) {
			return errors.Join(err, errors.New("etcd does not run, so it is not promoted"), b.Units.StartNoBlock(ctx, etcdUnit))
		}
		fate, err := b.Etcd.Settle(ctx, endpoints, member.ID, membership.FateVote)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnderway, err)
		}
		if fate == membership.FateGo {
			// Whoever wanted that may be gone. Nobody will ever promote it.
			return b.remove(ctx, endpoints, member, began, "remove this node's learner, which another node found to be in the way")
		}
		err = b.changed("promote", member, b.Etcd.Promote(ctx, endpoints, member.ID))
		return fmt.Errorf("%w: %w", errUnderway, b.etcdFailure(ctx, err))
	case membership.Remove:
		return b.remove(ctx, endpoints, member, began, "remove what stands in the way")
	case membership.Removed:
		b.Logger.Warn("the cluster has removed this node's member; its data cannot come back")
		if err := b.wipe(ctx); err != nil {
			return phase.Permanent(err)
		}
		return phase.Permanent(fmt.Errorf("%w: this node's member was removed", errReconsider))
	case membership.Start:
		if err := b.belong(clusterID); err != nil {
			return phase.Permanent(err)
		}
		flags := etcdFlags{state: "existing", initialCluster: membership.InitialCluster(members, name, peerURL), token: b.Settings.ClusterName}
		if err := b.startEtcd(ctx, flags); err != nil {
			return phase.Permanent(err)
		}
		return fmt.Errorf("%w: %w", errUnderway, b.etcdFailure(ctx, errors.New("etcd is starting as a learner")))
	case membership.Queue:
		if removed, err := b.removeDead(ctx, clusterID, endpoints, members, began); removed || err != nil {
			return err
		}
		if b.stuck(member) {
			return b.passStuck(ctx, endpoints, member, began)
		}
		return fmt.Errorf("member %s joins first", member)
	case membership.Add:
		// A dead member raises the quorum and has etcd refuse every addition.
		if removed, err := b.removeDead(ctx, clusterID, endpoints, members, began); removed || err != nil {
			return err
		}
		if err := b.checkSeries(ctx, endpoints); err != nil {
			return err
		}
		// What an earlier try left on the disk, or left running, is not the new
		// member's.
		if err := b.wipe(ctx); err != nil {
			return err
		}
		id, err := b.Etcd.AddLearner(ctx, endpoints, peerURL)
		b.seen.added = id
		if err := b.changed("add as a learner", membership.Member{ID: id, PeerURLs: []string{peerURL}}, err); !errors.Is(err, errChanged) {
			return err
		}
		return errUnderway
	default:
		return phase.Permanent(fmt.Errorf("step %d is unknown", next))
	}
}

// checkSeries refuses to join a cluster of a later series, as etcd itself does
// once it has started as a learner, which then stands in everybody's way.
func (b *Bootstrap) checkSeries(ctx context.Context, endpoints []string) error {
	cluster, err := b.Etcd.ClusterVersion(ctx, endpoints)
	if err != nil {
		return err
	}
	if reason := settings.CheckEtcdSeries(b.Settings.EtcdVersion, cluster); reason != "" {
		return phase.Permanent(&RefusedError{reason})
	}
	return nil
}

// joiner is this node as it joins.
func (b *Bootstrap) joiner(hasData bool) membership.Joiner {
	return membership.Joiner{Instance: b.self(), PeerURL: etcd.PeerURL(b.Node.PrivateIP), HasData: hasData, Added: b.seen.added}
}

// stuck says whether the member has been in the way for too long, as one does
// whose bootstrap was killed on a machine that lives on.
func (b *Bootstrap) stuck(member membership.Member) bool {
	if b.seen.queue != member.ID {
		b.seen.queue, b.seen.queued = member.ID, time.Now()
	}
	return time.Since(b.seen.queued) > membership.StuckAge
}

// runs says whether a unit is up or on its way, and not between two failures.
func runs(state systemd.State) bool {
	return (state.Active == "active" || state.Active == "activating") && state.Sub != "auto-restart"
}

// errChanged says that a change was made and has not been read back yet.
var errChanged = errors.New("done, to be read back")

// changed turns the result of a membership change into what the next reading
// has to confirm.
func (b *Bootstrap) changed(what string, member membership.Member, err error) error {
	if err == nil {
		b.Logger.Info("changed the membership", "change", what, "member", member.String())
		return fmt.Errorf("%s: %w", what, errChanged)
	}
	if etcd.Classify(err) == etcd.Stop {
		return phase.Permanent(fmt.Errorf("%s: %w", what, err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// freshness is how old the reading of the members may be on which a removal
// rests. A machine that was paused in between reads again: the learner that was
// in its way may vote by now.
const freshness = 10 * time.Second

// remove removes a member, found at a reading that began at the given time.
func (b *Bootstrap) remove(ctx context.Context, endpoints []string, member membership.Member, began time.Time, why string) error {
	if age := time.Since(began); age > freshness {
		return fmt.Errorf("%s: member %s was read %s ago, which is too long", why, member, age)
	}
	return b.changed(why, member, b.Etcd.Remove(ctx, endpoints, member.ID))
}

// passStuck gets a learner out of the way that does not get on: its bootstrap
// was killed, most likely. It is removed, or, if that had written down that it
// votes, promoted, as long as its etcd runs.
func (b *Bootstrap) passStuck(ctx context.Context, endpoints []string, member membership.Member, began time.Time) error {
	err := b.removeLearner(ctx, endpoints, member, began, "remove a learner that does not get on")
	if !errors.Is(err, errToVote) {
		return err
	}
	for _, host := range member.Hosts() {
		if _, learner, statusErr := b.Etcd.ClusterID(ctx, host); statusErr == nil && learner {
			return b.changed("promote a learner that does not get on", member, b.Etcd.Promote(ctx, endpoints, member.ID))
		}
	}
	return err
}

// errToVote says that a learner is not to be removed.
var errToVote = errors.New("its node has written down that it votes")

// removeLearner removes another node's learner, unless that is to vote.
func (b *Bootstrap) removeLearner(ctx context.Context, endpoints []string, member membership.Member, began time.Time, why string) error {
	fate, err := b.Etcd.Settle(ctx, endpoints, member.ID, membership.FateGo)
	if err != nil {
		return err
	}
	if fate != membership.FateGo {
		return fmt.Errorf("%s: member %s: %w", why, member, errToVote)
	}
	return b.remove(ctx, endpoints, member, began, why)
}

// burialPause is how long a joining node relies on there being nobody dead.
const burialPause = 5 * time.Second

// lookPause is how far two lists of instances may be apart for what both miss to
// have been missing in between.
const lookPause = 15 * time.Second

// removeDead removes one member whose instance is gone. An incomplete list of
// instances is an error of Instances or lacks this node; then nobody is dead.
// A member that still answers is not dead either, unless EC2 says that its
// instance was terminated.
func (b *Bootstrap) removeDead(ctx context.Context, clusterID string, endpoints []string, members []membership.Member, began time.Time) (removed bool, err error) {
	// Every look is a call to EC2, which limits the rate of an account.
	if time.Since(b.seen.buried) < burialPause {
		return false, nil
	}
	known, err := b.evidence(ctx, endpoints, members)
	if err != nil {
		return false, err
	}
	for _, dead := range membership.Dead(members, known, b.self()) {
		if !dead.Terminated && b.answers(ctx, clusterID, dead.Member, known.Live) {
			b.Logger.Warn("a member answers although its instance is not listed", "member", dead.String())
			continue
		}
		if !dead.Certain && !dead.Learner {
			return false, fmt.Errorf("the instance of member %s is not listed; if that lasts for %s it is dead", dead.Member, membership.AbsentAge)
		}
		if !dead.Certain {
			return true, b.removeLearner(ctx, endpoints, dead.Member, began, "remove a dead learner")
		}
		return true, b.remove(ctx, endpoints, dead.Member, began, "remove a dead member")
	}
	b.seen.buried = time.Now()
	return false, nil
}

// evidence reads what tells whether the members' instances are gone.
func (b *Bootstrap) evidence(ctx context.Context, endpoints []string, members []membership.Member) (membership.Evidence, error) {
	instances, err := b.Group.Instances(ctx)
	if err := transient(&b.seen.reading, err); err != nil {
		return membership.Evidence{}, err
	}
	known := membership.Evidence{Instances: instances, Absent: map[uint64]time.Duration{}}
	if time.Since(b.seen.looked) > lookPause {
		b.seen.absentSince = nil // what was not looked at may have been there in between
	}
	b.seen.looked = time.Now()
	absentSince := map[uint64]time.Time{}
	for _, member := range members {
		if !instances.Missing(member) {
			continue
		}
		since, ok := b.seen.absentSince[member.ID]
		if !ok {
			since = time.Now()
		}
		absentSince[member.ID], known.Absent[member.ID] = since, time.Since(since)
	}
	b.seen.absentSince = absentSince
	if len(known.Absent) == 0 {
		return known, nil
	}
	keys, err := b.Registry.Values(ctx, endpoints, membershipPrefix)
	if err != nil {
		return membership.Evidence{}, err
	}
	known.Mounted = slices.Collect(maps.Values(registered(b.Settings.ClusterName, keys)))
	return known, nil
}

// answers says whether anything answers at an address of a member that no
// listed instance has; what answers at a listed one's is that instance. An etcd
// of another cluster has nothing to do with this one but the address.
func (b *Bootstrap) answers(ctx context.Context, clusterID string, member membership.Member, instances []membership.Instance) bool {
	return slices.ContainsFunc(member.Hosts(), func(ip string) bool {
		if slices.ContainsFunc(instances, func(i membership.Instance) bool { return i.IP == ip }) {
			return false
		}
		reading := b.Etcd.Probe(ctx, ip)
		stranger := reading.Health == membership.Healthy && reading.ClusterID != clusterID
		return reading.Health != membership.Silent && !stranger
	})
}

// giveUp takes back a join that did not succeed: a member that never voted is
// removed, so that it does not stand in the way of the next node. It works
// against its own short deadline, as the phase's has run out.
func (b *Bootstrap) giveUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	view, err := b.look(ctx)
	if err != nil {
		return
	}
	endpoints := endpointsOf(healthyMembers(view, itemCluster(view)))
	if len(endpoints) == 0 {
		return
	}
	members, err := b.Etcd.Members(ctx, endpoints)
	if err != nil {
		return
	}
	for _, member := range members {
		if !member.Of(b.Node.InstanceID, b.Node.PrivateIP) || !member.Learner {
			continue
		}
		// Should it be promoted in this moment it leaves as a voter, which etcd lets
		// it unless the others are no quorum.
		err := b.Etcd.Remove(ctx, endpoints, member.ID)
		b.Logger.Info("removed the half-joined member of this node", "member", member.String(), "error", err)
		// One without a name may be of a dead node that had this address.
		if err == nil && (member.Started() || member.ID == b.seen.added) {
			err = b.wipe(ctx)
			b.Logger.Info("removed its data", "error", err)
		}
	}
}
