package release

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
)

// pkg is one package of a release of EtcFS.
type pkg struct {
	name, version string
	requires      []string
	files         []content
	postInstall   string
}

type content struct {
	path, text string
	mode       os.FileMode
}

// packages are those of a release, with the names, files and units of the real
// ones.
func packages(release etcfs.Release) []pkg {
	program := func(name string) content {
		return content{"/usr/local/bin/" + name, fmt.Sprintf("#!/bin/sh\nexec %s %s %s \"$@\"\n", standin.Name, name, release), 0o755}
	}
	unit := func(name, text string) content {
		return content{"/usr/lib/systemd/system/" + name, text, 0o644}
	}
	return []pkg{
		{
			name: "etcfuse-meta", version: release.Version, postInstall: postInstall,
			files: []content{program("etcfuse-meta"), unit("etcfuse-meta.service", metaUnit)},
		},
		{
			name: "etcfuse", version: release.Version, postInstall: postInstall, requires: []string{"fuse3-libs"},
			files: []content{program("etcfuse"), unit("etcfuse.service", fuseUnit)},
		},
		{name: "etcfsctl", version: release.Version, files: []content{program("etcfsctl")}},
	}
}

// postInstall is the scriptlet of the packages with units.
const postInstall = `set -e
mkdir -p "${ETCFS_ROOT:-}/etc/etcfs"
if [ -d "${ETCFS_ROOT:-}/run/systemd/system" ]; then
	systemctl daemon-reload || true
fi
`

const metaUnit = `[Unit]
Description=EtcFS Metadata Backend
After=network-online.target etcd.service
Wants=network-online.target etcd.service

[Service]
Type=simple
ExecStart=/usr/local/bin/etcfuse-meta
Restart=on-failure
RestartSec=5
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
`

const fuseUnit = `[Unit]
Description=EtcFS FUSE Frontend
After=etcfuse-meta.service
Requires=etcfuse-meta.service

[Service]
Type=simple
ExecStart=/usr/local/bin/etcfuse --socket=/run/etcfuse/etcfuse.sock /mnt/etcfuse
Restart=on-failure
RestartSec=5
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
`

// built is the time that packages carry, so that building one twice gives the
// same bytes.
var built = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// build writes the package and returns its file's name.
func (p pkg) build(w io.Writer) (string, error) {
	folder, err := os.MkdirTemp("", "etcfs-package-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	info := &nfpm.Info{
		Name: p.name, Arch: "amd64", Platform: "linux", Version: p.version, Release: "1", MTime: built,
		Maintainer: "EtcFS", Description: "Stand-in of " + p.name + ".", License: "Apache-2.0", DisableGlobbing: true,
		Overridables: nfpm.Overridables{Depends: p.requires},
	}
	info.RPM.BuildHost = "localhost"
	source := func(name, text string) (string, error) {
		path := filepath.Join(folder, filepath.Base(name))
		return path, os.WriteFile(path, []byte(text), 0o600)
	}
	for _, c := range p.files {
		path, err := source(c.path, c.text)
		if err != nil {
			return "", err
		}
		info.Contents = append(info.Contents, &files.Content{Source: path, Destination: c.path, FileInfo: &files.ContentFileInfo{Mode: c.mode, Owner: "root", Group: "root", MTime: built}})
	}
	if p.postInstall != "" {
		if info.Scripts.PostInstall, err = source("postinstall.sh", p.postInstall); err != nil {
			return "", err
		}
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, "rpm"); err != nil {
		return "", err
	}
	return rpm.DefaultRPM.ConventionalFileName(info), rpm.DefaultRPM.Package(info, w)
}
