package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

var errShuttingDown = errors.New("the machine is shutting down")

// State is a unit's state as systemctl shows it.
type State struct {
	Active, Sub, Result string
	MainPID             int
	// ExitCode is the main process's exit status, or the number of the signal
	// that ended it when Signaled.
	ExitCode int
	Signaled bool
	Restarts int
	Status   string // STATUS= of the last notification
	Since    time.Time
}

var inactive = State{Active: "inactive", Sub: "dead", Result: "success"}

// service is a unit in memory. Its state is guarded by the manager's mutex.
type service struct {
	m    *Manager
	unit *unit
	// state is what systemctl shows.
	state State
	// cancel asks the running activation to stop; stopped is closed when it
	// has. Both nil while there is none.
	cancel  context.CancelFunc
	stopped chan struct{}
	// started is closed when the running activation's start job has ended;
	// startErr says how.
	started  chan struct{}
	startErr error
	// starts are the times of the recent starts, for the rate limit.
	starts []time.Time
}

// failure is why a service's run ended badly, in systemd's words.
type failure struct {
	result string // as in systemctl show -p Result
	detail string
}

func (f *failure) Error() string { return f.detail }

// activate begins an activation unless one is running, and returns the channel
// that is closed when the unit has started or has not.
func (s *service) activate() <-chan struct{} {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.cancel != nil {
		return s.started
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.stopped, s.started, s.startErr = cancel, make(chan struct{}), make(chan struct{}), nil
	s.state = State{Active: "activating", Sub: "start", Result: "success", Since: time.Now()}
	s.m.order = append(slices.DeleteFunc(s.m.order, func(o *service) bool { return o == s }), s)
	go s.live(ctx)
	return s.started
}

// deactivate ends the activation and returns when nothing of it runs.
func (s *service) deactivate() {
	s.m.mu.Lock()
	cancel, stopped := s.cancel, s.stopped
	s.m.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-stopped
}

// live is one activation: runs of the service, as Restart= repeats them.
func (s *service) live(ctx context.Context) {
	s.m.mu.Lock()
	u, started, stopped := s.unit, s.started, s.stopped
	s.m.mu.Unlock()
	startDone := func(err error) {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		if started != nil {
			s.startErr = err
			close(started)
			started = nil
		}
	}
	restarts := 0
	for {
		err := s.rateLimit(u)
		var code runEnd
		if err == nil {
			code, err = s.run(ctx, u, startDone)
		}
		if u.kind == "oneshot" && err == nil {
			startDone(nil)
		}
		again := ctx.Err() == nil && s.wantsRestart(u, code, err)
		if !again {
			s.finish(ctx, u, err)
			startDone(err)
			close(stopped)
			return
		}
		startDone(err)
		restarts++
		s.m.log(u.name, "%s: Scheduled restart job, restart counter is at %d.", u.name, restarts)
		s.set(func(state *State) {
			state.Active, state.Sub, state.Restarts, state.MainPID = "activating", "auto-restart", restarts, 0
			if err != nil {
				state.Result = resultOf(err)
			}
		})
		s.m.stopBound(s)
		select {
		case <-time.After(u.restartPause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			s.finish(ctx, u, nil)
			close(stopped)
			return
		}
		s.m.mu.Lock()
		s.started, s.startErr = make(chan struct{}), nil
		started = s.started
		s.m.mu.Unlock()
		s.m.restartDependents(s)
	}
}

// finish records the end of an activation.
func (s *service) finish(ctx context.Context, u *unit, err error) {
	asked := ctx.Err() != nil
	s.m.mu.Lock()
	restarts := s.state.Restarts
	exit, signaled := s.state.ExitCode, s.state.Signaled
	s.state = inactive
	s.state.Restarts, s.state.ExitCode, s.state.Signaled, s.state.Since = restarts, exit, signaled, time.Now()
	if err != nil {
		s.state.Active, s.state.Sub, s.state.Result = "failed", "failed", resultOf(err)
	}
	s.cancel()
	s.cancel = nil
	s.m.mu.Unlock()
	if !u.runtimePreserve {
		for _, folder := range u.runtimeFolders {
			_ = os.RemoveAll(rootfs.Path(s.m.root, folder)) // what stays is found by the next start
		}
	}
	switch {
	case err != nil:
		s.m.log(u.name, "%s: Failed with result '%s'.", u.name, resultOf(err))
	case asked:
		s.m.log(u.name, "Stopped %s.", u.title())
	default:
		s.m.log(u.name, "%s: Deactivated successfully.", u.name)
	}
	if !asked {
		s.m.stopBound(s)
	}
}

func (u *unit) title() string {
	if u.description == "" {
		return u.name
	}
	return u.name + " - " + u.description
}

func resultOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.result
	}
	return "resources"
}

func (s *service) set(change func(*State)) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	change(&s.state)
}

// rateLimit refuses a start that comes too often after others.
func (s *service) rateLimit(u *unit) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	now := time.Now()
	s.starts = slices.DeleteFunc(s.starts, func(t time.Time) bool { return now.Sub(t) > u.startLimitWindow })
	if u.startLimitWindow > 0 && u.startLimitBurst > 0 && len(s.starts) >= u.startLimitBurst {
		return &failure{"start-limit-hit", "start request repeated too quickly"}
	}
	s.starts = append(s.starts, now)
	return nil
}

// runEnd is how the main process ended.
type runEnd struct {
	ran    bool
	status syscall.WaitStatus
}

// run starts the service, waits for its end, and stops it when ctx ends. An
// error is the run's failure. started is called when the unit is up.
func (s *service) run(ctx context.Context, u *unit, started func(error)) (end runEnd, err error) {
	for _, c := range u.conditions {
		_, statErr := os.Stat(rootfs.Path(s.m.root, c.path))
		if (statErr == nil) == c.negate {
			if c.assert {
				return end, &failure{"assert", fmt.Sprintf("assertion on %s failed", c.path)}
			}
			s.m.log(u.name, "%s was skipped because of an unmet condition check (ConditionPathExists=%s).", u.title(), c.path)
			return end, nil
		}
	}
	environment, err := s.m.environ(u)
	if err != nil {
		return end, err
	}
	for _, folder := range append(slices.Clone(u.folders), u.runtimeFolders...) {
		if err := os.MkdirAll(rootfs.Path(s.m.root, folder), 0o755); err != nil {
			return end, fmt.Errorf("make %s: %w", folder, err)
		}
	}
	startBy, cancel := context.WithTimeout(ctx, u.timeoutStart)
	defer cancel()
	s.m.log(u.name, "Starting %s...", u.title())
	s.set(func(state *State) { state.Active, state.Sub, state.Since = "activating", "start-pre", time.Now() })
	if err := s.control(startBy, u, u.startPre, environment); err != nil {
		return end, s.abort(ctx, err)
	}
	defer s.post(u, environment)

	if u.kind == "oneshot" {
		s.set(func(state *State) { state.Sub = "start" })
		for _, c := range u.start {
			if end, err = s.oneshot(startBy, u, c, environment); err != nil {
				return end, s.abort(ctx, err)
			}
		}
		if err := s.control(startBy, u, u.startPost, environment); err != nil {
			return end, s.abort(ctx, err)
		}
		s.m.log(u.name, "Finished %s.", u.title())
		if !u.remainAfterExit {
			return end, nil
		}
		s.set(func(state *State) {
			state.Active, state.Sub, state.MainPID, state.Since = "active", "exited", 0, time.Now()
		})
		started(nil)
		<-ctx.Done()
		return end, s.stopControl(u, environment)
	}

	notifications, socket, err := s.notifySocket(u)
	if err != nil {
		return end, err
	}
	if socket != nil {
		defer socket.Close()
		environment["NOTIFY_SOCKET"] = socket.LocalAddr().String()
	}
	main, err := s.spawn(u, u.start[0], environment)
	if err != nil {
		// Type=simple counts as started once forked; the failure to execute
		// follows. The others report it to the start job.
		if u.kind == "simple" {
			started(nil)
		}
		return end, &failure{"exit-code", fmt.Sprintf("%v (status=203/EXEC)", err)}
	}
	s.set(func(state *State) { state.MainPID, state.Sub = main.pid, "start" })
	ready := u.kind != "notify"
	var readyErr error
	for !ready && readyErr == nil {
		select {
		case message := <-notifications:
			ready = s.notified(message)
		case <-main.done:
			readyErr = s.exited(u, main, &end)
			if readyErr == nil {
				readyErr = &failure{"protocol", "the service ended before it said that it is ready"}
			}
		case <-startBy.Done():
			if ctx.Err() != nil {
				return end, s.terminate(u, main, environment, &end)
			}
			s.m.log(u.name, "%s: start operation timed out. Terminating.", u.name)
			_ = s.terminate(u, main, environment, &end)
			return end, &failure{"timeout", "start operation timed out"}
		}
	}
	if readyErr != nil {
		s.sweep(u, main)
		return end, readyErr
	}
	if err := s.control(startBy, u, u.startPost, environment); err != nil {
		_ = s.terminate(u, main, environment, &end)
		return end, s.abort(ctx, err)
	}
	s.set(func(state *State) { state.Active, state.Sub, state.Since = "active", "running", time.Now() })
	s.m.log(u.name, "Started %s.", u.title())
	started(nil)

	for {
		select {
		case message := <-notifications:
			s.notified(message)
		case <-main.done:
			err := s.exited(u, main, &end)
			if err == nil && u.remainAfterExit {
				s.set(func(state *State) { state.Sub, state.MainPID = "exited", 0 })
				<-ctx.Done()
			}
			s.sweep(u, main)
			return end, err
		case <-ctx.Done():
			s.m.log(u.name, "Stopping %s...", u.title())
			return end, s.terminate(u, main, environment, &end)
		}
	}
}

// abort turns the error of an interrupted start into the stop that was asked
// for, which is no failure.
func (s *service) abort(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// spawn starts a process of the unit with its output in the journal.
func (s *service) spawn(u *unit, c command, environment map[string]string) (*process, error) {
	argv, err := s.m.argv(c, environment)
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer writer.Close()
	dir := s.m.root
	if u.workingDirectory != "" {
		path, optional := strings.CutPrefix(u.workingDirectory, "-")
		if path = rootfs.Path(s.m.root, path); !optional || isFolder(path) {
			dir = path
		}
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		env = append(env, name+"="+environment[name])
	}
	p, err := s.m.reaper.start(spec{argv: argv, env: env, dir: dir, output: writer})
	if err != nil {
		reader.Close()
		return nil, err
	}
	go func() {
		defer reader.Close()
		s.m.journal.Copy(u.name, filepath.Base(argv[0]), p.pid, reader)
	}()
	return p, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// control runs helper commands one after another.
func (s *service) control(ctx context.Context, u *unit, list []command, environment map[string]string) error {
	for _, c := range list {
		p, err := s.spawn(u, c, environment)
		if err == nil {
			err = s.wait(ctx, u, p, "Control")
		}
		if err != nil && !c.ignore {
			return err
		}
	}
	return nil
}

func (s *service) wait(ctx context.Context, u *unit, p *process, role string) error {
	select {
	case <-p.done:
		signalSession(p.pid, syscall.SIGKILL)
		return s.judge(u, p, role)
	case <-ctx.Done():
		s.kill(u, p)
		return &failure{"timeout", "timed out"}
	}
}

func (s *service) oneshot(ctx context.Context, u *unit, c command, environment map[string]string) (end runEnd, err error) {
	p, err := s.spawn(u, c, environment)
	if err != nil {
		return end, &failure{"exit-code", err.Error()}
	}
	s.set(func(state *State) { state.MainPID = p.pid })
	err = s.wait(ctx, u, p, "Main")
	select {
	case <-p.done:
		end = runEnd{ran: true, status: p.status}
		s.record(p)
	default:
	}
	if c.ignore {
		err = nil
	}
	return end, err
}

// exited takes in the end of the main process.
func (s *service) exited(u *unit, main *process, end *runEnd) error {
	*end = runEnd{ran: true, status: main.status}
	s.record(main)
	return s.judge(u, main, "Main")
}

func (s *service) record(p *process) {
	s.set(func(state *State) {
		state.MainPID = 0
		state.ExitCode, state.Signaled = p.status.ExitStatus(), p.status.Signaled()
		if state.Signaled {
			state.ExitCode = int(p.status.Signal())
		}
	})
}

// judge says whether a process ended well.
func (s *service) judge(u *unit, p *process, role string) error {
	status := describe(p.status)
	clean := p.status.Exited() && p.status.ExitStatus() == 0 || slices.Contains(u.successStatus, status.code)
	if p.status.Signaled() && role == "Main" && u.kind != "oneshot" {
		switch p.status.Signal() {
		case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE:
			clean = true
		}
	}
	if clean {
		return nil
	}
	s.m.log(u.name, "%s: %s process exited, code=%s, status=%s", u.name, role, status.how, status.text)
	result := "exit-code"
	if p.status.Signaled() {
		result = "signal"
	}
	return &failure{result, fmt.Sprintf("%s process exited, code=%s, status=%s", strings.ToLower(role), status.how, status.text)}
}

type ending struct {
	// code is the exit status or the signal's name, as SuccessExitStatus= and
	// RestartPreventExitStatus= take them.
	code, how, text string
}

func describe(status syscall.WaitStatus) ending {
	if status.Signaled() {
		name := "SIG" + fmt.Sprint(int(status.Signal()))
		for known, signal := range signals {
			if signal == status.Signal() {
				name = known
			}
		}
		return ending{name, "killed", fmt.Sprintf("%d/%s", status.Signal(), strings.TrimPrefix(name, "SIG"))}
	}
	text := "FAILURE"
	if status.ExitStatus() == 0 {
		text = "SUCCESS"
	} else if status.ExitStatus() != 1 {
		text = "n/a"
	}
	return ending{fmt.Sprint(status.ExitStatus()), "exited", fmt.Sprintf("%d/%s", status.ExitStatus(), text)}
}

// wantsRestart applies Restart= of systemd.service(5).
func (s *service) wantsRestart(u *unit, end runEnd, err error) bool {
	if end.ran {
		if slices.Contains(u.restartPrevent, describe(end.status).code) {
			return false
		}
	}
	var f *failure
	if err != nil && (!errors.As(err, &f) || f.result == "start-limit-hit" || f.result == "assert") {
		return false
	}
	switch u.restart {
	case "always":
		return end.ran || err != nil
	case "on-success":
		return err == nil && end.ran
	case "on-failure":
		return err != nil
	case "on-abnormal":
		return err != nil && f.result != "exit-code"
	case "on-abort":
		return err != nil && f.result == "signal"
	}
	return false
}

// terminate stops a running service: ExecStop=, the signal, SIGKILL after the
// time is up.
func (s *service) terminate(u *unit, main *process, environment map[string]string, end *runEnd) error {
	s.set(func(state *State) { state.Active, state.Sub = "deactivating", "stop-sigterm" })
	environment["MAINPID"] = fmt.Sprint(main.pid)
	_ = s.stopControl(u, environment) // its failure is logged; the signal follows anyway
	timedOut := s.kill(u, main)
	*end = runEnd{ran: true, status: main.status}
	s.record(main)
	if timedOut {
		return &failure{"timeout", "stopping timed out"}
	}
	if main.status.Signaled() && main.status.Signal() == u.killSignal {
		return nil
	}
	return s.judge(u, main, "Main")
}

func (s *service) stopControl(u *unit, environment map[string]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), u.timeoutStop)
	defer cancel()
	return s.control(ctx, u, u.stop, environment)
}

func (s *service) post(u *unit, environment map[string]string) {
	ctx, cancel := context.WithTimeout(context.Background(), u.timeoutStop)
	defer cancel()
	if err := s.control(ctx, u, u.stopPost, environment); err != nil {
		s.m.log(u.name, "%s: ExecStopPost: %v", u.name, err)
	}
}

// kill ends a process and what it started, in order while the unit's stop
// timeout lasts, and says whether that was too short.
func (s *service) kill(u *unit, p *process) (timedOut bool) {
	switch u.killMode {
	case "control-group":
		signalSession(p.pid, u.killSignal)
	default:
		_ = syscall.Kill(p.pid, u.killSignal) // it may have ended meanwhile
	}
	select {
	case <-p.done:
	case <-time.After(min(u.timeoutStop, s.m.stopWithin())):
		timedOut = true
		s.m.log(u.name, "%s: State 'stop-sigterm' timed out. Killing.", u.name)
	}
	if u.sendSIGKILL && u.killMode != "process" {
		signalSession(p.pid, syscall.SIGKILL)
	}
	if timedOut {
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended meanwhile
	}
	<-p.done
	return timedOut
}

// sweep ends what a main process left behind.
func (s *service) sweep(u *unit, main *process) {
	if u.killMode != "process" {
		signalSession(main.pid, syscall.SIGKILL)
	}
}

// notifySocket makes the socket for a unit's notifications, in the abstract
// namespace, where no path can be too long.
func (s *service) notifySocket(u *unit) (<-chan string, *net.UnixConn, error) {
	if u.kind != "notify" {
		return nil, nil, nil
	}
	name := "@standin-notify/" + rand.Text()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil, nil, fmt.Errorf("make the notify socket: %w", err)
	}
	messages := make(chan string, 16)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				select {
				case messages <- string(buffer[:n]):
				default: // a chatterer; systemd too may drop
				}
			}
		}
	}()
	return messages, conn, nil
}

// notified takes in a notification and says whether it reports readiness.
func (s *service) notified(message string) (ready bool) {
	for line := range strings.Lines(message) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "READY":
			ready = value == "1"
		case "STATUS":
			s.set(func(state *State) { state.Status = value })
		}
	}
	return ready
}
