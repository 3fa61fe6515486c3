// Package rootfs finds files in a machine's directory tree: the chroot in
// miniature that lets a machine be a folder without any privilege.
package rootfs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Variable names the environment variable that holds a machine's root.
const Variable = "ETCFS_ROOT"

// Root is the root of the machine that the process runs on, "" outside one.
func Root() string { return os.Getenv(Variable) }

// shared lists the paths that mean the same on every machine.
var shared = []string{"/proc", "/dev/null", "/dev/zero", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd"}

// Path places an absolute path below root. A path that is there already, a
// relative one, and the few that every machine shares stay as they are.
func Path(root, path string) string {
	if root == "" || !filepath.IsAbs(path) || within(path, root) {
		return path
	}
	for _, s := range shared {
		if within(path, s) {
			return path
		}
	}
	return filepath.Join(root, path)
}

// Strip is the reverse of Path: the path as the machine itself names it.
func Strip(root, path string) string {
	if root == "" || !within(path, root) {
		return path
	}
	return filepath.Join("/", strings.TrimPrefix(path, root))
}

// Argument places every absolute path of a command-line argument below root:
// the argument itself, the value behind "--flag=", each member of a list with
// commas.
func Argument(root, argument string) string {
	flag, value := "", argument
	if strings.HasPrefix(argument, "-") {
		if name, v, ok := strings.Cut(argument, "="); ok {
			flag, value = name+"=", v
		}
	}
	members := strings.Split(value, ",")
	for i, member := range members {
		if strings.HasPrefix(member, "/") && !strings.HasPrefix(member, "//") {
			members[i] = Path(root, member)
		}
	}
	return flag + strings.Join(members, ",")
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// ListenUnix listens on a socket file of any path length: the kernel's limit
// of 108 bytes is met by naming the folder through its descriptor. An old
// socket file there is replaced. The file stays when the listener is closed.
func ListenUnix(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	short, folder, err := short(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// DialUnix connects to a socket file of any path length.
func DialUnix(path string) (*net.UnixConn, error) {
	short, folder, err := short(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		if syscallErr, ok := errors.AsType[*os.SyscallError](err); ok {
			err = syscallErr
		}
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}

func short(path string) (string, *os.File, error) {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, fmt.Errorf("open the socket's folder: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)), folder, nil
}
