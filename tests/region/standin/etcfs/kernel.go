package etcfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/rpc"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// mountKernel serves the files of the cluster as a FUSE filesystem, which is
// what etcfuse does on a machine of its own, until ctx ends.
//
// It has one folder. A file is read as a whole when it is opened, and stored as
// a whole when a descriptor that wrote to it is closed or synced.
func mountKernel(ctx context.Context, folder, socket string, logger *slog.Logger) error {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("bad mount point %s: %w", folder, errors.Join(err, syscall.ENOTDIR))
	}
	connection, err := rootfs.DialUnix(socket) // once: like the real one
	if err != nil {
		return err
	}
	meta := &metaClient{rpc: rpc.NewClient(connection), logger: logger, lost: make(chan struct{})}
	defer meta.rpc.Close()
	var never time.Duration // other nodes change files
	server, err := fs.Mount(folder, &folderNode{meta: meta}, &fs.Options{
		EntryTimeout: &never, AttrTimeout: &never, NegativeTimeout: &never,
		MountOptions: fuse.MountOptions{FsName: "etcfs", Name: "etcfuse", AllowOther: true, DirectMountStrict: true},
	})
	if err != nil {
		return fmt.Errorf("mount %s: %w", folder, err)
	}
	logger.Info("mounted", "folder", folder)
	select {
	case <-meta.lost:
		err = errors.New("etcfuse-meta does not answer any more")
	case <-ctx.Done():
	}
	if unmounting := server.Unmount(); unmounting != nil {
		return errors.Join(err, fmt.Errorf("unmount %s: %w", folder, unmounting))
	}
	logger.Info("unmounted")
	return err
}

// metaClient asks etcfuse-meta.
type metaClient struct {
	rpc    *rpc.Client
	logger *slog.Logger
	once   sync.Once
	lost   chan struct{} // closed when etcfuse-meta has gone
}

// call asks, and returns EIO for whatever goes wrong.
func (c *metaClient) call(method string, in, out any) syscall.Errno {
	err := c.rpc.Call("Files."+method, in, out)
	if err == nil {
		return 0
	}
	if errors.Is(err, rpc.ErrShutdown) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.once.Do(func() { close(c.lost) })
	}
	c.logger.Error("etcfuse-meta", "method", method, "error", err)
	return syscall.EIO
}

// read returns a file's content, or ENOENT.
func (c *metaClient) read(name string) ([]byte, syscall.Errno) {
	var file File
	if errno := c.call("Read", name, &file); errno != 0 {
		return nil, errno
	}
	if file.Data == nil {
		return nil, syscall.ENOENT
	}
	return file.Data, 0
}

// folderNode is the one folder.
type folderNode struct {
	fs.Inode
	meta *metaClient
}

var (
	_ fs.NodeLookuper  = (*folderNode)(nil)
	_ fs.NodeReaddirer = (*folderNode)(nil)
	_ fs.NodeCreater   = (*folderNode)(nil)
	_ fs.NodeUnlinker  = (*folderNode)(nil)
)

func (n *folderNode) child(ctx context.Context, name string) *fs.Inode {
	return n.NewInode(ctx, &fileNode{meta: n.meta, name: name}, fs.StableAttr{Mode: fuse.S_IFREG})
}

// Lookup finds a file.
func (n *folderNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	data, errno := n.meta.read(name)
	if errno != 0 {
		return nil, errno
	}
	out.Mode, out.Size = fileMode, uint64(len(data))
	return n.child(ctx, name), 0
}

// Readdir lists the files.
func (n *folderNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	var files Names
	if errno := n.meta.call("List", struct{}{}, &files); errno != 0 {
		return nil, errno
	}
	var entries []fuse.DirEntry
	for _, name := range files.Names {
		entries = append(entries, fuse.DirEntry{Name: name, Mode: fuse.S_IFREG})
	}
	return fs.NewListDirStream(entries), 0
}

// Create makes an empty file and opens it.
func (n *folderNode) Create(ctx context.Context, name string, _, _ uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.meta.call("Write", File{name, []byte{}}, &struct{}{}); errno != 0 {
		return nil, nil, 0, errno
	}
	out.Mode = fileMode
	return n.child(ctx, name), &handle{meta: n.meta, name: name}, fuse.FOPEN_DIRECT_IO, 0
}

// Unlink removes a file.
func (n *folderNode) Unlink(_ context.Context, name string) syscall.Errno {
	return n.meta.call("Remove", name, &struct{}{})
}

const fileMode = 0o644

// fileNode is a file.
type fileNode struct {
	fs.Inode
	meta *metaClient
	name string
}

var (
	_ fs.NodeGetattrer = (*fileNode)(nil)
	_ fs.NodeSetattrer = (*fileNode)(nil)
	_ fs.NodeOpener    = (*fileNode)(nil)
)

// Getattr tells the size, of an open file as the descriptor has it.
func (n *fileNode) Getattr(_ context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = fileMode
	if h, ok := f.(*handle); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		out.Size = uint64(len(h.data))
		return 0
	}
	data, errno := n.meta.read(n.name)
	out.Size = uint64(len(data))
	return errno
}

// Setattr sets the size, which opening with O_TRUNC does too. Other attributes
// are taken for set.
func (n *fileNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	size, ok := in.GetSize()
	if !ok {
		return n.Getattr(ctx, f, out)
	}
	h, opened := f.(*handle)
	if !opened {
		data, errno := n.meta.read(n.name)
		if errno != 0 {
			return errno
		}
		h = &handle{meta: n.meta, name: n.name, data: data}
	}
	h.mu.Lock()
	h.data = append(h.data[:min(len(h.data), int(size))], make([]byte, max(0, int(size)-len(h.data)))...)
	h.dirty = true
	h.mu.Unlock()
	if errno := h.Flush(ctx); !opened && errno != 0 {
		return errno
	}
	return n.Getattr(ctx, h, out)
}

// Open reads the file.
func (n *fileNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h := &handle{meta: n.meta, name: n.name}
	if flags&syscall.O_TRUNC != 0 {
		h.dirty = true
		return h, fuse.FOPEN_DIRECT_IO, 0
	}
	var errno syscall.Errno
	h.data, errno = n.meta.read(n.name)
	return h, fuse.FOPEN_DIRECT_IO, errno
}

// handle is an open file: its content as this descriptor has it.
type handle struct {
	meta *metaClient
	name string

	mu    sync.Mutex
	data  []byte
	dirty bool
}

var (
	_ fs.FileReader  = (*handle)(nil)
	_ fs.FileWriter  = (*handle)(nil)
	_ fs.FileFlusher = (*handle)(nil)
	_ fs.FileFsyncer = (*handle)(nil)
)

// Read reads from the content.
func (h *handle) Read(_ context.Context, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if offset >= int64(len(h.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(slices.Clone(h.data[offset:min(int64(len(h.data)), offset+int64(len(dest)))])), 0
}

// Write changes the content.
func (h *handle) Write(_ context.Context, data []byte, offset int64) (uint32, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if missing := offset + int64(len(data)) - int64(len(h.data)); missing > 0 {
		h.data = append(h.data, make([]byte, missing)...)
	}
	copy(h.data[offset:], data)
	h.dirty = true
	return uint32(len(data)), 0
}

// Flush stores the content if it was changed: the error is what close returns.
func (h *handle) Flush(context.Context) syscall.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dirty {
		return 0
	}
	data := h.data
	if data == nil {
		data = []byte{}
	}
	errno := h.meta.call("Write", File{h.name, data}, &struct{}{})
	if errno == 0 {
		h.dirty = false
	}
	return errno
}

// Fsync is Flush.
func (h *handle) Fsync(ctx context.Context, _ uint32) syscall.Errno { return h.Flush(ctx) }
