package region_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/cenkalti/backoff/v5"

	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

// The test program is the stand-in program too, under its names.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	os.Exit(m.Run())
}

// newRegion starts a region whose release of etcd is of no use, and checks that
// it leaves nothing behind.
func newRegion(t *testing.T) *region.Region {
	t.Helper()
	tools, work := t.TempDir(), t.TempDir()
	for _, name := range []string{"etcd", "etcdctl"} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := region.New(t.Context(), region.Config{WorkDir: work, Standin: self, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Errorf("close the region: %v", err)
		}
		checkNothingRuns(t, work)
	})
	return r
}

// checkNothingRuns looks for processes that were started with the folder in
// their environment or command line.
func checkNothingRuns(t *testing.T, folder string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if filepath.Base(process) == fmt.Sprint(os.Getpid()) {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(filepath.Join(process, file))
			if err == nil && strings.Contains(string(text), folder) {
				t.Errorf("process %s of the region still runs: %s", process, strings.ReplaceAll(string(text), "\x00", " "))
			}
		}
	}
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	_, err := backoff.Retry(t.Context(), func() (struct{}, error) { return struct{}{}, check() },
		backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// A group's instance is a machine whose user data ran, which Run Command
// reaches, and which goes when the group shrinks.
func TestGroupOfRealMachines(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	compute, groups, agents := ec2.NewFromConfig(r.AWSConfig()), autoscaling.NewFromConfig(r.AWSConfig()), ssm.NewFromConfig(r.AWSConfig())
	putNodeProfile(t, r)
	template := must[*ec2.CreateLaunchTemplateOutput](t)(compute.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("demo"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId:            aws.String("resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
			InstanceType:       ec2types.InstanceTypeT3Medium,
			IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("node")},
			UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\necho hello > $ETCFS_ROOT/greeting\n"))),
		},
	}))
	subnet, _ := r.EC2.DefaultSubnet("eu-west-1a")
	must[*autoscaling.CreateAutoScalingGroupOutput](t)(groups.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("demo-asg"), MinSize: aws.Int32(0), MaxSize: aws.Int32(3), DesiredCapacity: aws.Int32(1),
		VPCZoneIdentifier: aws.String(subnet),
		LaunchTemplate:    &astypes.LaunchTemplateSpecification{LaunchTemplateId: template.LaunchTemplate.LaunchTemplateId, Version: aws.String("1")},
	}))

	var id string
	eventually(t, "an instance whose agent is online", func() error {
		online := must[*ssm.DescribeInstanceInformationOutput](t)(agents.DescribeInstanceInformation(t.Context(), nil))
		if len(online.InstanceInformationList) == 0 {
			return errors.New("none is")
		}
		id = *online.InstanceInformationList[0].InstanceId
		return nil
	})
	eventually(t, "the greeting of its user data", func() error {
		command := must[*ssm.SendCommandOutput](t)(agents.SendCommand(t.Context(), &ssm.SendCommandInput{
			DocumentName: aws.String("AWS-RunShellScript"), InstanceIds: []string{id},
			Parameters: map[string][]string{"commands": {"cat $ETCFS_ROOT/greeting"}},
		}))
		var result *ssm.GetCommandInvocationOutput
		eventually(t, "the end of the command", func() error {
			var err error
			result, err = agents.GetCommandInvocation(t.Context(), &ssm.GetCommandInvocationInput{
				CommandId: command.Command.CommandId, InstanceId: aws.String(id),
			})
			if err == nil && (result.Status == "Pending" || result.Status == "InProgress") {
				err = errors.New("it has not ended")
			}
			return err
		})
		if got := *result.StandardOutputContent; got != "hello\n" {
			return fmt.Errorf("got %q, %s", got, result.Status)
		}
		return nil
	})

	must[*autoscaling.SetDesiredCapacityOutput](t)(groups.SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String("demo-asg"), DesiredCapacity: aws.Int32(0),
	}))
	eventually(t, "the instance to be terminated", func() error {
		out := must[*ec2.DescribeInstancesOutput](t)(compute.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}))
		if state := out.Reservations[0].Instances[0].State.Name; state != ec2types.InstanceStateNameTerminated {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	if r.Machines.Machine(id) != nil {
		t.Error("the machine is still there")
	}
}

// putNodeProfile makes an instance profile with a role that may do nothing.
func putNodeProfile(t *testing.T, r *region.Region) {
	t.Helper()
	client := iam.NewFromConfig(r.AWSConfig())
	must[*iam.CreateRoleOutput](t)(client.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: aws.String("node"),
		AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",` +
			`"Principal":{"Service":"ec2.amazonaws.com"}}]}`),
	}))
	must[*iam.CreateInstanceProfileOutput](t)(client.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{
		InstanceProfileName: aws.String("node"),
	}))
	must[*iam.AddRoleToInstanceProfileOutput](t)(client.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: aws.String("node"), RoleName: aws.String("node"),
	}))
}

func TestCloseEndsRunningMachines(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	compute := ec2.NewFromConfig(r.AWSConfig())
	template := must[*ec2.CreateLaunchTemplateOutput](t)(compute.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("demo"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId:      aws.String("resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
			InstanceType: ec2types.InstanceTypeT3Medium,
			UserData:     aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\nexec sleep 1000\n"))),
		},
	}))
	groups := autoscaling.NewFromConfig(r.AWSConfig())
	must[*autoscaling.CreateAutoScalingGroupOutput](t)(groups.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("demo-asg"), MinSize: aws.Int32(0), MaxSize: aws.Int32(3), DesiredCapacity: aws.Int32(2),
		AvailabilityZones: []string{"eu-west-1b"},
		LaunchTemplate:    &astypes.LaunchTemplateSpecification{LaunchTemplateId: template.LaunchTemplate.LaunchTemplateId},
	}))
	eventually(t, "two running instances", func() error {
		out := must[*ec2.DescribeInstancesOutput](t)(compute.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
			Filters: []ec2types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"running"}}},
		}))
		if len(out.Reservations) != 2 {
			return fmt.Errorf("%d run", len(out.Reservations))
		}
		return nil
	}) // the cleanup does the rest
}

func TestRegionsDoNotMeet(t *testing.T) {
	t.Parallel()
	one, other := newRegion(t), newRegion(t)
	compute := ec2.NewFromConfig(one.AWSConfig())
	must[*ec2.CreateVolumeOutput](t)(compute.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String("eu-west-1a"), VolumeType: ec2types.VolumeTypeIo2, Size: aws.Int32(4), Iops: aws.Int32(100),
	}))
	for name, r := range map[string]struct {
		*region.Region
		want int
	}{"one": {one, 1}, "other": {other, 0}} {
		out := must[*ec2.DescribeVolumesOutput](t)(ec2.NewFromConfig(r.AWSConfig()).DescribeVolumes(t.Context(), nil))
		if len(out.Volumes) != r.want {
			t.Errorf("%s: got %d volumes, want %d", name, len(out.Volumes), r.want)
		}
	}
	if one.Endpoint() == other.Endpoint() {
		t.Errorf("both regions have the endpoint %s", one.Endpoint())
	}
}

func TestEnvironmentMakesAnAdministrator(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	identity := must[*sts.GetCallerIdentityOutput](t)(sts.NewFromConfig(r.AWSConfig()).GetCallerIdentity(t.Context(), nil))
	if *identity.Account != "123456789012" || *identity.Arn != "arn:aws:iam::123456789012:user/administrator" {
		t.Errorf("got identity %+v", identity)
	}
	environment := map[string]string{}
	for _, variable := range r.Environment() {
		name, value, _ := strings.Cut(variable, "=")
		environment[name] = value
	}
	if environment["AWS_ENDPOINT_URL"] != r.Endpoint() || environment["AWS_REGION"] != "eu-west-1" {
		t.Errorf("got environment %v", environment)
	}
	response, err := http.Get(r.ReleasesURL() + "/etcfs/etcfs/releases/latest") //nolint:noctx // on loopback
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := response.Request.URL.Path; got != "/etcfs/etcfs/releases/tag/v0.36.0" {
		t.Errorf("latest leads to %s", got)
	}
}

func TestInterceptorsLoseAnswers(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	lose := true
	remove := r.Intercept(func(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
		result, err := next(ctx)
		if c.Action == "CreateVolume" && lose {
			lose = false
			return nil, api.ErrDropped
		}
		return result, err
	})
	compute := ec2.NewFromConfig(r.AWSConfig())
	must[*ec2.CreateVolumeOutput](t)(compute.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String("eu-west-1a"), VolumeType: ec2types.VolumeTypeIo2, Size: aws.Int32(4), Iops: aws.Int32(100),
	}))
	remove()
	out := must[*ec2.DescribeVolumesOutput](t)(compute.DescribeVolumes(t.Context(), nil))
	if len(out.Volumes) != 1 {
		t.Errorf("a create whose answer was lost left %d volumes, want 1", len(out.Volumes))
	}
}

func TestNewThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	_, err := region.New(t.Context(), region.Config{WorkDir: t.TempDir(), Standin: "missing", Tools: "missing"})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want that a file does not exist", err)
	}
}

func TestClosedRegionDoesNotListen(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{r.Endpoint(), r.ReleasesURL()} {
		if connection, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
			_ = connection.Close()
			t.Errorf("%s still listens", url)
		}
	}
}
