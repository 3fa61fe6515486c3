package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// Units is the service manager as far as etcd needs it.
type Units interface {
	Installed(...systemd.File) (bool, error)
	Install(context.Context, ...systemd.File) error
	StartNoBlock(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	State(ctx context.Context, unit string) (systemd.State, error)
}

var _ Units = (*systemd.Manager)(nil)

const etcdUnit = "etcd.service"

// etcdFlags are the flags that differ between forming and joining. etcd ignores
// them once it has data.
type etcdFlags struct{ state, initialCluster, token string }

// startEtcd writes etcd's unit and starts it, again if it runs with other
// flags. It does not wait: etcd reports readiness only after it has reached the
// others, which may need this node's promotion.
func (b *Bootstrap) startEtcd(ctx context.Context, flags etcdFlags) error {
	unit := systemd.Unit(etcdUnit, b.etcdUnitFile(flags))
	installed, err := b.Units.Installed(unit)
	if err != nil {
		return err
	}
	if !installed {
		if err := b.stopEtcd(ctx); err != nil {
			return err
		}
		if err := b.Units.Install(ctx, unit); err != nil {
			return err
		}
	}
	if err := b.Units.StartNoBlock(ctx, etcdUnit); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return nil
}

// stopEtcd stops etcd; a unit that systemd has never heard of is stopped.
func (b *Bootstrap) stopEtcd(ctx context.Context) error {
	state, err := b.Units.State(ctx, etcdUnit)
	if err != nil {
		return err
	}
	if state.Active == "inactive" {
		return nil
	}
	if err := b.Units.Stop(ctx, etcdUnit); err != nil {
		return fmt.Errorf("stop etcd: %w", err)
	}
	return nil
}

func (b *Bootstrap) etcdUnitFile(flags etcdFlags) string {
	ip := b.Node.PrivateIP
	arguments := []string{
		"/usr/local/bin/etcd",
		"--name=" + b.Node.ID(b.Settings.ClusterName),
		"--data-dir=" + settings.EtcdDataDir,
		"--wal-dir=" + settings.EtcdWALDir,
		"--listen-peer-urls=" + etcd.PeerURL(ip),
		"--initial-advertise-peer-urls=" + etcd.PeerURL(ip),
		"--listen-client-urls=" + etcd.ClientURL(ip),
		"--advertise-client-urls=" + etcd.ClientURL(ip),
		"--initial-cluster-state=" + flags.state,
		"--initial-cluster=" + flags.initialCluster,
		"--initial-cluster-token=" + flags.token,
		"--auto-compaction-mode=revision",
		"--auto-compaction-retention=100000",
		fmt.Sprintf("--quota-backend-bytes=%d", 8<<30),
	}
	// Not enabled: after a reboot the bootstrap decides whether etcd may start.
	return `[Unit]
Description=etcd of the EtcFS cluster ` + b.Settings.ClusterName + `
Documentation=https://etcd.io/docs/
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=` + strings.Join(arguments, " \\\n  ") + `
Restart=on-failure
RestartSec=1
TimeoutStartSec=infinity
LimitNOFILE=65536
`
}

// etcdFailure adds what systemd says of a unit that has failed to the reason
// why etcd does not answer.
func (b *Bootstrap) etcdFailure(ctx context.Context, err error) error {
	state, stateErr := b.Units.State(ctx, etcdUnit)
	if stateErr != nil {
		return fmt.Errorf("%w (%w)", err, stateErr)
	}
	return fmt.Errorf("%w (%s is %s)", err, etcdUnit, state)
}

// hasEtcdData says whether etcd has ever started on this disk: with a
// write-ahead log it comes back as the member it was and ignores its initial
// flags.
func (b *Bootstrap) hasEtcdData() (bool, error) {
	logs, err := filepath.Glob(b.path(settings.EtcdWALDir + "/*.wal"))
	if err != nil {
		return false, fmt.Errorf("look for etcd's write-ahead log: %w", err)
	}
	return len(logs) > 0, nil
}

// clusterFile names the etcd cluster that the data on this disk belongs to, from
// before etcd first starts on it. What this node's etcd serves is told by etcd,
// but only once it is up, and whether it is to be kept has to be known before.
const clusterFile = "/etc/etcfs/etcd-cluster"

// forming is in the place of the cluster's ID until the seed item names the
// cluster that this node forms. The data is not trusted until then: another node
// may have taken the claim over.
const forming = "forming"

// belong writes down whose the data is that etcd is about to have, or has. It
// returns once that is on the disk, so that no loss of power leaves the data
// without it.
func (b *Bootstrap) belong(cluster string) error {
	if err := b.writeFile(clusterFile, cluster, 0o644); err != nil {
		return err
	}
	if err := b.syncFolderOf(clusterFile); err != nil {
		return fmt.Errorf("write %s: %w", clusterFile, err)
	}
	return nil
}

// syncFolderOf has what was made or removed at the path survive a loss of power.
func (b *Bootstrap) syncFolderOf(path string) error {
	folder, err := os.Open(b.path(filepath.Dir(path)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// belongs says whose data etcd has on this disk, "" while nothing is written
// down.
func (b *Bootstrap) belongs() (cluster string, err error) {
	content, err := os.ReadFile(b.path(clusterFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read whose etcd data this node has: %w", err)
	}
	return string(content), nil
}

// wipe stops etcd and removes its data, after the cluster has let go of this
// node's member or where there never was one. The write-ahead log goes after the
// rest: as long as it is there, whatever a crash leaves is known to be old. It
// returns once that is on the disk: a log that a loss of power brings back beside
// a new member is taken for that one's, which holds everybody up.
func (b *Bootstrap) wipe(ctx context.Context) error {
	if err := b.stopEtcd(ctx); err != nil {
		return err
	}
	for _, path := range []string{settings.EtcdDataDir, settings.EtcdWALDir, clusterFile} {
		if err := errors.Join(os.RemoveAll(b.path(path)), b.syncFolderOf(path)); err != nil {
			return fmt.Errorf("remove etcd's data: %w", err)
		}
	}
	return nil
}
