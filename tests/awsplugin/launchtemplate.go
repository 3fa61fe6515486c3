package awsplugin

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/uuid"
)

type launchTemplate struct {
	ARN                               string                 `pulumi:"arn" aws:"output"`
	BlockDeviceMappings               []ltBlockDeviceMapping `pulumi:"blockDeviceMappings"`
	CreditSpecification               *ltCreditSpecification `pulumi:"creditSpecification"`
	DefaultVersion                    int                    `pulumi:"defaultVersion" aws:"computed"`
	Description                       string                 `pulumi:"description"`
	DisableAPITermination             bool                   `pulumi:"disableApiTermination"`
	EBSOptimized                      string                 `pulumi:"ebsOptimized"`
	IAMInstanceProfile                *ltInstanceProfile     `pulumi:"iamInstanceProfile"`
	ImageID                           string                 `pulumi:"imageId"`
	InstanceInitiatedShutdownBehavior string                 `pulumi:"instanceInitiatedShutdownBehavior"`
	InstanceType                      string                 `pulumi:"instanceType"`
	KeyName                           string                 `pulumi:"keyName"`
	LatestVersion                     int                    `pulumi:"latestVersion" aws:"output"`
	MaintenanceOptions                *ltMaintenanceOptions  `pulumi:"maintenanceOptions"`
	MetadataOptions                   *ltMetadataOptions     `pulumi:"metadataOptions" aws:"computed"`
	Monitoring                        *ltMonitoring          `pulumi:"monitoring"`
	Name                              string                 `pulumi:"name" aws:"computed,replace"`
	NamePrefix                        string                 `pulumi:"namePrefix" aws:"computed,replace"`
	NetworkInterfaces                 []ltNetworkInterface   `pulumi:"networkInterfaces"`
	TagSpecifications                 []ltTagSpecification   `pulumi:"tagSpecifications"`
	Tags                              map[string]string      `pulumi:"tags" aws:"tags"`
	TagsAll                           map[string]string      `pulumi:"tagsAll" aws:"output"`
	UpdateDefaultVersion              bool                   `pulumi:"updateDefaultVersion"`
	UserData                          string                 `pulumi:"userData"`
	VPCSecurityGroupIDs               []string               `pulumi:"vpcSecurityGroupIds" aws:"set"`
}

type ltBlockDeviceMapping struct {
	DeviceName  string `pulumi:"deviceName"`
	EBS         *ltEBS `pulumi:"ebs"`
	NoDevice    string `pulumi:"noDevice"`
	VirtualName string `pulumi:"virtualName"`
}

// ltEBS: booleans are text here, because one that is not given differs from
// false.
type ltEBS struct {
	DeleteOnTermination string `pulumi:"deleteOnTermination"`
	Encrypted           string `pulumi:"encrypted"`
	IOPS                int    `pulumi:"iops" aws:"computed"`
	KMSKeyID            string `pulumi:"kmsKeyId"`
	SnapshotID          string `pulumi:"snapshotId"`
	Throughput          int    `pulumi:"throughput" aws:"computed"`
	VolumeSize          int    `pulumi:"volumeSize" aws:"computed"`
	VolumeType          string `pulumi:"volumeType" aws:"computed"`
}

type ltCreditSpecification struct {
	CPUCredits string `pulumi:"cpuCredits"`
}

type ltInstanceProfile struct {
	ARN  string `pulumi:"arn"`
	Name string `pulumi:"name"`
}

type ltMaintenanceOptions struct {
	AutoRecovery string `pulumi:"autoRecovery"`
}

type ltMetadataOptions struct {
	HTTPEndpoint            string `pulumi:"httpEndpoint" aws:"computed"`
	HTTPProtocolIPv6        string `pulumi:"httpProtocolIpv6" aws:"computed"`
	HTTPPutResponseHopLimit int    `pulumi:"httpPutResponseHopLimit" aws:"computed"`
	HTTPTokens              string `pulumi:"httpTokens" aws:"computed"`
	InstanceMetadataTags    string `pulumi:"instanceMetadataTags" aws:"computed"`
}

type ltMonitoring struct {
	Enabled bool `pulumi:"enabled"`
}

type ltNetworkInterface struct {
	AssociatePublicIPAddress string   `pulumi:"associatePublicIpAddress"`
	DeleteOnTermination      string   `pulumi:"deleteOnTermination"`
	Description              string   `pulumi:"description"`
	DeviceIndex              int      `pulumi:"deviceIndex"`
	SecurityGroups           []string `pulumi:"securityGroups" aws:"set"`
	SubnetID                 string   `pulumi:"subnetId"`
}

type ltTagSpecification struct {
	ResourceType string            `pulumi:"resourceType"`
	Tags         map[string]string `pulumi:"tags"`
}

// launchTemplateData are the properties that a version of the template
// consists of.
var launchTemplateData = []string{
	"blockDeviceMappings", "creditSpecification", "description", "disableApiTermination", "ebsOptimized", "iamInstanceProfile",
	"imageId", "instanceInitiatedShutdownBehavior", "instanceType", "keyName", "maintenanceOptions", "metadataOptions",
	"monitoring", "networkInterfaces", "tagSpecifications", "userData", "vpcSecurityGroupIds",
}

var launchTemplateHandler = handler[launchTemplate]{
	naming: naming{property: "name", max: 125},
	create: func(ctx context.Context, c *cloud, t *launchTemplate) (string, error) {
		data, err := t.data()
		if err != nil {
			return "", fmt.Errorf("creating EC2 Launch Template (%s): %w", t.Name, err)
		}
		created, err := c.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
			ClientToken:        aws.String(uuid.NewString()),
			LaunchTemplateData: data,
			LaunchTemplateName: aws.String(t.Name),
			TagSpecifications:  ec2TagSpecification(types.ResourceTypeLaunchTemplate, t.TagsAll),
			VersionDescription: optional(t.Description),
		})
		if err != nil {
			return "", fmt.Errorf("creating EC2 Launch Template (%s): %w", t.Name, err)
		}
		return aws.ToString(created.LaunchTemplate.LaunchTemplateId), nil
	},
	read: readLaunchTemplate,
	renewed: func(t *launchTemplate, changed set) []string {
		switch {
		case !changed.any(launchTemplateData...):
			return nil
		case t.UpdateDefaultVersion:
			return []string{"latestVersion", "defaultVersion"}
		default:
			return []string{"latestVersion"}
		}
	},
	update: func(ctx context.Context, c *cloud, id string, old, t *launchTemplate, changed set) error {
		latest := old.LatestVersion
		if changed.any(launchTemplateData...) {
			data, err := t.data()
			if err != nil {
				return fmt.Errorf("creating EC2 Launch Template (%s) Version: %w", id, err)
			}
			created, err := c.ec2.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
				ClientToken:        aws.String(uuid.NewString()),
				LaunchTemplateData: data,
				LaunchTemplateId:   aws.String(id),
				VersionDescription: optional(t.Description),
			})
			if err != nil {
				return fmt.Errorf("creating EC2 Launch Template (%s) Version: %w", id, err)
			}
			latest = int(aws.ToInt64(created.LaunchTemplateVersion.VersionNumber))
		}
		standard := 0
		switch {
		case t.UpdateDefaultVersion && latest != old.DefaultVersion:
			standard = latest
		case changed["defaultVersion"]:
			standard = t.DefaultVersion
		}
		if standard > 0 {
			_, err := c.ec2.ModifyLaunchTemplate(ctx, &ec2.ModifyLaunchTemplateInput{
				LaunchTemplateId: aws.String(id), DefaultVersion: aws.String(strconv.Itoa(standard)),
			})
			if err != nil {
				return fmt.Errorf("updating EC2 Launch Template (%s): %w", id, err)
			}
		}
		return ec2UpdateTags(ctx, c, id, old.TagsAll, t.TagsAll)
	},
	delete: func(ctx context.Context, c *cloud, id string, _ *launchTemplate) error {
		_, err := c.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(id)})
		if err = ifPresent(err, "InvalidLaunchTemplateId.NotFound"); err != nil {
			return fmt.Errorf("deleting EC2 Launch Template (%s): %w", id, err)
		}
		return nil
	},
}

// data is what the calls that make a version take.
func (t *launchTemplate) data() (*types.RequestLaunchTemplateData, error) {
	ebsOptimized, err := booleanText(t.EBSOptimized)
	if err != nil {
		return nil, err
	}
	data := &types.RequestLaunchTemplateData{
		DisableApiTermination:             optional(t.DisableAPITermination),
		EbsOptimized:                      ebsOptimized,
		ImageId:                           optional(t.ImageID),
		InstanceInitiatedShutdownBehavior: types.ShutdownBehavior(t.InstanceInitiatedShutdownBehavior),
		InstanceType:                      types.InstanceType(t.InstanceType),
		KeyName:                           optional(t.KeyName),
		SecurityGroupIds:                  t.VPCSecurityGroupIDs,
		UserData:                          optional(t.UserData),
	}
	for _, m := range t.BlockDeviceMappings {
		mapping := types.LaunchTemplateBlockDeviceMappingRequest{
			DeviceName: optional(m.DeviceName), NoDevice: optional(m.NoDevice), VirtualName: optional(m.VirtualName),
		}
		if m.EBS != nil {
			if mapping.Ebs, err = m.EBS.request(); err != nil {
				return nil, err
			}
		}
		data.BlockDeviceMappings = append(data.BlockDeviceMappings, mapping)
	}
	if t.CreditSpecification != nil {
		data.CreditSpecification = &types.CreditSpecificationRequest{CpuCredits: optional(t.CreditSpecification.CPUCredits)}
	}
	if p := t.IAMInstanceProfile; p != nil {
		data.IamInstanceProfile = &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Arn: optional(p.ARN), Name: optional(p.Name)}
	}
	if t.MaintenanceOptions != nil {
		data.MaintenanceOptions = &types.LaunchTemplateInstanceMaintenanceOptionsRequest{
			AutoRecovery: types.LaunchTemplateAutoRecoveryState(t.MaintenanceOptions.AutoRecovery),
		}
	}
	if o := t.MetadataOptions; o != nil {
		data.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint:            types.LaunchTemplateInstanceMetadataEndpointState(o.HTTPEndpoint),
			HttpProtocolIpv6:        types.LaunchTemplateInstanceMetadataProtocolIpv6(o.HTTPProtocolIPv6),
			HttpPutResponseHopLimit: optional(int32(o.HTTPPutResponseHopLimit)),
			HttpTokens:              types.LaunchTemplateHttpTokensState(o.HTTPTokens),
			InstanceMetadataTags:    types.LaunchTemplateInstanceMetadataTagsState(o.InstanceMetadataTags),
		}
	}
	if t.Monitoring != nil {
		data.Monitoring = &types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(t.Monitoring.Enabled)}
	}
	for _, n := range t.NetworkInterfaces {
		public, err := booleanText(n.AssociatePublicIPAddress)
		if err != nil {
			return nil, err
		}
		remove, err := booleanText(n.DeleteOnTermination)
		if err != nil {
			return nil, err
		}
		data.NetworkInterfaces = append(data.NetworkInterfaces, types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
			AssociatePublicIpAddress: public,
			DeleteOnTermination:      remove,
			Description:              optional(n.Description),
			DeviceIndex:              aws.Int32(int32(n.DeviceIndex)),
			Groups:                   n.SecurityGroups,
			SubnetId:                 optional(n.SubnetID),
		})
	}
	for _, s := range t.TagSpecifications {
		data.TagSpecifications = append(data.TagSpecifications, types.LaunchTemplateTagSpecificationRequest{
			ResourceType: types.ResourceType(s.ResourceType), Tags: tagList(s.Tags, ec2Tag),
		})
	}
	return data, nil
}

func (e *ltEBS) request() (*types.LaunchTemplateEbsBlockDeviceRequest, error) {
	remove, err := booleanText(e.DeleteOnTermination)
	if err != nil {
		return nil, err
	}
	encrypted, err := booleanText(e.Encrypted)
	if err != nil {
		return nil, err
	}
	return &types.LaunchTemplateEbsBlockDeviceRequest{
		DeleteOnTermination: remove,
		Encrypted:           encrypted,
		Iops:                optional(int32(e.IOPS)),
		KmsKeyId:            optional(e.KMSKeyID),
		SnapshotId:          optional(e.SnapshotID),
		Throughput:          optional(int32(e.Throughput)),
		VolumeSize:          optional(int32(e.VolumeSize)),
		VolumeType:          types.VolumeType(e.VolumeType),
	}, nil
}

// readLaunchTemplate reads the template and its latest version.
func readLaunchTemplate(ctx context.Context, c *cloud, id string, t *launchTemplate) error {
	described, err := c.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateIds: []string{id}})
	if err != nil {
		return missing(err, "InvalidLaunchTemplateId.NotFound")
	}
	if len(described.LaunchTemplates) == 0 {
		return errNotFound
	}
	found := described.LaunchTemplates[0]
	latest := strconv.FormatInt(aws.ToInt64(found.LatestVersionNumber), 10)
	versions, err := c.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateId: aws.String(id), Versions: []string{latest},
	})
	if err != nil {
		return fmt.Errorf("reading EC2 Launch Template (%s) Version (%s): %w", id, latest, err)
	}
	if len(versions.LaunchTemplateVersions) == 0 {
		return fmt.Errorf("reading EC2 Launch Template (%s) Version (%s): %w", id, latest, errNotFound)
	}
	version := versions.LaunchTemplateVersions[0]
	t.ARN = c.ec2ARN("launch-template/" + id)
	t.DefaultVersion = int(aws.ToInt64(found.DefaultVersionNumber))
	t.LatestVersion = int(aws.ToInt64(found.LatestVersionNumber))
	t.Name = aws.ToString(found.LaunchTemplateName)
	t.TagsAll = ec2Tags(found.Tags)
	t.Tags = c.ownTags(t.TagsAll, t.Tags)
	t.Description = aws.ToString(version.VersionDescription)
	t.readData(version.LaunchTemplateData)
	return nil
}

func (t *launchTemplate) readData(data *types.ResponseLaunchTemplateData) {
	t.DisableAPITermination = aws.ToBool(data.DisableApiTermination)
	t.EBSOptimized = textOfBoolean(data.EbsOptimized)
	t.ImageID = aws.ToString(data.ImageId)
	t.InstanceInitiatedShutdownBehavior = string(data.InstanceInitiatedShutdownBehavior)
	t.InstanceType = string(data.InstanceType)
	t.KeyName = aws.ToString(data.KeyName)
	t.UserData = aws.ToString(data.UserData)
	t.VPCSecurityGroupIDs = data.SecurityGroupIds

	t.BlockDeviceMappings = nil
	for _, m := range data.BlockDeviceMappings {
		mapping := ltBlockDeviceMapping{
			DeviceName: aws.ToString(m.DeviceName), NoDevice: aws.ToString(m.NoDevice), VirtualName: aws.ToString(m.VirtualName),
		}
		if e := m.Ebs; e != nil {
			mapping.EBS = &ltEBS{
				DeleteOnTermination: textOfBoolean(e.DeleteOnTermination),
				Encrypted:           textOfBoolean(e.Encrypted),
				IOPS:                int(aws.ToInt32(e.Iops)),
				KMSKeyID:            aws.ToString(e.KmsKeyId),
				SnapshotID:          aws.ToString(e.SnapshotId),
				Throughput:          int(aws.ToInt32(e.Throughput)),
				VolumeSize:          int(aws.ToInt32(e.VolumeSize)),
				VolumeType:          string(e.VolumeType),
			}
		}
		t.BlockDeviceMappings = append(t.BlockDeviceMappings, mapping)
	}
	t.CreditSpecification = nil
	if data.CreditSpecification != nil {
		t.CreditSpecification = &ltCreditSpecification{CPUCredits: aws.ToString(data.CreditSpecification.CpuCredits)}
	}
	t.IAMInstanceProfile = nil
	if p := data.IamInstanceProfile; p != nil {
		t.IAMInstanceProfile = &ltInstanceProfile{ARN: aws.ToString(p.Arn), Name: aws.ToString(p.Name)}
	}
	t.MaintenanceOptions = nil
	if o := data.MaintenanceOptions; o != nil {
		t.MaintenanceOptions = &ltMaintenanceOptions{AutoRecovery: string(o.AutoRecovery)}
	}
	t.MetadataOptions = nil
	if o := data.MetadataOptions; o != nil {
		t.MetadataOptions = &ltMetadataOptions{
			HTTPEndpoint:            string(o.HttpEndpoint),
			HTTPProtocolIPv6:        string(o.HttpProtocolIpv6),
			HTTPPutResponseHopLimit: int(aws.ToInt32(o.HttpPutResponseHopLimit)),
			HTTPTokens:              string(o.HttpTokens),
			InstanceMetadataTags:    string(o.InstanceMetadataTags),
		}
	}
	t.Monitoring = nil
	if data.Monitoring != nil {
		t.Monitoring = &ltMonitoring{Enabled: aws.ToBool(data.Monitoring.Enabled)}
	}
	t.NetworkInterfaces = nil
	for _, n := range data.NetworkInterfaces {
		t.NetworkInterfaces = append(t.NetworkInterfaces, ltNetworkInterface{
			AssociatePublicIPAddress: textOfBoolean(n.AssociatePublicIpAddress),
			DeleteOnTermination:      textOfBoolean(n.DeleteOnTermination),
			Description:              aws.ToString(n.Description),
			DeviceIndex:              int(aws.ToInt32(n.DeviceIndex)),
			SecurityGroups:           n.Groups,
			SubnetID:                 aws.ToString(n.SubnetId),
		})
	}
	t.TagSpecifications = nil
	for _, s := range data.TagSpecifications {
		t.TagSpecifications = append(t.TagSpecifications, ltTagSpecification{ResourceType: string(s.ResourceType), Tags: ec2Tags(s.Tags)})
	}
}

func booleanText(text string) (*bool, error) {
	if text == "" {
		return nil, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return nil, fmt.Errorf("expected \"true\" or \"false\", got %q", text)
	}
	return &value, nil
}

func textOfBoolean(value *bool) string {
	if value == nil {
		return ""
	}
	return strconv.FormatBool(*value)
}
