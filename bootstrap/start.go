package bootstrap

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// Services is the service manager as far as the EtcFS daemons need it.
type Services interface {
	Units
	Enable(ctx context.Context, unit string) error
	Enabled(ctx context.Context, unit string) (bool, error)
	Journal(ctx context.Context, unit string, lines int) ([]string, error)
}

var _ Services = (*systemd.Manager)(nil)

// start starts the two EtcFS daemons. etcfuse does not wait for the socket of
// etcfuse-meta, so this does.
func (b *Bootstrap) start() phase.Phase {
	return phase.Phase{
		Name:    PhaseStart,
		Timeout: 2 * time.Minute,
		Done: func(ctx context.Context) (bool, error) {
			for _, unit := range []string{UnitMeta, UnitFuse} {
				state, err := b.Services.State(ctx, unit)
				if err != nil || !state.Running() {
					return false, err
				}
			}
			return b.socketExists(), nil
		},
		Run: func(ctx context.Context) error {
			return b.withJournal(ctx, b.startDaemons(ctx))
		},
	}
}

func (b *Bootstrap) startDaemons(ctx context.Context) error {
	// /run starts empty at each boot.
	for _, dir := range []string{filepath.Dir(settings.SocketFile), settings.MountPoint} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil && !os.IsExist(err) {
			return fmt.Errorf("make the folders of the daemons: %w", err)
		}
	}
	meta, err := b.Services.State(ctx, UnitMeta)
	if err != nil {
		return err
	}
	if !meta.Running() {
		// One that was killed has left its socket behind, which must not be
		// taken for that of the one which starts now.
		if err := os.Remove(b.path(settings.SocketFile)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove a stale socket: %w", err)
		}
	}
	err = b.startUnit(ctx, UnitMeta, func() error {
		if !b.socketExists() {
			return fmt.Errorf("%s has not opened %s", UnitMeta, settings.SocketFile)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.startUnit(ctx, UnitFuse, func() error { return nil })
}

// startUnit starts a unit and waits until it runs and is ready.
func (b *Bootstrap) startUnit(ctx context.Context, unit string, ready func() error) error {
	if err := b.Services.StartNoBlock(ctx, unit); err != nil {
		return err
	}
	watch, err := b.watch(ctx, unit)
	if err != nil {
		return err
	}
	return phase.Poll(ctx, phase.Local, func(ctx context.Context) error {
		state, err := watch.check(ctx, unit)
		if err != nil {
			return err
		}
		if !state.Running() {
			return fmt.Errorf("%s is %s", unit, state)
		}
		return ready()
	})
}

// crashes is how often systemd may restart a daemon before it is considered to
// have failed. The units say Restart=on-failure with pauses longer than
// systemd's own limit counts, so systemd itself never gives up on them.
const crashes = 3

// watcher notices when a daemon fails while something waits for it.
type watcher struct {
	b *Bootstrap
	// restarts are the counts at the start of the wait; a daemon may have
	// crashed and recovered long before.
	restarts map[string]int
}

func (b *Bootstrap) watch(ctx context.Context, units ...string) (watcher, error) {
	w := watcher{b: b, restarts: map[string]int{}}
	for _, unit := range units {
		state, err := b.Services.State(ctx, unit)
		if err != nil {
			return watcher{}, err
		}
		w.restarts[unit] = state.Restarts
	}
	return w, nil
}

// check returns a unit's state, or an error that ends a poll when there is no
// hope for it.
func (w watcher) check(ctx context.Context, unit string) (systemd.State, error) {
	state, err := w.b.Services.State(ctx, unit)
	if err != nil {
		return state, err
	}
	if state.Failed() || state.Restarts-w.restarts[unit] >= crashes {
		return state, phase.Permanent(fmt.Errorf("%s has failed: it is %s", unit, state))
	}
	return state, nil
}

func (b *Bootstrap) socketExists() bool {
	info, err := os.Stat(b.path(settings.SocketFile))
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// journalLines is how much of each daemon's journal a failure shows.
const journalLines = 60

// withJournal logs the last lines of both daemons' journals when there is an
// error, and returns the error.
func (b *Bootstrap) withJournal(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	// The time of the phase may be over, but what happened has to be told.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, unit := range []string{UnitMeta, UnitFuse} {
		lines, journalErr := b.Services.Journal(ctx, unit, journalLines)
		if journalErr != nil {
			b.Logger.Error("no journal", "unit", unit, "error", journalErr)
		}
		for _, line := range lines {
			b.Logger.Error("journal", "unit", unit, "line", line)
		}
	}
	return err
}
