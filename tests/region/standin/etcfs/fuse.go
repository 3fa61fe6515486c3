package etcfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/rpc"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/gofrs/flock"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// library is what the real etcfuse is linked against.
const library = "/usr/lib64/libfuse3.so.3"

// Fuse runs etcfuse of the release that the first argument names, and returns
// its exit status.
func Fuse(args []string, stdout, stderr io.Writer) int {
	release, args, err := takeRelease(args)
	if err != nil {
		fmt.Fprintln(stderr, "etcfuse:", err)
		return 2
	}
	root := rootfs.Root()
	if _, err := os.Stat(rootfs.Path(root, library)); err != nil {
		fmt.Fprintln(stderr, "etcfuse: error while loading shared libraries: libfuse3.so.3: cannot open shared object file: No such file or directory")
		return 127
	}
	set := pflag.NewFlagSet("etcfuse", pflag.ContinueOnError)
	set.SetOutput(stderr)
	socket := set.String("socket", defaultSocket, "Unix socket of etcfuse-meta")
	set.String("notify-socket", "/run/etcfuse/etcfuse-notify.sock", "Unix socket for cache-invalidation notifications")
	node := set.String("node-id", "", "Node identifier")
	set.Int("log-level", 1, "Log level: 0=error, 1=info, 2=debug")
	version := set.Bool("version", false, "Show version and exit")
	if err := set.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil {
		fmt.Fprintln(stderr, "etcfuse:", err)
		return 2
	}
	if *version {
		fmt.Fprintln(stdout, "etcfuse", release.Version)
		return 0
	}
	if set.NArg() != 1 {
		fmt.Fprintln(stderr, "etcfuse: usage: etcfuse [options] MOUNTPOINT")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger := slog.New(slog.NewTextHandler(stderr, nil)).With("node", *node)
	f := &folderSync{
		folder: rootfs.Path(root, set.Arg(0)), scratch: rootfs.Path(root, "/run/standin/scratch"),
		logger: logger, known: map[string][sha256.Size]byte{},
	}
	if root == "" {
		err = mountKernel(ctx, set.Arg(0), *socket, logger)
	} else {
		err = f.run(ctx, root, rootfs.Path(root, *socket))
	}
	if err != nil {
		logger.Error("etcfuse failed", "error", err)
		return 1
	}
	return 0
}

// folderSync keeps a folder and the files of the cluster equal, which is how a
// process machine mounts: it needs no privilege.
type folderSync struct {
	folder  string
	scratch string // for files that are moved into the folder whole
	logger  *slog.Logger
	meta    *rpc.Client

	mu sync.Mutex
	// unmounted says that what happens in the folder is no longer the
	// cluster's business.
	unmounted bool
	// known are the sums of the files as the cluster has them: a change of the
	// folder that leads there is no news.
	known map[string][sha256.Size]byte
}

func (f *folderSync) run(ctx context.Context, root, socket string) error {
	if info, err := os.Stat(f.folder); err != nil || !info.IsDir() {
		return fmt.Errorf("bad mount point %s: no such directory", rootfs.Strip(root, f.folder))
	}
	connection, err := rootfs.DialUnix(socket) // once: like the real one
	if err != nil {
		return err
	}
	f.meta = rpc.NewClient(connection)
	defer f.meta.Close()
	path := marker(root, f.folder)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(f.scratch, 0o700)); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	lock := flock.New(path)
	if free, err := lock.TryLock(); err != nil || !free {
		return errors.Join(fmt.Errorf("mount: %s is busy", rootfs.Strip(root, f.folder)), err)
	}
	defer lock.Close()
	f.empty() // what a killed predecessor left
	watch, err := newWatch(f.folder)
	if err != nil {
		return err
	}
	defer watch.Close()
	defer f.unmount()
	revision, err := f.load()
	if err != nil {
		return err
	}
	f.logger.Info("mounted", "folder", rootfs.Strip(root, f.folder))

	failed := make(chan error, 2)
	go func() { failed <- f.pull(revision) }()
	go func() { failed <- f.push(watch) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		err := f.flush()
		f.logger.Info("unmounted")
		return err
	}
}

// flush stores what changed last, before an orderly unmount.
func (f *folderSync) flush() error {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	changed := map[string]bool{}
	for _, entry := range entries {
		changed[entry.Name()] = !strings.HasPrefix(entry.Name(), ".")
	}
	f.mu.Lock()
	for name := range f.known {
		changed[name] = true
	}
	f.mu.Unlock()
	for name, stored := range changed {
		if stored {
			if err := f.put(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmount empties the folder without telling the cluster.
func (f *folderSync) unmount() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unmounted = true
	f.empty()
}

// empty leaves the folder as a mount point without a mount is.
func (f *folderSync) empty() {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		_ = os.RemoveAll(filepath.Join(f.folder, entry.Name())) // the next mount tries again
	}
}

// load brings every file of the cluster into the folder.
func (f *folderSync) load() (revision int64, err error) {
	var files Names
	if err := f.meta.Call("Files.List", struct{}{}, &files); err != nil {
		return 0, fmt.Errorf("list files: %w", err)
	}
	for _, name := range files.Names {
		if err := f.fetch(name); err != nil {
			return 0, err
		}
	}
	return files.Revision, nil
}

// pull brings the changes of the cluster into the folder.
func (f *folderSync) pull(revision int64) error {
	for {
		var changed Names
		if err := f.meta.Call("Files.Changes", revision, &changed); err != nil {
			return fmt.Errorf("wait for changes: %w", err)
		}
		if changed.Lost {
			var err error
			if changed.Revision, err = f.load(); err != nil {
				return err
			}
		}
		for _, name := range changed.Names {
			if err := f.fetch(name); err != nil {
				return err
			}
		}
		revision = changed.Revision
	}
}

// fetch makes a file in the folder what it is in the cluster. One that cannot
// be read is logged and left away: reading it is an I/O error.
func (f *folderSync) fetch(name string) error {
	var file File
	err := f.meta.Call("Files.Read", name, &file)
	if errors.Is(err, rpc.ErrShutdown) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read %s: %w", name, err)
	}
	path := filepath.Join(f.folder, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unmounted {
		return nil
	}
	if err != nil || file.Data == nil {
		if err != nil {
			f.logger.Error("read", "file", name, "error", err)
		}
		delete(f.known, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	sum := sha256.Sum256(file.Data)
	if f.known[name] == sum {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
	}
	f.known[name] = sum
	scratch := filepath.Join(f.scratch, name)
	return errors.Join(os.WriteFile(scratch, file.Data, 0o644), os.Rename(scratch, path))
}

// push brings the changes of the folder into the cluster.
func (f *folderSync) push(watch *watch) error {
	for {
		changed, err := watch.next()
		if err != nil {
			return fmt.Errorf("watch the folder: %w", err)
		}
		for _, name := range changed {
			if err := f.put(name); err != nil {
				return err
			}
		}
	}
}

func (f *folderSync) put(name string) error {
	f.mu.Lock()
	known, existed := f.known[name]
	data, err := os.ReadFile(filepath.Join(f.folder, name))
	unmounted := f.unmounted
	f.mu.Unlock()
	sum := sha256.Sum256(data)
	switch {
	case unmounted:
		return nil
	case errors.Is(err, os.ErrNotExist) && !existed, err == nil && existed && sum == known:
		return nil
	case errors.Is(err, os.ErrNotExist):
		err = f.meta.Call("Files.Remove", name, &struct{}{})
	case err != nil:
		f.logger.Error("this stand-in stores only plain files", "file", name, "error", err)
		return nil
	default:
		err = f.meta.Call("Files.Write", File{name, data}, &struct{}{})
	}
	if errors.Is(err, rpc.ErrShutdown) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("store %s: %w", name, err)
	}
	if err != nil {
		// A write that fails must not look as if it had been stored.
		f.logger.Error("write", "file", name, "error", err)
	}
	return f.fetch(name)
}

// watch tells of files that were closed after writing, moved, or removed.
type watch struct{ file *os.File }

func newWatch(folder string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the folder: %w", err)
	}
	w := &watch{os.NewFile(uintptr(fd), "inotify")}
	if _, err := unix.InotifyAddWatch(fd, folder, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the folder: %w", err), w.file.Close())
	}
	return w, nil
}

// next waits for changes and names the files.
func (w *watch) next() ([]string, error) {
	buffer := make([]byte, 64<<10)
	n, err := w.file.Read(buffer)
	if err != nil {
		return nil, err
	}
	var names []string
	for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
		length := int(binary.NativeEndian.Uint32(rest[12:])) // struct inotify_event's len
		name := rest[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+length]
		if text := string(bytes.TrimRight(name, "\x00")); text != "" && !strings.HasPrefix(text, ".") {
			names = append(names, text)
		}
		rest = rest[unix.SizeofInotifyEvent+length:]
	}
	return names, nil
}

// Close ends the watch.
func (w *watch) Close() error { return w.file.Close() }
