package ec2

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// network is the account's default VPC: the machines' address block, cut into
// a default subnet for each of three zones and another one, that somebody has
// made, in the first.
type network struct {
	vpcID   string
	block   netip.Prefix
	subnets []subnet
}

type subnet struct {
	id, zone, zoneID string
	block            netip.Prefix
	// isDefault subnets are EC2's own: one per zone, whose instances get public
	// addresses.
	isDefault bool
	// first and last are the addresses that instances can have.
	first, last netip.Addr
}

// EC2 keeps the first four addresses of a subnet and the last one to itself; in
// the first subnet the region does so with ten, for its own listeners.
const (
	reservedByRegion = 10
	reservedByEC2    = 4
)

func newNetwork(region, cidr string) (network, error) {
	block, err := netip.ParsePrefix(cidr)
	if err != nil {
		return network{}, err
	}
	if !block.Addr().Is4() || block.Bits() > 26 {
		return network{}, fmt.Errorf("address block %s is not an IPv4 block of at least /26", cidr)
	}
	n := network{vpcID: newID("vpc"), block: block.Masked()}
	bits := block.Bits() + 2
	start := n.block.Addr()
	const zones = 3
	for i := range zones + 1 {
		zone := i % zones
		each := subnet{
			id: newID("subnet"), zone: region + string(rune('a'+zone)), zoneID: fmt.Sprintf("%s-az%d", zoneIDPrefix(region), zone+1),
			block: netip.PrefixFrom(start, bits), isDefault: i < zones,
		}
		skip := reservedByEC2
		if i == 0 {
			skip = reservedByRegion
		}
		each.first = advance(start, skip)
		start = advance(start, 1<<(32-bits))
		each.last = advance(start, -2)
		n.subnets = append(n.subnets, each)
	}
	return n, nil
}

// zoneIDPrefix shortens a region's name as zone IDs do: eu-west-1 is euw1.
func zoneIDPrefix(region string) string {
	short, part := "", 0
	for i, r := range region {
		switch {
		case r == '-':
			part = i + 1
		case part == 0 || i == part:
			short += string(r)
		}
	}
	return short
}

func advance(addr netip.Addr, by int) netip.Addr {
	bytes := addr.As4()
	number := uint32(bytes[0])<<24 | uint32(bytes[1])<<16 | uint32(bytes[2])<<8 | uint32(bytes[3])
	number += uint32(by)
	return netip.AddrFrom4([4]byte{byte(number >> 24), byte(number >> 16), byte(number >> 8), byte(number)})
}

// zones are the default subnets, one of each zone.
func (n network) zones() []subnet {
	return slices.DeleteFunc(slices.Clone(n.subnets), func(s subnet) bool { return !s.isDefault })
}

func (n network) zoneNames() []string {
	var names []string
	for _, each := range n.zones() {
		names = append(names, each.zone)
	}
	return names
}

func (n network) subnet(id string) *subnet {
	for i := range n.subnets {
		if n.subnets[i].id == id {
			return &n.subnets[i]
		}
	}
	return nil
}

// zone is a zone's default subnet.
func (n network) zone(name string) *subnet {
	for i := range n.subnets {
		if n.subnets[i].zone == name && n.subnets[i].isDefault {
			return &n.subnets[i]
		}
	}
	return nil
}

// freeAddress gives out an address of a subnet, each in turn, so that an
// address comes back only after all others have been used; the mutex is held.
func (s *Service) freeAddress(of *subnet) (netip.Addr, error) {
	used := map[netip.Addr]bool{}
	for _, each := range s.instances {
		used[each.address] = true
	}
	last, ok := s.lastHost[of.id]
	if !ok {
		last = of.last
	}
	for addr := last; ; {
		addr = addr.Next()
		if of.last.Less(addr) {
			addr = of.first
		}
		if !used[addr] {
			s.lastHost[of.id] = addr
			return addr, nil
		}
		if addr == last {
			return netip.Addr{}, clientError("InsufficientFreeAddressesInSubnet",
				"The specified subnet does not have enough free addresses to satisfy the request: %s", of.id)
		}
	}
}

func (s *Service) availableAddresses(of *subnet) int {
	free := 0
	for addr := of.first; !of.last.Less(addr); addr = addr.Next() {
		free++
	}
	for _, each := range s.instances {
		if each.subnet.id == of.id && each.address.IsValid() {
			free--
		}
	}
	return free
}

type describeAvailabilityZonesInput struct {
	ZoneNames            []string `query:"ZoneName"`
	ZoneIDs              []string `query:"ZoneId"`
	AllAvailabilityZones bool
	Filters              []filter `query:"Filter"`
}

type availabilityZone struct {
	Name               string `xml:"zoneName"`
	ID                 string `xml:"zoneId"`
	State              string `xml:"zoneState"`
	Region             string `xml:"regionName"`
	GroupName          string `xml:"groupName"`
	NetworkBorderGroup string `xml:"networkBorderGroup"`
	OptInStatus        string `xml:"optInStatus"`
	Type               string `xml:"zoneType"`
}

type describeAvailabilityZonesOutput struct {
	Zones []availabilityZone `xml:"availabilityZoneInfo>item"`
}

func (s *Service) describeAvailabilityZones(_ context.Context, c *api.Call, in describeAvailabilityZonesInput) (any, error) {
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	var all []availabilityZone
	for _, each := range s.network.zones() {
		all = append(all, availabilityZone{
			Name: each.zone, ID: each.zoneID, State: "available", Region: s.config.Region, GroupName: s.config.Region,
			NetworkBorderGroup: s.config.Region, OptInStatus: "opt-in-not-required", Type: "availability-zone",
		})
	}
	invalid := func(id string) error {
		return clientError("InvalidParameterValue", "Invalid availability zone: [%s]", id)
	}
	describe := func(z availabilityZone) attributes {
		return attributes{
			"zone-name": {z.Name}, "zone-id": {z.ID}, "state": {z.State}, "region-name": {z.Region}, "group-name": {z.GroupName},
			"opt-in-status": {z.OptInStatus}, "zone-type": {z.Type}, "network-border-group": {z.NetworkBorderGroup},
		}
	}
	selected, err := chosen(all, in.ZoneNames, nil, func(z availabilityZone) string { return z.Name }, describe, invalid)
	if err != nil {
		return nil, err
	}
	selected, err = chosen(selected, in.ZoneIDs, in.Filters, func(z availabilityZone) string { return z.ID }, describe, invalid)
	return describeAvailabilityZonesOutput{Zones: selected}, err
}

type describeVpcsInput struct {
	IDs        []string `query:"VpcId"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type vpcXML struct {
	ID              string `xml:"vpcId"`
	OwnerID         string `xml:"ownerId"`
	State           string `xml:"state"`
	CIDR            string `xml:"cidrBlock"`
	CIDRs           []cidr `xml:"cidrBlockAssociationSet>item"`
	DHCPOptions     string `xml:"dhcpOptionsId"`
	InstanceTenancy string `xml:"instanceTenancy"`
	IsDefault       bool   `xml:"isDefault"`
	Tags            []tag  `xml:"tagSet>item"`
}

type cidr struct {
	Block string `xml:"cidrBlock"`
	ID    string `xml:"associationId"`
	State string `xml:"cidrBlockState>state"`
}

type describeVpcsOutput struct {
	VPCs      []vpcXML `xml:"vpcSet>item"`
	NextToken string   `xml:"nextToken,omitempty"`
}

func (s *Service) describeVpcs(_ context.Context, c *api.Call, in describeVpcsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	all := []vpcXML{{
		ID: s.network.vpcID, OwnerID: s.config.AccountID, State: "available", CIDR: s.network.block.String(),
		CIDRs:       []cidr{{Block: s.network.block.String(), ID: "vpc-cidr-assoc-" + s.network.vpcID[len("vpc-"):], State: "associated"}},
		DHCPOptions: "default", InstanceTenancy: "default", IsDefault: true, Tags: tagSet(s.tags[s.network.vpcID]),
	}}
	id := func(v vpcXML) string { return v.ID }
	selected, err := chosen(all, in.IDs, in.Filters, id, func(v vpcXML) attributes {
		return attributes{
			"vpc-id": {v.ID}, "cidr": {v.CIDR}, "cidr-block": {v.CIDR}, "cidr-block-association.cidr-block": {v.CIDR},
			"isDefault": {"true"}, "is-default": {"true"}, "state": {v.State}, "owner-id": {v.OwnerID}, "dhcp-options-id": {v.DHCPOptions},
		}.withTags(s.tags[v.ID])
	}, func(id string) error {
		return clientError("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", id)
	})
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 5, selected, id)
	return describeVpcsOutput{VPCs: cut, NextToken: next}, err
}

type describeSubnetsInput struct {
	IDs        []string `query:"SubnetId"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type subnetXML struct {
	ID                  string `xml:"subnetId"`
	ARN                 string `xml:"subnetArn"`
	State               string `xml:"state"`
	OwnerID             string `xml:"ownerId"`
	VPC                 string `xml:"vpcId"`
	CIDR                string `xml:"cidrBlock"`
	AvailableAddresses  int    `xml:"availableIpAddressCount"`
	Zone                string `xml:"availabilityZone"`
	ZoneID              string `xml:"availabilityZoneId"`
	DefaultForZone      bool   `xml:"defaultForAz"`
	MapPublicIPOnLaunch bool   `xml:"mapPublicIpOnLaunch"`
	Tags                []tag  `xml:"tagSet>item"`
}

type describeSubnetsOutput struct {
	Subnets   []subnetXML `xml:"subnetSet>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

func (s *Service) describeSubnets(_ context.Context, c *api.Call, in describeSubnetsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	all := map[string]subnetXML{}
	for i := range s.network.subnets {
		each := &s.network.subnets[i]
		all[each.id] = subnetXML{
			ID: each.id, ARN: s.arn("subnet", each.id), State: "available", OwnerID: s.config.AccountID, VPC: s.network.vpcID,
			CIDR: each.block.String(), AvailableAddresses: s.availableAddresses(each), Zone: each.zone, ZoneID: each.zoneID,
			DefaultForZone: each.isDefault, MapPublicIPOnLaunch: each.isDefault, Tags: tagSet(s.tags[each.id]),
		}
	}
	id := func(x subnetXML) string { return x.ID }
	selected, err := chosen(sorted(all), in.IDs, in.Filters, id, func(x subnetXML) attributes {
		return attributes{
			"subnet-id": {x.ID}, "vpc-id": {x.VPC}, "availability-zone": {x.Zone}, "availabilityZone": {x.Zone},
			"availability-zone-id": {x.ZoneID}, "cidr": {x.CIDR}, "cidr-block": {x.CIDR}, "cidrBlock": {x.CIDR}, "state": {x.State},
			"default-for-az": {boolean(x.DefaultForZone)}, "defaultForAz": {boolean(x.DefaultForZone)},
			"map-public-ip-on-launch": {boolean(x.MapPublicIPOnLaunch)}, "owner-id": {x.OwnerID}, "subnet-arn": {x.ARN}, "available-ip-address-count": {fmt.Sprint(x.AvailableAddresses)},
		}.withTags(s.tags[x.ID])
	}, func(id string) error {
		return clientError("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
	})
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 5, selected, id)
	return describeSubnetsOutput{Subnets: cut, NextToken: next}, err
}

// SubnetZone tells the availability zone of a subnet.
func (s *Service) SubnetZone(id string) (zone string, ok bool) {
	found := s.network.subnet(id)
	if found == nil {
		return "", false
	}
	return found.zone, true
}

// DefaultSubnet tells the default subnet of an availability zone.
func (s *Service) DefaultSubnet(zone string) (id string, ok bool) {
	found := s.network.zone(zone)
	if found == nil {
		return "", false
	}
	return found.id, true
}
