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
	return phase.Phase{
		Name:    PhaseMember,
		Timeout: membership.TakeoverAge + membership.Patience,
		Done: func(ctx context.Context) (bool, error) {
			hasData, err := b.hasEtcdData()
			if err != nil || !hasData || b.marked() {
				return false, err
			}
			return b.votes(ctx), nil
		},
		Run: func(ctx context.Context) error {
			err := b.becomeMember(ctx)
			if err != nil {
				b.giveUp(ctx)
			}
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
	asserted.CreatedAt = now
	won, err := b.Seed.Replace(ctx, claim, asserted)
	if err != nil {
		return reconsider(err)
	}
	if !won {
		return fmt.Errorf("%w: the claim was taken over before etcd started", errReconsider)
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

// recordFormed waits for this node's own new etcd and turns the seed item from
// forming into formed. Only then may a daemon touch the volume. Whoever cannot
// make that write has lost the claim and gives its empty cluster up.
//
// An item that says forming, whoever claims it, proves that the cluster formed
// here was never recorded: once formed, an item stays so.
func (b *Bootstrap) recordFormed(ctx context.Context) error {
	began := time.Now()
	return phase.Poll(ctx, pace, func(ctx context.Context) error {
		view, err := b.look(ctx)
		if err != nil {
			return b.transient(err)
		}
		own, _, ownErr := b.Etcd.ClusterID(ctx, b.Node.PrivateIP)
		item := view.Item
		switch {
		case item != nil && item.State == membership.StateFormed && ownErr == nil && own == item.ClusterID:
			return b.unmark() // done, perhaps by another node on this one's behalf
		case item != nil && item.State == membership.StateFormed && ownErr != nil:
			return b.askAbout(ctx, view, ownErr)
		case item != nil && item.State == membership.StateForming && item.InstanceID == b.Node.InstanceID:
			if ownErr != nil && time.Since(began) > formPatience {
				return b.startOver(ctx, *item, view.Now)
			}
			if ownErr != nil {
				return b.etcdFailure(ctx, ownErr)
			}
			return b.record(ctx, *item, own, view.Now)
		case item != nil && item.State == membership.StateForming && ownErr != nil:
			return phase.Permanent(b.giveWay(ctx, "the claim was taken over before etcd served"))
		case ownErr != nil:
			return b.etcdFailure(ctx, ownErr)
		default:
			return b.abandon(ctx, own)
		}
	})
}

// record writes that the cluster has formed.
func (b *Bootstrap) record(ctx context.Context, claim membership.Item, clusterID string, now time.Time) error {
	if reading := b.Etcd.Probe(ctx, b.Node.PrivateIP); reading.Health != membership.Healthy {
		return errors.New("the new etcd is not healthy yet")
	}
	formed := claim
	formed.CreatedAt, formed.State, formed.ClusterID = now, membership.StateFormed, clusterID
	if _, err := b.Seed.Replace(ctx, claim, formed); err != nil {
		return b.transient(err)
	}
	return errors.New("the seed item is being written") // the next reading tells whether it was
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
	step, _ := membership.Next(members, b.Node.ID(b.Settings.ClusterName), etcd.PeerURL(b.Node.PrivateIP), true)
	if step == membership.Removed {
		return phase.Permanent(b.giveWay(ctx, "the recorded cluster does not have the member that formed here"))
	}
	if err := b.unmark(); err != nil {
		return phase.Permanent(err)
	}
	return phase.Permanent(fmt.Errorf("%w: this node is a member of the recorded cluster", errReconsider))
}

// startOver forms once more after an etcd that did not come up. etcd is stopped
// before the claim is asserted again, so nobody can have recorded its cluster
// in between.
func (b *Bootstrap) startOver(ctx context.Context, claim membership.Item, now time.Time) error {
	if err := b.stopEtcd(ctx); err != nil {
		return err
	}
	asserted := claim
	asserted.CreatedAt = now
	won, err := b.Seed.Replace(ctx, claim, asserted)
	if err != nil {
		return b.transient(err)
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
	return phase.Permanent(b.giveWay(ctx, "the claim was taken over while etcd started"))
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
			return b.transient(err)
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
		return b.step(ctx, endpoints)
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
	members, err := b.Etcd.Members(ctx, endpoints)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	hasData, err := b.hasEtcdData()
	if err != nil {
		return phase.Permanent(err)
	}
	name, peerURL := b.Node.ID(b.Settings.ClusterName), etcd.PeerURL(b.Node.PrivateIP)
	next, member := membership.Next(members, name, peerURL, hasData)
	switch next {
	case membership.Joined:
		return nil
	case membership.Promote:
		// Not waiting for this member's own client port, which may open much
		// later than it can vote.
		err := b.changed("promote", member, b.Etcd.Promote(ctx, endpoints, member.ID))
		return fmt.Errorf("%w: %w", errUnderway, b.etcdFailure(ctx, err))
	case membership.Remove:
		return b.changed("remove what stands in the way", member, b.Etcd.Remove(ctx, endpoints, member.ID))
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
		if removed, err := b.removeDead(ctx, endpoints, members); removed || err != nil {
			return err
		}
		return fmt.Errorf("member %s joins first", member)
	case membership.Add:
		// A dead member raises the quorum and has etcd refuse every addition.
		if removed, err := b.removeDead(ctx, endpoints, members); removed || err != nil {
			return err
		}
		if err := b.changed("add as a learner", membership.Member{PeerURLs: []string{peerURL}}, b.Etcd.AddLearner(ctx, endpoints, peerURL)); !errors.Is(err, errChanged) {
			return err
		}
		return errUnderway
	default:
		return phase.Permanent(fmt.Errorf("step %d is unknown", next))
	}
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

// burialPause is how long a joining node relies on there being nobody dead.
const burialPause = 5 * time.Second

// removeDead removes one member whose instance is gone. An incomplete list of
// instances is an error of Instances or lacks this node; then nobody is dead.
// The list is eventually consistent, so a member that still answers is not
// dead either, whatever the list says.
func (b *Bootstrap) removeDead(ctx context.Context, endpoints []string, members []membership.Member) (removed bool, err error) {
	// Every look is a call to EC2, which limits the rate of an account.
	if time.Since(b.seen.buried) < burialPause {
		return false, nil
	}
	instances, err := b.Group.Instances(ctx)
	if err != nil {
		return false, b.transient(err)
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
		return true, b.changed("remove a dead member", member, b.Etcd.Remove(ctx, endpoints, member.ID))
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
		if !member.Of(b.Node.InstanceID, b.Node.PrivateIP) || member.Started() && !member.Learner {
			continue
		}
		err := b.Etcd.Remove(ctx, endpoints, member.ID)
		b.Logger.Info("removed the half-joined member of this node", "member", member.String(), "error", err)
		if err == nil {
			err = b.wipe(ctx)
			b.Logger.Info("removed its data", "error", err)
		}
	}
}

// votes says whether this node's etcd runs and its member votes, as the cluster
// tells it.
func (b *Bootstrap) votes(ctx context.Context) bool {
	own := []string{etcd.ClientURL(b.Node.PrivateIP)}
	state, err := b.Units.State(ctx, etcdUnit)
	if err != nil || state.Active != "active" && state.Active != "activating" {
		return false
	}
	members, err := b.Etcd.Members(ctx, own)
	if err != nil {
		// A member that was just promoted may not serve clients yet.
		view, err := b.look(ctx)
		if err != nil {
			return false
		}
		endpoints := endpointsOf(healthyMembers(view, itemCluster(view)))
		if len(endpoints) == 0 {
			return false
		}
		if members, err = b.Etcd.Members(ctx, endpoints); err != nil {
			return false
		}
	}
	step, _ := membership.Next(members, b.Node.ID(b.Settings.ClusterName), etcd.PeerURL(b.Node.PrivateIP), true)
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
// node's member or where there never was one.
func (b *Bootstrap) wipe(ctx context.Context) error {
	if err := b.stopEtcd(ctx); err != nil {
		return err
	}
	for _, dir := range []string{settings.EtcdWALDir, settings.EtcdDataDir} {
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
