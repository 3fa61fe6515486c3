// Package api is the front door of the region: it tells who calls, which
// operation of which service, asks whether the caller may, and speaks the
// protocols of AWS (the two Query dialects, JSON, REST and CBOR) so that a service
// of the region is a table of functions from a call to a result.
//
// Callers are told apart by the access key of the request's SigV4 header. The
// signature itself is not verified.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Protocol is the wire protocol of a service.
type Protocol int

// The protocols of the services that the region has.
const (
	// EC2Query is form in, XML out, with the result's fields directly under
	// <ActionResponse>.
	EC2Query Protocol = iota
	// Query is form in, XML out, with an <ActionResult> element (IAM, STS, Auto
	// Scaling).
	Query
	// JSON is a JSON body each way with the operation in X-Amz-Target
	// (DynamoDB, SSM, EventBridge, CloudWatch Logs).
	JSON
	// REST names the operation by method and path (Lambda, S3).
	REST
	// CBOR is Smithy's RPC v2, CBOR each way with the operation in the path, or
	// JSON where the request says so: the SDK for Go speaks the one, the AWS CLI
	// the other (CloudWatch). Operations see the body as JSON.
	CBOR
)

// Service is one AWS service.
type Service struct {
	// Name is the service's SigV4 signing name, which also prefixes its IAM
	// actions unless IAMPrefix says otherwise: ec2, autoscaling, dynamodb.
	Name      string
	IAMPrefix string
	Protocol  Protocol
	// Namespace is the XML namespace of Query responses.
	Namespace string
	// Route names the operation of a REST request, "" when there is none.
	Route func(*http.Request) string
	// Operations are the calls the service answers. One that is called and is
	// not here is answered with an InvalidAction that says so.
	Operations map[string]Operation
}

// Operation answers one call. The result is marshalled by the service's
// protocol: XML by xml tags, JSON and CBOR by json tags; a *Raw is sent as it is; nil
// is an empty result. An operation must call Call.Authorize before it changes
// or tells anything.
type Operation func(ctx context.Context, c *Call) (any, error)

// Principal is who calls.
type Principal struct {
	// ARN is the caller's ARN, as sts:GetCallerIdentity tells it.
	ARN string
	// Role is the name of the assumed role, "" for the account's
	// administrator, who may do everything.
	Role string
	// Session is the assumed role's session name: the instance ID for an
	// instance's role, the function's name for a Lambda function's.
	Session string
}

// Access is one permission that a call needs.
type Access struct {
	// Action is the IAM action, such as "ec2:AttachVolume".
	Action string
	// Resource is the ARN of what is acted on, "*" for actions without one.
	Resource string
	// Context holds the condition keys' values, such as
	// "aws:ResourceTag/ClusterName".
	Context map[string]string
}

// Authorizer says whether a principal may do something; a refusal is an error
// that says so in IAM's words.
type Authorizer interface {
	Authorize(Principal, Access) error
}

// Call is one request to a service.
type Call struct {
	Request   *http.Request
	RequestID string
	Service   *Service
	Action    string
	Principal Principal
	// Body is the raw body.
	Body []byte
	// Params are the parameters of a Query request.
	Params Params

	authorizer Authorizer
	authorized bool
	ahead      time.Duration // the region's clock, of the caller's
}

// Authorize refuses the call unless its principal has every access.
func (c *Call) Authorize(accesses ...Access) error {
	c.authorized = true
	for _, access := range accesses {
		if err := c.authorizer.Authorize(c.Principal, access); err != nil {
			return err
		}
	}
	return nil
}

// AuthorizeOn is Authorize for this call's own action, "service:Action", on
// each of the resources; without any, on "*".
func (c *Call) AuthorizeOn(resources ...string) error {
	if len(resources) == 0 {
		resources = []string{"*"}
	}
	for _, resource := range resources {
		if err := c.Authorize(Access{Action: c.IAMAction(), Resource: resource}); err != nil {
			return err
		}
	}
	return nil
}

// IAMAction is the IAM action of this call.
func (c *Call) IAMAction() string {
	prefix := c.Service.IAMPrefix
	if prefix == "" {
		prefix = c.Service.Name
	}
	return prefix + ":" + c.Action
}

// Decode reads a JSON body.
func (c *Call) Decode(into any) error {
	if len(c.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.Body, into); err != nil {
		return Errorf(http.StatusBadRequest, "SerializationException", "%v", err)
	}
	return nil
}

// Raw is a response that bypasses the service's protocol.
type Raw struct {
	Status int
	Header http.Header
	Body   []byte
}

// Error is an error as AWS sends it.
type Error struct {
	Status  int
	Code    string
	Message string
	// Fields are further members of a JSON error, such as the Item of a
	// ConditionalCheckFailedException.
	Fields map[string]any
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Errorf makes an Error.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrDropped, returned by an Interceptor, closes the connection without an
// answer, as a network does that lost it.
var ErrDropped = errors.New("connection dropped")

// Interceptor stands around every call. It may refuse the call without calling
// next, delay it, or call next and lose or change the answer. Faults are made
// of these.
type Interceptor func(ctx context.Context, c *Call, next func(context.Context) (any, error)) (any, error)

// Params are the parameters of a Query request: Name.1=…, Filter.1.Name=….
type Params map[string]string

func newParams(values url.Values) Params {
	params := make(Params, len(values))
	for name := range values {
		params[name] = values.Get(name)
	}
	return params
}

// Get returns one parameter, "" when it is absent.
func (p Params) Get(name string) string { return p[name] }

// Has says whether a parameter, or any below it, was given.
func (p Params) Has(name string) bool {
	if _, ok := p[name]; ok {
		return true
	}
	for key := range p {
		if strings.HasPrefix(key, name+".") {
			return true
		}
	}
	return false
}

// Sub returns the parameters below a name.
func (p Params) Sub(name string) Params {
	sub := Params{}
	for key, value := range p {
		if rest, ok := strings.CutPrefix(key, name+"."); ok {
			sub[rest] = value
		}
	}
	return sub
}

// List returns the values of a list of strings, in either dialect
// (Name.1=…, Name.member.1=…).
func (p Params) List(name string) []string {
	var list []string
	sub := p.items(name)
	for i := 1; ; i++ {
		value, ok := sub[fmt.Sprint(i)]
		if !ok {
			return list
		}
		list = append(list, value)
	}
}

// Structs returns the members of a list of structures, in either dialect.
func (p Params) Structs(name string) []Params {
	var list []Params
	sub := p.items(name)
	for i := 1; ; i++ {
		item := sub.Sub(fmt.Sprint(i))
		if len(item) == 0 {
			return list
		}
		list = append(list, item)
	}
}

func (p Params) items(name string) Params {
	sub := p.Sub(name)
	if member := sub.Sub("member"); len(member) > 0 {
		return member
	}
	return sub
}
