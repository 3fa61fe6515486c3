package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const cgroups = "/sys/fs/cgroup"

// groupPrefix starts the names of the control groups that this suite makes.
const groupPrefix = "etcfs-host-"

// hierarchies are the roots of the control groups: one in version 2, one for
// each set of controllers in version 1, and systemd's own.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.procs")); err == nil {
		return []string{cgroups}, nil
	}
	found, err := filepath.Glob(filepath.Join(cgroups, "*", "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there are no control groups in %s", cgroups)
	}
	for i, file := range found {
		found[i] = filepath.Dir(file)
	}
	return found, nil
}

// makeGroups makes the control group of a name in every hierarchy, ready for
// processes, and returns their folders.
func makeGroups(name string) ([]string, error) {
	roots, err := hierarchies()
	if err != nil {
		return nil, err
	}
	folders := make([]string, len(roots))
	for i, root := range roots {
		folders[i] = filepath.Join(root, name)
		if err := os.MkdirAll(folders[i], 0o755); err != nil {
			return nil, fmt.Errorf("make a control group: %w", err)
		}
		if filepath.Base(root) == "cpuset" {
			if err := inheritCPUs(root, name); err != nil {
				return nil, err
			}
		}
	}
	return folders, nil
}

// inheritCPUs fills in what a group of version 1 lacks at first, without which
// no process may enter.
func inheritCPUs(root, name string) error {
	folder := root
	for part := range strings.SplitSeq(name, "/") {
		child := filepath.Join(folder, part)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(folder, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(child, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("fill in the control group: %w", err)
			}
		}
		folder = child
	}
	return nil
}

// weigh lets the machines together count for more than one process of the
// host, which is what a group of version 1 counts for.
func weigh(name string) {
	// One that cannot be set, as in version 2, costs time only.
	_ = os.WriteFile(filepath.Join(cgroups, "cpu", name, "cpu.shares"), []byte("10240"), 0o644)
}

// removeGroups removes the control group of a name and those in it, in every
// hierarchy. The kernel refuses to remove one that has processes.
func removeGroups(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var problems []error
	for _, root := range roots {
		problems = append(problems, removeGroup(filepath.Join(root, name)))
	}
	return errors.Join(problems...)
}

func removeGroup(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	problems := []error{err}
	for _, entry := range entries {
		if entry.IsDir() {
			problems = append(problems, removeGroup(filepath.Join(folder, entry.Name())))
		}
	}
	err = os.Remove(folder)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(append(problems, err)...)
}

// Sweep removes control groups that programs left which were killed. Those of
// programs that run have processes, and stay.
func Sweep() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var problems []error
	for _, root := range roots {
		left, err := filepath.Glob(filepath.Join(root, groupPrefix+"*"))
		problems = append(problems, err)
		for _, folder := range left {
			if err := removeGroup(folder); !errors.Is(err, syscall.EBUSY) {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}
