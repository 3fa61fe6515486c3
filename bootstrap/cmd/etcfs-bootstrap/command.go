package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// program is what every command is given.
type program struct {
	environ        []string
	root           string
	stdout, stderr io.Writer
}

// execute runs the command line and returns the exit status.
func execute(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	p := &program{environ: environ, root: lookup(environ, settings.RootVariable), stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:   "etcfs-bootstrap",
		Short: "Make this EC2 instance a node of an EtcFS cluster",
		Long: "etcfs-bootstrap makes this EC2 instance a node of an EtcFS cluster, and brings it\n" +
			"back after a reboot. Its settings are ETCFS_* environment variables; those of the\n" +
			"first boot are kept in " + settings.EnvironmentFile + " for later ones.\n\n" + exitHelp,
		Args:          usage(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		CompletionOptions: cobra.CompletionOptions{
			DisableDefaultCmd: true,
		},
	}
	root.PersistentFlags().StringVar(&p.root, "root", p.root,
		"folder that prefixes every path read or written (default $"+settings.RootVariable+")")
	root.AddCommand(p.runCommand(), p.phaseCommand(), p.attachCommand(), p.removeMemberCommand(), p.statusCommand(), p.versionCommand()) //nolint:contextcheck // cobra carries it to the commands
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })

	err := root.ExecuteContext(ctx)
	if err != nil && !isSilent(err) {
		fmt.Fprintf(stderr, "etcfs-bootstrap: %v\n", err)
	}
	return exitStatus(err)
}

func (p *program) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Boot the node: every phase in order, as far as it is not done",
		Long: "Boots the node. It is safe to run again at any point: after a crash, after a\n" +
			"reboot, or by hand on a node that works.\n\nThe phases, in order: " +
			strings.Join(bootstrap.Phases(), ", ") + ".\n\n" + exitHelp,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.boot(cmd.Context(), func(ctx context.Context, b *bootstrap.Bootstrap) error {
				return b.Run(ctx)
			})
		},
	}
}

func (p *program) phaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "phase NAME",
		Short:     "Run one phase of the boot, after identify",
		Long:      "Runs one phase of the boot, after identify.\n\nThe phases: " + strings.Join(bootstrap.Phases(), ", ") + ".\n\n" + exitHelp,
		ValidArgs: bootstrap.Phases(),
		Args:      usage(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.boot(cmd.Context(), func(ctx context.Context, b *bootstrap.Bootstrap) error {
				return b.RunPhase(ctx, args[0])
			})
		},
	}
}

func (p *program) attachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "attach",
		Short: "Attach the shared volume, as etcfuse-meta needs it",
		Long: "Attaches the shared volume to this instance unless it is, and waits for its device.\n" +
			"The unit of etcfuse-meta does so before each start. Unlike the phase of that name, it\n" +
			"does not wait for a run of the bootstrap to end, which may be what starts the unit.\n\n" + exitHelp,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.prepared(cmd.Context(), func(ctx context.Context, b *bootstrap.Bootstrap, _ *slog.Logger) error {
				return b.RunPhase(ctx, bootstrap.PhaseAttach)
			})
		},
	}
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which binary this is",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			version, err := buildVersion()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, version)
			return err
		},
	}
}

// boot calls what changes the machine: with valid settings, a log file, and
// alone.
func (p *program) boot(ctx context.Context, call func(context.Context, *bootstrap.Bootstrap) error) error {
	return p.prepared(ctx, func(ctx context.Context, b *bootstrap.Bootstrap, logger *slog.Logger) error {
		unlock, err := p.lock(ctx, logger)
		if err != nil {
			return err
		}
		defer unlock()
		return call(ctx, b)
	})
}

// prepared calls with a bootstrap of valid settings that logs to the log file.
func (p *program) prepared(ctx context.Context, call func(context.Context, *bootstrap.Bootstrap, *slog.Logger) error) error {
	s, err := p.settings()
	if err != nil {
		return err
	}
	logger, closeLog := p.logger()
	defer closeLog()
	cfg, err := awsConfig(ctx, s.Region)
	if err != nil {
		return err
	}
	cfg.Logger = logging.LoggerFunc(func(_ logging.Classification, format string, args ...any) {
		logger.Warn("from the AWS SDK", "message", fmt.Sprintf(format, args...))
	})
	version, err := buildVersion()
	if err != nil {
		return err
	}
	logger.Info("etcfs-bootstrap starts", "version", version, "cluster", s.ClusterName)
	return call(ctx, bootstrap.New(s, p.root, logger, cfg), logger)
}

// settings decodes the environment, on top of what the first boot has kept.
func (p *program) settings() (settings.Settings, error) {
	kept, err := bootstrap.ReadEnvironment(p.root)
	if err != nil {
		return settings.Settings{}, err
	}
	return settings.Decode(slices.Concat(kept, p.environ))
}

// logger writes text to standard error, which is the journal's in a unit, and
// JSON lines to the log file. A file that cannot be written is no reason to do
// without the node, or to leave it unreported when it fails.
func (p *program) logger() (logger *slog.Logger, closeLog func()) {
	text := slog.NewTextHandler(p.stderr, nil)
	file, err := p.openLog()
	if err != nil {
		logger = slog.New(text)
		logger.Warn("there is no log file of this run", "error", err)
		return logger, func() {}
	}
	return slog.New(slog.NewMultiHandler(text, slog.NewJSONHandler(file, nil))), func() { _ = file.Close() }
}

func (p *program) openLog() (*os.File, error) {
	path := filepath.Join(p.root, settings.LogFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return file, nil
}

// lockFile is held while the machine is being changed.
const lockFile = "/run/etcfs-bootstrap.lock"

// lockPause is how often a lock that somebody else holds is tried.
const lockPause = 500 * time.Millisecond

// lock waits until no other bootstrap works on this machine.
func (p *program) lock(ctx context.Context, logger *slog.Logger) (unlock func(), err error) {
	path := filepath.Join(p.root, lockFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock this machine: %w", err)
	}
	lock := flock.New(path)
	locked, err := lock.TryLock()
	if err == nil && !locked {
		logger.Info("another etcfs-bootstrap works on this machine, waiting for it to end", "lock", path)
		_, err = lock.TryLockContext(ctx, lockPause)
	}
	if err != nil {
		return nil, fmt.Errorf("lock this machine: %w", err)
	}
	return func() { _ = lock.Close() }, nil
}

// awsConfig is the SDK's default configuration: the instance's role, found
// through its metadata service.
func awsConfig(ctx context.Context, region string) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(region))
	if err != nil {
		return aws.Config{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return cfg, nil
}

func lookup(environ []string, name string) string {
	for _, variable := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
	}
	return ""
}
