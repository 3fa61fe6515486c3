package leave_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/lambda/contract"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// TestRealEtcd tells two stories of a cluster whose nodes really boot, with
// etcd's own processes, and whose members are removed by the node's own binary.
func TestRealEtcd(t *testing.T) {
	t.Parallel()
	if reason := missing(); reason != "" {
		t.Skip(reason)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(t.Context(), artifact.Folder(bin), region.Config{
		WorkDir: t.TempDir(), Standin: program,
		// Long enough for etcd to find its quorum again.
		RetryIntervals: [2]time.Duration{2 * time.Second, 5 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	c := w.deploy(t, 7, map[string]any{"releasesUrl": w.ReleasesURL()})
	scale := func(nodes int32) {
		t.Helper()
		if _, err := c.groups().SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{
			AutoScalingGroupName: aws.String(c.group()), DesiredCapacity: aws.Int32(nodes),
		}); err != nil {
			t.Fatal(err)
		}
	}

	seven := c.voters(7)
	fiveOfSeven(t, c, seven, func() []voter { scale(2); return c.voters(2) })
	scale(3)
	refusedByEtcd(t, c, c.voters(3))
}

// voter is a node with its etcd member.
type voter struct {
	instance, address string
	member            uint64
}

// voters waits until there are exactly so many nodes, and a member that votes
// of each.
func (c *cluster) voters(count int) []voter {
	c.t.Helper()
	var voters []voter
	c.await(fmt.Sprintf("%d voters", count), func() error {
		states := c.states()
		if len(states) != count {
			return fmt.Errorf("%d instances", len(states))
		}
		voters = nil
		var endpoints []string
		for id := range states {
			instance, _ := c.w.EC2.Instance(id) // it is in the group
			voters = append(voters, voter{instance: id, address: instance.PrivateIP})
			endpoints = append(endpoints, etcd.ClientURL(instance.PrivateIP))
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		defer cancel()
		members, err := etcd.Cluster{}.Members(ctx, endpoints)
		if err != nil {
			return err
		}
		for i := range voters {
			at := slices.IndexFunc(members, func(m membership.Member) bool {
				return m.Started() && !m.Learner && m.Of(voters[i].instance, voters[i].address)
			})
			if at < 0 {
				return fmt.Errorf("%s does not vote", voters[i].instance)
			}
			voters[i].member = members[at].ID
		}
		if len(members) != count {
			return fmt.Errorf("%d members", len(members))
		}
		return nil
	})
	return voters
}

// fiveOfSeven has five of seven nodes leave at once: each member goes, by way
// of a node that stays, and etcd serves all the time.
func fiveOfSeven(t *testing.T, c *cluster, before []voter, leave func() []voter) {
	t.Helper()
	watch := watchQuorum(t, before)
	begun := time.Now()
	after := leave()
	watch.end()
	took := time.Since(begun)
	var stay []string
	for _, n := range after {
		stay = append(stay, n.instance)
	}
	for _, n := range before {
		if slices.Contains(stay, n.instance) {
			continue
		}
		lines := c.lines(n.instance, 1)
		checkTally(t, lines, map[told]int{{"removed", "continued"}: 1})
		l := lines[0]
		if want := fmt.Sprintf("%x", n.member); l.Member != want || l.Address != n.address || !slices.Contains(stay, l.Survivor) {
			t.Errorf("told of member %s at %s by %s, want %s at %s by one of %v", l.Member, l.Address, l.Survivor, want, n.address, stay)
		}
		if took := time.Duration(*l.Duration) * time.Millisecond; took > contract.FunctionTimeout-contract.CompletionReserve {
			t.Errorf("%s took %s, all the time there is", n.instance, took)
		}
		t.Logf("%s left after %d attempts and %d ms", n.instance, l.Attempts, *l.Duration)
	}
	t.Logf("five nodes left within %s; members seen: %v; %d writes, the longest time without one %s",
		took.Round(time.Millisecond), watch.sizes, watch.writes, watch.gap.Round(time.Millisecond))
	if watch.writes == 0 || len(watch.sizes) == 0 {
		t.Error("nothing was written, or nobody was seen, meanwhile")
	}
}

// refusedByEtcd has a node leave while another one's etcd is down: etcd keeps
// the member, for its quorum's sake, and the termination goes on. When the
// other etcd is back, Lambda's next try removes the member of what is gone by
// now.
func refusedByEtcd(t *testing.T, c *cluster, before []voter) {
	t.Helper()
	victim, down := before[0], before[1]
	on := func(script string) {
		machine := c.w.Machines.Machine(down.instance)
		if result, err := machine.Execute(context.WithoutCancel(t.Context()), script); err != nil || result.ExitCode != 0 {
			t.Errorf("%s: %+v, %v", script, result, err)
		}
	}
	on("systemctl stop etcd.service")
	c.timeout(brief)
	var back sync.Once
	c.change(func() {
		c.meddle = func(ctx context.Context, call *api.Call, next next) (any, error) {
			result, err := next(ctx)
			switch {
			case err != nil:
			case call.Action == "DescribeInstanceInformation":
				// The node's agent is lost, too, so that it is asked last.
				return withoutAgent(result, down.instance)
			case call.Action == "CompleteLifecycleAction":
				back.Do(func() { on("systemctl start etcd.service") })
			}
			return result, err
		}
	})
	c.terminate(victim.instance)
	c.gone(victim.instance)
	var lines []line
	c.await("the function to be done", func() error {
		lines = slices.DeleteFunc(c.told(), func(l line) bool { return l.Instance != victim.instance })
		if n := len(lines); n == 0 || n < 3 && lines[n-1].Level == "ERROR" {
			return fmt.Errorf("told %d times", n)
		}
		return nil
	})
	c.voters(2)
	first, last := lines[0], lines[len(lines)-1]
	if first.Outcome != "refused" || first.Completion != "continued" || !strings.Contains(first.Reason, "unhealthy cluster") {
		t.Errorf("first told %+v, want that etcd refused and the termination went on", first)
	}
	// A try may have run out of time with a command on its way, which then removed
	// the member after all.
	removed := last.Outcome == "removed" && last.Member == fmt.Sprintf("%x", victim.member)
	underway := last.Outcome == "absent" && slices.ContainsFunc(lines, func(l line) bool {
		return slices.ContainsFunc(l.Asked, func(a asked) bool { return a.Result == "failed" })
	})
	if !removed && !underway || last.Completion != "already-over" {
		t.Errorf("last told %+v, want that the member was removed", last)
	}
}

// withoutAgent is the inventory with one agent lost.
func withoutAgent(inventory any, instance string) (any, error) {
	text, err := json.Marshal(inventory)
	if err != nil {
		return nil, err
	}
	var list struct{ InstanceInformationList []map[string]any }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for _, each := range list.InstanceInformationList {
		if each["InstanceId"] == instance {
			each["PingStatus"] = "ConnectionLost"
		}
	}
	return list, nil
}

// quorum watches a cluster from outside.
type quorum struct {
	end func()
	// sizes are the numbers of members that were seen, in order, each once.
	sizes []int
	// writes is how many writes etcd took, gap the longest time between two.
	writes int
	gap    time.Duration
}

// unavailable is how long a cluster may take no write: an election, when the
// leader leaves, on a busy machine.
const unavailable = 20 * time.Second

// watchQuorum samples the members, and writes, until end is called. At no time
// may fewer members answer than the quorum of those that there are.
func watchQuorum(t *testing.T, voters []voter) *quorum {
	t.Helper()
	q := &quorum{}
	endpoints := map[uint64]string{}
	for _, n := range voters {
		endpoints[n.member] = etcd.ClientURL(n.address)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: slices.Collect(maps.Values(endpoints)), DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { q.write(ctx, t, client) })
	wait.Go(func() { q.sample(ctx, t, client, endpoints) })
	q.end = func() {
		cancel()
		wait.Wait()
		_ = client.Close() // its context ended
	}
	t.Cleanup(q.end)
	return q
}

const every = 50 * time.Millisecond

func (q *quorum) write(ctx context.Context, t *testing.T, client *clientv3.Client) {
	last := time.Now()
	for ticker := time.Tick(every); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
		within, cancel := context.WithTimeout(ctx, time.Second)
		_, err := client.Put(within, "/probe", last.String())
		cancel()
		if ctx.Err() != nil {
			return
		}
		since := time.Since(last)
		q.gap = max(q.gap, since)
		if since > unavailable {
			t.Errorf("etcd took no write for %s: %v", since, err)
			return
		}
		if err == nil {
			last = time.Now()
			q.writes++
		}
	}
}

func (q *quorum) sample(ctx context.Context, t *testing.T, client *clientv3.Client, endpoints map[uint64]string) {
	for ticker := time.Tick(every); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
		members, err := membersOf(ctx, client)
		if err != nil {
			continue // the writes judge
		}
		answering := q.answering(ctx, client, members, endpoints)
		again, err := membersOf(ctx, client)
		if err != nil || !slices.Equal(members, again) {
			continue // they changed meanwhile
		}
		if n := len(q.sizes); n == 0 || q.sizes[n-1] != len(members) {
			q.sizes = append(q.sizes, len(members))
		}
		if need := len(members)/2 + 1; answering < need {
			t.Errorf("%d of %d members answered, the quorum is %d", answering, len(members), need)
		}
	}
}

func membersOf(ctx context.Context, client *clientv3.Client) ([]uint64, error) {
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	list, err := client.MemberList(within)
	if err != nil {
		return nil, err
	}
	var ids []uint64
	for _, m := range list.Members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

// answering counts the members that answer.
func (q *quorum) answering(ctx context.Context, client *clientv3.Client, members []uint64, endpoints map[uint64]string) int {
	answers := make([]error, len(members))
	var wait sync.WaitGroup
	for i, id := range members {
		wait.Go(func() {
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			endpoint, ok := endpoints[id]
			if !ok {
				answers[i] = errors.New("a member that was not there before")
				return
			}
			_, answers[i] = client.Status(within, endpoint)
		})
	}
	wait.Wait()
	count := 0
	for _, err := range answers {
		if err == nil {
			count++
		}
	}
	return count
}
