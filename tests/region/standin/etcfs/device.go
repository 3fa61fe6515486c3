package etcfs

import (
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// block is the unit that space on the device is handed out in, and that it is
// read and written in.
const block = 4096

// device is the shared device, or the file that stands for it on a process
// machine.
type device struct{ file *os.File }

// openDevice opens a device that is there: a missing one must not become a file.
func openDevice(path string) (*device, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	flags := os.O_RDWR
	if info.Mode()&os.ModeDevice != 0 {
		// Past the kernel's cache, which does not see what other machines write.
		flags |= unix.O_DIRECT
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	return &device{file}, nil
}

func (d *device) close() { _ = d.file.Close() } // everything was synced

// size is the device's size in bytes.
func (d *device) size() (int64, error) { return d.file.Seek(0, io.SeekEnd) }

// write stores data at an offset, which is a multiple of block, up to the end
// of its last block.
func (d *device) write(data []byte, offset int64) error {
	if len(data) == 0 {
		return nil
	}
	buffer := blocks(len(data))
	copy(buffer, data)
	if _, err := d.file.WriteAt(buffer, offset); err != nil {
		return err
	}
	return d.file.Sync()
}

// read returns what was stored at an offset.
func (d *device) read(length, offset int64) ([]byte, error) {
	if length == 0 {
		return []byte{}, nil
	}
	buffer := blocks(int(length))
	if _, err := d.file.ReadAt(buffer, offset); err != nil {
		return nil, err
	}
	return buffer[:length], nil
}

// blocks makes a buffer of whole blocks at an address that the kernel can copy
// to without its cache.
func blocks(length int) []byte {
	size := (length + block - 1) / block * block
	raw := make([]byte, size+block)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % block)
	return raw[skip : skip+size]
}
