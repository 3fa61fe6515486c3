package etcfs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// ExitFenced is the exit status of etcfuse-meta after it fenced itself.
const ExitFenced = 77

var errFenced = errors.New("self-fenced")

// AddressVariable names the environment variable that holds a process
// machine's own address, which stands for every address there.
const AddressVariable = "STANDIN_ADDRESS"

// Meta runs etcfuse-meta of the release that the first argument names, and
// returns its exit status.
func Meta(args []string, stdout, stderr io.Writer) int {
	release, args, err := takeRelease(args)
	if err != nil {
		fmt.Fprintln(stderr, "etcfuse-meta:", err)
		return 2
	}
	var c metaConfig
	err = c.parse(release, args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if c.version {
		fmt.Fprintln(stdout, "etcfuse-meta", release.Version)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	level := slog.LevelInfo
	if c.logLevel == 0 {
		level = slog.LevelError
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	switch err := runMeta(ctx, c, logger); {
	case errors.Is(err, errFenced):
		return ExitFenced
	case err != nil:
		logger.Error("etcfuse-meta failed", "error", err)
		return 1
	}
	return 0
}

func takeRelease(args []string) (Release, []string, error) {
	if len(args) == 0 {
		return Release{}, nil, errors.New("the first argument names the release")
	}
	release, err := ParseRelease(args[0])
	return release, args[1:], err
}

func runMeta(ctx context.Context, c metaConfig, logger *slog.Logger) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	device, err := c.open()
	if err != nil {
		return err
	}
	if device != nil {
		defer device.close()
	} else {
		logger.Warn("no block device: every write will fail")
	}
	etcd, err := connect(c.endpoints)
	if err != nil {
		return err
	}
	defer etcd.Close()
	logger.Info("etcfuse-meta starting", "node", c.nodeID, "cluster", c.clusterName, "endpoints", c.endpoints, "lease", c.leaseTTL)

	s := &store{etcd: etcd, device: device, nodeID: c.nodeID, readOnly: c.readOnly}
	starting, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := s.startGeneration(starting); err != nil {
		return err
	}
	m := &membership{etcd: etcd, config: c, logger: logger}
	if err := m.register(starting); err != nil {
		return err
	}
	ctx, cancelAll := context.WithCancelCause(ctx)
	defer cancelAll(nil)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancelAll(nil) // before the wait above
	group.Go(func() { m.keep(ctx, cancelAll) })
	if c.ebsVolumeID != "" {
		f, err := newFencer(ctx, etcd, c, logger)
		if err != nil {
			return err
		}
		group.Go(func() { f.run(ctx) })
	}
	if c.metricsAddr != "" {
		server, err := serveMetrics(c.metricsAddr, m)
		if err != nil {
			return err
		}
		defer server.Close()
	}
	listener, err := rootfs.ListenUnix(rootfs.Path(rootfs.Root(), c.listen))
	if err != nil {
		return err
	}
	defer listener.Close()
	service := rpc.NewServer()
	if err := service.RegisterName("Files", &Files{ctx: ctx, store: s}); err != nil {
		return fmt.Errorf("serve files: %w", err)
	}
	go service.Accept(listener)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		logger.Warn("cannot notify systemd", "error", err)
	}
	logger.Info("serving", "socket", c.listen)
	<-ctx.Done()
	if cause := context.Cause(ctx); errors.Is(cause, errFenced) {
		logger.Error("SELF-FENCED: lease expired beyond grace period, shutting down", "node", c.nodeID)
		return cause
	}
	m.leave()
	logger.Info("etcfuse-meta stopped")
	return nil
}

func connect(endpoints string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(endpoints, ","), DialTimeout: 3 * time.Second,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second, PermitWithoutStream: true,
		AutoSyncInterval: 30 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return client, nil
}

// membership is this node's key in etcd.
type membership struct {
	etcd   *clientv3.Client
	config metaConfig
	logger *slog.Logger

	mu        sync.Mutex
	lease     clientv3.LeaseID
	lastAlive time.Time
}

func (m *membership) register(ctx context.Context) error {
	lease, err := m.etcd.Grant(ctx, int64(m.config.leaseTTL.Seconds()))
	if err != nil {
		return fmt.Errorf("membership: grant lease: %w", err)
	}
	value, err := json.Marshal(Member{m.config.nodeID, m.config.clusterName, time.Now().UTC().Format(time.RFC3339Nano), m.config.instanceID})
	if err != nil {
		return err
	}
	_, err = m.etcd.Txn(ctx).Then(
		clientv3.OpPut(MembershipPrefix+m.config.nodeID, string(value), clientv3.WithLease(lease.ID)),
		clientv3.OpDelete(departedPrefix+m.config.nodeID),
		clientv3.OpDelete(claimPrefix+m.config.nodeID),
	).Commit()
	if err != nil {
		return fmt.Errorf("membership: put key: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease, m.lastAlive = lease.ID, time.Now()
	return nil
}

// keep keeps the key alive, and fences the node when it could not for twice
// the lease.
func (m *membership) keep(ctx context.Context, stop context.CancelCauseFunc) {
	go func() {
		for ctx.Err() == nil {
			m.renew(ctx)
		}
	}()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if dead := time.Since(m.alive()); dead > 2*m.config.leaseTTL {
				stop(errFenced)
				return
			}
		}
	}
}

// renew keeps the present lease alive until it is lost, then takes a new one.
func (m *membership) renew(ctx context.Context) {
	m.mu.Lock()
	lease := m.lease
	m.mu.Unlock()
	answers, err := m.etcd.KeepAlive(ctx, lease)
	if err == nil {
		for range answers {
			m.mu.Lock()
			m.lastAlive = time.Now()
			m.mu.Unlock()
		}
	}
	if ctx.Err() != nil {
		return
	}
	m.logger.Warn("membership lease lost, registering again", "error", err)
	tries, cancel := context.WithTimeout(ctx, m.config.leaseTTL)
	defer cancel()
	if err := m.register(tries); err != nil && ctx.Err() == nil {
		m.logger.Error("membership registration failed", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

func (m *membership) alive() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastAlive
}

// leave says that the departure is intended, so that nobody fences the node,
// and gives up the lease.
func (m *membership) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	m.mu.Lock()
	lease := m.lease
	m.mu.Unlock()
	_, err := m.etcd.Put(ctx, departedPrefix+m.config.nodeID, time.Now().UTC().Format(time.RFC3339))
	if err == nil {
		_, err = m.etcd.Revoke(ctx, lease)
	}
	if err != nil {
		m.logger.Warn("could not leave in order, peers will fence this node", "error", err)
	}
}

// serveMetrics serves /metrics, /healthz and /readyz. All addresses means the
// machine's own, as several machines share the host's network.
func serveMetrics(address string, m *membership) (*http.Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("metrics-addr: %w", err)
	}
	if own := os.Getenv(AddressVariable); own != "" && (host == "" || host == "0.0.0.0") {
		host = own
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	alive := func() bool { return time.Since(m.alive()) <= m.config.leaseTTL }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !alive() {
			http.Error(w, "the membership lease is not live", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		value := 0
		if alive() {
			value = 1
		}
		fmt.Fprintf(w, "# HELP etcfs_membership_alive Whether this node's membership lease is live.\n# TYPE etcfs_membership_alive gauge\netcfs_membership_alive{node=%q} %d\n", m.config.nodeID, value)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener) //nolint:errcheck // always ErrServerClosed
	return server, nil
}

// Files is what etcfuse asks of etcfuse-meta over the socket, by net/rpc.
type Files struct {
	ctx   context.Context //nolint:containedctx // net/rpc passes none
	store *store
}

// File is a file and its content.
type File struct {
	Name string
	Data []byte
}

// Names lists files at a revision of the cluster.
type Names struct {
	Names    []string
	Revision int64
	// Lost says that changes were missed: list anew.
	Lost bool
}

func (f *Files) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, requestTimeout)
}

// Write stores a file.
func (f *Files) Write(file File, _ *struct{}) error {
	ctx, cancel := f.bound()
	defer cancel()
	return f.store.write(ctx, file.Name, file.Data)
}

// Remove removes a file.
func (f *Files) Remove(name string, _ *struct{}) error {
	ctx, cancel := f.bound()
	defer cancel()
	return f.store.remove(ctx, name)
}

// Read returns a file, with nil Data when there is none of that name.
func (f *Files) Read(name string, file *File) error {
	ctx, cancel := f.bound()
	defer cancel()
	data, err := f.store.read(ctx, name)
	if errors.Is(err, syscall.ENOENT) {
		*file = File{Name: name}
		return nil
	}
	if data == nil {
		data = []byte{}
	}
	*file = File{name, data}
	return err
}

// List names every file.
func (f *Files) List(_ struct{}, names *Names) (err error) {
	ctx, cancel := f.bound()
	defer cancel()
	names.Names, names.Revision, err = f.store.list(ctx)
	return err
}

// Changes waits for files that changed after a revision.
func (f *Files) Changes(after int64, names *Names) (err error) {
	names.Names, names.Revision, err = f.store.changes(f.ctx, after)
	if errors.Is(err, errCompacted) {
		names.Lost = true
		return nil
	}
	return err
}
