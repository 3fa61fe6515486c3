package languages_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGoExampleHasAllSums: the Go language host lists all modules of a program,
// which has the go command write down sums that building it does not need. A
// preview does not change a file that is checked in.
func TestGoExampleHasAllSums(t *testing.T) {
	t.Parallel()
	example, work := filepath.Join("..", "..", "examples", "go"), t.TempDir()
	before := map[string][]byte{}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(example, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(work, name), content, 0o600)); err != nil {
			t.Fatal(err)
		}
		before[name] = content
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-modfile="+filepath.Join(work, "go.mod"), "-m", "all")
	list.Dir = example
	if out, err := list.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range before {
		got, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
}
