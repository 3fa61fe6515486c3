// Package process makes a region's instances out of processes: each machine is
// a folder (its disk), a loopback address of its own with an instance metadata
// service, and one init process under which everything else of it runs. It
// needs no privilege.
//
// A machine's user data is really run by a shell, its units are really
// started, its daemons listen on the machine's own address. What is not there
// is isolation: machines share the host's kernel, clock, user and network, and
// see absolute paths as the host does, so that software on them is told the
// machine's root by the ETCFS_ROOT variable. A volume is a file that several
// machines open; detaching removes its device, but does not close descriptors.
//
// Nothing of a machine outlives it: init adopts orphans and ends all of them,
// also when the process that made the machine is killed.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/fleet"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

// Config is what Machines needs.
type Config struct {
	// Network holds the machines' addresses.
	Network *Network
	// WorkDir holds the machines' disks, one folder each. It is made.
	WorkDir string
	// Standin is the multi-call program of package standin.
	Standin string
	// Endpoint is the URL of the region's AWS endpoint.
	Endpoint string
	// AgentDelay is how long after boot the SSM agent registers.
	AgentDelay time.Duration
	// InstanceStore gives every machine a local NVMe disk, which takes the
	// device name that a guess would expect the shared volume under.
	InstanceStore bool
	// Logger gets a line per machine that starts or ends.
	Logger *slog.Logger
}

// Machines makes machines and knows those it made.
type Machines struct {
	config   Config
	standins string
	fleet    fleet.Fleet[*Machine]
}

var _ ec2.Machines = (*Machines)(nil)

// New prepares the work directory.
func New(config Config) (*Machines, error) {
	program, err := filepath.Abs(config.Standin)
	if err != nil {
		return nil, fmt.Errorf("find the stand-in program: %w", err)
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("find the stand-in program: %w", err)
	}
	if config.WorkDir, err = filepath.Abs(config.WorkDir); err != nil {
		return nil, fmt.Errorf("find the work directory: %w", err)
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Machines{config: config, standins: filepath.Join(config.WorkDir, "standins")}
	if err := standin.Install(m.standins, program); err != nil {
		return nil, err
	}
	return m, nil
}

// Subnet is the CIDR block of the machines' addresses.
func (m *Machines) Subnet() string { return m.config.Network.Subnet() }

// Start boots a new machine.
func (m *Machines) Start(ctx context.Context, spec ec2.MachineSpec) (ec2.Machine, error) {
	machine, err := newMachine(m, spec)
	if err != nil {
		return nil, fmt.Errorf("make machine %s: %w", spec.InstanceID, err)
	}
	if err := m.fleet.Add(spec.InstanceID, machine); err != nil {
		machine.end()
		return nil, errors.Join(err, machine.Remove())
	}
	if err := machine.powerOn(ctx); err != nil {
		machine.end()
		return nil, fmt.Errorf("boot machine %s: %w", spec.InstanceID, errors.Join(err, machine.Remove()))
	}
	return machine, nil
}

// Machine returns a machine by its instance ID, nil when there is none.
func (m *Machines) Machine(instanceID string) *Machine { return m.fleet.Machine(instanceID) }

// Close kills every machine and refuses new ones. Disks stay until Remove.
func (m *Machines) Close() error { return m.fleet.Close() }
