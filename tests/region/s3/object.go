package s3

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// object is never changed once it is in a bucket, only replaced.
type object struct {
	content  []byte
	etag     string // quoted
	modified time.Time
	// header is what comes back with the object: its type, encoding and the
	// user's metadata.
	header http.Header
	// checksum is sent only to callers who ask for it.
	checksum http.Header
	tags     []tag
}

type tag struct{ Key, Value string }

type tagging struct {
	XMLName xml.Name `xml:"Tagging"`
	Tags    []tag    `xml:"TagSet>Tag"`
}

func newTagging(tags []tag) tagging { return tagging{Tags: tags} }

// keptHeaders are those of PutObject that GetObject returns, besides metadata.
var keptHeaders = []string{"Content-Type", "Content-Disposition", "Content-Language", "Cache-Control", "Expires"}

func (s *Store) putObject(c *api.Call, name, key string) (any, error) {
	if err := authorize(c, "s3:PutObject", objectARN(name, key), nil); err != nil {
		return nil, err
	}
	header := c.Request.Header
	content, checksum, err := payload(header, c.Body)
	if err != nil {
		return nil, err
	}
	sum := md5.Sum(content) // which is what an ETag is
	o := &object{
		content:  content,
		etag:     `"` + hex.EncodeToString(sum[:]) + `"`,
		modified: time.Now(),
		header:   http.Header{},
		checksum: checksum,
	}
	for _, kept := range keptHeaders {
		if value := header.Get(kept); value != "" {
			o.header.Set(kept, value)
		}
	}
	encodings := strings.Split(header.Get("Content-Encoding"), ",")
	encodings = slices.DeleteFunc(encodings, func(e string) bool { return strings.TrimSpace(e) == "aws-chunked" || e == "" })
	if len(encodings) > 0 {
		o.header.Set("Content-Encoding", strings.Join(encodings, ","))
	}
	for key, values := range header {
		if strings.HasPrefix(key, "X-Amz-Meta-") {
			o.header[key] = values
		}
	}
	if header.Get("X-Amz-Tagging") != "" {
		if err := authorize(c, "s3:PutObjectTagging", objectARN(name, key), nil); err != nil {
			return nil, err
		}
		tags, err := url.ParseQuery(header.Get("X-Amz-Tagging"))
		if err != nil {
			return nil, api.Errorf(http.StatusBadRequest, "InvalidArgument", "x-amz-tagging: %v", err)
		}
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			o.tags = append(o.tags, tag{key, tags.Get(key)})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	old := b.objects[key]
	if header.Get("If-None-Match") == "*" && old != nil || header.Get("If-Match") != "" && (old == nil || old.etag != header.Get("If-Match")) {
		return nil, api.Errorf(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
	}
	b.objects[key] = o
	answer := http.Header{"Etag": {o.etag}, "X-Amz-Server-Side-Encryption": {"AES256"}}
	maps.Copy(answer, checksum)
	return &api.Raw{Header: answer}, nil
}

// object returns an object. Whether a caller learns that a key does not exist
// depends on whether it may list the bucket.
func (s *Store) object(c *api.Call, name, key string) (*object, error) {
	s.mu.Lock()
	b, err := s.find(name)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	o := b.objects[key]
	s.mu.Unlock()
	if o == nil {
		if err := authorize(c, "s3:ListBucket", bucketARN(name), nil); err != nil {
			return nil, err
		}
		return nil, api.Errorf(http.StatusNotFound, "NoSuchKey", "The specified key does not exist: %s", key)
	}
	return o, nil
}

// getObject answers GetObject and HeadObject.
func (s *Store) getObject(c *api.Call, name, key string) (any, error) {
	if err := authorize(c, "s3:GetObject", objectARN(name, key), nil); err != nil {
		return nil, err
	}
	o, err := s.object(c, name, key)
	if err != nil {
		return nil, err
	}
	response := &recorder{header: o.header.Clone()}
	response.header.Set("ETag", o.etag)
	response.header.Set("X-Amz-Server-Side-Encryption", "AES256")
	if len(o.tags) > 0 {
		response.header.Set("X-Amz-Tagging-Count", strconv.Itoa(len(o.tags)))
	}
	if response.header.Get("Content-Type") == "" {
		response.header.Set("Content-Type", "binary/octet-stream")
	}
	if c.Request.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" && c.Request.Header.Get("Range") == "" {
		maps.Copy(response.header, o.checksum)
		response.header.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	}
	// net/http knows ranges and conditions.
	http.ServeContent(response, c.Request, "", o.modified, bytes.NewReader(o.content))
	switch response.status {
	case http.StatusRequestedRangeNotSatisfiable:
		return nil, api.Errorf(response.status, "InvalidRange", "The requested range is not satisfiable")
	case http.StatusPreconditionFailed:
		return nil, api.Errorf(response.status, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
	}
	return &api.Raw{Status: response.status, Header: response.header, Body: response.body.Bytes()}, nil
}

// recorder keeps what net/http would send.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func (s *Store) deleteObject(c *api.Call, name, key string) (any, error) {
	if err := authorize(c, "s3:DeleteObject", objectARN(name, key), nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	delete(b.objects, key)
	return &api.Raw{Status: http.StatusNoContent}, nil
}

func (s *Store) deleteObjects(c *api.Call, name, _ string) (any, error) {
	body, _, err := payload(c.Request.Header, c.Body)
	if err != nil {
		return nil, err
	}
	var in struct {
		Quiet   bool
		Objects []struct{ Key string } `xml:"Object"`
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Objects) == 0 || len(in.Objects) > 1000 {
		return nil, api.Errorf(http.StatusBadRequest, "MalformedXML", "a request names 1 to 1000 objects (%v)", err)
	}
	type deleted struct{ Key string }
	type failed struct{ Key, Code, Message string }
	var out struct {
		XMLName xml.Name  `xml:"DeleteResult"`
		Xmlns   string    `xml:"xmlns,attr"`
		Deleted []deleted `xml:"Deleted"`
		Errors  []failed  `xml:"Error"`
	}
	out.Xmlns = namespace
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range in.Objects {
		if err := authorize(c, "s3:DeleteObject", objectARN(name, o.Key), nil); err != nil {
			out.Errors = append(out.Errors, failed{o.Key, "AccessDenied", err.Error()})
			continue
		}
		b, err := s.find(name)
		if err != nil {
			return nil, err
		}
		delete(b.objects, o.Key)
		if !in.Quiet {
			out.Deleted = append(out.Deleted, deleted{o.Key})
		}
	}
	return respond(out)
}

func (s *Store) putObjectTagging(c *api.Call, name, key string) (any, error) {
	body, _, err := payload(c.Request.Header, c.Body)
	if err != nil {
		return nil, err
	}
	var in tagging
	if err := xml.Unmarshal(body, &in); err != nil {
		return nil, api.Errorf(http.StatusBadRequest, "MalformedXML", "%v", err)
	}
	return s.setTags(c, "s3:PutObjectTagging", name, key, in.Tags, http.StatusOK)
}

func (s *Store) deleteObjectTagging(c *api.Call, name, key string) (any, error) {
	return s.setTags(c, "s3:DeleteObjectTagging", name, key, nil, http.StatusNoContent)
}

func (s *Store) setTags(c *api.Call, action, name, key string, tags []tag, status int) (any, error) {
	if err := authorize(c, action, objectARN(name, key), nil); err != nil {
		return nil, err
	}
	o, err := s.object(c, name, key)
	if err != nil {
		return nil, err
	}
	tagged := *o
	tagged.tags = tags
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if b.objects[key] == o { // else it was replaced in the meantime, and the new one has its own tags
		b.objects[key] = &tagged
	}
	return &api.Raw{Status: status}, nil
}

func (s *Store) getObjectTagging(c *api.Call, name, key string) (any, error) {
	if err := authorize(c, "s3:GetObjectTagging", objectARN(name, key), nil); err != nil {
		return nil, err
	}
	o, err := s.object(c, name, key)
	if err != nil {
		return nil, err
	}
	return respond(newTagging(o.tags))
}

func (s *Store) listObjects(c *api.Call, name, _ string) (any, error) {
	query := c.Request.URL.Query()
	prefix, delimiter := query.Get("prefix"), query.Get("delimiter")
	if err := authorize(c, "s3:ListBucket", bucketARN(name), map[string]string{"s3:prefix": prefix, "s3:delimiter": delimiter}); err != nil {
		return nil, err
	}
	limit := 1000
	if value := query.Get("max-keys"); value != "" {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return nil, api.Errorf(http.StatusBadRequest, "InvalidArgument", "max-keys %q is not a number", value)
		}
		limit = min(n, limit)
	}
	encode := func(text string) string { return text }
	if query.Get("encoding-type") == "url" {
		encode = url.QueryEscape
	}
	type content struct {
		Key, LastModified, ETag, StorageClass string
		Size                                  int
	}
	type common struct{ Prefix string }
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Xmlns                 string   `xml:"xmlns,attr"`
		Name, Prefix          string
		Delimiter             string `xml:",omitempty"`
		EncodingType          string `xml:",omitempty"`
		MaxKeys, KeyCount     int
		IsTruncated           bool
		ContinuationToken     string    `xml:",omitempty"`
		NextContinuationToken string    `xml:",omitempty"`
		StartAfter            string    `xml:",omitempty"`
		Contents              []content `xml:"Contents"`
		CommonPrefixes        []common  `xml:"CommonPrefixes"`
	}
	out.Xmlns, out.Name, out.Prefix, out.Delimiter, out.MaxKeys = namespace, name, encode(prefix), encode(delimiter), limit
	out.EncodingType, out.ContinuationToken, out.StartAfter = query.Get("encoding-type"), query.Get("continuation-token"), query.Get("start-after")
	// A token is the last key or common prefix of its page.
	after := max(query.Get("continuation-token"), query.Get("start-after"))
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return nil, err
	}
	last := ""
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		rest, matches := strings.CutPrefix(key, prefix)
		if !matches || key <= after {
			continue
		}
		group := ""
		if head, _, found := strings.Cut(rest, delimiter); delimiter != "" && found {
			group = prefix + head + delimiter
			if group == last || group == after {
				continue // the group has been listed
			}
		}
		if out.KeyCount == limit {
			out.IsTruncated, out.NextContinuationToken = limit > 0, last
			break
		}
		out.KeyCount++
		if group != "" {
			out.CommonPrefixes = append(out.CommonPrefixes, common{encode(group)})
			last = group
			continue
		}
		o := b.objects[key]
		out.Contents = append(out.Contents, content{encode(key), o.modified.UTC().Format("2006-01-02T15:04:05.000Z"), o.etag, "STANDARD", len(o.content)})
		last = key
	}
	return respond(out)
}
