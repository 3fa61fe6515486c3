package autoscaling_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
)

func TestCreateGroupRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*sdk.CreateAutoScalingGroupInput)
		code   string
	}{
		"colon in the name":      {func(in *sdk.CreateAutoScalingGroupInput) { in.AutoScalingGroupName = aws.String("a:b") }, "ValidationError"},
		"name taken":             {func(*sdk.CreateAutoScalingGroupInput) {}, "AlreadyExists"},
		"desired above max":      {func(in *sdk.CreateAutoScalingGroupInput) { in.DesiredCapacity = aws.Int32(11) }, "ValidationError"},
		"min above max":          {func(in *sdk.CreateAutoScalingGroupInput) { in.MinSize = aws.Int32(11) }, "ValidationError"},
		"two subnets":            {func(in *sdk.CreateAutoScalingGroupInput) { in.VPCZoneIdentifier = aws.String("subnet-1,subnet-2") }, "ValidationError"},
		"no such subnet":         {func(in *sdk.CreateAutoScalingGroupInput) { in.VPCZoneIdentifier = aws.String("subnet-1") }, "ValidationError"},
		"no subnet":              {func(in *sdk.CreateAutoScalingGroupInput) { in.VPCZoneIdentifier = nil }, "ValidationError"},
		"subnet of other zone":   {func(in *sdk.CreateAutoScalingGroupInput) { in.AvailabilityZones = []string{fake.Region + "b"} }, "ValidationError"},
		"no template":            {func(in *sdk.CreateAutoScalingGroupInput) { in.LaunchTemplate = nil }, "ValidationError"},
		"no such template":       {func(in *sdk.CreateAutoScalingGroupInput) { in.LaunchTemplate.LaunchTemplateId = aws.String("lt-1") }, "ValidationError"},
		"no such version":        {func(in *sdk.CreateAutoScalingGroupInput) { in.LaunchTemplate.Version = aws.String("7") }, "ValidationError"},
		"load balancer health":   {func(in *sdk.CreateAutoScalingGroupInput) { in.HealthCheckType = aws.String("ELB") }, "ValidationError"},
		"reserved tag":           {func(in *sdk.CreateAutoScalingGroupInput) { in.Tags[0].Key = aws.String("aws:x") }, "ValidationError"},
		"parameter not modelled": {func(in *sdk.CreateAutoScalingGroupInput) { in.TargetGroupARNs = []string{"arn"} }, "UnknownParameter"},
	}
	inWorld(t, func(w *world) {
		w.createGroup(0)
		for name, test := range tests {
			in := &sdk.CreateAutoScalingGroupInput{
				AutoScalingGroupName: aws.String("other"), MinSize: aws.Int32(0), MaxSize: aws.Int32(10), DesiredCapacity: aws.Int32(0),
				VPCZoneIdentifier: aws.String(w.subnet()),
				LaunchTemplate:    &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(w.template), Version: aws.String("1")},
				Tags:              []types.Tag{{Key: aws.String("k"), Value: aws.String("v"), PropagateAtLaunch: aws.Bool(true)}},
			}
			if name == "name taken" {
				in.AutoScalingGroupName = aws.String(groupName)
			}
			test.change(in)
			_, err := w.client.CreateAutoScalingGroup(w.Context(), in)
			if err == nil {
				w.Errorf("%s: was accepted", name)
				continue
			}
			w.wantCode(err, test.code, "")
		}
	})
}

func TestGroupIsDescribedAsItWasMade(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1, func(in *sdk.CreateAutoScalingGroupInput) {
			in.HealthCheckGracePeriod = aws.Int32(300)
			in.LifecycleHookSpecificationList = []types.LifecycleHookSpecification{{
				LifecycleHookName: aws.String("early"), LifecycleTransition: aws.String(launchingTransition), HeartbeatTimeout: aws.Int32(30),
				DefaultResult: aws.String("CONTINUE"),
			}}
		})
		w.wantStates("Pending:Wait") // the hook sees the first launch
		<-time.After(30 * time.Second)
		w.wantStates("InService")
		group := w.group()
		if *group.MinSize != 0 || *group.MaxSize != 10 || *group.DesiredCapacity != 1 || *group.HealthCheckGracePeriod != 300 ||
			*group.VPCZoneIdentifier != w.subnet() || group.AvailabilityZones[0] != fake.Region+"a" || *group.HealthCheckType != "EC2" ||
			*group.LaunchTemplate.LaunchTemplateId != w.template || *group.LaunchTemplate.Version != "$Latest" || group.Status != nil {
			t.Errorf("got group %+v", group)
		}
		if len(group.Tags) != 2 || *group.Tags[0].Key != "ClusterName" || !*group.Tags[0].PropagateAtLaunch || *group.Tags[1].PropagateAtLaunch {
			t.Errorf("got tags %+v", group.Tags)
		}
		instance := group.Instances[0]
		if *instance.HealthStatus != "Healthy" || *instance.LaunchTemplate.Version != "1" || *instance.InstanceType != "t3.medium" ||
			*instance.AvailabilityZone != fake.Region+"a" {
			t.Errorf("got instance %+v", instance)
		}
		out, err := w.client.DescribeAutoScalingInstances(w.Context(), &sdk.DescribeAutoScalingInstancesInput{InstanceIds: []string{*instance.InstanceId, "i-1"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.AutoScalingInstances) != 1 || *out.AutoScalingInstances[0].AutoScalingGroupName != groupName ||
			*out.AutoScalingInstances[0].HealthStatus != "HEALTHY" {
			t.Errorf("got instances %+v", out.AutoScalingInstances)
		}
	})
}

func TestTemplateVersionIsResolvedAtEachLaunch(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"$Latest": "2", "$Default": "1", "1": "1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.createGroup(1, func(in *sdk.CreateAutoScalingGroupInput) { in.LaunchTemplate.Version = aws.String(version) })
				_, err := w.ec2API.CreateLaunchTemplateVersion(w.Context(), &ec2sdk.CreateLaunchTemplateVersionInput{
					LaunchTemplateId: aws.String(w.template),
					LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
						ImageId:      aws.String("resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
						InstanceType: ec2types.InstanceTypeM5Large,
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				first := *w.group().Instances[0].InstanceId
				<-time.After(time.Second) // the second one is younger
				w.setDesired(2)
				synctest.Wait()
				for _, each := range w.group().Instances {
					if *each.InstanceId != first && *each.LaunchTemplate.Version != want {
						t.Errorf("got version %s, want %s", *each.LaunchTemplate.Version, want)
					}
				}
				w.setDesired(1) // the older version goes first, else the older instance
				synctest.Wait()
				if got := *w.group().Instances[0].InstanceId; got == first {
					t.Error("the oldest instance stayed")
				}
			})
		})
	}
}

func TestHealthIsReportedByTheInstance(t *testing.T) {
	t.Parallel()
	report := func(w *world, id, status string, respect *bool) error {
		_, err := w.client.SetInstanceHealth(w.Context(), &sdk.SetInstanceHealthInput{
			InstanceId: aws.String(id), HealthStatus: aws.String(status), ShouldRespectGracePeriod: respect,
		})
		return err
	}
	tests := map[string]struct {
		respect  *bool
		after    time.Duration
		replaced bool
	}{
		"within the grace period":         {nil, time.Minute, false},
		"within it, respected by request": {aws.Bool(true), time.Minute, false},
		"within it, not to be respected":  {aws.Bool(false), time.Minute, true},
		"after it":                        {nil, 301 * time.Second, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.createGroup(1, func(in *sdk.CreateAutoScalingGroupInput) { in.HealthCheckGracePeriod = aws.Int32(300) })
				id := *w.group().Instances[0].InstanceId
				<-time.After(test.after)
				if err := report(w, id, "Unhealthy", test.respect); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := *w.group().Instances[0].InstanceId != id; got != test.replaced {
					t.Errorf("got replaced: %v, want %v", got, test.replaced)
				}
				w.wantStates("InService")
			})
		})
	}
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.createGroup(1)
			id := *w.group().Instances[0].InstanceId
			w.wantCode(report(w, "i-1", "Unhealthy", nil), "ValidationError", "Instance Id not found - No managed instance found for instance ID: i-1")
			w.wantCode(report(w, id, "Sick", nil), "ValidationError", "")
			w.putHook(terminatingTransition, 180, "CONTINUE")
			w.setDesired(0)
			w.wantCode(report(w, id, "Unhealthy", nil), "ValidationError", "")
		})
	})
}

func TestTerminateInstanceInGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(2)
		terminate := func(id string, decrement bool) error {
			_, err := w.client.TerminateInstanceInAutoScalingGroup(w.Context(), &sdk.TerminateInstanceInAutoScalingGroupInput{
				InstanceId: aws.String(id), ShouldDecrementDesiredCapacity: aws.Bool(decrement),
			})
			return err
		}
		id := *w.group().Instances[0].InstanceId
		if err := terminate(id, false); err != nil {
			t.Fatal(err)
		}
		w.wantStates("InService", "InService")
		if got := *w.group().DesiredCapacity; got != 2 {
			t.Errorf("got desired capacity %d, want 2", got)
		}
		if err := terminate(*w.group().Instances[0].InstanceId, true); err != nil {
			t.Fatal(err)
		}
		w.wantStates("InService")
		if _, err := w.client.UpdateAutoScalingGroup(w.Context(), &sdk.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(groupName), MinSize: aws.Int32(1),
		}); err != nil {
			t.Fatal(err)
		}
		w.wantCode(terminate(*w.group().Instances[0].InstanceId, true), "ValidationError", "")
	})
}

func TestUpdateGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1)
		update := func(change func(*sdk.UpdateAutoScalingGroupInput)) error {
			in := &sdk.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String(groupName)}
			change(in)
			_, err := w.client.UpdateAutoScalingGroup(w.Context(), in)
			return err
		}
		if err := update(func(in *sdk.UpdateAutoScalingGroupInput) { in.MinSize = aws.Int32(3) }); err != nil {
			t.Fatal(err)
		}
		w.wantStates("InService", "InService", "InService") // the desired capacity follows
		if err := update(func(in *sdk.UpdateAutoScalingGroupInput) { in.MinSize, in.MaxSize = aws.Int32(0), aws.Int32(2) }); err != nil {
			t.Fatal(err)
		}
		w.wantStates("InService", "InService")
		w.wantCode(update(func(in *sdk.UpdateAutoScalingGroupInput) { in.DesiredCapacity = aws.Int32(3) }), "ValidationError", "")
		if got := *w.group().DesiredCapacity; got != 2 {
			t.Errorf("a refused update changed the desired capacity to %d", got)
		}
	})
}

func TestSetDesiredCapacityKeepsToTheLimits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1, func(in *sdk.CreateAutoScalingGroupInput) { in.MinSize, in.MaxSize = aws.Int32(1), aws.Int32(2) })
		for desired, message := range map[int32]string{
			3: "New SetDesiredCapacity value 3 is above max value 2 for the AutoScalingGroup.",
			0: "New SetDesiredCapacity value 0 is below min value 1 for the AutoScalingGroup.",
		} {
			_, err := w.client.SetDesiredCapacity(w.Context(), &sdk.SetDesiredCapacityInput{
				AutoScalingGroupName: aws.String(groupName), DesiredCapacity: aws.Int32(desired),
			})
			w.wantCode(err, "ValidationError", message)
		}
	})
}

func TestDeleteGroup(t *testing.T) {
	t.Parallel()
	remove := func(w *world, force bool) error {
		_, err := w.client.DeleteAutoScalingGroup(w.Context(), &sdk.DeleteAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(groupName), ForceDelete: aws.Bool(force),
		})
		return err
	}
	gone := func(w *world) {
		w.Helper()
		synctest.Wait()
		out, err := w.client.DescribeAutoScalingGroups(w.Context(), &sdk.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{groupName}})
		if err != nil || len(out.AutoScalingGroups) != 0 {
			w.Errorf("got groups %v, error %v, want none", out, err)
		}
		if running, _ := w.machines.Running(); running != 0 {
			w.Errorf("%d machines run", running)
		}
	}
	t.Run("only when it is empty", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.createGroup(1)
			w.wantCode(remove(w, false), "ResourceInUse", "")
			w.setDesired(0)
			synctest.Wait()
			if err := remove(w, false); err != nil {
				t.Fatal(err)
			}
			gone(w)
			w.wantCode(remove(w, false), "ValidationError", "")
		})
	})
	t.Run("by force, without hooks", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			w.createGroup(2)
			w.putHook(terminatingTransition, 7200, "CONTINUE")
			w.setDesired(1) // one waits in the hook already
			w.wantStates("InService", "Terminating:Wait")
			if err := remove(w, true); err != nil {
				t.Fatal(err)
			}
			gone(w)
			if got := len(w.events.Of(terminateAction)); got != 1 {
				t.Errorf("got %d lifecycle actions, want the first one only", got)
			}
		})
	})
}

func TestFailedLaunchesAreTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		starts := 0
		w.machines.OnStart = func(context.Context, ec2.MachineSpec) error {
			if starts++; starts <= 3 {
				return errors.New("no capacity")
			}
			return nil
		}
		w.createGroup(1)
		w.wantStates()
		<-time.After(time.Minute)
		w.wantStates("InService")
		if starts != 4 {
			t.Errorf("got %d starts, want 4", starts)
		}
		activities, err := w.client.DescribeScalingActivities(w.Context(), &sdk.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String(groupName)})
		if err != nil {
			t.Fatal(err)
		}
		var statuses []string
		for _, each := range activities.Activities {
			statuses = append(statuses, string(each.StatusCode))
		}
		want := []string{"Successful", "Successful", "Failed", "Successful", "Failed", "Successful", "Failed"} // launches failed, terminations did not
		if !slices.Equal(statuses, want) {
			t.Errorf("got activities %q, want %q", statuses, want)
		}
	})
}

func TestRefusedLaunchIsTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(0)
		if _, err := w.ec2API.DeleteLaunchTemplate(w.Context(), &ec2sdk.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(w.template)}); err != nil {
			t.Fatal(err)
		}
		w.setDesired(1)
		w.wantStates()
		if got := len(w.events.Of("EC2 Instance Launch Unsuccessful")); got != 1 {
			t.Fatalf("got %d failed launches, want 1", got)
		}
		w.template = w.newTemplate("m5.large")
		if _, err := w.client.UpdateAutoScalingGroup(w.Context(), &sdk.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(groupName),
			LaunchTemplate:       &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(w.template)},
		}); err != nil {
			t.Fatal(err)
		}
		w.wantStates("InService") // at once: what failed has changed
	})
}

func TestGroupsAreSelectedAndPaged(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for i := range 5 {
			w.createGroup(0, func(in *sdk.CreateAutoScalingGroupInput) {
				in.AutoScalingGroupName = aws.String(fmt.Sprintf("group-%d", i))
				in.Tags = []types.Tag{{Key: aws.String("Odd"), Value: aws.String(strconv.FormatBool(i%2 == 1)), PropagateAtLaunch: aws.Bool(true)}}
			})
		}
		list := func(filters ...types.Filter) []string {
			var names []string
			pages := sdk.NewDescribeAutoScalingGroupsPaginator(w.client, &sdk.DescribeAutoScalingGroupsInput{MaxRecords: aws.Int32(2), Filters: filters})
			for pages.HasMorePages() {
				out, err := pages.NextPage(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(out.AutoScalingGroups) > 2 {
					t.Errorf("got a page of %d, want 2 at most", len(out.AutoScalingGroups))
				}
				for _, each := range out.AutoScalingGroups {
					names = append(names, *each.AutoScalingGroupName)
				}
			}
			return names
		}
		if got, want := list(), []string{"group-0", "group-1", "group-2", "group-3", "group-4"}; !slices.Equal(got, want) {
			t.Errorf("got groups %q, want %q", got, want)
		}
		odd := types.Filter{Name: aws.String("tag:Odd"), Values: []string{"true"}}
		if got, want := list(odd), []string{"group-1", "group-3"}; !slices.Equal(got, want) {
			t.Errorf("got groups %q, want %q", got, want)
		}
	})
}

func TestTagsOfAGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(0)
		tag := types.Tag{
			ResourceId: aws.String(groupName), ResourceType: aws.String("auto-scaling-group"), Key: aws.String("Owner"), Value: aws.String("you"),
			PropagateAtLaunch: aws.Bool(true),
		}
		if _, err := w.client.CreateOrUpdateTags(w.Context(), &sdk.CreateOrUpdateTagsInput{Tags: []types.Tag{tag}}); err != nil {
			t.Fatal(err)
		}
		cluster := tag
		cluster.Key, cluster.Value = aws.String("ClusterName"), nil
		if _, err := w.client.DeleteTags(w.Context(), &sdk.DeleteTagsInput{Tags: []types.Tag{cluster}}); err != nil {
			t.Fatal(err)
		}
		out, err := w.client.DescribeTags(w.Context(), &sdk.DescribeTagsInput{
			Filters: []types.Filter{{Name: aws.String("auto-scaling-group"), Values: []string{groupName}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Tags) != 1 || *out.Tags[0].Key != "Owner" || *out.Tags[0].Value != "you" || !*out.Tags[0].PropagateAtLaunch {
			t.Errorf("got tags %+v", out.Tags)
		}
		w.setDesired(1)
		synctest.Wait()
		if got := w.machines.Of(*w.group().Instances[0].InstanceId).Spec.Tags["Owner"]; got != "you" {
			t.Errorf("got tag %q on the instance, want you", got)
		}
	})
}
