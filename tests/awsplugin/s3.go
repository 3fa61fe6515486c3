package awsplugin

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"mime"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

type bucket struct {
	ARN                      string            `pulumi:"arn" aws:"output"`
	Bucket                   string            `pulumi:"bucket" aws:"computed,replace"`
	BucketDomainName         string            `pulumi:"bucketDomainName" aws:"output"`
	BucketPrefix             string            `pulumi:"bucketPrefix" aws:"computed,replace"`
	BucketRegionalDomainName string            `pulumi:"bucketRegionalDomainName" aws:"output"`
	ForceDestroy             bool              `pulumi:"forceDestroy" aws:"default=false"`
	Region                   string            `pulumi:"region" aws:"output"`
	Tags                     map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll                  map[string]string `pulumi:"tagsAll" aws:"output"`
}

const (
	bucketDeleteTimeout = time.Minute
	noSuchBucket        = "NoSuchBucket"
)

var bucketHandler = handler[bucket]{
	naming: naming{property: "bucket", max: 63, lower: true},
	create: func(ctx context.Context, c *cloud, b *bucket) (string, error) {
		input := &s3.CreateBucketInput{Bucket: aws.String(b.Bucket)}
		if c.region != "us-east-1" {
			input.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(c.region)}
		}
		if _, err := c.s3.CreateBucket(ctx, input); err != nil {
			return "", fmt.Errorf("creating S3 Bucket (%s): %w", b.Bucket, err)
		}
		return b.Bucket, putBucketTags(ctx, c, b.Bucket, b.TagsAll)
	},
	read: func(ctx context.Context, c *cloud, id string, b *bucket) error {
		if _, err := c.s3.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(id)}); err != nil {
			return missing(err, "NotFound", noSuchBucket)
		}
		b.ARN = fmt.Sprintf("arn:%s:s3:::%s", c.partition, id)
		b.Bucket = id
		b.BucketDomainName = fmt.Sprintf("%s.s3.%s", id, c.dnsSuffix)
		b.BucketRegionalDomainName = fmt.Sprintf("%s.s3.%s.%s", id, c.region, c.dnsSuffix)
		b.Region = c.region
		tags, err := c.s3.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: aws.String(id)})
		switch {
		case hasCode(err, "NoSuchTagSet"):
			b.TagsAll = nil
		case err != nil:
			return fmt.Errorf("listing tags for S3 Bucket (%s): %w", id, err)
		default:
			b.TagsAll = tagMap(tags.TagSet, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
		}
		b.Tags = c.ownTags(b.TagsAll, b.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, _, b *bucket, changed set) error {
		if changed.any("tags", "tagsAll") {
			return putBucketTags(ctx, c, id, b.TagsAll)
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, b *bucket) error {
		remove := func(ctx context.Context) error {
			_, err := c.s3.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: aws.String(id)})
			return ifPresent(err, noSuchBucket)
		}
		err := remove(ctx)
		if hasCode(err, "BucketNotEmpty") && b.ForceDestroy {
			if err := emptyBucket(ctx, c, id); err != nil {
				return fmt.Errorf("emptying S3 Bucket (%s): %w", id, err)
			}
			err = retry(ctx, bucketDeleteTimeout, remove, "BucketNotEmpty")
		}
		if err != nil {
			return fmt.Errorf("deleting S3 Bucket (%s): %w", id, err)
		}
		return nil
	},
}

func putBucketTags(ctx context.Context, c *cloud, name string, tags map[string]string) error {
	var err error
	if len(tags) == 0 {
		_, err = c.s3.DeleteBucketTagging(ctx, &s3.DeleteBucketTaggingInput{Bucket: aws.String(name)})
		err = ifPresent(err, "NoSuchTagSet")
	} else {
		_, err = c.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{
			Bucket: aws.String(name), Tagging: &types.Tagging{TagSet: tagList(tags, s3Tag)},
		})
	}
	if err != nil {
		return fmt.Errorf("setting S3 Bucket (%s) tags: %w", name, err)
	}
	return nil
}

func emptyBucket(ctx context.Context, c *cloud, name string) error {
	pages := s3.NewListObjectsV2Paginator(c.s3, &s3.ListObjectsV2Input{Bucket: aws.String(name)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, object := range page.Contents {
			if _, err := c.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(name), Key: object.Key}); err != nil {
				return err
			}
		}
	}
	return nil
}

func s3Tag(key, value string) types.Tag {
	return types.Tag{Key: aws.String(key), Value: aws.String(value)}
}

type publicAccessBlock struct {
	BlockPublicACLs       bool   `pulumi:"blockPublicAcls" aws:"default=false"`
	BlockPublicPolicy     bool   `pulumi:"blockPublicPolicy" aws:"default=false"`
	Bucket                string `pulumi:"bucket" aws:"required,replace"`
	IgnorePublicACLs      bool   `pulumi:"ignorePublicAcls" aws:"default=false"`
	RestrictPublicBuckets bool   `pulumi:"restrictPublicBuckets" aws:"default=false"`
}

var publicAccessBlockHandler = handler[publicAccessBlock]{
	create: func(ctx context.Context, c *cloud, b *publicAccessBlock) (string, error) {
		if err := putPublicAccessBlock(ctx, c, b); err != nil {
			return "", err
		}
		return b.Bucket, nil
	},
	read: func(ctx context.Context, c *cloud, id string, b *publicAccessBlock) error {
		got, err := c.s3.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: aws.String(id)})
		if err != nil {
			return missing(err, "NoSuchPublicAccessBlockConfiguration", noSuchBucket)
		}
		found := got.PublicAccessBlockConfiguration
		b.BlockPublicACLs = aws.ToBool(found.BlockPublicAcls)
		b.BlockPublicPolicy = aws.ToBool(found.BlockPublicPolicy)
		b.Bucket = id
		b.IgnorePublicACLs = aws.ToBool(found.IgnorePublicAcls)
		b.RestrictPublicBuckets = aws.ToBool(found.RestrictPublicBuckets)
		return nil
	},
	update: func(ctx context.Context, c *cloud, _ string, _, b *publicAccessBlock, _ set) error {
		return putPublicAccessBlock(ctx, c, b)
	},
	delete: func(ctx context.Context, c *cloud, id string, _ *publicAccessBlock) error {
		_, err := c.s3.DeletePublicAccessBlock(ctx, &s3.DeletePublicAccessBlockInput{Bucket: aws.String(id)})
		if err = ifPresent(err, "NoSuchPublicAccessBlockConfiguration", noSuchBucket); err != nil {
			return fmt.Errorf("deleting S3 Bucket Public Access Block (%s): %w", id, err)
		}
		return nil
	},
}

func putPublicAccessBlock(ctx context.Context, c *cloud, b *publicAccessBlock) error {
	_, err := c.s3.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{
		Bucket: aws.String(b.Bucket),
		PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{
			BlockPublicAcls:       aws.Bool(b.BlockPublicACLs),
			BlockPublicPolicy:     aws.Bool(b.BlockPublicPolicy),
			IgnorePublicAcls:      aws.Bool(b.IgnorePublicACLs),
			RestrictPublicBuckets: aws.Bool(b.RestrictPublicBuckets),
		},
	})
	if err != nil {
		return fmt.Errorf("putting S3 Bucket (%s) Public Access Block: %w", b.Bucket, err)
	}
	return nil
}

type bucketEncryption struct {
	Bucket string                 `pulumi:"bucket" aws:"required,replace"`
	Rules  []bucketEncryptionRule `pulumi:"rules" aws:"required,set"`
}

type bucketEncryptionRule struct {
	Default          *bucketEncryptionDefault `pulumi:"applyServerSideEncryptionByDefault"`
	BucketKeyEnabled bool                     `pulumi:"bucketKeyEnabled"`
}

type bucketEncryptionDefault struct {
	KMSMasterKeyID string `pulumi:"kmsMasterKeyId"`
	SSEAlgorithm   string `pulumi:"sseAlgorithm" aws:"required"`
}

var bucketEncryptionHandler = handler[bucketEncryption]{
	create: func(ctx context.Context, c *cloud, e *bucketEncryption) (string, error) {
		if err := putBucketEncryption(ctx, c, e); err != nil {
			return "", err
		}
		return e.Bucket, nil
	},
	read: func(ctx context.Context, c *cloud, id string, e *bucketEncryption) error {
		got, err := c.s3.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: aws.String(id)})
		if err != nil {
			return missing(err, "ServerSideEncryptionConfigurationNotFoundError", noSuchBucket)
		}
		e.Bucket = id
		e.Rules = nil
		for _, r := range got.ServerSideEncryptionConfiguration.Rules {
			rule := bucketEncryptionRule{BucketKeyEnabled: aws.ToBool(r.BucketKeyEnabled)}
			if d := r.ApplyServerSideEncryptionByDefault; d != nil {
				rule.Default = &bucketEncryptionDefault{KMSMasterKeyID: aws.ToString(d.KMSMasterKeyID), SSEAlgorithm: string(d.SSEAlgorithm)}
			}
			e.Rules = append(e.Rules, rule)
		}
		return nil
	},
	update: func(ctx context.Context, c *cloud, _ string, _, e *bucketEncryption, changed set) error {
		if !changed["rules"] {
			return nil
		}
		return putBucketEncryption(ctx, c, e)
	},
	delete: func(ctx context.Context, c *cloud, id string, _ *bucketEncryption) error {
		_, err := c.s3.DeleteBucketEncryption(ctx, &s3.DeleteBucketEncryptionInput{Bucket: aws.String(id)})
		if err = ifPresent(err, "ServerSideEncryptionConfigurationNotFoundError", noSuchBucket); err != nil {
			return fmt.Errorf("deleting S3 Bucket Server-side Encryption Configuration (%s): %w", id, err)
		}
		return nil
	},
}

func putBucketEncryption(ctx context.Context, c *cloud, e *bucketEncryption) error {
	configuration := &types.ServerSideEncryptionConfiguration{}
	for _, r := range e.Rules {
		rule := types.ServerSideEncryptionRule{BucketKeyEnabled: aws.Bool(r.BucketKeyEnabled)}
		if r.Default != nil {
			rule.ApplyServerSideEncryptionByDefault = &types.ServerSideEncryptionByDefault{
				KMSMasterKeyID: optional(r.Default.KMSMasterKeyID), SSEAlgorithm: types.ServerSideEncryption(r.Default.SSEAlgorithm),
			}
		}
		configuration.Rules = append(configuration.Rules, rule)
	}
	_, err := c.s3.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{
		Bucket: aws.String(e.Bucket), ServerSideEncryptionConfiguration: configuration,
	})
	if err != nil {
		return fmt.Errorf("creating S3 Bucket (%s) Server-side Encryption Configuration: %w", e.Bucket, err)
	}
	return nil
}

type bucketObject struct {
	ARN                  string            `pulumi:"arn" aws:"output"`
	Bucket               string            `pulumi:"bucket" aws:"required,replace"`
	CacheControl         string            `pulumi:"cacheControl"`
	Content              string            `pulumi:"content"`
	ContentBase64        string            `pulumi:"contentBase64"`
	ContentType          string            `pulumi:"contentType" aws:"computed"`
	ETag                 string            `pulumi:"etag" aws:"computed"`
	ForceDestroy         bool              `pulumi:"forceDestroy" aws:"default=false"`
	Key                  string            `pulumi:"key" aws:"replace"`
	Metadata             map[string]string `pulumi:"metadata"`
	ServerSideEncryption string            `pulumi:"serverSideEncryption" aws:"computed"`
	Source               property.Asset    `pulumi:"source"`
	SourceHash           string            `pulumi:"sourceHash"`
	StorageClass         string            `pulumi:"storageClass" aws:"computed"`
	Tags                 map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll              map[string]string `pulumi:"tagsAll" aws:"output"`
	VersionID            string            `pulumi:"versionId" aws:"output"`
}

var bucketObjectHandler = handler[bucketObject]{
	naming: naming{property: "key", max: 1024},
	create: func(ctx context.Context, c *cloud, o *bucketObject) (string, error) {
		if err := putObject(ctx, c, o); err != nil {
			return "", err
		}
		return o.Key, nil
	},
	read: func(ctx context.Context, c *cloud, _ string, o *bucketObject) error {
		head, err := c.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: aws.String(o.Bucket), Key: aws.String(o.Key)})
		if err != nil {
			return missing(err, "NotFound", "NoSuchKey", noSuchBucket)
		}
		o.ARN = fmt.Sprintf("arn:%s:s3:::%s/%s", c.partition, o.Bucket, o.Key)
		o.CacheControl = aws.ToString(head.CacheControl)
		o.ContentType = aws.ToString(head.ContentType)
		o.ETag = strings.Trim(aws.ToString(head.ETag), `"`)
		o.Metadata = head.Metadata
		o.ServerSideEncryption = string(head.ServerSideEncryption)
		o.StorageClass = string(head.StorageClass)
		if o.StorageClass == "" { // S3 leaves the standard class out
			o.StorageClass = string(types.StorageClassStandard)
		}
		o.VersionID = aws.ToString(head.VersionId)
		tags, err := c.s3.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: aws.String(o.Bucket), Key: aws.String(o.Key)})
		if err != nil {
			return fmt.Errorf("listing tags for S3 Bucket (%s) Object (%s): %w", o.Bucket, o.Key, err)
		}
		o.TagsAll = tagMap(tags.TagSet, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
		o.Tags = c.ownTags(o.TagsAll, o.Tags)
		return nil
	},
	renewed: func(_ *bucketObject, changed set) []string {
		if changed.any("content", "contentBase64", "etag", "source", "sourceHash") {
			return []string{"etag", "versionId"}
		}
		return nil
	},
	update: func(ctx context.Context, c *cloud, _ string, _, o *bucketObject, changed set) error {
		if changed.any("cacheControl", "content", "contentBase64", "contentType", "etag", "metadata", "serverSideEncryption", "source", "sourceHash", "storageClass") {
			return putObject(ctx, c, o)
		}
		if changed.any("tags", "tagsAll") {
			_, err := c.s3.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{
				Bucket: aws.String(o.Bucket), Key: aws.String(o.Key), Tagging: &types.Tagging{TagSet: tagList(o.TagsAll, s3Tag)},
			})
			if err != nil {
				return fmt.Errorf("updating S3 Bucket (%s) Object (%s) tags: %w", o.Bucket, o.Key, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, _ string, o *bucketObject) error {
		_, err := c.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(o.Bucket), Key: aws.String(o.Key)})
		if err = ifPresent(err, "NoSuchKey", noSuchBucket); err != nil {
			return fmt.Errorf("deleting S3 Bucket (%s) Object (%s): %w", o.Bucket, o.Key, err)
		}
		return nil
	},
}

func putObject(ctx context.Context, c *cloud, o *bucketObject) error {
	body, err := o.body()
	if err != nil {
		return fmt.Errorf("reading the content of S3 Bucket (%s) Object (%s): %w", o.Bucket, o.Key, err)
	}
	contentType := o.ContentType
	if contentType == "" {
		contentType = mime.TypeByExtension(path.Ext(o.Key))
	}
	_, err = c.s3.PutObject(ctx, &s3.PutObjectInput{
		Body:                 bytes.NewReader(body),
		Bucket:               aws.String(o.Bucket),
		CacheControl:         optional(o.CacheControl),
		ContentType:          optional(contentType),
		Key:                  aws.String(o.Key),
		Metadata:             o.Metadata,
		ServerSideEncryption: types.ServerSideEncryption(o.ServerSideEncryption),
		StorageClass:         types.StorageClass(o.StorageClass),
		Tagging:              optional(queryTags(o.TagsAll)),
	})
	if err != nil {
		return fmt.Errorf("uploading S3 Object (%s) to Bucket (%s): %w", o.Key, o.Bucket, err)
	}
	return nil
}

func (o *bucketObject) body() ([]byte, error) {
	switch {
	case o.Source != nil:
		return o.Source.Bytes()
	case o.ContentBase64 != "":
		return base64.StdEncoding.DecodeString(o.ContentBase64)
	default:
		return []byte(o.Content), nil
	}
}
