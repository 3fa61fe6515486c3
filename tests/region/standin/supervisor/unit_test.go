package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// disk is a machine's folder with files.
func disk(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSplit(t *testing.T) {
	t.Parallel()
	environment := map[string]string{"ONE": "1", "TWO": "a b", "NONE": ""}
	for _, test := range []struct {
		value string
		want  []string
	}{
		{"a  b\tc", []string{"a", "b", "c"}},
		{`'a b' "c d" e\ f`, []string{"a b", "c d", "e f"}},
		{`--flag="x y"z`, []string{"--flag=x yz"}},
		{`'' ""`, []string{"", ""}},
		{`--one=${ONE}/${ONE}`, []string{"--one=1/1"}},
		{`$TWO "${TWO}" x$TWO`, []string{"a", "b", "a b", "x$TWO"}},
		{`$NONE ${NONE} end`, []string{"", "end"}},
		{`$$ONE $${ONE}`, []string{"$ONE", "${ONE}"}},
		{`é ${ONE} ü`, []string{"é", "1", "ü"}},
	} {
		got, err := split(test.value, environment)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("split(%q) = %q, %v, want %q", test.value, got, err, test.want)
		}
	}
	for _, value := range []string{`'open`, `"open`, `end\`, `${open`} {
		if got, err := split(value, environment); err == nil {
			t.Errorf("split(%q) = %q, want an error", value, got)
		}
	}
}

func TestParseSpan(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.5": 500 * time.Millisecond, "100ms": 100 * time.Millisecond,
		"1min 30s": 90 * time.Second, "2h": 2 * time.Hour, "3sec": 3 * time.Second, "infinity": forever,
	} {
		if got, err := parseSpan(value); err != nil || got != want {
			t.Errorf("parseSpan(%q) = %s, %v, want %s", value, got, err, want)
		}
	}
	if got, err := parseSpan("soon"); err == nil {
		t.Errorf("parseSpan(soon) = %s, want an error", got)
	}
}

func TestDropIns(t *testing.T) {
	t.Parallel()
	root := disk(t, map[string]string{
		"usr/lib/systemd/system/a.service":           "[Service]\nExecStart=/bin/old \\\n  --with=more\nEnvironment=A=1\nRestart=no\n",
		"usr/lib/systemd/system/a.service.d/10.conf": "[Service]\nRestart=always\n",
		"etc/systemd/system/a.service.d/10.conf":     "[Service]\nEnvironment=B=2\n", // hides the one above
		"etc/systemd/system/a.service.d/20.conf":     "[Service]\nExecStart=\nExecStart=/bin/new\n",
		"run/systemd/system/a.service.d/15.conf":     "[Service]\nEnvironment=\nEnvironment=C=3\n",
	})
	u, err := loadUnit(root, "a.service")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := u.start, []command{{line: "/bin/new"}}; !slices.Equal(got, want) {
		t.Errorf("ExecStart is %v, want %v", got, want)
	}
	if got, want := u.environment, []string{"C=3"}; !slices.Equal(got, want) {
		t.Errorf("Environment is %q, want %q", got, want)
	}
	if got, want := u.restart, "no"; got != want {
		t.Errorf("Restart is %q, want %q", got, want)
	}
	want := []string{"/etc/systemd/system/a.service.d/10.conf", "/run/systemd/system/a.service.d/15.conf", "/etc/systemd/system/a.service.d/20.conf"}
	if !slices.Equal(u.dropIns, want) {
		t.Errorf("drop-ins are %q, want %q", u.dropIns, want)
	}
}

func TestUnitsThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[Service]\nExecStart=/bin/a\nUser=nobody\n":                      "supports only root",
		"[Service]\nExecStart=/bin/a\nType=forking\n":                     "supports only simple",
		"[Service]\nExecStart=/bin/a\nExecStart=/bin/b\n":                 "only allowed for Type=oneshot",
		"[Service]\nExecStart=@/bin/a b\n":                                `the "@" prefix`,
		"[Service]\nExecStart=/bin/a\nRestartSecs=5\n":                    "RestartSecs= in [Service] is not known",
		"[Service]\nExecStart=/bin/a\nRestartSec=soon\n":                  "not a time span",
		"[Service]\nType=oneshot\nExecStart=/bin/a\nRestart=always\n":     "isn't allowed for Type=oneshot",
		"[Unit]\nConditionPathExists=relative\n[Service]\nExecStart=/a\n": "not an absolute path",
		"[Service]\n": "0 ExecStart= settings",
		"[Service]\nExecStart=/bin/a\nRemainAfterExit=perhaps\n":            "not a boolean",
		"[Service]\nExecStart=/bin/a\nKillSignal=SIGWINCH\n":                "unknown signal",
		"[Service]\nExecStart=/bin/a\nEnvironment='open\n":                  "unclosed quote",
		"[Timer]\nOnCalendar=daily\n[Service]\nExecStart=/bin/a\nType=exec": "OnCalendar= in [Timer] is not known",
	} {
		_, err := loadUnit(disk(t, map[string]string{"etc/systemd/system/a.service": text}), "a.service")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := loadUnit(t.TempDir(), "a.service"); !errors.Is(err, errNotFound) {
		t.Errorf("a missing unit: %v, want %v", err, errNotFound)
	}
}

func TestArgv(t *testing.T) {
	t.Parallel()
	root := disk(t, map[string]string{"usr/local/bin/etcd": ""})
	m := &Manager{root: root, standins: t.TempDir(), env: []string{"PATH=/usr/bin:/bin"}}
	for _, test := range []struct {
		line string
		want []string
	}{
		{"/usr/local/bin/etcd --data-dir=/var/lib/etcd --url=http://${IP}:2379", []string{root + "/usr/local/bin/etcd", "--data-dir=" + root + "/var/lib/etcd", "--url=http://10.0.0.1:2379"}},
		{"/bin/sh -c 'echo $$HOME'", []string{"/usr/bin/sh", "-c", "echo $HOME"}},
		{"/usr/local/bin/none", []string{root + "/usr/local/bin/none"}}, // never the host's
	} {
		got, err := m.argv(command{line: test.line}, map[string]string{"IP": "10.0.0.1"})
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("argv(%q) = %q, %v, want %q", test.line, got, err, test.want)
		}
	}
	// A path inside a shell script would be the host's.
	if got, err := m.argv(command{line: `/bin/sh -c 'rm -rf "/var/lib/etcd"'`}, nil); err == nil {
		t.Errorf("argv = %q, want an error", got)
	}
}

func TestShebang(t *testing.T) {
	t.Parallel()
	for script, want := range map[string][]string{
		"#!/bin/sh\necho":             {"/bin/sh"},
		"#! /bin/bash -eu\n":          {"/bin/bash", "-eu"},
		"#!/usr/bin/env bash -x\n":    {"/usr/bin/env", "bash -x"},
		"#!\n":                        nil,
		"#cloud-config\npackages: []": nil,
	} {
		got, ok := shebang([]byte(script))
		if ok != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("shebang(%q) = %q, %t, want %q", script, got, ok, want)
		}
	}
}
