package install

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// Extract puts the named executables of a .tar.gz archive into a folder. Each
// appears at once and whole, so one that is being executed is replaced safely.
func Extract(archive, folder string, names ...string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("extract %s: %w", archive, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	missing := slices.Clone(names)
	entries := tar.NewReader(unzipped)
	for len(missing) > 0 {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("extract %s: it has no %s", archive, strings.Join(missing, ", "))
		}
		if err != nil {
			return fmt.Errorf("extract %s: %w", archive, err)
		}
		i := slices.Index(missing, path.Base(entry.Name))
		if i < 0 || entry.Typeflag != tar.TypeReg {
			continue
		}
		if err := replace(filepath.Join(folder, missing[i]), entries); err != nil {
			return fmt.Errorf("extract %s: %w", archive, err)
		}
		missing = slices.Delete(missing, i, i+1)
	}
	return nil
}

func replace(path string, content io.Reader) error {
	pending, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o755))
	if err != nil {
		return err
	}
	defer pending.Cleanup()
	if _, err := io.Copy(pending, content); err != nil {
		return err
	}
	return pending.CloseAtomicallyReplace()
}
