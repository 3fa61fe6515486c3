package ec2_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
)

// wait delays the start of machines.
func wait(d time.Duration) func(context.Context, ec2.MachineSpec) error {
	return func(ctx context.Context, _ ec2.MachineSpec) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestInstanceIsLaunchedAsItsTemplateSays(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.putProfile("node", "ec2.amazonaws.com", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeInstances","Resource":"*"}]}`)
		group := do[*sdk.CreateSecurityGroupOutput](w)(w.client.CreateSecurityGroup(w.Context(), &sdk.CreateSecurityGroupInput{
			GroupName: aws.String("nodes"), Description: aws.String("nodes"),
		}))
		template := w.newTemplate("demo", func(d *types.RequestLaunchTemplateData) {
			d.UserData = encode("#!/bin/sh\n")
			d.IamInstanceProfile = &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("node")}
			d.SecurityGroupIds = []string{*group.GroupId}
			d.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required", HttpPutResponseHopLimit: aws.Int32(2)}
			d.TagSpecifications = []types.LaunchTemplateTagSpecificationRequest{{ResourceType: "instance", Tags: []types.Tag{
				{Key: aws.String("Name"), Value: aws.String("of the template")}, {Key: aws.String("Role"), Value: aws.String("etcfs-node")},
			}}}
		})
		id := w.launch(template, zoneB, "Name", "of the launch")
		spec := w.machines.Of(id).Spec
		if spec.InstanceID != id || spec.PrivateIP != "127.9.9.68" || spec.AvailabilityZone != zoneB || spec.Region != fake.Region ||
			spec.AccountID != fake.Account || spec.InstanceType != "t3.medium" || spec.RoleName != "node" || string(spec.UserData) != "#!/bin/sh\n" {
			t.Errorf("got machine %+v", spec)
		}
		if spec.Tags["Name"] != "of the launch" || spec.Tags["Role"] != "etcfs-node" || spec.Tags["aws:ec2launchtemplate:id"] != template {
			t.Errorf("got tags %v", spec.Tags)
		}
		credentials, err := spec.Credentials()
		if err != nil {
			t.Fatal(err)
		}
		if who, ok := w.door.IAM.Identify(credentials.AccessKeyID); !ok || who.Role != "node" || who.Session != id {
			t.Errorf("the instance's keys belong to %+v, %v", who, ok)
		}
		got := w.describe()[0]
		if *got.InstanceId != id || got.State.Name != types.InstanceStateNameRunning || *got.PrivateIpAddress != "127.9.9.68" || *got.PublicIpAddress != "127.9.9.68" ||
			*got.SubnetId != w.subnet(zoneB) || *got.Placement.AvailabilityZone != zoneB || *got.SecurityGroups[0].GroupName != "nodes" ||
			!strings.HasSuffix(*got.IamInstanceProfile.Arn, ":instance-profile/node") || got.MetadataOptions.HttpTokens != "required" {
			t.Errorf("got instance %+v", got)
		}
		if eni := got.NetworkInterfaces; len(eni) != 1 || !eni[0].Attachment.AttachTime.Equal(*got.LaunchTime) || *eni[0].PrivateIpAddress != *got.PrivateIpAddress {
			t.Errorf("got network interfaces %+v, want one, attached at the launch", eni)
		}
	})
}

func TestLaunchesThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for name, test := range map[string]struct {
			change  func(*types.RequestLaunchTemplateData)
			request func(*ec2.LaunchRequest)
			code    string
		}{
			"no such template": {nil, func(r *ec2.LaunchRequest) { r.TemplateID = "lt-1" }, "InvalidLaunchTemplateId.NotFound"},
			"no such version":  {nil, func(r *ec2.LaunchRequest) { r.Version = "2" }, "InvalidLaunchTemplateId.VersionNotFound"},
			"no version":       {nil, func(r *ec2.LaunchRequest) { r.Version = "newest" }, "InvalidLaunchTemplateVersion.Malformed"},
			"no such subnet":   {nil, func(r *ec2.LaunchRequest) { r.SubnetID = "subnet-1" }, "InvalidSubnetID.NotFound"},
			"no such type":     {func(d *types.RequestLaunchTemplateData) { d.InstanceType = "t9.huge" }, nil, "InvalidParameterValue"},
			"type not in zone": {
				func(d *types.RequestLaunchTemplateData) { d.InstanceType = "m7i.large" },
				func(r *ec2.LaunchRequest) { r.SubnetID = w.subnet(fake.Region + "c") }, "Unsupported",
			},
			"other architecture": {func(d *types.RequestLaunchTemplateData) { d.InstanceType = "m6g.large" }, nil, "InvalidParameterValue"},
			"no such image":      {func(d *types.RequestLaunchTemplateData) { d.ImageId = aws.String("ami-1") }, nil, "InvalidAMIID.NotFound"},
			"no such parameter":  {func(d *types.RequestLaunchTemplateData) { d.ImageId = aws.String("resolve:ssm:/my/image") }, nil, "InvalidAMIID.NotFound"},
			"no such group":      {func(d *types.RequestLaunchTemplateData) { d.SecurityGroupIds = []string{"sg-1"} }, nil, "InvalidGroup.NotFound"},
			"no such key":        {func(d *types.RequestLaunchTemplateData) { d.KeyName = aws.String("mine") }, nil, "InvalidKeyPair.NotFound"},
			"no such profile": {func(d *types.RequestLaunchTemplateData) {
				d.IamInstanceProfile = &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("missing")}
			}, nil, "InvalidParameterValue"},
		} {
			var changes []func(*types.RequestLaunchTemplateData)
			if test.change != nil {
				changes = append(changes, test.change)
			}
			request := ec2.LaunchRequest{TemplateID: w.newTemplate(strings.ReplaceAll(name, " ", "-"), changes...), Version: "1", SubnetID: w.subnet(zoneA)}
			if test.request != nil {
				test.request(&request)
			}
			_, err := w.Launch(request)
			w.wantPlainCode(name, err, test.code)
			w.wantPlainCode(name+", only checked", w.CheckLaunch(request), test.code)
		}
		if got := w.describe(); len(got) != 0 {
			t.Errorf("%d instances were launched all the same", len(got))
		}
	})
}

// wantPlainCode is wantCode for errors that did not pass through the SDK.
func (w *world) wantPlainCode(what string, err error, code string) {
	w.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), code+": ") {
		w.Errorf("%s: got error %v, want %s", what, err, code)
	}
}

func TestRoleThatDoesNotTrustEC2GivesNoCredentials(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.putProfile("function", "lambda.amazonaws.com", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}`)
		id := w.launch(w.newTemplate("demo", func(d *types.RequestLaunchTemplateData) {
			d.IamInstanceProfile = &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("function")}
		}), zoneA)
		_, err := w.machines.Of(id).Spec.Credentials()
		w.wantPlainCode("credentials", err, "AssumeRoleUnauthorizedAccess")
	})
}

func TestTerminatedInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.launch(w.newTemplate("demo"), zoneA)
		out := do[*sdk.TerminateInstancesOutput](w)(w.client.TerminateInstances(w.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{id}}))
		if change := out.TerminatingInstances[0]; change.PreviousState.Name != "running" || change.CurrentState.Name != "shutting-down" || *change.CurrentState.Code != 32 {
			t.Errorf("got change %+v", change)
		}
		synctest.Wait()
		if !w.machines.Of(id).StoppedInOrder() {
			t.Error("the machine was not shut down in order")
		}
		got := w.describe(filter("instance-state-name", "terminated"))
		if len(got) != 1 || got[0].PrivateIpAddress != nil || got[0].SubnetId != nil || *got[0].StateReason.Code != "Client.UserInitiatedShutdown" {
			t.Errorf("got instances %+v, want one without an address", got)
		}
		var states []ec2.State
		for _, each := range w.events.Of("EC2 Instance State-change Notification") {
			if each.Source != "aws.ec2" || each.Resources[0] != "arn:aws:ec2:eu-west-1:123456789012:instance/"+id {
				t.Errorf("got event %+v", each)
			}
			states = append(states, stateOf(t, each))
		}
		if want := []ec2.State{"pending", "running", "shutting-down", "terminated"}; !slices.Equal(states, want) {
			t.Errorf("got events of states %q, want %q", states, want)
		}
		<-time.After(59 * time.Minute)
		if len(w.describe()) != 1 {
			t.Error("the instance is not visible for an hour")
		}
		<-time.After(time.Minute)
		if len(w.describe()) != 0 {
			t.Error("the instance is visible for more than an hour")
		}
		_, err := w.client.DescribeInstances(w.Context(), &sdk.DescribeInstancesInput{InstanceIds: []string{id}})
		w.wantError("describe what is gone", err, "InvalidInstanceID.NotFound", "The instance ID '"+id+"' does not exist")
	})
}

func TestCrashedInstance(t *testing.T) {
	t.Parallel()
	for behavior, want := range map[types.ShutdownBehavior]types.InstanceStateName{"": "stopped", "stop": "stopped", "terminate": "terminated"} {
		t.Run("on shutdown "+string(behavior), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				id := w.launch(w.newTemplate("demo", func(d *types.RequestLaunchTemplateData) { d.InstanceInitiatedShutdownBehavior = behavior }), zoneA)
				if err := w.Crash(id); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				got := w.describe()[0]
				if got.State.Name != want || *got.StateReason.Code != "Client.InstanceInitiatedShutdown" {
					t.Errorf("got state %s (%s), want %s", got.State.Name, *got.StateReason.Code, want)
				}
				if w.machines.Of(id).StoppedInOrder() {
					t.Error("a crash shut the machine down in order")
				}
				w.Terminate(id)
				synctest.Wait()
				if got := w.describe()[0]; got.State.Name != "terminated" {
					t.Errorf("got state %s after the termination", got.State.Name)
				}
			})
		})
	}
}

func TestMachineThatDoesNotStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.machines.OnStart = func(context.Context, ec2.MachineSpec) error { return errors.New("no memory") }
		if _, err := w.Launch(ec2.LaunchRequest{TemplateID: w.newTemplate("demo"), Version: "1", SubnetID: w.subnet(zoneA)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := w.describe()[0]; got.State.Name != "terminated" || *got.StateReason.Code != "Server.InternalError: no memory" {
			t.Errorf("got state %s, %s", got.State.Name, *got.StateReason.Code)
		}
	})
}

func TestTerminationWhilePending(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.machines.OnStart = wait(time.Minute)
		made, err := w.Launch(ec2.LaunchRequest{TemplateID: w.newTemplate("demo"), Version: "1", SubnetID: w.subnet(zoneA)})
		if err != nil {
			t.Fatal(err)
		}
		w.Terminate(made.ID)
		<-time.After(time.Minute)
		synctest.Wait()
		if got := w.describe()[0]; got.State.Name != "terminated" {
			t.Errorf("got state %s, want terminated", got.State.Name)
		}
		if running, left := w.machines.Running(); running+left > 0 {
			t.Errorf("%d machines run, %d are left", running, left)
		}
	})
}

func TestDescribeInstancesFiltersAndPages(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		template := w.newTemplate("demo")
		var ids []string
		for range 12 {
			ids = append(ids, w.launch(template, zoneA, "ClusterName", "demo"))
		}
		slices.Sort(ids)
		stranger := w.launch(template, zoneB, "ClusterName", "demo2")
		crashed := ids[3]
		if err := w.Crash(crashed); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		cluster := filter("tag:ClusterName", "demo")
		var got []string
		pages := 0
		paginator := sdk.NewDescribeInstancesPaginator(w.client, &sdk.DescribeInstancesInput{Filters: []types.Filter{cluster}, MaxResults: aws.Int32(5)})
		for paginator.HasMorePages() {
			pages++
			out := do[*sdk.DescribeInstancesOutput](w)(paginator.NextPage(w.Context()))
			for _, each := range out.Reservations {
				got = append(got, *each.Instances[0].InstanceId)
			}
			if pages == 1 { // what goes between two pages takes nothing else along
				w.Terminate(got[4])
				synctest.Wait()
				<-time.After(2 * time.Hour)
			}
		}
		if !slices.Equal(got, ids) || pages != 3 {
			t.Errorf("got %d pages of %q, want 3 of %q", pages, got, ids)
		}
		if got := w.describe(cluster, filter("instance-state-name", "pending", "running")); len(got) != 10 {
			t.Errorf("got %d instances that run, want 10", len(got))
		}
		for name, each := range map[string]types.Filter{
			"by wildcard": filter("tag:ClusterName", "demo?"), "by zone": filter("availability-zone", zoneB), "by ID": filter("instance-id", stranger),
			"by address": filter("private-ip-address", "127.9.9.68"), "by key and value": filter("tag:ClusterName", "demo2", "demo3"),
		} {
			if got := w.describe(each); len(got) != 1 || *got[0].InstanceId != stranger {
				t.Errorf("%s: got %d instances, want the one in the other zone", name, len(got))
			}
		}
		_, err := w.client.DescribeInstances(w.Context(), &sdk.DescribeInstancesInput{InstanceIds: []string{stranger}, MaxResults: aws.Int32(5)})
		w.wantCode("pages of IDs", err, "InvalidParameterCombination")
		_, err = w.client.DescribeInstances(w.Context(), &sdk.DescribeInstancesInput{MaxResults: aws.Int32(4)})
		w.wantCode("too small a page", err, "InvalidParameterValue")
		_, err = w.client.DescribeInstances(w.Context(), &sdk.DescribeInstancesInput{Filters: []types.Filter{filter("colour", "red")}})
		w.wantCode("unknown filter", err, "InvalidParameterValue")
		_, err = w.client.DescribeInstances(w.Context(), &sdk.DescribeInstancesInput{NextToken: aws.String("§")})
		w.wantCode("bad token", err, "InvalidParameterValue")
	})
}

func TestAddressesComeBackLast(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		template := w.newTemplate("demo")
		address := func() string {
			id := w.launch(template, zoneA)
			i, _ := w.Instance(id)
			w.Terminate(id)
			synctest.Wait()
			return i.PrivateIP
		}
		first := address()
		seen := map[string]bool{first: true}
		for {
			next := address()
			if next == first {
				break
			}
			if seen[next] {
				t.Fatalf("%s came back before %s", next, first)
			}
			seen[next] = true
		}
		if first != "127.9.9.10" || len(seen) != 53 {
			t.Errorf("got %d addresses from %s, want 53 from 127.9.9.10", len(seen), first)
		}
	})
}

// Only a default subnet gives its instances a public address.
func TestInstanceInAnotherSubnet(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		found := do[*sdk.DescribeSubnetsOutput](w)(w.client.DescribeSubnets(w.Context(), &sdk.DescribeSubnetsInput{
			Filters: []types.Filter{filter("default-for-az", "false")},
		}))
		made, err := w.Launch(ec2.LaunchRequest{TemplateID: w.newTemplate("demo"), Version: "1", SubnetID: *found.Subnets[0].SubnetId})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := w.describe(filter("private-ip-address", "127.9.9.196"))
		if len(got) != 1 || *got[0].InstanceId != made.ID || *got[0].SubnetId != *found.Subnets[0].SubnetId || *got[0].Placement.AvailabilityZone != zoneA {
			t.Fatalf("got instances %+v", got)
		}
		if got[0].PublicIpAddress != nil {
			t.Errorf("it has the public address %s", *got[0].PublicIpAddress)
		}
		if got := w.describe(filter("ip-address", "127.9.9.196")); len(got) > 0 {
			t.Errorf("it is found by a public address: %+v", got)
		}
	})
}

func TestSubnetWithoutFreeAddresses(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		template := w.newTemplate("demo")
		for range 53 {
			w.launch(template, zoneA)
		}
		_, err := w.Launch(ec2.LaunchRequest{TemplateID: template, Version: "1", SubnetID: w.subnet(zoneA)})
		w.wantPlainCode("one too many", err, "InsufficientFreeAddressesInSubnet")
	})
}

func TestRebootStatusAndConsole(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.launch(w.newTemplate("demo"), zoneA)
		do[*sdk.RebootInstancesOutput](w)(w.client.RebootInstances(w.Context(), &sdk.RebootInstancesInput{InstanceIds: []string{id}}))
		synctest.Wait()
		if got := w.machines.Of(id).Reboots(); got != 1 {
			t.Errorf("got %d reboots, want 1", got)
		}
		status := do[*sdk.DescribeInstanceStatusOutput](w)(w.client.DescribeInstanceStatus(w.Context(), &sdk.DescribeInstanceStatusInput{InstanceIds: []string{id}}))
		if len(status.InstanceStatuses) != 1 || status.InstanceStatuses[0].InstanceStatus.Status != "ok" {
			t.Errorf("got statuses %+v", status.InstanceStatuses)
		}
		console := do[*sdk.GetConsoleOutputOutput](w)(w.client.GetConsoleOutput(w.Context(), &sdk.GetConsoleOutputInput{InstanceId: aws.String(id)}))
		text, err := base64.StdEncoding.DecodeString(*console.Output)
		if err != nil || string(text) != "console of "+id {
			t.Errorf("got console %q, error %v", text, err)
		}
		if err := w.Crash(id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err = w.client.RebootInstances(w.Context(), &sdk.RebootInstancesInput{InstanceIds: []string{id}})
		w.wantCode("reboot what is stopped", err, "IncorrectState")
		all := &sdk.DescribeInstanceStatusInput{}
		if status := do[*sdk.DescribeInstanceStatusOutput](w)(w.client.DescribeInstanceStatus(w.Context(), all)); len(status.InstanceStatuses) != 0 {
			t.Errorf("got statuses %+v of instances that do not run", status.InstanceStatuses)
		}
	})
}

func TestTerminationProtection(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.launch(w.newTemplate("demo", func(d *types.RequestLaunchTemplateData) { d.DisableApiTermination = aws.Bool(true) }), zoneA)
		_, err := w.client.TerminateInstances(w.Context(), &sdk.TerminateInstancesInput{InstanceIds: []string{id}})
		w.wantCode("protected", err, "OperationNotPermitted")
	})
}

// stateOf is the state in a state-change event, as it is on the wire.
func stateOf(t *testing.T, event fake.Event) ec2.State {
	t.Helper()
	text, err := json.Marshal(event.Detail)
	if err != nil {
		t.Fatal(err)
	}
	var detail struct {
		InstanceID string `json:"instance-id"`
		State      ec2.State
	}
	if err := json.Unmarshal(text, &detail); err != nil || detail.InstanceID == "" {
		t.Fatalf("got detail %s, error %v", text, err)
	}
	return detail.State
}
