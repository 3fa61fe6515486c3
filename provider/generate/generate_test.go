package generate_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/provider/generate"
)

const root = "../.."

// The committed schema and SDKs are those that the component makes.
func TestCommittedFiles(t *testing.T) {
	t.Parallel()
	files, err := generate.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the component makes (%v): run make sdk", name, err)
		}
	}
	for _, folder := range generate.Folders {
		err := fs.WalkDir(os.DirFS(root), folder, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && leftover(entry.Name()) {
				return fs.SkipDir
			}
			if err == nil && !entry.IsDir() && files[name] == nil {
				t.Errorf("%s is made by nothing: run make sdk", name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// leftover tells folders that npm and pip leave in an SDK that they install.
func leftover(name string) bool {
	return name == "node_modules" || name == "bin" || name == "build" || strings.HasSuffix(name, ".egg-info")
}
