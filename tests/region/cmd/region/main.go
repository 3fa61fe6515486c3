// Region runs an AWS region in a box by hand: it prints the environment for
// the AWS CLI and for Pulumi, and serves until it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

func main() {
	// The nodes run this very program under the names of the stand-ins.
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	// Whatever ends the region, everything is cleaned up; that is a matter of
	// seconds, so a second Ctrl-C does not cut it short.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A reader that goes away must not just kill it: with somebody to notify, the
	// write fails instead. (To ignore the signal would be inherited by the nodes.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "region:", err)
		os.Exit(1)
	}
}

const usage = `Region runs an AWS region in a box.

It prints the environment for the AWS CLI and for Pulumi as lines for a shell,
logs what happens to standard error, and serves until it is interrupted; then it
ends every node and leaves nothing behind.

Usage: region [flags]

`

// closeLimit is how long the region may take to end its nodes.
const closeLimit = 30 * time.Second

func run(ctx context.Context, arguments []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("region", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	work := flags.String("work", "", "empty or new `folder` for everything that the region writes (default: a temporary one, removed at the end)")
	name := flags.String("region", "eu-west-1", "the region's `name`")
	tools := flags.String("tools", os.Getenv("ETCFS_TOOLS"), "`folder` of etcd and etcdctl, as printed by `make -s tools` (default: $ETCFS_TOOLS)")
	verbose := flags.Bool("v", false, "log every change of state")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *tools == "" {
		if *tools, err = installTools(ctx, stderr); err != nil {
			return fmt.Errorf("no folder of etcd and etcdctl: give --tools, or set ETCFS_TOOLS to what `make -s tools` prints: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	folder, remove, err := workFolder(*work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	r, err := region.New(ctx, region.Config{
		WorkDir: folder, Standin: self, Tools: *tools, Region: *name,
		Logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, r.Close(closing))
	}()
	if _, err := io.WriteString(stdout, environment(r)); err != nil {
		return fmt.Errorf("print the environment: %w", err)
	}
	<-ctx.Done()
	return nil
}

// environment is the region's environment as lines for a shell.
func environment(r *region.Region) string {
	var lines strings.Builder
	for _, variable := range r.Environment() {
		// The AWS CLI looks for a profile with an empty name if one is set.
		if name, value, _ := strings.Cut(variable, "="); value == "" {
			fmt.Fprintf(&lines, "unset %s\n", name)
			continue
		}
		fmt.Fprintf(&lines, "export %s\n", variable)
	}
	// Where nodes find EtcFS and etcd: the component's releasesUrl.
	fmt.Fprintf(&lines, "export RELEASES_URL=%s\n", r.ReleasesURL())
	return lines.String()
}

// installTools asks for the folder of the tools as make does, when this is run
// at the root of the repository.
func installTools(ctx context.Context, stderr io.Writer) (string, error) {
	install := exec.CommandContext(ctx, "tools/install", "stack")
	install.Stderr = stderr
	folder, err := install.Output()
	return strings.TrimSpace(string(folder)), err
}

// workFolder makes the region's folder, and tells how to remove it.
func workFolder(path string) (folder string, remove func() error, err error) {
	if path == "" {
		folder, err := os.MkdirTemp("", "etcfs-region-")
		if err != nil {
			return "", nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		return folder, func() error { return os.RemoveAll(folder) }, nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", nil, fmt.Errorf("make the work folder: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", nil, fmt.Errorf("read the work folder: %w", err)
	}
	if len(entries) > 0 {
		return "", nil, fmt.Errorf("the work folder %s is not empty", path)
	}
	return path, func() error { return nil }, nil
}
