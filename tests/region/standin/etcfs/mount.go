package etcfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
	"github.com/spf13/pflag"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// marker is the file whose lock means that something is mounted on a folder of
// a machine: the lock ends with the process that holds it, however that ends.
func marker(root, folder string) string {
	escaped := strings.ReplaceAll(strings.Trim(rootfs.Strip(root, folder), "/"), "/", "-")
	return rootfs.Path(root, "/run/standin/mounts/"+escaped)
}

// Mounted says whether something is mounted on a folder of the machine with
// the given root.
func Mounted(root, folder string) (bool, error) {
	path := marker(root, folder)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	lock := flock.New(path)
	free, err := lock.TryRLock()
	if err != nil {
		return false, fmt.Errorf("look for the mount: %w", err)
	}
	return !free, lock.Close()
}

// Mountpoint runs mountpoint and returns its exit status.
func Mountpoint(args []string, stdout, stderr io.Writer) int {
	set := pflag.NewFlagSet("mountpoint", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	quiet := set.BoolP("quiet", "q", false, "")
	if err := set.Parse(args); err != nil || set.NArg() != 1 {
		fmt.Fprintln(stderr, "mountpoint: bad usage: this stand-in takes -q and one folder:", err)
		return 1
	}
	folder, err := filepath.Abs(set.Arg(0))
	if err == nil {
		folder = rootfs.Path(rootfs.Root(), folder)
		_, err = os.Stat(folder)
	}
	var mounted bool
	if err == nil {
		mounted, err = Mounted(rootfs.Root(), folder)
	}
	if err != nil {
		if !*quiet {
			fmt.Fprintf(stderr, "mountpoint: %s: %v\n", set.Arg(0), err)
		}
		return 1
	}
	verdict, status := "is a mountpoint", 0
	if !mounted {
		verdict, status = "is not a mountpoint", 32
	}
	if !*quiet {
		fmt.Fprintln(stdout, set.Arg(0), verdict)
	}
	return status
}
