package ec2

import (
	"context"
	"encoding/base64"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
)

// State is the state of an instance.
type State string

// The states of an instance.
const (
	StatePending      State = "pending"
	StateRunning      State = "running"
	StateShuttingDown State = "shutting-down"
	StateTerminated   State = "terminated"
	StateStopped      State = "stopped"
)

func (s State) code() int {
	return map[State]int{StatePending: 0, StateRunning: 16, StateShuttingDown: 32, StateTerminated: 48, StateStopped: 80}[s]
}

// Instance is an instance as it was at one moment.
type Instance struct {
	ID    string
	State State
	// PrivateIP is empty once the instance is terminated.
	PrivateIP        string
	Type             string
	ImageID          string
	SubnetID         string
	AvailabilityZone string
	LaunchTime       time.Time
	Tags             map[string]string
	// TemplateID and TemplateVersion tell the launch template it was made from.
	TemplateID      string
	TemplateVersion int
	// Reason says why it is in a state that nobody asked for.
	Reason string
}

// instance is an instance as the service keeps it. What is above state does
// not change.
type instance struct {
	id, reservation string
	kind            *instanceType
	image           *image
	subnet          *subnet
	profile         iam.Profile
	groups          []string
	data            templateData
	templateID      string
	templateVersion int
	launched        time.Time
	booted          chan struct{} // closed when machine is set, or never will be
	gone            chan struct{} // closed when it is terminated

	state      State
	reason     string
	address    netip.Addr // invalid once terminated
	machine    Machine
	terminated time.Time
}

// terminatedVisible is how long a terminated instance is still described.
const terminatedVisible = time.Hour

// instance finds an instance that is still visible; the mutex is held.
func (s *Service) instance(id string) *instance {
	i := s.instances[id]
	if i == nil || i.state == StateTerminated && time.Since(i.terminated) >= terminatedVisible {
		return nil
	}
	return i
}

func (s *Service) visibleInstances() []*instance {
	return slices.DeleteFunc(sorted(s.instances), func(i *instance) bool { return s.instance(i.id) == nil })
}

func (s *Service) snapshot(i *instance) Instance {
	x := Instance{
		ID: i.id, State: i.state, Type: i.kind.name, ImageID: i.image.id, SubnetID: i.subnet.id, AvailabilityZone: i.subnet.zone,
		LaunchTime: i.launched, Tags: maps.Clone(s.tags[i.id]), TemplateID: i.templateID, TemplateVersion: i.templateVersion, Reason: i.reason,
	}
	if i.address.IsValid() {
		x.PrivateIP = i.address.String()
	}
	return x
}

// Instance tells about one instance.
func (s *Service) Instance(id string) (Instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instance(id)
	if i == nil {
		return Instance{}, false
	}
	return s.snapshot(i), true
}

// Instances tells about every instance that is still visible, in order of ID.
func (s *Service) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Instance
	for _, each := range s.visibleInstances() {
		all = append(all, s.snapshot(each))
	}
	return all
}

// Machine is the computer of an instance, once it has one.
func (s *Service) Machine(id string) (Machine, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instance(id)
	if i == nil || i.machine == nil {
		return nil, false
	}
	return i.machine, true
}

func (s *Service) instanceKeys(i *instance) keys {
	context := keys{
		"ec2:InstanceID": i.id, "ec2:InstanceType": i.kind.name, "ec2:AvailabilityZone": i.subnet.zone, "ec2:Tenancy": "default",
		"ec2:RootDeviceType": "ebs",
	}
	if i.profile.ARN != "" {
		context["ec2:InstanceProfile"] = i.profile.ARN
	}
	return context
}

func instanceNotFound(id string) error {
	return clientError("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
}

// authorizedInstance finds the instance that a call is about and asks whether
// the caller may; the mutex is held.
func (s *Service) authorizedInstance(c *api.Call, id string) (*instance, error) {
	i := s.instance(id)
	if i == nil {
		if err := c.Authorize(s.on(c, "instance", id, nil)); err != nil {
			return nil, err
		}
		return nil, instanceNotFound(id)
	}
	return i, c.Authorize(s.on(c, "instance", i.id, s.instanceKeys(i)))
}

func (s *Service) authorizedInstances(c *api.Call, ids []string) ([]*instance, error) {
	var all []*instance
	for _, id := range ids {
		i, err := s.authorizedInstance(c, id)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

type describeInstancesInput struct {
	IDs        []string `query:"InstanceId"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type reservationXML struct {
	ID        string        `xml:"reservationId"`
	OwnerID   string        `xml:"ownerId"`
	Instances []instanceXML `xml:"instancesSet>item"`
}

type stateXML struct {
	Code int   `xml:"code"`
	Name State `xml:"name"`
}

type groupXML struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

type instanceXML struct {
	ID             string            `xml:"instanceId"`
	ImageID        string            `xml:"imageId"`
	State          stateXML          `xml:"instanceState"`
	PrivateDNS     string            `xml:"privateDnsName"`
	PublicDNS      string            `xml:"dnsName"`
	Reason         string            `xml:"reason"`
	StateReason    *stateReasonXML   `xml:"stateReason"`
	LaunchIndex    int               `xml:"amiLaunchIndex"`
	Type           string            `xml:"instanceType"`
	LaunchTime     string            `xml:"launchTime"`
	Zone           string            `xml:"placement>availabilityZone"`
	ZoneID         string            `xml:"placement>availabilityZoneId"`
	Tenancy        string            `xml:"placement>tenancy"`
	Monitoring     string            `xml:"monitoring>state"`
	Subnet         string            `xml:"subnetId,omitempty"`
	VPC            string            `xml:"vpcId,omitempty"`
	PrivateIP      string            `xml:"privateIpAddress,omitempty"`
	PublicIP       string            `xml:"ipAddress,omitempty"`
	Groups         []groupXML        `xml:"groupSet>item"`
	Interfaces     []interfaceXML    `xml:"networkInterfaceSet>item"`
	Architecture   string            `xml:"architecture"`
	RootDeviceType string            `xml:"rootDeviceType"`
	RootDevice     string            `xml:"rootDeviceName"`
	BlockDevices   []blockDeviceXML  `xml:"blockDeviceMapping>item"`
	Virtualization string            `xml:"virtualizationType"`
	Hypervisor     string            `xml:"hypervisor"`
	Profile        *profileXML       `xml:"iamInstanceProfile"`
	Metadata       *templateMetadata `xml:"metadataOptions"`
	Tags           []tag             `xml:"tagSet>item"`
}

// interfaceXML is the network interface that an instance was launched with. What
// nobody asks for is left out.
type interfaceXML struct {
	ID               string `xml:"networkInterfaceId"`
	Subnet           string `xml:"subnetId"`
	VPC              string `xml:"vpcId"`
	PrivateIP        string `xml:"privateIpAddress"`
	Status           string `xml:"status"`
	DeviceIndex      int    `xml:"attachment>deviceIndex"`
	AttachmentStatus string `xml:"attachment>status"`
	AttachTime       string `xml:"attachment>attachTime"`
}

type stateReasonXML struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type profileXML struct {
	ARN string `xml:"arn"`
	ID  string `xml:"id"`
}

type blockDeviceXML struct {
	Device              string `xml:"deviceName"`
	VolumeID            string `xml:"ebs>volumeId"`
	State               string `xml:"ebs>status"`
	AttachTime          string `xml:"ebs>attachTime"`
	DeleteOnTermination bool   `xml:"ebs>deleteOnTermination"`
}

func (s *Service) instanceXML(i *instance) instanceXML {
	x := instanceXML{
		ID: i.id, ImageID: i.image.id, State: stateXML{i.state.code(), i.state}, Type: i.kind.name, LaunchTime: timestamp(i.launched),
		Zone: i.subnet.zone, ZoneID: i.subnet.zoneID, Tenancy: "default", Monitoring: "disabled", Architecture: i.kind.architecture,
		RootDeviceType: "ebs", RootDevice: "/dev/xvda", Virtualization: "hvm", Hypervisor: "xen", // as EC2 says of Nitro, too
		Metadata: i.data.Metadata, Tags: tagSet(s.tags[i.id]),
	}
	if i.reason != "" {
		x.Reason = i.reason
		x.StateReason = &stateReasonXML{Code: i.reason, Message: i.reason}
	}
	if i.profile.ARN != "" {
		x.Profile = &profileXML{ARN: i.profile.ARN, ID: i.profile.ID}
	}
	if !i.address.IsValid() {
		return x // no longer in any network
	}
	x.Subnet, x.VPC, x.PrivateIP = i.subnet.id, s.network.vpcID, i.address.String()
	x.Interfaces = []interfaceXML{{
		ID: "eni-" + strings.TrimPrefix(i.id, "i-"), Subnet: x.Subnet, VPC: x.VPC, PrivateIP: x.PrivateIP,
		Status: "in-use", AttachmentStatus: "attached", AttachTime: x.LaunchTime,
	}}
	if i.subnet.isDefault {
		x.PublicIP = x.PrivateIP
	}
	x.PrivateDNS = "ip-" + i.address.String() + "." + s.config.Region + ".compute.internal"
	for _, id := range i.groups {
		group := groupXML{ID: id}
		if known := s.groups[id]; known != nil {
			group.Name = known.name
		}
		x.Groups = append(x.Groups, group)
	}
	for _, v := range sorted(s.volumes) {
		for _, each := range v.attachments {
			if each.instance == i.id {
				x.BlockDevices = append(x.BlockDevices, blockDeviceXML{
					Device: each.device, VolumeID: v.id, State: each.state, AttachTime: timestamp(each.since),
				})
			}
		}
	}
	return x
}

type describeInstancesOutput struct {
	Reservations []reservationXML `xml:"reservationSet>item"`
	NextToken    string           `xml:"nextToken,omitempty"`
}

func (s *Service) describeInstances(_ context.Context, c *api.Call, in describeInstancesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := selection{in.Filters, in.MaxResults, in.NextToken}
	selected, err := s.chosenInstances(c, how, in.IDs)
	if err != nil {
		return nil, err
	}
	cut, next, err := page(how, 5, selected, instanceID)
	out := describeInstancesOutput{NextToken: next}
	for _, each := range cut {
		out.Reservations = append(out.Reservations, reservationXML{
			ID: each.reservation, OwnerID: s.config.AccountID, Instances: []instanceXML{s.instanceXML(each)},
		})
	}
	return out, err
}

// chosenInstances are the instances that a listing is about, on all its pages.
func (s *Service) chosenInstances(c *api.Call, how selection, ids []string) ([]*instance, error) {
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	if err := noPagingByID(how, "instancesSet", ids); err != nil {
		return nil, err
	}
	return chosen(s.visibleInstances(), ids, how.Filters, instanceID, s.instanceAttributes, instanceNotFound)
}

func instanceID(i *instance) string { return i.id }

func (s *Service) instanceAttributes(i *instance) attributes {
	found := attributes{
		"instance-id": {i.id}, "instance-state-name": {string(i.state)}, "instance-state-code": {strconv.Itoa(i.state.code())},
		"instance-type": {i.kind.name}, "image-id": {i.image.id}, "availability-zone": {i.subnet.zone}, "reservation-id": {i.reservation},
		"architecture": {i.kind.architecture}, "instance.group-id": i.groups, "iam-instance-profile.arn": {i.profile.ARN},
		"launch-time": {timestamp(i.launched)}, "private-ip-address": nil, "network-interface.addresses.private-ip-address": nil,
		"ip-address": nil, "subnet-id": nil, "vpc-id": nil, "block-device-mapping.volume-id": nil,
	}
	if i.address.IsValid() {
		address := []string{i.address.String()}
		found["private-ip-address"] = address
		if i.subnet.isDefault {
			found["ip-address"] = address
		}
		found["network-interface.addresses.private-ip-address"] = address
		found["subnet-id"], found["vpc-id"] = []string{i.subnet.id}, []string{s.network.vpcID}
	}
	for _, v := range s.volumes {
		for _, each := range v.attachments {
			if each.instance == i.id {
				found["block-device-mapping.volume-id"] = append(found["block-device-mapping.volume-id"], v.id)
			}
		}
	}
	return found.withTags(s.tags[i.id])
}

type describeInstanceStatusInput struct {
	IDs        []string `query:"InstanceId"`
	All        bool     `query:"IncludeAllInstances"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type instanceStatusXML struct {
	ID       string   `xml:"instanceId"`
	Zone     string   `xml:"availabilityZone"`
	State    stateXML `xml:"instanceState"`
	Instance string   `xml:"instanceStatus>status"`
	System   string   `xml:"systemStatus>status"`
}

type describeInstanceStatusOutput struct {
	Statuses  []instanceStatusXML `xml:"instanceStatusSet>item"`
	NextToken string              `xml:"nextToken,omitempty"`
}

func (s *Service) describeInstanceStatus(_ context.Context, c *api.Call, in describeInstanceStatusInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := selection{in.Filters, in.MaxResults, in.NextToken}
	selected, err := s.chosenInstances(c, how, in.IDs)
	if err != nil {
		return nil, err
	}
	selected = slices.DeleteFunc(selected, func(i *instance) bool { return !in.All && i.state != StateRunning })
	cut, next, err := page(how, 5, selected, instanceID)
	out := describeInstanceStatusOutput{NextToken: next}
	for _, each := range cut {
		status := "not-applicable"
		switch each.state {
		case StateRunning:
			status = "ok"
		case StatePending:
			status = "initializing"
		case StateShuttingDown, StateTerminated, StateStopped:
		}
		out.Statuses = append(out.Statuses, instanceStatusXML{
			ID: each.id, Zone: each.subnet.zone, State: stateXML{each.state.code(), each.state}, Instance: status, System: status,
		})
	}
	return out, err
}

type instancesInput struct {
	IDs []string `query:"InstanceId,required"`
}

type stateChangeXML struct {
	ID       string   `xml:"instanceId"`
	Current  stateXML `xml:"currentState"`
	Previous stateXML `xml:"previousState"`
}

type terminateInstancesOutput struct {
	Changes []stateChangeXML `xml:"instancesSet>item"`
}

func (s *Service) terminateInstances(_ context.Context, c *api.Call, in instancesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.authorizedInstances(c, in.IDs)
	if err != nil {
		return nil, err
	}
	for _, each := range all {
		if each.data.DisableTermination != nil && *each.data.DisableTermination {
			return nil, clientError("OperationNotPermitted",
				"The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", each.id)
		}
	}
	var out terminateInstancesOutput
	for _, each := range all {
		previous := each.state
		s.terminate(each, "Client.UserInitiatedShutdown")
		out.Changes = append(out.Changes, stateChangeXML{
			ID: each.id, Current: stateXML{each.state.code(), each.state}, Previous: stateXML{previous.code(), previous},
		})
	}
	return out, nil
}

func (s *Service) rebootInstances(_ context.Context, c *api.Call, in instancesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.authorizedInstances(c, in.IDs)
	if err != nil {
		return nil, err
	}
	for _, each := range all {
		if each.state != StateRunning {
			return nil, clientError("IncorrectState", "Instance '%s' is not 'running'.", each.id)
		}
	}
	for _, each := range all {
		machine := each.machine
		s.task(func() {
			if err := machine.Reboot(s.lifetime); err != nil {
				s.config.Logger.Warn("reboot of a machine", "instance", each.id, "error", err)
			}
		})
	}
	return success{Return: true}, nil
}

type getConsoleOutputInput struct {
	ID     string `query:"InstanceId,required"`
	Latest bool
}

type getConsoleOutputOutput struct {
	ID        string `xml:"instanceId"`
	Timestamp string `xml:"timestamp"`
	Output    string `xml:"output"`
}

func (s *Service) getConsoleOutput(_ context.Context, c *api.Call, in getConsoleOutputInput) (any, error) {
	s.mu.Lock()
	i, err := s.authorizedInstance(c, in.ID)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	machine := i.machine
	s.mu.Unlock()
	out := getConsoleOutputOutput{ID: in.ID, Timestamp: timestamp(time.Now())}
	if machine != nil {
		out.Output = base64.StdEncoding.EncodeToString([]byte(machine.Console()))
	}
	return out, nil
}
