package asg

import (
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

// artifacts is the programs that the cluster runs on, and where new nodes get
// theirs from.
type artifacts struct {
	programs artifact.Set
	bucket   *s3.BucketV2
	object   *s3.BucketObjectv2
}

// objectKey names the bootstrap binary by what is in it, so that a changed
// binary is a changed launch template, and an object is never overwritten under
// nodes that are about to fetch it.
func objectKey(sha256 string) string { return artifact.BootstrapName + "-" + sha256 }

func (b *builder) artifacts(bundle artifact.Bundle) (artifacts, error) {
	programs, err := bundle.Load(b.ctx.Context(), func(message string) {
		// A message that cannot be shown is no reason to stop.
		_ = b.ctx.Log.Info(message, &pulumi.LogArgs{Resource: b.cluster})
	})
	if err != nil {
		return artifacts{}, fmt.Errorf("prepare the node's programs: %w", err)
	}

	bucket, err := s3.NewBucketV2(b.ctx, b.child("artifacts"), &s3.BucketV2Args{
		BucketPrefix: b.namePrefix("etcfs-", "-", maxBucketPrefix),
		// It holds nothing that the plugin could not upload again.
		ForceDestroy: pulumi.Bool(true),
		Tags:         b.tags(),
	}, b.parent())
	if err != nil {
		return artifacts{}, fmt.Errorf("declare the bucket: %w", err)
	}
	private, err := s3.NewBucketPublicAccessBlock(b.ctx, b.child("artifacts-private"), &s3.BucketPublicAccessBlockArgs{
		Bucket:                bucket.Bucket,
		BlockPublicAcls:       pulumi.Bool(true),
		BlockPublicPolicy:     pulumi.Bool(true),
		IgnorePublicAcls:      pulumi.Bool(true),
		RestrictPublicBuckets: pulumi.Bool(true),
	}, b.parent())
	if err != nil {
		return artifacts{}, fmt.Errorf("declare the bucket's public access block: %w", err)
	}
	encryption, err := s3.NewBucketServerSideEncryptionConfigurationV2(b.ctx, b.child("artifacts-encryption"), &s3.BucketServerSideEncryptionConfigurationV2Args{
		Bucket: bucket.Bucket,
		Rules: s3.BucketServerSideEncryptionConfigurationV2RuleArray{s3.BucketServerSideEncryptionConfigurationV2RuleArgs{
			ApplyServerSideEncryptionByDefault: s3.BucketServerSideEncryptionConfigurationV2RuleApplyServerSideEncryptionByDefaultArgs{
				SseAlgorithm: pulumi.String("AES256"),
			},
		}},
	}, b.parent())
	if err != nil {
		return artifacts{}, fmt.Errorf("declare the bucket's encryption: %w", err)
	}

	// An object takes ten tags at most, fewer than a user may give: it has none.
	object, err := s3.NewBucketObjectv2(b.ctx, b.child("bootstrap"), &s3.BucketObjectv2Args{
		Bucket: bucket.Bucket,
		Key:    pulumi.String(objectKey(programs.Bootstrap.SHA256)),
		Source: pulumi.NewFileAsset(programs.Bootstrap.Path),
	}, b.parent(), pulumi.DependsOn([]pulumi.Resource{private, encryption}))
	if err != nil {
		return artifacts{}, fmt.Errorf("declare the bootstrap object: %w", err)
	}
	return artifacts{programs, bucket, object}, nil
}

// The longest prefixes that leave room for the 26 characters which are added
// to make a name unique.
const (
	maxBucketPrefix = 63 - 26
	maxRolePrefix   = 64 - 26
)

// namePrefix is the cluster's name between two others, cut to fit. It is for
// names that are unique in more than the Region: the same cluster name must
// work in two.
func (b *builder) namePrefix(before, after string, limit int) pulumi.StringOutput {
	return b.in.clusterName.ApplyT(func(name string) string {
		return before + name[:min(len(name), limit-len(before)-len(after))] + after
	}).(pulumi.StringOutput)
}
