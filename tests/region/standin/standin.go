// Package standin is one program under many names: what a process machine
// finds on its PATH in place of the system's own commands, its init, and the
// daemons of EtcFS. Each name does what the bootstrap and the user data need
// of it, on the machine's own folder, and refuses what it does not do.
package standin

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/awscli"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/dnf"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/supervisor"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/systemctl"
)

// Name is the name of the program itself: `standin APPLET [ARGUMENT…]`.
const Name = "standin"

type applet func(args []string, stdout, stderr io.Writer) int

// commands are installed as links on a machine's PATH.
var commands = map[string]applet{
	"systemctl":  systemctl.Main,
	"journalctl": systemctl.Journal,
	"dnf":        dnf.Main,
	"rpm":        dnf.RPM,
	"aws":        awscli.Main,
	"mountpoint": etcfs.Mountpoint,
	"reboot": func(_ []string, stdout, stderr io.Writer) int {
		return systemctl.Main([]string{"reboot"}, stdout, stderr)
	},
	"poweroff": func(_ []string, stdout, stderr io.Writer) int {
		return systemctl.Main([]string{"poweroff"}, stdout, stderr)
	},
}

// inner are started by name only: init by the machine's maker, the programs
// of EtcFS by the scripts in its packages, as they are not there before that.
var inner = map[string]applet{
	"etcfuse-meta": etcfs.Meta,
	"etcfuse":      etcfs.Fuse,
	"etcfsctl":     etcfs.Control,
	"init":         func(args []string, _, _ io.Writer) int { return supervisor.Main(args) },
}

// Is says whether a program name is one of this program's.
func Is(name string) bool {
	return name == Name || commands[name] != nil
}

// Main runs the applet that args[0], or args[1] under the program's own name,
// names, and returns its exit status.
func Main(args []string) int {
	name := filepath.Base(args[0])
	if commands[name] == nil {
		if len(args) < 2 {
			fmt.Fprintf(os.Stderr, "usage: %s install DIR | APPLET [ARGUMENT…]\napplets: %s\n", Name, strings.Join(slices.Sorted(maps.Keys(commands)), " "))
			return 2
		}
		args = args[1:]
		name = args[0]
	}
	if name == "install" {
		return install(args[1:])
	}
	run := commands[name]
	if run == nil {
		run = inner[name]
	}
	if run == nil {
		fmt.Fprintf(os.Stderr, "%s: no applet %q\n", Name, name)
		return 2
	}
	return run(args[1:], os.Stdout, os.Stderr)
}

func install(args []string) int {
	if len(args) != 1 {
		fmt.Fprintf(os.Stderr, "usage: %s install DIR\n", Name)
		return 2
	}
	self, err := os.Executable()
	if err == nil {
		err = Install(args[0], self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, Name+":", err)
		return 1
	}
	return 0
}

// Install makes the folder dir hold a link to the program for every name it
// has.
func Install(dir, program string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of stand-ins: %w", err)
	}
	for _, name := range append(slices.Sorted(maps.Keys(commands)), Name) {
		link := filepath.Join(dir, name)
		if target, err := os.Readlink(link); err == nil && target == program || link == program {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replace %s: %w", link, err)
		}
		if err := os.Symlink(program, link); err != nil {
			return fmt.Errorf("link a stand-in: %w", err)
		}
	}
	return nil
}
