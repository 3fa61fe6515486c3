package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sassoftware/go-rpmutils"

	"github.com/etcfs/pulumi-etcfs/tests/region/release"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
)

const rpm = "etcfuse-meta-0.36.0-1.x86_64.rpm"

func serve(t *testing.T) (*release.Server, string) {
	t.Helper()
	var server release.Server
	for _, r := range []etcfs.Release{{Version: "0.34.0"}, {Version: "0.36.0", Config: true}} {
		if err := server.PublishEtcFS(r); err != nil {
			t.Fatal(err)
		}
	}
	listener := httptest.NewServer(&server)
	t.Cleanup(listener.Close)
	return &server, listener.URL
}

// answer is what of a response outlives it.
type answer struct {
	status int
	path   string // where redirects led
}

func get(t *testing.T, method, url string, header ...string) (answer, []byte, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Request.URL.Path}, body, err
}

func TestPackages(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	base := url + "/etcfs/etcfs/releases/download/v0.36.0/"
	_, sums, err := get(t, "GET", base+"checksums.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"etcfuse":      {"/usr/lib/systemd/system/etcfuse.service", "/usr/local/bin/etcfuse"},
		"etcfuse-meta": {"/usr/lib/systemd/system/etcfuse-meta.service", "/usr/local/bin/etcfuse-meta"},
		"etcfsctl":     {"/usr/local/bin/etcfsctl"},
	}
	for name, files := range want {
		file := name + "-0.36.0-1.x86_64.rpm"
		_, content, err := get(t, "GET", base+file)
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(content), file); !strings.Contains(string(sums), line) {
			t.Errorf("checksums.txt has no line %q", line)
		}
		header, _, err := rpmutils.Verify(bytes.NewReader(content), nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		infos, err := header.GetFiles()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, info := range infos {
			got = append(got, info.Name())
		}
		if slices.Sort(got); !slices.Equal(got, files) {
			t.Errorf("%s holds %q, want %q", file, got, files)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	for _, test := range []struct {
		method, path string
		status       int
		at           string // where redirects lead
	}{
		{"GET", "/etcfs/etcfs/releases/latest", 200, "/etcfs/etcfs/releases/tag/v0.36.0"},
		{"HEAD", "/etcfs/etcfs/releases/latest", 200, "/etcfs/etcfs/releases/tag/v0.36.0"},
		{"GET", "/etcfs/etcfs/releases/tag/v0.34.0", 200, ""},
		{"GET", "/etcfs/etcfs/releases/tag/v0.3", 404, ""},
		{"HEAD", "/etcfs/etcfs/releases/download/v0.36.0/" + rpm, 200, "/release-assets/etcfs/etcfs/v0.36.0/" + rpm},
		{"GET", "/etcfs/etcfs/releases/download/v0.34.0/" + rpm, 404, ""},
		{"GET", "/etcfs/etcfs/releases/download/v0.36.0", 404, ""},
		{"GET", "/etcd-io/etcd/releases/latest", 404, ""},
		{"GET", "/", 404, ""},
		{"POST", "/etcfs/etcfs/releases/latest", 405, ""},
	} {
		response, _, err := get(t, test.method, url+test.path)
		if err != nil {
			t.Fatal(err)
		}
		at := test.at
		if at == "" {
			at = test.path
		}
		if got := response.path; response.status != test.status || got != at {
			t.Errorf("%s %s: status %d at %s, want %d at %s", test.method, test.path, response.status, got, test.status, at)
		}
	}
}

func TestABrokenDownloadCanBeResumed(t *testing.T) {
	t.Parallel()
	server, url := serve(t)
	url += "/etcfs/etcfs/releases/download/v0.36.0/" + rpm
	_, whole, err := get(t, "GET", url)
	if err != nil {
		t.Fatal(err)
	}
	server.CutOff(rpm, 1000, 1)
	_, first, err := get(t, "GET", url)
	if err == nil || !bytes.Equal(first, whole[:1000]) {
		t.Fatalf("got %d bytes, %v, want the first 1000 and an error", len(first), err)
	}
	response, rest, err := get(t, "GET", url, "Range", "bytes=1000-")
	if err != nil || response.status != http.StatusPartialContent {
		t.Fatalf("status %d, %v, want 206", response.status, err)
	}
	if !bytes.Equal(append(first, rest...), whole) {
		t.Error("the parts do not make the whole")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	server, url := serve(t)
	url += "/etcfs/etcfs/releases/download/v0.36.0/" + rpm
	server.Fail(rpm, http.StatusServiceUnavailable, 2)
	for i, want := range []int{503, 503, 200} {
		if response, _, err := get(t, "GET", url); err != nil || response.status != want {
			t.Errorf("download %d: status %d, %v, want %d", i, response.status, err, want)
		}
	}
	server.Replace(rpm, []byte("wrong"))
	if _, body, err := get(t, "GET", url); err != nil || string(body) != "wrong" {
		t.Errorf("got %q, %v, want the replacement", body, err)
	}
	server.Heal(rpm)
	server.Throttle(20_000)
	start := time.Now()
	_, body, err := get(t, "GET", url)
	if err != nil {
		t.Fatal(err)
	}
	if took, least := time.Since(start), time.Duration(len(body))*time.Second/20_000; took < least {
		t.Errorf("%d bytes took %s, want at least %s", len(body), took, least)
	}
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	folder, cache := t.TempDir(), t.TempDir()
	binaries := map[string]string{"etcd": "server", "etcdctl": "client"}
	for name, content := range binaries {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server, url := serve(t)
	publish := func() {
		t.Helper()
		if err := server.PublishEtcd("v3.6.16", filepath.Join(folder, "etcd"), filepath.Join(folder, "etcdctl"), cache); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	publish() // from the cache
	if cached, err := filepath.Glob(filepath.Join(cache, "*.tar.gz")); err != nil || len(cached) != 1 {
		t.Errorf("the cache holds %q, want one archive", cached)
	}
	base := url + "/etcd-io/etcd/releases/download/v3.6.16/"
	_, content, err := get(t, "GET", base+"etcd-v3.6.16-linux-amd64.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	_, sums, err := get(t, "GET", base+"SHA256SUMS")
	if want := fmt.Sprintf("%x  etcd-v3.6.16-linux-amd64.tar.gz\n", sha256.Sum256(content)); err != nil || !strings.HasSuffix(string(sums), want) {
		t.Errorf("SHA256SUMS is %q, %v, want it to end in %q", sums, err, want)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(unzipped)
	for range binaries {
		entry, err := archive.Next()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(archive)
		if want := binaries[strings.TrimPrefix(entry.Name, "etcd-v3.6.16-linux-amd64/")]; err != nil || string(got) != want || entry.Mode != 0o755 {
			t.Errorf("%s (%o) holds %q, %v, want %q", entry.Name, entry.Mode, got, err, want)
		}
	}
	if err := server.PublishEtcd("v3.5.0", filepath.Join(folder, "none"), filepath.Join(folder, "etcdctl"), cache); err == nil {
		t.Error("a release without a binary was published")
	}
}
