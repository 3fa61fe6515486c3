package awsplugin

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/uuid"
)

type volume struct {
	ARN                string            `pulumi:"arn" aws:"output"`
	AvailabilityZone   string            `pulumi:"availabilityZone" aws:"required,replace"`
	CreateTime         string            `pulumi:"createTime" aws:"output"`
	Encrypted          bool              `pulumi:"encrypted" aws:"computed,replace"`
	FinalSnapshot      bool              `pulumi:"finalSnapshot"`
	IOPS               int               `pulumi:"iops" aws:"computed"`
	KMSKeyID           string            `pulumi:"kmsKeyId" aws:"computed,replace"`
	MultiAttachEnabled bool              `pulumi:"multiAttachEnabled" aws:"replace"`
	Size               int               `pulumi:"size" aws:"computed"`
	SnapshotID         string            `pulumi:"snapshotId" aws:"computed,replace"`
	Tags               map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll            map[string]string `pulumi:"tagsAll" aws:"output"`
	Throughput         int               `pulumi:"throughput" aws:"computed"`
	Type               string            `pulumi:"type" aws:"computed"`
}

const (
	volumeCreateTimeout = 5 * time.Minute
	volumeUpdateTimeout = 5 * time.Minute
	volumeDeleteTimeout = 10 * time.Minute
)

var volumeHandler = handler[volume]{
	create: func(ctx context.Context, c *cloud, v *volume) (string, error) {
		created, err := c.ec2.CreateVolume(ctx, &ec2.CreateVolumeInput{
			AvailabilityZone:   aws.String(v.AvailabilityZone),
			ClientToken:        aws.String(uuid.NewString()),
			Encrypted:          optional(v.Encrypted),
			Iops:               optional(int32(v.IOPS)),
			KmsKeyId:           optional(v.KMSKeyID),
			MultiAttachEnabled: optional(v.MultiAttachEnabled),
			Size:               optional(int32(v.Size)),
			SnapshotId:         optional(v.SnapshotID),
			TagSpecifications:  ec2TagSpecification(types.ResourceTypeVolume, v.TagsAll),
			Throughput:         optional(int32(v.Throughput)),
			VolumeType:         types.VolumeType(v.Type),
		})
		if err != nil {
			return "", fmt.Errorf("creating EBS Volume: %w", err)
		}
		id := aws.ToString(created.VolumeId)
		err = poll(ctx, volumeCreateTimeout, "state to become 'available'", func(ctx context.Context) (bool, string, error) {
			found, err := findVolume(ctx, c, id)
			if err != nil {
				return false, "", err
			}
			return found.State == types.VolumeStateAvailable, string(found.State), nil
		})
		if err != nil {
			return id, fmt.Errorf("waiting for EBS Volume (%s) create: %w", id, err)
		}
		return id, nil
	},
	read: func(ctx context.Context, c *cloud, id string, v *volume) error {
		found, err := findVolume(ctx, c, id)
		if err != nil {
			return err
		}
		v.ARN = c.ec2ARN("volume/" + id)
		v.AvailabilityZone = aws.ToString(found.AvailabilityZone)
		v.CreateTime = timestamp(found.CreateTime)
		v.Encrypted = aws.ToBool(found.Encrypted)
		v.IOPS = int(aws.ToInt32(found.Iops))
		v.KMSKeyID = aws.ToString(found.KmsKeyId)
		v.MultiAttachEnabled = aws.ToBool(found.MultiAttachEnabled)
		v.Size = int(aws.ToInt32(found.Size))
		v.SnapshotID = aws.ToString(found.SnapshotId)
		v.Throughput = int(aws.ToInt32(found.Throughput))
		v.Type = string(found.VolumeType)
		v.TagsAll = ec2Tags(found.Tags)
		v.Tags = c.ownTags(v.TagsAll, v.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, v *volume, changed set) error {
		if changed.any("iops", "size", "throughput", "type") {
			input := &ec2.ModifyVolumeInput{VolumeId: aws.String(id), VolumeType: types.VolumeType(v.Type)}
			if changed["size"] {
				input.Size = aws.Int32(int32(v.Size))
			}
			if changed["iops"] {
				input.Iops = aws.Int32(int32(v.IOPS))
			}
			if changed["throughput"] {
				input.Throughput = aws.Int32(int32(v.Throughput))
			}
			if _, err := c.ec2.ModifyVolume(ctx, input); err != nil {
				return fmt.Errorf("modifying EBS Volume (%s): %w", id, err)
			}
			if err := waitVolumeModified(ctx, c, id); err != nil {
				return fmt.Errorf("waiting for EBS Volume (%s) update: %w", id, err)
			}
		}
		return ec2UpdateTags(ctx, c, id, old.TagsAll, v.TagsAll)
	},
	delete: func(ctx context.Context, c *cloud, id string, v *volume) error {
		if v.FinalSnapshot {
			_, err := c.ec2.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{
				VolumeId:          aws.String(id),
				TagSpecifications: ec2TagSpecification(types.ResourceTypeSnapshot, v.TagsAll),
			})
			if err != nil {
				return fmt.Errorf("creating EBS Snapshot (%s): %w", id, err)
			}
		}
		// A volume stays in use for a while after its instances were told to go.
		err := retry(ctx, volumeDeleteTimeout, func(ctx context.Context) error {
			_, err := c.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: aws.String(id)})
			return err
		}, "VolumeInUse")
		if hasCode(err, "InvalidVolume.NotFound") {
			return nil
		}
		if err != nil {
			return fmt.Errorf("deleting EBS Volume (%s): %w", id, err)
		}
		if err := waitGone(ctx, volumeDeleteTimeout, func(ctx context.Context) error {
			_, err := findVolume(ctx, c, id)
			return err
		}); err != nil {
			return fmt.Errorf("waiting for EBS Volume (%s) delete: %w", id, err)
		}
		return nil
	},
}

func findVolume(ctx context.Context, c *cloud, id string) (types.Volume, error) {
	described, err := c.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if err != nil {
		return types.Volume{}, missing(err, "InvalidVolume.NotFound")
	}
	if len(described.Volumes) == 0 || described.Volumes[0].State == types.VolumeState("deleted") {
		return types.Volume{}, errNotFound
	}
	return described.Volumes[0], nil
}

func waitVolumeModified(ctx context.Context, c *cloud, id string) error {
	return poll(ctx, volumeUpdateTimeout, "state to become 'completed, optimizing'", func(ctx context.Context) (bool, string, error) {
		described, err := c.ec2.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{id}})
		if err != nil {
			return false, "", err
		}
		if len(described.VolumesModifications) == 0 {
			return false, "no modification", nil
		}
		last := described.VolumesModifications[0]
		switch last.ModificationState {
		case types.VolumeModificationStateCompleted, types.VolumeModificationStateOptimizing:
			return true, "", nil
		case types.VolumeModificationStateFailed:
			return false, "", fmt.Errorf("modification failed: %s", aws.ToString(last.StatusMessage))
		default:
			return false, string(last.ModificationState), nil
		}
	})
}
