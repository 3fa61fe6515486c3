package stack_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

const program = `name: greeting
runtime: yaml
config:
  name: {type: string}
outputs:
  greeting: hello ${name}
`

func TestLifeOfAStack(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of the Pulumi CLI; make test does")
	}
	var output bytes.Buffer
	s := newStack(t.Context(), t, tools, &output)

	if err := s.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "missing configuration value 'name'") {
		t.Fatalf("up without configuration: got error %v, want it to name what is missing", err)
	}
	if err := s.Set(t.Context(), "name", "world"); err != nil {
		t.Fatal(err)
	}
	if err := s.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	outputs, err := s.Outputs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := outputs["greeting"], "hello world"; got != want {
		t.Errorf("greeting: got %v, want %v", got, want)
	}
	if !strings.Contains(output.String(), "hello world") {
		t.Errorf("the CLI's output is not passed on: got %q", output.String())
	}
	if err := s.Up(t.Context(), "--expect-no-changes"); err != nil {
		t.Errorf("up again: %v", err)
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// A CLI that leaves a process behind, in a process group of its own as the
// real one starts its plugins, and then waits to be interrupted.
const litterer = `#!/bin/bash
[ "$1" = up ] || exit 0
trap 'echo interrupted; exit 1' INT
set -m
sleep 1000 >/dev/null 2>&1 &
echo $!
[ "$3" = leave ] || while :; do sleep 0.05; done
`

func TestNothingIsLeftRunning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, argument, wantError string }{
		{"after success", "leave", ""},
		{"after an interrupt", "wait", "interrupted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tools := t.TempDir()
			if err := os.WriteFile(filepath.Join(tools, "pulumi"), []byte(litterer), 0o755); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			reader, writer := io.Pipe()
			s := newStack(ctx, t, tools, writer)
			done := make(chan error, 1)
			go func() {
				done <- s.Up(ctx, c.argument)
				writer.Close()
			}()

			line := make([]byte, 32)
			n, err := reader.Read(line)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, reader) }()
			pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
			if err != nil {
				t.Fatal(err)
			}
			if c.argument == "wait" {
				cancel()
			}
			err = <-done
			if c.wantError == "" && err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if c.wantError != "" && (!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.wantError)) {
				t.Errorf("got error %v, want a cancellation with %q", err, c.wantError)
			}
			if alive(pid) {
				t.Errorf("process %d is left running", pid)
			}
		})
	}
}

// alive tells whether a process exists that is more than a zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func newStack(ctx context.Context, t *testing.T, tools string, output io.Writer) *stack.Stack {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "Pulumi.yaml"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := stack.New(ctx, stack.Config{Folder: t.TempDir(), Program: folder, Tools: tools, Output: output})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
