package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// Action is what a node should do next.
type Action int

const (
	// Wait and look again.
	Wait Action = iota
	// Claim the seed by creating the item, which must not exist.
	Claim
	// TakeOver the seed by replacing exactly the item that was read.
	TakeOver
	// Form a new cluster. The claim has to be asserted once more right before
	// etcd starts.
	Form
	// Join the cluster through the peers named.
	Join
	// Refuse: no waiting will help, and forming might destroy data.
	Refuse
)

func (a Action) String() string {
	return [...]string{"wait", "claim", "take over", "form", "join", "refuse"}[a]
}

// Decision is what to do, and why.
type Decision struct {
	Action Action
	// Reason is a sentence for the log.
	Reason string
	// Via are the peers to join through.
	Via []Peer
	// Write is the item to write: the claim, or on Join the item repointed at a
	// healthy peer. nil when the item stays as it is.
	Write *Item
	// MustWrite says that a Join is allowed only once Write has replaced exactly
	// the item that was read, which does not name the cluster yet. Otherwise the
	// item is only pointed at another of its members, and losing is fine.
	MustWrite bool
}

// Decide tells a node that has no member of its own yet what to do.
func Decide(v View) Decision {
	if !v.Listed {
		return Decision{Reason: "the list of the cluster's instances is incomplete or does not contain this node yet"}
	}
	switch {
	case v.Item == nil:
		return v.withoutItem()
	case v.otherVolume():
		// The metadata of one volume over the blocks of another is as good as
		// none. No waiting mends that.
		return Decision{Action: Refuse, Reason: fmt.Sprintf(
			"this node was told to use volume %s, but the seed item names a cluster on volume %s: give the nodes that volume back, "+
				"or give the new volume a cluster of another name", v.VolumeID, v.Item.VolumeID)}
	case v.Item.State == StateForming:
		return v.withForming()
	case v.Item.State == StateFormed:
		return v.withFormed()
	default:
		return v.withUnknown()
	}
}

// otherVolume says that the item is about a cluster on another volume, and that
// this cluster exists, or may: the loss of which the user has not accepted.
func (v View) otherVolume() bool {
	if v.Item.VolumeID == "" || v.Item.VolumeID == v.VolumeID {
		return false
	}
	_, answering := v.answering()
	return answering || v.Item.State == StateFormed && v.Recovery != settings.RecoveryReform
}

// withoutItem: the first boot of a cluster, or a table that was emptied under
// a living one.
func (v View) withoutItem() Decision {
	if d, ok := v.joinUnnamed(); ok {
		return d.mustWrite()
	}
	if peer, ok := v.answering(); ok {
		return wait("there is no seed item, but %s answers on etcd's ports", peer)
	}
	if keeper := v.keeper(); keeper != "" {
		return v.waitForKeeper("there is no seed item, but " + keeper)
	}
	return Decision{Action: Claim, Write: v.claim(), Reason: "there is no seed item and no peer answers"}
}

// withForming: somebody, perhaps this node, claims to be forming. Until the
// item says formed no daemon has been started anywhere, so the volume is
// untouched and a takeover loses nothing.
func (v View) withForming() Decision {
	// The claimant's own etcd starts only after its last assertion of the
	// claim, so a healthy one is the cluster. Recording that on the claimant's
	// behalf makes a takeover impossible from there on.
	for _, peer := range v.healthy("") {
		if peer.ID == v.Item.InstanceID {
			return v.join(peer, "the seed %s is healthy", peer).mustWrite()
		}
	}
	// Another etcd that answers is either a seed that lost its claim, which
	// will stop it in a moment, or a cluster that lost its item.
	if settled := slices.DeleteFunc(v.healthy(""), func(p Peer) bool { return p.HealthyFor < AdoptAge }); len(settled) > 0 {
		if d, ok := v.joinAny(settled); ok {
			return d.mustWrite()
		}
	}
	if peer, ok := v.answering(); ok {
		return wait("%s claims to form the cluster, but %s answers on etcd's ports", v.Item.InstanceID, peer)
	}
	if v.Item.InstanceID == v.Self.ID {
		return Decision{Action: Form, Reason: "this node holds the claim and no peer answers"}
	}
	return v.takeOverByAge()
}

// withFormed: the cluster exists. Nothing but the user's word makes a node
// form another one.
func (v View) withFormed() Decision {
	if members := v.healthy(v.Item.ClusterID); len(members) > 0 {
		if v.Item.ClusterID == "" {
			d, _ := v.joinAny(members)
			return d.mustWrite()
		}
		for _, member := range members {
			if member.ID == v.Item.InstanceID {
				return Decision{Action: Join, Via: members, Reason: fmt.Sprintf("the seed %s is healthy", member)}
			}
		}
		return v.join(members[0], "%s is healthy", members[0])
	}
	if others := v.healthy(""); len(others) > 0 {
		return v.waitForChoice("%s serves etcd cluster %s, but the seed item names cluster %s",
			others[0], others[0].ClusterID, v.Item.ClusterID)
	}
	if peer, ok := v.answering(); ok {
		return wait("the cluster has formed and %s answers without being healthy", peer)
	}
	if v.Recovery == settings.RecoveryReform {
		return v.takeOverFromTheLost()
	}
	return v.waitOrRefuse("the cluster has formed, but none of its members answers (%d other instances pending or running)", len(v.Peers))
}

// withUnknown: the item is the shell bootstrap's, which does not tell whether
// the cluster ever formed. Once any member was seen it has. Its age is by the
// clock of the node that wrote it, so this node has to have seen it unchanged
// for all of a takeover's time as well.
func (v View) withUnknown() Decision {
	if d, ok := v.joinUnnamed(); ok {
		return d.mustWrite()
	}
	if peer, ok := v.answering(); ok {
		return wait("%s answers without being healthy", peer)
	}
	if v.MemberSeen && v.Recovery != settings.RecoveryReform {
		return v.waitOrRefuse("a member of the cluster answered earlier, but none does now")
	}
	if d := v.takeOverFromTheLost(); d.Action != TakeOver || v.Waited >= TakeoverAge {
		return d
	}
	return wait("the seed %s does not answer and may still come up: this node has not watched its item for %s", v.Item.seed(), TakeoverAge)
}

// takeOverFromTheLost takes the claim over where the item does not prove that
// no cluster ever formed. Who may hold the metadata forbids it, even with the
// user's word: it is terminated first.
func (v View) takeOverFromTheLost() Decision {
	if keeper := v.keeper(); keeper != "" {
		return v.waitForKeeper(keeper)
	}
	return v.takeOverByAge()
}

func (v View) takeOverByAge() Decision {
	age := v.Now.Sub(v.Item.CreatedAt)
	if age <= TakeoverAge {
		return wait("the seed %s does not answer and may still come up: its item is not older than %s", v.Item.seed(), TakeoverAge)
	}
	return Decision{
		Action: TakeOver, Write: v.claim(),
		Reason: fmt.Sprintf("the seed %s does not answer, its item is %s old and no peer answers", v.Item.seed(), age),
	}
}

// joinUnnamed joins through healthy peers whose cluster no item names. One that is
// not in use may be that of a seed that lost its claim, which nobody has told; it is
// joined only where nobody else can have the one that was recorded.
func (v View) joinUnnamed() (Decision, bool) {
	healthy := v.healthy("")
	used := slices.DeleteFunc(slices.Clone(healthy), func(p Peer) bool { return p.Unused })
	if len(used) > 0 || len(healthy) == 0 {
		return v.joinAny(used)
	}
	for _, peer := range v.Peers {
		if peer.Health == Answering {
			return wait("%s is healthy, but not in use, and %s answers without being healthy", healthy[0], peer), true
		}
	}
	if keeper := v.keeper(); keeper != "" {
		return v.waitForKeeper(fmt.Sprintf("%s is healthy, but not in use, and %s", healthy[0], keeper)), true
	}
	return v.joinAny(healthy)
}

// joinAny joins through healthy peers when they all serve one cluster. Two
// clusters for one volume are beyond what a node can mend.
func (v View) joinAny(healthy []Peer) (Decision, bool) {
	if len(healthy) == 0 {
		return Decision{}, false
	}
	for _, peer := range healthy[1:] {
		if peer.ClusterID != healthy[0].ClusterID {
			return v.waitForChoice("%s serves etcd cluster %s and %s serves cluster %s: two clusters use this volume",
				healthy[0], healthy[0].ClusterID, peer, peer.ClusterID), true
		}
	}
	return v.join(healthy[0], "%s is healthy", healthy[0]), true
}

// join joins through every healthy member of the peer's cluster and points the
// item at the peer.
func (v View) join(peer Peer, format string, args ...any) Decision {
	return Decision{
		Action: Join,
		Via:    v.healthy(peer.ClusterID),
		Write: &Item{
			ClusterName: v.ClusterName, SeedIP: peer.IP, InstanceID: peer.ID,
			CreatedAt: v.Now, State: StateFormed, ClusterID: peer.ClusterID, VolumeID: v.VolumeID,
		},
		Reason: fmt.Sprintf(format, args...),
	}
}

func (d Decision) mustWrite() Decision {
	d.MustWrite = d.Action == Join
	return d
}

func (v View) claim() *Item {
	return &Item{ClusterName: v.ClusterName, SeedIP: v.Self.IP, InstanceID: v.Self.ID, CreatedAt: v.Now, State: StateForming, VolumeID: v.VolumeID}
}

// healthy lists the voting peers that serve the cluster, or any cluster when
// the ID is empty, by instance ID.
func (v View) healthy(clusterID string) []Peer {
	var peers []Peer
	for _, peer := range v.Peers {
		if peer.Health == Healthy && !peer.Learner && (clusterID == "" || peer.ClusterID == clusterID) {
			peers = append(peers, peer)
		}
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

// answering returns a peer on which anything answers on etcd's ports.
func (v View) answering() (Peer, bool) {
	for _, peer := range v.Peers {
		if peer.Health != Silent {
			return peer, true
		}
	}
	return Peer{}, false
}

// keeper tells of an instance that may hold the cluster's metadata where this
// node cannot see it, "" when there is none: on the disk of a stopped one, or
// behind a network that this node cannot cross, as any may that stays silent
// although it has had all the time of a takeover since its first launch.
func (v View) keeper() string {
	for _, instance := range v.Stopped {
		if instance.Node {
			return instance.ID + " is stopped"
		}
	}
	for _, peer := range v.Peers {
		if peer.Node && peer.Health == Silent && v.Now.Sub(peer.Launched) > TakeoverAge {
			return fmt.Sprintf("%s was launched more than %s ago and does not answer", peer, TakeoverAge)
		}
	}
	return ""
}

// Rival says why a node with an etcd of its own that serves a cluster must not
// have the seed item name that cluster, "" when it may: somebody has another one,
// or may be about to. The shell bootstrap starts its daemons without a write after
// the one that claims the seed, and its item does not say what was recorded before.
func (v View) Rival(clusterID string) string {
	for _, peer := range v.healthy("") {
		if peer.ClusterID != clusterID {
			return fmt.Sprintf("%s serves etcd cluster %s and this node cluster %s: two clusters use this volume", peer, peer.ClusterID, clusterID)
		}
	}
	if v.Item == nil || v.Item.State != StateUnknown || v.Item.SeedIP == v.Self.IP || len(v.healthy(clusterID)) > 0 {
		return ""
	}
	return fmt.Sprintf("the seed item is the shell bootstrap's and names %s, which may have another cluster than %s, that of this node: "+
		"bring that node back, or, if it is gone for good, remove the seed item", v.Item.seed(), clusterID)
}

// waitOrRefuse waits for what should come back, and refuses when patience is
// at its end.
func (v View) waitOrRefuse(format string, args ...any) Decision {
	return v.waitFor(wait(format, args...),
		fmt.Sprintf("Bring a member of the cluster back, or, to accept that all files are lost, set recovery to %q", settings.RecoveryReform))
}

// waitForChoice waits for one of two clusters to go. Recovery does not make it: it
// forms nothing while anybody answers.
func (v View) waitForChoice(format string, args ...any) Decision {
	return v.waitFor(wait(format, args...), "Terminate the nodes whose cluster is not the one to keep")
}

// waitForKeeper waits for an instance that may hold the metadata. Only its end
// proves that it does not; no setting does.
func (v View) waitForKeeper(keeper string) Decision {
	return v.waitFor(wait("%s: it may hold the cluster's metadata", keeper),
		"Bring that instance back, or terminate it if it holds nothing, or all files may be lost")
}

func (v View) waitFor(d Decision, remedy string) Decision {
	if v.Waited >= Patience {
		d.Action = Refuse
		d.Reason += fmt.Sprintf("; after %s this node gives up, because forming another etcd cluster would overwrite the files on the volume. %s", Patience, remedy)
	}
	return d
}

func wait(format string, args ...any) Decision {
	return Decision{Action: Wait, Reason: fmt.Sprintf(format, args...)}
}

func (p Peer) String() string {
	if p.Reason != "" {
		return fmt.Sprintf("%s at %s (%s)", p.ID, p.IP, p.Reason)
	}
	return p.ID + " at " + p.IP
}

func (i *Item) seed() string {
	return strings.TrimPrefix(strings.TrimSuffix(i.InstanceID+" at "+i.SeedIP, " at "), " at ")
}
