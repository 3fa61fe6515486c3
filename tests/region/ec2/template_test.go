package ec2_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestTemplateIsDescribedAsItWasMade(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.newTemplate("demo", func(d *types.RequestLaunchTemplateData) {
			d.UserData = encode("#!/bin/sh\n")
			d.EbsOptimized = aws.Bool(true)
			d.InstanceInitiatedShutdownBehavior = "terminate"
			d.IamInstanceProfile = &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Arn: aws.String("arn:aws:iam::1:instance-profile/x")}
			d.BlockDeviceMappings = []types.LaunchTemplateBlockDeviceMappingRequest{{
				DeviceName: aws.String("/dev/xvda"),
				Ebs:        &types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: aws.Int32(20), VolumeType: "gp3", Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true)},
			}}
			d.NetworkInterfaces = []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
				DeviceIndex: aws.Int32(0), AssociatePublicIpAddress: aws.Bool(true), Groups: []string{"sg-1", "sg-2"},
			}}
			d.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{
				HttpTokens: "required", HttpEndpoint: "enabled", HttpPutResponseHopLimit: aws.Int32(1), InstanceMetadataTags: "enabled",
			}
			d.Monitoring = &types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(false)}
			d.TagSpecifications = []types.LaunchTemplateTagSpecificationRequest{{ResourceType: "volume", Tags: []types.Tag{{Key: aws.String("k"), Value: aws.String("v")}}}}
		})
		out := do[*sdk.DescribeLaunchTemplateVersionsOutput](w)(w.client.DescribeLaunchTemplateVersions(w.Context(), &sdk.DescribeLaunchTemplateVersionsInput{
			LaunchTemplateId: aws.String(id), Versions: []string{"$Latest"},
		}))
		want := &types.ResponseLaunchTemplateData{
			ImageId: aws.String(amazonLinux), InstanceType: "t3.medium", UserData: encode("#!/bin/sh\n"), EbsOptimized: aws.Bool(true),
			InstanceInitiatedShutdownBehavior: "terminate",
			IamInstanceProfile:                &types.LaunchTemplateIamInstanceProfileSpecification{Arn: aws.String("arn:aws:iam::1:instance-profile/x")},
			BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMapping{{
				DeviceName: aws.String("/dev/xvda"),
				Ebs:        &types.LaunchTemplateEbsBlockDevice{VolumeSize: aws.Int32(20), VolumeType: "gp3", Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true)},
			}},
			NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecification{{
				DeviceIndex: aws.Int32(0), AssociatePublicIpAddress: aws.Bool(true), Groups: []string{"sg-1", "sg-2"},
			}},
			MetadataOptions: &types.LaunchTemplateInstanceMetadataOptions{
				HttpTokens: "required", HttpEndpoint: "enabled", HttpPutResponseHopLimit: aws.Int32(1), InstanceMetadataTags: "enabled", State: "applied",
			},
			Monitoring:        &types.LaunchTemplatesMonitoring{Enabled: aws.Bool(false)},
			TagSpecifications: []types.LaunchTemplateTagSpecification{{ResourceType: "volume", Tags: []types.Tag{{Key: aws.String("k"), Value: aws.String("v")}}}},
		}
		ignore := cmpopts.IgnoreUnexported(
			types.ResponseLaunchTemplateData{}, types.LaunchTemplateIamInstanceProfileSpecification{}, types.LaunchTemplateBlockDeviceMapping{},
			types.LaunchTemplateEbsBlockDevice{}, types.LaunchTemplateInstanceNetworkInterfaceSpecification{}, types.LaunchTemplateInstanceMetadataOptions{},
			types.LaunchTemplatesMonitoring{}, types.LaunchTemplateTagSpecification{}, types.Tag{},
		)
		if diff := cmp.Diff(want, out.LaunchTemplateVersions[0].LaunchTemplateData, ignore, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the data came back changed (-want +got):\n%s", diff)
		}
	})
}

func TestTemplateVersions(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.newTemplate("demo")
		create := func(token string) *types.LaunchTemplateVersion {
			return do[*sdk.CreateLaunchTemplateVersionOutput](w)(w.client.CreateLaunchTemplateVersion(w.Context(), &sdk.CreateLaunchTemplateVersionInput{
				LaunchTemplateId: aws.String(id), ClientToken: aws.String(token), VersionDescription: aws.String(token),
				LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String(amazonLinux), InstanceType: types.InstanceTypeM5Large},
			})).LaunchTemplateVersion
		}
		for token, want := range map[string]int64{"second": 2} {
			for range 2 { // the same token makes the same version
				if got := create(token); *got.VersionNumber != want || *got.DefaultVersion {
					t.Errorf("got version %+v, want %d", got, want)
				}
			}
		}
		if got := create("third"); *got.VersionNumber != 3 {
			t.Errorf("got version %d, want 3", *got.VersionNumber)
		}
		do[*sdk.ModifyLaunchTemplateOutput](w)(w.client.ModifyLaunchTemplate(w.Context(), &sdk.ModifyLaunchTemplateInput{
			LaunchTemplateId: aws.String(id), DefaultVersion: aws.String("2"),
		}))
		out := do[*sdk.DescribeLaunchTemplatesOutput](w)(w.client.DescribeLaunchTemplates(w.Context(), &sdk.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"demo"}}))
		if got := out.LaunchTemplates[0]; *got.LatestVersionNumber != 3 || *got.DefaultVersionNumber != 2 {
			t.Errorf("got template %+v", got)
		}
		for version, want := range map[string]int64{"$Latest": 3, "$Default": 2, "1": 1} {
			out := do[*sdk.DescribeLaunchTemplateVersionsOutput](w)(w.client.DescribeLaunchTemplateVersions(w.Context(), &sdk.DescribeLaunchTemplateVersionsInput{
				LaunchTemplateName: aws.String("demo"), Versions: []string{version},
			}))
			if got := *out.LaunchTemplateVersions[0].VersionNumber; got != want {
				t.Errorf("%s: got version %d, want %d", version, got, want)
			}
		}
		do[*sdk.DeleteLaunchTemplateOutput](w)(w.client.DeleteLaunchTemplate(w.Context(), &sdk.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(id)}))
		_, err := w.client.DescribeLaunchTemplates(w.Context(), &sdk.DescribeLaunchTemplatesInput{LaunchTemplateIds: []string{id}})
		w.wantCode("describe after delete", err, "InvalidLaunchTemplateId.NotFound")
	})
}

func TestTemplatesThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.newTemplate("taken")
		for name, test := range map[string]struct {
			name   string
			change func(*types.RequestLaunchTemplateData)
			code   string
		}{
			"name taken":           {"taken", func(*types.RequestLaunchTemplateData) {}, "InvalidLaunchTemplateName.AlreadyExistsException"},
			"name too short":       {"ab", func(*types.RequestLaunchTemplateData) {}, "InvalidLaunchTemplateName.MalformedException"},
			"user data not base64": {"x-1", func(d *types.RequestLaunchTemplateData) { d.UserData = aws.String("#!/bin/sh") }, "InvalidUserData.Malformed"},
			"user data too long":   {"x-1", func(d *types.RequestLaunchTemplateData) { d.UserData = encode(strings.Repeat("x", 16385)) }, "InvalidUserData.Malformed"},
			"groups twice": {"x-1", func(d *types.RequestLaunchTemplateData) {
				d.SecurityGroupIds = []string{"sg-1"}
				d.NetworkInterfaces = []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{Groups: []string{"sg-1"}}}
			}, "InvalidParameterCombination"},
			"too many hops": {"x-1", func(d *types.RequestLaunchTemplateData) {
				d.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpPutResponseHopLimit: aws.Int32(65)}
			}, "InvalidParameterValue"},
			"root volume too small": {"x-1", func(d *types.RequestLaunchTemplateData) {
				d.BlockDeviceMappings = []types.LaunchTemplateBlockDeviceMappingRequest{{Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: aws.Int32(0), VolumeType: "gp3"}}}
			}, "InvalidParameterValue"},
			"spot": {"x-1", func(d *types.RequestLaunchTemplateData) {
				d.InstanceMarketOptions = &types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: "spot"}
			}, "UnknownParameter"},
		} {
			data := &types.RequestLaunchTemplateData{ImageId: aws.String(amazonLinux)}
			test.change(data)
			_, err := w.client.CreateLaunchTemplate(w.Context(), &sdk.CreateLaunchTemplateInput{LaunchTemplateName: aws.String(test.name), LaunchTemplateData: data})
			w.wantCode(name, err, test.code)
		}
		w.newTemplate("just-right", func(d *types.RequestLaunchTemplateData) { d.UserData = encode(strings.Repeat("x", 16384)) })
	})
}
