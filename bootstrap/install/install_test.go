package install_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/install"
)

// content is longer than what one read of a connection returns.
var content = bytes.Repeat([]byte("0123456789abcdef"), 64<<10)

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

// server serves content, after what each request of the script does first.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	ranges []string // of the requests so far, "" for a whole one
}

// serve answers the nth request by the nth step, and by serving content when
// there is none.
func serve(t *testing.T, steps ...http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := len(s.ranges)
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		s.mu.Unlock()
		if n < len(steps) {
			steps[n](w, r)
			return
		}
		whole(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ranges...)
}

func whole(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "file", time.Time{}, bytes.NewReader(content))
}

// cut sends the first n bytes and breaks the connection.
func cut(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:n])
		panic(http.ErrAbortHandler)
	}
}

// hang sends the first n bytes and nothing more until the client goes away.
func hang(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:n])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func other(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("another file")) }

var quiet = slog.New(slog.DiscardHandler)

func downloader() *install.Downloader {
	return install.NewDownloader(quiet, install.Pace{RetryWait: time.Millisecond, Stall: 200 * time.Millisecond})
}

func TestFetch(t *testing.T) {
	t.Parallel()
	half := len(content) / 2
	for name, test := range map[string]struct {
		steps    []http.HandlerFunc
		partial  []byte // what an earlier boot has left
		finished []byte
		want     []string // the ranges of all requests
	}{
		"at once":              {want: []string{""}},
		"there already":        {finished: content, want: nil},
		"a wrong one is there": {finished: []byte("wrong"), want: []string{""}},
		"left by an earlier try": {
			partial: content[:half], want: []string{fmt.Sprintf("bytes=%d-", half)},
		},
		"left complete": {
			partial: content, want: []string{fmt.Sprintf("bytes=%d-", len(content))},
		},
		"left by an earlier try of another file": {
			partial: []byte("something else"), want: []string{"bytes=14-", ""},
		},
		"server without ranges": {
			steps:   []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }},
			partial: content[:half], want: []string{fmt.Sprintf("bytes=%d-", half)},
		},
		"broken once": {
			steps: []http.HandlerFunc{cut(half)}, want: []string{"", fmt.Sprintf("bytes=%d-", half)},
		},
		"stalled once": {
			steps: []http.HandlerFunc{hang(half)}, want: []string{"", fmt.Sprintf("bytes=%d-", half)},
		},
		"server has bad moments": {
			steps: []http.HandlerFunc{status(503), status(429), status(500)}, want: []string{"", "", "", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.steps...)
			path := filepath.Join(t.TempDir(), "cache", "file")
			leave(t, path+".partial", test.partial)
			leave(t, path, test.finished)
			for try := range 2 { // the second finds it done
				if err := downloader().Fetch(t.Context(), s.URL, path, sum(content)); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if err != nil || !bytes.Equal(got, content) {
					t.Errorf("after try %d the file has %d bytes (%v), want the %d of the content", try, len(got), err, len(content))
				}
			}
			if got := s.requests(); strings.Join(got, "|") != strings.Join(test.want, "|") || len(got) != len(test.want) {
				t.Errorf("got requests with ranges %q, want %q", got, test.want)
			}
			if _, err := os.Stat(path + ".partial"); !os.IsNotExist(err) {
				t.Errorf("a partial file is left: %v", err)
			}
		})
	}
}

func leave(t *testing.T, path string, data []byte) {
	t.Helper()
	if data == nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFetchRefusesAnotherFile(t *testing.T) {
	t.Parallel()
	s := serve(t, other)
	path := filepath.Join(t.TempDir(), "file")
	err := downloader().Fetch(t.Context(), s.URL, path, sum(content))
	wrong, ok := errors.AsType[*install.ChecksumError](err)
	if !ok || wrong.Got != sum([]byte("another file")) || wrong.Want != sum(content) {
		t.Fatalf("got error %v, want a checksum error", err)
	}
	for _, part := range []string{wrong.Got, wrong.Want, s.URL} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %s", err, part)
		}
	}
	if got := len(s.requests()); got != 1 {
		t.Errorf("got %d requests, want 1: a wrong file is not asked for again", got)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 0 {
		t.Errorf("the refused file was kept: %v %v", entries, err)
	}
}

func TestFetchGivesUp(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		s := serve(t, status(404))
		err := downloader().Fetch(t.Context(), s.URL, filepath.Join(t.TempDir(), "file"), sum(content))
		if _, ok := errors.AsType[*install.StatusError](err); !ok || len(s.requests()) != 1 {
			t.Errorf("got error %v after %d requests, want a status error after 1", err, len(s.requests()))
		}
	})
	t.Run("canceled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
		err := downloader().Fetch(ctx, s.URL, filepath.Join(t.TempDir(), "file"), sum(content))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want a cancellation", err)
		}
	})
}

func TestSums(t *testing.T) {
	t.Parallel()
	release := func(s *server) install.Release {
		return install.Release{BaseURL: s.URL + "/", Repository: "etcd-io/etcd", Tag: "v3.6.16"}
	}
	a, b := strings.Repeat("a", 64), strings.Repeat("B", 64)
	breaksOff := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(a + "  etcd.tar.gz\n"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	s := serve(t, status(502), breaksOff, hang(10), breaksOff, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.Path, "/etcd-io/etcd/releases/download/v3.6.16/SHA256SUMS"; got != want {
			t.Errorf("got path %s, want %s", got, want)
		}
		fmt.Fprintf(w, "# how to verify this\n%s  etcd.tar.gz\n%s *./windows.zip\n\nshort  c\n", a, b)
	})
	got, err := downloader().Sums(t.Context(), release(s), "SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["etcd.tar.gz"] != a || got["windows.zip"] != strings.ToLower(b) {
		t.Errorf("got %v", got)
	}

	for name, step := range map[string]http.HandlerFunc{"missing": status(404), "no sums in it": other} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := downloader().Sums(t.Context(), release(serve(t, step)), "SHA256SUMS"); err == nil {
				t.Errorf("got %v and no error", got)
			}
		})
	}
}

func TestLatest(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	redirect := func(from, to string) {
		mux.HandleFunc(from, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) })
	}
	redirect("/etcfs/etcfs/releases/latest", "/etcfs/etcfs/releases/tag/v0.36.0")
	redirect("/old/etcfs/releases/latest", "/etcfs/etcfs/releases/latest")
	redirect("/none/etcfs/releases/latest", "/none/etcfs/releases")
	mux.HandleFunc("/none/etcfs/releases", func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewServer(mux)
	defer s.Close()
	for repository, want := range map[string]string{"etcfs/etcfs": "0.36.0", "old/etcfs": "0.36.0", "none/etcfs": "", "no/such": ""} {
		got, err := downloader().Latest(t.Context(), s.URL, repository)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: got %q, %v, want %q", repository, got, err, want)
		}
	}
}

func TestExtract(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "etcd.tar.gz")
	leave(t, archive, tarball(t, map[string]string{
		"etcd-v3.6.16-linux-amd64/README.md": "text",
		"etcd-v3.6.16-linux-amd64/etcd":      "the server",
		"etcd-v3.6.16-linux-amd64/etcdctl":   "the client",
	}))
	folder := filepath.Join(t.TempDir(), "usr", "local", "bin")
	leave(t, filepath.Join(folder, "etcd"), []byte("an older one"))
	for range 2 {
		if err := install.Extract(archive, folder, "etcd", "etcdctl"); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"etcd": "the server", "etcdctl": "the client"} {
			path := filepath.Join(folder, name)
			got, err := os.ReadFile(path)
			if err != nil || string(got) != want {
				t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: got %v, %v, want mode 0755", name, info.Mode(), err)
			}
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v, want the two binaries and nothing else", entries, err)
	}

	err = install.Extract(archive, folder, "etcd", "etcdutl")
	if err == nil || !strings.Contains(err.Error(), "it has no etcdutl") {
		t.Errorf("got error %v, want one that names what is missing", err)
	}
	leave(t, archive, []byte("not an archive"))
	if err := install.Extract(archive, folder, "etcd"); err == nil {
		t.Error("a file that is no archive was extracted")
	}
}

func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	zipped := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zipped)
	for name, text := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func TestPackages(t *testing.T) {
	bin, work := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	calls := filepath.Join(bin, "calls")
	// The repository is out of reach the first time.
	dnf := fmt.Sprintf("#!/bin/sh\necho \"$PWD $*\" >> %[1]s\n[ $(wc -l < %[1]s) -gt 1 ] && exit 0\necho no mirror; exit 1\n", calls)
	if err := os.WriteFile(filepath.Join(bin, "dnf"), []byte(dnf), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := downloader().Packages(t.Context(), work, "./a.rpm", "./b.rpm"); err != nil {
		t.Fatal(err)
	}
	line := work + " install -y ./a.rpm ./b.rpm\n"
	got, err := os.ReadFile(calls)
	if want := line + line; err != nil || string(got) != want {
		t.Errorf("got calls %q, %v, want %q", got, err, want)
	}

	if err := os.WriteFile(filepath.Join(bin, "dnf"), []byte("#!/bin/sh\necho nothing provides x >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	err = downloader().Packages(t.Context(), work, "./a.rpm")
	if err == nil || !strings.Contains(err.Error(), "nothing provides x") {
		t.Errorf("got error %v, want one with what dnf said", err)
	}
}
