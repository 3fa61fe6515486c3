package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// grace is how long the CLI may take to stop what it does after an interrupt.
const grace = 15 * time.Second

// contain puts a command into a session of its own: a Ctrl-C at the terminal
// does not reach it past its context, and what it starts can be found by the
// session, even what is put into further process groups, as plugins are. When
// the context ends, the command is interrupted, and killed if that is not
// enough.
func contain(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = grace
}

// endSession kills what is left of the session of a command that has ended,
// and returns when nothing of it runs any more.
func endSession(ctx context.Context, command *exec.Cmd) error {
	if command.Process == nil {
		return nil // never started
	}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		left, err := sessionProcesses(command.Process.Pid)
		if err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		for _, pid := range left {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return struct{}{}, backoff.Permanent(fmt.Errorf("kill process %d: %w", pid, err))
			}
		}
		if len(left) > 0 {
			return struct{}{}, fmt.Errorf("processes %v do not end", left)
		}
		return struct{}{}, nil
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: time.Millisecond, MaxInterval: 100 * time.Millisecond, Multiplier: 2, RandomizationFactor: 0.5,
	}), backoff.WithMaxElapsedTime(grace))
	if err != nil {
		return fmt.Errorf("end what %s left: %w", filepath.Base(command.Path), err)
	}
	return nil
}

// sessionProcesses lists the processes of a session that run.
func sessionProcesses(session int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // the process has just ended
		}
		if p, ok := parseStat(string(content)); ok && p.session == session && !p.ended {
			pids = append(pids, p.pid)
		}
	}
	return pids, nil
}

type process struct {
	pid, session int
	// ended is true for a zombie, whose parent has yet to ask for its status.
	ended bool
}

// parseStat reads /proc/PID/stat. The name in the second field may hold spaces
// and parentheses.
func parseStat(stat string) (process, bool) {
	open, closing := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || closing < open {
		return process{}, false
	}
	fields := strings.Fields(stat[closing+1:]) // state, parent, group, session, …
	if len(fields) < 4 {
		return process{}, false
	}
	pid, errPID := strconv.Atoi(strings.TrimSpace(stat[:open]))
	session, errSession := strconv.Atoi(fields[3])
	return process{pid, session, fields[0] == "Z"}, errPID == nil && errSession == nil
}
