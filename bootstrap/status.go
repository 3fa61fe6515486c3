package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

// Status is one cluster as four sources tell it: the Auto Scaling Group, etcd,
// the volume's attachments and EtcFS's own membership.
type Status struct {
	Cluster string       `json:"cluster"`
	Nodes   []NodeStatus `json:"nodes"`
	// Problems are the sentences that keep the cluster from being healthy.
	Problems []string `json:"problems"`
	// Unseen are the sources that could not be read, with the reason.
	Unseen []string `json:"unseen"`
}

// NodeStatus is one instance in all four sources. A source that knows nothing
// of it has an empty field.
type NodeStatus struct {
	Instance string `json:"instance"`
	Address  string `json:"address,omitempty"`
	// Group is the state in the Auto Scaling Group, such as InService.
	Group string `json:"group,omitempty"`
	// Etcd is the role of its member: leader, voter, learner or unstarted.
	Etcd string `json:"etcd,omitempty"`
	// Member is the member's ID in hexadecimal.
	Member string `json:"member,omitempty"`
	// Volume is the state of its attachment, such as attached.
	Volume string `json:"volume,omitempty"`
	// EtcFS is the node ID under which it is registered in EtcFS.
	EtcFS string `json:"etcfs,omitempty"`
}

// membershipPrefix is where EtcFS keeps its live nodes: one key per node ID,
// which disappears with the node's lease.
const membershipPrefix = "membership:"

// Sources are what a status is read from.
type Sources struct {
	Group       Group
	Lifecycle   Lifecycle
	Etcd        EtcdReader
	Attachments Attachments
}

// Lifecycle tells the states of instances in their Auto Scaling Group.
type Lifecycle interface {
	States(ctx context.Context, instanceIDs []string) (map[string]aws.GroupState, error)
}

// EtcdReader reads the cluster through one of its nodes.
type EtcdReader interface {
	Members(ctx context.Context, endpoints []string) ([]membership.Member, error)
	Leader(ctx context.Context, ip string) (uint64, error)
	Values(ctx context.Context, endpoints []string, prefix string) (map[string]string, error)
}

// Attachments tells who holds the volume.
type Attachments interface {
	Attachments(context.Context) ([]aws.Attachment, error)
}

var (
	_ Lifecycle   = aws.Lifecycle{}
	_ EtcdReader  = etcd.Cluster{}
	_ Attachments = (*aws.Volume)(nil)
)

// views are what the sources said, and which of them did not.
type views struct {
	instances   []membership.Instance
	group       map[string]aws.GroupState
	members     []membership.Member
	leader      uint64
	attachments []aws.Attachment
	// registered are the instance IDs of the node IDs that have a live
	// membership key.
	registered map[string]string

	unseen map[source]error
}

// source is one of the places that a status is read from.
type source string

const (
	sourceInstances source = "instances"
	sourceGroup     source = "group"
	sourceEtcd      source = "etcd"
	sourceVolume    source = "volume"
	sourceEtcFS     source = "EtcFS"
)

func (v views) sees(s source) bool { return v.unseen[s] == nil }

// ReadStatus reads the sources and joins them. What cannot be read is said in
// the status; there is always one.
func ReadStatus(ctx context.Context, cluster string, self Node, from Sources) Status {
	v := views{unseen: map[source]error{}}
	instances, err := from.Group.Instances(ctx)
	v.instances, v.unseen[sourceInstances] = instances.Live, err
	v.attachments, v.unseen[sourceVolume] = from.Attachments.Attachments(ctx)
	ids := make([]string, len(v.instances))
	for i, instance := range v.instances {
		ids[i] = instance.ID
	}
	v.group, v.unseen[sourceGroup] = from.Lifecycle.States(ctx, ids)

	ip, err := v.readEtcd(ctx, self, from.Etcd)
	if err != nil {
		v.unseen[sourceEtcd] = err
		v.unseen[sourceEtcFS] = errors.New("its membership is kept in etcd")
		return v.join(cluster)
	}
	keys, err := from.Etcd.Values(ctx, []string{etcd.ClientURL(ip)}, membershipPrefix)
	v.unseen[sourceEtcFS] = err
	v.registered = registered(cluster, keys)
	return v.join(cluster)
}

// readEtcd reads members and leader through the first node that answers, this
// one before the others, and returns its address.
func (v *views) readEtcd(ctx context.Context, self Node, from EtcdReader) (ip string, err error) {
	candidates := []string{self.PrivateIP}
	for _, instance := range v.instances {
		if instance.IP != self.PrivateIP && instance.IP != "" {
			candidates = append(candidates, instance.IP)
		}
	}
	var failures []error
	for _, ip := range candidates {
		members, err := from.Members(ctx, []string{etcd.ClientURL(ip)})
		if err == nil {
			v.members = members
			v.leader, err = from.Leader(ctx, ip)
		}
		if err == nil {
			return ip, nil
		}
		failures = append(failures, err)
	}
	return "", errors.Join(failures...)
}

// join puts what the sources say of one instance in one place, and says where
// they disagree. A source that could not be read disagrees with none, and
// without the list of instances nothing can be judged.
func (v views) join(cluster string) Status {
	// Empty lists, not null, for those who read the JSON.
	status := Status{Cluster: cluster, Nodes: []NodeStatus{}, Problems: []string{}, Unseen: []string{}}
	for _, s := range slices.Sorted(maps.Keys(v.unseen)) {
		if err := v.unseen[s]; err != nil {
			status.Unseen = append(status.Unseen, fmt.Sprintf("%s: %v", s, err))
		}
	}
	problem := func(from source, format string, args ...any) {
		if v.sees(from) && v.sees(sourceInstances) {
			status.Problems = append(status.Problems, fmt.Sprintf(format, args...))
		}
	}
	nodes := map[string]*NodeStatus{}
	node := func(id string) *NodeStatus {
		if nodes[id] == nil {
			nodes[id] = &NodeStatus{Instance: id}
		}
		return nodes[id]
	}

	expected := map[string]bool{}
	for _, instance := range v.instances {
		if !instance.Node {
			continue
		}
		expected[instance.ID] = true
		n := node(instance.ID)
		n.Address = instance.IP
		state, grouped := v.group[instance.ID]
		switch {
		case !grouped:
			problem(sourceGroup, "%s belongs to no Auto Scaling Group", instance.ID)
		case !strings.EqualFold(state.Health, "Healthy"):
			n.Group = state.Lifecycle + ", " + strings.ToLower(state.Health)
			problem(sourceGroup, "%s is %s", instance.ID, n.Group)
		default:
			n.Group = state.Lifecycle
			if state.Lifecycle != "InService" {
				problem(sourceGroup, "%s is %s", instance.ID, state.Lifecycle)
			}
		}
	}

	for _, member := range v.members {
		id := v.instanceOf(member)
		if id == "" {
			problem(sourceEtcd, "etcd member %s belongs to no running instance", member)
			continue
		}
		n := node(id)
		n.Member = fmt.Sprintf("%x", member.ID)
		switch {
		case !member.Started():
			n.Etcd = "unstarted"
		case member.Learner:
			n.Etcd = "learner"
		case member.ID == v.leader:
			n.Etcd = "leader"
		default:
			n.Etcd = "voter"
		}
	}
	if len(v.members) > 0 && v.leader == 0 {
		problem(sourceEtcd, "etcd has no leader")
	}

	for _, attachment := range v.attachments {
		node(attachment.InstanceID).Volume = attachment.State
		if !expected[attachment.InstanceID] {
			problem(sourceVolume, "the volume is %s to %s, which is no running node of the cluster", attachment.State, attachment.InstanceID)
		}
	}
	for _, nodeID := range slices.Sorted(maps.Keys(v.registered)) {
		id := v.registered[nodeID]
		node(id).EtcFS = nodeID
		if !expected[id] {
			problem(sourceEtcFS, "%s is registered in EtcFS, but is no running node of the cluster", nodeID)
		}
	}

	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[id]
		status.Nodes = append(status.Nodes, *n)
		if !expected[id] {
			continue
		}
		if n.Etcd != "leader" && n.Etcd != "voter" {
			problem(sourceEtcd, "%s has no voting etcd member", id)
		}
		if n.Volume != "attached" {
			problem(sourceVolume, "%s has not attached the volume", id)
		}
		if n.EtcFS == "" {
			problem(sourceEtcFS, "%s is not registered in EtcFS", id)
		}
	}
	if len(expected) == 0 {
		problem(sourceInstances, "no instance of the cluster runs")
	}
	return status
}

// registered returns the instance ID of each node ID. EtcFS records it when it
// is told; our node IDs end in it.
func registered(cluster string, keys map[string]string) map[string]string {
	instances := map[string]string{}
	for nodeID, value := range keys {
		var record struct {
			InstanceID string `json:"instance_id"`
		}
		if err := json.Unmarshal([]byte(value), &record); err != nil || record.InstanceID == "" {
			record.InstanceID = strings.TrimPrefix(nodeID, cluster+"-")
		}
		instances[nodeID] = record.InstanceID
	}
	return instances
}

func (v views) instanceOf(member membership.Member) string {
	for _, instance := range v.instances {
		if member.Of(instance.ID, instance.IP) {
			return instance.ID
		}
	}
	return ""
}
