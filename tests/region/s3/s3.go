// Package s3 is S3 of the region: private buckets with their settings, and
// objects with checksums, kept in memory.
//
// It is not modelled on a library: of those that were tried, the emulator that
// covers most keeps its buckets in package variables, so that two regions in
// one process share them, and knows neither the SDK's chunked uploads nor who
// calls.
//
// A bucket keeps one version of each object, and its policy is stored without
// being judged: access is what the caller's own policies allow. Buckets are
// addressed by path, as the SDKs do by themselves when the endpoint is an IP
// address.
package s3

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Config is what the service needs to know of its surroundings.
type Config struct {
	Region string
}

// Store is the service.
type Store struct {
	config Config

	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	name    string
	created time.Time
	// documents are the bucket's settings as they were sent, by subresource.
	documents map[string][]byte
	objects   map[string]*object
}

// New makes the service.
func New(config Config) *Store {
	return &Store{config: config, buckets: map[string]*bucket{}}
}

// operation is one S3 call on a bucket and, when the path has one, a key.
type operation func(s *Store, c *api.Call, bucket, key string) (any, error)

// Service is the service for the region's front door.
func (s *Store) Service() *api.Service {
	operations := map[string]operation{
		"ListBuckets":         (*Store).listBuckets,
		"CreateBucket":        (*Store).createBucket,
		"HeadBucket":          (*Store).headBucket,
		"GetBucketLocation":   (*Store).getBucketLocation,
		"DeleteBucket":        (*Store).deleteBucket,
		"ListObjectsV2":       (*Store).listObjects,
		"DeleteObjects":       (*Store).deleteObjects,
		"PutObject":           (*Store).putObject,
		"GetObject":           (*Store).getObject,
		"HeadObject":          (*Store).getObject,
		"DeleteObject":        (*Store).deleteObject,
		"PutObjectTagging":    (*Store).putObjectTagging,
		"GetObjectTagging":    (*Store).getObjectTagging,
		"DeleteObjectTagging": (*Store).deleteObjectTagging,
	}
	for _, d := range documents {
		operations["Put"+d.operation] = d.put
		operations["Get"+d.operation] = d.get
		if d.removable {
			operations["Delete"+d.operation] = d.remove
		}
	}
	service := &api.Service{Name: "s3", Protocol: api.REST, Route: route, Operations: map[string]api.Operation{}}
	for name, operation := range operations {
		service.Operations[name] = func(_ context.Context, c *api.Call) (any, error) {
			if err := checkHeaders(c.Request.Header); err != nil {
				return nil, err
			}
			bucket, key := resource(c.Request)
			return operation(s, c, bucket, key)
		}
	}
	return service
}

// resource returns the bucket and the key that a request's path names.
func resource(r *http.Request) (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return bucket, key
}

// route names the operation of a request: S3 tells them apart by method, by
// whether the path has a key, and by a subresource in the query.
func route(r *http.Request) string {
	bucket, key := resource(r)
	query := r.URL.Query()
	verbs := map[string]string{http.MethodPut: "Put", http.MethodGet: "Get", http.MethodHead: "Head", http.MethodDelete: "Delete"}
	verb := verbs[r.Method]
	switch {
	case bucket == "":
		if r.Method == http.MethodGet {
			return "ListBuckets"
		}
		return ""
	case key != "":
		switch {
		case query.Has("tagging"):
			return verb + "ObjectTagging"
		case hasAny(query, "acl", "uploads", "uploadId", "legal-hold", "retention", "torrent", "attributes", "versionId"), r.Header.Get("X-Amz-Copy-Source") != "":
			return ""
		}
		return verb + "Object"
	}
	for _, d := range documents {
		if query.Has(d.subresource) {
			return verb + d.operation
		}
	}
	switch {
	case query.Has("location"):
		return "GetBucketLocation"
	case query.Has("delete") && r.Method == http.MethodPost:
		return "DeleteObjects"
	case query.Get("list-type") == "2":
		return "ListObjectsV2"
	case r.Method == http.MethodPut && onlySDKParameters(query):
		return "CreateBucket"
	case r.Method == http.MethodHead:
		return "HeadBucket"
	case r.Method == http.MethodDelete && onlySDKParameters(query):
		return "DeleteBucket"
	}
	return "" // a subresource that this S3 does not have
}

// knownHeaders are the parameters in headers: those that are read, and those
// that may say only what is so anyway. Those that end in "-" are families.
var knownHeaders = map[string][]string{
	"X-Amz-Acl":                    {"private", "bucket-owner-full-control"},
	"X-Amz-Object-Ownership":       {"BucketOwnerEnforced"},
	"X-Amz-Server-Side-Encryption": {"AES256"},
	"X-Amz-Storage-Class":          {"STANDARD"},
	"X-Amz-Checksum-":              nil,
	"X-Amz-Content-Sha256":         nil,
	"X-Amz-Date":                   nil,
	"X-Amz-Decoded-Content-Length": nil,
	"X-Amz-Meta-":                  nil,
	"X-Amz-Sdk-Checksum-Algorithm": nil,
	"X-Amz-Security-Token":         nil,
	"X-Amz-Tagging":                nil,
	"X-Amz-Trailer":                nil,
	"X-Amz-User-Agent":             nil,
}

// checkHeaders refuses what the service would have to ignore.
func checkHeaders(header http.Header) error {
	for name := range header {
		if !strings.HasPrefix(name, "X-Amz-") {
			continue
		}
		values, known := knownHeaders[name]
		for family := range knownHeaders {
			known = known || strings.HasSuffix(family, "-") && strings.HasPrefix(name, family)
		}
		if value := header.Get(name); !known || values != nil && !slices.Contains(values, value) {
			return api.Errorf(http.StatusNotImplemented, "NotImplemented", "this region's S3 does not have %s: %s", strings.ToLower(name), value)
		}
	}
	return nil
}

func hasAny(query map[string][]string, names ...string) bool {
	for _, name := range names {
		if _, ok := query[name]; ok {
			return true
		}
	}
	return false
}

// onlySDKParameters says whether a query names no subresource: SDKs add x-id.
func onlySDKParameters(query map[string][]string) bool {
	for name := range query {
		if name != "x-id" {
			return false
		}
	}
	return true
}

func bucketARN(bucket string) string      { return "arn:aws:s3:::" + bucket }
func objectARN(bucket, key string) string { return bucketARN(bucket) + "/" + key }

// authorize refuses a call as S3 does, with AccessDenied whatever the
// authorizer calls it.
func authorize(c *api.Call, action, resource string, context map[string]string) error {
	err := c.Authorize(api.Access{Action: action, Resource: resource, Context: context})
	if refusal, ok := errors.AsType[*api.Error](err); ok {
		return api.Errorf(http.StatusForbidden, "AccessDenied", "%s", refusal.Message)
	}
	return err
}

// find returns a bucket; the caller holds the lock.
func (s *Store) find(name string) (*bucket, error) {
	b := s.buckets[name]
	if b == nil {
		return nil, api.Errorf(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist: %s", name)
	}
	return b, nil
}
