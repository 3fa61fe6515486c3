package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// View is a cluster at one moment, as far as it can be seen from outside.
type View struct {
	// Nodes are the instances of the group, by address.
	Nodes []Node
	// Serving says that etcd told its members; no node's member is known, and no
	// stray, when it did not.
	Serving bool
	// Strays are the etcd members that belong to none of the nodes, each by its
	// name, or by its address while it has none.
	Strays []string
}

// Node is an instance of the group and what is known about it.
type Node struct {
	InstanceID string
	// Address is the private address, "" until it has one.
	Address string
	// Launched is when the instance was launched.
	Launched time.Time
	// GroupState is the lifecycle state in the group, such as InService or
	// Terminating:Wait.
	GroupState string
	// Healthy is the group's own judgement.
	Healthy bool
	Member  Member
	// Mounted says that the filesystem is mounted; a node that cannot be asked
	// is not.
	Mounted bool
}

// ip is the node's address, the zero value while it has none.
func (n Node) ip() netip.Addr {
	ip, _ := netip.ParseAddr(n.Address)
	return ip
}

// Member is a node's etcd member; the zero value is none.
type Member struct {
	ID uint64
	// Learner is a member that does not vote yet.
	Learner bool
	// Started is false for a member that was added and has not been heard of.
	Started bool
	Leader  bool
}

func (m Member) String() string {
	switch {
	case m.ID == 0:
		return "none"
	case !m.Started:
		return "added"
	case m.Learner:
		return "learner"
	}
	return "voter"
}

// InService are the nodes that the group counts on.
func (v View) InService() []Node {
	return slices.DeleteFunc(slices.Clone(v.Nodes), func(n Node) bool {
		return n.GroupState != string(autoscalingtypes.LifecycleStateInService)
	})
}

// Leader is the node that leads etcd.
func (v View) Leader() (Node, error) {
	i := slices.IndexFunc(v.Nodes, func(n Node) bool { return n.Member.Leader })
	if i < 0 {
		return Node{}, errors.New("no node leads etcd")
	}
	return v.Nodes[i], nil
}

// Look looks at the cluster once. What cannot be told in time, because a node
// does not answer, is left at its zero value.
func (c *Cluster) Look(ctx context.Context) (View, error) {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return View{}, err
	}
	var wait sync.WaitGroup
	for i := range nodes {
		if nodes[i].Address != "" {
			wait.Go(func() { nodes[i].Mounted = c.mounted(ctx, nodes[i].InstanceID) })
		}
	}
	var members []*etcdserverpb.Member
	var leader uint64
	wait.Go(func() { members, leader = membersOf(ctx, nodes) })
	wait.Wait()
	return assign(nodes, members, leader), ctx.Err()
}

// nodes lists the group's instances with their addresses.
func (c *Cluster) nodes(ctx context.Context) ([]Node, error) {
	groups, err := c.groups.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{c.names.Group},
	})
	if err != nil {
		return nil, fmt.Errorf("describe the group: %w", err)
	}
	if len(groups.AutoScalingGroups) == 0 {
		return nil, fmt.Errorf("there is no group %s", c.names.Group)
	}
	nodes := map[string]*Node{}
	for _, instance := range groups.AutoScalingGroups[0].Instances {
		id := aws.ToString(instance.InstanceId)
		nodes[id] = &Node{
			InstanceID: id,
			GroupState: string(instance.LifecycleState),
			Healthy:    aws.ToString(instance.HealthStatus) == "Healthy",
		}
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	// By a filter and not by IDs: an instance that is gone in between must not
	// fail the call.
	pages := ec2.NewDescribeInstancesPaginator(c.compute, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{{Name: aws.String("instance-id"), Values: slices.Sorted(maps.Keys(nodes))}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe the instances: %w", err)
		}
		for _, reservation := range page.Reservations {
			for _, instance := range reservation.Instances {
				node := nodes[aws.ToString(instance.InstanceId)]
				node.Address, node.Launched = aws.ToString(instance.PrivateIpAddress), aws.ToTime(instance.LaunchTime)
			}
		}
	}
	list := make([]Node, 0, len(nodes))
	for _, node := range nodes {
		list = append(list, *node)
	}
	slices.SortFunc(list, func(a, b Node) int {
		return cmp.Or(a.ip().Compare(b.ip()), strings.Compare(a.InstanceID, b.InstanceID))
	})
	return list, nil
}

// etcdPatience is how long etcd may take to answer before a node counts as
// silent.
const etcdPatience = time.Second

// membersOf asks the nodes' etcd for its members and its leader. The first that
// can tell is believed; none can while no cluster serves.
func membersOf(ctx context.Context, nodes []Node) (members []*etcdserverpb.Member, leader uint64) {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	type answer struct {
		members []*etcdserverpb.Member
		leader  uint64
	}
	answers := make(chan answer, len(nodes))
	var wait sync.WaitGroup
	for _, node := range nodes {
		if node.Address == "" {
			continue
		}
		wait.Go(func() {
			endpoint := etcd.ClientURL(node.Address)
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: ctx, Logger: zap.NewNop()})
			if err != nil {
				return
			}
			defer client.Close()
			list, err := client.MemberList(ctx)
			if err != nil {
				return
			}
			if status, err := client.Status(ctx, endpoint); err == nil {
				answers <- answer{list.Members, status.Leader}
			}
		})
	}
	go func() { wait.Wait(); close(answers) }()
	first := <-answers
	return first.members, first.leader
}

// assign gives each member to its node.
func assign(nodes []Node, members []*etcdserverpb.Member, leader uint64) View {
	view := View{Nodes: nodes, Serving: len(members) > 0}
	for _, member := range members {
		i := slices.IndexFunc(nodes, func(n Node) bool { return owns(n, member) })
		if i < 0 {
			view.Strays = append(view.Strays, label(member))
			continue
		}
		nodes[i].Member = Member{
			ID: member.ID, Learner: member.IsLearner, Started: member.Name != "", Leader: member.ID == leader,
		}
	}
	return view
}

// owns tells whether a member is a node's: by the instance ID that its name
// ends in, or by its address while it has no name.
func owns(n Node, member *etcdserverpb.Member) bool {
	if member.Name != "" {
		return strings.HasSuffix(member.Name, "-"+n.InstanceID)
	}
	return n.Address != "" && slices.Contains(hosts(member), n.Address)
}

func hosts(member *etcdserverpb.Member) []string {
	var hosts []string
	for _, peer := range member.PeerURLs {
		if u, err := url.Parse(peer); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

func label(member *etcdserverpb.Member) string {
	if member.Name != "" {
		return member.Name
	}
	return strings.Join(hosts(member), ",")
}

// mountPatience is how long a node may take to answer whether it has mounted.
const mountPatience = 5 * time.Second

// mounted asks a node itself, by Run Command.
func (c *Cluster) mounted(ctx context.Context, instanceID string) bool {
	ctx, cancel := context.WithTimeout(ctx, mountPatience)
	defer cancel()
	result, err := c.Run(ctx, instanceID, "mountpoint -q "+settings.MountPoint)
	return err == nil && result.ExitCode == 0
}

// Result is what a command on a node left.
type Result struct {
	ExitCode       int
	Stdout, Stderr string
}

// Run runs a shell script on a node by Run Command and waits for its end.
func (c *Cluster) Run(ctx context.Context, instanceID, script string) (Result, error) {
	sent, err := c.agents.SendCommand(ctx, &ssm.SendCommandInput{
		DocumentName: aws.String("AWS-RunShellScript"),
		InstanceIds:  []string{instanceID},
		Parameters:   map[string][]string{"commands": {script}},
	})
	if err != nil {
		return Result{}, fmt.Errorf("send a command to %s: %w", instanceID, err)
	}
	return backoff.Retry(ctx, func() (Result, error) {
		invocation, err := c.agents.GetCommandInvocation(ctx, &ssm.GetCommandInvocationInput{
			CommandId: sent.Command.CommandId, InstanceId: &instanceID,
		})
		if missing := (*ssmtypes.InvocationDoesNotExist)(nil); errors.As(err, &missing) {
			return Result{}, err // the agent has not picked it up yet
		}
		if err != nil {
			return Result{}, backoff.Permanent(fmt.Errorf("read the result of a command on %s: %w", instanceID, err))
		}
		switch invocation.Status {
		case ssmtypes.CommandInvocationStatusPending, ssmtypes.CommandInvocationStatusInProgress, ssmtypes.CommandInvocationStatusDelayed:
			return Result{}, fmt.Errorf("command on %s is %s", instanceID, invocation.Status)
		case ssmtypes.CommandInvocationStatusSuccess, ssmtypes.CommandInvocationStatusFailed:
			return Result{int(invocation.ResponseCode), aws.ToString(invocation.StandardOutputContent), aws.ToString(invocation.StandardErrorContent)}, nil
		default:
			return Result{}, backoff.Permanent(fmt.Errorf("command on %s: %s", instanceID, aws.ToString(invocation.StatusDetails)))
		}
	}, backoff.WithBackOff(polling(50*time.Millisecond, 500*time.Millisecond)))
}

// polling is a backoff that settles at an interval.
func polling(first, settled time.Duration) backoff.BackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: first, MaxInterval: settled, Multiplier: 1.5, RandomizationFactor: 0.2,
	}
}
