package artifact

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// modulePath is this module, whose source the programs are compiled from.
const modulePath = "github.com/etcfs/pulumi-etcfs"

// buildEnvironment is what makes the programs the same on every machine: EC2
// and Lambda both run them on x86_64, the kernel is all they need, and no
// setting of the user's shell decides how they are built.
var buildEnvironment = []string{
	"CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1",
	"GOFLAGS=-trimpath -buildvcs=false", "GO111MODULE=on", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off",
}

// linkFlags leave the symbol table and the debug information out: the binary is
// downloaded by every node.
const linkFlags = "-s -w"

// Compile builds the two programs from the module whose root is source, and
// leaves them in the folder output. The programs of the two packages are built
// by one command each, so that a failure names its own.
func Compile(ctx context.Context, source, output string) error {
	// gRPC's tracing pages bring in html/template, which keeps every method of
	// every AWS client in the binary: three times the size.
	if err := build(ctx, source, filepath.Join(output, BootstrapName), "-tags=grpcnotrace", "./bootstrap/cmd/etcfs-bootstrap"); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(output, ".function-")
	if err != nil {
		return fmt.Errorf("create a folder to build in: %w", err)
	}
	defer os.RemoveAll(temporary)
	executable := filepath.Join(temporary, "bootstrap")
	if err := build(ctx, source, executable, "-tags=lambda.norpc", "./lambda/cmd/graceful-leave"); err != nil {
		return err
	}
	return pack(executable, filepath.Join(output, FunctionName))
}

func build(ctx context.Context, source, output string, arguments ...string) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return fmt.Errorf("locate %s: %w", filepath.Base(output), err)
	}
	command := exec.CommandContext(ctx, "go", append([]string{"build", "-ldflags=" + linkFlags, "-o", output}, arguments...)...)
	command.Dir = source
	command.Env = append(os.Environ(), buildEnvironment...)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", arguments[len(arguments)-1], err, bytes.TrimSpace(text))
	}
	return nil
}

// zipEpoch is the earliest time that a zip can hold.
var zipEpoch = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// pack makes a Lambda deployment package: a zip with one executable in its
// root. Lambda honours the mode bits.
func pack(executable, output string) error {
	in, err := os.Open(executable)
	if err != nil {
		return fmt.Errorf("open the function's binary: %w", err)
	}
	defer in.Close()
	out, err := renameio.NewPendingFile(output, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("create the function's package: %w", err)
	}
	defer out.Cleanup()

	archive := zip.NewWriter(out)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: zipEpoch}
	header.SetMode(0o755)
	entry, err := archive.CreateHeader(header)
	if err != nil {
		return fmt.Errorf("add the function's binary to its package: %w", err)
	}
	if _, err := io.Copy(entry, in); err != nil {
		return fmt.Errorf("add the function's binary to its package: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("finish the function's package: %w", err)
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("finish the function's package: %w", err)
	}
	return nil
}

// compiled builds the programs once per source and toolchain.
func compiled(source fs.FS) Bundle {
	return Bundle{func(ctx context.Context, cache string, progress func(string)) (Set, error) {
		files, err := sourceFiles(source)
		if err != nil {
			return Set{}, err
		}
		if err := os.MkdirAll(cache, 0o755); err != nil {
			return Set{}, fmt.Errorf("create the cache folder: %w", err)
		}
		toolchain, err := goVersion(ctx, cache)
		if err != nil {
			return Set{}, err
		}
		folder := filepath.Join(cache, "source-"+fingerprint(files, toolchain))
		// Two clusters, or two programs, that start together compile once.
		lock := flock.New(lockOf(folder))
		if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
			return Set{}, fmt.Errorf("wait for another process that compiles: %w", err)
		}
		defer lock.Unlock()
		if use(folder) == nil {
			return inFolder(folder)
		}

		progress(fmt.Sprintf("compiling the node's programs from source with %s (once; it may take a minute)", toolchain))
		temporary, err := os.MkdirTemp(cache, ".compile-")
		if err != nil {
			return Set{}, fmt.Errorf("create a folder to compile in: %w", err)
		}
		defer os.RemoveAll(temporary)
		tree, output := filepath.Join(temporary, "source"), filepath.Join(temporary, "output")
		if err := write(files, tree); err != nil {
			return Set{}, err
		}
		if err := os.Mkdir(output, 0o755); err != nil {
			return Set{}, fmt.Errorf("create a folder to compile in: %w", err)
		}
		if err := Compile(ctx, tree, output); err != nil {
			return Set{}, err
		}
		if err := os.Rename(output, folder); err != nil {
			return Set{}, fmt.Errorf("keep what was compiled: %w", err)
		}
		tidy(cache, progress)
		return inFolder(folder)
	}}
}

// lockPoll is how often a process looks whether the one that compiles is done.
const lockPoll = 100 * time.Millisecond

type sourceFile struct {
	path    string
	content []byte
}

// sourceFiles reads what the two programs are compiled from, in the order of
// the paths. Tests are left out, so that they do not change what a node runs.
func sourceFiles(source fs.FS) ([]sourceFile, error) {
	var files []sourceFile
	for _, root := range []string{"bootstrap", "go.mod", "go.sum", "lambda"} {
		err := fs.WalkDir(source, root, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return fs.SkipDir
			case entry.IsDir() || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			content, err := fs.ReadFile(source, name)
			files = append(files, sourceFile{name, content})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the source of the node's programs: %w", err)
		}
	}
	return files, nil
}

func fingerprint(files []sourceFile, toolchain string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, toolchain, buildEnvironment, linkFlags)
	for _, file := range files {
		fmt.Fprintf(hash, "%x %s\n", sha256.Sum256(file.content), file.path)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func write(files []sourceFile, root string) error {
	for _, file := range files {
		name := filepath.Join(root, filepath.FromSlash(path.Clean(file.path)))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("unpack the source: %w", err)
		}
		if err := os.WriteFile(name, file.content, 0o644); err != nil {
			return fmt.Errorf("unpack the source: %w", err)
		}
	}
	return nil
}

// moduleFolder finds the source of this module as the program in the current
// folder requires it.
func moduleFolder(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errNoToolchain
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = errors.New(string(bytes.TrimSpace(exit.Stderr)))
		}
		return "", fmt.Errorf("find the source of the node's programs: the program's folder must be in a Go module that requires %s: %w", modulePath, err)
	}
	folder := strings.TrimSpace(string(text))
	if folder == "" { // as with a vendor folder
		return "", fmt.Errorf("find the source of the node's programs: %s is not in the module cache; run go mod download", modulePath)
	}
	return folder, nil
}

// goVersion asks for the toolchain outside of any module, of which the user's
// could choose another.
func goVersion(ctx context.Context, folder string) (string, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	command.Dir = folder
	text, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errNoToolchain
	}
	if err != nil {
		return "", fmt.Errorf("ask the Go toolchain for its version: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

var errNoToolchain = errors.New("compile the node's programs: there is no go command on the PATH; install Go, or use a release of the plugin, which brings them compiled")
