package phase_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// work is a phase that counts how often it was asked and run.
type work struct {
	done        bool
	asked, runs int
}

func (w *work) phase(name string, run func(context.Context) error) phase.Phase {
	return phase.Phase{
		Name:    name,
		Timeout: time.Minute,
		Done:    func(context.Context) (bool, error) { w.asked++; return w.done, nil },
		Run: func(ctx context.Context) error {
			w.runs++
			if err := run(ctx); err != nil {
				return err
			}
			w.done = true
			return nil
		},
	}
}

func succeed(context.Context) error { return nil }

func runner(out *bytes.Buffer) phase.Runner {
	handler := slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
	return phase.Runner{Logger: slog.New(handler)}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var first, second work
		stages := []phase.Stage{
			{first.phase("first", func(context.Context) error { time.Sleep(2 * time.Second); return nil })}, //nolint:forbidigo // by synctest's clock
			{second.phase("second", succeed)},
		}
		for range 2 {
			if err := runner(&out).Run(t.Context(), stages...); err != nil {
				t.Fatal(err)
			}
		}
		if first.runs != 1 || second.runs != 1 {
			t.Errorf("the phases ran %d and %d times, want once each", first.runs, second.runs)
		}
		if first.asked != 3 {
			t.Errorf("the first phase was asked %d times, want before and after its run, and once more", first.asked)
		}
		want := `msg=start phase=first step=1/2 timeout=1m0s
msg=done phase=first step=1/2 took=2s
msg=start phase=second step=2/2 timeout=1m0s
msg=done phase=second step=2/2 took=0s
msg="already done" phase=first step=1/2 took=0s
msg="already done" phase=second step=2/2 took=0s
`
		if got := out.String(); got != want {
			t.Errorf("got log\n%s\nwant\n%s", got, want)
		}
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		phase phase.Phase
		is    error
		want  string
	}{
		"run fails": {
			phase.Phase{Name: "p", Timeout: time.Minute,
				Done: func(context.Context) (bool, error) { return false, nil },
				Run:  func(context.Context) error { return boom }},
			boom, "p: boom",
		},
		"done fails before": {
			phase.Phase{Name: "p", Timeout: time.Minute,
				Done: func(context.Context) (bool, error) { return false, boom },
				Run:  succeed},
			boom, "p: look at what is done: boom",
		},
		"nothing is done by a run that succeeds": {
			phase.Phase{Name: "p", Timeout: time.Minute,
				Done: func(context.Context) (bool, error) { return false, nil },
				Run:  succeed},
			phase.ErrUnfinished, "p: not done although every step succeeded",
		},
		"time runs out": {
			phase.Phase{Name: "p", Timeout: time.Minute,
				Done: func(context.Context) (bool, error) { return false, nil },
				Run: func(ctx context.Context) error {
					return phase.Poll(ctx, phase.Remote, func(context.Context) error { return boom })
				}},
			boom, "p: no success within 1m0s: boom (context deadline exceeded)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var next work
				err := runner(new(bytes.Buffer)).Run(t.Context(), phase.Stage{test.phase}, phase.Stage{next.phase("next", succeed)})
				if err == nil || err.Error() != test.want {
					t.Fatalf("got error %v, want %s", err, test.want)
				}
				if !errors.Is(err, test.is) {
					t.Errorf("the reason %v is not in the chain of %v", test.is, err)
				}
				if failed, ok := errors.AsType[*phase.Error](err); !ok || failed.Phase != "p" {
					t.Errorf("got %#v, want an error of phase p", err)
				}
				if next.asked != 0 {
					t.Error("the next stage was begun")
				}
			})
		})
	}
}

func TestPhasesOfAStageRunTogether(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	meet := make(chan struct{})
	var left, right work
	stage := phase.Stage{
		left.phase("left", func(ctx context.Context) error {
			select {
			case meet <- struct{}{}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
		right.phase("right", func(ctx context.Context) error {
			select {
			case <-meet:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
	}
	if err := runner(new(bytes.Buffer)).Run(ctx, stage); err != nil {
		t.Fatal(err)
	}
}

func TestFirstFailureIsReportedAndCancelsTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bad, slow work
		err := runner(new(bytes.Buffer)).Run(t.Context(), phase.Stage{
			slow.phase("slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
			bad.phase("bad", func(context.Context) error { return errors.New("boom") }),
		})
		if got, want := err.Error(), "bad: boom"; got != want {
			t.Errorf("got error %q, want %q", got, want)
		}
	})
}

func TestRunStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var w work
	err := runner(new(bytes.Buffer)).Run(ctx, phase.Stage{w.phase("p", succeed)})
	if !errors.Is(err, context.Canceled) || w.asked != 0 {
		t.Errorf("got error %v after %d questions, want a cancellation and none", err, w.asked)
	}
}

func TestPoll(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	t.Run("until it succeeds", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := phase.Poll(t.Context(), phase.Remote, func(context.Context) error {
				if tries++; tries < 5 {
					return boom
				}
				return nil
			})
			if err != nil || tries != 5 {
				t.Errorf("got error %v after %d tries, want none after 5", err, tries)
			}
		})
	})
	t.Run("until it is hopeless", func(t *testing.T) {
		t.Parallel()
		tries := 0
		err := phase.Poll(t.Context(), phase.Remote, func(context.Context) error { tries++; return phase.Permanent(boom) })
		if !errors.Is(err, boom) || err.Error() != "boom" || tries != 1 {
			t.Errorf("got error %v after %d tries, want boom itself after 1", err, tries)
		}
	})
	t.Run("until the time is over, with the last reason that was seen", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			tries := 0
			err := phase.Poll(ctx, phase.Remote, func(ctx context.Context) error {
				if tries++; tries < 3 {
					return boom
				}
				<-ctx.Done() // a call that hangs until the end
				return ctx.Err()
			})
			if !errors.Is(err, boom) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want the last reason and the deadline", err)
			}
			if strings.Count(err.Error(), "deadline exceeded") != 1 {
				t.Errorf("the deadline is told more than once in %q", err)
			}
		})
	})
}
