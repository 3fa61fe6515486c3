// Package lambda is Lambda of the region: functions from zip archives for
// provided.al2023, whose bootstrap really runs as a process behind the Lambda
// runtime API, with its role's credentials and its own execution environments.
//
// There is one version of a function, $LATEST, and neither layers, VPCs,
// concurrency limits nor freezing between invocations, and no destinations but
// queues for what failed. A
// parameter that the service does not have is refused, never ignored.
package lambda

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
	"github.com/etcfs/pulumi-etcfs/tests/region/logs"
	"github.com/etcfs/pulumi-etcfs/tests/region/sqs"
)

// Roles are the account's roles.
type Roles interface {
	// Assume makes temporary credentials of a role for a session.
	Assume(role, session string) (iam.Credentials, error)
	// Trusts says whether a role exists and lets a service assume it.
	Trusts(role, service string) bool
}

// Queues are where events go that a function failed for good.
type Queues interface {
	// SendAs sends a message of a role that a service has assumed.
	SendAs(principal api.Principal, queueARN, body string) error
}

var (
	_ Roles  = (*iam.Service)(nil)
	_ Queues = (*sqs.Queues)(nil)
)

// Config is what the service needs; every field is required.
type Config struct {
	Account, Region string
	// Directory is where code is unpacked.
	Directory string
	// Address is the IP address that runtime APIs listen on.
	Address string
	// Endpoint is the URL of the region's services, for the functions.
	Endpoint string
	Roles    Roles
	// Authorizer judges whether a function's role lets it write its log.
	Authorizer api.Authorizer
	Logs       *logs.Logs
	Queues     Queues
	// RetryIntervals are the waits before the second and the third try of an
	// asynchronous invocation. AWS waits one and two minutes.
	RetryIntervals [2]time.Duration
	// Logger tells what becomes of asynchronous invocations.
	Logger *slog.Logger
}

// Functions is the service.
type Functions struct {
	config Config
	ctx    context.Context //nolint:containedctx // asynchronous invocations outlive the calls that ask for them
	stop   context.CancelFunc
	wait   sync.WaitGroup

	mu        sync.Mutex
	functions map[string]*function
	// busy and idle are the execution environments.
	busy map[*environment]bool
	idle map[*function][]*environment
}

// New makes the service. Close ends it.
func New(config Config) *Functions {
	ctx, stop := context.WithCancel(context.Background())
	return &Functions{
		config: config, ctx: ctx, stop: stop,
		functions: map[string]*function{}, busy: map[*environment]bool{}, idle: map[*function][]*environment{},
	}
}

// Close ends every execution environment and forgets what waits to be invoked.
func (f *Functions) Close() {
	f.stop()
	f.mu.Lock()
	var all []*environment
	for e := range f.busy {
		all = append(all, e)
	}
	for _, idle := range f.idle {
		all = append(all, idle...)
	}
	f.idle = map[*function][]*environment{}
	f.mu.Unlock()
	for _, e := range all {
		e.stop()
	}
	f.wait.Wait()
}

// endpoint is one path of the REST API.
type endpoint struct {
	method    string
	pattern   *regexp.Regexp
	operation string
}

// endpoints are the paths; the first group of each is the function.
var endpoints = []endpoint{
	{http.MethodPost, regexp.MustCompile(`^/2015-03-31/functions/?()$`), "CreateFunction"},
	{http.MethodGet, regexp.MustCompile(`^/2015-03-31/functions/?()$`), "ListFunctions"},
	{http.MethodGet, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)$`), "GetFunction"},
	{http.MethodDelete, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)$`), "DeleteFunction"},
	{http.MethodGet, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/configuration$`), "GetFunctionConfiguration"},
	{http.MethodPut, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/configuration$`), "UpdateFunctionConfiguration"},
	{http.MethodPut, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/code$`), "UpdateFunctionCode"},
	{http.MethodGet, regexp.MustCompile(`^/2020-06-30/functions/([^/]+)/code-signing-config$`), "GetFunctionCodeSigningConfig"},
	{http.MethodPost, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/invocations$`), "Invoke"},
	{http.MethodPost, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/policy$`), "AddPermission"},
	{http.MethodGet, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/policy$`), "GetPolicy"},
	{http.MethodDelete, regexp.MustCompile(`^/2015-03-31/functions/([^/]+)/policy/([^/]+)$`), "RemovePermission"},
	{http.MethodPut, regexp.MustCompile(`^/2019-09-25/functions/([^/]+)/event-invoke-config$`), "PutFunctionEventInvokeConfig"},
	{http.MethodGet, regexp.MustCompile(`^/2019-09-25/functions/([^/]+)/event-invoke-config$`), "GetFunctionEventInvokeConfig"},
	{http.MethodDelete, regexp.MustCompile(`^/2019-09-25/functions/([^/]+)/event-invoke-config$`), "DeleteFunctionEventInvokeConfig"},
	{http.MethodPost, regexp.MustCompile(`^/2017-03-31/tags/(.+)$`), "TagResource"},
	{http.MethodDelete, regexp.MustCompile(`^/2017-03-31/tags/(.+)$`), "UntagResource"},
	{http.MethodGet, regexp.MustCompile(`^/2017-03-31/tags/(.+)$`), "ListTags"},
}

// match returns the endpoint of a request and the parameters in its path.
func match(r *http.Request) (operation, name, rest string) {
	for _, e := range endpoints {
		if groups := e.pattern.FindStringSubmatch(r.URL.Path); groups != nil && e.method == r.Method {
			return e.operation, functionName(groups[1]), strings.Join(groups[2:], "")
		}
	}
	return "", "", ""
}

// functionName returns the name in what may be a name, a part of an ARN or an
// ARN, with or without the only qualifier there is.
func functionName(text string) string {
	text = strings.TrimSuffix(text, ":$LATEST")
	return text[strings.LastIndex(text, ":")+1:]
}

// operation is one call on the function of that name; rest is what follows it
// in the path.
type operation func(f *Functions, c *api.Call, name, rest string) (any, error)

// Service is the service for the region's front door.
func (f *Functions) Service() *api.Service {
	service := &api.Service{
		Name:     "lambda",
		Protocol: api.REST,
		Route: func(r *http.Request) string {
			operation, _, _ := match(r)
			return operation
		},
		Operations: map[string]api.Operation{},
	}
	for name, operation := range map[string]operation{
		"CreateFunction":                  (*Functions).createFunction,
		"ListFunctions":                   (*Functions).listFunctions,
		"GetFunction":                     (*Functions).getFunction,
		"DeleteFunction":                  (*Functions).deleteFunction,
		"GetFunctionConfiguration":        (*Functions).getFunctionConfiguration,
		"UpdateFunctionConfiguration":     (*Functions).updateFunctionConfiguration,
		"UpdateFunctionCode":              (*Functions).updateFunctionCode,
		"GetFunctionCodeSigningConfig":    (*Functions).getFunctionCodeSigningConfig,
		"Invoke":                          (*Functions).invoke,
		"AddPermission":                   (*Functions).addPermission,
		"GetPolicy":                       (*Functions).getPolicy,
		"RemovePermission":                (*Functions).removePermission,
		"PutFunctionEventInvokeConfig":    (*Functions).putFunctionEventInvokeConfig,
		"GetFunctionEventInvokeConfig":    (*Functions).getFunctionEventInvokeConfig,
		"DeleteFunctionEventInvokeConfig": (*Functions).deleteFunctionEventInvokeConfig,
		"TagResource":                     (*Functions).tagResource,
		"UntagResource":                   (*Functions).untagResource,
		"ListTags":                        (*Functions).listTags,
	} {
		service.Operations[name] = func(_ context.Context, c *api.Call) (any, error) {
			_, function, rest := match(c.Request)
			return operation(f, c, function, rest)
		}
	}
	return service
}

// ARN is a function's ARN.
func (f *Functions) ARN(name string) string {
	return "arn:aws:lambda:" + f.config.Region + ":" + f.config.Account + ":function:" + name
}

// authorize refuses a caller who may not do something to a function.
func (f *Functions) authorize(c *api.Call, action, name string) error {
	context := map[string]string{}
	f.mu.Lock()
	if found := f.functions[name]; found != nil {
		for key, value := range found.tags {
			context["aws:ResourceTag/"+key] = value
		}
	}
	f.mu.Unlock()
	return c.Authorize(api.Access{Action: action, Resource: f.ARN(name), Context: context})
}

// on authorizes a call on a function, by the action of the call's name, and
// does the work under the lock.
func (f *Functions) on(c *api.Call, name string, work func(*function) error) error {
	if err := f.authorize(c, c.IAMAction(), name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.find(name)
	if err != nil {
		return err
	}
	return work(found)
}

// find returns a function; the caller holds the lock.
func (f *Functions) find(name string) (*function, error) {
	found := f.functions[name]
	if found == nil {
		return nil, api.Errorf(http.StatusNotFound, "ResourceNotFoundException", "Function not found: %s", f.ARN(name))
	}
	return found, nil
}

func decode(c *api.Call, into any) error {
	return jsonbody.Decode(c, "InvalidParameterValueException", into)
}

func invalid(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "InvalidParameterValueException", format, args...)
}
