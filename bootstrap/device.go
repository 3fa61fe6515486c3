package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errNoDevice says that the volume has not become a device of this machine.
var errNoDevice = errors.New("no such device")

// ebsModel is how EBS volumes call themselves. Instance-store disks are NVMe
// devices too, with another model ("Amazon EC2 NVMe Instance Storage").
const ebsModel = "Amazon Elastic Block Store"

// findDevice returns the device of an attached EBS volume. The kernel numbers
// NVMe devices in the order in which it meets them, which changes from boot to
// boot and when a volume is attached again, so the volume is found by its
// serial number: it is the link that udev makes of model and serial, confirmed
// by what the device itself says in sysfs, or, by sysfs alone, a name such as
// /dev/nvme1n1 where udev has no such rule.
func findDevice(root, volumeID string) (string, error) {
	serial := strings.Replace(volumeID, "-", "", 1)
	link := "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + serial
	target, err := os.Readlink(filepath.Join(root, link))
	switch {
	case err == nil:
		name := filepath.Base(target)
		if err := confirmDevice(root, name, serial); err != nil {
			return "", fmt.Errorf("%s leads to %s: %w", filepath.Base(link), name, err)
		}
		return link, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("find the device of %s: %w", volumeID, err)
	}

	models, err := filepath.Glob(filepath.Join(root, "/sys/block/nvme*/device/model"))
	if err != nil {
		return "", fmt.Errorf("find the device of %s: %w", volumeID, err)
	}
	for _, model := range models {
		name := filepath.Base(filepath.Dir(filepath.Dir(model)))
		if confirmDevice(root, name, serial) == nil {
			return "/dev/" + name, nil
		}
	}
	return "", fmt.Errorf("find the device of %s: %w", volumeID, errNoDevice)
}

// confirmDevice says why a block device is not the EBS volume with the serial.
func confirmDevice(root, name, serial string) error {
	device := filepath.Join(root, "/sys/block", name, "device")
	for _, property := range []struct{ file, want string }{{"model", ebsModel}, {"serial", serial}} {
		content, err := os.ReadFile(filepath.Join(device, property.file))
		if err != nil {
			// A device that is just appearing, or disappearing.
			return fmt.Errorf("%w: %w", errNoDevice, err)
		}
		if got := strings.TrimSpace(string(content)); got != property.want {
			return fmt.Errorf("its %s is %q and not %q", property.file, got, property.want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "/dev", name)); err != nil {
		return fmt.Errorf("%w: %w", errNoDevice, err)
	}
	return nil
}
