package ec2_test

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
)

func TestVolumeLifecycle(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.newVolume(func(in *sdk.CreateVolumeInput) { in.Encrypted = aws.Bool(true) })
		got := w.volume(id)
		if got.State != types.VolumeStateAvailable || *got.Size != 4 || *got.Iops != 100 || !*got.MultiAttachEnabled || !*got.Encrypted ||
			*got.AvailabilityZone != zoneA || got.VolumeType != types.VolumeTypeIo2 || len(got.Attachments) != 0 {
			t.Errorf("got volume %+v", got)
		}
		template := w.newTemplate("demo")
		one, two := w.launch(template, zoneA), w.launch(template, zoneA)
		for _, instance := range []string{one, two} {
			out := do[*sdk.AttachVolumeOutput](w)(w.client.AttachVolume(w.Context(), &sdk.AttachVolumeInput{
				VolumeId: aws.String(id), InstanceId: aws.String(instance), Device: aws.String("/dev/sdf"),
			}))
			if out.State != types.VolumeAttachmentStateAttaching {
				t.Errorf("got the answer %s, want attaching", out.State)
			}
		}
		got = w.volume(id)
		if got.State != types.VolumeStateInUse || len(got.Attachments) != 2 || got.Attachments[0].State != types.VolumeAttachmentStateAttached {
			t.Errorf("got volume %+v", got)
		}
		file := w.machines.Of(one).File(id)
		info, err := os.Stat(file)
		if err != nil || info.Size() != 4<<30 || file != w.machines.Of(two).File(id) {
			t.Errorf("got file %s, %v, %v: want one of 4 GiB on both machines", file, info, err)
		}
		_, err = w.client.DeleteVolume(w.Context(), &sdk.DeleteVolumeInput{VolumeId: aws.String(id)})
		w.wantCode("delete while attached", err, "VolumeInUse")

		do[*sdk.DetachVolumeOutput](w)(w.client.DetachVolume(w.Context(), &sdk.DetachVolumeInput{VolumeId: aws.String(id), InstanceId: aws.String(one)}))
		if w.machines.Of(one).File(id) != "" || w.machines.Of(two).File(id) == "" {
			t.Error("the volume did not disappear from the one machine only")
		}
		w.Terminate(two) // which detaches, too
		synctest.Wait()
		if got := w.volume(id); got.State != types.VolumeStateAvailable {
			t.Errorf("got state %s after the last detachment, want available", got.State)
		}
		do[*sdk.DeleteVolumeOutput](w)(w.client.DeleteVolume(w.Context(), &sdk.DeleteVolumeInput{VolumeId: aws.String(id)}))
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the volume's file is still there: %v", err)
		}
		_, err = w.client.DescribeVolumes(w.Context(), &sdk.DescribeVolumesInput{VolumeIds: []string{id}})
		w.wantError("describe after delete", err, "InvalidVolume.NotFound", "The volume '"+id+"' does not exist.")
	})
}

func TestVolumesThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for name, test := range map[string]struct {
			change func(*sdk.CreateVolumeInput)
			code   string
		}{
			"unknown zone":          {func(in *sdk.CreateVolumeInput) { in.AvailabilityZone = aws.String("us-east-1a") }, "InvalidZone.NotFound"},
			"no zone":               {func(in *sdk.CreateVolumeInput) { in.AvailabilityZone = nil }, "MissingParameter"},
			"unknown type":          {func(in *sdk.CreateVolumeInput) { in.VolumeType = "io3" }, "InvalidParameterValue"},
			"no IOPS":               {func(in *sdk.CreateVolumeInput) { in.Iops = nil }, "MissingParameter"},
			"too small":             {func(in *sdk.CreateVolumeInput) { in.Size = aws.Int32(3) }, "InvalidParameterValue"},
			"too large":             {func(in *sdk.CreateVolumeInput) { in.Size = aws.Int32(65537) }, "InvalidParameterValue"},
			"too few IOPS":          {func(in *sdk.CreateVolumeInput) { in.Iops = aws.Int32(99) }, "InvalidParameterValue"},
			"too many IOPS per GiB": {func(in *sdk.CreateVolumeInput) { in.Iops = aws.Int32(4001) }, "InvalidParameterValue"},
			"throughput":            {func(in *sdk.CreateVolumeInput) { in.Throughput = aws.Int32(125) }, "InvalidParameterCombination"},
			"Multi-Attach of gp3": {func(in *sdk.CreateVolumeInput) {
				in.VolumeType, in.Iops = types.VolumeTypeGp3, nil
			}, "InvalidParameterCombination"},
			"snapshot": {func(in *sdk.CreateVolumeInput) { in.SnapshotId = aws.String("snap-1") }, "UnknownParameter"},
			"tags of something else": {func(in *sdk.CreateVolumeInput) {
				in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: aws.String("k"), Value: aws.String("v")}}}}
			}, "InvalidParameterValue"},
		} {
			in := &sdk.CreateVolumeInput{
				AvailabilityZone: aws.String(zoneA), VolumeType: types.VolumeTypeIo2, Size: aws.Int32(4), Iops: aws.Int32(100), MultiAttachEnabled: aws.Bool(true),
			}
			test.change(in)
			_, err := w.client.CreateVolume(w.Context(), in)
			w.wantCode(name, err, test.code)
		}
	})
}

func TestAttachmentsThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		nitro := w.newTemplate("nitro")
		xen := w.newTemplate("xen", func(d *types.RequestLaunchTemplateData) { d.InstanceType = types.InstanceTypeM4Large })
		instance, other := w.launch(nitro, zoneA), w.launch(nitro, zoneA)
		volume := w.newVolume()
		single := w.newVolume(func(in *sdk.CreateVolumeInput) { in.MultiAttachEnabled = aws.Bool(false) })
		for device, each := range map[string]string{"/dev/sdf": volume, "/dev/sdg": single} {
			if err := w.attach(each, instance, device); err != nil {
				t.Fatal(err)
			}
		}
		stopped := w.launch(nitro, zoneA)
		if err := w.Crash(stopped); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, test := range []struct{ name, volume, instance, device, code, message string }{
			{"no such volume", "vol-1", instance, "/dev/sdz", "InvalidVolume.NotFound", "The volume 'vol-1' does not exist."},
			{"no such instance", volume, "i-1", "/dev/sdz", "InvalidInstanceID.NotFound", "The instance ID 'i-1' does not exist"},
			{"not running", volume, stopped, "/dev/sdz", "IncorrectState", "Instance '" + stopped + "' is not 'running'."},
			{"twice", volume, instance, "/dev/sdz", "VolumeInUse", volume + " is already attached to an instance"},
			{"no Multi-Attach", single, other, "/dev/sdz", "VolumeInUse", single + " is already attached to an instance"},
			{"device taken", w.newVolume(), instance, "/dev/sdf", "InvalidParameterValue", "Invalid value '/dev/sdf' for unixDevice. Attachment point /dev/sdf is already in use"},
			{"no device", volume, other, "nvme1n1", "InvalidParameterValue", ""},
			{"other zone", volume, w.launch(nitro, zoneB), "/dev/sdz", "InvalidVolume.ZoneMismatch", ""},
			{"Xen", volume, w.launch(xen, zoneA), "/dev/sdz", "UnsupportedOperation", ""},
		} {
			err := w.attach(test.volume, test.instance, test.device)
			w.wantCode(test.name, err, test.code)
			if test.message != "" {
				w.wantError(test.name, err, test.code, test.message)
			}
		}
	})
}

func TestAPendingInstanceTakesNoVolume(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.machines.OnStart = wait(time.Minute)
		made, err := w.Launch(ec2.LaunchRequest{TemplateID: w.newTemplate("demo"), Version: "1", SubnetID: w.subnet(zoneA)})
		if err != nil {
			t.Fatal(err)
		}
		volume := w.newVolume()
		w.wantError("pending", w.attach(volume, made.ID, "/dev/sdf"), "IncorrectState", "Instance '"+made.ID+"' is not 'running'.")
		<-time.After(time.Minute)
		synctest.Wait()
		if err := w.attach(volume, made.ID, "/dev/sdf"); err != nil {
			t.Error(err)
		}
	})
}

func TestSixteenInstancesAttach(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		template, volume := w.newTemplate("demo"), w.newVolume()
		var first string
		for i := range 17 {
			instance := w.launch(template, zoneA)
			err := w.attach(volume, instance, "/dev/sdf")
			switch {
			case i == 0:
				first = instance
			case i < 16 && err != nil:
				t.Fatal(err)
			case i == 16:
				w.wantCode("the 17th", err, "VolumeInUse")
				do[*sdk.DetachVolumeOutput](w)(w.client.DetachVolume(w.Context(), &sdk.DetachVolumeInput{VolumeId: aws.String(volume), InstanceId: aws.String(first)}))
				if err := w.attach(volume, instance, "/dev/sdf"); err != nil {
					t.Errorf("after one was detached: %v", err)
				}
			}
		}
	})
}

func TestDetachmentsThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		template, volume := w.newTemplate("demo"), w.newVolume()
		detach := func(instance string) error {
			in := &sdk.DetachVolumeInput{VolumeId: aws.String(volume)}
			if instance != "" {
				in.InstanceId = aws.String(instance)
			}
			_, err := w.client.DetachVolume(w.Context(), in)
			return err
		}
		w.wantError("not attached", detach(""), "IncorrectState", "Volume '"+volume+"' is in the 'available' state.")
		one, two, three := w.launch(template, zoneA), w.launch(template, zoneA), w.launch(template, zoneA)
		for _, each := range []string{one, two} {
			if err := w.attach(volume, each, "/dev/sdf"); err != nil {
				t.Fatal(err)
			}
		}
		w.wantCode("from which?", detach(""), "InvalidParameterCombination")
		w.wantCode("from another", detach(three), "InvalidAttachment.NotFound")
		if err := w.Crash(one); err != nil { // fencing detaches from dead instances
			t.Fatal(err)
		}
		synctest.Wait()
		if err := detach(one); err != nil {
			t.Error(err)
		}
	})
}

func TestModifyVolume(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.newVolume()
		instance := w.launch(w.newTemplate("demo"), zoneA)
		if err := w.attach(id, instance, "/dev/sdf"); err != nil {
			t.Fatal(err)
		}
		out := do[*sdk.ModifyVolumeOutput](w)(w.client.ModifyVolume(w.Context(), &sdk.ModifyVolumeInput{
			VolumeId: aws.String(id), Size: aws.Int32(8), Iops: aws.Int32(200),
		}))
		if m := out.VolumeModification; m.ModificationState != types.VolumeModificationStateCompleted || *m.OriginalSize != 4 || *m.TargetSize != 8 || *m.TargetIops != 200 {
			t.Errorf("got modification %+v", m)
		}
		if got := w.volume(id); *got.Size != 8 || *got.Iops != 200 || got.State != types.VolumeStateInUse {
			t.Errorf("got volume %+v", got)
		}
		if info, err := os.Stat(w.machines.Of(instance).File(id)); err != nil || info.Size() != 8<<30 {
			t.Errorf("got file %v, error %v, want 8 GiB", info, err)
		}
		for name, test := range map[string]struct {
			in   sdk.ModifyVolumeInput
			code string
		}{
			"smaller":                  {sdk.ModifyVolumeInput{Size: aws.Int32(4)}, "InvalidParameterValue"},
			"too many IOPS per GiB":    {sdk.ModifyVolumeInput{Iops: aws.Int32(8001)}, "InvalidParameterValue"},
			"no such volume":           {sdk.ModifyVolumeInput{VolumeId: aws.String("vol-1"), Size: aws.Int32(9)}, "InvalidVolume.NotFound"},
			"to a type without shares": {sdk.ModifyVolumeInput{VolumeType: types.VolumeTypeGp3, Iops: aws.Int32(3000)}, "InvalidParameterCombination"},
		} {
			if test.in.VolumeId == nil {
				test.in.VolumeId = aws.String(id)
			}
			_, err := w.client.ModifyVolume(w.Context(), &test.in)
			w.wantCode(name, err, test.code)
		}
		for i := range 3 {
			do[*sdk.ModifyVolumeOutput](w)(w.client.ModifyVolume(w.Context(), &sdk.ModifyVolumeInput{VolumeId: aws.String(id), Size: aws.Int32(int32(9 + i))}))
		}
		again := &sdk.ModifyVolumeInput{VolumeId: aws.String(id), Size: aws.Int32(20)}
		_, err := w.client.ModifyVolume(w.Context(), again)
		w.wantCode("the fifth in a day", err, "VolumeModificationRateExceeded")
		<-time.After(24 * time.Hour)
		do[*sdk.ModifyVolumeOutput](w)(w.client.ModifyVolume(w.Context(), again))
		described := do[*sdk.DescribeVolumesModificationsOutput](w)(w.client.DescribeVolumesModifications(w.Context(), &sdk.DescribeVolumesModificationsInput{VolumeIds: []string{id}}))
		if len(described.VolumesModifications) != 1 || *described.VolumesModifications[0].TargetSize != 20 {
			t.Errorf("got modifications %+v", described.VolumesModifications)
		}
	})
}

func TestMultiAttachIsChangedOfIo2Only(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		shared := func(id string, enabled bool) error {
			_, err := w.client.ModifyVolume(w.Context(), &sdk.ModifyVolumeInput{VolumeId: aws.String(id), MultiAttachEnabled: aws.Bool(enabled)})
			return err
		}
		template := w.newTemplate("demo")
		id := w.newVolume(func(in *sdk.CreateVolumeInput) { in.MultiAttachEnabled = aws.Bool(false) })
		if err := shared(id, true); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.attach(id, w.launch(template, zoneA), "/dev/sdf"); err != nil {
				t.Fatal(err)
			}
		}
		w.wantCode("off with two instances", shared(id, false), "IncorrectState")
		io1 := w.newVolume(func(in *sdk.CreateVolumeInput) {
			in.VolumeType, in.MultiAttachEnabled = types.VolumeTypeIo1, aws.Bool(false)
		})
		w.wantCode("io1", shared(io1, true), "InvalidParameterValue")
	})
}

func TestClientTokenMakesOneVolume(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		token := func(in *sdk.CreateVolumeInput) { in.ClientToken = aws.String("once") }
		other, first := w.newVolume(), w.newVolume(token) // the other one has a token of its own
		out := do[*sdk.CreateVolumeOutput](w)(w.client.CreateVolume(w.Context(), &sdk.CreateVolumeInput{
			AvailabilityZone: aws.String(zoneA), VolumeType: types.VolumeTypeIo2, Size: aws.Int32(4), Iops: aws.Int32(100), ClientToken: aws.String("once"),
		}))
		if again := *out.VolumeId; again != first || again == other {
			t.Errorf("got volume %s for the same token, want %s", again, first)
		}
	})
}

// A node's role is held to the volume and the instances of its cluster.
func TestAttachingIsJudgedByTagsOfBothResources(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.putProfile("node", "ec2.amazonaws.com", `{"Version":"2012-10-17","Statement":[
			{"Effect":"Allow","Action":["ec2:AttachVolume","ec2:DetachVolume"],"Resource":["arn:aws:ec2:*:*:volume/*","arn:aws:ec2:*:*:instance/*"],
			 "Condition":{"StringEquals":{"ec2:ResourceTag/ClusterName":"demo"}}},
			{"Effect":"Allow","Action":"ec2:DescribeVolumes","Resource":"*","Condition":{"StringEquals":{"ec2:Region":"eu-west-1"}}}]}`)
		template := w.newTemplate("demo")
		own, foreign := w.launch(template, zoneA, "ClusterName", "demo"), w.launch(template, zoneA, "ClusterName", "other")
		tagged := func(cluster string) string {
			return w.newVolume(func(in *sdk.CreateVolumeInput) {
				in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{
					{Key: aws.String("ClusterName"), Value: aws.String(cluster)},
				}}}
			})
		}
		demo, other := tagged("demo"), tagged("other")
		config, err := w.door.As("node", own)
		if err != nil {
			t.Fatal(err)
		}
		w.client = sdk.NewFromConfig(config)
		w.wantError("another cluster's volume", w.attach(other, own, "/dev/sdf"), "UnauthorizedOperation", fmt.Sprintf(
			"You are not authorized to perform this operation. User: arn:aws:sts::%[1]s:assumed-role/node/%[2]s is not authorized to perform: ec2:AttachVolume "+
				"on resource: arn:aws:ec2:%[3]s:%[1]s:volume/%[4]s because no identity-based policy allows the ec2:AttachVolume action",
			fake.Account, own, fake.Region, other))
		w.wantCode("another cluster's instance", w.attach(demo, foreign, "/dev/sdf"), "UnauthorizedOperation")
		if err := w.attach(demo, own, "/dev/sdf"); err != nil {
			t.Error(err)
		}
		if got := w.volume(demo); len(got.Attachments) != 1 {
			t.Errorf("got attachments %+v", got.Attachments)
		}
		_, err = w.client.DeleteVolume(w.Context(), &sdk.DeleteVolumeInput{VolumeId: aws.String(demo)})
		w.wantCode("what it may not do", err, "UnauthorizedOperation")
	})
}
