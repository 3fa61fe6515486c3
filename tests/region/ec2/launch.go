package ec2

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// LaunchRequest asks for one instance of a launch template.
type LaunchRequest struct {
	TemplateID string
	// Version is a number, $Latest or $Default.
	Version string
	// SubnetID may be empty when the template names one.
	SubnetID string
	// Tags are given to the instance besides the template's; they win.
	Tags map[string]string
}

// Launch launches an instance. It returns as soon as the instance is pending;
// the instance is running once its machine has started, which Watch tells. Its
// errors are those of RunInstances.
func (s *Service) Launch(request LaunchRequest) (Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Instance{}, errors.New("launch an instance: the region is closed")
	}
	i, err := s.prepare(request)
	if err != nil {
		return Instance{}, err
	}
	if i.address, err = s.freeAddress(i.subnet); err != nil {
		return Instance{}, err
	}
	s.instances[i.id] = i
	for _, each := range i.data.Tags {
		for _, each := range each.Tags {
			s.setTags(i.id, map[string]string{each.Key: each.Value})
		}
	}
	s.setTags(i.id, request.Tags)
	s.setTags(i.id, map[string]string{
		"aws:ec2launchtemplate:id": i.templateID, "aws:ec2launchtemplate:version": strconv.Itoa(i.templateVersion),
	})
	s.setState(i, StatePending)
	s.task(func() { s.boot(i) })
	return s.snapshot(i), nil
}

// CheckLaunch says whether a launch would be refused, as a dry run does.
func (s *Service) CheckLaunch(request LaunchRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.prepare(request)
	return err
}

// prepare checks everything that a launch needs; the mutex is held.
func (s *Service) prepare(request LaunchRequest) (*instance, error) {
	t, err := s.template(request.TemplateID, "")
	if err != nil {
		return nil, err
	}
	v, err := t.version(request.Version)
	if err != nil {
		return nil, err
	}
	data := v.data
	i := &instance{
		id: newID("i"), reservation: newID("r"), data: data, templateID: t.id, templateVersion: v.number,
		groups: data.SecurityGroups, launched: time.Now(),
		booted: make(chan struct{}), gone: make(chan struct{}),
	}
	subnetID := request.SubnetID
	for _, each := range data.Interfaces {
		i.groups = append(slices.Clone(i.groups), each.Groups...)
		if subnetID == "" {
			subnetID = each.Subnet
		}
	}
	if i.subnet = s.network.subnet(subnetID); i.subnet == nil {
		return nil, clientError("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", subnetID)
	}
	if data.Placement != nil && data.Placement.Zone != "" && data.Placement.Zone != i.subnet.zone {
		return nil, clientError("InvalidParameterValue", "The availability zone '%s' is not the zone of subnet '%s'", data.Placement.Zone, subnetID)
	}
	if err := s.prepareKind(i); err != nil {
		return nil, err
	}
	if len(i.groups) == 0 {
		for _, each := range s.groups {
			if each.isDefault {
				i.groups = []string{each.id}
			}
		}
	}
	for _, id := range i.groups {
		if s.groups[id] == nil {
			return nil, groupNotFound(id)
		}
	}
	if data.KeyName != "" {
		return nil, clientError("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", data.KeyName)
	}
	return i, s.prepareProfile(i)
}

// prepareKind finds the instance type and the image and checks that they go
// together and are on offer.
func (s *Service) prepareKind(i *instance) error {
	name := i.data.InstanceType
	if name == "" {
		return clientError("MissingParameter", "The request must contain the parameter InstanceType")
	}
	if i.kind = s.catalog.instanceType(name); i.kind == nil {
		return clientError("InvalidParameterValue", "Invalid value '%s' for InstanceType.", name)
	}
	if !slices.Contains(i.kind.zones, i.subnet.zone) {
		return clientError("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", name, i.subnet.zone)
	}
	if i.data.ImageID == "" {
		return clientError("MissingParameter", "The request must contain the parameter ImageId")
	}
	if i.image = s.catalog.image(i.data.ImageID); i.image == nil {
		return clientError("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", i.data.ImageID)
	}
	if i.image.architecture != i.kind.architecture {
		return clientError("InvalidParameterValue",
			"The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI.",
			i.kind.architecture, i.image.architecture)
	}
	return nil
}

func (s *Service) prepareProfile(i *instance) error {
	asked := i.data.Profile
	if asked == nil {
		return nil
	}
	found, ok := s.config.IAM.Profile(asked.Name + asked.ARN)
	switch {
	case !ok && asked.Name != "":
		return clientError("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", asked.Name)
	case !ok:
		return clientError("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN", asked.ARN)
	case found.Role == "":
		return clientError("InvalidParameterValue", "IAM Instance Profile \"%s\" has no associated IAM Roles", found.ARN)
	}
	i.profile = found
	return nil
}

// boot starts the instance's machine and sees it through its life.
func (s *Service) boot(i *instance) {
	machine, err := s.config.Machines.Start(s.lifetime, s.machineSpec(i))
	s.mu.Lock()
	if err != nil {
		s.config.Logger.Error("start of a machine", "instance", i.id, "error", err)
		s.terminate(i, "Server.InternalError: "+err.Error())
		s.mu.Unlock()
		close(i.booted)
		return
	}
	i.machine = machine
	if i.state == StatePending {
		s.setState(i, StateRunning)
	}
	s.mu.Unlock()
	close(i.booted)

	select {
	case <-machine.Exited():
		s.exited(i)
	case <-s.lifetime.Done():
	}
	select {
	case <-i.gone:
	case <-s.lifetime.Done():
		s.mu.Lock()
		terminating := i.state == StateShuttingDown || i.state == StateTerminated
		s.mu.Unlock()
		if !terminating { // else shutDown does it
			s.discard(i)
		}
	}
}

func (s *Service) machineSpec(i *instance) MachineSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	userData, _ := base64.StdEncoding.DecodeString(i.data.UserData) // it was checked when the template was made
	return MachineSpec{
		InstanceID: i.id, PrivateIP: i.address.String(), AvailabilityZone: i.subnet.zone, Region: s.config.Region,
		AccountID: s.config.AccountID, InstanceType: i.kind.name, ImageID: i.image.id, UserData: userData,
		Tags: maps.Clone(s.tags[i.id]), RoleName: i.profile.Role,
		Credentials: func() (Credentials, error) { return s.credentials(i) },
	}
}

// credentials are those of the role in the instance's profile at this moment.
func (s *Service) credentials(i *instance) (Credentials, error) {
	profile, ok := s.config.IAM.Profile(i.profile.ARN)
	if !ok || profile.Role == "" {
		return Credentials{}, api.Errorf(http.StatusNotFound, "InstanceProfileNotFound", "Instance Profile %s has no role", i.profile.ARN)
	}
	if !s.config.IAM.Trusts(profile.Role, "ec2.amazonaws.com") {
		return Credentials{}, api.Errorf(http.StatusForbidden, "AssumeRoleUnauthorizedAccess",
			"EC2 cannot assume the role %s. Please see documentation at https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_iam-ec2.html", profile.Role)
	}
	made, err := s.config.IAM.Assume(profile.Role, i.id)
	return Credentials(made), err
}

// exited follows a machine that no longer runs: either it was terminated and
// there is nothing to do, or it went down by itself.
func (s *Service) exited(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.state != StateRunning {
		return
	}
	const reason = "Client.InstanceInitiatedShutdown"
	if i.data.ShutdownBehavior == "terminate" {
		s.terminate(i, reason)
		return
	}
	i.reason = reason
	s.setState(i, StateStopped)
}

// Terminate terminates an instance, as TerminateInstances does: its machine is
// shut down in order. It returns at once. One that is being terminated, or is
// gone, stays as it is.
func (s *Service) Terminate(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instance(id); i != nil {
		s.terminate(i, "Client.UserInitiatedShutdown")
	}
}

func (s *Service) terminate(i *instance, reason string) {
	if s.closed || i.state == StateShuttingDown || i.state == StateTerminated {
		return
	}
	i.reason = reason
	s.setState(i, StateShuttingDown)
	s.task(func() { s.shutDown(i) })
}

func (s *Service) shutDown(i *instance) {
	<-i.booted
	if i.machine != nil {
		if err := i.machine.Stop(s.lifetime); err != nil && s.lifetime.Err() == nil {
			s.config.Logger.Warn("orderly stop of a machine", "instance", i.id, "error", err)
		}
		s.discard(i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		for _, each := range slices.Clone(v.attachments) {
			if each.instance == i.id {
				v.drop(each)
			}
		}
	}
	i.address, i.terminated = netip.Addr{}, time.Now()
	s.setState(i, StateTerminated)
	close(i.gone)
}

// discard ends a machine for good and removes its disk.
func (s *Service) discard(i *instance) {
	if err := i.machine.Kill(); err != nil {
		s.config.Logger.Warn("end of a machine", "instance", i.id, "error", err)
	}
	<-i.machine.Exited()
	if err := i.machine.Remove(); err != nil {
		s.config.Logger.Warn("removal of a machine's disk", "instance", i.id, "error", err)
	}
}

// Crash ends an instance's machine at once, as a power failure does. The
// instance is stopped afterwards, unless it terminates when it shuts down.
func (s *Service) Crash(id string) error {
	machine, ok := s.Machine(id)
	if !ok {
		return fmt.Errorf("crash the instance: %w", instanceNotFound(id))
	}
	return machine.Kill()
}

// Watch calls a function at every change of an instance's state from now on,
// one call at a time and in order.
func (s *Service) Watch(changed func(Instance)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, changed)
}

// setState changes an instance's state and tells those who watch; the mutex is
// held.
func (s *Service) setState(i *instance, state State) {
	i.state = state
	snapshot, watchers := s.snapshot(i), slices.Clone(s.watchers)
	s.outbox.Add(func() {
		for _, changed := range watchers {
			changed(snapshot)
		}
		s.config.Events.Emit(s.lifetime, "aws.ec2", "EC2 Instance State-change Notification",
			[]string{s.arn("instance", snapshot.ID)}, stateChange{InstanceID: snapshot.ID, State: snapshot.State})
	})
	s.config.Logger.Debug("instance state", "instance", i.id, "state", string(state), "address", snapshot.PrivateIP)
}

type stateChange struct {
	InstanceID string `json:"instance-id"`
	State      State  `json:"state"`
}
