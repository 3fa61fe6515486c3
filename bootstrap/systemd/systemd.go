// Package systemd drives the node's service manager through systemctl and
// journalctl: unit files, starting, stopping, states and the journal.
package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
)

// UnitDir is where an administrator's units and drop-ins are.
const UnitDir = "/etc/systemd/system"

// Manager is the service manager of a node.
type Manager struct {
	// Root prefixes the paths of unit files, "" on a real machine.
	Root string
}

// File is a unit file or a drop-in: its path on the node and its content.
type File struct {
	Path    string
	Content string
}

// Unit is the unit file of a unit.
func Unit(name, content string) File {
	return File{Path: filepath.Join(UnitDir, name), Content: content}
}

// DropIn adds to, or changes, a unit that something else has installed.
func DropIn(unit, content string) File {
	return File{Path: filepath.Join(UnitDir, unit+".d", "50-etcfs-bootstrap.conf"), Content: content}
}

// Installed says whether the files are there as they should be.
func (m *Manager) Installed(files ...File) (bool, error) {
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(m.Root, file.Path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read unit file: %w", err)
		case string(content) != file.Content:
			return false, nil
		}
	}
	return true, nil
}

// Install writes the files that differ from what is there, each atomically,
// and has systemd read its units again when it wrote any.
func (m *Manager) Install(ctx context.Context, files ...File) error {
	changed := false
	for _, file := range files {
		same, err := m.Installed(file)
		if err != nil {
			return err
		}
		if same {
			continue
		}
		path := filepath.Join(m.Root, file.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the folder of a unit file: %w", err)
		}
		if err := renameio.WriteFile(path, []byte(file.Content), 0o644); err != nil {
			return fmt.Errorf("write unit file: %w", err)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return m.Reload(ctx)
}

// Reload has systemd read its unit files again.
func (m *Manager) Reload(ctx context.Context) error {
	_, err := systemctl(ctx, "daemon-reload")
	return err
}

// StartNoBlock asks systemd to start a unit and does not wait. A boot that
// runs inside a unit of its own must not wait for units that may be ordered
// after that one.
//
// A unit whose files have changed since systemd read them is read again first:
// an earlier run may have been cut off between the two.
func (m *Manager) StartNoBlock(ctx context.Context, unit string) error {
	state, err := m.State(ctx, unit)
	if err != nil {
		return err
	}
	if state.Stale {
		if err := m.Reload(ctx); err != nil {
			return err
		}
	}
	_, err = systemctl(ctx, "start", "--no-block", unit)
	return err
}

// Stop stops a unit and waits until its processes have ended. A unit that does
// not run is stopped already.
func (m *Manager) Stop(ctx context.Context, unit string) error {
	_, err := systemctl(ctx, "stop", unit)
	return err
}

// Enable has a unit started at each boot.
func (m *Manager) Enable(ctx context.Context, unit string) error {
	_, err := systemctl(ctx, "enable", unit)
	return err
}

// Enabled says whether a unit is started at each boot.
func (m *Manager) Enabled(ctx context.Context, unit string) (bool, error) {
	out, err := systemctl(ctx, "is-enabled", unit)
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return false, err
	}
	return strings.TrimSpace(out) == "enabled", nil // any other word comes with a non-zero exit status
}

// State is what systemd knows about a unit.
type State struct {
	// Active is the ActiveState: active, activating, inactive, failed, …
	Active string
	// Sub is the unit type's finer state, such as auto-restart.
	Sub string
	// Result says why a service ended: success, exit-code, signal, …
	Result string
	// Restarts counts the restarts that systemd made by itself.
	Restarts int
	// Stale says that the unit's files have changed since systemd read them.
	Stale bool
}

// Running says whether the unit is up.
func (s State) Running() bool { return s.Active == "active" }

// Failed says whether systemd has given the unit up.
func (s State) Failed() bool { return s.Active == "failed" }

func (s State) String() string {
	text := s.Active
	if s.Sub != "" && s.Sub != s.Active {
		text += " (" + s.Sub + ")"
	}
	if s.Result != "" && s.Result != "success" {
		text += ", result " + s.Result
	}
	if s.Restarts > 0 {
		text += fmt.Sprintf(", %d restarts", s.Restarts)
	}
	return text
}

// State asks for a unit's state. A unit that does not exist is inactive.
func (m *Manager) State(ctx context.Context, unit string) (State, error) {
	out, err := systemctl(ctx, "show", "--property=ActiveState,SubState,Result,NRestarts,NeedDaemonReload", unit)
	if err != nil {
		return State{}, err
	}
	return parseState(out)
}

func parseState(properties string) (State, error) {
	var s State
	for line := range strings.Lines(properties) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ActiveState":
			s.Active = value
		case "SubState":
			s.Sub = value
		case "Result":
			s.Result = value
		case "NRestarts":
			n, err := strconv.Atoi(value)
			if err != nil {
				return State{}, fmt.Errorf("read unit state: NRestarts is %q", value)
			}
			s.Restarts = n
		case "NeedDaemonReload":
			s.Stale = value == "yes"
		}
	}
	if s.Active == "" {
		return State{}, fmt.Errorf("read unit state: no ActiveState in %q", properties)
	}
	return s, nil
}

// Journal returns the last lines that a unit has written to the journal.
func (m *Manager) Journal(ctx context.Context, unit string, lines int) ([]string, error) {
	out, err := command(ctx, "journalctl", "-u", unit, "-n", strconv.Itoa(lines), "--no-pager")
	if err != nil {
		return nil, err
	}
	text := strings.TrimRight(out, "\n")
	if text == "" {
		return nil, nil
	}
	return strings.Split(text, "\n"), nil
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	return command(ctx, "systemctl", args...)
}

// command runs a command and returns its output. A command that fails has
// written the reason to its standard error; the *[exec.ExitError] stays in the
// chain.
func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		line := strings.Join(append([]string{name}, args...), " ")
		if reason := strings.TrimSpace(stderr.String()); reason != "" {
			return stdout.String(), fmt.Errorf("run %s: %w: %s", line, err, reason)
		}
		return stdout.String(), fmt.Errorf("run %s: %w", line, err)
	}
	return stdout.String(), nil
}
