package membership

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Member is one member of the etcd cluster.
type Member struct {
	ID uint64
	// Name is the node ID, "" while the member has not started.
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
}

// Started says whether the member has ever started; only then it has a name.
func (m Member) Started() bool { return m.Name != "" }

func (m Member) String() string {
	name := m.Name
	if name == "" {
		name = "unstarted"
	}
	return fmt.Sprintf("%x (%s, %s)", m.ID, name, strings.Join(m.PeerURLs, " "))
}

// NodeID is the name of a node in etcd and in EtcFS. It ends in the full
// instance ID, because a shortened one can be another instance's too.
func NodeID(clusterName, instanceID string) string { return clusterName + "-" + instanceID }

var (
	fullID = regexp.MustCompile(`(?:^|-)(i-[0-9a-f]{17})$`)
	// shortID is the end of a node ID of the shell bootstrap: the last eight
	// characters of the instance ID.
	shortID = regexp.MustCompile(`-([0-9a-f]{8})$`)
)

// Of says whether the member runs on the instance, by its name, or by its exact
// peer address while it has none.
func (m Member) Of(instanceID, ip string) bool {
	if !m.Started() {
		return ip != "" && m.at(ip)
	}
	if match := fullID.FindStringSubmatch(m.Name); match != nil {
		return match[1] == instanceID
	}
	// Eight characters may be shared by two instances; the address settles it
	// where it is known.
	if match := shortID.FindStringSubmatch(m.Name); match != nil {
		return strings.HasSuffix(instanceID, match[1]) && (ip == "" || m.at(ip))
	}
	return false
}

// Hosts are the hosts of the member's peer URLs.
func (m Member) Hosts() []string {
	var hosts []string
	for _, raw := range m.PeerURLs {
		if u, err := url.Parse(raw); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// at says whether one of the member's peer URLs has exactly this host.
func (m Member) at(ip string) bool { return slices.Contains(m.Hosts(), ip) }

// identifiable says whether the member's instance can be told at all. One with
// a name of another form was put there by a person and is nobody's to remove.
func (m Member) identifiable() bool {
	return !m.Started() || fullID.MatchString(m.Name) || shortID.MatchString(m.Name)
}

// Fate is what is to become of a learner, written down in etcd by whoever is
// first, for good: its own node before it promotes it, or another one before it
// removes it for being in the way. etcd has no removal on the condition that a
// member does not vote yet; with this a learner that is on its way to a vote is
// never removed, and one that is to be removed never promoted.
type Fate string

const (
	// FateVote: the learner's own node promotes it.
	FateVote Fate = "vote"
	// FateGo: another node removes it.
	FateGo Fate = "go"
)

// AbsentAge is how long the instance of a member must be missing from the
// cluster's instances before the member is dead. EC2's answers are eventually
// consistent, so one that misses an instance proves nothing; that an instance is
// terminated does.
const AbsentAge = time.Minute

// Evidence is what a node knows of the instances behind the members.
type Evidence struct {
	Instances
	// Absent is how long this node has found a member's instance in no list,
	// without a break, by the member's ID.
	Absent map[uint64]time.Duration
	// Mounted are the instances that have a lease in EtcFS now. etcd itself has
	// heard of them within seconds, whatever this node can reach.
	Mounted []string
}

// Death is a member that may be removed.
type Death struct {
	Member
	// Terminated says that EC2 tells so; otherwise the instance is only missing,
	// and what answers at the member's address is the better evidence.
	Terminated bool
	// Certain says that no vote of the instance can follow. Otherwise the member
	// is a learner, and its fate decides, or it is too early to tell.
	Certain bool
}

// Dead lists the members whose instance seems to be gone. The list of instances
// must be complete and contain this node; otherwise nobody is dead. They are
// removed one at a time, unstarted and learning ones first since those never
// cost the quorum, and the members are read again in between. For a voter of
// which it is too early to tell, this node waits.
func Dead(members []Member, known Evidence, self Instance) []Death {
	if !slices.ContainsFunc(known.Live, func(i Instance) bool { return i.ID == self.ID }) {
		return nil
	}
	var dead []Death
	for _, member := range members {
		if !known.Missing(member) {
			continue
		}
		terminated := slices.ContainsFunc(known.Terminated, func(id string) bool { return member.Started() && member.Of(id, "") })
		mounted := slices.ContainsFunc(known.Mounted, func(id string) bool { return member.Of(id, "") })
		if terminated || !mounted || member.Learner {
			dead = append(dead, Death{member, terminated, terminated || known.Absent[member.ID] >= AbsentAge && !mounted})
		}
	}
	slices.SortStableFunc(dead, func(a, b Death) int { return a.weight() - b.weight() })
	return dead
}

// Missing says whether a member's instance, which can be told, is none of those
// that live, nor a stopped one, which may be started in this moment.
func (l Instances) Missing(member Member) bool {
	return member.identifiable() && !slices.ContainsFunc(slices.Concat(l.Live, l.Stopped), func(i Instance) bool {
		// An instance without an address yet may be behind any unstarted member.
		return member.Of(i.ID, i.IP) || !member.Started() && i.IP == ""
	})
}

func (m Member) weight() int {
	switch {
	case m.Learner:
		return 0
	case !m.Started():
		return 1
	default:
		return 2
	}
}

// Step is what a joining node does about its own membership.
type Step int

const (
	// Add this node as a learner.
	Add Step = iota
	// Start etcd as the member that this node has added.
	Start
	// Remove a member that stands in the way, then look again.
	Remove
	// Queue: another node is joining. etcd takes one learner at a time, and
	// logs an error for each one more.
	Queue
	// Promote this node's learner.
	Promote
	// Joined: this node's member votes.
	Joined
	// Removed: this node has data of a member that the cluster no longer has.
	// The data has to go before the node can join again.
	Removed
)

func (s Step) String() string {
	return [...]string{"add", "start", "remove", "queue", "promote", "joined", "removed"}[s]
}

// Joiner is a node on its way into the cluster.
type Joiner struct {
	Instance
	PeerURL string
	// HasData says whether its etcd has ever started on this disk.
	HasData bool
	// Added is the member that this node itself has added since it began, 0
	// while there is none.
	Added uint64
}

// Next tells a joining node its next step. The member returned is the one that
// the step is about.
//
// An unstarted member at this node's address that it does not remember adding
// is never started. It may have run before, on the disk of a node that is gone:
// the leader takes the part of the log that was there for safe, and etcd that
// starts without it panics for ever, as a voting member if it was promoted.
func Next(members []Member, j Joiner) (Step, Member) {
	for _, member := range members {
		if !member.Started() || !member.Of(j.ID, j.IP) {
			continue
		}
		switch {
		case !j.HasData:
			return Remove, member // its disk is gone: it can never come back as this member
		case member.Learner:
			return Promote, member
		default:
			return Joined, member
		}
	}
	for _, member := range members {
		if !slices.Contains(member.PeerURLs, j.PeerURL) {
			continue
		}
		switch {
		case member.Started():
			return Remove, member // a dead node whose address was reused
		case j.HasData && member.Learner:
			return Promote, member // started, but its name has not been published yet
		case j.HasData:
			return Joined, member
		case member.ID == j.Added:
			return Start, member
		default:
			return Remove, member // an earlier try of this node, or of one that is gone
		}
	}
	if j.HasData {
		return Removed, Member{}
	}
	if i := slices.IndexFunc(members, func(m Member) bool { return m.Learner }); i >= 0 {
		return Queue, members[i]
	}
	return Add, Member{}
}

// InitialCluster is etcd's --initial-cluster for a node that joins: every
// member of the cluster and no other. Members are matched by URL, so those
// that have no name yet get a placeholder, never an empty one.
func InitialCluster(members []Member, name, peerURL string) string {
	var entries []string
	for _, member := range members {
		label := member.Name
		switch {
		case slices.Contains(member.PeerURLs, peerURL):
			label = name
		case !member.Started():
			label = fmt.Sprintf("unstarted-%x", member.ID)
		}
		for _, url := range member.PeerURLs {
			entries = append(entries, label+"="+url)
		}
	}
	slices.Sort(entries)
	return strings.Join(entries, ",")
}
