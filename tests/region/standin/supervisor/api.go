package supervisor

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"slices"
	"strings"
	"syscall"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// SocketFile is where a machine's systemctl reaches its init.
const SocketFile = "/run/systemd/private"

// Request names units.
type Request struct {
	Units []string
	// NoBlock does not wait for the jobs.
	NoBlock bool
	// Signal is what Kill sends.
	Signal string
}

// Reply is what systemctl has to say and its exit status.
type Reply struct {
	Stderr []string
	Status int
}

func (r *Reply) fail(status int, format string, args ...any) {
	r.Stderr = append(r.Stderr, fmt.Sprintf(format, args...))
	r.Status = status
}

// Systemd is what systemctl may ask of init, by net/rpc.
type Systemd struct {
	m *Manager
	// power asks the machine to power off or to reboot.
	power func(action string)
}

// Dial connects to the init of the machine with the given root.
func Dial(root string) (*rpc.Client, error) {
	conn, err := rootfs.DialUnix(rootfs.Path(root, SocketFile))
	if err != nil {
		return nil, err
	}
	return rpc.NewClient(conn), nil
}

// Start starts units and waits for them unless NoBlock.
func (s *Systemd) Start(request Request, reply *Reply) error {
	s.start("start", request, reply)
	return nil
}

func (s *Systemd) start(verb string, request Request, reply *Reply) {
	for _, name := range request.Units {
		s.warn(name, reply)
		jobs, err := s.m.begin(name)
		switch {
		case errors.Is(err, errNotFound):
			reply.fail(5, "Failed to %s %s: Unit %s not found.", verb, name, missing(err, name))
			continue
		case err != nil:
			reply.fail(1, "Failed to %s %s: %v", verb, name, err)
			continue
		}
		if request.NoBlock || jobs[name] == nil {
			continue
		}
		<-jobs[name].done
		var f *failure
		switch err := jobs[name].err; {
		case err == nil:
		case errors.As(err, &f) && f.result == "dependency":
			reply.fail(1, "A dependency job for %s failed. See 'journalctl -xe' for details.", name)
		case errors.As(err, &f) && f.result == "timeout":
			reply.fail(1, "Job for %s failed because a timeout was exceeded.%s", name, seeAlso(name))
		case errors.As(err, &f) && f.result == "signal":
			reply.fail(1, "Job for %s failed because a fatal signal was delivered to the control process.%s", name, seeAlso(name))
		case errors.As(err, &f) && f.result == "exit-code":
			reply.fail(1, "Job for %s failed because the control process exited with error code.%s", name, seeAlso(name))
		case errors.As(err, &f) && f.result == "start-limit-hit":
			reply.fail(1, "Job for %s failed because start of the service was attempted too often.%s", name, seeAlso(name))
		default:
			reply.fail(1, "Job for %s failed: %v.%s", name, err, seeAlso(name))
		}
	}
}

func missing(err error, name string) string {
	if requirement, ok := strings.CutPrefix(err.Error(), name+" requires "); ok {
		name, _, _ = strings.Cut(requirement, ":")
	}
	return name
}

func seeAlso(name string) string {
	return fmt.Sprintf("\nSee \"systemctl status %[1]s\" and \"journalctl -xeu %[1]s\" for details.", name)
}

// warn tells of a loaded unit whose files changed since.
func (s *Systemd) warn(name string, reply *Reply) {
	if isTarget(name) {
		return
	}
	if loaded, err := s.m.get(name); err == nil && s.m.changed(loaded) {
		reply.Stderr = append(reply.Stderr, fmt.Sprintf("Warning: The unit file, source configuration file or drop-ins of %s changed on disk. Run 'systemctl daemon-reload' to reload units.", name))
	}
}

// Stop stops units and what requires them.
func (s *Systemd) Stop(request Request, reply *Reply) error {
	for _, name := range request.Units {
		if isTarget(name) {
			continue
		}
		unit, err := s.m.get(name)
		switch {
		case errors.Is(err, errNotFound):
			reply.fail(5, "Failed to stop %s: Unit %s not loaded.", name, name)
		case err != nil:
			reply.fail(1, "Failed to stop %s: %v", name, err)
		case request.NoBlock:
			go s.m.stop(unit)
		default:
			s.m.stop(unit)
		}
	}
	return nil
}

// Restart stops units and starts them again, with what went down with them.
func (s *Systemd) Restart(request Request, reply *Reply) error {
	for _, name := range request.Units {
		s.warn(name, reply)
		names := []string{name}
		if unit, err := s.m.get(name); err == nil {
			for _, dependent := range s.m.stop(unit) {
				names = append(names, s.m.unitOf(dependent).name)
			}
		}
		s.start("restart", Request{Units: names, NoBlock: request.NoBlock}, reply)
	}
	return nil
}

// Reload is daemon-reload.
func (s *Systemd) Reload(_ Request, reply *Reply) error {
	if err := s.m.reload(); err != nil {
		reply.fail(1, "Failed to reload daemon: %v", err)
	}
	return nil
}

// ResetFailed forgets the failure and the recent starts of units, of all when
// none is named.
func (s *Systemd) ResetFailed(request Request, reply *Reply) error {
	for _, name := range request.Units {
		if _, err := s.m.get(name); err != nil {
			reply.fail(1, "Failed to reset failed state of unit %[1]s: Unit %[1]s not loaded.", name)
		}
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for name, unit := range s.m.units {
		if len(request.Units) > 0 && !slices.Contains(request.Units, name) {
			continue
		}
		unit.starts = nil
		if unit.state.Active == "failed" {
			unit.state = inactive
		}
	}
	return nil
}

// Kill sends a signal to every process of units.
func (s *Systemd) Kill(request Request, reply *Reply) error {
	signal, ok := signals["SIG"+strings.TrimPrefix(request.Signal, "SIG")]
	if !ok {
		reply.fail(1, "Failed to parse signal string %s.", request.Signal)
		return nil
	}
	for _, name := range request.Units {
		unit, err := s.m.get(name)
		if err != nil {
			reply.fail(1, "Failed to kill unit %[1]s: Unit %[1]s not loaded.", name)
			continue
		}
		s.m.mu.Lock()
		pid := unit.state.MainPID
		s.m.mu.Unlock()
		if pid == 0 {
			reply.fail(1, "Failed to kill unit %s: No such process", name)
			continue
		}
		signalSession(pid, signal)
	}
	return nil
}

// Show returns the properties of one unit.
func (s *Systemd) Show(name string, properties *map[string]string) error {
	*properties = s.m.properties(name)
	return nil
}

// Power powers the machine off ("poweroff") or boots it again ("reboot").
func (s *Systemd) Power(action string, _ *struct{}) error {
	if action != "poweroff" && action != "reboot" {
		return fmt.Errorf("unknown action %q", action)
	}
	s.power(action)
	return nil
}

func serve(listener net.Listener, systemd *Systemd) error {
	server := rpc.NewServer()
	if err := server.RegisterName("Systemd", systemd); err != nil {
		return fmt.Errorf("register the systemctl interface: %w", err)
	}
	go server.Accept(listener)
	return nil
}

// Script is a shell script for a machine to run.
type Script struct {
	// ID names the run for Cancel.
	ID   string
	Text string
}

// Result is what a script left.
type Result struct {
	ExitCode       int
	Stdout, Stderr string
}

// killed is the exit status that a shell reports for a process that a signal
// ended.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
