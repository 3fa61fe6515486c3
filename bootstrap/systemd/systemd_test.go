package systemd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// stub makes a PATH with commands that write down how they are called and then
// do what a shell script says.
func stub(t *testing.T, script string) (path string, calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	for _, name := range []string{"systemctl", "journalctl"} {
		text := "#!/bin/sh\necho " + name + " \"$@\" >> " + log + "\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + os.Getenv("PATH"), func() []string {
		content, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Fields(strings.ReplaceAll(string(content), " ", "_"))
	}
}

func TestInstallReloadsWhenSomethingChanged(t *testing.T) {
	path, calls := stub(t, "")
	t.Setenv("PATH", path)
	m := &systemd.Manager{Root: t.TempDir()}
	files := []systemd.File{
		systemd.Unit("a.service", "[Service]\nExecStart=/a\n"),
		systemd.DropIn("b.service", "[Service]\nExecStart=\n"),
	}
	if installed, err := m.Installed(files...); installed || err != nil {
		t.Errorf("before: got installed %t, %v", installed, err)
	}
	for range 2 {
		if err := m.Install(t.Context(), files...); err != nil {
			t.Fatal(err)
		}
	}
	if installed, err := m.Installed(files...); !installed || err != nil {
		t.Errorf("after: got installed %t, %v", installed, err)
	}
	if got := calls(); len(got) != 1 || got[0] != "systemctl_daemon-reload" {
		t.Errorf("got calls %v, want one daemon-reload", got)
	}
	files[0].Content += "# changed\n"
	if installed, err := m.Installed(files...); installed || err != nil {
		t.Errorf("with a change: got installed %t, %v", installed, err)
	}
	if err := m.Install(t.Context(), files...); err != nil {
		t.Fatal(err)
	}
	if got := calls(); len(got) != 2 {
		t.Errorf("got calls %v, want another daemon-reload", got)
	}
	got, err := os.ReadFile(filepath.Join(m.Root, "etc/systemd/system/b.service.d/50-etcfs-bootstrap.conf"))
	if err != nil || string(got) != files[1].Content {
		t.Errorf("got drop-in %q, %v", got, err)
	}
}

func TestState(t *testing.T) {
	for name, test := range map[string]struct {
		output          string
		want            systemd.State
		text            string
		running, failed bool
	}{
		"running": {
			output: "ActiveState=active\nSubState=running\nResult=success\nNRestarts=0\nNeedDaemonReload=no\n",
			want:   systemd.State{Active: "active", Sub: "running", Result: "success"},
			text:   "active (running)", running: true,
		},
		"crashing": {
			output: "ActiveState=activating\nSubState=auto-restart\nResult=exit-code\nNRestarts=3\nNeedDaemonReload=yes\n",
			want:   systemd.State{Active: "activating", Sub: "auto-restart", Result: "exit-code", Restarts: 3, Stale: true},
			text:   "activating (auto-restart), result exit-code, 3 restarts",
		},
		"failed": {
			output: "ActiveState=failed\nSubState=failed\nResult=signal\n",
			want:   systemd.State{Active: "failed", Sub: "failed", Result: "signal"},
			text:   "failed, result signal", failed: true,
		},
		"unknown unit": {
			output: "ActiveState=inactive\nSubState=dead\n",
			want:   systemd.State{Active: "inactive", Sub: "dead"},
			text:   "inactive (dead)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, calls := stub(t, "printf '"+strings.ReplaceAll(test.output, "\n", `\n`)+"'")
			t.Setenv("PATH", path)
			got, err := new(systemd.Manager).State(t.Context(), "x.service")
			if err != nil || got != test.want {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
			if got.String() != test.text || got.Running() != test.running || got.Failed() != test.failed {
				t.Errorf("got %q, running %t, failed %t", got, got.Running(), got.Failed())
			}
			want := "systemctl_show_--property=ActiveState,SubState,Result,NRestarts,NeedDaemonReload_x.service"
			if got := calls(); len(got) != 1 || got[0] != want {
				t.Errorf("got calls %v, want %s", got, want)
			}
		})
	}
	path, _ := stub(t, "echo Unit=x")
	t.Setenv("PATH", path)
	if got, err := new(systemd.Manager).State(t.Context(), "x.service"); err == nil {
		t.Errorf("got %v of an answer without a state", got)
	}
}

func TestStart(t *testing.T) {
	const show = "systemctl_show_--property=ActiveState,SubState,Result,NRestarts,NeedDaemonReload_a "
	for stale, want := range map[string]string{
		"no": show + "systemctl_start_--no-block_a",
		// An earlier run was cut off between writing the unit and the reload.
		"yes": show + "systemctl_daemon-reload systemctl_start_--no-block_a",
	} {
		t.Run("stale "+stale, func(t *testing.T) {
			path, calls := stub(t, "printf 'ActiveState=inactive\\nNeedDaemonReload="+stale+"\\n'")
			t.Setenv("PATH", path)
			if err := new(systemd.Manager).StartNoBlock(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			if got := strings.Join(calls(), " "); got != want {
				t.Errorf("got calls %s, want %s", got, want)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	path, calls := stub(t, "")
	t.Setenv("PATH", path)
	m := new(systemd.Manager)
	for _, command := range []func() error{
		func() error { return m.Stop(t.Context(), "a") },
		func() error { return m.Enable(t.Context(), "a") },
	} {
		if err := command(); err != nil {
			t.Error(err)
		}
	}
	if got, want := strings.Join(calls(), " "), "systemctl_stop_a systemctl_enable_a"; got != want {
		t.Errorf("got calls %s, want %s", got, want)
	}

	path, _ = stub(t, "echo 'Job for a.service failed.' >&2; exit 1")
	t.Setenv("PATH", path)
	err := m.Stop(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), "run systemctl stop a: exit status 1: Job for a.service failed.") {
		t.Errorf("got error %v, want one with the command and what it said", err)
	}
}

func TestEnabled(t *testing.T) {
	for script, want := range map[string]bool{"echo enabled": true, "echo disabled; exit 1": false, "exit 1": false, "echo static": false} {
		path, _ := stub(t, script)
		t.Setenv("PATH", path)
		if got, err := new(systemd.Manager).Enabled(t.Context(), "a"); err != nil || got != want {
			t.Errorf("%s: got %t, %v, want %t", script, got, err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := new(systemd.Manager).Enabled(t.Context(), "a"); err == nil {
		t.Error("no error without systemctl")
	}
}

func TestJournal(t *testing.T) {
	path, calls := stub(t, "printf 'one\\ntwo\\n'")
	t.Setenv("PATH", path)
	got, err := new(systemd.Manager).Journal(t.Context(), "a.service", 60)
	if err != nil || strings.Join(got, "|") != "one|two" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := calls(); len(got) != 1 || got[0] != "journalctl_-u_a.service_-n_60_--no-pager" {
		t.Errorf("got calls %v", got)
	}
	path, _ = stub(t, "")
	t.Setenv("PATH", path)
	if got, err := new(systemd.Manager).Journal(t.Context(), "a.service", 60); err != nil || got != nil {
		t.Errorf("an empty journal: got %q, %v", got, err)
	}
}
