package awsplugin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// Function is one function that the plugin answers.
type Function struct {
	// Token is the function's token, as in "aws:ec2/getSubnet:getSubnet".
	Token string

	args    attributes
	results attributes
	call    func(ctx context.Context, c *cloud, args property.Map) (property.Map, error)
}

// lookup makes a row of the table of functions. The arguments are repeated in
// the result where both have a property of that name.
func lookup[A, R any](token string, call func(ctx context.Context, c *cloud, args A) (R, error)) Function {
	results := attributesOf(reflect.TypeFor[R]())
	return Function{
		Token:   token,
		args:    attributesOf(reflect.TypeFor[A]()),
		results: results,
		call: func(ctx context.Context, c *cloud, args property.Map) (property.Map, error) {
			var given A
			if err := decode(args, &given); err != nil {
				return property.Map{}, err
			}
			answer, err := call(ctx, c, given)
			if err != nil {
				return property.Map{}, err
			}
			result, err := encode(answer)
			if err != nil {
				return property.Map{}, err
			}
			for name, value := range args.All {
				if _, ok := results.find(name); ok && unset(result.Get(name)) {
					result = result.Set(name, value)
				}
			}
			return result, nil
		},
	}
}

type none struct{}

type callerIdentity struct {
	AccountID string `pulumi:"accountId"`
	ARN       string `pulumi:"arn"`
	ID        string `pulumi:"id"`
	UserID    string `pulumi:"userId"`
}

func getCallerIdentity(ctx context.Context, c *cloud, _ none) (callerIdentity, error) {
	got, err := c.sts.GetCallerIdentity(ctx, nil)
	if err != nil {
		return callerIdentity{}, fmt.Errorf("reading STS Caller Identity: %w", err)
	}
	account := aws.ToString(got.Account)
	return callerIdentity{AccountID: account, ARN: aws.ToString(got.Arn), ID: account, UserID: aws.ToString(got.UserId)}, nil
}

type partition struct {
	DNSSuffix        string `pulumi:"dnsSuffix"`
	ID               string `pulumi:"id"`
	Partition        string `pulumi:"partition"`
	ReverseDNSPrefix string `pulumi:"reverseDnsPrefix"`
}

func getPartition(_ context.Context, c *cloud, _ none) (partition, error) {
	labels := strings.Split(c.dnsSuffix, ".")
	slices.Reverse(labels)
	return partition{DNSSuffix: c.dnsSuffix, ID: c.partition, Partition: c.partition, ReverseDNSPrefix: strings.Join(labels, ".")}, nil
}

type regionArgs struct {
	Name string `pulumi:"name"`
}

type region struct {
	Description string `pulumi:"description"`
	Endpoint    string `pulumi:"endpoint"`
	ID          string `pulumi:"id"`
	Name        string `pulumi:"name"`
}

func getRegion(_ context.Context, c *cloud, args regionArgs) (region, error) {
	name := c.region
	if args.Name != "" {
		name = args.Name
	}
	return region{Description: name, Endpoint: fmt.Sprintf("ec2.%s.%s", name, c.dnsSuffix), ID: name, Name: name}, nil
}

type filter struct {
	Name   string   `pulumi:"name" aws:"required"`
	Values []string `pulumi:"values" aws:"required"`
}

func ec2Filters(filters []filter, tags map[string]string, more map[string]string) []types.Filter {
	var list []types.Filter
	for _, f := range filters {
		list = append(list, types.Filter{Name: aws.String(f.Name), Values: f.Values})
	}
	for key, value := range tags {
		list = append(list, types.Filter{Name: aws.String("tag:" + key), Values: []string{value}})
	}
	for name, value := range more {
		if value != "" {
			list = append(list, types.Filter{Name: aws.String(name), Values: []string{value}})
		}
	}
	slices.SortFunc(list, func(a, b types.Filter) int { return strings.Compare(*a.Name, *b.Name) })
	return list
}

type zonesArgs struct {
	AllAvailabilityZones bool     `pulumi:"allAvailabilityZones"`
	ExcludeNames         []string `pulumi:"excludeNames"`
	ExcludeZoneIDs       []string `pulumi:"excludeZoneIds"`
	Filters              []filter `pulumi:"filters"`
	State                string   `pulumi:"state"`
}

type zones struct {
	GroupNames []string `pulumi:"groupNames"`
	ID         string   `pulumi:"id"`
	Names      []string `pulumi:"names"`
	State      string   `pulumi:"state"`
	ZoneIDs    []string `pulumi:"zoneIds"`
}

func getAvailabilityZones(ctx context.Context, c *cloud, args zonesArgs) (zones, error) {
	described, err := c.ec2.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{
		AllAvailabilityZones: optional(args.AllAvailabilityZones),
		Filters:              ec2Filters(args.Filters, nil, map[string]string{"state": args.State}),
	})
	if err != nil {
		return zones{}, fmt.Errorf("fetching Availability Zones: %w", err)
	}
	result := zones{ID: c.region}
	for _, z := range described.AvailabilityZones {
		name, id := aws.ToString(z.ZoneName), aws.ToString(z.ZoneId)
		if slices.Contains(args.ExcludeNames, name) || slices.Contains(args.ExcludeZoneIDs, id) {
			continue
		}
		result.Names = append(result.Names, name)
		result.ZoneIDs = append(result.ZoneIDs, id)
		if group := aws.ToString(z.GroupName); group != "" && !slices.Contains(result.GroupNames, group) {
			result.GroupNames = append(result.GroupNames, group)
		}
	}
	return result, nil
}

type subnetArgs struct {
	AvailabilityZone   string            `pulumi:"availabilityZone"`
	AvailabilityZoneID string            `pulumi:"availabilityZoneId"`
	CIDRBlock          string            `pulumi:"cidrBlock"`
	DefaultForAZ       *bool             `pulumi:"defaultForAz"`
	Filters            []filter          `pulumi:"filters"`
	ID                 string            `pulumi:"id"`
	State              string            `pulumi:"state"`
	Tags               map[string]string `pulumi:"tags"`
	VPCID              string            `pulumi:"vpcId"`
}

type subnet struct {
	ARN                         string            `pulumi:"arn"`
	AssignIPv6AddressOnCreation bool              `pulumi:"assignIpv6AddressOnCreation"`
	AvailabilityZone            string            `pulumi:"availabilityZone"`
	AvailabilityZoneID          string            `pulumi:"availabilityZoneId"`
	AvailableIPAddressCount     int               `pulumi:"availableIpAddressCount"`
	CIDRBlock                   string            `pulumi:"cidrBlock"`
	DefaultForAZ                bool              `pulumi:"defaultForAz"`
	ID                          string            `pulumi:"id"`
	MapPublicIPOnLaunch         bool              `pulumi:"mapPublicIpOnLaunch"`
	OwnerID                     string            `pulumi:"ownerId"`
	State                       string            `pulumi:"state"`
	Tags                        map[string]string `pulumi:"tags"`
	VPCID                       string            `pulumi:"vpcId"`
}

// getSubnet finds the one subnet that fits; more than one is an error.
func getSubnet(ctx context.Context, c *cloud, args subnetArgs) (subnet, error) {
	more := map[string]string{
		"availability-zone": args.AvailabilityZone, "availability-zone-id": args.AvailabilityZoneID,
		"cidr-block": args.CIDRBlock, "state": args.State, "vpc-id": args.VPCID,
	}
	if aws.ToBool(args.DefaultForAZ) { // the real plugin takes false for not given
		more["default-for-az"] = "true"
	}
	input := &ec2.DescribeSubnetsInput{Filters: ec2Filters(args.Filters, args.Tags, more)}
	if args.ID != "" {
		input.SubnetIds = []string{args.ID}
	}
	described, err := c.ec2.DescribeSubnets(ctx, input)
	if err != nil && !hasCode(err, "InvalidSubnetID.NotFound") {
		return subnet{}, fmt.Errorf("reading EC2 Subnet: %w", err)
	}
	if err != nil || len(described.Subnets) == 0 {
		return subnet{}, errors.New("no matching EC2 Subnet found")
	}
	if len(described.Subnets) > 1 {
		return subnet{}, errors.New("multiple EC2 Subnets matched; use additional constraints to reduce matches to a single EC2 Subnet")
	}
	found := described.Subnets[0]
	id := aws.ToString(found.SubnetId)
	return subnet{
		ARN:                         c.ec2ARN("subnet/" + id),
		AssignIPv6AddressOnCreation: aws.ToBool(found.AssignIpv6AddressOnCreation),
		AvailabilityZone:            aws.ToString(found.AvailabilityZone),
		AvailabilityZoneID:          aws.ToString(found.AvailabilityZoneId),
		AvailableIPAddressCount:     int(aws.ToInt32(found.AvailableIpAddressCount)),
		CIDRBlock:                   aws.ToString(found.CidrBlock),
		DefaultForAZ:                aws.ToBool(found.DefaultForAz),
		ID:                          id,
		MapPublicIPOnLaunch:         aws.ToBool(found.MapPublicIpOnLaunch),
		OwnerID:                     aws.ToString(found.OwnerId),
		State:                       string(found.State),
		Tags:                        ec2Tags(found.Tags),
		VPCID:                       aws.ToString(found.VpcId),
	}, nil
}

type subnetsArgs struct {
	Filters []filter          `pulumi:"filters"`
	Tags    map[string]string `pulumi:"tags"`
}

type subnets struct {
	ID  string   `pulumi:"id"`
	IDs []string `pulumi:"ids"`
}

func getSubnets(ctx context.Context, c *cloud, args subnetsArgs) (subnets, error) {
	result := subnets{ID: c.region}
	pages := ec2.NewDescribeSubnetsPaginator(c.ec2, &ec2.DescribeSubnetsInput{Filters: ec2Filters(args.Filters, args.Tags, nil)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return subnets{}, fmt.Errorf("reading EC2 Subnets: %w", err)
		}
		for _, s := range page.Subnets {
			result.IDs = append(result.IDs, aws.ToString(s.SubnetId))
		}
	}
	return result, nil
}

type vpcArgs struct {
	CIDRBlock string            `pulumi:"cidrBlock"`
	Default   *bool             `pulumi:"default"`
	Filters   []filter          `pulumi:"filters"`
	ID        string            `pulumi:"id"`
	State     string            `pulumi:"state"`
	Tags      map[string]string `pulumi:"tags"`
}

type network struct {
	ARN             string            `pulumi:"arn"`
	CIDRBlock       string            `pulumi:"cidrBlock"`
	Default         bool              `pulumi:"default"`
	DHCPOptionsID   string            `pulumi:"dhcpOptionsId"`
	ID              string            `pulumi:"id"`
	InstanceTenancy string            `pulumi:"instanceTenancy"`
	OwnerID         string            `pulumi:"ownerId"`
	State           string            `pulumi:"state"`
	Tags            map[string]string `pulumi:"tags"`
}

func getVPC(ctx context.Context, c *cloud, args vpcArgs) (network, error) {
	more := map[string]string{"cidr": args.CIDRBlock, "state": args.State}
	if aws.ToBool(args.Default) {
		more["is-default"] = "true"
	}
	input := &ec2.DescribeVpcsInput{Filters: ec2Filters(args.Filters, args.Tags, more)}
	if args.ID != "" {
		input.VpcIds = []string{args.ID}
	}
	described, err := c.ec2.DescribeVpcs(ctx, input)
	if err != nil && !hasCode(err, "InvalidVpcID.NotFound") {
		return network{}, fmt.Errorf("reading EC2 VPC: %w", err)
	}
	if err != nil || len(described.Vpcs) == 0 {
		return network{}, errors.New("no matching EC2 VPC found")
	}
	if len(described.Vpcs) > 1 {
		return network{}, errors.New("multiple EC2 VPCs matched; use additional constraints to reduce matches to a single EC2 VPC")
	}
	found := described.Vpcs[0]
	id := aws.ToString(found.VpcId)
	return network{
		ARN: c.ec2ARN("vpc/" + id), CIDRBlock: aws.ToString(found.CidrBlock), Default: aws.ToBool(found.IsDefault),
		DHCPOptionsID: aws.ToString(found.DhcpOptionsId), ID: id, InstanceTenancy: string(found.InstanceTenancy),
		OwnerID: aws.ToString(found.OwnerId), State: string(found.State), Tags: ec2Tags(found.Tags),
	}, nil
}

type instanceTypeArgs struct {
	InstanceType string `pulumi:"instanceType" aws:"required"`
}

type instanceType struct {
	BareMetal                    bool     `pulumi:"bareMetal"`
	CurrentGeneration            bool     `pulumi:"currentGeneration"`
	DefaultVCPUs                 int      `pulumi:"defaultVcpus"`
	EBSNVMeSupport               string   `pulumi:"ebsNvmeSupport"`
	EBSOptimizedSupport          string   `pulumi:"ebsOptimizedSupport"`
	Hypervisor                   string   `pulumi:"hypervisor"`
	ID                           string   `pulumi:"id"`
	InstanceStorageSupported     bool     `pulumi:"instanceStorageSupported"`
	InstanceType                 string   `pulumi:"instanceType"`
	MemorySize                   int      `pulumi:"memorySize"`
	SupportedArchitectures       []string `pulumi:"supportedArchitectures"`
	SupportedVirtualizationTypes []string `pulumi:"supportedVirtualizationTypes"`
}

func getInstanceType(ctx context.Context, c *cloud, args instanceTypeArgs) (instanceType, error) {
	described, err := c.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
		InstanceTypes: []types.InstanceType{types.InstanceType(args.InstanceType)},
	})
	if err != nil && !hasCode(err, "InvalidInstanceType") {
		return instanceType{}, fmt.Errorf("reading EC2 Instance Type (%s): %w", args.InstanceType, err)
	}
	if err != nil || len(described.InstanceTypes) == 0 {
		return instanceType{}, fmt.Errorf("no matching EC2 Instance Type found: %s", args.InstanceType)
	}
	found := described.InstanceTypes[0]
	result := instanceType{
		BareMetal: aws.ToBool(found.BareMetal), CurrentGeneration: aws.ToBool(found.CurrentGeneration), Hypervisor: string(found.Hypervisor),
		ID: args.InstanceType, InstanceStorageSupported: aws.ToBool(found.InstanceStorageSupported), InstanceType: args.InstanceType,
	}
	if found.EbsInfo != nil {
		result.EBSNVMeSupport, result.EBSOptimizedSupport = string(found.EbsInfo.NvmeSupport), string(found.EbsInfo.EbsOptimizedSupport)
	}
	if found.MemoryInfo != nil {
		result.MemorySize = int(aws.ToInt64(found.MemoryInfo.SizeInMiB))
	}
	if found.VCpuInfo != nil {
		result.DefaultVCPUs = int(aws.ToInt32(found.VCpuInfo.DefaultVCpus))
	}
	if found.ProcessorInfo != nil {
		for _, a := range found.ProcessorInfo.SupportedArchitectures {
			result.SupportedArchitectures = append(result.SupportedArchitectures, string(a))
		}
	}
	for _, v := range found.SupportedVirtualizationTypes {
		result.SupportedVirtualizationTypes = append(result.SupportedVirtualizationTypes, string(v))
	}
	return result, nil
}

type offeringsArgs struct {
	Filters      []filter `pulumi:"filters"`
	LocationType string   `pulumi:"locationType"`
}

type offerings struct {
	ID            string   `pulumi:"id"`
	InstanceTypes []string `pulumi:"instanceTypes"`
	LocationType  string   `pulumi:"locationType"`
	LocationTypes []string `pulumi:"locationTypes"`
	Locations     []string `pulumi:"locations"`
}

func getInstanceTypeOfferings(ctx context.Context, c *cloud, args offeringsArgs) (offerings, error) {
	result := offerings{ID: c.region}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(c.ec2, &ec2.DescribeInstanceTypeOfferingsInput{
		Filters: ec2Filters(args.Filters, nil, nil), LocationType: types.LocationType(args.LocationType),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return offerings{}, fmt.Errorf("reading EC2 Instance Type Offerings: %w", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			result.InstanceTypes = append(result.InstanceTypes, string(o.InstanceType))
			result.LocationTypes = append(result.LocationTypes, string(o.LocationType))
			result.Locations = append(result.Locations, aws.ToString(o.Location))
		}
	}
	return result, nil
}

type parameterArgs struct {
	Name           string `pulumi:"name" aws:"required"`
	WithDecryption *bool  `pulumi:"withDecryption"`
}

type parameter struct {
	ARN           string `pulumi:"arn"`
	ID            string `pulumi:"id"`
	InsecureValue string `pulumi:"insecureValue"`
	Name          string `pulumi:"name"`
	Type          string `pulumi:"type"`
	Value         string `pulumi:"value"`
	Version       int    `pulumi:"version"`
}

func getParameter(ctx context.Context, c *cloud, args parameterArgs) (parameter, error) {
	decrypt := args.WithDecryption == nil || *args.WithDecryption
	got, err := c.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(args.Name), WithDecryption: aws.Bool(decrypt)})
	if err != nil {
		return parameter{}, fmt.Errorf("reading SSM Parameter (%s): %w", args.Name, err)
	}
	found := got.Parameter
	result := parameter{
		ARN: aws.ToString(found.ARN), ID: args.Name, Name: args.Name, Type: string(found.Type),
		Value: aws.ToString(found.Value), Version: int(found.Version),
	}
	if result.Type != "SecureString" {
		result.InsecureValue = result.Value
	}
	return result, nil
}
