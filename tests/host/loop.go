package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const loopControl = "/dev/loop-control"

// loopMajor is the major number of loop devices:
// https://www.kernel.org/doc/html/latest/admin-guide/devices.html
const loopMajor = 7

// loop is a block device over a file. The kernel frees it when the last
// descriptor of it is closed, this one or one of a machine's.
type loop struct {
	file  *os.File
	minor int
}

// openLoop makes a block device of a file. Its node is made in a folder.
func openLoop(folder, backing string) (_ *loop, err error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	data, err := os.OpenFile(backing, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	defer data.Close()
	const tries = 20 // another program may take the number that was free
	for range tries {
		var l *loop
		l, err = bindLoop(folder, int(control.Fd()), data)
		if !errors.Is(err, unix.EBUSY) {
			return l, err
		}
	}
	return nil, err
}

func bindLoop(folder string, control int, data *os.File) (*loop, error) {
	minor, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	// The node in /dev may be missing, as in containers.
	node := fmt.Sprintf("%s/loop%d", folder, minor)
	if err := makeNode(node, minor); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	file, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open a loop device: %w", err)
	}
	config := unix.LoopConfig{Fd: uint32(data.Fd()), Size: 512, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	if err := unix.IoctlLoopConfigure(int(file.Fd()), &config); err != nil {
		return nil, errors.Join(fmt.Errorf("set up a loop device: %w", err), file.Close())
	}
	return &loop{file, minor}, nil
}

// makeNode makes the loop device of a number appear under a path.
func makeNode(path string, minor int) error {
	if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(minor)))); err != nil {
		return fmt.Errorf("make the device %s: %w", path, &os.PathError{Op: "mknod", Path: path, Err: err})
	}
	return nil
}

// revoke shrinks the device to nothing: whoever still has it open can neither
// read nor write any more.
func (l *loop) revoke() error {
	info, err := unix.IoctlLoopGetStatus64(int(l.file.Fd()))
	if err != nil {
		return fmt.Errorf("shrink a loop device: %w", err)
	}
	info.Sizelimit = 512 // zero would be no limit
	if err := unix.IoctlLoopSetStatus64(int(l.file.Fd()), info); err != nil {
		return fmt.Errorf("shrink a loop device: %w", err)
	}
	return nil
}

func (l *loop) close() error { return l.file.Close() }
