package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// Units is the service manager as far as etcd needs it.
type Units interface {
	Installed(...systemd.File) (bool, error)
	Install(context.Context, ...systemd.File) error
	StartNoBlock(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	State(ctx context.Context, unit string) (systemd.State, error)
}

var _ Units = (*systemd.Manager)(nil)

const etcdUnit = "etcd.service"

// formingMarker exists from before the first start of a new cluster's etcd
// until the seed item says formed. A boot that finds it does not trust the
// data beside it: another node may have taken the claim over.
const formingMarker = "/etc/etcfs/forming"

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
	if err := b.mark(); err != nil {
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

// resumeForming goes on after a crash between the first start of etcd and the
// record of it in the seed item.
func (b *Bootstrap) resumeForming(ctx context.Context) error {
	if err := b.Units.StartNoBlock(ctx, etcdUnit); err != nil {
		return fmt.Errorf("start etcd: %w", err)
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
	began := time.Now()
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		view, err := b.look(ctx)
		if err != nil {
			return err
		}
		own, _, ownErr := b.Etcd.ClusterID(ctx, b.Node.PrivateIP)
		item := view.Item
		switch {
		case item != nil && item.State == membership.StateFormed:
			switch {
			case ownErr != nil:
				return b.askAbout(ctx, view, ownErr)
			case own == item.ClusterID:
				return b.unmark() // done, perhaps by another node on this one's behalf
			default:
				return b.abandon(ctx, own)
			}
		case item != nil && item.State == membership.StateUnknown && ownErr == nil:
			// The shell bootstrap took over. It starts its daemons without a
			// further write, so this node has lost already.
			return b.abandon(ctx, own)
		case ownErr == nil:
			return b.record(ctx, view, own)
		case time.Since(began) > formPatience:
			return b.startOver(ctx, view)
		default:
			return b.etcdFailure(ctx, ownErr)
		}
	})
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
	if err := b.unmark(); err != nil {
		return phase.Permanent(err)
	}
	return phase.Permanent(fmt.Errorf("%w: this node is a member of the recorded cluster", errReconsider))
}

// startOver decides anew after a new etcd that does not come up. It is stopped,
// and then the item is written, so that a write which would record its cluster
// and is still under way fails.
func (b *Bootstrap) startOver(ctx context.Context, view membership.View) error {
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
	return phase.Permanent(b.giveWay(ctx, "the new etcd did not come up"))
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
	if err := b.unmark(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", errReconsider, reason)
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
		if err := b.step(ctx, endpoints); err != nil || known {
			return err
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

// join makes this node a voting member of the cluster behind the endpoints.
func (b *Bootstrap) join(ctx context.Context, endpoints []string) error {
	// A mark left by a try to form that came to nothing must not be taken for
	// one of the data that this join brings.
	if err := b.unmark(); err != nil {
		return err
	}
	failures := 0
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		err := b.step(ctx, endpoints)
		if errors.Is(err, errUnderway) {
			err = phase.Poll(ctx, phase.Local, func(ctx context.Context) error {
				err := b.step(ctx, endpoints)
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
func (b *Bootstrap) step(ctx context.Context, endpoints []string) error {
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
		err := b.changed("promote", member, b.Etcd.Promote(ctx, endpoints, member.ID))
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
		flags := etcdFlags{state: "existing", initialCluster: membership.InitialCluster(members, name, peerURL), token: b.Settings.ClusterName}
		if err := b.startEtcd(ctx, flags); err != nil {
			return phase.Permanent(err)
		}
		return fmt.Errorf("%w: %w", errUnderway, b.etcdFailure(ctx, errors.New("etcd is starting as a learner")))
	case membership.Queue:
		if removed, err := b.removeDead(ctx, endpoints, members, began); removed || err != nil {
			return err
		}
		if b.stuck(member) {
			return b.remove(ctx, endpoints, member, began, "remove a learner that does not get on")
		}
		return fmt.Errorf("member %s joins first", member)
	case membership.Add:
		// A dead member raises the quorum and has etcd refuse every addition.
		if removed, err := b.removeDead(ctx, endpoints, members, began); removed || err != nil {
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

// burialPause is how long a joining node relies on there being nobody dead.
const burialPause = 5 * time.Second

// removeDead removes one member whose instance is gone. An incomplete list of
// instances is an error of Instances or lacks this node; then nobody is dead.
// The list is eventually consistent, so a member that still answers is not
// dead either, whatever the list says.
func (b *Bootstrap) removeDead(ctx context.Context, endpoints []string, members []membership.Member, began time.Time) (removed bool, err error) {
	// Every look is a call to EC2, which limits the rate of an account.
	if time.Since(b.seen.buried) < burialPause {
		return false, nil
	}
	instances, err := b.Group.Instances(ctx)
	if err := transient(&b.seen.reading, err); err != nil {
		return false, err
	}
	defer func() {
		if !removed {
			b.seen.buried = time.Now()
		}
	}()
	for _, member := range membership.Dead(members, instances, b.self()) {
		if b.answers(ctx, member, instances) {
			b.Logger.Warn("a member answers although its instance is not listed", "member", member.String())
			continue
		}
		return true, b.remove(ctx, endpoints, member, began, "remove a dead member")
	}
	return false, nil
}

// answers says whether anything answers at an address of a member that no
// listed instance has; what answers at a listed one's is that instance.
func (b *Bootstrap) answers(ctx context.Context, member membership.Member, instances []membership.Instance) bool {
	return slices.ContainsFunc(member.Hosts(), func(ip string) bool {
		listed := slices.ContainsFunc(instances, func(i membership.Instance) bool { return i.IP == ip })
		return !listed && b.Etcd.Probe(ctx, ip).Health != membership.Silent
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
		err := b.Etcd.Remove(ctx, endpoints, member.ID)
		b.Logger.Info("removed the half-joined member of this node", "member", member.String(), "error", err)
		// One without a name may be of a dead node that had this address.
		if err == nil && (member.Started() || member.ID == b.seen.added) {
			err = b.wipe(ctx)
			b.Logger.Info("removed its data", "error", err)
		}
	}
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

// etcdFlags are the flags that differ between forming and joining. etcd ignores
// them once it has data.
type etcdFlags struct{ state, initialCluster, token string }

// startEtcd writes etcd's unit and starts it, again if it runs with other
// flags. It does not wait: etcd reports readiness only after it has reached the
// others, which may need this node's promotion.
func (b *Bootstrap) startEtcd(ctx context.Context, flags etcdFlags) error {
	unit := systemd.Unit(etcdUnit, b.etcdUnitFile(flags))
	installed, err := b.Units.Installed(unit)
	if err != nil {
		return err
	}
	if !installed {
		if err := b.stopEtcd(ctx); err != nil {
			return err
		}
		if err := b.Units.Install(ctx, unit); err != nil {
			return err
		}
	}
	if err := b.Units.StartNoBlock(ctx, etcdUnit); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return nil
}

// stopEtcd stops etcd; a unit that systemd has never heard of is stopped.
func (b *Bootstrap) stopEtcd(ctx context.Context) error {
	state, err := b.Units.State(ctx, etcdUnit)
	if err != nil {
		return err
	}
	if state.Active == "inactive" {
		return nil
	}
	if err := b.Units.Stop(ctx, etcdUnit); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}
	return nil
}

func (b *Bootstrap) etcdUnitFile(flags etcdFlags) string {
	ip := b.Node.PrivateIP
	arguments := []string{
		"/usr/local/bin/etcd",
		"--name=" + b.Node.ID(b.Settings.ClusterName),
		"--data-dir=" + settings.EtcdDataDir,
		"--wal-dir=" + settings.EtcdWALDir,
		"--listen-peer-urls=" + etcd.PeerURL(ip),
		"--initial-advertise-peer-urls=" + etcd.PeerURL(ip),
		"--listen-client-urls=" + etcd.ClientURL(ip),
		"--advertise-client-urls=" + etcd.ClientURL(ip),
		"--initial-cluster-state=" + flags.state,
		"--initial-cluster=" + flags.initialCluster,
		"--initial-cluster-token=" + flags.token,
		"--auto-compaction-mode=revision",
		"--auto-compaction-retention=100000",
		fmt.Sprintf("--quota-backend-bytes=%d", 8<<30),
	}
	// Not enabled: after a reboot the bootstrap decides whether etcd may start.
	return `[Unit]
Description=etcd of the EtcFS cluster ` + b.Settings.ClusterName + `
Documentation=https://etcd.io/docs/
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=` + strings.Join(arguments, " \\\n  ") + `
Restart=on-failure
RestartSec=1
TimeoutStartSec=infinity
LimitNOFILE=65536
`
}

// etcdFailure adds what systemd says of a unit that has failed to the reason
// why etcd does not answer.
func (b *Bootstrap) etcdFailure(ctx context.Context, err error) error {
	state, stateErr := b.Units.State(ctx, etcdUnit)
	if stateErr != nil {
		return fmt.Errorf("%w (%w)", err, stateErr)
	}
	return fmt.Errorf("%w (%s is %s)", err, etcdUnit, state)
}

// reconsider has everything decided anew after a call to AWS that may have
// happened or not, unless trying again cannot help.
func reconsider(err error) error {
	if aws.Classify(err) == aws.Stop {
		return err
	}
	return fmt.Errorf("%w: %w", errReconsider, err)
}

// hasEtcdData says whether etcd has ever started on this disk: with a
// write-ahead log it comes back as the member it was and ignores its initial
// flags.
func (b *Bootstrap) hasEtcdData() (bool, error) {
	logs, err := filepath.Glob(b.path(settings.EtcdWALDir + "/*.wal"))
	if err != nil {
		return false, fmt.Errorf("look for etcd's write-ahead log: %w", err)
	}
	return len(logs) > 0, nil
}

// wipe stops etcd and removes its data, after the cluster has let go of this
// node's member or where there never was one. The write-ahead log goes last:
// as long as it is there, whatever a crash leaves is known to be old.
func (b *Bootstrap) wipe(ctx context.Context) error {
	if err := b.stopEtcd(ctx); err != nil {
		return err
	}
	for _, dir := range []string{settings.EtcdDataDir, settings.EtcdWALDir} {
		if err := os.RemoveAll(b.path(dir)); err != nil {
			return fmt.Errorf("remove etcd's data: %w", err)
		}
	}
	return nil
}

func (b *Bootstrap) marked() bool {
	_, err := os.Stat(b.path(formingMarker))
	return err == nil
}

func (b *Bootstrap) mark() error {
	path := b.path(formingMarker)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("mark this node as forming: %w", err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return fmt.Errorf("mark this node as forming: %w", err)
	}
	return nil
}

func (b *Bootstrap) unmark() error {
	if err := os.Remove(b.path(formingMarker)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the mark of a forming node: %w", err)
	}
	return nil
}
