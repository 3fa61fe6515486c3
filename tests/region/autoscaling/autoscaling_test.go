package autoscaling_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/etcfs/pulumi-etcfs/tests/region/autoscaling"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
)

// world is a region with machines in memory, where time is the bubble's.
type world struct {
	*testing.T
	door     *fake.Door
	machines *fake.Machines
	events   *fake.Events
	ec2      *ec2.Service
	client   *sdk.Client
	ec2API   *ec2sdk.Client
	template string
}

const groupName = "demo-asg"

// inWorld runs a test in a new world, which must leave no machine behind.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, machines: &fake.Machines{}, events: &fake.Events{}}
		identities := iam.New(fake.Account, fake.Region)
		var err error
		w.ec2, err = ec2.New(ec2.Config{
			Region: fake.Region, AccountID: fake.Account, Directory: t.TempDir(), Machines: w.machines, IAM: identities,
			Events: w.events, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		service := autoscaling.New(autoscaling.Config{
			Region: fake.Region, AccountID: fake.Account, EC2: w.ec2, Events: w.events, Logger: slog.New(slog.DiscardHandler),
		})
		w.door = fake.NewDoor(identities, w.ec2.API(), service.API())
		w.client = sdk.NewFromConfig(w.door.Administrator())
		w.ec2API = ec2sdk.NewFromConfig(w.door.Administrator())
		w.template = w.newTemplate("t3.medium")
		defer func() {
			service.Close()
			if err := w.ec2.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if running, left := w.machines.Running(); running+left > 0 {
				t.Errorf("%d machines run and %d disks are left after the end", running, left)
			}
		}()
		test(w)
	})
}

func (w *world) newTemplate(instanceType ec2types.InstanceType) string {
	w.Helper()
	made, err := w.ec2API.CreateLaunchTemplate(w.Context(), &ec2sdk.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("demo-" + string(instanceType)),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId:      aws.String("resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
			InstanceType: instanceType,
			UserData:     aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"))),
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	return *made.LaunchTemplate.LaunchTemplateId
}

func (w *world) subnet() string {
	w.Helper()
	id, ok := w.ec2.DefaultSubnet(fake.Region + "a")
	if !ok {
		w.Fatal("no subnet in zone a")
	}
	return id
}

// createGroup makes a group of a size between 0 and 10.
func (w *world) createGroup(desired int32, change ...func(*sdk.CreateAutoScalingGroupInput)) {
	w.Helper()
	in := &sdk.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(groupName), MinSize: aws.Int32(0), MaxSize: aws.Int32(10), DesiredCapacity: aws.Int32(desired),
		VPCZoneIdentifier: aws.String(w.subnet()),
		LaunchTemplate:    &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(w.template), Version: aws.String("$Latest")},
		HealthCheckType:   aws.String("EC2"),
		Tags: []types.Tag{
			{Key: aws.String("ClusterName"), Value: aws.String("demo"), PropagateAtLaunch: aws.Bool(true)},
			{Key: aws.String("Owner"), Value: aws.String("me"), PropagateAtLaunch: aws.Bool(false)},
		},
	}
	for _, each := range change {
		each(in)
	}
	if _, err := w.client.CreateAutoScalingGroup(w.Context(), in); err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) putHook(transition string, heartbeat int32, result string) {
	w.Helper()
	_, err := w.client.PutLifecycleHook(w.Context(), &sdk.PutLifecycleHookInput{
		AutoScalingGroupName: aws.String(groupName), LifecycleHookName: aws.String("hook"), LifecycleTransition: aws.String(transition),
		HeartbeatTimeout: aws.Int32(heartbeat), DefaultResult: aws.String(result), NotificationMetadata: aws.String("meta"),
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) group() types.AutoScalingGroup {
	w.Helper()
	out, err := w.client.DescribeAutoScalingGroups(w.Context(), &sdk.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{groupName}})
	if err != nil {
		w.Fatal(err)
	}
	if len(out.AutoScalingGroups) != 1 {
		w.Fatalf("got %d groups, want 1", len(out.AutoScalingGroups))
	}
	return out.AutoScalingGroups[0]
}

// states are the lifecycle states of the group's instances, sorted.
func (w *world) states() []string {
	w.Helper()
	var states []string
	for _, each := range w.group().Instances {
		states = append(states, string(each.LifecycleState))
	}
	slices.Sort(states)
	return states
}

func (w *world) wantStates(want ...string) {
	w.Helper()
	synctest.Wait()
	if got := w.states(); !slices.Equal(got, want) {
		w.Errorf("got lifecycle states %q, want %q", got, want)
	}
}

func (w *world) setDesired(desired int32) {
	w.Helper()
	_, err := w.client.SetDesiredCapacity(w.Context(), &sdk.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String(groupName), DesiredCapacity: aws.Int32(desired),
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) wantCode(err error, code, message string) {
	w.Helper()
	var e smithy.APIError
	if !errors.As(err, &e) || e.ErrorCode() != code || message != "" && e.ErrorMessage() != message {
		w.Errorf("got error %v, want %s: %s", err, code, message)
	}
}

func TestGroupReachesItsDesiredCapacity(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(3)
		w.wantStates("InService", "InService", "InService")
		group := w.group()
		id := *group.Instances[0].InstanceId
		machine := w.machines.Of(id)
		if got := string(machine.Spec.UserData); got != "#!/bin/sh\n" {
			t.Errorf("got user data %q", got)
		}
		want := map[string]string{
			"ClusterName": "demo", "aws:autoscaling:groupName": groupName,
			"aws:ec2launchtemplate:id": w.template, "aws:ec2launchtemplate:version": "1",
		}
		for key, value := range want {
			if machine.Spec.Tags[key] != value {
				t.Errorf("tag %s: got %q, want %q", key, machine.Spec.Tags[key], value)
			}
		}
		if _, ok := machine.Spec.Tags["Owner"]; ok {
			t.Error("a tag that does not propagate was given to an instance")
		}
		w.setDesired(5)
		w.wantStates("InService", "InService", "InService", "InService", "InService")
		w.setDesired(1)
		w.wantStates("InService")
		if !machine.StoppedInOrder() {
			t.Error("the oldest instances were not shut down in order")
		}
		if got := len(w.events.Of("EC2 Instance Launch Successful")); got != 5 {
			t.Errorf("got %d events of launches, want 5", got)
		}
		if got := len(w.events.Of("EC2 Instance Terminate Successful")); got != 4 {
			t.Errorf("got %d events of terminations, want 4", got)
		}
		activities, err := w.client.DescribeScalingActivities(w.Context(), &sdk.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String(groupName)})
		if err != nil {
			t.Fatal(err)
		}
		for _, each := range activities.Activities {
			if each.StatusCode != types.ScalingActivityStatusCodeSuccessful {
				t.Errorf("%s: got %s", *each.Description, each.StatusCode)
			}
		}
		if len(activities.Activities) != 9 {
			t.Errorf("got %d activities, want 9", len(activities.Activities))
		}
	})
}

func TestLaunchesGoOnSideBySide(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.machines.OnStart = func(ctx context.Context, _ ec2.MachineSpec) error {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
			return nil
		}
		w.createGroup(3)
		w.wantStates("Pending", "Pending", "Pending")
		<-time.After(time.Minute)
		w.wantStates("InService", "InService", "InService")
	})
}
