package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/bootstrap/install"
)

func TestInstallEtcd(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	r := newReleases(t, b)
	twice(t, b, b.installEtcd())

	r.forget()
	if err := runPhase(t, b, b.installEtcd()); err != nil || len(r.asked()) != 0 {
		t.Errorf("when installed: got %v and requests %v, want none", err, r.asked())
	}
	entries, err := os.ReadDir(b.path(cacheDir))
	if err != nil || len(entries) != 0 {
		t.Errorf("downloads are left: %v, %v", entries, err)
	}

	// Cut off between the two binaries.
	if err := os.Remove(b.path("/usr/local/bin/etcdctl")); err != nil {
		t.Fatal(err)
	}
	twice(t, b, b.installEtcd())

	// Another version is asked for.
	r.publishEtcd(t, "v3.5.21")
	b.Settings.EtcdVersion = "v3.5.21"
	twice(t, b, b.installEtcd())
	// A version that starts alike is another one.
	b.Settings.EtcdVersion = "v3.5.2"
	if isDone(t, b.installEtcd()) {
		t.Error("3.5.21 passes for 3.5.2")
	}
}

func TestInstallRefusesWhatDoesNotMatch(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	r := newReleases(t, b)
	const file = "/etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz"
	r.files[file] = []byte("tampered with")
	err := runPhase(t, b, b.installEtcd())
	wrong, ok := errors.AsType[*install.ChecksumError](err)
	if !ok || !strings.Contains(err.Error(), wrong.Got) || !strings.Contains(err.Error(), wrong.Want) {
		t.Fatalf("got error %v, want one with both sums", err)
	}
	if _, err := os.Stat(b.path("/usr/local/bin/etcd")); !os.IsNotExist(err) {
		t.Error("something was installed all the same")
	}

	delete(r.files, file)
	r.publish("/etcd-io/etcd/releases/download/v3.6.16", "SHA256SUMS", map[string][]byte{"other.tar.gz": nil})
	err = runPhase(t, b, b.installEtcd())
	if err == nil || !strings.Contains(err.Error(), "no sum for etcd-v3.6.16-linux-amd64.tar.gz") {
		t.Errorf("got error %v, want one that names what cannot be verified", err)
	}
}

// A release whose binaries do not run here, or are others, is told by what was
// run and what it printed.
func TestInstallEtcdThatDoesNotRun(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	r := newReleases(t, b)
	works := fmt.Sprintf(script, "etcd Version", "3.6.16")
	for name, test := range map[string]struct {
		etcd, etcdctl string
		want          []string
	}{
		"no program":      {"\x7fELF", works, []string{"/usr/local/bin/etcd --version", "exec format error"}},
		"one that fails":  {works, "#!/bin/sh\necho no such instruction >&2\nexit 132\n", []string{"/usr/local/bin/etcdctl version", "no such instruction", "exit status 132"}},
		"another version": {fmt.Sprintf(script, "etcd Version", "3.6.1"), works, []string{"/usr/local/bin/etcd --version", "etcd Version: 3.6.1", "not version 3.6.16"}},
	} {
		r.publishBinaries(t, "v3.6.16", test.etcd, test.etcdctl)
		err := runPhase(t, b, b.installEtcd())
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want one with %q", name, err, want)
			}
		}
	}
	r.publishEtcd(t, "v3.6.16")
	twice(t, b, b.installEtcd())
}

// stubDnf makes a PATH with a dnf that installs packages: the binary that a
// package's file name starts with appears. It writes down how it is called.
func stubDnf(t *testing.T, b *Bootstrap) (path string, calls func() string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "calls")
	path = stubCommand(t, "dnf", `echo "$*" >> `+log+`
mkdir -p `+b.path(binDir)+`
for package; do
  case $package in
  ./*) test -f "$package" || exit 1
    name=${package#./}; name=${name%%-[0-9]*}
    echo "$package" > `+b.path(binDir)+`/$name ;;
  esac
done`)
	return path, func() string {
		data, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(data)
	}
}

func TestInstallEtcFS(t *testing.T) {
	b, _ := newNode(t)
	r := newReleases(t, b)
	path, calls := stubDnf(t, b)
	t.Setenv("PATH", path)
	if err := runPhase(t, b, b.installEtcFS()); err != nil {
		t.Fatal(err)
	}
	want := "install -y fuse3-libs\ninstall -y ./etcfuse-meta-0.36.0-1.x86_64.rpm ./etcfuse-0.36.0-1.x86_64.rpm ./etcfsctl-0.36.0-1.x86_64.rpm\n"
	if got := calls(); got != want {
		t.Errorf("got dnf calls\n%s\nwant\n%s", got, want)
	}
	r.forget()
	if err := runPhase(t, b, b.installEtcFS()); err != nil || calls() != want || len(r.asked()) != 0 {
		t.Errorf("when installed: got %v, requests %v, dnf calls\n%s", err, r.asked(), calls())
	}

	// Cut off after dnf and before the end.
	if err := os.Remove(b.path(releaseFile)); err != nil {
		t.Fatal(err)
	}
	twice(t, b, b.installEtcFS())

	// A binary has gone.
	if err := os.Remove(b.path("/usr/local/bin/etcfsctl")); err != nil {
		t.Fatal(err)
	}
	twice(t, b, b.installEtcFS())

	// Another release is asked for.
	r.publishEtcFS("0.37.1")
	b.Settings.Version = "0.37.1"
	twice(t, b, b.installEtcFS())
	if got, want := content(t, b, "/usr/local/bin/etcfuse"), "./etcfuse-0.37.1-1.x86_64.rpm\n"; got != want {
		t.Errorf("got %q installed, want %q", got, want)
	}
}

// pin is what a cluster has agreed on.
type pin struct {
	version  string
	failures []error
	proposed []string
}

func (p *pin) Pin(_ context.Context, proposed string) (string, error) {
	p.proposed = append(p.proposed, proposed)
	if len(p.failures) > 0 {
		err := p.failures[0]
		p.failures = p.failures[1:]
		return "", err
	}
	if p.version == "" {
		p.version = proposed
	}
	return p.version, nil
}

func TestLatestReleaseIsTheClusters(t *testing.T) {
	for name, test := range map[string]struct {
		latest, pinned string
		want, refused  string
	}{
		"the first node writes it down": {latest: "v0.36.0", want: "0.36.0"},
		"a later node follows":          {latest: "v0.38.0", pinned: "0.36.0", want: "0.36.0"},
		"the latest does not start":     {latest: "v0.35.0", refused: "0.35.0 does not start on Amazon Linux 2023"},
		"the agreed one does not start": {latest: "v0.36.0", pinned: "0.34.2", refused: "0.34.2 does not start on Amazon Linux 2023"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newNode(t)
			r := newReleases(t, b)
			path, _ := stubDnf(t, b)
			t.Setenv("PATH", path)
			r.latest = test.latest
			agreed := &pin{version: test.pinned}
			b.Release = agreed
			b.Settings.Version = "latest"
			err := runPhase(t, b, b.installEtcFS())
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("got error %v, want one with %q", err, test.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(content(t, b, releaseFile)); got != test.want || agreed.version != test.want {
				t.Errorf("installed %s and agreed on %s, want %s", got, agreed.version, test.want)
			}
			// A newer release does not make a reboot an upgrade.
			r.latest = "v0.39.0"
			if !isDone(t, b.installEtcFS()) {
				t.Error("a node does not stay with its release")
			}
		})
	}
}
