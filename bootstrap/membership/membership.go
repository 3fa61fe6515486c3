// Package membership decides who forms the etcd cluster of an EtcFS volume,
// who joins it and which members are dead. It performs no I/O: what a node has
// seen goes in, what it should do comes out.
//
// One mistake here is unforgivable. A fresh etcd hands out the arenas of the
// shared disk from zero again, so forming a second cluster for a volume that
// holds data overwrites it. Every decision to form therefore needs proof that
// no cluster exists; everything that is merely unknown waits, and in the end
// refuses.
package membership

import (
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// TakeoverAge is how old a seed item must be before another node may take it
// over, the same for every kind of node that shares the table.
const TakeoverAge = 600 * time.Second

// AdoptAge is how long an etcd that the seed item does not name must have
// answered before its cluster is taken for the cluster. A slow seed whose
// claim was taken over stops its etcd long before that.
const AdoptAge = 2 * time.Minute

// Patience is how long a node waits for a formed cluster of which no member
// answers before it refuses.
const Patience = 10 * time.Minute

// StuckAge is how long a node waits behind another one that joins before it
// takes that one's place, unless its [Fate] is to vote. A learner holds nothing
// that the voters lack: whoever finds its learner removed starts over.
const StuckAge = 10 * time.Minute

// State is what the seed item says of the cluster.
type State string

const (
	// StateUnknown is the state of an item that the shell bootstrap wrote.
	StateUnknown State = ""
	// StateForming: a node is about to form the cluster, or died trying. No
	// daemon has touched the volume yet.
	StateForming State = "forming"
	// StateFormed: the cluster exists, and the volume may hold data.
	StateFormed State = "formed"
)

// Item is the seed item: where to join, and whether there is anything to join.
// It is a hint and no record of who is alive.
type Item struct {
	ClusterName string
	// SeedIP is the address of the node that formed the cluster, or of one that
	// was seen healthy later.
	SeedIP string
	// CreatedAt is when the item was last claimed or repointed, in whole
	// seconds of DynamoDB's clock.
	CreatedAt time.Time
	// InstanceID is the node behind SeedIP, "" in an item of the shell
	// bootstrap.
	InstanceID string
	State      State
	// ClusterID is etcd's ID of the formed cluster in hexadecimal, "" while it
	// is not known.
	ClusterID string
	// VolumeID is the volume that the cluster's metadata describes, "" in an
	// item of the shell bootstrap.
	VolumeID string
}

// Instance is one EC2 instance with the cluster's tag.
type Instance struct {
	ID string
	IP string
	// Launched is when it was first launched; EC2's own launch time is that of
	// its last start.
	Launched time.Time
	// Node says that the instance has the role tag of a node. Others with the
	// cluster's tag are not expected to run etcd, but a member on one is alive
	// all the same.
	Node bool
}

// Instances are the instances of a cluster.
type Instances struct {
	// Live are all that are pending or running.
	Live []Instance
	// Stopped are all that are stopping or stopped. They keep their disk, and may
	// be started again.
	Stopped []Instance
	// Terminated are the IDs of those that shut down for good, or have. EC2
	// forgets them within an hour or so.
	Terminated []string
}

// Health is how the etcd of a node answers.
type Health int

const (
	// Silent: nothing accepts a connection.
	Silent Health = iota
	// Answering: something is there, but the cluster cannot serve through it.
	// Metadata may well exist behind it.
	Answering
	// Healthy: the cluster serves through this member.
	Healthy
)

func (h Health) String() string {
	return [...]string{"silent", "answering", "healthy"}[h]
}

// Peer is another instance of the cluster and the etcd on it.
type Peer struct {
	Instance
	Health Health
	// ClusterID is the ID of the cluster that a healthy peer serves.
	ClusterID string
	// Learner says that a healthy peer does not vote yet; it cannot be joined
	// through.
	Learner bool
	// Unused says that a healthy peer is its cluster's only member, and that no node
	// of EtcFS is registered there. It is asked where no item names the cluster.
	Unused bool
	// Reason is why the peer's etcd says that it is not healthy, "" when it does
	// not say.
	Reason string
	// HealthyFor is how long this node has seen the peer healthy without a
	// break.
	HealthyFor time.Duration
}

// View is all that a node has seen.
type View struct {
	ClusterName string
	// VolumeID is the volume that this node was told to use.
	VolumeID string
	Self     Instance
	// Listed says that the list of instances is complete and contains this
	// node; without that nothing can be concluded from an absence.
	Listed bool
	// Item is the seed item by a consistent read, nil when there is none.
	Item *Item
	// Peers are all the other live instances of the list.
	Peers []Peer
	// Stopped are those that are stopped, with all that is on their disks.
	Stopped []Instance
	// Now is the time by DynamoDB's clock, which is the same for every node.
	Now time.Time
	// Waited is how long this node has seen neither the seed item change nor a
	// member of the cluster that it names healthy.
	Waited time.Duration
	// MemberSeen says that this node has seen an etcd of the cluster answer at
	// any time since it began.
	MemberSeen bool
	Recovery   settings.Recovery
}
