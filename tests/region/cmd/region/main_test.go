package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

// The test program is the stand-in program too, under its names.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	os.Exit(m.Run())
}

func TestRegionPrintsItsEnvironmentAndServesUntilInterrupted(t *testing.T) {
	t.Parallel()
	tools, work := t.TempDir(), filepath.Join(t.TempDir(), "work")
	for _, name := range []string{"etcd", "etcdctl"} {
		if err := os.WriteFile(filepath.Join(tools, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"--work", work, "--tools", tools, "--region", "eu-north-1"}, write, io.Discard)
		_ = write.Close()
	}()
	var environment []string
	lines := bufio.NewScanner(read)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "export RELEASES_URL=http://127.") {
		environment = append(environment, lines.Text())
	}
	_ = read.Close() // whatever else it prints must not hold it up
	if !strings.HasPrefix(lines.Text(), "export RELEASES_URL=http://127.") {
		t.Errorf("got last line %q, want the address of the releases", lines.Text())
	}
	text := strings.Join(environment, "\n")
	for _, want := range []string{
		"export AWS_ENDPOINT_URL=http://127.", "export AWS_REGION=eu-north-1", "export AWS_ACCESS_KEY_ID=AKIA", "unset AWS_PROFILE",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the environment lacks %q:\n%s", want, text)
		}
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("it ended with: %v", err)
	}
}

// Its temporary folder says whose it is, is where $TMPDIR wants it, and goes
// with the region, whatever ends it.
func TestTheTemporaryFolderIsRemoved(t *testing.T) {
	tools := t.TempDir()
	for _, name := range []string{"etcd", "etcdctl"} {
		if err := os.WriteFile(filepath.Join(tools, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("nobody reads")
	for name, test := range map[string]struct {
		tools   string
		written error // of the environment
		want    string
	}{
		"an interrupt":             {tools, nil, ""},
		"a reader that goes away":  {tools, broken, "nobody reads"},
		"a region that cannot run": {t.TempDir(), nil, "publish etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var during []string
			printed := writer(func(p []byte) (int, error) {
				during, _ = filepath.Glob(filepath.Join(temporary, "etcfs-region-*")) // the pattern is right
				interrupt()
				return len(p), test.written
			})
			err := run(ctx, []string{"--tools", test.tools}, printed, io.Discard)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			if started := test.tools == tools; started && len(during) != 1 {
				t.Errorf("got folders %q while it ran, want one", during)
			}
			if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
				t.Errorf("got %v (%v) left, want nothing", left, err)
			}
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestRefusals(t *testing.T) {
	t.Setenv("ETCFS_TOOLS", "")
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"no tools":        {nil, "no folder of etcd and etcdctl"},
		"tools not there": {[]string{"--tools", full}, "publish etcd"},
		"folder not empty": {
			[]string{"--tools", full, "--work", full}, "is not empty",
		},
		"argument": {[]string{"serve"}, `unexpected argument "serve"`},
	} {
		err := run(t.Context(), test.arguments, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, test.want)
		}
	}
	var help strings.Builder
	if err := run(t.Context(), []string{"--help"}, io.Discard, &help); err == nil || !strings.Contains(help.String(), "Usage: region [flags]") {
		t.Errorf("got help %q, error %v", help.String(), err)
	}
}
