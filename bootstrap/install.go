package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/errgroup"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/install"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// ReleasePin keeps the EtcFS release that the whole cluster runs.
type ReleasePin interface {
	// Pin writes the proposed version down for the cluster unless one is
	// written down already, and returns the one that is.
	Pin(ctx context.Context, proposed string) (string, error)
}

var _ ReleasePin = aws.SeedTable{}

// Where software is on a node.
const (
	binDir = "/usr/local/bin"
	// cacheDir keeps downloads until they are installed, also over a reboot,
	// so that one that was cut off can be resumed.
	cacheDir = "/var/cache/etcfs-bootstrap"
	// releaseFile holds the EtcFS release that is installed. It is written
	// last, so what it names is there completely.
	releaseFile = "/var/lib/etcfs-bootstrap/etcfs-release"
)

const etcdRepository = "etcd-io/etcd"

// installTimeout is enough for the few dozen megabytes over a slow link with
// interruptions.
const installTimeout = 15 * time.Minute

// installEtcd installs etcd and etcdctl from the release's archive.
func (b *Bootstrap) installEtcd() phase.Phase {
	return phase.Phase{
		Name:    PhaseInstallEtcd,
		Timeout: installTimeout,
		Done:    b.etcdInstalled,
		Run: func(ctx context.Context) error {
			release := install.Release{BaseURL: b.Settings.ReleasesURL, Repository: etcdRepository, Tag: b.Settings.EtcdVersion}
			archive := fmt.Sprintf("etcd-%s-linux-amd64.tar.gz", release.Tag)
			path, err := b.fetch(ctx, release, "SHA256SUMS", archive)
			if err != nil {
				return err
			}
			if err := install.Extract(path[0], b.path(binDir), "etcd", "etcdctl"); err != nil {
				return err
			}
			return errors.Join(b.checkEtcd(ctx), removeAll(path))
		},
	}
}

// etcdInstalled says whether both binaries are there, run, and are of the
// wanted version. Others are installed again.
func (b *Bootstrap) etcdInstalled(ctx context.Context) (bool, error) {
	return b.checkEtcd(ctx) == nil, ctx.Err()
}

// checkEtcd asks the binaries themselves for their version.
func (b *Bootstrap) checkEtcd(ctx context.Context) error {
	want := strings.TrimPrefix(b.Settings.EtcdVersion, "v")
	for _, command := range [][]string{{"etcd", "--version"}, {"etcdctl", "version"}} {
		out, err := b.ask(ctx, command[0], command[1:]...)
		if err == nil && !strings.Contains(strings.ToLower(out), command[0]+" version: "+want+"\n") {
			err = fmt.Errorf("it is not version %s", want)
		}
		if err != nil {
			return fmt.Errorf("check %s %s, which printed %q: %w",
				b.path(filepath.Join(binDir, command[0])), command[1], strings.TrimSpace(out), err)
		}
	}
	return nil
}

// ask runs an installed binary and returns what it prints, to either stream.
func (b *Bootstrap) ask(ctx context.Context, name string, args ...string) (string, error) {
	var out []byte
	err := phase.Poll(ctx, phase.Local, func(ctx context.Context) (err error) {
		out, err = exec.CommandContext(ctx, b.path(filepath.Join(binDir, name)), args...).CombinedOutput()
		// The kernel does not run a file that is open for writing. One that was
		// just written can be, by a child that a phase beside this one has
		// forked and that has not come to its exec: https://go.dev/issue/22315
		if err != nil && !errors.Is(err, syscall.ETXTBSY) {
			return phase.Permanent(err)
		}
		return err
	})
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w", name, err)
	}
	return string(out), nil
}

// etcfsPackages are the packages of an EtcFS release and the binary that each
// one brings.
var etcfsPackages = []string{"etcfuse-meta", "etcfuse", "etcfsctl"}

// installEtcFS installs the EtcFS packages.
func (b *Bootstrap) installEtcFS() phase.Phase {
	return phase.Phase{
		Name:    PhaseInstallEtcFS,
		Timeout: installTimeout,
		Done:    func(context.Context) (bool, error) { return b.etcfsInstalled() },
		Run: func(ctx context.Context) error {
			version, err := b.etcfsVersion(ctx)
			if err != nil {
				return err
			}
			b.Logger.Info("installing EtcFS", "version", version)
			release := install.Release{BaseURL: b.Settings.ReleasesURL, Repository: b.Settings.Repository, Tag: "v" + version}
			files := make([]string, len(etcfsPackages))
			for i, name := range etcfsPackages {
				files[i] = fmt.Sprintf("%s-%s-1.x86_64.rpm", name, version)
			}

			// The FUSE library comes from the distribution and the packages
			// from the release; neither waits for the other.
			var paths []string
			group, groupCtx := errgroup.WithContext(ctx)
			group.Go(func() error { return b.Download.Packages(groupCtx, "/", "fuse3-libs") })
			group.Go(func() (err error) {
				paths, err = b.fetch(groupCtx, release, "checksums.txt", files...)
				return err
			})
			if err := group.Wait(); err != nil {
				return err
			}
			for i, file := range files {
				files[i] = "./" + file
			}
			if err := b.Download.Packages(ctx, b.path(cacheDir), files...); err != nil {
				return err
			}
			if err := removeAll(paths); err != nil {
				return err
			}
			return b.writeFile(releaseFile, version+"\n", 0o644)
		},
	}
}

// etcfsInstalled says whether EtcFS is there, in the release that the settings
// name. When they ask for the latest one, a node stays with the release that it
// has: its cluster runs the same, and a reboot is no upgrade.
func (b *Bootstrap) etcfsInstalled() (bool, error) {
	content, err := os.ReadFile(b.path(releaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read which EtcFS release is installed: %w", err)
	}
	if !b.wantsLatest() && strings.TrimSpace(string(content)) != b.Settings.Version {
		return false, nil
	}
	for _, name := range etcfsPackages {
		if _, err := os.Stat(b.path(filepath.Join(binDir, name))); err != nil {
			return false, nil //nolint:nilerr // installed again, whatever it was
		}
	}
	return true, nil
}

// etcfsVersion is the release to install. The latest one is looked up by the
// first node of a cluster only, so that no two nodes run different releases.
func (b *Bootstrap) etcfsVersion(ctx context.Context) (string, error) {
	if !b.wantsLatest() {
		return b.Settings.Version, nil
	}
	latest, err := b.Download.Latest(ctx, b.Settings.ReleasesURL, b.Settings.Repository)
	if err != nil {
		return "", err
	}
	if reason := settings.CheckVersion(latest); reason != "" {
		return "", fmt.Errorf("the latest release of %s cannot be used: %s", b.Settings.Repository, reason)
	}
	var version string
	var patience aws.Patience
	err = phase.Poll(ctx, phase.Remote, func(ctx context.Context) (err error) {
		version, err = b.Release.Pin(ctx, latest)
		if err != nil && patience.Over(err) {
			return phase.Permanent(err)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("agree with the cluster on an EtcFS release: %w", err)
	}
	if reason := settings.CheckVersion(version); reason != "" {
		return "", fmt.Errorf("the release that this cluster has agreed on cannot be used: %s", reason)
	}
	return version, nil
}

func (b *Bootstrap) wantsLatest() bool {
	return b.Settings.Version == "" || b.Settings.Version == settings.LatestVersion
}

// fetch downloads files of a release at the same time, verifies them, and
// returns where they are.
func (b *Bootstrap) fetch(ctx context.Context, release install.Release, sumsFile string, files ...string) ([]string, error) {
	sums, err := b.Download.Sums(ctx, release, sumsFile)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if sums[file] == "" {
			return nil, fmt.Errorf("%s has no sum for %s, so it cannot be verified", release.URL(sumsFile), file)
		}
	}
	paths := make([]string, len(files))
	group, ctx := errgroup.WithContext(ctx)
	for i, file := range files {
		paths[i] = b.path(filepath.Join(cacheDir, file))
		group.Go(func() error { return b.Download.Fetch(ctx, release.URL(file), paths[i], sums[file]) })
	}
	return paths, group.Wait()
}

// writeFile writes a file of the node in one step, with the folders above it.
func (b *Bootstrap) writeFile(path, content string, mode fs.FileMode) error {
	path = b.path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := renameio.WriteFile(path, []byte(content), mode, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func removeAll(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what has been installed: %w", err)
		}
	}
	return nil
}
