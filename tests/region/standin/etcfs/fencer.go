package etcfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/cenkalti/backoff/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fencer fences peers whose lease ran out: the volume is detached from their
// instance, and when that is confirmed, their generation is raised, so that
// nothing of theirs is stored any more.
type fencer struct {
	etcd   *clientv3.Client
	ec2    *ec2.Client
	config metaConfig
	logger *slog.Logger
}

func newFencer(ctx context.Context, etcd *clientv3.Client, c metaConfig, logger *slog.Logger) (*fencer, error) {
	aws, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion()) // as the real one; nodes have no AWS_REGION
	if err != nil {
		return nil, fmt.Errorf("initialise EBS fencing on %s: %w", c.ebsVolumeID, err)
	}
	return &fencer{etcd, ec2.NewFromConfig(aws), c, logger}, nil
}

// run watches the membership keys.
func (f *fencer) run(ctx context.Context) {
	for response := range f.etcd.Watch(ctx, MembershipPrefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithFilterPut()) {
		for _, event := range response.Events {
			var member Member
			if event.PrevKv == nil || json.Unmarshal(event.PrevKv.Value, &member) != nil {
				continue
			}
			node := strings.TrimPrefix(string(event.Kv.Key), MembershipPrefix)
			if err := f.fence(ctx, node, member.InstanceID); err != nil && ctx.Err() == nil {
				f.logger.Error("fencing failed", "node", node, "error", err)
			}
		}
	}
}

// fence fences a node unless it left on purpose, came back, or is another
// peer's to fence.
func (f *fencer) fence(ctx context.Context, node, instanceID string) error {
	claim, err := f.etcd.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(departedPrefix+node), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(MembershipPrefix+node), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(claimPrefix+node), "=", 0),
	).Then(clientv3.OpPut(claimPrefix+node, f.config.nodeID)).Commit()
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if !claim.Succeeded {
		return nil
	}
	f.logger.Warn("fencing a node whose lease ran out", "node", node, "instance", instanceID)
	if instanceID != "" {
		if err := f.detach(ctx, instanceID); err != nil {
			return err
		}
	}
	response, err := f.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(MembershipPrefix+node), "=", 0)).
		Then(clientv3.OpPut(generationPrefix+node, f.config.nodeID)).Commit()
	if err != nil {
		return fmt.Errorf("raise the generation: %w", err)
	}
	if response.Succeeded {
		f.logger.Warn("fenced", "node", node)
	}
	return nil
}

// detach detaches the volume from an instance and waits until EC2 says so.
func (f *fencer) detach(ctx context.Context, instanceID string) error {
	_, err := f.ec2.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &f.config.ebsVolumeID, InstanceId: &instanceID, Force: aws.Bool(true)})
	var api smithy.APIError
	if err != nil && !errors.As(err, &api) {
		return fmt.Errorf("detach the volume: %w", err)
	}
	// An error of EC2 may mean that the volume is not attached there any more.
	refusal := err
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		volumes, err := f.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{f.config.ebsVolumeID}})
		if err != nil {
			return struct{}{}, err
		}
		for _, volume := range volumes.Volumes {
			for _, attachment := range volume.Attachments {
				if aws.ToString(attachment.InstanceId) == instanceID && attachment.State != types.VolumeAttachmentStateDetached {
					return struct{}{}, fmt.Errorf("it is %s to %s", attachment.State, instanceID)
				}
			}
		}
		return struct{}{}, nil
	}, backoff.WithMaxElapsedTime(time.Minute))
	if err != nil {
		return fmt.Errorf("confirm that the volume is detached: %w", errors.Join(err, refusal))
	}
	return nil
}
