package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Models of NVMe disks as EC2 names them.
const (
	modelEBS           = "Amazon Elastic Block Store"
	modelInstanceStore = "Amazon EC2 NVMe Instance Storage"
)

// volatile makes the folders that are empty at each boot, and the devices in
// them: the root disk, an instance-store disk if asked for, attached volumes.
func (m *Machine) volatile() error {
	for _, folder := range []string{"dev", "run", "sys", "tmp"} {
		path := filepath.Join(m.root, folder)
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clear %s: %w", folder, err)
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", folder, err)
		}
	}
	for _, folder := range []string{"run/systemd/system", "dev/disk/by-id", "sys/block"} {
		if err := os.MkdirAll(filepath.Join(m.root, folder), 0o755); err != nil {
			return fmt.Errorf("make %s: %w", folder, err)
		}
	}
	// Serial numbers of their own, always the same for one machine.
	hash := sha256.Sum256([]byte(m.spec.InstanceID))
	digits := hex.EncodeToString(hash[:])[:17]
	if err := m.plug(0, "vol"+digits, modelEBS, os.DevNull); err != nil {
		return err
	}
	if m.machines.config.InstanceStore {
		if err := m.plug(1, "AWS"+strings.ToUpper(digits), modelInstanceStore, os.DevNull); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, file := range m.volumes {
		if err := m.plug(m.devices[id], serial(id), modelEBS, file); err != nil {
			return err
		}
	}
	return nil
}

// serial is a volume's NVMe serial number: its ID without the dash.
func serial(volumeID string) string { return strings.Replace(volumeID, "-", "", 1) }

// Attach makes a volume appear under the next free NVMe name.
func (m *Machine) Attach(volumeID, file string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.volumes[volumeID]; ok {
		return nil
	}
	index := 1
	for ; ; index++ {
		if _, err := os.Lstat(m.device(index)); errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	m.volumes[volumeID], m.devices[volumeID] = file, index
	return m.plug(index, serial(volumeID), modelEBS, file)
}

// Detach makes a volume disappear.
func (m *Machine) Detach(volumeID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.volumes[volumeID]; !ok {
		return nil
	}
	index := m.devices[volumeID]
	delete(m.volumes, volumeID)
	delete(m.devices, volumeID)
	return errors.Join(
		os.Remove(m.link(modelEBS, serial(volumeID))),
		os.Remove(m.link(modelEBS, serial(volumeID)+"-ns-1")),
		os.Remove(m.device(index)),
		os.RemoveAll(filepath.Join(m.root, "sys/block", filepath.Base(m.device(index)))),
	)
}

func (m *Machine) device(index int) string {
	return filepath.Join(m.root, fmt.Sprintf("dev/nvme%dn1", index))
}

// link is a disk's name below /dev/disk/by-id, as udev's rules make it.
func (m *Machine) link(model, serial string) string {
	return filepath.Join(m.root, "dev/disk/by-id", "nvme-"+strings.ReplaceAll(model, " ", "_")+"_"+serial)
}

// plug makes a disk's device, links and sysfs attributes; the device last, so
// that who sees it can identify it.
func (m *Machine) plug(index int, serial, model, file string) error {
	device := m.device(index)
	attributes := filepath.Join(m.root, "sys/block", filepath.Base(device), "device")
	if err := os.MkdirAll(attributes, 0o755); err != nil {
		return fmt.Errorf("plug %s: %w", serial, err)
	}
	for name, value := range map[string]string{"serial": serial, "model": model} {
		if err := os.WriteFile(filepath.Join(attributes, name), []byte(value+"\n"), 0o444); err != nil {
			return fmt.Errorf("plug %s: %w", serial, err)
		}
	}
	target := filepath.Join("../..", filepath.Base(device))
	for _, err := range []error{
		os.Symlink(file, device),
		os.Symlink(target, m.link(model, serial+"-ns-1")),
		os.Symlink(target, m.link(model, serial)),
	} {
		if err != nil {
			return fmt.Errorf("plug %s: %w", serial, err)
		}
	}
	return nil
}
