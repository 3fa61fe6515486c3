// Package apitest puts services of the region behind a front door of their
// own, so that a test can call them with the real AWS SDK.
package apitest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// The account and the Region that tests use.
const (
	Account = "123456789012"
	Region  = "eu-west-1"
)

// Endpoint is a running front door. It lets every caller do everything but
// what Deny forbids, and remembers what it was asked.
type Endpoint struct {
	URL string
	// Server is the front door, for interceptors.
	Server *api.Server

	mu     sync.Mutex
	denied []string
	asked  []api.Access
}

// New serves the services until the test ends.
func New(t testing.TB, services ...*api.Service) *Endpoint {
	t.Helper()
	endpoint, server := newEndpoint(services)
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	endpoint.URL = listener.URL
	return endpoint
}

// NewTLS is New over TLS, with the client that trusts it: some of what the SDK
// sends differs there.
func NewTLS(t testing.TB, services ...*api.Service) (*Endpoint, *http.Client) {
	t.Helper()
	endpoint, server := newEndpoint(services)
	listener := httptest.NewTLSServer(server)
	t.Cleanup(listener.Close)
	endpoint.URL = listener.URL
	return endpoint, listener.Client()
}

func newEndpoint(services []*api.Service) (*Endpoint, *api.Server) {
	endpoint := &Endpoint{}
	endpoint.Server = &api.Server{
		Identify: func(string) (api.Principal, bool) {
			return api.Principal{ARN: "arn:aws:sts::" + Account + ":assumed-role/tester/session", Role: "tester", Session: "session"}, true
		},
		Authorizer: endpoint,
	}
	endpoint.Server.Register(services...)
	return endpoint, endpoint.Server
}

// Config is the configuration of an SDK client of the endpoint. It never
// retries: a test sees each answer.
func (e *Endpoint) Config() aws.Config {
	return aws.Config{
		Region:       Region,
		BaseEndpoint: aws.String(e.URL),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}, nil
		}),
		Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		// As the default configuration has them.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}
}

// Deny refuses the IAM actions from now on, and only them.
func (e *Endpoint) Deny(actions ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.denied = actions
}

// Asked returns the accesses that were asked for since the last call.
func (e *Endpoint) Asked() []api.Access {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked := e.asked
	e.asked = nil
	return asked
}

// Authorize implements api.Authorizer.
func (e *Endpoint) Authorize(principal api.Principal, access api.Access) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, access)
	if slices.Contains(e.denied, access.Action) {
		return api.Errorf(http.StatusForbidden, "AccessDeniedException", "%s is not authorized to perform: %s on resource: %s",
			principal.ARN, access.Action, access.Resource)
	}
	return nil
}

// RequireAccess checks that a call is refused to whoever lacks the action, and
// that with it the call asks for the action on the resource and succeeds.
func (e *Endpoint) RequireAccess(t testing.TB, action, resource string, call func() error) {
	t.Helper()
	e.Deny(action)
	// The answer to a HEAD request has no body: the SDK makes its code of the status.
	if err := call(); !strings.HasPrefix(Code(err), "AccessDenied") && Code(err) != "Forbidden" {
		t.Errorf("%s: a caller without it gets %v, want access denied", action, err)
	}
	e.Deny()
	e.Asked()
	if err := call(); err != nil {
		t.Errorf("%s: a caller with it fails: %v", action, err)
	}
	var resources []string
	for _, access := range e.Asked() {
		if access.Action == action {
			resources = append(resources, access.Resource)
		}
	}
	if !slices.Contains(resources, resource) {
		t.Errorf("%s: got asked for on %q, want on %q", action, resources, resource)
	}
}

// Code returns the AWS error code of an error that the SDK returned, "" for
// other errors and for nil.
func Code(err error) string {
	var e smithy.APIError
	if !errors.As(err, &e) {
		return ""
	}
	return e.ErrorCode()
}
