package s3

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

const namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// document is a setting of a bucket that is a document: it is read back as it
// was written.
type document struct {
	subresource, operation string
	readAction, putAction  string
	// initial is what a new bucket has; without it, reading the setting before
	// it is written is the error missing.
	initial, missing string
	removable        bool
	check            func([]byte) error
}

// documents are the settings, with the defaults of buckets made since April
// 2023: nothing public, no ACLs, encrypted.
var documents = []document{
	{
		"publicAccessBlock", "PublicAccessBlock", "s3:GetBucketPublicAccessBlock", "s3:PutBucketPublicAccessBlock",
		`<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls>` +
			`<BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>`,
		"NoSuchPublicAccessBlockConfiguration", true, checkXML,
	},
	{
		"encryption", "BucketEncryption", "s3:GetEncryptionConfiguration", "s3:PutEncryptionConfiguration",
		`<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>` +
			`</ApplyServerSideEncryptionByDefault><BucketKeyEnabled>false</BucketKeyEnabled></Rule></ServerSideEncryptionConfiguration>`,
		"ServerSideEncryptionConfigurationNotFoundError", true, checkXML,
	},
	{
		"ownershipControls", "BucketOwnershipControls", "s3:GetBucketOwnershipControls", "s3:PutBucketOwnershipControls",
		`<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>`,
		"OwnershipControlsNotFoundError", true, checkXML,
	},
	{
		"versioning", "BucketVersioning", "s3:GetBucketVersioning", "s3:PutBucketVersioning",
		`<VersioningConfiguration/>`, "", false, checkVersioning,
	},
	{"tagging", "BucketTagging", "s3:GetBucketTagging", "s3:PutBucketTagging", "", "NoSuchTagSet", true, checkXML},
	{"lifecycle", "BucketLifecycleConfiguration", "s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration", "", "NoSuchLifecycleConfiguration", true, checkXML},
	{"policy", "BucketPolicy", "s3:GetBucketPolicy", "s3:PutBucketPolicy", "", "NoSuchBucketPolicy", true, checkJSON},
}

func checkXML(body []byte) error {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	elements := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && elements > 0 {
			return nil
		}
		if err != nil {
			return api.Errorf(http.StatusBadRequest, "MalformedXML", "%v", err)
		}
		if _, ok := token.(xml.StartElement); ok {
			elements++
		}
	}
}

func checkJSON(body []byte) error {
	if !json.Valid(body) {
		return api.Errorf(http.StatusBadRequest, "MalformedPolicy", "Policies must be valid JSON and the first byte must be '{'")
	}
	return nil
}

func checkVersioning(body []byte) error {
	var configuration struct{ Status string }
	if err := xml.Unmarshal(body, &configuration); err != nil {
		return api.Errorf(http.StatusBadRequest, "MalformedXML", "%v", err)
	}
	if configuration.Status == "Enabled" {
		return api.Errorf(http.StatusNotImplemented, "NotImplemented", "this region's S3 keeps one version of each object")
	}
	return nil
}

func (d document) put(s *Store, c *api.Call, name, _ string) (any, error) {
	if err := authorize(c, d.putAction, bucketARN(name), nil); err != nil {
		return nil, err
	}
	body, _, err := payload(c.Request.Header, c.Body)
	if err != nil {
		return nil, err
	}
	if err := d.check(body); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	b.documents[d.subresource] = body
	return &api.Raw{Status: http.StatusOK}, nil
}

func (d document) get(s *Store, c *api.Call, name, _ string) (any, error) {
	if err := authorize(c, d.readAction, bucketARN(name), nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	body, ok := b.documents[d.subresource]
	if !ok {
		return nil, api.Errorf(http.StatusNotFound, d.missing, "bucket %s has no %s", name, d.subresource)
	}
	return &api.Raw{Body: body}, nil
}

func (d document) remove(s *Store, c *api.Call, name, _ string) (any, error) {
	action := d.putAction // S3 has no permission of its own for most removals
	if d.subresource == "policy" {
		action = "s3:DeleteBucketPolicy"
	}
	if err := authorize(c, action, bucketARN(name), nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	delete(b.documents, d.subresource)
	if d.subresource == "encryption" { // resets: no bucket is unencrypted
		b.documents[d.subresource] = []byte(d.initial)
	}
	return &api.Raw{Status: http.StatusNoContent}, nil
}

func (s *Store) listBuckets(c *api.Call, _, _ string) (any, error) {
	if err := authorize(c, "s3:ListAllMyBuckets", "*", nil); err != nil {
		return nil, err
	}
	type item struct{ Name, CreationDate, BucketRegion string }
	var out struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Xmlns   string   `xml:"xmlns,attr"`
		Buckets []item   `xml:"Buckets>Bucket"`
	}
	out.Xmlns = namespace
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.buckets)) {
		out.Buckets = append(out.Buckets, item{name, s.buckets[name].created.UTC().Format(time.RFC3339), s.config.Region})
	}
	return respond(out)
}

// https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
var (
	bucketPattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	addressPattern   = regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+$`)
	reservedPrefixes = []string{"xn--", "sthree-", "amzn-s3-demo-"}
	reservedSuffixes = []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"}
)

func validBucketName(name string) bool {
	return bucketPattern.MatchString(name) && !addressPattern.MatchString(name) && !strings.Contains(name, "..") &&
		!slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) &&
		!slices.ContainsFunc(reservedSuffixes, func(p string) bool { return strings.HasSuffix(name, p) })
}

func (s *Store) createBucket(c *api.Call, name, _ string) (any, error) {
	if err := authorize(c, "s3:CreateBucket", bucketARN(name), nil); err != nil {
		return nil, err
	}
	if !validBucketName(name) {
		return nil, api.Errorf(http.StatusBadRequest, "InvalidBucketName", "The specified bucket is not valid: %s", name)
	}
	body, _, err := payload(c.Request.Header, c.Body)
	if err != nil {
		return nil, err
	}
	var in struct {
		LocationConstraint string
		Tags               []tag `xml:"Tags>Tag"`
	}
	if len(body) > 0 {
		if err := xml.Unmarshal(body, &in); err != nil {
			return nil, api.Errorf(http.StatusBadRequest, "MalformedXML", "%v", err)
		}
	}
	wanted := s.config.Region
	if wanted == "us-east-1" {
		wanted = ""
	}
	if in.LocationConstraint != wanted {
		return nil, api.Errorf(http.StatusBadRequest, "IllegalLocationConstraintException",
			"The %q location constraint is incompatible for the region specific endpoint this request was sent to.", in.LocationConstraint)
	}
	b := &bucket{name: name, created: time.Now(), documents: map[string][]byte{}, objects: map[string]*object{}}
	for _, d := range documents {
		if d.initial != "" {
			b.documents[d.subresource] = []byte(d.initial)
		}
	}
	if len(in.Tags) > 0 {
		if b.documents["tagging"], err = xml.Marshal(newTagging(in.Tags)); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[name] != nil {
		return nil, api.Errorf(http.StatusConflict, "BucketAlreadyOwnedByYou",
			"Your previous request to create the named bucket succeeded and you already own it.")
	}
	s.buckets[name] = b
	return &api.Raw{Header: http.Header{"Location": {"/" + name}}}, nil
}

func (s *Store) headBucket(c *api.Call, name, _ string) (any, error) {
	if err := authorize(c, "s3:ListBucket", bucketARN(name), nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find(name); err != nil {
		return nil, err
	}
	return &api.Raw{Header: http.Header{"X-Amz-Bucket-Region": {s.config.Region}}}, nil
}

func (s *Store) getBucketLocation(c *api.Call, name, _ string) (any, error) {
	if err := authorize(c, "s3:GetBucketLocation", bucketARN(name), nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find(name); err != nil {
		return nil, err
	}
	var out struct {
		XMLName  xml.Name `xml:"LocationConstraint"`
		Xmlns    string   `xml:"xmlns,attr"`
		Location string   `xml:",chardata"`
	}
	out.Xmlns = namespace
	if s.config.Region != "us-east-1" {
		out.Location = s.config.Region
	}
	return respond(out)
}

func (s *Store) deleteBucket(c *api.Call, name, _ string) (any, error) {
	if err := authorize(c, "s3:DeleteBucket", bucketARN(name), nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if len(b.objects) > 0 {
		return nil, api.Errorf(http.StatusConflict, "BucketNotEmpty", "The bucket you tried to delete is not empty")
	}
	delete(s.buckets, name)
	return &api.Raw{Status: http.StatusNoContent}, nil
}

// respond sends an XML document.
func respond(out any) (any, error) {
	body, err := xml.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &api.Raw{Header: http.Header{"Content-Type": {"application/xml"}}, Body: append([]byte(xml.Header), body...)}, nil
}
