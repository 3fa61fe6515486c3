package awsplugin_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

const latestImage = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"

// groupInputs are those of a group of so many instances, with a template of
// its own.
func groupInputs(e *engine, desired int) object {
	e.t.Helper()
	template := e.create("aws:ec2/launchTemplate:LaunchTemplate", "template", object{
		"imageId": latestImage, "instanceType": "t3.medium", "tags": object{"ClusterName": "demo"},
	})
	subnet := e.invoke("aws:ec2/getSubnet:getSubnet", object{"availabilityZone": "eu-west-1a", "defaultForAz": true})
	return object{
		"name": "demo-asg", "minSize": desired, "maxSize": 5, "desiredCapacity": desired, "healthCheckType": "EC2",
		"vpcZoneIdentifiers": []any{subnet.Get("id").AsString()},
		"launchTemplate":     object{"id": template.id, "version": "1"},
		"tags": []any{
			object{"key": "ClusterName", "value": "demo", "propagateAtLaunch": true},
			object{"key": "Role", "value": "etcfs-node", "propagateAtLaunch": true},
		},
	}
}

func TestGroupIsCreatedWithItsInstancesAndDeletedAfterThem(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	inputs := groupInputs(e, 3)
	group := e.create("aws:autoscaling/group:Group", "group", inputs)
	if running, _ := e.Machines.Running(); running != 3 {
		t.Errorf("after create: got %d machines, want 3", running)
	}
	if got, want := group.state.Get("healthCheckGracePeriod").AsNumber(), 300.0; got != want {
		t.Errorf("healthCheckGracePeriod: got %v, want the default, %v", got, want)
	}
	group.unchanged("after create", inputs)
	tags := inputs["tags"].([]any)
	group.unchanged("with the tags in another order", with(inputs, object{"tags": []any{tags[1], tags[0]}}))
	group.refresh()
	group.unchanged("after refresh", inputs)

	more := with(inputs, object{"desiredCapacity": 5, "minSize": 1, "tags": tags[:1]})
	group.update(more)
	if running, _ := e.Machines.Running(); running != 5 {
		t.Errorf("after update: got %d machines, want 5", running)
	}
	group.unchanged("after update", more)

	group.destroy()
	if group.refresh() {
		t.Error("the group is there after its deletion")
	}
	if running, _ := e.Machines.Running(); running != 0 {
		t.Errorf("after delete: got %d machines, want none", running)
	}
}

func TestGroupDoesNotTakeBackACapacityThatOthersSet(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	inputs := groupInputs(e, 1)
	delete(inputs, "desiredCapacity")
	group := e.create("aws:autoscaling/group:Group", "group", inputs)
	if got, want := group.state.Get("desiredCapacity").AsNumber(), 1.0; got != want {
		t.Errorf("desiredCapacity: got %v, want %v as AWS made of the minimum", got, want)
	}
	e.setDesiredCapacity("demo-asg", 3)
	group.unchanged("after somebody scaled", inputs)
	group.refresh()
	group.unchanged("after somebody scaled, and a refresh", inputs)
	group.update(with(inputs, object{"healthCheckGracePeriod": 60}))
	if got, want := group.state.Get("desiredCapacity").AsNumber(), 3.0; got != want {
		t.Errorf("desiredCapacity after an update of something else: got %v, want %v", got, want)
	}

	// A program that names the capacity and ignores its changes.
	named := with(inputs, object{"desiredCapacity": 1})
	if diff, _ := group.diff(named, "desiredCapacity"); diff.DetailedDiff["desiredCapacity"].Kind != "" {
		t.Errorf("with ignoreChanges: got changes %v, want none of desiredCapacity", diff.DetailedDiff)
	}
	group.update(with(named, object{"maxSize": 4}), "desiredCapacity")
	if got, want := group.state.Get("desiredCapacity").AsNumber(), 3.0; got != want {
		t.Errorf("desiredCapacity after an update that ignores it: got %v, want %v", got, want)
	}
	if diff, _ := group.diff(named); diff.DetailedDiff["desiredCapacity"].Kind != "update" {
		t.Errorf("without ignoreChanges: got changes %v, want an update of desiredCapacity", diff.DetailedDiff)
	}
}

func TestGroupWhoseInstancesFailIsKeptAndCanBeDeleted(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	e.Machines.OnStart = func(context.Context, ec2.MachineSpec) error { return errors.New("no capacity") }
	group, err := e.tryCreate("aws:autoscaling/group:Group", "group", groupInputs(e, 1))
	if err == nil {
		t.Fatal("create: got no error, want the failed launch")
	}
	for _, part := range []string{"waiting for Auto Scaling Group (demo-asg) capacity satisfied", "scaling activity"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("create: got error %q, want it to contain %q", err, part)
		}
	}
	if got, want := group.id, "demo-asg"; got != want {
		t.Fatalf("after a failed create: got ID %q, want %q", got, want)
	}
	group.destroy()
	if group.refresh() {
		t.Error("the group is there after its deletion")
	}
}

func TestGroupDoesNotWaitWhenToldNotTo(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	e.Machines.OnStart = func(ctx context.Context, _ ec2.MachineSpec) error {
		<-ctx.Done() // a boot without an end
		return ctx.Err()
	}
	e.create("aws:autoscaling/group:Group", "group", with(groupInputs(e, 1), object{"waitForCapacityTimeout": "0"}))
}

func TestGroupWithInitialHooksHasThemBeforeItsInstances(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	e.create("aws:autoscaling/group:Group", "group", with(groupInputs(e, 1), object{"initialLifecycleHooks": []any{
		object{"name": "leave", "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "defaultResult": "CONTINUE", "heartbeatTimeout": 60},
	}}))
	order := strings.Join(e.Changes(), " ")
	if !strings.Contains(order, "CreateAutoScalingGroup PutLifecycleHook UpdateAutoScalingGroup") {
		t.Errorf("got calls %s, want the hook between the group and its capacity", order)
	}
}
