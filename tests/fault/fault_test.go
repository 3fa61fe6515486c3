package fault_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"
	"github.com/cenkalti/backoff/v5"

	nodeaws "github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/tests/fault"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	regionec2 "github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

// The test program is the stand-in program of the machines too.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	os.Exit(m.Run())
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	all := fault.All()
	if got, want := len(all), 20; got < want {
		t.Errorf("got %d faults, want at least %d", got, want)
	}
	seen := map[string]bool{}
	for _, f := range all {
		if !regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`).MatchString(f.Name) || seen[f.Name] {
			t.Errorf("%q is no name, or another fault's", f.Name)
		}
		seen[f.Name] = true
		if !strings.HasSuffix(f.Does, ".") || f.Inject == nil {
			t.Errorf("%s says %q, want a sentence, and a way to inject it", f.Name, f.Does)
		}
		if f.Targeted && f.Boots {
			t.Errorf("%s has a target and waits for one", f.Name)
		}
		if got, ok := fault.Named(f.Name); !ok || got.Does != f.Does {
			t.Errorf("%s is not found by its name", f.Name)
		}
	}
	if _, ok := fault.Named("Nothing"); ok {
		t.Error("a fault was found that is not there")
	}
}

// record is a watcher that remembers.
type record struct {
	mu      sync.Mutex
	struck  []string
	emitted int
}

func (r *record) Struck(instanceID, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.struck = append(r.struck, instanceID)
}

func (r *record) Emitted(events.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.emitted++
}

func (r *record) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.struck)
}

// place is a region with two nodes of a cluster, which do nothing, and a role.
type place struct {
	*fault.World
	t      *testing.T
	record *record
	nodes  []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	tools := t.TempDir()
	for _, name := range []string{"etcd", "etcdctl"} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := region.New(t.Context(), region.Config{WorkDir: t.TempDir(), Standin: self, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Errorf("close the region: %v", err)
		}
	})
	p := &place{t: t, record: &record{}}
	p.World = fault.NewWorld(r, "demo", 1, p.record)
	t.Cleanup(p.World.Close)
	identities := iam.NewFromConfig(r.AWSConfig())
	role := aws.String("nodes")
	_, err = identities.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = identities.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: role, PolicyName: role, PolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*","Action":"*"}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dynamodb.NewFromConfig(r.AWSConfig()).CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("seeds"), BillingMode: dynamodbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamodbtypes.AttributeDefinition{{AttributeName: aws.String("cluster_name"), AttributeType: dynamodbtypes.ScalarAttributeTypeS}},
		KeySchema:            []dynamodbtypes.KeySchemaElement{{AttributeName: aws.String("cluster_name"), KeyType: dynamodbtypes.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.nodes = []string{p.launch("exec sleep 1000"), p.launch("exec sleep 1000")}
	return p
}

// launch launches a node that runs a script.
func (p *place) launch(script string) string {
	p.t.Helper()
	template, err := ec2.NewFromConfig(p.Region.AWSConfig()).CreateLaunchTemplate(p.t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String(fmt.Sprintf("template-%d", len(p.Region.EC2.Instances()))),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId:      aws.String("resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
			InstanceType: ec2types.InstanceTypeT3Medium,
			UserData:     aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n" + script + "\n"))),
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	subnet, _ := p.Region.EC2.DefaultSubnet("eu-west-1a")
	made, err := p.Region.EC2.Launch(regionec2.LaunchRequest{
		TemplateID: *template.LaunchTemplate.LaunchTemplateId, Version: "1", SubnetID: subnet, Tags: map[string]string{"ClusterName": "demo"},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.eventually(made.ID, func() bool {
		i, _ := p.Region.EC2.Instance(made.ID)
		return i.State == regionec2.StateRunning
	})
	return made.ID
}

func (p *place) eventually(what string, check func() bool) {
	p.t.Helper()
	_, err := backoff.Retry(p.t.Context(), func() (struct{}, error) {
		if !check() {
			return struct{}{}, errors.New("not yet")
		}
		return struct{}{}, nil
	}, backoff.WithBackOff(backoff.NewConstantBackOff(10*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	if err != nil {
		p.t.Fatalf("wait for %s: %v", what, err)
	}
}

// as is the configuration of an SDK client of a session of the role: an
// instance ID makes a node, another name a function. It never retries.
func (p *place) as(session string) aws.Config {
	p.t.Helper()
	credentials, err := p.Region.IAM.Assume("nodes", session)
	if err != nil {
		p.t.Fatal(err)
	}
	config := p.Region.AWSConfig()
	config.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	config.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: credentials.AccessKeyID, SecretAccessKey: credentials.SecretAccessKey, SessionToken: credentials.Token}, nil
	})
	return config
}

// inject injects a fault until the test, or undo, ends it.
func (p *place) inject(f fault.Fault) (undo func()) {
	p.t.Helper()
	end, err := f.Inject(p.t.Context(), p.World)
	if err != nil {
		p.t.Fatalf("inject %s: %v", f, err)
	}
	return func() {
		p.t.Helper()
		if err := errors.Join(end(p.t.Context()), end(p.t.Context())); err != nil {
			p.t.Errorf("end %s: %v", f, err)
		}
	}
}

// code is what a caller learns of an error: "lost" without an answer of AWS.
func code(err error) string {
	if err == nil {
		return ""
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return "lost"
}

func TestCalls(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	describe := func(config aws.Config) error {
		_, err := ec2.NewFromConfig(config).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
		return err
	}
	put := func(config aws.Config) error {
		_, err := dynamodb.NewFromConfig(config).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("seeds"), Item: map[string]dynamodbtypes.AttributeValue{
			"cluster_name": &dynamodbtypes.AttributeValueMemberS{Value: "demo"},
		}})
		return err
	}
	groups := func(config aws.Config) error {
		_, err := autoscaling.NewFromConfig(config).DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{})
		return err
	}
	agents := func(config aws.Config) error {
		_, err := ssm.NewFromConfig(config).DescribeInstanceInformation(t.Context(), &ssm.DescribeInstanceInformationInput{})
		return err
	}
	const node, function = "i-00000000000000001", "graceful-leave"
	for _, c := range []struct {
		fault  fault.Fault
		call   func(aws.Config) error
		caller string
		want   []string // every outcome there may be, in order
	}{
		{fault.ThrottledEC2, describe, node, []string{"", "RequestLimitExceeded"}},
		{fault.ThrottledEC2, put, node, []string{""}},
		{fault.ThrottledDynamoDB, put, node, []string{"", "ProvisionedThroughputExceededException"}},
		{fault.ThrottledAutoScaling, groups, function, []string{"", "Throttling"}},
		{fault.ThrottledRunCommand, agents, function, []string{"", "ThrottlingException"}},
		{fault.LostPutItem, put, node, []string{"", "lost"}},
		{fault.LostPutItem, describe, node, []string{""}},
		{fault.BrokenConnections, describe, node, []string{"", "lost"}},
		{fault.InternalErrors, put, node, []string{"", "InternalError"}},
		{fault.PermissionsNotThereYet, put, node, []string{"AccessDeniedException"}},
		{fault.PermissionsNotThereYet, describe, node, []string{"UnauthorizedOperation"}},
		{fault.PermissionsNotThereYet, groups, node, []string{"AccessDenied"}},
		{fault.PermissionsNotThereYet, describe, function, []string{""}},
		{fault.FunctionCutOff, describe, function, []string{"lost"}},
		{fault.FunctionCutOff, describe, node, []string{""}},
		{fault.RunCommandDown, agents, function, []string{"ServiceUnavailable"}},
	} {
		undo := p.inject(c.fault)
		outcomes := map[string]bool{}
		for range 40 {
			outcomes[code(c.call(p.as(c.caller)))] = true
			if err := c.call(p.Region.AWSConfig()); err != nil {
				t.Errorf("%s: the administrator's call fails: %v", c.fault, err)
			}
		}
		if got := slices.Sorted(maps.Keys(outcomes)); !slices.Equal(got, c.want) {
			t.Errorf("%s, called by %s: got %q, want %q", c.fault, c.caller, got, c.want)
		}
		undo()
		if err := c.call(p.as(c.caller)); err != nil {
			t.Errorf("after %s: %v", c.fault, err)
		}
	}

	// A node that is cut off is the only one.
	p.World = p.At(node)
	undo := p.inject(fault.CutOffFromAWS)
	if got, other := code(describe(p.as(node))), code(describe(p.as("i-00000000000000002"))); got != "lost" || other != "" {
		t.Errorf("the node that is cut off gets %q, another %q, want only the first lost", got, other)
	}
	undo()
}

// What is lost is the answer: the write has happened.
func TestLostAnswersAreOfWritesThatHappened(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	table := dynamodb.NewFromConfig(p.as("i-00000000000000001"))
	undo := p.inject(fault.LostPutItem)
	defer undo()
	for i := range 40 {
		key := map[string]dynamodbtypes.AttributeValue{"cluster_name": &dynamodbtypes.AttributeValueMemberS{Value: fmt.Sprint(i)}}
		if _, err := table.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("seeds"), Item: key}); err == nil {
			continue
		}
		got, err := table.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("seeds"), Key: key, ConsistentRead: aws.Bool(true)})
		if err != nil || len(got.Item) != 1 {
			t.Errorf("after a lost answer the item is %v, %v, want it there", got, err)
		}
		return
	}
	t.Error("no answer was lost")
}

func TestInstanceLists(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first, second := p.nodes[0], p.nodes[1]
	p.World = p.At(second)
	for _, c := range []struct {
		fault fault.Fault
		want  []string // what the first node sees
	}{
		{fault.EmptyInstanceList, nil},
		{fault.ListWithoutCaller, []string{second}},
		{fault.ListWithoutNewest, nil},
		{fault.ListWithoutOne, []string{first}},
	} {
		undo := p.inject(c.fault)
		if got := p.listed(first); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.fault, got, c.want)
		}
		undo()
		want := slices.Sorted(slices.Values(p.nodes))
		if got := p.listed(first); !slices.Equal(got, want) {
			t.Errorf("after %s: got %v, want %v", c.fault, got, want)
		}
	}
}

// listed is the list of instances as the bootstrap of a node reads it.
func (p *place) listed(node string) []string {
	p.t.Helper()
	instances, err := nodeaws.Group{EC2: ec2.NewFromConfig(p.as(node)), Cluster: "demo"}.Instances(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	var ids []string
	for _, instance := range instances.Live {
		ids = append(ids, instance.ID)
	}
	slices.Sort(ids)
	return ids
}

// A node whose clock is wrong signs requests that AWS refuses, learns the time
// from the refusal, and sees all times of AWS an hour off its own; what it has
// written is at the right time for the others.
func TestClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault fault.Fault
		ahead time.Duration // AWS's time, of the node's
	}{{fault.ClockAhead, -time.Hour}, {fault.ClockBehind, time.Hour}} {
		t.Run(c.fault.Name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			undo := p.inject(c.fault)
			wrong := p.launch("exec sleep 1000")
			if got := code(func() error {
				_, err := ec2.NewFromConfig(p.as(wrong)).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
				return err
			}()); got != "RequestExpired" {
				t.Errorf("without retries a node with a wrong clock gets %q, want its request to have expired", got)
			}
			table := func(node string) nodeaws.SeedTable {
				config := p.as(node)
				config.Retryer = nil // as the bootstrap has it
				return nodeaws.SeedTable{DynamoDB: dynamodb.NewFromConfig(config), Table: "seeds", Cluster: "demo"}
			}
			_, now, err := table(wrong).Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if off := now.Sub(time.Now().Add(c.ahead)).Abs(); off > time.Minute {
				t.Errorf("it is %s for the node by AWS's clock, want %s from its own", now, c.ahead)
			}
			item := membership.Item{ClusterName: "demo", SeedIP: "10.0.0.1", InstanceID: wrong, State: membership.StateForming, CreatedAt: now}
			if won, err := table(wrong).Create(t.Context(), item); !won || err != nil {
				t.Fatalf("create the seed item: %t, %v", won, err)
			}
			seen, now, err := table(p.nodes[0]).Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if age := now.Sub(seen.CreatedAt); age.Abs() > time.Minute {
				t.Errorf("for another node the item is %s old, want it new", age)
			}
			back, _, err := table(wrong).Read(t.Context())
			if err != nil || *back != item {
				t.Errorf("the node reads %+v, %v, want what it wrote: %+v", back, err, item)
			}
			undo()
			if _, now, err = table(wrong).Read(t.Context()); err != nil || time.Since(now).Abs() > time.Minute {
				t.Errorf("after the fault it is %s for the node, %v, want now", now, err)
			}
		})
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	target := p.nodes[0]
	p.World = p.At(target)
	machine := p.Region.Machines.Machine(target)

	undo := p.inject(fault.FreezeNode)
	if machine.AgentOnline() {
		t.Error("the agent of a frozen node answers")
	}
	undo()
	if !machine.AgentOnline() {
		t.Error("the agent does not answer after the thaw")
	}
	p.inject(fault.PowerCycleNode)()
	p.eventually("the boot after a power failure", machine.AgentOnline)
	p.inject(fault.KillNode)()
	select {
	case <-machine.Exited():
	default:
		t.Error("the killed node runs")
	}
	if got, want := p.record.list(), []string{target, target, target}; !slices.Equal(got, want) {
		t.Errorf("told of strikes on %v, want %v", got, want)
	}
	if _, err := fault.FreezeNode.Inject(t.Context(), p.At("i-00000000000000009")); err == nil {
		t.Error("a node that is not there was frozen")
	}
}

// A program on a node that is cut off stands still, and goes on.
func TestCutOffEtcd(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	// A program of etcd's name, which tells that it runs.
	node := p.launch(`cp $(command -v sh) $ETCFS_ROOT/usr/local/bin/etcd
$ETCFS_ROOT/usr/local/bin/etcd -c 'while :; do echo >> '$ETCFS_ROOT'/root/ticks; sleep 0.01; done'`)
	ticks := func() int64 {
		info, err := os.Stat(filepath.Join(p.Region.Machines.Machine(node).Root(), "root/ticks"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	p.eventually("the program", func() bool { return ticks() > 0 })
	p.World = p.At(node)
	undo := p.inject(fault.CutOffEtcd)
	last := int64(-1)
	p.eventually("the program's standing still", func() bool { still := ticks() == last; last = ticks(); return still })
	undo()
	p.eventually("the program's going on", func() bool { return ticks() > last })
}

// A fault that waits for a booting node strikes the next one at its moment, and
// no other.
func TestAmbush(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	undo := p.inject(fault.KillAt("member"))
	early := p.launch("echo level=INFO msg=start phase=elect step=5/9; exec sleep 1000")
	victim := p.launch("echo level=INFO msg=start phase=member step=6/9; exec sleep 1000")
	machine := p.Region.Machines.Machine(victim)
	p.eventually("the end of the node", func() bool {
		select {
		case <-machine.Exited():
			return true
		default:
			return false
		}
	})
	later := p.launch("echo level=INFO msg=start phase=member step=6/9; exec sleep 1000")
	p.eventually("the later node's log", func() bool { return strings.Contains(p.Region.Machines.Machine(later).Console(), "phase=member") })
	undo()
	for _, id := range append(p.nodes, early, later) {
		select {
		case <-p.Region.Machines.Machine(id).Exited():
			t.Errorf("%s was killed too", id)
		default:
		}
	}
	if got, want := p.record.list(), []string{victim}; !slices.Equal(got, want) {
		t.Errorf("told of strikes on %v, want %v", got, want)
	}
}
