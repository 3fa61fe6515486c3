package languages_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// language is a language whose programs need packages beside them.
type language struct {
	name string
	// needs are commands that must be there and succeed, each with what a
	// machine lacks otherwise. What they print decides what is installed, too.
	needs []need
	// install is what a user runs in the program's folder.
	install [][]string
	// packages is the folder that it leaves in the program's.
	packages string
	// path is the folder of programs in it, which an activated one has on the PATH.
	path string
}

type need struct {
	command []string
	lack    string
}

var languages = []language{
	{
		name: "nodejs",
		needs: []need{
			{[]string{"node", "--version"}, "Node.js"},
			{[]string{"npm", "--version"}, "npm"},
		},
		install:  [][]string{{"npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"}},
		packages: "node_modules",
		path:     ".bin",
	},
	{
		name: "python",
		needs: []need{
			{[]string{"python3", "-c", "import sys; print(sys.executable, sys.version)"}, "Python 3"},
			{[]string{"python3", "-c", "import ensurepip, venv"}, "Python's module venv"},
		},
		install: [][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement=requirements.txt"},
		},
		packages: "venv",
		path:     "bin",
	},
}

// installLimit is for a machine that has nothing of it in its caches.
const installLimit = 10 * time.Minute

// keep is how long packages are kept that no test uses any more.
const keep = 7 * 24 * time.Hour

// root is the root of the clone.
const root = "../.."

// program returns a folder with the language's example, ready to run, and
// skips the test where the language is not to be had. The packages are installed
// once, in the user's cache, from copies: the clone is not written to, and not
// every run waits.
func program(t *testing.T, l language) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	identity := sha256.New()
	for _, n := range l.needs {
		out, err := exec.CommandContext(ctx, n.command[0], n.command[1:]...).CombinedOutput()
		if err != nil {
			t.Skipf("this machine has no %s: %s: %v %s", n.lack, strings.Join(n.command, " "), err, out)
		}
		identity.Write(out)
	}
	example := filepath.Join("examples", l.name)
	files := map[string][]byte{}
	for _, folder := range []string{example, filepath.Join("sdk", l.name)} {
		if err := read(folder, files); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(identity, "%s %d\n%s", name, len(files[name]), files[name])
	}
	packages, err := l.installed(ctx, fmt.Sprintf("%s-%.8x", l.name, identity.Sum(nil)), files)
	if err != nil {
		t.Fatal(err)
	}

	folder := t.TempDir()
	if err := write(folder, files); err != nil {
		t.Fatal(err)
	}
	folder = filepath.Join(folder, example)
	if err := os.Symlink(packages, filepath.Join(folder, l.packages)); err != nil {
		t.Fatal(err)
	}
	return folder
}

// installed returns the folder of the packages, which it installs if they are
// not in the cache by that name.
func (l language) installed(ctx context.Context, name string, files map[string][]byte) (_ string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "pulumi-etcfs", "languages")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock := flock.New(filepath.Join(cache, l.name+".lock"))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", fmt.Errorf("wait for another installation: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := l.prune(cache, name); err != nil {
		return "", err
	}
	folder := filepath.Join(cache, name)
	program, complete := filepath.Join(folder, "examples", l.name), filepath.Join(folder, ".complete")
	if _, err := os.Stat(complete); err == nil {
		return filepath.Join(program, l.packages), os.Chtimes(folder, time.Time{}, time.Now())
	}
	if err := errors.Join(os.RemoveAll(folder), write(folder, files)); err != nil {
		return "", err
	}
	for _, arguments := range l.install {
		command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
		command.Dir = program
		if out, err := command.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(arguments, " "), err, out)
		}
	}
	return filepath.Join(program, l.packages), os.WriteFile(complete, nil, 0o644)
}

// prune removes packages of the language that have not been used for long.
func (l language) prune(cache, used string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), l.name+"-") || entry.Name() == used {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if time.Since(info.ModTime()) > keep {
			if err := os.RemoveAll(filepath.Join(cache, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// made are folders that installing by hand leaves in a clone.
var made = []string{"node_modules", "bin", "venv", "build", "__pycache__"}

// read adds the files of a folder of the clone, by their names in the clone.
func read(folder string, files map[string][]byte) error {
	return fs.WalkDir(os.DirFS(root), folder, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains(made, entry.Name()) || strings.HasSuffix(entry.Name(), ".egg-info")):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		files[name], err = os.ReadFile(filepath.Join(root, name))
		return err
	})
}

// write writes such files below another folder.
func write(folder string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			return err
		}
	}
	return nil
}
