// Package boot_test boots nodes with the real bootstrap binary in a region,
// without Pulumi, and does to them what a node's life brings: the bootstrap
// runs again, is killed, the machine reboots, a daemon cannot start.
package boot_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

// The test program is the stand-in program of the machines too.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	os.Exit(m.Run())
}

const group = "demo-asg"

// world is a region with a cluster's resources.
type world struct {
	*region.Region
	*scenario.Cluster
	t        *testing.T
	settings settings.Settings
	binary   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of etcd and etcdctl (make test sets it)")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := region.New(t.Context(), region.Config{
		WorkDir: t.TempDir(), Standin: program, Tools: tools, InstanceStore: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Region: r, t: t, binary: build(t)}
	t.Cleanup(func() {
		if t.Failed() {
			w.consoles()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	w.Cluster = scenario.Open(r.AWSConfig(), scenario.Names{Cluster: "demo", Group: group})
	w.settings = settings.Defaults()
	w.settings.ClusterName, w.settings.Region, w.settings.ReleasesURL = "demo", "eu-west-1", r.ReleasesURL()
	w.settings.SeedTable = settings.SeedTableName("demo")
	w.prepare()
	return w
}

// build compiles the bootstrap as it is.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcfs-bootstrap")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../bootstrap/cmd/etcfs-bootstrap").CombinedOutput()
	if err != nil {
		t.Fatalf("build the bootstrap: %v\n%s", err, out)
	}
	return path
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// prepare makes the volume, the seed table and the role of the nodes.
func (w *world) prepare() {
	t, ctx, config := w.t, w.t.Context(), w.AWSConfig()
	t.Helper()
	volume := must(ec2.NewFromConfig(config).CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String("eu-west-1a"), VolumeType: ec2types.VolumeTypeIo2, Size: aws.Int32(10), Iops: aws.Int32(100),
		MultiAttachEnabled: aws.Bool(true),
	}))(t)
	w.settings.VolumeID = *volume.VolumeId
	must(dynamodb.NewFromConfig(config).CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &w.settings.SeedTable, BillingMode: dynamodbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamodbtypes.AttributeDefinition{{AttributeName: aws.String("cluster_name"), AttributeType: dynamodbtypes.ScalarAttributeTypeS}},
		KeySchema:            []dynamodbtypes.KeySchemaElement{{AttributeName: aws.String("cluster_name"), KeyType: dynamodbtypes.KeyTypeHash}},
	}))(t)
	identities := iam.NewFromConfig(config)
	role := aws.String("nodes")
	must(identities.CreateRole(ctx, &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`)}))(t)
	must(identities.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: role, PolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*","Action":[
			"ec2:AttachVolume","ec2:DetachVolume","ec2:DescribeInstances","ec2:DescribeVolumes","ec2:DescribeVolumeStatus",
			"dynamodb:GetItem","dynamodb:PutItem","s3:GetObject",
			"autoscaling:SetInstanceHealth","autoscaling:DescribeAutoScalingInstances","autoscaling:CompleteLifecycleAction"]}]}`)}))(t)
	must(identities.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: role, PolicyArn: aws.String("arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore")}))(t)
	must(identities.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: role}))(t)
	must(identities.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: role, RoleName: role}))(t)
}

// launch makes the group with so many nodes. The user data is the stub's
// shape, with a copy in place of the download.
func (w *world) launch(nodes int32, before string) {
	w.t.Helper()
	w.launchWith(nodes, "mkdir -p $ETCFS_ROOT/usr/local/bin\ncp "+w.binary+" $ETCFS_ROOT/usr/local/bin/etcfs-bootstrap\n"+
		before+"\nexec $ETCFS_ROOT/usr/local/bin/etcfs-bootstrap run\n")
}

// launchWith makes the group with so many nodes, which run a script below
// their settings, and with hooks.
func (w *world) launchWith(nodes int32, script string, hooks ...autoscalingtypes.LifecycleHookSpecification) {
	t, ctx, config := w.t, w.t.Context(), w.AWSConfig()
	t.Helper()
	environment := must(w.settings.Encode())(t)
	userData := "#!/bin/sh\nset -eu\n"
	for _, variable := range environment {
		userData += "export '" + variable + "'\n"
	}
	userData += script
	compute := ec2.NewFromConfig(config)
	image := must(compute.DescribeImages(ctx, &ec2.DescribeImagesInput{}))(t).Images[0]
	template := must(compute.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("demo"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId: image.ImageId, InstanceType: ec2types.InstanceTypeT3Medium,
			IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("nodes")},
			UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte(userData))),
		},
	}))(t)
	tag := func(key, value string) autoscalingtypes.Tag {
		return autoscalingtypes.Tag{
			Key: aws.String(key), Value: aws.String(value), PropagateAtLaunch: aws.Bool(true),
			ResourceId: aws.String(group), ResourceType: aws.String("auto-scaling-group"),
		}
	}
	must(autoscaling.NewFromConfig(config).CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(group), MinSize: aws.Int32(0), MaxSize: aws.Int32(5), DesiredCapacity: &nodes,
		AvailabilityZones:              []string{"eu-west-1a"},
		LaunchTemplate:                 &autoscalingtypes.LaunchTemplateSpecification{LaunchTemplateId: template.LaunchTemplate.LaunchTemplateId, Version: aws.String("1")},
		LifecycleHookSpecificationList: hooks,
		Tags:                           []autoscalingtypes.Tag{tag(settings.TagClusterName, "demo"), tag(settings.TagRole, settings.RoleNode)},
	}))(t)
}

// settle waits for a cluster that is as it should be.
func (w *world) settle(nodes int) scenario.View {
	w.t.Helper()
	return must(w.Await(w.t.Context(), time.Minute, scenario.Settled(nodes), unwatched{}))(w.t)
}

// run runs a script on a node and returns its output.
func (w *world) run(instanceID, script string) (string, int) {
	w.t.Helper()
	machine := w.Machines.Machine(instanceID)
	if machine == nil {
		w.t.Fatalf("%s has no machine", instanceID)
	}
	result, err := machine.Execute(w.t.Context(), script)
	if err != nil {
		w.t.Fatal(err)
	}
	return result.Stdout + result.Stderr, result.ExitCode
}

func (w *world) consoles() {
	for _, instance := range w.EC2.Instances() {
		if machine := w.Machines.Machine(instance.ID); machine != nil {
			w.t.Logf("console of %s:\n%s", instance.ID, machine.Console())
		}
	}
}

func TestThreeNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.launch(3, "")
	before := w.settle(3)

	t.Log("status agrees")
	node := before.Nodes[0].InstanceID
	w.healthy(node)

	t.Log("the bootstrap runs again on a node that works")
	// Once to note the nodes that have joined since, and then for nothing.
	w.run(node, "etcfs-bootstrap run")
	out, code := w.run(node, "etcfs-bootstrap run")
	if code != 0 || strings.Count(out, "already done") != len(bootstrap.Phases())-2 {
		t.Errorf("got exit status %d and\n%s\nwant every phase but identify and member already done", code, out)
	}

	t.Log("a node reboots and comes back as the member that it was")
	if err := w.Machines.Machine(node).Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := w.settle(3)
	w.healthy(node)
	for i, n := range after.Nodes {
		if was := before.Nodes[i]; n.InstanceID != was.InstanceID || n.Member.ID != was.Member.ID {
			t.Errorf("after the reboot %s is member %x, and was %s, member %x", n.InstanceID, n.Member.ID, was.InstanceID, was.Member.ID)
		}
	}
}

// healthy waits until status has no complaint.
func (w *world) healthy(instanceID string) {
	w.t.Helper()
	var last string
	err := eventually(w.t.Context(), func() error {
		out, code := w.run(instanceID, "etcfs-bootstrap status --output=json")
		last = out
		var status bootstrap.Status
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		if code != 0 || len(status.Problems)+len(status.Unseen) > 0 || len(status.Nodes) != 3 {
			return errors.New("not healthy")
		}
		return nil
	})
	if err != nil {
		w.t.Errorf("status on %s: %v\n%s", instanceID, err, last)
	}
}

func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Each try comes further than the one before, so the kills fall into every
	// phase; what runs below the bootstrap (dnf, say) is left to itself.
	w.launch(3, `for limit in 0.05 0.1 0.2 0.3 0.5 0.8 1.2 2 3; do
	timeout -s KILL $limit $ETCFS_ROOT/usr/local/bin/etcfs-bootstrap run || true
done`)
	v := w.settle(3)
	w.healthy(v.Nodes[0].InstanceID)
	if launched := len(w.EC2.Instances()); launched != 3 {
		t.Errorf("%d instances were launched, want 3", launched)
	}
}

// breaking is user data that keeps etcfuse from starting on the first machine
// that finds the folder and can remove it.
func breaking(folder string) string {
	return fmt.Sprintf(`if rmdir %s 2>/dev/null; then
	mkdir -p $ETCFS_ROOT/etc/systemd/system/etcfuse.service.d
	printf '[Service]\nRestart=no\nExecStartPre=/bin/false\n' > $ETCFS_ROOT/etc/systemd/system/etcfuse.service.d/10-broken.conf
fi`, folder)
}

func TestNodeThatCannotMountIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trap := filepath.Join(t.TempDir(), "trap")
	w.launch(3, breaking(trap))
	before := w.settle(3)

	if err := os.Mkdir(trap, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.Scale(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	// Three work, which is a quorum of four: the fourth can be spared.
	after := w.settle(4)
	if launched := len(w.EC2.Instances()); launched != 5 {
		t.Errorf("%d instances were launched, want 5: three, a broken one and its replacement", launched)
	}
	for _, n := range before.Nodes {
		if !has(after, n.InstanceID) {
			t.Errorf("%s was replaced, although it works", n.InstanceID)
		}
	}
}

func has(v scenario.View, instanceID string) bool {
	for _, n := range v.Nodes {
		if n.InstanceID == instanceID {
			return true
		}
	}
	return false
}

func TestOnlyMemberIsNeverGivenAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trap := filepath.Join(t.TempDir(), "trap")
	if err := os.Mkdir(trap, 0o755); err != nil {
		t.Fatal(err)
	}
	w.launch(1, breaking(trap))
	var node string
	err := eventually(t.Context(), func() error {
		for _, instance := range w.EC2.Instances() {
			machine := w.Machines.Machine(instance.ID)
			if machine != nil && strings.Contains(machine.Console(), "the instance is not reported unhealthy, and will try again") {
				node = instance.ID
				return nil
			}
		}
		return errors.New("no node has failed")
	})
	if err != nil {
		t.Fatal(err)
	}
	out, code := w.run(node, "rm $ETCFS_ROOT/etc/systemd/system/etcfuse.service.d/10-broken.conf && systemctl daemon-reload")
	if code != 0 {
		t.Fatal(out)
	}
	after := w.settle(1)
	if !has(after, node) {
		t.Errorf("%s was replaced, and its metadata lost", node)
	}
}
