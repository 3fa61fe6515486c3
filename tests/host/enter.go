package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// insideVariable marks the program that runs in the namespaces.
const insideVariable = "ETCFS_HOST_INSIDE"

// commands are what the suite runs, with the Debian packages that bring them.
var commands = map[string]string{
	"systemd-nspawn": "systemd-container", "debootstrap": "debootstrap", "ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux",
}

// Unusable says why machines cannot run here, "" when they can.
func Unusable(ctx context.Context) string {
	if os.Geteuid() != 0 {
		return "systemd machines need root"
	}
	for name, brought := range commands {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Sprintf("%s is not installed (Debian package %s)", name, brought)
		}
	}
	for _, device := range []string{"/dev/fuse", loopControl} {
		file, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return err.Error()
		}
		_ = file.Close() // nothing was written
	}
	// What machines are made of, tried: namespaces, a bridge, a mount.
	try := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc",
		"sh", "-c", "ip link add br0 type bridge && mount -t tmpfs none /mnt")
	if out, err := try.CombinedOutput(); err != nil {
		return fmt.Sprintf("namespaces, bridges or mounts are not allowed: %v: %s", err, strings.TrimSpace(string(out)))
	}
	if _, err := hierarchies(); err != nil {
		return err.Error()
	}
	return ""
}

// Inside says whether this program runs in the namespaces that Enter made.
func Inside() bool { return os.Getenv(insideVariable) != "" }

// patience is how long the program in the namespaces may take to clean up once
// the context has ended.
const patience = time.Minute

// Enter runs this program again with the given arguments, as the first process
// of mount, PID and network namespaces of its own, waits for its end and
// returns its exit status. When it ends, the kernel ends whatever it has left.
func Enter(ctx context.Context, arguments ...string) (int, error) {
	// The kernel ends the child with the thread that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.CommandContext(ctx, "/proc/self/exe", arguments...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), insideVariable+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		// A Ctrl-C at the terminal comes by way of the context.
		Setpgid: true,
	}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = patience
	err := child.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return 0, fmt.Errorf("run in namespaces of its own: %w", err)
	}
	return child.ProcessState.ExitCode(), nil
}

// Settle makes the namespaces that the program has been entered into usable:
// mounts stay in here, /proc shows these processes, the loopback device is up.
// It is called once, first.
func Settle(ctx context.Context) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Names of network namespaces are mounts; the host's are none of ours.
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return fmt.Errorf("make the folder of network namespaces: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run/netns", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount the folder of network namespaces: %w", err)
	}
	return run(ctx, "ip", "link", "set", "lo", "up")
}

// run runs a command; one that fails is an error with what it said.
func run(ctx context.Context, name string, arguments ...string) error {
	out, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
