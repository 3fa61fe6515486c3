package ec2

import (
	"context"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// snapshot is a snapshot of a volume, complete at once. The region keeps that
// it was made, not what is in it.
type snapshot struct {
	id, volume, description string
	size                    int
	encrypted               bool
	created                 time.Time
}

type createSnapshotInput struct {
	VolumeID       string `query:"VolumeId,required"`
	Description    string
	Specifications []tagSpecification `query:"TagSpecification"`
}

type snapshotXML struct {
	ID          string `xml:"snapshotId"`
	VolumeID    string `xml:"volumeId"`
	Status      string `xml:"status"`
	StartTime   string `xml:"startTime"`
	Progress    string `xml:"progress"`
	OwnerID     string `xml:"ownerId"`
	Size        int    `xml:"volumeSize"`
	Description string `xml:"description"`
	Encrypted   bool   `xml:"encrypted"`
	Tags        []tag  `xml:"tagSet>item"`
}

func (s *Service) snapshotXML(of *snapshot) snapshotXML {
	return snapshotXML{
		ID: of.id, VolumeID: of.volume, Status: "completed", StartTime: timestamp(of.created), Progress: "100%", OwnerID: s.config.AccountID,
		Size: of.size, Description: of.description, Encrypted: of.encrypted, Tags: tagSet(s.tags[of.id]),
	}
}

func (s *Service) createSnapshot(_ context.Context, c *api.Call, in createSnapshotInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags, err := tagsFor("snapshot", in.Specifications)
	if err != nil {
		return nil, err
	}
	v, err := s.authorizedVolume(c, in.VolumeID)
	if err != nil {
		return nil, err
	}
	if err := s.authorizeCreate(c, "snapshot", tags, keys{}); err != nil {
		return nil, err
	}
	made := &snapshot{id: newID("snap"), volume: v.id, description: in.Description, size: v.size, encrypted: v.encrypted, created: time.Now()}
	s.snapshots[made.id] = made
	s.setTags(made.id, tags)
	return s.snapshotXML(made), nil
}

type describeSnapshotsInput struct {
	IDs        []string `query:"SnapshotId"`
	Filters    []filter `query:"Filter"`
	Owners     []string `query:"Owner"` // there are no others
	MaxResults int
	NextToken  string
}

type describeSnapshotsOutput struct {
	Snapshots []snapshotXML `xml:"snapshotSet>item"`
	NextToken string        `xml:"nextToken,omitempty"`
}

func snapshotNotFound(id string) error {
	return clientError("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
}

func (s *Service) describeSnapshots(_ context.Context, c *api.Call, in describeSnapshotsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	how := selection{in.Filters, in.MaxResults, in.NextToken}
	if err := noPagingByID(how, "snapshotId", in.IDs); err != nil {
		return nil, err
	}
	id := func(of *snapshot) string { return of.id }
	selected, err := chosen(sorted(s.snapshots), in.IDs, in.Filters, id, func(of *snapshot) attributes {
		return attributes{"volume-id": {of.volume}, "status": {"completed"}}.withTags(s.tags[of.id])
	}, snapshotNotFound)
	if err != nil {
		return nil, err
	}
	cut, next, err := page(how, 5, selected, id)
	out := describeSnapshotsOutput{NextToken: next}
	for _, each := range cut {
		out.Snapshots = append(out.Snapshots, s.snapshotXML(each))
	}
	return out, err
}

type deleteSnapshotInput struct {
	ID string `query:"SnapshotId,required"`
}

func (s *Service) deleteSnapshot(_ context.Context, c *api.Call, in deleteSnapshotInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.Authorize(s.on(c, "snapshot", in.ID, nil)); err != nil {
		return nil, err
	}
	if s.snapshots[in.ID] == nil {
		return nil, snapshotNotFound(in.ID)
	}
	delete(s.snapshots, in.ID)
	delete(s.tags, in.ID)
	return success{Return: true}, nil
}
