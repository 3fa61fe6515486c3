package ec2_test

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	iamsdk "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
)

const (
	amazonLinux = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
	zoneA       = fake.Region + "a"
	zoneB       = fake.Region + "b"
)

// world is EC2 with machines in memory, where time is the bubble's.
type world struct {
	*testing.T
	*ec2.Service
	door     *fake.Door
	machines *fake.Machines
	events   *fake.Events
	client   *sdk.Client
}

// inWorld runs a test in a new world, which must leave no machine behind.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, machines: &fake.Machines{}, events: &fake.Events{}}
		identities := iam.New(fake.Account, fake.Region)
		var err error
		w.Service, err = ec2.New(ec2.Config{
			Region: fake.Region, AccountID: fake.Account, Directory: t.TempDir(), Machines: w.machines, IAM: identities,
			Events: w.events, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.door = fake.NewDoor(identities, w.API())
		w.client = sdk.NewFromConfig(w.door.Administrator())
		defer func() {
			if err := w.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if running, left := w.machines.Running(); running+left > 0 {
				t.Errorf("%d machines run and %d disks are left after the end", running, left)
			}
		}()
		test(w)
	})
}

// do takes what a call returned, which must have succeeded.
func do[T any](w *world) func(T, error) T {
	return func(out T, err error) T {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		return out
	}
}

func (w *world) wantCode(what string, err error, code string) {
	w.Helper()
	var e smithy.APIError
	if !errors.As(err, &e) || e.ErrorCode() != code {
		w.Errorf("%s: got error %v, want %s", what, err, code)
	}
}

func (w *world) wantError(what string, err error, code, message string) {
	w.Helper()
	w.wantCode(what, err, code)
	var e smithy.APIError
	if errors.As(err, &e) && e.ErrorMessage() != message {
		w.Errorf("%s: got message %q, want %q", what, e.ErrorMessage(), message)
	}
}

func (w *world) subnet(zone string) string {
	w.Helper()
	id, ok := w.DefaultSubnet(zone)
	if !ok {
		w.Fatalf("no subnet in zone %s", zone)
	}
	return id
}

// newTemplate makes a launch template with changes to what every test needs.
func (w *world) newTemplate(name string, change ...func(*types.RequestLaunchTemplateData)) string {
	w.Helper()
	data := &types.RequestLaunchTemplateData{ImageId: aws.String(amazonLinux), InstanceType: types.InstanceTypeT3Medium}
	for _, each := range change {
		each(data)
	}
	out := do[*sdk.CreateLaunchTemplateOutput](w)(w.client.CreateLaunchTemplate(w.Context(), &sdk.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String(name), LaunchTemplateData: data,
	}))
	return *out.LaunchTemplate.LaunchTemplateId
}

// launch launches an instance and waits until it runs.
func (w *world) launch(template, zone string, tags ...string) string {
	w.Helper()
	given := map[string]string{}
	for i := 0; i < len(tags); i += 2 {
		given[tags[i]] = tags[i+1]
	}
	made, err := w.Launch(ec2.LaunchRequest{TemplateID: template, Version: "$Latest", SubnetID: w.subnet(zone), Tags: given})
	if err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
	if found, _ := w.Instance(made.ID); found.State != ec2.StateRunning {
		w.Fatalf("instance is %s, want running", found.State)
	}
	return made.ID
}

// newVolume makes an io2 Multi-Attach volume of 4 GiB with changes.
func (w *world) newVolume(change ...func(*sdk.CreateVolumeInput)) string {
	w.Helper()
	in := &sdk.CreateVolumeInput{
		AvailabilityZone: aws.String(zoneA), VolumeType: types.VolumeTypeIo2, Size: aws.Int32(4), Iops: aws.Int32(100), MultiAttachEnabled: aws.Bool(true),
	}
	for _, each := range change {
		each(in)
	}
	out := do[*sdk.CreateVolumeOutput](w)(w.client.CreateVolume(w.Context(), in))
	if out.State != types.VolumeStateCreating {
		w.Errorf("got a new volume in state %s, want creating", out.State)
	}
	return *out.VolumeId
}

func (w *world) volume(id string) types.Volume {
	w.Helper()
	out := do[*sdk.DescribeVolumesOutput](w)(w.client.DescribeVolumes(w.Context(), &sdk.DescribeVolumesInput{VolumeIds: []string{id}}))
	return out.Volumes[0]
}

func (w *world) attach(volume, instance, device string) error {
	_, err := w.client.AttachVolume(w.Context(), &sdk.AttachVolumeInput{
		VolumeId: aws.String(volume), InstanceId: aws.String(instance), Device: aws.String(device),
	})
	return err
}

// putProfile makes an instance profile with a role of the same name.
func (w *world) putProfile(name, service, policy string) {
	w.Helper()
	if err := fake.PutRole(w.Context(), w.door, name, service, policy); err != nil {
		w.Fatal(err)
	}
	client := iamsdk.NewFromConfig(w.door.Administrator())
	do[*iamsdk.CreateInstanceProfileOutput](w)(client.CreateInstanceProfile(w.Context(), &iamsdk.CreateInstanceProfileInput{InstanceProfileName: aws.String(name)}))
	do[*iamsdk.AddRoleToInstanceProfileOutput](w)(client.AddRoleToInstanceProfile(w.Context(), &iamsdk.AddRoleToInstanceProfileInput{
		InstanceProfileName: aws.String(name), RoleName: aws.String(name),
	}))
}

func (w *world) describe(filters ...types.Filter) []types.Instance {
	w.Helper()
	var all []types.Instance
	pages := sdk.NewDescribeInstancesPaginator(w.client, &sdk.DescribeInstancesInput{Filters: filters})
	for pages.HasMorePages() {
		out := do[*sdk.DescribeInstancesOutput](w)(pages.NextPage(w.Context()))
		for _, each := range out.Reservations {
			all = append(all, each.Instances...)
		}
	}
	return all
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}

func encode(text string) *string { return aws.String(base64.StdEncoding.EncodeToString([]byte(text))) }

func TestZonesAndNetwork(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		zones := do[*sdk.DescribeAvailabilityZonesOutput](w)(w.client.DescribeAvailabilityZones(w.Context(), &sdk.DescribeAvailabilityZonesInput{
			Filters: []types.Filter{filter("opt-in-status", "opt-in-not-required")},
		}))
		var names []string
		for _, each := range zones.AvailabilityZones {
			names = append(names, *each.ZoneName+" "+*each.ZoneId)
		}
		if want := []string{"eu-west-1a euw1-az1", "eu-west-1b euw1-az2", "eu-west-1c euw1-az3"}; !slices.Equal(names, want) {
			t.Errorf("got zones %q, want %q", names, want)
		}
		_, err := w.client.DescribeAvailabilityZones(w.Context(), &sdk.DescribeAvailabilityZonesInput{ZoneNames: []string{"us-east-1a"}})
		w.wantCode("unknown zone", err, "InvalidParameterValue")

		vpcs := do[*sdk.DescribeVpcsOutput](w)(w.client.DescribeVpcs(w.Context(), &sdk.DescribeVpcsInput{Filters: []types.Filter{filter("isDefault", "true")}}))
		if len(vpcs.Vpcs) != 1 || *vpcs.Vpcs[0].CidrBlock != "127.9.9.0/24" || !*vpcs.Vpcs[0].IsDefault {
			t.Fatalf("got VPCs %+v", vpcs.Vpcs)
		}
		subnets := do[*sdk.DescribeSubnetsOutput](w)(w.client.DescribeSubnets(w.Context(), &sdk.DescribeSubnetsInput{Filters: []types.Filter{
			filter("vpc-id", *vpcs.Vpcs[0].VpcId), filter("availability-zone", zoneB), filter("default-for-az", "true"),
		}}))
		if len(subnets.Subnets) != 1 || *subnets.Subnets[0].CidrBlock != "127.9.9.64/26" || *subnets.Subnets[0].AvailableIpAddressCount != 59 {
			t.Errorf("got subnets %+v", subnets.Subnets)
		}
		subnets = do[*sdk.DescribeSubnetsOutput](w)(w.client.DescribeSubnets(w.Context(), &sdk.DescribeSubnetsInput{Filters: []types.Filter{
			filter("availability-zone", zoneA), filter("default-for-az", "false"), filter("map-public-ip-on-launch", "false"),
		}}))
		if len(subnets.Subnets) != 1 || *subnets.Subnets[0].CidrBlock != "127.9.9.192/26" || *subnets.Subnets[0].DefaultForAz {
			t.Errorf("got other subnets %+v", subnets.Subnets)
		}
		_, err = w.client.DescribeSubnets(w.Context(), &sdk.DescribeSubnetsInput{SubnetIds: []string{"subnet-1"}})
		w.wantError("unknown subnet", err, "InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist")
		_, err = w.client.DescribeSubnets(w.Context(), &sdk.DescribeSubnetsInput{Filters: []types.Filter{filter("colour", "red")}})
		w.wantError("unknown filter", err, "InvalidParameterValue", "The filter 'colour' is invalid")
	})
}

func TestInstanceTypesAndImages(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		out := do[*sdk.DescribeInstanceTypesOutput](w)(w.client.DescribeInstanceTypes(w.Context(), &sdk.DescribeInstanceTypesInput{
			InstanceTypes: []types.InstanceType{"t3.medium", "m4.large", "m6g.large", "i4i.large", "c5.metal"},
		}))
		got := map[types.InstanceType]types.InstanceTypeInfo{}
		for _, each := range out.InstanceTypes {
			got[each.InstanceType] = each
		}
		for name, check := range map[types.InstanceType]func(types.InstanceTypeInfo) bool{
			"t3.medium": func(i types.InstanceTypeInfo) bool {
				return i.Hypervisor == "nitro" && *i.MemoryInfo.SizeInMiB == 4096 && *i.VCpuInfo.DefaultVCpus == 2 && !*i.InstanceStorageSupported
			},
			"m4.large": func(i types.InstanceTypeInfo) bool {
				return i.Hypervisor == "xen" && i.EbsInfo.NvmeSupport == "unsupported"
			},
			"m6g.large": func(i types.InstanceTypeInfo) bool { return i.ProcessorInfo.SupportedArchitectures[0] == "arm64" },
			"i4i.large": func(i types.InstanceTypeInfo) bool {
				return *i.InstanceStorageSupported && *i.InstanceStorageInfo.TotalSizeInGB == 468
			},
			"c5.metal": func(i types.InstanceTypeInfo) bool { return *i.BareMetal && i.Hypervisor == "" },
		} {
			if !check(got[name]) {
				t.Errorf("got %s: %+v", name, got[name])
			}
		}
		_, err := w.client.DescribeInstanceTypes(w.Context(), &sdk.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"t9.huge"}})
		w.wantError("unknown type", err, "InvalidInstanceType", "The following supplied instance types do not exist: [t9.huge]")

		offered := func(kind, zone string) int {
			out := do[*sdk.DescribeInstanceTypeOfferingsOutput](w)(w.client.DescribeInstanceTypeOfferings(w.Context(), &sdk.DescribeInstanceTypeOfferingsInput{
				LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{filter("instance-type", kind), filter("location", zone)},
			}))
			return len(out.InstanceTypeOfferings)
		}
		if offered("m7i.large", zoneA) != 1 || offered("m7i.large", fake.Region+"c") != 0 {
			t.Error("m7i.large is not offered in the first two zones only")
		}

		image := w.PublicParameters()[strings.TrimPrefix(amazonLinux, "resolve:ssm:")]
		images := do[*sdk.DescribeImagesOutput](w)(w.client.DescribeImages(w.Context(), &sdk.DescribeImagesInput{
			Owners: []string{"amazon"}, Filters: []types.Filter{filter("name", "al2023-ami-2023*"), filter("architecture", "x86_64")},
		}))
		if len(images.Images) != 1 || *images.Images[0].ImageId != image || images.Images[0].ImdsSupport != "v2.0" {
			t.Errorf("got images %+v, want %s", images.Images, image)
		}
	})
}

func TestUnknownParametersAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		_, err := w.client.DescribeVolumes(w.Context(), &sdk.DescribeVolumesInput{DryRun: aws.Bool(true)})
		w.wantError("dry run", err, "UnknownParameter", "The parameter DryRun is not recognized by this region")
	})
}

func TestTags(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.newVolume(func(in *sdk.CreateVolumeInput) {
			in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{
				{Key: aws.String("Name"), Value: aws.String("demo-data")}, {Key: aws.String("Empty"), Value: aws.String("")},
			}}}
		})
		do[*sdk.CreateTagsOutput](w)(w.client.CreateTags(w.Context(), &sdk.CreateTagsInput{
			Resources: []string{id, w.subnet(zoneA)}, Tags: []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}},
		}))
		do[*sdk.DeleteTagsOutput](w)(w.client.DeleteTags(w.Context(), &sdk.DeleteTagsInput{
			Resources: []string{id}, Tags: []types.Tag{{Key: aws.String("Empty")}, {Key: aws.String("Name"), Value: aws.String("of another value")}},
		}))
		out := do[*sdk.DescribeTagsOutput](w)(w.client.DescribeTags(w.Context(), &sdk.DescribeTagsInput{Filters: []types.Filter{filter("resource-id", id)}}))
		var got []string
		for _, each := range out.Tags {
			got = append(got, *each.Key+"="+*each.Value+" "+string(each.ResourceType))
		}
		if want := []string{"ClusterName=demo volume", "Name=demo-data volume"}; !slices.Equal(got, want) {
			t.Errorf("got tags %q, want %q", got, want)
		}
		_, err := w.client.CreateTags(w.Context(), &sdk.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: aws.String("aws:x"), Value: aws.String("y")}}})
		w.wantCode("reserved key", err, "InvalidParameterValue")
		_, err = w.client.CreateTags(w.Context(), &sdk.CreateTagsInput{Resources: []string{"vol-1"}, Tags: []types.Tag{{Key: aws.String("x"), Value: aws.String("y")}}})
		w.wantCode("unknown resource", err, "InvalidID")
	})
}
