package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// modelEBS is how EBS volumes call themselves.
const modelEBS = "Amazon Elastic Block Store"

// blockFolder is what stands for /sys/block in a machine, which is the
// kernel's and cannot be written.
const blockFolder = "/run/sys-block"

// disk is a volume in a machine.
type disk struct {
	loop *loop
	// index is the number of its NVMe device; the root disk would have 0.
	index int
}

func (d *disk) name() string { return fmt.Sprintf("nvme%dn1", d.index) }

// serial is a volume's NVMe serial number: its ID without the dash.
func serial(volumeID string) string { return strings.Replace(volumeID, "-", "", 1) }

// Attach makes a volume appear under the next free NVMe name.
func (m *Machine) Attach(volumeID, file string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.disks[volumeID] != nil {
		return nil
	}
	l, err := openLoop(m.machines.folder(devicesFolder), file)
	if err != nil {
		return err
	}
	d := &disk{loop: l, index: 1}
	for _, other := range m.disks {
		d.index = max(d.index, other.index+1)
	}
	m.disks[volumeID] = d
	if m.boot == nil {
		return nil
	}
	return m.boot.plug(volumeID, d)
}

// Detach makes a volume disappear, and fails whoever still has it open.
func (m *Machine) Detach(volumeID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.disks[volumeID]
	if d == nil {
		return nil
	}
	delete(m.disks, volumeID)
	problems := []error{d.loop.revoke(), d.loop.close()}
	if m.boot != nil {
		problems = append(problems, m.boot.unplug(volumeID, d))
	}
	return errors.Join(problems...)
}

// path is where a file of the running machine is for this program.
func (b *boot) path(elements ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/%d/root", b.leader)}, elements...)...)
}

// link is a volume's name below /dev/disk/by-id, as udev's rules make it.
func (b *boot) link(volumeID string) string {
	return b.path("dev/disk/by-id", "nvme-"+strings.ReplaceAll(modelEBS, " ", "_")+"_"+serial(volumeID))
}

// plug makes a disk's attributes, device and link, which udev and the kernel
// make on a real machine: the link last, by which it is found.
func (b *boot) plug(volumeID string, d *disk) error {
	attributes := b.path(blockFolder, d.name(), "device")
	if err := os.MkdirAll(attributes, 0o755); err != nil {
		return fmt.Errorf("plug %s: %w", volumeID, err)
	}
	for file, value := range map[string]string{"serial": serial(volumeID), "model": modelEBS} {
		if err := os.WriteFile(filepath.Join(attributes, file), []byte(value+"\n"), 0o444); err != nil {
			return fmt.Errorf("plug %s: %w", volumeID, err)
		}
	}
	if err := makeNode(b.path("dev", d.name()), d.loop.minor); err != nil {
		return fmt.Errorf("plug %s: %w", volumeID, err)
	}
	link := b.link(volumeID)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return fmt.Errorf("plug %s: %w", volumeID, err)
	}
	if err := os.Symlink("../../"+d.name(), link); err != nil {
		return fmt.Errorf("plug %s: %w", volumeID, err)
	}
	return nil
}

func (b *boot) unplug(volumeID string, d *disk) error {
	var problems []error
	for _, path := range []string{b.link(volumeID), b.path("dev", d.name()), b.path(blockFolder, d.name())} {
		if err := os.RemoveAll(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("unplug %s: %w", volumeID, err))
		}
	}
	return errors.Join(problems...)
}
