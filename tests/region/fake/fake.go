// Package fake has what tests of the region's services put in the place of
// processes and sockets: machines in memory, events in a list, and the real
// AWS SDK wired to a front door without a network, so that a test can run in a
// synctest bubble.
package fake

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	iamsdk "github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
)

// The account and the region that tests use.
const (
	Account = "123456789012"
	Region  = "eu-west-1"
)

// Door is a front door that judges by real policies.
type Door struct {
	Server *api.Server
	IAM    *iam.Service
}

// NewDoor makes a front door to IAM and the services.
func NewDoor(identities *iam.Service, services ...*api.Service) *Door {
	door := &Door{Server: &api.Server{Identify: identities.Identify, Authorizer: identities}, IAM: identities}
	door.Server.Register(identities.API())
	door.Server.Register(services...)
	return door
}

// Administrator configures SDK clients of the administrator. They never retry:
// a test sees each answer.
func (d *Door) Administrator() aws.Config {
	return d.config(iam.AdministratorAccessKeyID, iam.AdministratorSecretAccessKey)
}

// As configures SDK clients of a role's session.
func (d *Door) As(role, session string) (aws.Config, error) {
	credentials, err := d.IAM.Assume(role, session)
	if err != nil {
		return aws.Config{}, err
	}
	return d.config(credentials.AccessKeyID, credentials.SecretAccessKey), nil
}

func (d *Door) config(key, secret string) aws.Config {
	return aws.Config{
		Region:       Region,
		BaseEndpoint: aws.String("http://region.invalid"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}, nil
		}),
		Retryer:    func() aws.Retryer { return aws.NopRetryer{} },
		HTTPClient: d,
	}
}

// Do answers a request without a network. It implements aws.HTTPClient.
func (d *Door) Do(request *http.Request) (response *http.Response, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			if cause != http.ErrAbortHandler { //nolint:errorlint // it is panicked with as it is
				panic(cause)
			}
			response, err = nil, errors.New("connection dropped")
		}
	}()
	if request.Body == nil {
		request.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	d.Server.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

// Events keeps the events that it takes.
type Events struct {
	mu     sync.Mutex
	events []Event
}

// Event is one event.
type Event struct {
	Source, DetailType string
	Resources          []string
	Detail             any
}

// Emit takes an event.
func (e *Events) Emit(_ context.Context, source, detailType string, resources []string, detail any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, Event{Source: source, DetailType: detailType, Resources: resources, Detail: detail})
}

// Of returns the events of one detail type so far, in order.
func (e *Events) Of(detailType string) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []Event
	for _, each := range e.events {
		if each.DetailType == detailType {
			found = append(found, each)
		}
	}
	return found
}

// Machines are computers in memory. The zero value is ready.
type Machines struct {
	// OnStart, when set, stands before each start; its error fails the start.
	OnStart func(ctx context.Context, spec ec2.MachineSpec) error

	mu   sync.Mutex
	made map[string]*Machine
}

// Subnet is the machines' address block.
func (m *Machines) Subnet() string { return "127.9.9.0/24" }

// Start makes a machine.
func (m *Machines) Start(ctx context.Context, spec ec2.MachineSpec) (ec2.Machine, error) {
	if m.OnStart != nil {
		if err := m.OnStart(ctx, spec); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil {
		m.made = map[string]*Machine{}
	}
	machine := &Machine{Spec: spec, volumes: map[string]string{}, exited: make(chan struct{})}
	m.made[spec.InstanceID] = machine
	return machine, nil
}

// Of is the machine of an instance, nil when it has none.
func (m *Machines) Of(instanceID string) *Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made[instanceID]
}

// Running is how many machines have not exited, and Left how many have not been
// removed.
func (m *Machines) Running() (running, left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, each := range m.made {
		each.mu.Lock()
		if !each.down {
			running++
		}
		if !each.removed {
			left++
		}
		each.mu.Unlock()
	}
	return running, left
}

// Machine is a computer in memory.
type Machine struct {
	Spec ec2.MachineSpec

	mu       sync.Mutex
	volumes  map[string]string
	exited   chan struct{}
	down     bool
	orderly  bool
	removed  bool
	rebooted int
}

// Stop shuts the machine down.
func (m *Machine) Stop(context.Context) error {
	m.exit(true)
	return nil
}

// Kill ends the machine.
func (m *Machine) Kill() error {
	m.exit(false)
	return nil
}

func (m *Machine) exit(orderly bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.down {
		m.down, m.orderly = true, orderly
		close(m.exited)
	}
}

// StoppedInOrder says whether the machine was shut down, not killed.
func (m *Machine) StoppedInOrder() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.orderly
}

// Reboot counts.
func (m *Machine) Reboot(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rebooted++
	return nil
}

// Reboots is how often the machine was rebooted.
func (m *Machine) Reboots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rebooted
}

// Exited is closed when the machine is down.
func (m *Machine) Exited() <-chan struct{} { return m.exited }

// Attach gives the machine a volume.
func (m *Machine) Attach(volumeID, file string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errors.New("machine is down")
	}
	m.volumes[volumeID] = file
	return nil
}

// Detach takes it away.
func (m *Machine) Detach(volumeID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, volumeID)
	return nil
}

// File is the file behind an attached volume, "" when it is not attached.
func (m *Machine) File(volumeID string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.volumes[volumeID]
}

// Execute answers with the script.
func (m *Machine) Execute(_ context.Context, script string) (ec2.CommandResult, error) {
	return ec2.CommandResult{Stdout: script}, nil
}

// AgentOnline says yes.
func (m *Machine) AgentOnline() bool { return true }

// Console says who the machine is.
func (m *Machine) Console() string { return "console of " + m.Spec.InstanceID }

// Remove deletes nothing.
func (m *Machine) Remove() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = true
	return nil
}

// PutRole makes a role that a service may assume, with one inline policy.
func PutRole(ctx context.Context, door *Door, name, service, policy string) error {
	client := iamsdk.NewFromConfig(door.Administrator())
	_, err := client.CreateRole(ctx, &iamsdk.CreateRoleInput{
		RoleName: &name,
		AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",` +
			`"Principal":{"Service":"` + service + `"}}]}`),
	})
	if err != nil {
		return err
	}
	_, err = client.PutRolePolicy(ctx, &iamsdk.PutRolePolicyInput{RoleName: &name, PolicyName: aws.String("policy"), PolicyDocument: &policy})
	return err
}
