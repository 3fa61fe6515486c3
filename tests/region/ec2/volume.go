package ec2

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type volume struct {
	id, zone, kind, kmsKey string
	file                   string
	size, iops, throughput int // GiB, per second, MiB/s
	multiAttach, encrypted bool
	created                time.Time
	attachments            []*attachment
	modified               []time.Time
	modification           *volumeModification
}

func (v *volume) keys() keys {
	return keys{
		"ec2:VolumeID": v.id, "ec2:VolumeType": v.kind, "ec2:AvailabilityZone": v.zone, "ec2:Encrypted": boolean(v.encrypted),
		"ec2:VolumeSize": fmt.Sprint(v.size), "ec2:VolumeIops": fmt.Sprint(v.iops), "ec2:VolumeThroughput": fmt.Sprint(v.throughput),
	}
}

func (v *volume) state() string {
	if len(v.attachments) > 0 {
		return "in-use"
	}
	return "available"
}

const gibibyte = 1 << 30

// volumeLimits are the sizes in GiB and the IOPS that a type can have.
type volumeLimits struct {
	leastSize, mostSize int
	leastIOPS, mostIOPS int // 0 when IOPS cannot be asked for
	perGiB              int
	multiAttach         bool
}

func limitsOf(kind string) (volumeLimits, bool) {
	limits, ok := map[string]volumeLimits{
		"gp2": {leastSize: 1, mostSize: 16384},
		"gp3": {leastSize: 1, mostSize: 65536, leastIOPS: 3000, mostIOPS: 80000, perGiB: 500},
		"io1": {leastSize: 4, mostSize: 16384, leastIOPS: 100, mostIOPS: 64000, perGiB: 50, multiAttach: true},
		"io2": {leastSize: 4, mostSize: 65536, leastIOPS: 100, mostIOPS: 256000, perGiB: 1000, multiAttach: true},
		"st1": {leastSize: 125, mostSize: 16384},
		"sc1": {leastSize: 125, mostSize: 16384},
	}[kind]
	return limits, ok
}

// check checks what a volume is to be against what its type allows.
func (v *volume) check() error {
	limits, ok := limitsOf(v.kind)
	if !ok {
		return clientError("InvalidParameterValue", "Value (%s) for parameter volumeType is invalid.", v.kind)
	}
	if v.size < limits.leastSize || v.size > limits.mostSize {
		return clientError("InvalidParameterValue", "Volume of %dGiB is not in the allowed range: %s volumes have %d to %d GiB.",
			v.size, v.kind, limits.leastSize, limits.mostSize)
	}
	switch {
	case v.iops != 0 && limits.mostIOPS == 0:
		return clientError("InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", v.kind)
	case v.iops == 0 && limits.multiAttach:
		return clientError("MissingParameter", "The request must contain the parameter iops for %s volumes.", v.kind)
	case v.iops != 0 && (v.iops < limits.leastIOPS || v.iops > limits.mostIOPS):
		return clientError("InvalidParameterValue", "Volume iops of %d is not in the allowed range: %s volumes have %d to %d.",
			v.iops, v.kind, limits.leastIOPS, limits.mostIOPS)
	case v.kind != "gp3" && v.iops > limits.perGiB*v.size, v.kind == "gp3" && v.iops > max(limits.leastIOPS, limits.perGiB*v.size):
		return clientError("InvalidParameterValue", "Iops to volume size ratio of %.1f is too high; maximum is %d", float64(v.iops)/float64(v.size), limits.perGiB)
	case v.throughput != 0 && v.kind != "gp3":
		return clientError("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", v.kind)
	case v.multiAttach && !limits.multiAttach:
		return clientError("InvalidParameterCombination", "The parameter multiAttachEnabled is only supported for io1 and io2 volumes.")
	}
	return nil
}

// resize makes the volume's file as large as the volume, without filling it.
func (v *volume) resize() error {
	file, err := os.OpenFile(v.file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the volume's file: %w", err)
	}
	if err := file.Truncate(int64(v.size) * gibibyte); err != nil {
		return errors.Join(fmt.Errorf("size the volume's file: %w", err), file.Close())
	}
	return file.Close()
}

type createVolumeInput struct {
	Zone           string `query:"AvailabilityZone"`
	Type           string `query:"VolumeType"`
	Size           int
	IOPS           int `query:"Iops"`
	Throughput     int
	MultiAttach    bool `query:"MultiAttachEnabled"`
	Encrypted      bool
	KMSKey         string             `query:"KmsKeyId"`
	Specifications []tagSpecification `query:"TagSpecification"`
	ClientToken    string
}

func (s *Service) createVolume(_ context.Context, c *api.Call, in createVolumeInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags, err := tagsFor("volume", in.Specifications)
	if err != nil {
		return nil, err
	}
	v := &volume{
		id: newID("vol"), zone: in.Zone, kind: in.Type, size: in.Size, iops: in.IOPS, throughput: in.Throughput,
		multiAttach: in.MultiAttach, encrypted: in.Encrypted || in.KMSKey != "", kmsKey: in.KMSKey, created: time.Now(),
	}
	if v.kind == "" {
		v.kind = "gp2"
	}
	asked := v.keys()
	delete(asked, "ec2:VolumeID")
	if err := s.authorizeCreate(c, "volume", tags, asked); err != nil {
		return nil, err
	}
	if existing := s.volumes[s.tokens["CreateVolume "+in.ClientToken]]; existing != nil {
		return s.volumeXML(existing), nil
	}
	if in.Zone == "" {
		return nil, clientError("MissingParameter", "The request must contain the parameter availabilityZone")
	}
	if s.network.zone(in.Zone) == nil {
		return nil, clientError("InvalidZone.NotFound", "The zone '%s' does not exist.", in.Zone)
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	if v.kind == "gp3" {
		v.iops, v.throughput = max(v.iops, 3000), max(v.throughput, 125)
	}
	v.file = filepath.Join(s.config.Directory, v.id)
	if err := v.resize(); err != nil {
		return nil, err
	}
	s.volumes[v.id] = v
	s.setTags(v.id, tags)
	if in.ClientToken != "" {
		s.tokens["CreateVolume "+in.ClientToken] = v.id
	}
	created := s.volumeXML(v)
	created.State = "creating" // and available by the time anybody asks again
	return created, nil
}

func volumeNotFound(id string) error {
	return clientError("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
}

// authorizedVolume finds the volume that a call is about and asks whether the
// caller may; the mutex is held.
func (s *Service) authorizedVolume(c *api.Call, id string) (*volume, error) {
	v := s.volumes[id]
	if v == nil {
		if err := c.Authorize(s.on(c, "volume", id, nil)); err != nil {
			return nil, err
		}
		return nil, volumeNotFound(id)
	}
	return v, c.Authorize(s.on(c, "volume", id, v.keys()))
}

type deleteVolumeInput struct {
	ID string `query:"VolumeId,required"`
}

func (s *Service) deleteVolume(_ context.Context, c *api.Call, in deleteVolumeInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.authorizedVolume(c, in.ID)
	if err != nil {
		return nil, err
	}
	if len(v.attachments) > 0 {
		return nil, clientError("VolumeInUse", "Volume %s is currently attached to %s", v.id, v.attachments[0].instance)
	}
	if err := os.Remove(v.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the volume's file: %w", err)
	}
	delete(s.volumes, v.id)
	delete(s.tags, v.id)
	return success{Return: true}, nil
}

type volumeXML struct {
	ID          string          `xml:"volumeId"`
	ARN         string          `xml:"volumeArn"`
	Type        string          `xml:"volumeType"`
	Size        int             `xml:"size"`
	IOPS        int             `xml:"iops,omitempty"`
	Throughput  int             `xml:"throughput,omitempty"`
	SnapshotID  string          `xml:"snapshotId"`
	Zone        string          `xml:"availabilityZone"`
	ZoneID      string          `xml:"availabilityZoneId"`
	State       string          `xml:"status"`
	CreateTime  string          `xml:"createTime"`
	MultiAttach bool            `xml:"multiAttachEnabled"`
	Encrypted   bool            `xml:"encrypted"`
	KMSKey      string          `xml:"kmsKeyId,omitempty"`
	Attachments []attachmentXML `xml:"attachmentSet>item"`
	Tags        []tag           `xml:"tagSet>item"`
}

func (s *Service) volumeXML(v *volume) volumeXML {
	x := volumeXML{
		ID: v.id, ARN: s.arn("volume", v.id), Type: v.kind, Size: v.size, IOPS: v.iops, Throughput: v.throughput, Zone: v.zone,
		ZoneID: s.network.zone(v.zone).zoneID, State: v.state(), CreateTime: timestamp(v.created), MultiAttach: v.multiAttach,
		Encrypted: v.encrypted, KMSKey: v.kmsKey, Tags: tagSet(s.tags[v.id]),
	}
	for _, each := range v.attachments {
		x.Attachments = append(x.Attachments, each.xml())
	}
	return x
}

type describeVolumesInput struct {
	IDs        []string `query:"VolumeId"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type describeVolumesOutput struct {
	Volumes   []volumeXML `xml:"volumeSet>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

func (s *Service) describeVolumes(_ context.Context, c *api.Call, in describeVolumesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	how := selection{in.Filters, in.MaxResults, in.NextToken}
	if err := noPagingByID(how, "volumeId", in.IDs); err != nil {
		return nil, err
	}
	id := func(v *volume) string { return v.id }
	selected, err := chosen(sorted(s.volumes), in.IDs, in.Filters, id, s.volumeAttributes, volumeNotFound)
	if err != nil {
		return nil, err
	}
	cut, next, err := page(how, 5, selected, id)
	out := describeVolumesOutput{NextToken: next}
	for _, each := range cut {
		out.Volumes = append(out.Volumes, s.volumeXML(each))
	}
	return out, err
}

func (s *Service) volumeAttributes(v *volume) attributes {
	found := attributes{
		"volume-id": {v.id}, "volume-type": {v.kind}, "availability-zone": {v.zone}, "status": {v.state()}, "size": {fmt.Sprint(v.size)},
		"multi-attach-enabled": {boolean(v.multiAttach)}, "encrypted": {boolean(v.encrypted)},
		"attachment.instance-id": nil, "attachment.device": nil, "attachment.status": nil,
	}
	for _, each := range v.attachments {
		found["attachment.instance-id"] = append(found["attachment.instance-id"], each.instance)
		found["attachment.device"] = append(found["attachment.device"], each.device)
		found["attachment.status"] = append(found["attachment.status"], each.state)
	}
	return found.withTags(s.tags[v.id])
}

type modifyVolumeInput struct {
	ID          string `query:"VolumeId,required"`
	Type        string `query:"VolumeType"`
	Size        *int
	IOPS        *int `query:"Iops"`
	Throughput  *int
	MultiAttach *bool `query:"MultiAttachEnabled"`
}

type volumeModification struct {
	VolumeID            string `xml:"volumeId"`
	State               string `xml:"modificationState"`
	Progress            int    `xml:"progress"`
	StartTime           string `xml:"startTime"`
	EndTime             string `xml:"endTime"`
	OriginalType        string `xml:"originalVolumeType"`
	OriginalSize        int    `xml:"originalSize"`
	OriginalIOPS        int    `xml:"originalIops"`
	OriginalMultiAttach bool   `xml:"originalMultiAttachEnabled"`
	TargetType          string `xml:"targetVolumeType"`
	TargetSize          int    `xml:"targetSize"`
	TargetIOPS          int    `xml:"targetIops"`
	TargetMultiAttach   bool   `xml:"targetMultiAttachEnabled"`
}

type modifyVolumeOutput struct {
	Modification *volumeModification `xml:"volumeModification"`
}

// A volume can be modified so often in a day:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVolume.html
const mostModifications = 4

// modifyVolume changes a volume at once: the modification is completed when
// the call returns.
func (s *Service) modifyVolume(_ context.Context, c *api.Call, in modifyVolumeInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.authorizedVolume(c, in.ID)
	if err != nil {
		return nil, err
	}
	changed := *v
	if in.Type != "" {
		changed.kind = in.Type
	}
	if in.Size != nil {
		changed.size = *in.Size
	}
	if in.IOPS != nil {
		changed.iops = *in.IOPS
	}
	if in.Throughput != nil {
		changed.throughput = *in.Throughput
	}
	if in.MultiAttach != nil {
		changed.multiAttach = *in.MultiAttach
	}
	switch {
	case changed.size < v.size:
		return nil, clientError("InvalidParameterValue", "New size cannot be smaller than existing size")
	case changed.multiAttach != v.multiAttach && v.kind != "io2":
		return nil, clientError("InvalidParameterValue", "Multi-Attach can be changed for io2 volumes only")
	case changed.multiAttach && !v.multiAttach && len(v.attachments) > 0, !changed.multiAttach && len(v.attachments) > 1:
		return nil, clientError("IncorrectState", "Volume %s is attached to %d instances", v.id, len(v.attachments))
	}
	if err := changed.check(); err != nil {
		return nil, err
	}
	now := time.Now()
	recent := 0
	for _, when := range v.modified {
		if now.Sub(when) < 24*time.Hour {
			recent++
		}
	}
	if recent >= mostModifications {
		return nil, clientError("VolumeModificationRateExceeded",
			"You've reached the maximum modification rate per volume limit: %d in 24 hours", mostModifications)
	}
	if err := changed.resize(); err != nil {
		return nil, err
	}
	changed.modified = append(changed.modified, now)
	changed.modification = &volumeModification{
		VolumeID: v.id, State: "completed", Progress: 100, StartTime: timestamp(now), EndTime: timestamp(now),
		OriginalType: v.kind, OriginalSize: v.size, OriginalIOPS: v.iops, OriginalMultiAttach: v.multiAttach,
		TargetType: changed.kind, TargetSize: changed.size, TargetIOPS: changed.iops, TargetMultiAttach: changed.multiAttach,
	}
	*v = changed
	return modifyVolumeOutput{v.modification}, nil
}

type describeVolumesModificationsOutput struct {
	Modifications []*volumeModification `xml:"volumeModificationSet>item"`
	NextToken     string                `xml:"nextToken,omitempty"`
}

func (s *Service) describeVolumesModifications(_ context.Context, c *api.Call, in describeVolumesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	var all []*volumeModification
	for _, each := range sorted(s.volumes) {
		if each.modification != nil {
			all = append(all, each.modification)
		}
	}
	id := func(m *volumeModification) string { return m.VolumeID }
	selected, err := chosen(all, in.IDs, in.Filters, id, func(m *volumeModification) attributes {
		return attributes{"volume-id": {m.VolumeID}, "modification-state": {m.State}}
	}, func(id string) error {
		return clientError("InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.", id)
	})
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 5, selected, id)
	return describeVolumesModificationsOutput{Modifications: cut, NextToken: next}, err
}
