// Package ssm is Systems Manager of the region: Run Command, which really runs
// its scripts on the instances' machines, the inventory of managed instances,
// and public parameters.
//
// AWS-RunShellScript is the only document, commands go to instances named by
// their IDs, and there are no parameters of the account's own. A parameter of
// a call that the service does not have is refused, never ignored.
package ssm

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
)

// Instances are the account's EC2 instances and their machines.
type Instances interface {
	// Instance returns one, also for a while after it was terminated.
	Instance(id string) (ec2.Instance, bool)
	Instances() []ec2.Instance
	// Machine returns the computer of an instance that has one.
	Machine(id string) (ec2.Machine, bool)
}

var _ Instances = (*ec2.Service)(nil)

// Config is what the service needs.
type Config struct {
	Account, Region string
	Instances       Instances
	// Parameters are the public parameters by name.
	Parameters map[string]string
	// Lag is how long an invocation does not exist yet after its command was
	// sent.
	Lag time.Duration
}

// Manager is the service.
type Manager struct {
	config Config
	ctx    context.Context //nolint:containedctx // commands outlive the calls that send them
	stop   context.CancelFunc
	wait   sync.WaitGroup

	mu          sync.Mutex
	invocations []*invocation // in the order in which they were sent
	registered  map[string]bool
}

// New makes the service. Close ends it.
func New(config Config) *Manager {
	ctx, stop := context.WithCancel(context.Background())
	return &Manager{config: config, ctx: ctx, stop: stop, registered: map[string]bool{}}
}

// Close kills the commands that run.
func (m *Manager) Close() {
	m.stop()
	m.wait.Wait()
}

// Service is the service for the region's front door.
func (m *Manager) Service() *api.Service {
	return &api.Service{
		Name:     "ssm",
		Protocol: api.JSON,
		Operations: map[string]api.Operation{
			"GetParameter":                m.getParameter,
			"GetParameters":               m.getParameters,
			"SendCommand":                 m.sendCommand,
			"GetCommandInvocation":        m.getCommandInvocation,
			"ListCommandInvocations":      m.listCommandInvocations,
			"CancelCommand":               m.cancelCommand,
			"DescribeInstanceInformation": m.describeInstanceInformation,
		},
	}
}

func decode(c *api.Call, into any) error {
	return jsonbody.Decode(c, "ValidationException", into)
}

func invalid(format string, args ...any) error {
	return refuse("ValidationException", format, args...)
}

func refuse(code, format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, code, format, args...)
}

// page is where a page of a list starts and how long it may be: as the caller
// said, from least to 50, or else usual.
func page(token string, asked *int, least, usual int) (start, limit int, err error) {
	limit = usual
	if asked != nil {
		if limit = *asked; limit < least || limit > 50 {
			return 0, 0, invalid("MaxResults %d is not from %d to 50", limit, least)
		}
	}
	start, err = strconv.Atoi("0" + token)
	if err != nil {
		return 0, 0, refuse("InvalidNextToken", "The specified token isn't valid.")
	}
	return start, limit, nil
}

// seconds is a time as the JSON protocol has it.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
