package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// Of the distribution, the packages that nodes install are there: the library
// that the real etcfuse is linked against. Its file stands for it only, as the
// stand-in's etcfuse talks to the kernel itself.
const (
	libraryName    = "fuse3-libs"
	libraryVersion = "3.10.4"
	libraryFile    = "/usr/lib64/libfuse3.so.3"
)

// repositoryFile is the repository as dnf is told about it.
const repositoryFile = "[amazonlinux]\nname=Amazon Linux 2023 repository (stand-in)\nbaseurl=http://" + gatewayAddress + "/core\nenabled=1\ngpgcheck=0\n"

// repository is a dnf repository: its metadata and its one package, by path.
type repository map[string][]byte

func newRepository() (repository, error) {
	name, content, err := buildLibrary()
	if err != nil {
		return nil, fmt.Errorf("build package %s: %w", libraryName, err)
	}
	primary, err := xml.Marshal(primaryXML{
		Namespace: "http://linux.duke.edu/metadata/common", RPMNamespace: "http://linux.duke.edu/metadata/rpm", Count: 1,
		Package: packageXML{
			Type: "rpm", Name: libraryName, Architecture: "x86_64",
			Version:  versionXML{"0", libraryVersion, "1"},
			Checksum: checksumXML{Type: "sha256", PackageID: "YES", Value: sum(content)},
			Summary:  "Stand-in of " + libraryName, Size: sizeXML{len(content)}, Location: hrefXML{name},
			Provides: []entryXML{{libraryName, "EQ", "0", libraryVersion, "1"}}, Files: []string{libraryFile},
		},
	})
	if err != nil {
		return nil, err
	}
	index, err := xml.Marshal(indexXML{
		Namespace: "http://linux.duke.edu/metadata/repo", Revision: time.Now().Unix(),
		Data: dataXML{Type: "primary", Checksum: checksumXML{Type: "sha256", Value: sum(primary)}, Location: hrefXML{"repodata/primary.xml"}},
	})
	if err != nil {
		return nil, err
	}
	return repository{"/core/repodata/repomd.xml": index, "/core/repodata/primary.xml": primary, "/core/" + name: content}, nil
}

func sum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// ServeHTTP serves the repository's files.
func (r repository) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	content, ok := r[request.URL.Path]
	if !ok {
		http.NotFound(w, request)
		return
	}
	http.ServeContent(w, request, filepath.Base(request.URL.Path), time.Time{}, bytes.NewReader(content))
}

// The metadata's format: https://github.com/openSUSE/libzypp/tree/master/zypp/parser/yum/schema
type (
	indexXML struct {
		XMLName   xml.Name `xml:"repomd"`
		Namespace string   `xml:"xmlns,attr"`
		Revision  int64    `xml:"revision"`
		Data      dataXML  `xml:"data"`
	}
	dataXML struct {
		Type     string      `xml:"type,attr"`
		Checksum checksumXML `xml:"checksum"`
		Location hrefXML     `xml:"location"`
	}
	primaryXML struct {
		XMLName      xml.Name   `xml:"metadata"`
		Namespace    string     `xml:"xmlns,attr"`
		RPMNamespace string     `xml:"xmlns:rpm,attr"`
		Count        int        `xml:"packages,attr"`
		Package      packageXML `xml:"package"`
	}
	packageXML struct {
		Type         string      `xml:"type,attr"`
		Name         string      `xml:"name"`
		Architecture string      `xml:"arch"`
		Version      versionXML  `xml:"version"`
		Checksum     checksumXML `xml:"checksum"`
		Summary      string      `xml:"summary"`
		Size         sizeXML     `xml:"size"`
		Location     hrefXML     `xml:"location"`
		Provides     []entryXML  `xml:"format>rpm:provides>rpm:entry"`
		Files        []string    `xml:"format>file"`
	}
	versionXML struct {
		Epoch   string `xml:"epoch,attr"`
		Version string `xml:"ver,attr"`
		Release string `xml:"rel,attr"`
	}
	checksumXML struct {
		Type      string `xml:"type,attr"`
		PackageID string `xml:"pkgid,attr,omitempty"`
		Value     string `xml:",chardata"`
	}
	sizeXML struct {
		Package int `xml:"package,attr"`
	}
	hrefXML struct {
		Href string `xml:"href,attr"`
	}
	entryXML struct {
		Name    string `xml:"name,attr"`
		Flags   string `xml:"flags,attr"`
		Epoch   string `xml:"epoch,attr"`
		Version string `xml:"ver,attr"`
		Release string `xml:"rel,attr"`
	}
)

// buildLibrary builds the package.
func buildLibrary() (name string, content []byte, err error) {
	folder, err := os.MkdirTemp("", "etcfs-package-")
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	source := filepath.Join(folder, filepath.Base(libraryFile))
	if err := os.WriteFile(source, []byte("Stands for "+libraryFile+".\n"), 0o600); err != nil {
		return "", nil, err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: libraryName, Arch: "amd64", Platform: "linux", Version: libraryVersion, Release: "1",
		Maintainer: "EtcFS", Description: "Stand-in of " + libraryName + ".", License: "LGPL-2.1", DisableGlobbing: true,
		Overridables: nfpm.Overridables{Contents: files.Contents{
			{Source: source, Destination: libraryFile, FileInfo: &files.ContentFileInfo{Mode: 0o755, Owner: "root", Group: "root"}},
		}},
	})
	info.RPM.BuildHost = "localhost"
	if err := nfpm.PrepareForPackager(info, "rpm"); err != nil {
		return "", nil, err
	}
	var built bytes.Buffer
	err = rpm.DefaultRPM.Package(info, &built)
	return rpm.DefaultRPM.ConventionalFileName(info), built.Bytes(), err
}
