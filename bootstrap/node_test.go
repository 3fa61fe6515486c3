package bootstrap

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/install"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

var rewrite = flag.Bool("rewrite-golden", false, "rewrite the golden files")

// The node that these tests boot.
const (
	testVolume   = "vol-0123456789abcdef0"
	testSerial   = "vol0123456789abcdef0"
	testInstance = "i-0123456789abcdef0"
)

var testIdentity = aws.Identity{
	InstanceID: testInstance, PrivateIP: "10.0.0.5", AvailabilityZone: "eu-west-1a", Region: "eu-west-1", AccountID: "123456789012",
}

// newNode is a bootstrap in a folder of its own, identified, with a service
// manager in memory.
func newNode(t *testing.T) (*Bootstrap, *services) {
	t.Helper()
	s := settings.Defaults()
	s.ClusterName, s.Region, s.VolumeID = "demo", "eu-west-1", testVolume
	s.SeedTable = settings.SeedTableName("demo")
	s.Version = "0.36.0"
	root := t.TempDir()
	daemons := &services{Manager: &systemd.Manager{Root: root}, root: root, enabled: map[string]bool{}, states: map[string]systemd.State{}}
	logger := slog.New(slog.DiscardHandler)
	return &Bootstrap{
		Settings: s,
		Node:     Node(testIdentity),
		Root:     root,
		Logger:   logger,
		Download: install.NewDownloader(logger, install.Pace{RetryWait: time.Millisecond, Stall: time.Second}),
		Etcd:     members{},
		Seed:     &table{},
		Services: daemons,
	}, daemons
}

// table is the seed table in memory.
type table struct{ item *membership.Item }

func (t *table) Read(context.Context) (*membership.Item, time.Time, error) {
	return t.item, time.Now(), nil
}

func (t *table) Create(_ context.Context, item membership.Item) (bool, error) {
	if t.item != nil {
		return false, nil
	}
	t.item = &item
	return true, nil
}

func (t *table) Replace(_ context.Context, old, item membership.Item) (bool, error) {
	if t.item == nil || *t.item != old {
		return false, nil
	}
	t.item = &item
	return true, nil
}

// runPhase runs one phase as the runner does.
func runPhase(t *testing.T, b *Bootstrap, p phase.Phase) error {
	t.Helper()
	return phase.Runner{Logger: b.Logger}.Run(t.Context(), phase.Stage{p})
}

// isDone asks a phase.
func isDone(t *testing.T, p phase.Phase) bool {
	t.Helper()
	done, err := p.Done(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	return done
}

// twice runs a phase and once more, when it has to be done already.
func twice(t *testing.T, b *Bootstrap, p phase.Phase) {
	t.Helper()
	if isDone(t, p) {
		t.Fatalf("%s is done before it has run", p.Name)
	}
	if err := runPhase(t, b, p); err != nil {
		t.Fatal(err)
	}
	if !isDone(t, p) {
		t.Errorf("%s is not done after it has run", p.Name)
	}
	// Run itself must bear it too: a crash may come right before the end.
	if err := p.Run(t.Context()); err != nil {
		t.Errorf("%s a second time: %v", p.Name, err)
	}
}

func put(t *testing.T, b *Bootstrap, path, content string, mode os.FileMode) {
	t.Helper()
	if err := b.writeFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, b *Bootstrap, path string) string {
	t.Helper()
	data, err := os.ReadFile(b.path(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// stubCommand makes a PATH with a shell script in front.
func stubCommand(t *testing.T, name, script string) (path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir + ":" + os.Getenv("PATH")
}

// members is an etcd cluster that only lists its members.
type members struct{ Etcd }

func (members) Members(context.Context, []string) ([]membership.Member, error) {
	return []membership.Member{
		{ID: 3, Name: "demo-i-0123456789abcdef2", ClientURLs: []string{"http://10.0.0.7:2379"}},
		{ID: 1, Name: "demo-" + testInstance, ClientURLs: []string{"http://10.0.0.5:2379"}},
		{ID: 2, Name: "demo-i-0123456789abcdef1", ClientURLs: []string{"http://10.0.0.6:2379"}},
		{ID: 4, PeerURLs: []string{"http://10.0.0.8:2380"}}, // not started
	}, nil
}

func (members) ClusterID(context.Context, string) (string, bool, error) { return "c1", false, nil }

// services is a service manager that writes real unit files and keeps the
// units' states in memory.
type services struct {
	*systemd.Manager
	root string

	mu      sync.Mutex
	enabled map[string]bool
	states  map[string]systemd.State
	started []string
	// onStart is what starting a unit does to it.
	onStart func(unit string) systemd.State
	journal map[string][]string
}

func (s *services) Install(_ context.Context, files ...systemd.File) error {
	for _, file := range files {
		path := filepath.Join(s.root, file.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file.Content), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func (s *services) Enable(_ context.Context, unit string) error {
	s.enabled[unit] = true
	return nil
}

func (s *services) Enabled(_ context.Context, unit string) (bool, error) { return s.enabled[unit], nil }

func (s *services) StartNoBlock(_ context.Context, unit string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[unit].Running() {
		return nil
	}
	s.started = append(s.started, unit)
	s.states[unit] = s.onStart(unit)
	return nil
}

func (s *services) State(_ context.Context, unit string) (systemd.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.states[unit]
	if !ok {
		return systemd.State{Active: "inactive", Sub: "dead"}, nil
	}
	return state, nil
}

func (s *services) Journal(_ context.Context, unit string, lines int) ([]string, error) {
	all := s.journal[unit]
	return all[max(0, len(all)-lines):], nil
}

// releases is a release server with etcd and EtcFS.
type releases struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte // by path
	requests []string
	latest   string
}

func newReleases(t *testing.T, b *Bootstrap) *releases {
	t.Helper()
	r := &releases{files: map[string][]byte{}, latest: "v0.36.0"}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req.URL.Path)
		file, ok := r.files[req.URL.Path]
		latest := r.latest
		r.mu.Unlock()
		switch {
		case strings.HasSuffix(req.URL.Path, "/releases/latest"):
			http.Redirect(w, req, strings.TrimSuffix(req.URL.Path, "latest")+"tag/"+latest, http.StatusFound)
		case ok:
			http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(file))
		default:
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(r.Close)
	b.Settings.ReleasesURL = r.URL
	r.publishEtcd(t, "v3.6.16")
	r.publishEtcFS("0.36.0")
	return r
}

const script = "#!/bin/sh\necho '%s: %s'\n"

func (r *releases) publishEtcd(t *testing.T, tag string) {
	t.Helper()
	version := strings.TrimPrefix(tag, "v")
	r.publishBinaries(t, tag, fmt.Sprintf(script, "etcd Version", version), fmt.Sprintf(script, "etcdctl version", version))
}

func (r *releases) publishBinaries(t *testing.T, tag, etcd, etcdctl string) {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	for name, text := range map[string]string{
		"etcd":    etcd,
		"etcdctl": etcdctl,
	} {
		header := &tar.Header{Name: "etcd-" + tag + "-linux-amd64/" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}
		err := files.WriteHeader(header)
		if err == nil {
			_, err = files.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	r.publish("/etcd-io/etcd/releases/download/"+tag, "SHA256SUMS", map[string][]byte{
		"etcd-" + tag + "-linux-amd64.tar.gz": archive.Bytes(),
	})
}

func (r *releases) publishEtcFS(version string) {
	packages := map[string][]byte{}
	for _, name := range []string{"etcfuse", "etcfuse-meta", "etcfsctl"} {
		packages[fmt.Sprintf("%s-%s-1.x86_64.rpm", name, version)] = []byte("package " + name + " " + version)
	}
	r.publish("/etcfs/etcfs/releases/download/v"+version, "checksums.txt", packages)
}

func (r *releases) publish(folder, sumsFile string, files map[string][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := ""
	for name, data := range files {
		r.files[folder+"/"+name] = data
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name)
	}
	r.files[folder+"/"+sumsFile] = []byte(sums)
}

// asked are the base names of the files that were requested.
func (r *releases) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, request := range r.requests {
		names = append(names, path.Base(request))
	}
	slices.Sort(names)
	return names
}

func (r *releases) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

func listen(t *testing.T, path string) {
	t.Helper()
	// The kernel bounds a socket's path by 108 bytes, a folder's is not bound.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	socket, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
}
