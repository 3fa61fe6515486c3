// Package artifact brings the two programs that a cluster runs on: the node's
// bootstrap binary and the package of the graceful-leave function.
//
// A plugin built with the tag "release" carries both inside (see embedded.go);
// any other build compiles them from the module's source with the Go toolchain,
// once per source and toolchain. Either way they end up as files in the user's
// cache folder, since Pulumi uploads files, and are named by what is in them;
// those of earlier versions are removed.
// The same source and the same toolchain give the same bytes on every machine.
package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
)

// Names of the two files in a bundle.
const (
	BootstrapName = "etcfs-bootstrap"
	FunctionName  = "graceful-leave.zip"
)

// Set is the two programs, ready to upload.
type Set struct {
	// Bootstrap is the node's binary: static, linux/amd64.
	Bootstrap File
	// Function is the deployment package of the graceful-leave function: a zip
	// with one executable, "bootstrap".
	Function File
}

// File is a file and what is in it.
type File struct {
	Path string
	// SHA256 is the checksum of the content, in lower-case hexadecimal.
	SHA256 string
}

// Bundle makes a Set.
type Bundle struct {
	load func(ctx context.Context, cache string, progress func(string)) (Set, error)
}

// Carried is the bundle that this build carries: the embedded programs in a
// release, and otherwise those compiled from source, the root of this module
// as the plugin's main package embeds it.
func Carried(source fs.FS) Bundle {
	if embedded != nil {
		return unpacked(embedded)
	}
	return compiled(source)
}

// Installed is the bundle of a program that uses the component as a library:
// compiled from the module that the Go toolchain resolves for that program.
func Installed() Bundle {
	return Bundle{func(ctx context.Context, cache string, progress func(string)) (Set, error) {
		folder, err := moduleFolder(ctx)
		if err != nil {
			return Set{}, err
		}
		return compiled(os.DirFS(folder)).load(ctx, cache, progress)
	}}
}

// Folder is a bundle of the files that Compile left in a folder.
func Folder(path string) Bundle {
	return Bundle{func(context.Context, string, func(string)) (Set, error) { return inFolder(path) }}
}

// Load returns the programs, making them first if the cache does not have
// them. What takes long is announced to progress. It may be called at the same
// time by any number of processes.
func (b Bundle) Load(ctx context.Context, progress func(string)) (Set, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Set{}, fmt.Errorf("find the user's cache folder: %w", err)
	}
	return b.load(ctx, filepath.Join(cache, "pulumi-etcfs"), progress)
}

// inFolder measures the files in a folder.
func inFolder(folder string) (Set, error) {
	var set Set
	for name, file := range map[string]*File{BootstrapName: &set.Bootstrap, FunctionName: &set.Function} {
		path := filepath.Join(folder, name)
		sum, err := checksum(path)
		if err != nil {
			return Set{}, err
		}
		*file = File{path, sum}
	}
	return set, nil
}

// unpacked writes the files of a folder into the cache, below a name made of
// their checksums.
func unpacked(files fs.FS) Bundle {
	return Bundle{func(_ context.Context, cache string, progress func(string)) (Set, error) {
		bootstrap, err := fs.ReadFile(files, BootstrapName)
		if err != nil {
			return Set{}, fmt.Errorf("read the embedded bootstrap: %w", err)
		}
		function, err := fs.ReadFile(files, FunctionName)
		if err != nil {
			return Set{}, fmt.Errorf("read the embedded function: %w", err)
		}
		sums := [2][sha256.Size]byte{sha256.Sum256(bootstrap), sha256.Sum256(function)}
		folder := filepath.Join(cache, fmt.Sprintf("release-%x", sha256.Sum256(slices.Concat(sums[0][:], sums[1][:]))))
		set := Set{
			Bootstrap: File{filepath.Join(folder, BootstrapName), hex.EncodeToString(sums[0][:])},
			Function:  File{filepath.Join(folder, FunctionName), hex.EncodeToString(sums[1][:])},
		}
		known := use(folder) == nil
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return Set{}, fmt.Errorf("create the cache folder: %w", err)
		}
		if err := errors.Join(keep(set.Bootstrap.Path, bootstrap), keep(set.Function.Path, function)); err != nil {
			return Set{}, err
		}
		if !known {
			tidy(cache, progress)
		}
		return set, nil
	}}
}

// keep leaves data in a file, unless it is there already. A file that was
// damaged is written again.
func keep(path string, data []byte) error {
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, data) {
		return nil
	}
	if err := renameio.WriteFile(path, data, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", filepath.Base(path), err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
