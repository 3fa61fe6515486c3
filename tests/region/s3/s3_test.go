package s3_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	region "github.com/etcfs/pulumi-etcfs/tests/region/s3"
)

var (
	bucket = aws.String("demo-etcfs-bootstrap")
	key    = aws.String("etcfs-bootstrap-0123abcd")
)

// start serves S3. The client is as the SDK makes it from AWS_ENDPOINT_URL,
// without path style being asked for: with an IP address it is the default.
func start(t *testing.T) (*apitest.Endpoint, *s3.Client) {
	t.Helper()
	endpoint := apitest.New(t, region.New(region.Config{Region: apitest.Region}).Service())
	return endpoint, s3.NewFromConfig(endpoint.Config())
}

func createBucket(t *testing.T, client *s3.Client) {
	t.Helper()
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{
		Bucket:                    bucket,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraintEuWest1},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, client *s3.Client, key, content string) {
	t.Helper()
	if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: strings.NewReader(content)}); err != nil {
		t.Fatal(err)
	}
}

func TestEndpointFromEnvironment(t *testing.T) { //nolint:paralleltest // sets environment variables
	endpoint, _ := start(t)
	var paths []string
	endpoint.Server.Intercept(recordPaths(&paths))
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": endpoint.URL, "AWS_REGION": apitest.Region, "AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	loaded, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	createBucket(t, s3.NewFromConfig(loaded))
	if diff := cmp.Diff([]string{"/" + *bucket}, paths); diff != "" {
		t.Errorf("path of CreateBucket (-want +got):\n%s", diff)
	}
}

func TestBucketLifeCycle(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := t.Context()
	_, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: bucket})
	if got, want := apitest.Code(err), "NotFound"; got != want {
		t.Errorf("head of no bucket: got %q (%v), want %q", got, err, want)
	}
	createBucket(t, client)
	_, err = client.CreateBucket(ctx, &s3.CreateBucketInput{
		Bucket:                    bucket,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraintEuWest1},
	})
	if got, want := apitest.Code(err), "BucketAlreadyOwnedByYou"; got != want {
		t.Errorf("create it twice: got %q (%v), want %q", got, err, want)
	}
	if _, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: bucket}); err != nil {
		t.Error(err)
	}
	location, err := client.GetBucketLocation(ctx, &s3.GetBucketLocationInput{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := location.LocationConstraint, types.BucketLocationConstraintEuWest1; got != want {
		t.Errorf("location: got %q, want %q", got, want)
	}
	list, err := client.ListBuckets(ctx, &s3.ListBucketsInput{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Buckets) != 1 || *list.Buckets[0].Name != *bucket {
		t.Errorf("buckets: got %v, want only %s", list.Buckets, *bucket)
	}
	put(t, client, *key, "x")
	_, err = client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket})
	if got, want := apitest.Code(err), "BucketNotEmpty"; got != want {
		t.Errorf("delete with an object: got %q (%v), want %q", got, err, want)
	}
	if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: key}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	_, err = client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket})
	if got, want := apitest.Code(err), "NoSuchBucket"; got != want {
		t.Errorf("delete it twice: got %q (%v), want %q", got, err, want)
	}
}

func TestCreateBucketRefuses(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	here := types.BucketLocationConstraintEuWest1
	for _, test := range []struct {
		name     string
		location types.BucketLocationConstraint
		want     string
	}{
		{"Upper-Case", here, "InvalidBucketName"},
		{"xn--demo", here, "InvalidBucketName"},
		{"demo-s3alias", here, "InvalidBucketName"},
		{"a..b", here, "InvalidBucketName"},
		{"192.168.0.1", here, "InvalidBucketName"},
		{strings.Repeat("a", 64), here, "InvalidBucketName"},
		{"elsewhere", types.BucketLocationConstraintUsWest2, "IllegalLocationConstraintException"},
		{"nowhere", "", "IllegalLocationConstraintException"},
	} {
		in := &s3.CreateBucketInput{Bucket: aws.String(test.name)}
		if test.location != "" {
			in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: test.location}
		}
		_, err := client.CreateBucket(t.Context(), in)
		if got := apitest.Code(err); got != test.want {
			t.Errorf("bucket %q in %q: got %q (%v), want %q", test.name, test.location, got, err, test.want)
		}
	}
}

func TestBucketSettings(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := t.Context()
	createBucket(t, client)
	get := func() *types.PublicAccessBlockConfiguration {
		out, err := client.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: bucket})
		if err != nil {
			t.Fatal(err)
		}
		return out.PublicAccessBlockConfiguration
	}
	yes, no := aws.Bool(true), aws.Bool(false)
	ignore := cmpopts.IgnoreUnexported(types.PublicAccessBlockConfiguration{}, types.ServerSideEncryptionRule{},
		types.ServerSideEncryptionByDefault{}, types.OwnershipControlsRule{}, types.Tag{})
	closed := &types.PublicAccessBlockConfiguration{BlockPublicAcls: yes, IgnorePublicAcls: yes, BlockPublicPolicy: yes, RestrictPublicBuckets: yes}
	if diff := cmp.Diff(closed, get(), ignore); diff != "" {
		t.Errorf("a new bucket's public access block (-want +got):\n%s", diff)
	}
	half := &types.PublicAccessBlockConfiguration{BlockPublicAcls: yes, IgnorePublicAcls: yes, BlockPublicPolicy: no, RestrictPublicBuckets: no}
	if _, err := client.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{Bucket: bucket, PublicAccessBlockConfiguration: half}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(half, get(), ignore); diff != "" {
		t.Errorf("public access block (-want +got):\n%s", diff)
	}
	if _, err := client.DeletePublicAccessBlock(ctx, &s3.DeletePublicAccessBlockInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	_, err := client.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: bucket})
	if got, want := apitest.Code(err), "NoSuchPublicAccessBlockConfiguration"; got != want {
		t.Errorf("deleted public access block: got %q (%v), want %q", got, err, want)
	}

	if _, err := client.DeleteBucketEncryption(ctx, &s3.DeleteBucketEncryptionInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	encryption, err := client.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	rules := []types.ServerSideEncryptionRule{{
		ApplyServerSideEncryptionByDefault: &types.ServerSideEncryptionByDefault{SSEAlgorithm: types.ServerSideEncryptionAes256},
		BucketKeyEnabled:                   no,
	}}
	if diff := cmp.Diff(rules, encryption.ServerSideEncryptionConfiguration.Rules, ignore); diff != "" {
		t.Errorf("encryption (-want +got):\n%s", diff)
	}

	ownership, err := client.GetBucketOwnershipControls(ctx, &s3.GetBucketOwnershipControlsInput{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]types.OwnershipControlsRule{{ObjectOwnership: types.ObjectOwnershipBucketOwnerEnforced}}, ownership.OwnershipControls.Rules, ignore); diff != "" {
		t.Errorf("ownership (-want +got):\n%s", diff)
	}

	_, err = client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if got, want := apitest.Code(err), "NotImplemented"; got != want {
		t.Errorf("switching versions on: got %q (%v), want %q", got, err, want)
	}
	versioning, err := client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if got := versioning.Status; got != "" {
		t.Errorf("versioning of a new bucket: got %q, want none", got)
	}

	tags := []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}}
	if _, err := client.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: bucket, Tagging: &types.Tagging{TagSet: tags}}); err != nil {
		t.Fatal(err)
	}
	tagging, err := client.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tags, tagging.TagSet, ignore); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if _, err := client.DeleteBucketTagging(ctx, &s3.DeleteBucketTaggingInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: bucket})
	if got, want := apitest.Code(err), "NoSuchTagSet"; got != want {
		t.Errorf("deleted tags: got %q (%v), want %q", got, err, want)
	}

	_, err = client.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: bucket})
	if got, want := apitest.Code(err), "NoSuchBucketPolicy"; got != want {
		t.Errorf("no policy: got %q (%v), want %q", got, err, want)
	}
	_, err = client.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: bucket, Policy: aws.String("{")})
	if got, want := apitest.Code(err), "MalformedPolicy"; got != want {
		t.Errorf("broken policy: got %q (%v), want %q", got, err, want)
	}
	policy := `{"Version":"2012-10-17","Statement":[]}`
	if _, err := client.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: bucket, Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	stored, err := client.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if got := *stored.Policy; got != policy {
		t.Errorf("policy: got %s, want %s", got, policy)
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := t.Context()
	createBucket(t, client)
	content := strings.Repeat("bootstrap", 100_000)
	for _, algorithm := range []types.ChecksumAlgorithm{
		"", types.ChecksumAlgorithmCrc32, types.ChecksumAlgorithmCrc32c, types.ChecksumAlgorithmCrc64nvme, types.ChecksumAlgorithmSha1, types.ChecksumAlgorithmSha256,
	} {
		if _, err := client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: bucket, Key: key, Body: strings.NewReader(content), ChecksumAlgorithm: algorithm,
			ContentType: aws.String("application/octet-stream"), Metadata: map[string]string{"version": "1"}, Tagging: aws.String("ClusterName=demo"),
		}); err != nil {
			t.Fatalf("put with checksum %q: %v", algorithm, err)
		}
		// The SDK verifies the checksum that comes back.
		out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, ChecksumMode: types.ChecksumModeEnabled})
		if err != nil {
			t.Fatalf("get with checksum %q: %v", algorithm, err)
		}
		body, err := io.ReadAll(out.Body)
		if err != nil {
			t.Fatalf("read with checksum %q: %v", algorithm, err)
		}
		if string(body) != content {
			t.Errorf("content with checksum %q: got %d bytes, want the %d that were put", algorithm, len(body), len(content))
		}
		if got, want := out.Metadata, map[string]string{"version": "1"}; !cmp.Equal(got, want) {
			t.Errorf("metadata: got %v, want %v", got, want)
		}
		if got, want := aws.ToInt32(out.TagCount), int32(1); got != want {
			t.Errorf("number of tags: got %d, want %d", got, want)
		}
	}
	head, err := client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *head.ContentLength, int64(len(content)); got != want {
		t.Errorf("length: got %d, want %d", got, want)
	}
	if got, want := *head.ETag, fmt.Sprintf(`"%x"`, md5.Sum([]byte(content))); got != want {
		t.Errorf("ETag: got %s, want %s", got, want)
	}
	part, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, Range: aws.String("bytes=4-8")})
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(part.Body)
	if got, want := string(body), "strap"; got != want {
		t.Errorf("range: got %q, want %q", got, want)
	}
	_, err = client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, Range: aws.String("bytes=99999999-")})
	if got, want := apitest.Code(err), "InvalidRange"; got != want {
		t.Errorf("range beyond the end: got %q (%v), want %q", got, err, want)
	}
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("x"), IfNoneMatch: aws.String("*")})
	if got, want := apitest.Code(err), "PreconditionFailed"; got != want {
		t.Errorf("put unless it exists: got %q (%v), want %q", got, err, want)
	}
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("x"), ChecksumSHA256: aws.String("AAAA")})
	if got, want := apitest.Code(err), "BadDigest"; got != want {
		t.Errorf("put with another's checksum: got %q (%v), want %q", got, err, want)
	}
	if _, err := client.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{
		Bucket: bucket, Key: key, Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}},
	}); err != nil {
		t.Fatal(err)
	}
	tags, err := client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: bucket, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if len(tags.TagSet) != 1 || *tags.TagSet[0].Key != "a" {
		t.Errorf("tags: got %v, want a", tags.TagSet)
	}
	if _, err := client.DeleteObjectTagging(ctx, &s3.DeleteObjectTaggingInput{Bucket: bucket, Key: key}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: key}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: key}); err != nil {
		t.Errorf("deleting an object twice: %v", err)
	}
}

// Over TLS the SDK sends a stream that it cannot rewind in chunks, with the
// checksum in a trailer.
func TestChunkedUpload(t *testing.T) {
	t.Parallel()
	endpoint, trusting := apitest.NewTLS(t, region.New(region.Config{Region: apitest.Region}).Service())
	var encodings []string
	endpoint.Server.Intercept(recordHeader("X-Amz-Content-Sha256", &encodings))
	overTLS := endpoint.Config()
	overTLS.HTTPClient = trusting
	client := s3.NewFromConfig(overTLS)
	createBucket(t, client)
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: bucket, Key: key, Body: io.LimitReader(bytes.NewReader(content), int64(len(content))), ContentLength: aws.Int64(int64(len(content))),
	}); err != nil {
		t.Fatal(err)
	}
	if got, want := encodings[len(encodings)-1], "STREAMING-UNSIGNED-PAYLOAD-TRAILER"; got != want {
		t.Fatalf("the SDK sent %s: this tests nothing, want %s", got, want)
	}
	out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: key, ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(body, content) {
		t.Errorf("got %d bytes, want the %d that were put", len(body), len(content))
	}
	if out.ContentEncoding != nil {
		t.Errorf("content encoding: got %q, want none", *out.ContentEncoding)
	}
	if out.ChecksumCRC32 == nil {
		t.Error("the checksum of the trailer was not kept")
	}
}

func TestListObjects(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := t.Context()
	createBucket(t, client)
	var all []string
	for i := range 5 {
		all = append(all, fmt.Sprintf("snapshots/%d", i))
	}
	all = append(all, "top", "ünïcode key+&")
	for _, key := range all {
		put(t, client, key, key)
	}
	for _, test := range []struct {
		prefix, delimiter string
		keys, prefixes    []string
	}{
		{"", "", all, nil},
		{"snapshots/", "", all[:5], nil},
		{"", "/", all[5:], []string{"snapshots/"}},
		{"snap", "/", nil, []string{"snapshots/"}},
		{"none", "", nil, nil},
	} {
		var keys, prefixes []string
		pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{
			Bucket: bucket, Prefix: &test.prefix, Delimiter: &test.delimiter, MaxKeys: aws.Int32(2),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Contents)+len(page.CommonPrefixes) > 2 {
				t.Errorf("a page of %d, want at most 2", len(page.Contents)+len(page.CommonPrefixes))
			}
			for _, o := range page.Contents {
				keys = append(keys, *o.Key)
			}
			for _, p := range page.CommonPrefixes {
				prefixes = append(prefixes, *p.Prefix)
			}
		}
		if diff := cmp.Diff([][]string{test.keys, test.prefixes}, [][]string{keys, prefixes}); diff != "" {
			t.Errorf("prefix %q, delimiter %q (-want +got):\n%s", test.prefix, test.delimiter, diff)
		}
	}
	out, err := client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: bucket, Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: &all[0]}, {Key: &all[6]}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(out.Deleted), 2; got != want {
		t.Errorf("deleted: got %d, want %d", got, want)
	}
	left, err := client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *left.KeyCount, int32(5); got != want {
		t.Errorf("left: got %d, want %d", got, want)
	}
}

func TestMissingKey(t *testing.T) {
	t.Parallel()
	endpoint, client := start(t)
	createBucket(t, client)
	_, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: key})
	if got, want := apitest.Code(err), "NoSuchKey"; got != want {
		t.Errorf("with s3:ListBucket: got %q (%v), want %q", got, err, want)
	}
	endpoint.Deny("s3:ListBucket")
	_, err = client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: key})
	if got, want := apitest.Code(err), "AccessDenied"; got != want {
		t.Errorf("without: got %q (%v), want %q", got, err, want)
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	endpoint, client := start(t)
	ctx := t.Context()
	createBucket(t, client)
	put(t, client, *key, "x")
	onBucket := "arn:aws:s3:::" + *bucket
	onObject := onBucket + "/" + *key
	for _, call := range []struct {
		action, resource string
		do               func() error
	}{
		{"s3:ListAllMyBuckets", "*", func() error { _, err := client.ListBuckets(ctx, nil); return err }},
		{"s3:ListBucket", onBucket, func() error { _, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: bucket}); return err }},
		{"s3:ListBucket", onBucket, func() error {
			_, err := client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: bucket})
			return err
		}},
		{"s3:GetBucketLocation", onBucket, func() error {
			_, err := client.GetBucketLocation(ctx, &s3.GetBucketLocationInput{Bucket: bucket})
			return err
		}},
		{"s3:GetBucketPublicAccessBlock", onBucket, func() error {
			_, err := client.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: bucket})
			return err
		}},
		{"s3:PutBucketPublicAccessBlock", onBucket, func() error {
			_, err := client.DeletePublicAccessBlock(ctx, &s3.DeletePublicAccessBlockInput{Bucket: bucket})
			return err
		}},
		{"s3:PutEncryptionConfiguration", onBucket, func() error {
			_, err := client.DeleteBucketEncryption(ctx, &s3.DeleteBucketEncryptionInput{Bucket: bucket})
			return err
		}},
		{"s3:PutBucketPolicy", onBucket, func() error {
			_, err := client.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: bucket, Policy: aws.String("{}")})
			return err
		}},
		{"s3:DeleteBucketPolicy", onBucket, func() error {
			_, err := client.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: bucket})
			return err
		}},
		{"s3:GetObject", onObject, func() error {
			_, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key})
			return err
		}},
		{"s3:GetObject", onObject, func() error {
			_, err := client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: key})
			return err
		}},
		{"s3:GetObjectTagging", onObject, func() error {
			_, err := client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: bucket, Key: key})
			return err
		}},
		{"s3:PutObject", onObject, func() error {
			_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("x")})
			return err
		}},
		{"s3:DeleteObject", onObject, func() error {
			_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: key})
			return err
		}},
		{"s3:DeleteBucket", onBucket, func() error {
			_, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket})
			return err
		}},
		{"s3:CreateBucket", onBucket, func() error {
			_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{
				Bucket: bucket, CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraintEuWest1},
			})
			return err
		}},
	} {
		endpoint.RequireAccess(t, call.action, call.resource, call.do)
	}
}

// What the service does not have is refused, never ignored.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	createBucket(t, client)
	_, err := client.PutBucketAccelerateConfiguration(t.Context(), &s3.PutBucketAccelerateConfigurationInput{
		Bucket: bucket, AccelerateConfiguration: &types.AccelerateConfiguration{},
	})
	if got, want := apitest.Code(err), "InvalidAction"; got != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
	_, err = client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: key, ServerSideEncryption: types.ServerSideEncryptionAwsKms})
	if got, want := apitest.Code(err), "NotImplemented"; got != want {
		t.Errorf("encryption with a key: got %q (%v), want %q", got, err, want)
	}
	_, err = client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: key, ServerSideEncryption: types.ServerSideEncryptionAes256})
	if err != nil {
		t.Errorf("encryption as it is by default: %v", err)
	}
	_, err = client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("locked"), ObjectLockEnabledForBucket: aws.Bool(true)})
	if got, want := apitest.Code(err), "NotImplemented"; got != want {
		t.Errorf("object lock: got %q (%v), want %q", got, err, want)
	}
}

func recordPaths(paths *[]string) api.Interceptor {
	return func(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
		*paths = append(*paths, c.Request.URL.Path)
		return next(ctx)
	}
}

func recordHeader(name string, values *[]string) api.Interceptor {
	return func(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
		*values = append(*values, c.Request.Header.Get(name))
		return next(ctx)
	}
}
