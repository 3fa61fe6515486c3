package engine_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/provider/asg"
	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// template is what a change of the nodes' settings comes to.
var template = []string{"update Group nodes", "update LaunchTemplate node"}

func TestEffectOfEachInput(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	s.program(one(demo(nil)))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	subnet := defaultSubnet(t, region, "eu-west-1b")
	tests := map[string]struct {
		args pulumi.Map
		want []string
		// effect is what the reference says when the steps do not tell.
		effect asg.Effect
	}{
		"clusterName":      {args: pulumi.Map{"clusterName": pulumi.String("other")}, want: everything},
		"availabilityZone": {args: pulumi.Map{"availabilityZone": pulumi.String("eu-west-1b")}, want: moved},
		"subnetId":         {args: pulumi.Map{"availabilityZone": nil, "subnetId": pulumi.String(subnet)}, want: moved, effect: asg.Moves},
		"minSize":          {args: pulumi.Map{"minSize": pulumi.Int(1)}, want: []string{"update Group nodes"}},
		"maxSize":          {args: pulumi.Map{"maxSize": pulumi.Int(7)}, want: []string{"update Group nodes"}},
		"desiredCapacity":  {args: pulumi.Map{"desiredCapacity": pulumi.Int(5)}, want: []string{"update Group nodes"}},
		"instanceType":     {args: pulumi.Map{"instanceType": pulumi.String("m5.large")}, want: template},
		"amiId":            {args: pulumi.Map{"amiId": pulumi.String("ami-0a1c2b3d4e5f60718")}, want: template},
		"rootVolumeSize":   {args: pulumi.Map{"rootVolumeSize": pulumi.Int(30)}, want: template},
		"keyName":          {args: pulumi.Map{"keyName": pulumi.String("ops")}, want: template},
		"sshIngressCidr":   {args: pulumi.Map{"sshIngressCidr": pulumi.String("203.0.113.7/32")}, want: []string{"create SecurityGroupIngressRule ingress-ssh"}},
		"instanceProfile": {args: pulumi.Map{"instanceProfile": pulumi.String("etcfs-nodes")}, want: slices.Concat([]string{
			"delete InstanceProfile node", "delete Role node", "delete RolePolicy node", "delete RolePolicyAttachment node-ssm",
		}, template), effect: asg.Disowns},
		"volumeSize":         {args: pulumi.Map{"volumeSize": pulumi.Int(20)}, want: []string{"update Volume data"}},
		"volumeIops":         {args: pulumi.Map{"volumeIops": pulumi.Int(1000)}, want: []string{"update Volume data"}},
		"etcfsVersion":       {args: pulumi.Map{"etcfsVersion": pulumi.String("0.36.0")}, want: template},
		"etcdVersion":        {args: pulumi.Map{"etcdVersion": pulumi.String("v3.6.8")}, want: template},
		"leaseTtl":           {args: pulumi.Map{"leaseTtl": pulumi.String("20s")}, want: template},
		"githubRepo":         {args: pulumi.Map{"githubRepo": pulumi.String("fork/etcfs")}, want: template},
		"releasesUrl":        {args: pulumi.Map{"releasesUrl": pulumi.String("https://mirror.example")}, want: template},
		"onBootstrapFailure": {args: pulumi.Map{"onBootstrapFailure": pulumi.String("keep")}, want: template},
		"recovery":           {args: pulumi.Map{"recovery": pulumi.String("reform")}, want: template},
		"waitForReady":       {args: pulumi.Map{"waitForReady": pulumi.Bool(true)}, want: waiting},
		"instanceRefresh":    {args: pulumi.Map{"instanceRefresh": pulumi.Bool(true), "waitForReady": pulumi.Bool(true)}, want: waiting, effect: asg.InPlace}, // it needs the other
		"retainVolume":       {args: pulumi.Map{"retainVolume": pulumi.Bool(true)}},
		"finalSnapshot":      {args: pulumi.Map{"finalSnapshot": pulumi.Bool(true)}, want: []string{"update Volume data"}},
		"alarmActions":       {args: pulumi.Map{"alarmActions": pulumi.StringArray{pulumi.String("arn:aws:sns:eu-west-1:123456789012:oncall")}}, want: []string{"update MetricAlarm graceful-leave-failed"}},
		"tags":               {args: pulumi.Map{"tags": pulumi.StringMap{"Team": pulumi.String("storage")}}, want: tagged},
	}
	for _, input := range asg.Inputs() {
		test, ok := tests[input.Name]
		if !ok {
			t.Errorf("%s: what changing it does is not tested", input.Name)
			continue
		}
		s.program(one(demo(test.args)))
		got := s.steps()
		if diff := gocmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: changes (-want +got):\n%s", input.Name, diff)
		}
		if got, want := input.Effect, cmp.Or(test.effect, effectOf(got)); got != want {
			t.Errorf("%s: the reference says %q, want %q", input.Name, got, want)
		}
	}
}

// waiting is what it takes to wait for mounted nodes.
var waiting = []string{"create LifecycleHook ready", "update Group nodes", "update LaunchTemplate node", "update RolePolicy node"}

// effectOf says in the words of the reference what steps amount to.
func effectOf(steps []string) asg.Effect {
	has := func(step string) bool { return slices.Contains(steps, step) }
	switch {
	case has("replace BucketV2 artifacts"):
		return asg.Replaced
	case has("replace Volume data"):
		return asg.Moved
	case has("update LaunchTemplate node"):
		return asg.NewNodes
	case len(steps) == 0:
		return asg.Nothing
	}
	return asg.InPlace
}

// steps are what a preview would do, each as the operation, the type and the
// name of the resource without the cluster's own.
func (s *stack) steps() []string {
	s.t.Helper()
	s.output.Reset()
	stream := make(chan events.EngineEvent)
	found := map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range stream {
			if event.ResourcePreEvent == nil {
				continue
			}
			of := event.ResourcePreEvent.Metadata
			switch of.Op {
			case "create", "update", "replace", "delete":
				parts := strings.Split(of.URN, "::")
				kind := of.Type[strings.LastIndex(of.Type, ":")+1:]
				found[string(of.Op)+" "+kind+" "+strings.TrimPrefix(parts[len(parts)-1], "fs-")] = true
			}
		}
	}()
	_, err := s.Preview(s.t.Context(), optpreview.EventStreams(stream), optpreview.ErrorProgressStreams(&s.output), optpreview.ProgressStreams(&s.output), optpreview.Color("never"))
	<-done
	if err != nil {
		s.t.Fatalf("preview: %v\n%s", err, &s.output)
	}
	if len(found) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(found))
}

// moved is what another zone comes to.
var moved = []string{
	"replace Group nodes", "replace LifecycleHook graceful-leave", "replace Table seed", "replace Volume data",
	"update LaunchTemplate node", "update RolePolicy node",
}

// everything is what another name comes to.
var everything = []string{
	"replace BucketObjectv2 bootstrap", "replace BucketPublicAccessBlock artifacts-private",
	"replace BucketServerSideEncryptionConfigurationV2 artifacts-encryption", "replace BucketV2 artifacts",
	"replace EventRule terminating", "replace EventTarget terminating", "replace Function graceful-leave",
	"replace FunctionEventInvokeConfig graceful-leave", "replace Group nodes", "replace InstanceProfile node",
	"replace LaunchTemplate node", "replace LifecycleHook graceful-leave", "replace LogGroup graceful-leave",
	"replace MetricAlarm graceful-leave-failed", "replace Permission terminating", "replace Queue graceful-leave-failed",
	"replace QueuePolicy graceful-leave-failed", "replace Role graceful-leave", "replace Role node",
	"replace RolePolicy graceful-leave", "replace RolePolicy node", "replace RolePolicyAttachment node-ssm",
	"replace SecurityGroup nodes", "replace SecurityGroupEgressRule egress", "replace SecurityGroupIngressRule ingress-etcd-client",
	"replace SecurityGroupIngressRule ingress-etcd-peer", "replace SecurityGroupIngressRule ingress-metrics",
	"replace SecurityGroupIngressRule ingress-node-exporter", "replace Table seed", "replace Volume data",
}

// tagged is everything that has tags.
var tagged = []string{
	"update BucketV2 artifacts", "update EventRule terminating", "update Function graceful-leave", "update Group nodes",
	"update InstanceProfile node", "update LaunchTemplate node", "update LogGroup graceful-leave",
	"update MetricAlarm graceful-leave-failed", "update Queue graceful-leave-failed", "update Role graceful-leave", "update Role node",
	"update SecurityGroup nodes", "update SecurityGroupEgressRule egress", "update SecurityGroupIngressRule ingress-etcd-client",
	"update SecurityGroupIngressRule ingress-etcd-peer", "update SecurityGroupIngressRule ingress-metrics",
	"update SecurityGroupIngressRule ingress-node-exporter", "update Table seed", "update Volume data",
}

// A cluster that moves or is renamed loses its volume, and nothing of the old
// one stays or is missing in the new.
func TestMoveAndRename(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	s.program(one(demo(nil)))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		args pulumi.Map
	}{
		{"another zone", pulumi.Map{"availabilityZone": pulumi.String("eu-west-1b")}},
		{"another name", pulumi.Map{"availabilityZone": pulumi.String("eu-west-1b"), "clusterName": pulumi.String("other")}},
	} {
		before := s.exported("fs.volume")
		s.program(one(demo(step.args)))
		if _, err := s.up(); err != nil {
			t.Fatalf("%s: %v\n%s", step.name, err, &s.output)
		}
		if after := s.exported("fs.volume"); after == before {
			t.Errorf("%s: the volume %v is kept", step.name, after)
		}
		got, err := s.up()
		s.must("up again with "+step.name, got, err, nil)
		got, err = s.refresh() // would miss a hook that went with the old group
		s.must("refresh with "+step.name, got, err, nil)
	}
	for _, found := range inventory(t, region) {
		if strings.Contains(found, "demo") {
			t.Errorf("another name: %s is left", found)
		}
	}
	s.mustDestroy()
}

// In another subnet of the zone a cluster keeps its volume, its table and its
// nodes; those that start from then on start there.
func TestAnotherSubnetOfTheZone(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	s.program(one(demo(nil)))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	volume, before := s.exported("fs.volume"), subnetsOfNodes(t, region)
	other := otherSubnet(t, region, "eu-west-1a")

	s.program(one(demo(pulumi.Map{"availabilityZone": nil, "subnetId": pulumi.String(other)})))
	if diff := gocmp.Diff([]string{"update Group nodes"}, s.steps()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	got, err := s.up()
	s.must("up with another subnet", got, err, changes{"update": 1})
	if after := s.exported("fs.volume"); after != volume {
		t.Errorf("the volume is %v, want %v kept", after, volume)
	}
	if diff := gocmp.Diff(before, subnetsOfNodes(t, region)); diff != "" {
		t.Errorf("nodes and their subnets (-before +after):\n%s", diff)
	}

	scale(t, region, "demo-asg", 5)
	after := subnetsOfNodes(t, region)
	for id, in := range after {
		want := other
		if was, ok := before[id]; ok {
			want = was
		}
		if in != want {
			t.Errorf("%s is in %s, want %s", id, in, want)
		}
	}
	if got, want := len(after), 5; got != want {
		t.Errorf("got %d nodes, want %d", got, want)
	}
	got, err = s.up()
	s.must("up again", got, err, nil)
	got, err = s.refresh()
	s.must("refresh", got, err, nil)
	s.mustDestroy()
}

// subnetsOfNodes are the instances that run or are about to, each with its
// subnet.
func subnetsOfNodes(t testing.TB, region *plane.Plane) map[string]string {
	t.Helper()
	described, err := ec2.NewFromConfig(region.Config()).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"pending", "running"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]string{}
	for _, reservation := range described.Reservations {
		for _, instance := range reservation.Instances {
			nodes[aws.ToString(instance.InstanceId)] = aws.ToString(instance.SubnetId)
		}
	}
	return nodes
}
