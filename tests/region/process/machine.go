package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/imds"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/supervisor"
)

// metadataPort is where a machine finds its metadata service, on its own
// address: the link-local address needs privilege.
const metadataPort = 1338

// Machine is one machine.
type Machine struct {
	machines *Machines
	spec     ec2.MachineSpec
	root     string
	metadata *http.Server
	exited   chan struct{}

	// power serialises what changes whether the machine runs.
	power sync.Mutex

	mu      sync.Mutex
	boot    *boot
	volumes map[string]string // volume ID -> backing file
	devices map[string]int    // volume ID -> NVMe index
}

var _ ec2.Machine = (*Machine)(nil)

// boot is the machine between power on and power off.
type boot struct {
	init   *exec.Cmd
	client *rpc.Client
	since  time.Time
	// over is closed when nothing of the boot runs any more; status is init's
	// exit status then.
	over   chan struct{}
	status int
	frozen atomic.Bool
}

// newMachine lays out a machine's disk and starts its metadata service.
func newMachine(m *Machines, spec ec2.MachineSpec) (machine *Machine, err error) {
	machine = &Machine{
		machines: m, spec: spec, root: filepath.Join(m.config.WorkDir, spec.InstanceID),
		exited: make(chan struct{}), volumes: map[string]string{}, devices: map[string]int{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(machine.root))
		}
	}()
	for _, folder := range []string{"etc/systemd/system", "usr/bin", "usr/lib/systemd/system", "usr/local/bin", "var/log", "mnt", "root"} {
		if err := os.MkdirAll(filepath.Join(machine.root, folder), 0o755); err != nil {
			return nil, fmt.Errorf("make the disk: %w", err)
		}
	}
	hostname := "ip-" + strings.ReplaceAll(spec.PrivateIP, ".", "-")
	files := map[string]string{
		"/etc/hostname":         hostname,
		"/etc/machine-id":       strings.ReplaceAll(uuid.NewString(), "-", "") + "\n",
		"/etc/os-release":       "NAME=\"Amazon Linux\"\nVERSION=\"2023\"\nID=\"amzn\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"2023\"\nPRETTY_NAME=\"Amazon Linux 2023 (process machine)\"\n",
		supervisor.UserDataFile: string(spec.UserData),
	}
	for path, text := range files {
		path = rootfs.Path(machine.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("make the disk: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("make the disk: %w", err)
		}
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(spec.PrivateIP, fmt.Sprint(metadataPort)))
	if err != nil {
		return nil, fmt.Errorf("start the metadata service: %w", err)
	}
	machine.metadata = &http.Server{
		Handler:           imds.For(&spec),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go machine.metadata.Serve(listener) //nolint:errcheck // always ErrServerClosed, from end
	return machine, nil
}

// Root is the folder that is the machine's disk.
func (m *Machine) Root() string { return m.root }

// environment is what every process of the machine sees. None of it is there
// on a real machine, where there is one root, one network and the real AWS.
func (m *Machine) environment() []string {
	path := []string{m.machines.standins, filepath.Join(m.root, "usr/local/bin"), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	return []string{
		rootfs.Variable + "=" + m.root,
		"PATH=" + strings.Join(path, ":"),
		"LANG=C.UTF-8",
		"TMPDIR=" + filepath.Join(m.root, "tmp"),
		"AWS_REGION=" + m.spec.Region,
		"AWS_ENDPOINT_URL=" + m.machines.config.Endpoint,
		fmt.Sprintf("AWS_EC2_METADATA_SERVICE_ENDPOINT=http://%s:%d", m.spec.PrivateIP, metadataPort),
		etcfs.AddressVariable + "=" + m.spec.PrivateIP,
	}
}

// powerOn boots the machine. The caller holds power, or is the only one to
// know the machine.
func (m *Machine) powerOn(ctx context.Context) error {
	if err := m.volatile(); err != nil {
		return err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	// Init's own complaints, before it has a console, go there too.
	console, err := os.OpenFile(rootfs.Path(m.root, supervisor.ConsoleFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("open the console: %w", err), ours.Close())
	}
	defer console.Close()
	init := exec.Command(filepath.Join(m.machines.standins, standin.Name), "init", //nolint:noctx // it outlives the call; Close ends it
		"-instance-id", m.spec.InstanceID, "-boot", strings.ReplaceAll(uuid.NewString(), "-", ""), "-standins", m.machines.standins)
	init.Env, init.Dir, init.Stdout, init.Stderr = m.environment(), m.root, console, console
	init.ExtraFiles = []*os.File{theirs} // supervisor.ControlFD
	init.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, ours.Close())
	}
	if err := init.Start(); err != nil {
		return errors.Join(fmt.Errorf("start init: %w", err), ours.Close())
	}
	b := &boot{init: init, client: rpc.NewClient(ours), since: time.Now(), over: make(chan struct{})}
	m.mu.Lock()
	m.boot = b
	m.mu.Unlock()
	m.machines.config.Logger.Info("machine boots", "instance", m.spec.InstanceID, "address", m.spec.PrivateIP)
	go m.watch(b)
	return nil
}

func socketPair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the control socket: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "control")
	file := os.NewFile(uintptr(fds[0]), "control")
	defer file.Close()
	if ours, err = net.FileConn(file); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make the control socket: %w", err), theirs.Close())
	}
	return ours, theirs, nil
}

// watch waits for the end of a boot and decides what follows: a reboot that
// the machine asked for itself, or the end of the machine.
func (m *Machine) watch(b *boot) {
	_ = b.init.Wait() // its status is read below
	_ = b.client.Close()
	// Init ends everything before it exits. If it was killed itself, its
	// children died with it, but theirs did not.
	sweep(m.root)
	b.status = b.init.ProcessState.ExitCode()
	close(b.over)
	m.machines.config.Logger.Info("machine is off", "instance", m.spec.InstanceID, "status", b.status)
	// Whoever turned the machine off holds power and decides; else it was the
	// machine itself.
	if !m.power.TryLock() {
		return
	}
	defer m.power.Unlock()
	m.mu.Lock()
	current := m.boot == b
	m.mu.Unlock()
	if !current {
		return
	}
	if b.status == supervisor.ExitReboot {
		if err := m.powerOn(context.Background()); err == nil {
			return
		}
	}
	m.end()
}

// end marks the machine as ended for good. The caller holds power.
func (m *Machine) end() {
	m.mu.Lock()
	m.boot = nil
	m.mu.Unlock()
	select {
	case <-m.exited:
	default:
		_ = m.metadata.Close() // nothing listens any more either way
		close(m.exited)
	}
}

// running returns the present boot, nil when the machine is off.
func (m *Machine) running() *boot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot
}

// shutdown ends the boot in order, and without order when ctx ends before that
// is done, which is an error. The caller holds power.
func (m *Machine) shutdown(ctx context.Context) error {
	b := m.running()
	if b == nil {
		return nil
	}
	// A frozen machine cannot shut down in order.
	if !b.frozen.Load() && b.client.Call("Machine.Shutdown", struct{}{}, &struct{}{}) == nil {
		select {
		case <-b.over:
			return nil
		case <-ctx.Done():
		}
	}
	m.cutPower()
	return ctx.Err()
}

// cutPower ends the boot at once and waits until nothing of it runs. The
// caller holds power.
func (m *Machine) cutPower() {
	b := m.running()
	if b == nil {
		return
	}
	// Init takes the end of the control socket for a power failure.
	_ = b.client.Close() // closed before: the same
	select {
	case <-b.over:
	case <-time.After(10 * time.Second):
		_ = b.init.Process.Kill() // it may have ended meanwhile
		<-b.over
	}
}

// Stop shuts the machine down in order.
func (m *Machine) Stop(ctx context.Context) error {
	m.power.Lock()
	defer m.power.Unlock()
	err := m.shutdown(ctx)
	m.end()
	return err
}

// Kill ends every process of the machine at once.
func (m *Machine) Kill() error {
	m.power.Lock()
	defer m.power.Unlock()
	m.cutPower()
	m.end()
	return nil
}

var errOff = errors.New("the machine is off")

// Reboot stops the machine in order and boots it again.
func (m *Machine) Reboot(ctx context.Context) error {
	m.power.Lock()
	defer m.power.Unlock()
	if m.running() == nil {
		return errOff
	}
	if err := m.shutdown(ctx); err != nil {
		m.end()
		return err
	}
	return m.bootAgain(ctx)
}

// PowerCycle ends every process of the machine at once and boots it again on
// the same disk, as a host that lost its power and got it back.
func (m *Machine) PowerCycle(ctx context.Context) error {
	m.power.Lock()
	defer m.power.Unlock()
	if m.running() == nil {
		return errOff
	}
	m.cutPower()
	return m.bootAgain(ctx)
}

func (m *Machine) bootAgain(ctx context.Context) error {
	if err := m.powerOn(ctx); err != nil {
		m.end()
		return fmt.Errorf("boot machine %s: %w", m.spec.InstanceID, err)
	}
	return nil
}

// Freeze stops every process of the machine where it stands: its sockets stay
// open, nothing answers.
func (m *Machine) Freeze() error {
	b := m.running()
	if b == nil {
		return errOff
	}
	b.frozen.Store(true)
	if err := b.client.Call("Machine.Freeze", struct{}{}, &struct{}{}); err != nil {
		return fmt.Errorf("freeze %s: %w", m.spec.InstanceID, err)
	}
	return nil
}

// Thaw lets a frozen machine go on.
func (m *Machine) Thaw() error {
	b := m.running()
	if b == nil {
		return errOff
	}
	if err := b.client.Call("Machine.Thaw", struct{}{}, &struct{}{}); err != nil {
		return fmt.Errorf("thaw %s: %w", m.spec.InstanceID, err)
	}
	b.frozen.Store(false)
	return nil
}

// Exited is closed when the machine no longer runs.
func (m *Machine) Exited() <-chan struct{} { return m.exited }

// AgentOnline says whether the machine's SSM agent has registered.
func (m *Machine) AgentOnline() bool {
	b := m.running()
	return b != nil && !b.frozen.Load() && time.Since(b.since) >= m.machines.config.AgentDelay
}

// Execute runs a shell script on the machine.
func (m *Machine) Execute(ctx context.Context, script string) (ec2.CommandResult, error) {
	b := m.running()
	if b == nil {
		return ec2.CommandResult{}, errOff
	}
	id := uuid.NewString()
	var result supervisor.Result
	call := b.client.Go("Machine.Execute", supervisor.Script{ID: id, Text: script}, &result, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return ec2.CommandResult{}, fmt.Errorf("execute on %s: %w", m.spec.InstanceID, call.Error)
		}
		return ec2.CommandResult{ExitCode: result.ExitCode, Stdout: result.Stdout, Stderr: result.Stderr}, nil
	case <-ctx.Done():
		b.client.Go("Machine.Cancel", id, &struct{}{}, make(chan *rpc.Call, 1))
		return ec2.CommandResult{}, fmt.Errorf("execute on %s: %w", m.spec.InstanceID, ctx.Err())
	}
}

// Console is what init and the user data wrote so far.
func (m *Machine) Console() string {
	text, err := os.ReadFile(rootfs.Path(m.root, supervisor.ConsoleFile))
	if err != nil {
		return "" // the disk is gone
	}
	return string(text)
}

// Remove deletes the machine's disk.
func (m *Machine) Remove() error {
	select {
	case <-m.exited:
	default:
		return fmt.Errorf("remove machine %s: it runs", m.spec.InstanceID)
	}
	m.machines.fleet.Remove(m.spec.InstanceID)
	if err := os.RemoveAll(m.root); err != nil {
		return fmt.Errorf("remove machine %s: %w", m.spec.InstanceID, err)
	}
	return nil
}

// Signal sends a signal to every process of the machine that runs a program,
// given by the name that it was started by, and returns how many there were.
func (m *Machine) Signal(program string, signal syscall.Signal) (int, error) {
	sent := 0
	for _, pid := range processes(m.root) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has ended
		}
		name, _, _ := strings.Cut(string(line), "\x00")
		if filepath.Base(name) != program {
			continue
		}
		switch err := syscall.Kill(pid, signal); {
		case errors.Is(err, syscall.ESRCH):
		case err != nil:
			return sent, fmt.Errorf("signal %s on %s: %w", program, m.spec.InstanceID, err)
		default:
			sent++
		}
	}
	return sent, nil
}

// sweep kills every process of the machine.
func sweep(root string) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for ; ; <-ticker.C {
		found := processes(root)
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		if len(found) == 0 {
			return
		}
	}
}

// processes lists those that carry a machine's root in their environment.
func processes(root string) []int {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	mark := rootfs.Variable + "=" + root
	var found []int
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile("/proc/" + name.Name() + "/environ")
		if err != nil {
			continue // it has ended, or is another user's
		}
		if slices.Contains(strings.Split(string(environ), "\x00"), mark) {
			found = append(found, pid)
		}
	}
	return found
}
