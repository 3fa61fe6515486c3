package ec2

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type attachment struct {
	volume, instance, device string
	state                    string // attaching, attached, detaching
	since                    time.Time
}

type attachmentXML struct {
	VolumeID            string `xml:"volumeId"`
	InstanceID          string `xml:"instanceId"`
	Device              string `xml:"device"`
	State               string `xml:"status"`
	AttachTime          string `xml:"attachTime"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
}

func (a *attachment) xml() attachmentXML {
	return attachmentXML{VolumeID: a.volume, InstanceID: a.instance, Device: a.device, State: a.state, AttachTime: timestamp(a.since)}
}

// mostAttachments is how many instances a Multi-Attach volume can have:
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html
const mostAttachments = 16

type attachVolumeInput struct {
	VolumeID   string `query:"VolumeId,required"`
	InstanceID string `query:"InstanceId,required"`
	Device     string `query:",required"`
}

func (s *Service) attachVolume(_ context.Context, c *api.Call, in attachVolumeInput) (any, error) {
	s.mu.Lock()
	v, i, err := s.authorizedPair(c, in.VolumeID, in.InstanceID)
	if err == nil {
		err = s.checkAttach(v, i, in.Device)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	made := &attachment{volume: v.id, instance: i.id, device: in.Device, state: "attaching", since: time.Now()}
	v.attachments = append(v.attachments, made)
	machine, file, answer := i.machine, v.file, made.xml()
	s.mu.Unlock()

	err = machine.Attach(in.VolumeID, file)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil { // the machine has gone in the meantime
		v.drop(made)
		return nil, fmt.Errorf("attach %s to the machine of %s: %w", in.VolumeID, in.InstanceID, err)
	}
	made.state = "attached"
	return answer, nil
}

// authorizedPair finds the volume and the instance of a call that acts on both.
func (s *Service) authorizedPair(c *api.Call, volumeID, instanceID string) (*volume, *instance, error) {
	v, err := s.authorizedVolume(c, volumeID)
	if err != nil {
		return nil, nil, err
	}
	i, err := s.authorizedInstance(c, instanceID)
	return v, i, err
}

func (s *Service) checkAttach(v *volume, i *instance, device string) error {
	if i.state != StateRunning { // a stopped one takes volumes too, but does not start again here
		return clientError("IncorrectState", "Instance '%s' is not 'running'.", i.id)
	}
	if v.zone != i.subnet.zone {
		return clientError("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", v.id, i.id)
	}
	if !strings.HasPrefix(device, "/dev/") && !strings.HasPrefix(device, "xvd") && !strings.HasPrefix(device, "sd") {
		return clientError("InvalidParameterValue", "Value (%s) for parameter device is invalid. %s is not a valid EBS device name.", device, device)
	}
	own := 1 // the root volume
	for _, other := range s.volumes {
		for _, each := range other.attachments {
			if each.instance != i.id {
				continue
			}
			if other == v {
				return clientError("VolumeInUse", "%s is already attached to an instance", v.id)
			}
			if each.device == device {
				return clientError("InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", device, device)
			}
			own++
		}
	}
	switch {
	case own >= i.kind.attachments:
		return clientError("AttachmentLimitExceeded", "The maximum number of attachments for instance type %s has been exceeded.", i.kind.name)
	case v.multiAttach && i.kind.hypervisor == xen:
		return clientError("UnsupportedOperation", "Multi-Attach volumes can be attached to instances built on the Nitro system only; %s is not.", i.kind.name)
	case !v.multiAttach && len(v.attachments) > 0, len(v.attachments) >= mostAttachments:
		return clientError("VolumeInUse", "%s is already attached to an instance", v.id)
	}
	return nil
}

// drop takes an attachment out of the volume's list.
func (v *volume) drop(a *attachment) {
	v.attachments = slices.DeleteFunc(v.attachments, func(each *attachment) bool { return each == a })
}

type detachVolumeInput struct {
	VolumeID   string `query:"VolumeId,required"`
	InstanceID string `query:"InstanceId"`
	Device     string
	Force      bool
}

func (s *Service) detachVolume(_ context.Context, c *api.Call, in detachVolumeInput) (any, error) {
	s.mu.Lock()
	v, found, err := s.authorizedAttachment(c, in)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	found.state = "detaching"
	answer := found.xml()
	var machine Machine
	if i := s.instances[found.instance]; i != nil && i.state == StateRunning {
		machine = i.machine
	}
	s.mu.Unlock()

	if machine != nil {
		err = machine.Detach(v.id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		found.state = "busy"
		return nil, fmt.Errorf("detach %s from the machine of %s: %w", v.id, found.instance, err)
	}
	v.drop(found)
	return answer, nil
}

// authorizedAttachment finds the attachment that a DetachVolume is about.
func (s *Service) authorizedAttachment(c *api.Call, in detachVolumeInput) (*volume, *attachment, error) {
	v, err := s.authorizedVolume(c, in.VolumeID)
	if err != nil {
		return nil, nil, err
	}
	if in.InstanceID != "" {
		if _, err := s.authorizedInstance(c, in.InstanceID); err != nil {
			return nil, nil, err
		}
	}
	var fitting []*attachment
	for _, each := range v.attachments {
		if (in.InstanceID == "" || each.instance == in.InstanceID) && (in.Device == "" || each.device == in.Device) {
			fitting = append(fitting, each)
		}
	}
	switch {
	case len(v.attachments) == 0:
		return nil, nil, clientError("IncorrectState", "Volume '%s' is in the 'available' state.", v.id)
	case len(fitting) == 0:
		return nil, nil, clientError("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s' as device '%s'", v.id, in.InstanceID, in.Device)
	case len(fitting) > 1:
		return nil, nil, clientError("InvalidParameterCombination", "The volume '%s' is attached to %d instances: say which", v.id, len(fitting))
	}
	return v, fitting[0], nil
}
