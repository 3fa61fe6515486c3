package ec2

import (
	"context"
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// catalog is what the region has on offer: instance types and images.
type catalog struct {
	types  []instanceType
	images []image
}

type instanceType struct {
	name         string
	cpus, mebi   int
	architecture string // of the images it runs
	hypervisor   string // nitro or xen; "" for bare metal
	metal        bool
	storageGB    int // instance store
	attachments  int // volumes and, on shared limits, other devices
	zones        []string
}

type image struct {
	id, name, architecture, parameter string
}

const (
	nitro = "nitro"
	xen   = "xen"
	x86   = "x86_64"
	arm   = "arm64"
)

// newCatalog offers the instance types in all zones, save one that the third
// zone does not have.
func newCatalog(zones []string) catalog {
	return catalog{
		types: []instanceType{
			{name: "c5.metal", cpus: 96, mebi: 196608, architecture: x86, metal: true, attachments: 31, zones: zones},
			{name: "i3.large", cpus: 2, mebi: 15616, architecture: x86, hypervisor: xen, storageGB: 475, attachments: 39, zones: zones},
			{name: "i4i.large", cpus: 2, mebi: 16384, architecture: x86, hypervisor: nitro, storageGB: 468, attachments: 27, zones: zones},
			{name: "m4.large", cpus: 2, mebi: 8192, architecture: x86, hypervisor: xen, attachments: 39, zones: zones},
			{name: "m5.large", cpus: 2, mebi: 8192, architecture: x86, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "m5d.large", cpus: 2, mebi: 8192, architecture: x86, hypervisor: nitro, storageGB: 75, attachments: 27, zones: zones},
			{name: "m6g.large", cpus: 2, mebi: 8192, architecture: arm, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "m6i.large", cpus: 2, mebi: 8192, architecture: x86, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "m6i.xlarge", cpus: 4, mebi: 16384, architecture: x86, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "m7i.large", cpus: 2, mebi: 8192, architecture: x86, hypervisor: nitro, attachments: 32, zones: zones[:2]},
			{name: "r6i.large", cpus: 2, mebi: 16384, architecture: x86, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "t3.large", cpus: 2, mebi: 8192, architecture: x86, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "t3.medium", cpus: 2, mebi: 4096, architecture: x86, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "t3.micro", cpus: 2, mebi: 1024, architecture: x86, hypervisor: nitro, attachments: 27, zones: zones},
			{name: "t4g.medium", cpus: 2, mebi: 4096, architecture: arm, hypervisor: nitro, attachments: 27, zones: zones},
		},
		images: []image{
			{
				id: "ami-0a1c2b3d4e5f60718", name: "al2023-ami-2023.9.20261110.0-kernel-6.1-x86_64", architecture: x86,
				parameter: "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
			},
			{
				id: "ami-0b1c2b3d4e5f60719", name: "al2023-ami-2023.9.20261110.0-kernel-6.1-arm64", architecture: arm,
				parameter: "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64",
			},
		},
	}
}

// PublicParameters are the public SSM parameters that name the region's images,
// with the images' IDs.
func (s *Service) PublicParameters() map[string]string {
	parameters := map[string]string{}
	for _, each := range s.catalog.images {
		parameters[each.parameter] = each.id
	}
	return parameters
}

func (c catalog) instanceType(name string) *instanceType {
	for i := range c.types {
		if c.types[i].name == name {
			return &c.types[i]
		}
	}
	return nil
}

// image finds an image by ID or by the public parameter that names it
// (resolve:ssm:/aws/service/…); other parameters are not modelled.
func (c catalog) image(idOrParameter string) *image {
	parameter, byParameter := strings.CutPrefix(idOrParameter, "resolve:ssm:")
	for i := range c.images {
		each := &c.images[i]
		if byParameter && each.parameter == parameter || !byParameter && each.id == idOrParameter {
			return each
		}
	}
	return nil
}

type describeInstanceTypesInput struct {
	Types      []string `query:"InstanceType"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type instanceTypeXML struct {
	Name              string      `xml:"instanceType"`
	CurrentGeneration bool        `xml:"currentGeneration"`
	BareMetal         bool        `xml:"bareMetal"`
	Hypervisor        string      `xml:"hypervisor,omitempty"`
	Burstable         bool        `xml:"burstablePerformanceSupported"`
	Architectures     []string    `xml:"processorInfo>supportedArchitectures>item"`
	CPUs              int         `xml:"vCpuInfo>defaultVCpus"`
	Memory            int         `xml:"memoryInfo>sizeInMiB"`
	StorageSupported  bool        `xml:"instanceStorageSupported"`
	Storage           *storageXML `xml:"instanceStorageInfo"`
	EBS               ebsInfoXML  `xml:"ebsInfo"`
	UsageClasses      []string    `xml:"supportedUsageClasses>item"`
	RootDevices       []string    `xml:"supportedRootDeviceTypes>item"`
	Virtualization    []string    `xml:"supportedVirtualizationTypes>item"`
}

type storageXML struct {
	TotalGB int    `xml:"totalSizeInGB"`
	NVMe    string `xml:"nvmeSupport"`
}

type ebsInfoXML struct {
	NVMe           string `xml:"nvmeSupport"`
	Encryption     string `xml:"encryptionSupport"`
	Optimized      string `xml:"ebsOptimizedSupport"`
	MaxAttachments int    `xml:"maximumEbsAttachments"`
}

func (t instanceType) xml() instanceTypeXML {
	x := instanceTypeXML{
		Name: t.name, CurrentGeneration: t.hypervisor != xen, BareMetal: t.metal, Hypervisor: t.hypervisor,
		Burstable: strings.HasPrefix(t.name, "t"), Architectures: []string{t.architecture}, CPUs: t.cpus, Memory: t.mebi,
		StorageSupported: t.storageGB > 0,
		EBS:              ebsInfoXML{NVMe: "required", Encryption: "supported", Optimized: "default", MaxAttachments: t.attachments},
		UsageClasses:     []string{"on-demand", "spot"}, RootDevices: []string{"ebs"}, Virtualization: []string{"hvm"},
	}
	if t.hypervisor == xen {
		x.EBS.NVMe = "unsupported"
	}
	if t.storageGB > 0 {
		x.Storage = &storageXML{TotalGB: t.storageGB, NVMe: "required"}
	}
	return x
}

type describeInstanceTypesOutput struct {
	Types     []instanceTypeXML `xml:"instanceTypeSet>item"`
	NextToken string            `xml:"nextToken,omitempty"`
}

func (s *Service) describeInstanceTypes(_ context.Context, c *api.Call, in describeInstanceTypesInput) (any, error) {
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	id := func(t instanceType) string { return t.name }
	selected, err := chosen(s.catalog.types, in.Types, in.Filters, id, func(t instanceType) attributes {
		return attributes{
			"instance-type": {t.name}, "bare-metal": {boolean(t.metal)}, "hypervisor": {t.hypervisor},
			"processor-info.supported-architecture": {t.architecture}, "current-generation": {boolean(t.hypervisor != xen)},
			"instance-storage-supported": {boolean(t.storageGB > 0)},
		}
	}, func(id string) error {
		return clientError("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", id)
	})
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 5, selected, id)
	out := describeInstanceTypesOutput{NextToken: next}
	for _, each := range cut {
		out.Types = append(out.Types, each.xml())
	}
	return out, err
}

func boolean(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

type describeInstanceTypeOfferingsInput struct {
	LocationType string
	Filters      []filter `query:"Filter"`
	MaxResults   int
	NextToken    string
}

type offering struct {
	Type         string `xml:"instanceType"`
	LocationType string `xml:"locationType"`
	Location     string `xml:"location"`
}

type describeInstanceTypeOfferingsOutput struct {
	Offerings []offering `xml:"instanceTypeOfferingSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

func (s *Service) describeInstanceTypeOfferings(_ context.Context, c *api.Call, in describeInstanceTypeOfferingsInput) (any, error) {
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	var all []offering
	for _, each := range s.catalog.types {
		switch in.LocationType {
		case "region", "":
			all = append(all, offering{Type: each.name, LocationType: "region", Location: s.config.Region})
		case "availability-zone", "availability-zone-id":
			for _, zone := range each.zones {
				location := zone
				if in.LocationType == "availability-zone-id" {
					location = s.network.zone(zone).zoneID
				}
				all = append(all, offering{Type: each.name, LocationType: in.LocationType, Location: location})
			}
		default:
			return nil, clientError("InvalidParameterValue", "Value (%s) for parameter LocationType is invalid.", in.LocationType)
		}
	}
	id := func(o offering) string { return o.Type + " " + o.Location }
	slices.SortFunc(all, func(a, b offering) int { return strings.Compare(id(a), id(b)) })
	selected, err := chosen(all, nil, in.Filters, id, func(o offering) attributes {
		return attributes{"instance-type": {o.Type}, "location": {o.Location}}
	}, nil)
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 5, selected, id)
	return describeInstanceTypeOfferingsOutput{Offerings: cut, NextToken: next}, err
}

type describeImagesInput struct {
	IDs               []string `query:"ImageId"`
	Owners            []string `query:"Owner"`
	IncludeDeprecated bool
	Filters           []filter `query:"Filter"`
	MaxResults        int
	NextToken         string
}

type imageXML struct {
	ID             string `xml:"imageId"`
	Name           string `xml:"name"`
	Architecture   string `xml:"architecture"`
	State          string `xml:"imageState"`
	Type           string `xml:"imageType"`
	OwnerID        string `xml:"imageOwnerId"`
	OwnerAlias     string `xml:"imageOwnerAlias"`
	Public         bool   `xml:"isPublic"`
	CreationDate   string `xml:"creationDate"`
	RootDeviceType string `xml:"rootDeviceType"`
	RootDevice     string `xml:"rootDeviceName"`
	Virtualization string `xml:"virtualizationType"`
	IMDS           string `xml:"imdsSupport"`
	ENA            bool   `xml:"enaSupport"`
}

type describeImagesOutput struct {
	Images    []imageXML `xml:"imagesSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

// amazonAccount owns Amazon's own images.
const amazonAccount = "137112412989"

func (s *Service) describeImages(_ context.Context, c *api.Call, in describeImagesInput) (any, error) {
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	var owned []image
	if len(in.Owners) == 0 || slices.Contains(in.Owners, "amazon") || slices.Contains(in.Owners, amazonAccount) {
		owned = s.catalog.images
	}
	id := func(i image) string { return i.id }
	selected, err := chosen(owned, in.IDs, in.Filters, id, func(i image) attributes {
		return attributes{
			"image-id": {i.id}, "name": {i.name}, "architecture": {i.architecture}, "owner-alias": {"amazon"}, "state": {"available"},
			"owner-id": {amazonAccount}, "root-device-type": {"ebs"}, "virtualization-type": {"hvm"}, "is-public": {"true"},
		}
	}, func(id string) error {
		return clientError("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	})
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 1, selected, id)
	out := describeImagesOutput{NextToken: next}
	for _, each := range cut {
		out.Images = append(out.Images, imageXML{
			ID: each.id, Name: each.name, Architecture: each.architecture, State: "available", Type: "machine",
			OwnerID: amazonAccount, OwnerAlias: "amazon", Public: true, CreationDate: "2026-11-10T00:00:00.000Z",
			RootDeviceType: "ebs", RootDevice: "/dev/xvda", Virtualization: "hvm", IMDS: "v2.0", ENA: true,
		})
	}
	return out, err
}
