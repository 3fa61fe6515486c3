package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a child of init.
type process struct {
	pid int
	// done is closed when it has ended; status is valid then.
	done   chan struct{}
	status syscall.WaitStatus
}

// reaper starts init's children and collects every process that ends below
// init, those it did not start included: as the machine's subreaper, init
// inherits the orphans.
type reaper struct {
	mu       sync.Mutex
	children map[int]*process
	stopped  bool
	// thawed is closed when a frozen machine may start processes again; nil
	// while it is not frozen.
	thawed chan struct{}
}

func newReaper() (*reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the machine's subreaper: %w", err)
	}
	r := &reaper{children: map[int]*process{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			r.reap()
		}
	}()
	return r, nil
}

func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if child := r.children[pid]; child != nil {
			delete(r.children, pid)
			child.status = status
			close(child.done)
		}
	}
}

// spec is a process to start.
type spec struct {
	argv   []string
	env    []string
	dir    string
	output *os.File
	// stderr is a file of its own; nil sends it to output.
	stderr *os.File
}

// start runs a process in a session of its own. It dies with init, whatever
// ends init.
func (r *reaper) start(s spec) (*process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	stderr := s.stderr
	if stderr == nil {
		stderr = s.output
	}
	r.mu.Lock() // a child may end before it is entered
	defer r.mu.Unlock()
	for r.thawed != nil && !r.stopped {
		thawed := r.thawed
		r.mu.Unlock()
		<-thawed
		r.mu.Lock()
	}
	if r.stopped {
		return nil, errShuttingDown
	}
	pid, err := syscall.ForkExec(s.argv[0], s.argv, &syscall.ProcAttr{
		Dir: s.dir, Env: s.env,
		Files: []uintptr{null.Fd(), s.output.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, fmt.Errorf("execute %s: %w", s.argv[0], err)
	}
	p := &process{pid: pid, done: make(chan struct{})}
	r.children[pid] = p
	return p, nil
}

// stop refuses every further start.
func (r *reaper) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.thawed != nil {
		close(r.thawed)
		r.thawed = nil
	}
}

// freeze stops every process below init where it stands, until thaw.
func (r *reaper) freeze() {
	r.mu.Lock()
	if r.thawed == nil && !r.stopped {
		r.thawed = make(chan struct{})
	}
	r.mu.Unlock()
	// A process that forked before its turn came left a child that runs: look
	// again until nothing new is found.
	for seen := map[int]bool{}; ; {
		fresh := false
		for _, pid := range descendants(os.Getpid()) {
			fresh = fresh || !seen[pid]
			seen[pid] = true
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended meanwhile
		}
		if !fresh {
			return
		}
	}
}

// thaw lets a frozen machine go on.
func (r *reaper) thaw() {
	for _, pid := range descendants(os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed meanwhile
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.thawed != nil {
		close(r.thawed)
		r.thawed = nil
	}
}

// killAll ends every process below init at once.
func (r *reaper) killAll() {
	r.stop()
	// A process that forked while it was being killed left a child that the
	// next round sees.
	r.await(context.Background(), func(left []int) bool {
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		return len(left) == 0
	})
}

// await looks at the processes below init, every few milliseconds, until they
// are as wanted or ctx ends.
func (r *reaper) await(ctx context.Context, done func(left []int) bool) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !done(descendants(os.Getpid())) {
		select {
		case <-ticker.C:
			r.reap()
		case <-ctx.Done():
			return
		}
	}
}

// entry is one line of the process table.
type entry struct{ pid, parent, session int }

// table reads the process table.
func table() []entry {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var entries []entry
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// pid (comm) state ppid pgrp session …; comm may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		session, _ := strconv.Atoi(fields[3])
		entries = append(entries, entry{pid, parent, session})
	}
	return entries
}

// descendants lists the living processes below one.
func descendants(ancestor int) []int {
	children := map[int][]int{}
	for _, e := range table() {
		children[e.parent] = append(children[e.parent], e.pid)
	}
	var found []int
	for queue := []int{ancestor}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// session lists the living processes of a session, which stands for a unit's
// control group: whatever a unit starts stays in it unless it leaves on
// purpose.
func session(id int) []int {
	var pids []int
	for _, e := range table() {
		if e.session == id {
			pids = append(pids, e.pid)
		}
	}
	return pids
}

// signalSession sends a signal to every process of a session.
func signalSession(id int, sig syscall.Signal) {
	for _, pid := range session(id) {
		_ = syscall.Kill(pid, sig) // it may have ended meanwhile
	}
}
