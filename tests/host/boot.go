package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// consoleFile is what a machine writes to its console, in its folder.
const consoleFile = "console.log"

// exitReboot is how systemd-nspawn ends when its machine wants to be booted
// again.
const exitReboot = 133

// Signals to a machine's systemd, from systemd(1).
const (
	signalPowerOff = syscall.Signal(34 + 4) // SIGRTMIN+4
	signalReboot   = syscall.Signal(34 + 5) // SIGRTMIN+5
)

// bootPatience is how long it takes at most until a machine's first process
// runs.
const bootPatience = time.Minute

// boot is a machine between power on and power off.
type boot struct {
	nspawn *exec.Cmd
	leader int // the machine's first process
	since  time.Time
	// over is closed when nothing of the boot runs any more; status is
	// systemd-nspawn's exit status then.
	over   chan struct{}
	status int
}

// startBoot starts systemd-nspawn and waits until the machine's first process
// runs.
func startBoot(ctx context.Context, m *Machine, groups []string) (_ *boot, err error) {
	socket := m.folder("notify")
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("listen for systemd-nspawn: %w", err)
	}
	defer notify.Close()
	console, err := os.OpenFile(m.folder(consoleFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	defer console.Close()

	b := &boot{nspawn: nspawn(m, groups), since: time.Now(), over: make(chan struct{})}
	b.nspawn.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	b.nspawn.Stdout, b.nspawn.Stderr = console, console
	if err := b.nspawn.Start(); err != nil {
		return nil, fmt.Errorf("start systemd-nspawn: %w", err)
	}
	go func() {
		_ = b.nspawn.Wait() // its status is read below
		b.status = b.nspawn.ProcessState.ExitCode()
		close(b.over)
		_ = notify.Close() // nothing more will come
	}()
	if b.leader, err = awaitLeader(notify); err != nil {
		_ = b.nspawn.Process.Signal(syscall.SIGTERM) // it may have ended itself
		<-b.over
		return nil, fmt.Errorf("%w; its console says: %s", err, lastLines(m.Console(), 5))
	}
	if err := b.prepare(ctx); err != nil {
		b.kill()
		return nil, err
	}
	return b, nil
}

// nspawn is the command that boots a machine.
func nspawn(m *Machine, groups []string) *exec.Cmd {
	// systemd-nspawn enters the network namespace before it mounts /sys, which
	// would show the suite's interfaces otherwise; and it makes the machine's
	// control groups below its own.
	var enter strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&enter, "echo 0 >'%s' && ", filepath.Join(group, "cgroup.procs"))
	}
	return exec.Command("/bin/sh", "-c", enter.String()+`exec "$@"`, "sh", //nolint:noctx // it outlives the call; Close ends it
		"nsenter", "--net="+m.wire.path(), "systemd-nspawn", "--quiet", "--boot",
		"--directory="+m.folder("root"), "--machine="+m.spec.InstanceID,
		"--register=no", "--keep-unit", "--network-namespace-path="+m.wire.path(), "--capability=CAP_NET_ADMIN",
		"--resolv-conf=off", "--timezone=off", "--link-journal=no", "--bind=/dev/fuse",
		"--notify-ready=yes", "--console=read-only")
}

// awaitLeader reads which process is a machine's first.
func awaitLeader(notify *net.UnixConn) (int, error) {
	if err := notify.SetReadDeadline(time.Now().Add(bootPatience)); err != nil {
		return 0, err
	}
	buffer := make([]byte, 4096)
	for {
		n, err := notify.Read(buffer)
		if err != nil {
			return 0, errors.New("systemd-nspawn has not started the machine")
		}
		for line := range bytes.Lines(buffer[:n]) {
			if text, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("X_NSPAWN_LEADER_PID=")); ok {
				return strconv.Atoi(string(text))
			}
		}
	}
}

// prepare puts the list of block devices that the machine shall see in the
// place of the kernel's.
func (b *boot) prepare(ctx context.Context) error {
	if err := os.MkdirAll(b.path(blockFolder), 0o755); err != nil {
		return fmt.Errorf("prepare the devices: %w", err)
	}
	return run(ctx, "nsenter", "--target", strconv.Itoa(b.leader), "--mount", "mount", "--bind", blockFolder, "/sys/block")
}

// command is a command in all of the machine's namespaces.
func (b *boot) command(ctx context.Context, arguments ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(b.leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"}
	command := exec.CommandContext(ctx, "nsenter", append(enter, arguments...)...)
	command.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	command.WaitDelay = time.Second // a child may keep its output open
	return command
}

// shutdown has systemd end the machine in order, and ends it at once when ctx
// ends first.
func (b *boot) shutdown(ctx context.Context, signal syscall.Signal) error {
	b.signal(signal)
	select {
	case <-b.over:
		return nil
	case <-ctx.Done():
		b.kill()
		return ctx.Err()
	}
}

// kill ends the first process, with which the kernel ends all others.
func (b *boot) kill() {
	b.signal(syscall.SIGKILL)
	<-b.over
}

// signal signals the first process while it is this boot's.
func (b *boot) signal(signal syscall.Signal) {
	select {
	case <-b.over:
	default:
		_ = syscall.Kill(b.leader, signal) // it may be about to end itself
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
