package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

// Machine is one machine.
type Machine struct {
	machines *Machines
	spec     ec2.MachineSpec
	exited   chan struct{}
	wire     wire

	// power serialises what changes whether the machine runs.
	power sync.Mutex

	mu    sync.Mutex
	boot  *boot // nil while it is off
	disks map[string]*disk
	// console is what the machine wrote, once its disk is gone.
	console string
}

var _ ec2.Machine = (*Machine)(nil)

func (m *Machine) folder(elements ...string) string {
	return m.machines.folder(append([]string{disksFolder, m.spec.InstanceID}, elements...)...)
}

// group is the machine's own control group.
func (m *Machine) group() string { return filepath.Join(m.machines.group, m.spec.InstanceID) }

// make makes what outlives a boot: the disk and the network.
func (m *Machine) make(ctx context.Context) (err error) {
	for _, folder := range []string{"upper", "work", "root"} {
		if err := os.MkdirAll(m.folder(folder), 0o755); err != nil {
			return fmt.Errorf("make the disk: %w", err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s:%s,upperdir=%s,workdir=%s",
		m.machines.folder(layerFolder), m.machines.config.Image, m.folder("upper"), m.folder("work"))
	if err := unix.Mount("overlay", m.folder("root"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	m.wire, err = newWire(ctx, m.spec.InstanceID, m.spec.PrivateIP)
	return err
}

// discard ends a machine that could not be made or booted, and removes it.
func (m *Machine) discard() error {
	m.end()
	return m.Remove()
}

// powerOn boots the machine. The caller holds power.
func (m *Machine) powerOn(ctx context.Context) error {
	groups, err := makeGroups(m.group())
	if err != nil {
		return err
	}
	b, err := startBoot(ctx, m, groups)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, d := range m.disks {
		if err := b.plug(id, d); err != nil {
			b.kill()
			return err
		}
	}
	m.boot = b
	go m.watch(b) //nolint:contextcheck // it outlives the call
	m.machines.config.Logger.Info("machine boots", "instance", m.spec.InstanceID, "address", m.spec.PrivateIP)
	return nil
}

// watch waits for the end of a boot and decides what follows: a reboot that
// the machine asked for itself, or the end of the machine.
func (m *Machine) watch(b *boot) {
	<-b.over
	m.machines.config.Logger.Info("machine is off", "instance", m.spec.InstanceID, "status", b.status)
	// Whoever turned the machine off holds power and decides; else it was the
	// machine itself.
	if !m.power.TryLock() {
		return
	}
	defer m.power.Unlock()
	if m.running() != b {
		return
	}
	if b.status == exitReboot && m.powerOn(context.Background()) == nil {
		return
	}
	m.end()
}

// end marks the machine as ended for good.
func (m *Machine) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = nil
	for _, d := range m.disks {
		_ = d.loop.close() // its file stays as it is
	}
	clear(m.disks)
	select {
	case <-m.exited:
	default:
		close(m.exited)
	}
}

// running returns the present boot, nil when the machine is off.
func (m *Machine) running() *boot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot
}

var errOff = errors.New("the machine is off")

// Stop shuts the machine down in order, and without order when ctx ends first.
func (m *Machine) Stop(ctx context.Context) error {
	m.power.Lock()
	defer m.power.Unlock()
	defer m.end()
	if b := m.running(); b != nil {
		return b.shutdown(ctx, signalPowerOff)
	}
	return nil
}

// Kill ends every process of the machine at once, also while it shuts down.
func (m *Machine) Kill() error {
	if b := m.running(); b != nil {
		b.signal(syscall.SIGKILL)
	}
	m.power.Lock()
	defer m.power.Unlock()
	defer m.end()
	if b := m.running(); b != nil {
		b.kill()
	}
	return nil
}

// Reboot stops the machine in order and boots it again.
func (m *Machine) Reboot(ctx context.Context) error {
	m.power.Lock()
	defer m.power.Unlock()
	b := m.running()
	if b == nil {
		return errOff
	}
	err := b.shutdown(ctx, signalReboot)
	if err == nil {
		err = m.powerOn(ctx)
	}
	if err != nil {
		m.end()
		return fmt.Errorf("reboot machine %s: %w", m.spec.InstanceID, err)
	}
	return nil
}

// Cut pulls the machine's network cable: nothing reaches it, and it reaches
// nothing, the metadata service included.
func (m *Machine) Cut(ctx context.Context) error { return m.wire.cut(ctx) }

// Heal puts the cable back.
func (m *Machine) Heal(ctx context.Context) error { return m.wire.heal(ctx) }

// Exited is closed when the machine no longer runs.
func (m *Machine) Exited() <-chan struct{} { return m.exited }

// agentFile is what the unit that stands for the SSM agent makes.
const agentFile = "/run/amazon-ssm-agent"

// AgentOnline says whether the machine's SSM agent has registered.
func (m *Machine) AgentOnline() bool {
	b := m.running()
	if b == nil {
		return false
	}
	_, err := os.Lstat(b.path(agentFile))
	return err == nil
}

// Execute runs a shell script on the machine, in all of its namespaces, but in
// none of its units.
func (m *Machine) Execute(ctx context.Context, script string) (ec2.CommandResult, error) {
	b := m.running()
	if b == nil {
		return ec2.CommandResult{}, errOff
	}
	var stdout, stderr bytes.Buffer
	command := b.command(ctx, "/bin/sh", "-c", script)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if ctx.Err() != nil {
		return ec2.CommandResult{}, fmt.Errorf("execute on %s: %w", m.spec.InstanceID, context.Cause(ctx))
	}
	if exit, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || !exit.Exited()) {
		return ec2.CommandResult{}, fmt.Errorf("execute on %s: %w", m.spec.InstanceID, err)
	}
	return ec2.CommandResult{ExitCode: command.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}, nil
}

// Console is what the machine has written to its console so far, also after
// its disk was removed, as EC2 keeps it for a while.
func (m *Machine) Console() string {
	if text, err := os.ReadFile(m.folder(consoleFile)); err == nil {
		return string(text)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.console
}

// Disk is the machine's disk as a filesystem.
func (m *Machine) Disk() fs.FS { return os.DirFS(m.folder("root")) }

// Remove deletes the machine's disk and network.
func (m *Machine) Remove() error {
	select {
	case <-m.exited:
	default:
		return fmt.Errorf("remove machine %s: it runs", m.spec.InstanceID)
	}
	m.machines.forget(m.spec.InstanceID)
	console := m.Console()
	m.mu.Lock()
	m.console = console
	m.mu.Unlock()
	problems := []error{m.wire.remove(context.Background()), removeGroups(m.group())}
	if err := unix.Unmount(m.folder("root"), 0); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, fmt.Errorf("unmount the disk: %w", err))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("remove machine %s: %w", m.spec.InstanceID, err)
	}
	return os.RemoveAll(m.folder())
}
