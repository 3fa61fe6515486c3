// Package languages_test runs the examples in the languages whose SDKs are
// generated and interpreted, TypeScript and Python, as a user would: with the
// SDK of this clone, the real Pulumi CLI, the language's own host and the real
// plugin, against the services of a region. The nodes are machines in memory:
// what they do is the same whatever language declares them.
package languages_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

func TestLifeOfACluster(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of the Pulumi CLI (make test sets it)")
	}
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			folder := program(t, l)
			region := plane.New(t, "eu-west-1")
			bin, err := filepath.Abs(filepath.Join(root, "bin"))
			if err != nil {
				t.Fatal(err)
			}
			// The language hosts that can be built do not read the options of
			// Pulumi.yaml: they take the virtual environment that is active.
			path := []string{filepath.Join(folder, l.packages, l.path), tools, os.Getenv("PATH")}
			environment := []string{"PATH=" + strings.Join(path, string(os.PathListSeparator))}
			for name, value := range region.Environment() {
				environment = append(environment, name+"="+value)
			}
			s := &session{t: t, region: region}
			s.Stack, err = stack.New(t.Context(), stack.Config{
				Folder: t.TempDir(), Program: folder, Tools: tools, Environment: environment, Output: &s.output,
				Plugins: map[string]string{"etcfs": bin, "aws": filepath.Join(bin, "region")},
			})
			if err != nil {
				t.Fatal(err)
			}
			s.refuses()
			s.lives()
		})
	}
}

// session is the stack of an example.
type session struct {
	*stack.Stack
	t      *testing.T
	region *plane.Plane
	output bytes.Buffer
}

// set sets values of the program's configuration.
func (s *session) set(settings map[string]string) {
	s.t.Helper()
	for key, value := range settings {
		if err := s.Set(s.t.Context(), key, value); err != nil {
			s.t.Fatal(err)
		}
	}
}

// must ends the test if a step has failed.
func (s *session) must(step string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", step, err)
	}
}

// refuses asserts that wrong settings fail the preview, with what is wrong, all
// of it at once, in the words that any language's user reads.
func (s *session) refuses() {
	s.t.Helper()
	s.set(map[string]string{"clusterName": "Demo", "minSize": "4", "maxSize": "2", "leaseTtl": "5s"})
	if err := s.Preview(s.t.Context()); err == nil {
		s.t.Error("preview of wrong settings: got no error")
	}
	for _, want := range []string{
		`property clusterName with value '{Demo}' has a problem: "Demo" is not`,
		"property minSize with value '{4}' has a problem: 4 is more than maxSize, 2",
		"property leaseTtl with value '{5s}' has a problem: 5s is too short",
	} {
		if !strings.Contains(s.output.String(), want) {
			s.t.Errorf("preview of wrong settings: got output without %q:\n%s", want, &s.output)
		}
	}
	if calls := s.region.Changes(); len(calls) > 0 {
		s.t.Errorf("preview of wrong settings: got calls %v, want nothing but looks", calls)
	}
}

// lives creates a cluster with every setting that the examples have, finds each
// in the region, and destroys it.
func (s *session) lives() {
	s.t.Helper()
	ctx := s.t.Context()
	s.set(map[string]string{
		"clusterName": "story", "availabilityZone": "eu-west-1b",
		"minSize": "2", "maxSize": "4", "desiredCapacity": "3", "instanceType": "m5.large", "volumeSize": "12", "volumeIops": "200",
		"etcfsVersion": "0.36.0", "etcdVersion": "v3.6.8", "leaseTtl": "20s", "releasesUrl": "https://mirror.example",
		"onBootstrapFailure": "keep", "recovery": "reform",
	})
	s.must("preview", s.Preview(ctx))
	if calls := s.region.Changes(); len(calls) > 0 {
		s.t.Errorf("preview: got calls %v, want nothing but looks", calls)
	}
	s.must("up", s.Up(ctx))
	s.must("up again", s.Up(ctx, "--expect-no-changes"))
	outputs, err := s.Outputs(ctx)
	s.must("outputs", err)
	s.checkOutputs(outputs)
	s.checkGroup()
	s.checkVolume(fmt.Sprint(outputs["volumeId"]))
	s.checkNodes(fmt.Sprint(outputs["launchTemplateId"]))

	s.must("destroy", s.Destroy(ctx))
	groups, err := autoscaling.NewFromConfig(s.region.Config()).DescribeAutoScalingGroups(ctx, nil)
	s.must("describe groups", err)
	volumes, err := ec2.NewFromConfig(s.region.Config()).DescribeVolumes(ctx, nil)
	s.must("describe volumes", err)
	if len(groups.AutoScalingGroups) != 0 || len(volumes.Volumes) != 0 {
		s.t.Errorf("after destroy: got groups %v and volumes %v, want none", groups.AutoScalingGroups, volumes.Volumes)
	}
}

// checkOutputs asserts that all outputs arrive, those with a chosen name by
// value, the others by how they start.
func (s *session) checkOutputs(got map[string]any) {
	s.t.Helper()
	want := map[string]string{
		"clusterName": "story", "availabilityZone": "eu-west-1b", "autoScalingGroupName": "story-asg", "launchTemplateVersion": "1",
		"seedTableName": "story-etcfs-seed", "gracefulLeaveFunctionName": "story-graceful-leave",
		"nodeRoleName": "story-node-", "instanceProfileName": "story-node-", "bucketName": "etcfs-story-",
		"volumeId": "vol-", "securityGroupId": "sg-", "launchTemplateId": "lt-", "vpcId": "vpc-", "subnetId": "subnet-",
	}
	for name, start := range want {
		value := fmt.Sprint(got[name])
		if strings.HasSuffix(start, "-") && strings.HasPrefix(value, start) && len(value) > len(start) {
			continue
		}
		if value != start {
			s.t.Errorf("output %s: got %s, want %s", name, value, start)
		}
	}
	if len(got) != len(want) {
		s.t.Errorf("got outputs %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func (s *session) checkGroup() {
	s.t.Helper()
	described, err := autoscaling.NewFromConfig(s.region.Config()).DescribeAutoScalingGroups(s.t.Context(), nil)
	s.must("describe groups", err)
	var got []string
	for _, group := range described.AutoScalingGroups {
		got = append(got, fmt.Sprintf("%s of %d to %d nodes, %d wished",
			aws.ToString(group.AutoScalingGroupName), aws.ToInt32(group.MinSize), aws.ToInt32(group.MaxSize), aws.ToInt32(group.DesiredCapacity)))
	}
	if want := []string{"story-asg of 2 to 4 nodes, 3 wished"}; !slices.Equal(got, want) {
		s.t.Errorf("groups: got %v, want %v", got, want)
	}
}

func (s *session) checkVolume(id string) {
	s.t.Helper()
	described, err := ec2.NewFromConfig(s.region.Config()).DescribeVolumes(s.t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	s.must("describe the volume", err)
	volume := described.Volumes[0]
	got := fmt.Sprintf("%d GiB with %d IOPS in %s", aws.ToInt32(volume.Size), aws.ToInt32(volume.Iops), aws.ToString(volume.AvailabilityZone))
	if want := "12 GiB with 200 IOPS in eu-west-1b"; got != want {
		s.t.Errorf("volume: got %s, want %s", got, want)
	}
}

// checkNodes asserts what a new node is told.
func (s *session) checkNodes(template string) {
	s.t.Helper()
	described, err := ec2.NewFromConfig(s.region.Config()).DescribeLaunchTemplateVersions(s.t.Context(), &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateId: aws.String(template), Versions: []string{"$Latest"},
	})
	s.must("describe the launch template", err)
	data := described.LaunchTemplateVersions[0].LaunchTemplateData
	if got, want := string(data.InstanceType), "m5.large"; got != want {
		s.t.Errorf("instance type: got %s, want %s", got, want)
	}
	script, err := base64.StdEncoding.DecodeString(aws.ToString(data.UserData))
	s.must("decode the user data", err)
	for name, value := range map[string]string{
		"ETCFS_VERSION": "0.36.0", "ETCFS_ETCD_VERSION": "v3.6.8", "ETCFS_LEASE_TTL": "20s", "ETCFS_RELEASES_URL": "https://mirror.example",
		"ETCFS_ON_BOOTSTRAP_FAILURE": "keep", "ETCFS_RECOVERY": "reform",
	} {
		if !strings.Contains(string(script), name+"='"+value+"'") {
			s.t.Errorf("user data: got no %s='%s':\n%s", name, value, script)
		}
	}
}
