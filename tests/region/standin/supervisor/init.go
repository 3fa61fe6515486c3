package supervisor

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/journal"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// ControlFD is the descriptor of the socket between init and the process that
// started the machine. When its other end closes, for whatever reason, the
// machine loses its power.
const ControlFD = 3

// Exit statuses of init.
const (
	ExitPowerOff = 0
	// ExitReboot asks for the machine to be booted again, as systemd-nspawn's
	// does.
	ExitReboot = 133
	// ExitKilled is a machine that lost its power.
	ExitKilled = 137
)

// stopLimit is how long one unit may take to stop while the machine shuts
// down.
const stopLimit = 10 * time.Second

// Paths of cloud-init and of the machine's console.
const (
	UserDataFile = "/var/lib/cloud/instance/user-data.txt"
	OutputLog    = "/var/log/cloud-init-output.log"
	ResultFile   = "/run/cloud-init/result.json"
	ConsoleFile  = "/var/log/console.log"
	scriptFile   = "/var/lib/cloud/instance/scripts/part-001"
)

// Init is the running init of a machine.
type Init struct {
	manager    *Manager
	reaper     *reaper
	instanceID string
	exit       chan int

	mu      sync.Mutex
	scripts map[string]*process
}

// Main runs init until the machine ends and returns its exit status.
func Main(args []string) int {
	set := flag.NewFlagSet("init", flag.ContinueOnError)
	instanceID := set.String("instance-id", "", "the machine's instance ID")
	boot := set.String("boot", "", "the ID of this boot")
	standins := set.String("standins", "", "the folder of the stand-in commands")
	if err := set.Parse(args); err != nil {
		return 2
	}
	i, err := boots(*instanceID, *boot, *standins)
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		return 1
	}
	return <-i.exit
}

func boots(instanceID, boot, standins string) (*Init, error) {
	root := rootfs.Root()
	if root == "" {
		return nil, fmt.Errorf("%s is not set", rootfs.Variable)
	}
	control, err := net.FileConn(os.NewFile(ControlFD, "control"))
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	syscall.CloseOnExec(ControlFD)
	console, err := os.OpenFile(rootfs.Path(root, ConsoleFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	writer, err := journal.NewWriter(rootfs.Path(root, journal.File), boot)
	if err != nil {
		return nil, err
	}
	reaper, err := newReaper()
	if err != nil {
		return nil, err
	}
	var consoleMu sync.Mutex
	i := &Init{
		reaper: reaper, instanceID: instanceID, exit: make(chan int, 4), scripts: map[string]*process{},
		manager: &Manager{
			root: root, standins: standins, env: os.Environ(), reaper: reaper, journal: writer, units: map[string]*service{},
			console: func(line string) {
				consoleMu.Lock()
				defer consoleMu.Unlock()
				fmt.Fprintln(console, line)
			},
		},
	}
	listener, err := rootfs.ListenUnix(rootfs.Path(root, SocketFile))
	if err != nil {
		return nil, err
	}
	err = serve(listener, &Systemd{m: i.manager, power: func(action string) {
		status := ExitPowerOff
		if action == "reboot" {
			status = ExitReboot
		}
		go i.end(status)
	}})
	if err != nil {
		return nil, err
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Machine", &Machine{i}); err != nil {
		return nil, fmt.Errorf("register the machine's interface: %w", err)
	}
	go func() {
		server.ServeConn(control)
		i.kill()
	}()
	i.manager.boot()
	go i.runUserData()
	return i, nil
}

// kill is the loss of power.
func (i *Init) kill() {
	i.reaper.killAll()
	i.exit <- ExitKilled
}

// end shuts the machine down in order.
func (i *Init) end(status int) {
	i.manager.console("systemd[1]: Shutting down.")
	i.manager.shutdown(stopLimit)
	i.reaper.stop()
	for _, pid := range descendants(os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended meanwhile
	}
	patience, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	i.reaper.await(patience, func(left []int) bool { return len(left) == 0 })
	i.reaper.killAll()
	i.exit <- status
}

// runUserData runs the user data once per instance ID, as cloud-init does: a
// script when it starts with "#!", compressed or not; anything else is not
// understood. Its end, good or bad, is written to the result file.
func (i *Init) runUserData() {
	root := i.manager.root
	done := rootfs.Path(root, "/var/lib/cloud/instances/"+i.instanceID+"/sem/config_scripts_user")
	var problems []string
	if _, err := os.Stat(done); errors.Is(err, os.ErrNotExist) {
		if err := i.userData(done); err != nil {
			problems = append(problems, err.Error())
			i.manager.console("cloud-init: " + err.Error())
		}
	}
	quoted := make([]string, len(problems))
	for n, problem := range problems {
		quoted[n] = fmt.Sprintf("%q", problem)
	}
	result := fmt.Sprintf(`{"v1": {"datasource": "DataSourceEc2", "errors": [%s]}}`+"\n", strings.Join(quoted, ", "))
	path := rootfs.Path(root, ResultFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", []byte(result), 0o644), os.Rename(path+".new", path)); err != nil {
		i.manager.console("cloud-init: " + err.Error())
	}
}

func (i *Init) userData(semaphore string) error {
	root := i.manager.root
	data, err := os.ReadFile(rootfs.Path(root, UserDataFile))
	if err != nil {
		return fmt.Errorf("read user data: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(semaphore), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(semaphore, nil, 0o644); err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	if unpacked, err := gunzip(data); err == nil {
		data = unpacked
	}
	interpreter, ok := shebang(data)
	if !ok {
		return fmt.Errorf("Unhandled non-multipart (text/x-not-multipart) userdata: '%.24q...'", data) //nolint:staticcheck // cloud-init's own words
	}
	script := rootfs.Path(root, scriptFile)
	if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(script, data, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(rootfs.Path(root, OutputLog), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer log.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	p, err := i.reaper.start(spec{argv: append(interpreter, script), env: os.Environ(), dir: root, output: writer})
	writer.Close()
	if err != nil {
		reader.Close()
		return fmt.Errorf("run user data: %w", err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		defer reader.Close()
		i.manager.journal.Copy("cloud-final.service", "cloud-init", p.pid, io.TeeReader(reader, log), func(line string) {
			i.manager.console("cloud-init: " + line)
		})
	}()
	<-p.done
	// What the script left running may keep the pipe open: do not wait for it,
	// only for what the script itself has written.
	select {
	case <-copied:
	case <-time.After(100 * time.Millisecond):
	}
	if status := exitCode(p.status); status != 0 {
		return fmt.Errorf("('scripts-user', RuntimeError('Runparts: 1 failures (part-001) in 1 attempted commands')): exit status %d", status)
	}
	return nil
}

func gunzip(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// shebang reads the interpreter of a script's first line: the path and at most
// one argument, as the kernel does.
func shebang(script []byte) ([]string, bool) {
	line, _, _ := bytes.Cut(script, []byte("\n"))
	rest, ok := strings.CutPrefix(string(line), "#!")
	if !ok {
		return nil, false
	}
	path, argument, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if path == "" {
		return nil, false
	}
	if argument = strings.TrimSpace(argument); argument != "" {
		return []string{path, argument}, true
	}
	return []string{path}, true
}

// Machine is what the process that started the machine may ask of init.
type Machine struct{ i *Init }

// Shutdown begins an orderly end; the machine's init exits when it is done.
func (m *Machine) Shutdown(_ struct{}, _ *struct{}) error {
	go m.i.end(ExitPowerOff)
	return nil
}

// Freeze stops every process of the machine where it stands.
func (m *Machine) Freeze(_ struct{}, _ *struct{}) error {
	m.i.reaper.freeze()
	return nil
}

// Thaw lets a frozen machine go on.
func (m *Machine) Thaw(_ struct{}, _ *struct{}) error {
	m.i.reaper.thaw()
	return nil
}

// Execute runs a script as the SSM agent does and waits for its end.
func (m *Machine) Execute(script Script, result *Result) error {
	folder := rootfs.Path(m.i.manager.root, "/var/lib/amazon/ssm/"+script.ID)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make the script's folder: %w", err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "_script.sh")
	if err := os.WriteFile(path, []byte(script.Text), 0o700); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	stdout, err := os.Create(filepath.Join(folder, "stdout"))
	if err != nil {
		return fmt.Errorf("make the script's output: %w", err)
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(folder, "stderr"))
	if err != nil {
		return fmt.Errorf("make the script's output: %w", err)
	}
	defer stderr.Close()
	p, err := m.i.reaper.start(spec{
		argv: []string{"/bin/sh", path}, env: os.Environ(), dir: m.i.manager.root, output: stdout, stderr: stderr,
	})
	if err != nil {
		return fmt.Errorf("run the script: %w", err)
	}
	m.i.mu.Lock()
	m.i.scripts[script.ID] = p
	m.i.mu.Unlock()
	<-p.done
	m.i.mu.Lock()
	delete(m.i.scripts, script.ID)
	m.i.mu.Unlock()
	out, err := os.ReadFile(stdout.Name())
	if err != nil {
		return fmt.Errorf("read the script's output: %w", err)
	}
	errs, err := os.ReadFile(stderr.Name())
	if err != nil {
		return fmt.Errorf("read the script's output: %w", err)
	}
	*result = Result{exitCode(p.status), string(out), string(errs)}
	return nil
}

// Cancel ends a script that runs.
func (m *Machine) Cancel(id string, _ *struct{}) error {
	m.i.mu.Lock()
	p := m.i.scripts[id]
	m.i.mu.Unlock()
	if p != nil {
		signalSession(p.pid, syscall.SIGKILL)
	}
	return nil
}
