package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func TestSnapshotsOutliveTheirVolume(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		volume := w.newVolume(func(in *sdk.CreateVolumeInput) { in.Encrypted = aws.Bool(true) })
		made := do[*sdk.CreateSnapshotOutput](w)(w.client.CreateSnapshot(w.Context(), &sdk.CreateSnapshotInput{
			VolumeId: aws.String(volume), Description: aws.String("last"),
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSnapshot, Tags: []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}}}},
		}))
		do[*sdk.DeleteVolumeOutput](w)(w.client.DeleteVolume(w.Context(), &sdk.DeleteVolumeInput{VolumeId: aws.String(volume)}))
		found := do[*sdk.DescribeSnapshotsOutput](w)(w.client.DescribeSnapshots(w.Context(), &sdk.DescribeSnapshotsInput{
			OwnerIds: []string{"self"}, Filters: []types.Filter{{Name: aws.String("tag:ClusterName"), Values: []string{"demo"}}},
		})).Snapshots
		if len(found) != 1 || *found[0].SnapshotId != *made.SnapshotId || *found[0].VolumeId != volume || *found[0].VolumeSize != 4 ||
			!*found[0].Encrypted || found[0].State != types.SnapshotStateCompleted {
			t.Errorf("got snapshots %+v, want the one of the volume", found)
		}
		do[*sdk.DeleteSnapshotOutput](w)(w.client.DeleteSnapshot(w.Context(), &sdk.DeleteSnapshotInput{SnapshotId: made.SnapshotId}))
		_, err := w.client.DescribeSnapshots(w.Context(), &sdk.DescribeSnapshotsInput{SnapshotIds: []string{*made.SnapshotId}})
		w.wantCode("describe a deleted snapshot", err, "InvalidSnapshot.NotFound")
		_, err = w.client.CreateSnapshot(w.Context(), &sdk.CreateSnapshotInput{VolumeId: aws.String(volume)})
		w.wantCode("of a deleted volume", err, "InvalidVolume.NotFound")
	})
}
