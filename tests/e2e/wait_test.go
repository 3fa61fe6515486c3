package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errSeen = errors.New("what the last check saw")

func TestEventually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		if err := eventually(t.Context(), "it works", time.Minute, func(context.Context) error {
			if checks++; checks < 3 {
				return errSeen
			}
			return nil
		}); err != nil || checks != 3 {
			t.Errorf("got error %v after %d checks, want none after 3", err, checks)
		}

		start := time.Now()
		checks = 0
		err := eventually(t.Context(), "it works", time.Minute, func(ctx context.Context) error {
			if checks++; checks < 3 {
				return errSeen
			}
			<-ctx.Done() // it hangs, and is cut off
			return ctx.Err()
		})
		if want := "wait until it works: not within 1m0s: what the last check saw"; err == nil || err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("gave up after %s, want after the limit", took)
		}

		ctx, stop := context.WithCancelCause(t.Context())
		stop(errors.New("interrupted"))
		err = eventually(ctx, "it works", time.Minute, func(context.Context) error { return errSeen })
		if want := "wait until it works: interrupted"; err == nil || err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
	})
}

func TestWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if err := within(t.Context(), time.Minute, func(context.Context) error { return errSeen }); !errors.Is(err, errSeen) {
			t.Errorf("got error %v, want that of what ran", err)
		}
		start := time.Now()
		err := within(t.Context(), time.Minute, func(ctx context.Context) error {
			<-ctx.Done()
			return errSeen // it says where it was when it is interrupted
		})
		if took := time.Since(start); !errors.Is(err, errSeen) || took != time.Minute {
			t.Errorf("got error %v after %s, want that of what ran after the limit", err, took)
		}
		release := make(chan struct{})
		defer close(release)
		start = time.Now()
		err = within(t.Context(), time.Minute, func(context.Context) error { <-release; return nil })
		if want := "not done within 1m0s"; err == nil || err.Error() != want || time.Since(start) != time.Minute+interruptPatience {
			t.Errorf("got error %v after %s, want %q, and not to be held up", err, time.Since(start), want)
		}
	})
}
