package api

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Server answers AWS calls on one endpoint for all services.
type Server struct {
	// Identify tells the principal of an access key.
	Identify func(accessKeyID string) (Principal, bool)
	// Authorizer judges every access.
	Authorizer Authorizer

	mu           sync.Mutex
	services     map[string]*Service
	interceptors []*Interceptor
	ahead        func(Principal) time.Duration
}

// Register adds services.
func (s *Server) Register(services ...*Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services == nil {
		s.services = map[string]*Service{}
	}
	for _, service := range services {
		s.services[service.Name] = service
	}
}

// Intercept puts an interceptor around every call from now on, inside the
// earlier ones, and returns the function that takes it away again.
func (s *Server) Intercept(i Interceptor) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := &i
	s.interceptors = append(slices.Clone(s.interceptors), entry)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.interceptors = slices.DeleteFunc(slices.Clone(s.interceptors), func(e *Interceptor) bool { return e == entry })
	}
}

var credentialPattern = regexp.MustCompile(`Credential=([^/]+)/\d+/[^/]+/([^/]+)/aws4_request`)

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := &Call{Request: r, RequestID: uuid.NewString(), authorizer: s.Authorizer}
	result, err := s.serve(call)
	if errors.Is(err, ErrDropped) {
		panic(http.ErrAbortHandler) // net/http closes the connection, quietly
	}
	w.Header().Set("Date", time.Now().Add(call.ahead).UTC().Format(http.TimeFormat))
	w.Header().Set("X-Amzn-Requestid", call.RequestID)
	if err != nil {
		call.writeError(w, err)
		return
	}
	call.write(w, result)
}

func (s *Server) serve(call *Call) (any, error) {
	match := credentialPattern.FindStringSubmatch(call.Request.Header.Get("Authorization"))
	if match == nil {
		return nil, Errorf(http.StatusForbidden, "MissingAuthenticationToken", "request is not signed with SigV4")
	}
	s.mu.Lock()
	service, interceptors := s.services[match[2]], s.interceptors
	s.mu.Unlock()
	if service == nil {
		return nil, Errorf(http.StatusNotFound, "UnknownService", "this region has no service %q", match[2])
	}
	call.Service = service
	principal, ok := s.Identify(match[1])
	if !ok {
		return nil, Errorf(http.StatusForbidden, "InvalidClientTokenId", "the security token included in the request is invalid")
	}
	call.Principal, call.ahead = principal, s.clockOf(principal)
	if err := call.checkClock(); err != nil {
		return nil, err
	}
	if err := call.parse(); err != nil {
		return nil, err
	}
	operation := service.Operations[call.Action]
	if operation == nil {
		return nil, Errorf(http.StatusBadRequest, "InvalidAction", "this region's %s has no operation %q (%s %s)",
			service.Name, call.Action, call.Request.Method, call.Request.URL.Path)
	}
	next := func(ctx context.Context) (any, error) {
		result, err := operation(ctx, call)
		if err == nil && !call.authorized {
			return nil, Errorf(http.StatusInternalServerError, "InternalFailure", "%s does not authorize its callers", call.IAMAction())
		}
		return result, err
	}
	for _, interceptor := range slices.Backward(interceptors) {
		inner := next
		next = func(ctx context.Context) (any, error) { return (*interceptor)(ctx, call, inner) }
	}
	return next(call.Request.Context())
}

// protocol is what the request speaks, and what its answer has to speak: the
// service's own, and JSON in place of CBOR when the request does not say CBOR.
func (c *Call) protocol() Protocol {
	if c.Service.Protocol == CBOR && c.Request.Header.Get(smithyProtocol) != rpcV2CBOR {
		return JSON
	}
	return c.Service.Protocol
}

func (c *Call) parse() error {
	body, err := io.ReadAll(c.Request.Body)
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	c.Body = shift(body, -c.ahead)
	switch c.protocol() {
	case EC2Query, Query:
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return Errorf(http.StatusBadRequest, "MalformedQueryString", "%v", err)
		}
		c.Params = newParams(values)
		c.Action = values.Get("Action")
	case JSON:
		_, c.Action, _ = strings.Cut(c.Request.Header.Get("X-Amz-Target"), ".")
	case REST:
		c.Action = c.Service.Route(c.Request)
	case CBOR:
		return c.parseCBOR()
	}
	return nil
}

func (c *Call) write(w http.ResponseWriter, result any) {
	if raw, ok := result.(*Raw); ok {
		maps.Copy(w.Header(), raw.Header)
		if raw.Status == 0 {
			raw.Status = http.StatusOK
		}
		w.WriteHeader(raw.Status)
		_, _ = w.Write(raw.Body) // a caller that hung up is its own concern
		return
	}
	switch c.protocol() {
	case EC2Query, Query:
		c.writeXML(w, result)
	case JSON, REST:
		if result == nil {
			result = struct{}{}
		}
		c.writeJSON(w, http.StatusOK, result)
	case CBOR:
		if result == nil {
			result = struct{}{}
		}
		c.writeCBOR(w, http.StatusOK, result)
	}
}

// writeXML wraps the result's own elements in the envelope of its dialect.
func (c *Call) writeXML(w http.ResponseWriter, result any) {
	var inner bytes.Buffer
	if result != nil {
		encoder := xml.NewEncoder(&inner)
		if err := encoder.EncodeElement(result, xml.StartElement{Name: xml.Name{Local: c.Action + "Result"}}); err != nil {
			c.writeError(w, fmt.Errorf("encode the result of %s: %w", c.Action, err))
			return
		}
	}
	body := inner.String()
	if c.Service.Protocol == EC2Query {
		body = strings.TrimSuffix(strings.TrimPrefix(body, "<"+c.Action+"Result>"), "</"+c.Action+"Result>")
		body = fmt.Sprintf("<requestId>%s</requestId>%s", c.RequestID, body)
	} else {
		body += fmt.Sprintf("<ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata>", c.RequestID)
	}
	w.Header().Set("Content-Type", "text/xml")
	_, _ = fmt.Fprintf(w, "<%[1]sResponse xmlns=%[2]q>%[3]s</%[1]sResponse>", c.Action, c.Service.Namespace, shift([]byte(body), c.ahead))
}

func (c *Call) writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, fmt.Sprintf("encode the result of %s: %v", c.Action, err), http.StatusInternalServerError)
		return
	}
	body = shift(body, c.ahead)
	w.Header().Set("Content-Type", c.jsonType())
	// The SDK's DynamoDB client holds every answer against this checksum.
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// jsonType is the content type of a JSON answer: the version of the protocol
// that the request speaks.
func (c *Call) jsonType() string {
	if spoken := c.Request.Header.Get("Content-Type"); spoken == "application/x-amz-json-1.0" {
		return spoken
	}
	return "application/x-amz-json-1.1"
}

func (c *Call) writeError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = Errorf(http.StatusInternalServerError, "InternalFailure", "%v", err)
	}
	if e.Status == 0 {
		e.Status = http.StatusBadRequest
	}
	protocol := JSON
	if c.Service != nil {
		protocol = c.protocol()
	}
	switch {
	case protocol == EC2Query:
		writeXMLError(w, e, "<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>%s</RequestID></Response>", c.RequestID)
	case protocol == Query:
		writeXMLError(w, e, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>%s</RequestId></ErrorResponse>", c.RequestID)
	case c.Service != nil && c.Service.Name == "s3":
		writeXMLError(w, e, "<Error><Code>%s</Code><Message>%s</Message><RequestId>%s</RequestId></Error>", c.RequestID)
	case protocol == CBOR:
		c.writeCBOR(w, e.Status, map[string]any{"__type": e.Code, "message": e.Message})
	default:
		w.Header().Set("X-Amzn-Errortype", e.Code)
		fields := map[string]any{"__type": e.Code, "message": e.Message, "Message": e.Message}
		maps.Copy(fields, e.Fields)
		c.writeJSON(w, e.Status, fields)
	}
}

func writeXMLError(w http.ResponseWriter, e *Error, format, requestID string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(e.Status)
	_, _ = fmt.Fprintf(w, format, escape(e.Code), escape(e.Message), requestID)
}

func escape(text string) string {
	var buffer bytes.Buffer
	_ = xml.EscapeText(&buffer, []byte(text)) // a bytes.Buffer does not fail
	return buffer.String()
}
