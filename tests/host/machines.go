package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/fleet"
	"github.com/etcfs/pulumi-etcfs/tests/region/imds"
)

// Config is what Machines needs.
type Config struct {
	// Image is the folder of the machines' disk, from [Image].
	Image string
	// WorkDir holds the machines' own disks and consoles. It must exist and be
	// empty.
	WorkDir string
	// Program is the stand-in program (tests/region/standin/cmd/standin), whose
	// daemons the packages of EtcFS start.
	Program string
	// Region is the name of the region, in whose names the AWS APIs are served.
	Region string
	// Logger gets a line per machine that starts or ends; nil is silence.
	Logger *slog.Logger
}

// Machines makes machines and knows those it made.
type Machines struct {
	config Config
	// group is the control group of all machines.
	group string
	front *front

	fleet fleet.Fleet[*Machine]

	mu        sync.Mutex
	instances map[netip.Addr]*ec2.MachineSpec
	prepare   func(instanceID, root string) error
}

var _ region.Computers = (*Machines)(nil)

// Folders of the work directory.
const (
	devicesFolder = "devices" // nodes of loop devices
	layerFolder   = "layer"   // what all machines have on top of the image
	disksFolder   = "machines"
)

// New makes the network with the metadata service. It is to be called in the
// namespaces of [Enter].
func New(ctx context.Context, config Config) (_ *Machines, err error) {
	if !Inside() {
		return nil, errors.New("systemd machines run in namespaces of their own only")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Machines{
		config: config, group: fmt.Sprintf("%s%d", groupPrefix, time.Now().UnixNano()),
		instances: map[netip.Addr]*ec2.MachineSpec{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := layable(config.WorkDir); err != nil {
		return nil, err
	}
	for _, folder := range []string{devicesFolder, layerFolder, disksFolder} {
		if err := os.Mkdir(m.folder(folder), 0o755); err != nil {
			return nil, fmt.Errorf("make the work directory: %w", err)
		}
	}
	// The work directory may be where devices do not work.
	if err := unix.Mount("tmpfs", m.folder(devicesFolder), "tmpfs", 0, "mode=700"); err != nil {
		return nil, fmt.Errorf("mount a folder for devices: %w", err)
	}
	if _, err := makeGroups(m.group); err != nil {
		return nil, err
	}
	weigh(m.group)
	if err := makeBridge(ctx); err != nil {
		return nil, err
	}
	if m.front, err = openFront(ctx, config.Region, config.Logger, imds.BySource(m.instance)); err != nil {
		return nil, err
	}
	return m, m.makeLayer()
}

// layable makes a folder one that can be the upper layer of an overlay. One of
// an overlay itself cannot, as in a container: its content is kept in memory
// then.
func layable(folder string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return fmt.Errorf("look at the work directory: %w", err)
	}
	if stat.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return nil
	}
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("keep the work directory in memory: %w", err)
	}
	return nil
}

func (m *Machines) folder(elements ...string) string {
	return filepath.Join(append([]string{m.config.WorkDir}, elements...)...)
}

// Subnet is the CIDR block of the machines' addresses.
func (m *Machines) Subnet() string { return subnet }

// Gateway is the address that the machines reach their region at.
func (m *Machines) Gateway() string { return gatewayAddress }

// Serve answers the AWS APIs under their names from now on.
func (m *Machines) Serve(aws http.Handler) { m.front.serve(aws) }

// PrepareNext has a function change the disk of the next machine before its
// first boot. The disk is in the folder root.
func (m *Machines) PrepareNext(change func(instanceID, root string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prepare = change
}

// instance is who has an address, for the metadata service.
func (m *Machines) instance(address netip.Addr) *ec2.MachineSpec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instances[address]
}

// Start boots a new machine.
func (m *Machines) Start(ctx context.Context, spec ec2.MachineSpec) (ec2.Machine, error) {
	address, err := netip.ParseAddr(spec.PrivateIP)
	if err != nil {
		return nil, fmt.Errorf("make machine %s: %w", spec.InstanceID, err)
	}
	machine := &Machine{machines: m, spec: spec, exited: make(chan struct{}), disks: map[string]*disk{}}
	if err := m.fleet.Add(spec.InstanceID, machine); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.instances[address] = &spec
	prepare := m.prepare
	m.prepare = nil
	m.mu.Unlock()
	err = machine.make(ctx)
	if err == nil && prepare != nil {
		err = prepare(spec.InstanceID, machine.folder("root"))
	}
	if err != nil {
		return nil, fmt.Errorf("make machine %s: %w", spec.InstanceID, errors.Join(err, machine.discard())) //nolint:contextcheck // it is done whatever has ended
	}
	machine.power.Lock()
	defer machine.power.Unlock()
	if err := machine.powerOn(ctx); err != nil {
		return nil, fmt.Errorf("boot machine %s: %w", spec.InstanceID, errors.Join(err, machine.discard())) //nolint:contextcheck // it is done whatever has ended
	}
	return machine, nil
}

// Machine returns a machine by its instance ID, nil when there is none.
func (m *Machines) Machine(instanceID string) *Machine { return m.fleet.Machine(instanceID) }

// forget forgets a machine, and that it had an address.
func (m *Machines) forget(instanceID string) {
	m.fleet.Remove(instanceID)
	m.mu.Lock()
	defer m.mu.Unlock()
	for address, instance := range m.instances {
		if instance.InstanceID == instanceID {
			delete(m.instances, address)
		}
	}
}

// Close kills every machine, refuses new ones, and takes the network down.
// Disks stay until Remove.
func (m *Machines) Close() error {
	problems := []error{m.fleet.Close()}
	if m.front != nil {
		problems = append(problems, m.front.close())
	}
	return errors.Join(append(problems, removeGroups(m.group))...)
}
