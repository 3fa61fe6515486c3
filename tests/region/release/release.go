// Package release serves releases of EtcFS and of etcd as github.com does:
// real RPM packages with their units and a list of sums, and etcd's archive
// made of the given binaries, under the same paths, with redirects and range
// requests.
//
// The programs in the packages are scripts that run the stand-in of that
// release, see package etcfs; nodes find it on their PATH.
package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
)

// Repositories that have releases here.
const (
	EtcFS = "etcfs/etcfs"
	Etcd  = "etcd-io/etcd"
)

// Server serves releases. Its zero value has none.
type Server struct {
	mu     sync.Mutex
	assets map[string]*asset // by repository/tag/file
	latest map[string]string // tag by repository
	faults map[string]*fault // by file
	rate   int64             // bytes a second for one download, 0 without limit
}

// asset is one file of a release.
type asset struct {
	modified time.Time
	// open returns the content, made at the first call.
	open func() (io.ReadSeekCloser, error)
}

// PublishEtcFS makes a release of EtcFS the latest one: its three packages and
// their sums.
func (s *Server) PublishEtcFS(release etcfs.Release) error {
	files := map[string][]byte{}
	var sums bytes.Buffer
	for _, p := range packages(release) {
		var rpm bytes.Buffer
		name, err := p.build(&rpm)
		if err != nil {
			return fmt.Errorf("build package %s: %w", p.name, err)
		}
		files[name] = rpm.Bytes()
		fmt.Fprintf(&sums, "%s  %s\n", sum(rpm.Bytes()), name)
	}
	files["checksums.txt"] = sums.Bytes()
	for name, content := range files {
		s.add(EtcFS, "v"+release.Version, name, inMemory(content))
	}
	return nil
}

// PublishEtcd makes a release of etcd, such as v3.6.16, the latest one, of
// these binaries. The archive is kept in cacheDir for other servers of the same
// binaries.
func (s *Server) PublishEtcd(tag, etcd, etcdctl, cacheDir string) error {
	name := fmt.Sprintf("etcd-%s-linux-amd64.tar.gz", tag)
	archive, err := pack(tag, cacheDir, etcd, etcdctl)
	if err != nil {
		return fmt.Errorf("pack etcd %s: %w", tag, err)
	}
	hash, err := os.ReadFile(archive + ".sha256")
	if err != nil {
		return fmt.Errorf("pack etcd %s: %w", tag, err)
	}
	s.add(Etcd, tag, name, asset{open: func() (io.ReadSeekCloser, error) { return os.Open(archive) }})
	s.add(Etcd, tag, "SHA256SUMS", inMemory(fmt.Appendf(nil, "### sha256sum -c checks the files of etcd %s.\n%s  %s\n", tag, hash, name)))
	return nil
}

func (s *Server) add(repository, tag, file string, a asset) {
	a.modified = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.assets == nil {
		s.assets, s.latest, s.faults = map[string]*asset{}, map[string]string{}, map[string]*fault{}
	}
	s.assets[path.Join(repository, tag, file)] = &a
	s.latest[repository] = tag
}

type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

func inMemory(content []byte) asset {
	return asset{open: func() (io.ReadSeekCloser, error) { return memory{bytes.NewReader(content)}, nil }}
}

func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

// assetsPath is where downloads are redirected to, as github.com sends them to
// another host.
const assetsPath = "/release-assets/"

// ServeHTTP answers /OWNER/NAME/releases/{latest,tag/TAG,download/TAG/FILE}
// and the address that a download is redirected to.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if key, ok := strings.CutPrefix(r.URL.Path, assetsPath); ok {
		s.serve(w, r, key)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 4 || parts[2] != "releases" {
		http.NotFound(w, r)
		return
	}
	repository := path.Join(parts[0], parts[1])
	s.mu.Lock()
	latest := s.latest[repository]
	s.mu.Unlock()
	switch verb, rest := parts[3], parts[4:]; {
	case verb == "latest" && len(rest) == 0 && latest != "":
		http.Redirect(w, r, "/"+path.Join(repository, "releases/tag", latest), http.StatusFound)
	case verb == "tag" && len(rest) == 1 && s.has(path.Join(repository, rest[0])+"/"):
		fmt.Fprintf(w, "<html><title>Release %s · %s</title></html>\n", rest[0], repository)
	case verb == "download" && len(rest) == 2 && s.has(path.Join(repository, rest[0], rest[1])):
		http.Redirect(w, r, assetsPath+path.Join(repository, rest[0], rest[1]), http.StatusFound)
	default:
		http.NotFound(w, r)
	}
}

// has says whether there is an asset, or one below a prefix that ends in "/".
func (s *Server) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.assets[key] != nil {
		return true
	}
	for name := range s.assets {
		if strings.HasSuffix(key, "/") && strings.HasPrefix(name, key) {
			return true
		}
	}
	return false
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, key string) {
	s.mu.Lock()
	a, rate := s.assets[key], s.rate
	f := s.faults[path.Base(key)].take(r.Method)
	s.mu.Unlock()
	if a == nil {
		http.NotFound(w, r)
		return
	}
	if f.status != 0 {
		http.Error(w, http.StatusText(f.status), f.status)
		return
	}
	open := a.open
	if f.content != nil {
		open = inMemory(f.content).open
	}
	content, err := open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer content.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if rate > 0 || f.cut {
		w = &limited{ResponseWriter: w, request: r, rate: rate, cut: f.cut, left: f.after}
	}
	http.ServeContent(w, r, path.Base(key), a.modified, content)
}

// pack makes etcd's archive and the file of its sum, unless the cache has
// them. The archive is not compressed: three nodes that unpack it at once
// would pay for that with processor time that the real ones do not share.
func pack(tag, cacheDir string, binaries ...string) (string, error) {
	key := sha256.New()
	for _, binary := range binaries {
		info, err := os.Stat(binary)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(key, tag, filepath.Base(binary), info.Size(), info.ModTime().UnixNano())
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", err
	}
	archive := filepath.Join(cacheDir, fmt.Sprintf("etcd-%s-%x.tar.gz", tag, key.Sum(nil)[:8]))
	if _, err := os.Stat(archive + ".sha256"); err == nil {
		return archive, nil // the sum is written last
	}
	file, err := os.CreateTemp(cacheDir, ".etcd-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name()) // gone once renamed
	hash := sha256.New()
	if err := writeArchive(io.MultiWriter(file, hash), "etcd-"+tag+"-linux-amd64", binaries); err != nil {
		return "", errors.Join(err, file.Close())
	}
	if err := errors.Join(file.Close(), os.Rename(file.Name(), archive)); err != nil {
		return "", err
	}
	return archive, replace(archive+".sha256", hex.EncodeToString(hash.Sum(nil)))
}

func replace(name, content string) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), ".sum-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // gone once renamed
	_, err = temporary.WriteString(content)
	return errors.Join(err, temporary.Close(), os.Rename(temporary.Name(), name))
}

func writeArchive(w io.Writer, folder string, binaries []string) error {
	zipped, err := gzip.NewWriterLevel(w, gzip.NoCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	for _, binary := range binaries {
		if err := addFile(archive, path.Join(folder, filepath.Base(binary)), binary); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

func addFile(archive *tar.Writer, name, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: info.Size(), ModTime: info.ModTime()}); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}
