package artifact_test

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

// root is the module's root, which the programs are compiled from.
const root = "../.."

func load(t *testing.T, bundle artifact.Bundle, cache string) (artifact.Set, []string) {
	t.Helper()
	var said []string
	set, err := artifact.LoadInto(t.Context(), bundle, cache, func(message string) { said = append(said, message) })
	if err != nil {
		t.Fatal(err)
	}
	return set, said
}

func sum(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

// The programs that are compiled on demand are, byte for byte, those that a
// release carries, and are compiled once.
func TestCompiled(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	set, said := load(t, artifact.Compiled(os.DirFS(root)), cache)
	if len(said) != 1 || !strings.HasPrefix(said[0], "compiling the node's programs from source with go1.") {
		t.Errorf("got messages %q, want one that says what takes long", said)
	}
	for _, file := range []artifact.File{set.Bootstrap, set.Function} {
		if got := sum(t, file.Path); got != file.SHA256 {
			t.Errorf("%s has the sha256 %s, not %s", file.Path, got, file.SHA256)
		}
	}
	again, said := load(t, artifact.Compiled(os.DirFS(root)), cache)
	if again != set || len(said) != 0 {
		t.Errorf("the second time: got %v and messages %q, want %v and none", again, said, set)
	}

	release := t.TempDir()
	if err := artifact.Compile(t.Context(), root, release); err != nil {
		t.Fatal(err)
	}
	if got, want := sum(t, filepath.Join(release, artifact.BootstrapName)), set.Bootstrap.SHA256; got != want {
		t.Errorf("the bootstrap of a release has the sha256 %s, the one compiled from source %s", got, want)
	}
	if got, want := sum(t, filepath.Join(release, artifact.FunctionName)), set.Function.SHA256; got != want {
		t.Errorf("the function of a release has the sha256 %s, the one compiled from source %s", got, want)
	}
	checkPrograms(t, release)
}

// checkPrograms sees to it that what an instance and Lambda run is static, for
// linux/amd64, and executable.
func checkPrograms(t *testing.T, folder string) {
	t.Helper()
	archive, err := zip.OpenReader(filepath.Join(folder, artifact.FunctionName))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if len(archive.File) != 1 || archive.File[0].Name != "bootstrap" || archive.File[0].Mode() != 0o755 {
		t.Fatalf("the package holds %v, want one executable bootstrap", archive.File)
	}
	function := filepath.Join(t.TempDir(), "bootstrap")
	in, err := archive.File[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(function, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(folder, artifact.BootstrapName), function} {
		out, err := exec.CommandContext(t.Context(), "go", "version", "-m", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "-trimpath=true"} {
			if !strings.Contains(string(out), "build\t"+want) {
				t.Errorf("%s is not built with %s:\n%s", filepath.Base(path), want, out)
			}
		}
	}
}

// Programs that start together share one copy, and a damaged one is replaced.
func TestUnpacked(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		artifact.BootstrapName: {Data: []byte("the bootstrap")},
		artifact.FunctionName:  {Data: []byte("the function")},
	}
	cache := t.TempDir()
	var wait sync.WaitGroup
	sets := make([]artifact.Set, 8)
	for i := range sets {
		wait.Go(func() { sets[i], _ = load(t, artifact.Unpacked(files), cache) })
	}
	wait.Wait()
	for _, set := range sets {
		if set != sets[0] {
			t.Errorf("got %v and %v", set, sets[0])
		}
	}
	if got, want := sum(t, sets[0].Bootstrap.Path), sets[0].Bootstrap.SHA256; got != want {
		t.Errorf("the bootstrap has the sha256 %s, not %s", got, want)
	}

	if err := os.WriteFile(sets[0].Bootstrap.Path, []byte("the bootstrap?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if set, _ := load(t, artifact.Unpacked(files), cache); set != sets[0] || sum(t, set.Bootstrap.Path) != set.Bootstrap.SHA256 {
		t.Errorf("the damaged bootstrap was kept: %v, want %v", set, sets[0])
	}

	files[artifact.BootstrapName] = &fstest.MapFile{Data: []byte("another bootstrap")}
	if set, _ := load(t, artifact.Unpacked(files), cache); set.Bootstrap.Path == sets[0].Bootstrap.Path {
		t.Error("another release uses the files of this one")
	}
}

// A new version removes what earlier ones left, but for the one used last and
// those that somebody may be using.
func TestEarlierVersionsAreRemoved(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	add := func(name string) {
		t.Helper()
		folder := filepath.Join(cache, name)
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, artifact.BootstrapName), nil, 0o600), os.WriteFile(folder+".lock", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	used := func(name string, ago time.Duration) {
		t.Helper()
		if err := os.Chtimes(filepath.Join(cache, name), time.Now().Add(-ago), time.Now().Add(-ago)); err != nil {
			t.Fatal(err)
		}
	}
	release := func(content string) (name string) {
		files := fstest.MapFS{artifact.BootstrapName: {Data: []byte(content)}, artifact.FunctionName: {Data: []byte("the function")}}
		set, said := load(t, artifact.Unpacked(files), cache)
		if len(said) > 0 {
			t.Errorf("got messages %q, want none", said)
		}
		return filepath.Base(filepath.Dir(set.Bootstrap.Path))
	}
	expect := func(when string, want ...string) {
		t.Helper()
		entries, err := os.ReadDir(cache)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}

	for name, ago := range map[string]time.Duration{
		"source-1": time.Minute, "source-2": 30 * time.Minute, "source-3": 2 * time.Hour, "release-4": 30 * 24 * time.Hour,
		"host": 30 * 24 * time.Hour, // somebody else's
	} {
		add(name)
		used(name, ago)
	}
	first := release("first")
	expect("two more were used within the hour", "host", "host.lock", first, "source-1", "source-1.lock", "source-2", "source-2.lock")

	used("source-1", 2*time.Hour)
	used(first, 3*time.Hour)
	used("source-2", 4*time.Hour)
	second := release("second")
	expect("none was used within the hour", "host", "host.lock", second, "source-1", "source-1.lock")

	used(second, 3*time.Hour)
	release("second") // it is the last use that counts, and not when it was made
	third := release("third")
	expect("the older one was used again", "host", "host.lock", second, third)
}

func TestSourceMatters(t *testing.T) {
	t.Parallel()
	base := func() fstest.MapFS {
		return fstest.MapFS{
			"go.mod":               {Data: []byte("module example")},
			"go.sum":               {},
			"bootstrap/a.go":       {Data: []byte("package a")},
			"bootstrap/a_test.go":  {Data: []byte("package a")},
			"bootstrap/testdata/x": {Data: []byte("x")},
			"lambda/b.go":          {Data: []byte("package b")},
		}
	}
	want := artifact.Fingerprint(t, base())
	for path, changes := range map[string]bool{
		"go.mod": true, "go.sum": true, "bootstrap/a.go": true, "lambda/b.go": true,
		"bootstrap/a_test.go": false, "bootstrap/testdata/x": false, "README.md": false,
	} {
		source := base()
		source[path] = &fstest.MapFile{Data: []byte("changed")}
		if got := artifact.Fingerprint(t, source); (got != want) != changes {
			t.Errorf("a change of %s makes another fingerprint: %t, want %t", path, got != want, changes)
		}
	}
}

// Nothing in the user's shell makes other programs of the same source.
func TestShellDoesNotMatter(t *testing.T) {
	source := t.TempDir()
	for path, content := range map[string]string{
		"go.mod":                                "module example\n\ngo 1.26\n",
		"bootstrap/cmd/etcfs-bootstrap/main.go": "package main\n\nfunc main() {}\n",
		"lambda/cmd/graceful-leave/main.go":     "package main\n\nfunc main() {}\n",
	} {
		path = filepath.Join(source, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compile := func() string {
		output := t.TempDir()
		if err := artifact.Compile(t.Context(), source, output); err != nil {
			t.Fatal(err)
		}
		return sum(t, filepath.Join(output, artifact.BootstrapName)) + sum(t, filepath.Join(output, artifact.FunctionName))
	}
	want := compile()
	for name, value := range map[string]string{
		"CGO_ENABLED": "1", "GO111MODULE": "off", "GOAMD64": "v3", "GOARCH": "arm64", "GOEXPERIMENT": "nogreenteagc",
		"GOFIPS140": "latest", "GOFLAGS": "-mod=vendor", "GOOS": "darwin", "GOWORK": "/nonexistent/go.work",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if got := compile(); got != want {
				t.Errorf("%s=%s makes other programs", name, value)
			}
		})
	}
}

func TestBrokenSource(t *testing.T) {
	t.Parallel()
	source := fstest.MapFS{
		"go.mod":                                {Data: []byte("module example\n\ngo 1.26\n")},
		"go.sum":                                {},
		"bootstrap/cmd/etcfs-bootstrap/main.go": {Data: []byte("package main\n\nfunc main() { undefined() }\n")},
		"lambda/b.go":                           {Data: []byte("package b")},
	}
	_, err := artifact.LoadInto(t.Context(), artifact.Compiled(source), t.TempDir(), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "compile ./bootstrap/cmd/etcfs-bootstrap") || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("got %v, want what the compiler said of which program", err)
	}
}

// A library's user whose program is in no module learns what is missing.
func TestInstalledOutsideOfAModule(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := artifact.LoadInto(t.Context(), artifact.Installed(), t.TempDir(), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "must be in a Go module that requires github.com/etcfs/pulumi-etcfs") {
		t.Errorf("got %v, want the requirement named", err)
	}
}

// Without Go, a build that carries no programs says what to do.
func TestNoToolchain(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, bundle := range map[string]artifact.Bundle{"compiled": artifact.Compiled(os.DirFS(root)), "installed": artifact.Installed()} {
		_, err := artifact.LoadInto(t.Context(), bundle, t.TempDir(), func(string) {})
		if err == nil || !strings.Contains(err.Error(), "install Go, or use a release of the plugin") {
			t.Errorf("%s: got %v, want a remedy", name, err)
		}
	}
}
