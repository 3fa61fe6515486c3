package bootstrap

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

// picture is a cluster of three that is well; tests break it.
type picture struct {
	instances   []membership.Instance
	group       map[string]aws.GroupState
	members     []membership.Member
	leader      uint64
	attachments []aws.Attachment
	keys        map[string]string

	instancesErr, groupErr, attachmentsErr error
	silent                                 map[string]bool // endpoints whose etcd does not answer
}

const (
	nodeA = "i-0000000000000000a"
	nodeB = "i-0000000000000000b"
	nodeC = "i-0000000000000000c"
	gone  = "i-0000000000000000d"
)

func newPicture() *picture {
	p := &picture{group: map[string]aws.GroupState{}, leader: 2, keys: map[string]string{}, silent: map[string]bool{}}
	for i, id := range []string{nodeA, nodeB, nodeC} {
		ip := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}[i]
		p.instances = append(p.instances, membership.Instance{ID: id, IP: ip, Node: true})
		p.group[id] = aws.GroupState{Lifecycle: "InService", Health: "HEALTHY"}
		p.members = append(p.members, membership.Member{ID: uint64(i + 1), Name: "demo-" + id, PeerURLs: []string{"http://" + ip + ":2380"}})
		p.attachments = append(p.attachments, aws.Attachment{InstanceID: id, State: "attached"})
		p.keys["demo-"+id] = `{"node_id":"demo-` + id + `","instance_id":"` + id + `"}`
	}
	return p
}

func (p *picture) Instances(context.Context) (membership.Instances, error) {
	return membership.Instances{Live: p.instances}, p.instancesErr
}

func (p *picture) States(context.Context, []string) (map[string]aws.GroupState, error) {
	if p.groupErr != nil {
		return nil, p.groupErr
	}
	return p.group, nil
}

func (p *picture) Attachments(context.Context) ([]aws.Attachment, error) {
	return p.attachments, p.attachmentsErr
}

func (p *picture) Members(_ context.Context, endpoints []string) ([]membership.Member, error) {
	if p.silent[endpoints[0]] {
		return nil, errors.New(endpoints[0] + " is silent")
	}
	return p.members, nil
}

func (p *picture) Leader(context.Context, string) (uint64, error) { return p.leader, nil }

func (p *picture) Values(_ context.Context, _ []string, prefix string) (map[string]string, error) {
	if prefix != "membership:" {
		return nil, errors.New("unexpected prefix " + prefix)
	}
	return p.keys, nil
}

func (p *picture) read(t *testing.T) Status {
	return ReadStatus(t.Context(), "demo", Node{InstanceID: nodeA, PrivateIP: "10.0.0.1"}, Sources{Group: p, Lifecycle: p, Etcd: p, Attachments: p})
}

func TestStatusOfAHealthyCluster(t *testing.T) {
	t.Parallel()
	p := newPicture()
	// Not a node, though it has the cluster's tag.
	p.instances = append(p.instances, membership.Instance{ID: gone, IP: "10.0.0.9"})
	want := Status{Cluster: "demo", Nodes: []NodeStatus{
		{Instance: nodeA, Address: "10.0.0.1", Group: "InService", Etcd: "voter", Member: "1", Volume: "attached", EtcFS: "demo-" + nodeA},
		{Instance: nodeB, Address: "10.0.0.2", Group: "InService", Etcd: "leader", Member: "2", Volume: "attached", EtcFS: "demo-" + nodeB},
		{Instance: nodeC, Address: "10.0.0.3", Group: "InService", Etcd: "voter", Member: "3", Volume: "attached", EtcFS: "demo-" + nodeC},
	}}
	if diff := cmp.Diff(want, p.read(t), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*picture)
		want   []string
	}{
		"a node without anything yet": {
			func(p *picture) {
				p.group[nodeC] = aws.GroupState{Lifecycle: "Pending", Health: "Healthy"}
				p.members, p.attachments = p.members[:2], p.attachments[:2]
				delete(p.keys, "demo-"+nodeC)
			},
			[]string{
				nodeC + " is Pending", nodeC + " has no voting etcd member",
				nodeC + " has not attached the volume", nodeC + " is not registered in EtcFS",
			},
		},
		"a learner": {
			func(p *picture) { p.members[2].Learner = true },
			[]string{nodeC + " has no voting etcd member"},
		},
		"an unstarted member, known by its address": {
			func(p *picture) { p.members[2].Name = "" },
			[]string{nodeC + " has no voting etcd member"},
		},
		"a member whose instance is gone": {
			func(p *picture) {
				p.members = append(p.members, membership.Member{ID: 13, Name: "demo-" + gone, PeerURLs: []string{"http://10.0.0.4:2380"}})
			},
			[]string{"etcd member d (demo-" + gone + ", http://10.0.0.4:2380) belongs to no running instance"},
		},
		"an instance is gone and everything else stays": {
			func(p *picture) { p.instances = p.instances[:2] },
			[]string{
				"etcd member 3 (demo-" + nodeC + ", http://10.0.0.3:2380) belongs to no running instance",
				"the volume is attached to " + nodeC + ", which is no running node of the cluster",
				"demo-" + nodeC + " is registered in EtcFS, but is no running node of the cluster",
			},
		},
		"reported unhealthy": {
			func(p *picture) { p.group[nodeB] = aws.GroupState{Lifecycle: "InService", Health: "UNHEALTHY"} },
			[]string{nodeB + " is InService, unhealthy"},
		},
		"leaving": {
			func(p *picture) { p.group[nodeB] = aws.GroupState{Lifecycle: "Terminating:Wait", Health: "HEALTHY"} },
			[]string{nodeB + " is Terminating:Wait"},
		},
		"in no group": {
			func(p *picture) { delete(p.group, nodeB) },
			[]string{nodeB + " belongs to no Auto Scaling Group"},
		},
		"no leader": {
			func(p *picture) { p.leader = 0 },
			[]string{"etcd has no leader"},
		},
		"detaching": {
			func(p *picture) { p.attachments[0].State = "detaching" },
			[]string{nodeA + " has not attached the volume"},
		},
		"no cluster": {
			func(p *picture) { *p = picture{silent: p.silent} },
			[]string{"no instance of the cluster runs"},
		},
		"a node of the shell bootstrap": {
			func(p *picture) {
				p.members[0].Name = "demo-0000000a"
				delete(p.keys, "demo-"+nodeA)
				p.keys["demo-0000000a"] = `{"instance_id":"` + nodeA + `"}`
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPicture()
			test.change(p)
			got := p.read(t)
			if diff := cmp.Diff(test.want, got.Problems, cmpopts.EquateEmpty()); diff != "" || len(got.Unseen) > 0 {
				t.Errorf("problems (-want +got):\n%s\nunseen: %v", diff, got.Unseen)
			}
		})
	}
}

func TestStatusSaysWhatItCannotSee(t *testing.T) {
	t.Parallel()
	p := newPicture()
	p.groupErr = errors.New("denied")
	p.attachments = p.attachments[:2]
	p.silent["http://10.0.0.1:2379"] = true // this node's own; the next one answers
	got := p.read(t)
	if diff := cmp.Diff([]string{"group: denied"}, got.Unseen); diff != "" {
		t.Errorf("unseen (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{nodeC + " has not attached the volume"}, got.Problems); diff != "" {
		t.Errorf("problems that can be seen (-want +got):\n%s", diff)
	}
	if len(got.Nodes) != 3 || got.Nodes[1].Etcd != "leader" || got.Nodes[1].Group != "" {
		t.Errorf("got nodes %+v, want all that can be seen", got.Nodes)
	}

	for _, instance := range p.instances {
		p.silent["http://"+instance.IP+":2379"] = true
	}
	p.groupErr, p.instancesErr, p.attachmentsErr = nil, errors.New("throttled"), errors.New("throttled")
	got = p.read(t)
	if len(got.Unseen) != 4 || len(got.Problems) > 0 {
		t.Errorf("got unseen %q, problems %q, want instances, volume, etcd and EtcFS", got.Unseen, got.Problems)
	}
}
