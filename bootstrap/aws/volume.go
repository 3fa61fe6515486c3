package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// volumeAPI are the calls that [Volume] makes.
type volumeAPI interface {
	AttachVolume(context.Context, *ec2.AttachVolumeInput, ...func(*ec2.Options)) (*ec2.AttachVolumeOutput, error)
	DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error)
}

var _ volumeAPI = (*ec2.Client)(nil)

// Volume is the shared volume as EC2 sees it.
type Volume struct {
	API    volumeAPI
	ID     string
	Logger *slog.Logger

	// Patience is with a role and a volume that are new.
	Patience Patience
}

// ErrAttaching says that the volume is not attached yet, and that asking again
// will help.
var ErrAttaching = errors.New("not attached yet")

// RefusedError says why the volume cannot be attached to this instance, in
// words that name the remedy.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// Attachment is one instance's hold on the volume.
type Attachment struct {
	InstanceID string
	// State is attaching, attached, detaching, detached or busy.
	State string
}

// Attachments lists who holds the volume.
func (v *Volume) Attachments(ctx context.Context) ([]Attachment, error) {
	volume, err := v.describe(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Attachment, len(volume.Attachments))
	for i, a := range volume.Attachments {
		list[i] = Attachment{InstanceID: aws.ToString(a.InstanceId), State: string(a.State)}
	}
	return list, nil
}

// Attached says whether an instance has the volume. What decides is the
// instance's own entry among the attachments: the volume as a whole is in-use
// as soon as any instance has it.
func (v *Volume) Attached(ctx context.Context, instanceID string) (bool, error) {
	volume, err := v.describe(ctx)
	if err != nil {
		return false, err
	}
	return stateFor(volume, instanceID) == types.VolumeAttachmentStateAttached, nil
}

// Attach brings the volume one step closer to an instance: it looks at what is
// there, calls AttachVolume when that is what is missing, and returns nil once
// the volume is attached. Otherwise the error is [ErrAttaching], or one after
// which it should be called again too, unless it wraps a *[RefusedError].
//
// It has to look first each time, because AttachVolume takes no client token: a
// call whose answer was lost may have attached the volume.
func (v *Volume) Attach(ctx context.Context, instanceID, zone string) error {
	volume, err := v.describe(ctx)
	if err != nil {
		return v.judge(err)
	}
	switch state := stateFor(volume, instanceID); state {
	case types.VolumeAttachmentStateAttached:
		return nil
	case types.VolumeAttachmentStateAttaching, types.VolumeAttachmentStateDetaching, types.VolumeAttachmentStateBusy:
		return fmt.Errorf("%w: the attachment is %s", ErrAttaching, state)
	}
	if err := v.attachable(volume, zone); err != nil {
		return err
	}

	devices, err := v.freeDevices(ctx, instanceID)
	if err != nil {
		return v.judge(err)
	}
	for _, device := range devices {
		_, err = v.API.AttachVolume(ctx, &ec2.AttachVolumeInput{
			VolumeId:   aws.String(v.ID),
			InstanceId: aws.String(instanceID),
			Device:     aws.String(device),
		})
		if !deviceTaken(err) {
			break
		}
		// Something holds the name that the attachments do not show, such as a
		// volume of the image.
		v.Logger.Info("device name is taken, trying the next", "device", device)
	}
	if err != nil {
		return v.judge(err)
	}
	v.Logger.Info("asked EC2 to attach the volume", "volume", v.ID)
	return ErrAttaching
}

// attachable says what keeps the volume from being attached by anybody else.
func (v *Volume) attachable(volume types.Volume, zone string) error {
	switch volume.State {
	case types.VolumeStateDeleting, types.VolumeStateDeleted, types.VolumeStateError:
		return &RefusedError{fmt.Sprintf("volume %s is in state %s", v.ID, volume.State)}
	case types.VolumeStateCreating:
		return fmt.Errorf("%w: the volume is still being created", ErrAttaching)
	}
	if at := aws.ToString(volume.AvailabilityZone); at != "" && zone != "" && at != zone {
		return &RefusedError{fmt.Sprintf("volume %s is in %s and this instance in %s: a volume can be attached in its own zone only", v.ID, at, zone)}
	}
	if len(volume.Attachments) == 0 {
		return nil
	}
	if !aws.ToBool(volume.MultiAttachEnabled) {
		return &RefusedError{fmt.Sprintf("volume %s is attached to %s and does not have Multi-Attach enabled, so no second node can use it", v.ID, aws.ToString(volume.Attachments[0].InstanceId))}
	}
	if len(volume.Attachments) >= settings.MaxNodes {
		// Instances on their way out hold their attachments to the end.
		return fmt.Errorf("%w: all %d attachments of the volume are taken", ErrAttaching, settings.MaxNodes)
	}
	return nil
}

// judge turns an error of EC2 into one that says whether to go on.
func (v *Volume) judge(err error) error {
	switch {
	case errors.Is(err, ErrAttaching):
		return err
	case Code(err) == "AttachmentLimitExceeded":
		return &RefusedError{fmt.Sprintf("this instance type has no room for another volume: %v", err)}
	case v.Patience.Over(err):
		return &RefusedError{err.Error()}
	}
	return err
}

func (v *Volume) describe(ctx context.Context) (types.Volume, error) {
	out, err := v.API.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{v.ID}})
	if err != nil {
		return types.Volume{}, fmt.Errorf("describe volume %s: %w", v.ID, err)
	}
	if len(out.Volumes) != 1 {
		return types.Volume{}, fmt.Errorf("describe volume %s: %w: %d volumes in the answer", v.ID, ErrAttaching, len(out.Volumes))
	}
	return out.Volumes[0], nil
}

// freeDevices are the names that AWS recommends for data volumes, /dev/sdf to
// /dev/sdp, without those that this instance uses. The kernel does not use
// them on Nitro instances, but EC2 wants one that is unique in the instance:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/device_naming.html
func (v *Volume) freeDevices(ctx context.Context, instanceID string) ([]string, error) {
	used := map[string]bool{}
	pages := ec2.NewDescribeVolumesPaginator(v.API, &ec2.DescribeVolumesInput{
		Filters: []types.Filter{{Name: aws.String("attachment.instance-id"), Values: []string{instanceID}}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the volumes of %s: %w", instanceID, err)
		}
		for _, volume := range page.Volumes {
			for _, a := range volume.Attachments {
				if aws.ToString(a.InstanceId) == instanceID {
					used[aws.ToString(a.Device)] = true
				}
			}
		}
	}
	var free []string
	for letter := 'f'; letter <= 'p'; letter++ {
		if device := "/dev/sd" + string(letter); !used[device] {
			free = append(free, device)
		}
	}
	if free == nil {
		return nil, &RefusedError{"every device name from /dev/sdf to /dev/sdp is in use on this instance"}
	}
	return free, nil
}

// deviceTaken recognises the refusal of a device name. Its code is that of any
// wrong parameter.
func deviceTaken(err error) bool {
	return Code(err) == "InvalidParameterValue" && strings.Contains(err.Error(), "already in use")
}

func stateFor(volume types.Volume, instanceID string) types.VolumeAttachmentState {
	i := slices.IndexFunc(volume.Attachments, func(a types.VolumeAttachment) bool {
		return aws.ToString(a.InstanceId) == instanceID
	})
	if i < 0 {
		return types.VolumeAttachmentStateDetached
	}
	return volume.Attachments[i].State
}
