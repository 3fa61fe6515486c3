package fault

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
)

// Events on their way to the graceful-leave function.
var (
	LostEvents = Fault{
		Name: "LostEvents", Does: "EventBridge loses every event.", Hinders: true,
		Inject: onEvents(func(*World, events.Event) int { return 0 }),
	}
	DuplicateEvents = Fault{
		Name: "DuplicateEvents", Does: "EventBridge delivers every event three times.",
		Inject: onEvents(func(*World, events.Event) int { return 3 }),
	}
	LateEvents = Fault{
		Name: "LateEvents", Does: "EventBridge delivers every event five to ten seconds late.",
		Inject: lateEvents,
	}
)

func onEvents(copies func(*World, events.Event) int) func(context.Context, *World) (Undo, error) {
	return func(_ context.Context, w *World) (Undo, error) {
		return put(w, &w.board.copies, func(e events.Event) int { return copies(w, e) }), nil
	}
}

// lateEvents keeps events back, also beyond its own end.
func lateEvents(ctx context.Context, w *World) (Undo, error) {
	ctx = context.WithoutCancel(ctx)
	var passing sync.Map // the late events that are on the bus again
	return onEvents(func(w *World, e events.Event) int {
		key := fmt.Sprint(e.Source, e.DetailType, e.Detail)
		if _, late := passing.LoadAndDelete(key); late {
			return 1
		}
		time.AfterFunc(w.between(5*time.Second, 10*time.Second), func() {
			passing.Store(key, true)
			w.Region.Events.Emit(ctx, e.Source, e.DetailType, e.Resources, e.Detail)
			passing.Delete(key) // the fault was over before
		})
		return 0
	})(ctx, w)
}

// files are what a node downloads.
var files = []string{
	"etcfuse-0.36.0-1.x86_64.rpm", "etcfuse-meta-0.36.0-1.x86_64.rpm", "etcfsctl-0.36.0-1.x86_64.rpm", "checksums.txt",
	"etcd-v3.6.16-linux-amd64.tar.gz", "SHA256SUMS",
}

// The server of releases.
var (
	BrokenDownloads = Fault{
		Name: "BrokenDownloads", Does: "The first three downloads of every file break off.",
		Inject: onReleases(func(w *World) {
			for _, file := range files {
				w.Region.Releases.CutOff(file, 100, 3)
			}
		}),
	}
	FailingDownloads = Fault{
		Name: "FailingDownloads", Does: "The server of releases is unavailable.",
		Inject: onReleases(func(w *World) {
			for _, file := range files {
				w.Region.Releases.Fail(file, http.StatusServiceUnavailable, -1)
			}
		}),
	}
	WrongArtifact = Fault{
		Name: "WrongArtifact", Does: "A package of EtcFS is not the one whose sum was published.",
		Inject: onReleases(func(w *World) { w.Region.Releases.Replace(files[1], []byte("something else")) }),
	}
	SlowDownloads = Fault{
		Name: "SlowDownloads", Does: "Downloads get eight megabytes a second.",
		Inject: onReleases(func(w *World) { w.Region.Releases.Throttle(8 << 20) }),
	}
)

func onReleases(disturb func(*World)) func(context.Context, *World) (Undo, error) {
	return func(_ context.Context, w *World) (Undo, error) {
		disturb(w)
		return func(context.Context) error {
			w.Region.Releases.Throttle(0)
			for _, file := range files {
				w.Region.Releases.Heal(file)
			}
			return nil
		}, nil
	}
}

// Clocks of nodes. AWS keeps its own time.
var (
	ClockAhead = Fault{
		Name: "ClockAhead", Does: "The clocks of nodes launched from now on are an hour ahead.",
		Inject: onNewClocks(-time.Hour),
	}
	ClockBehind = Fault{
		Name: "ClockBehind", Does: "The clocks of nodes launched from now on are an hour behind.",
		Inject: onNewClocks(time.Hour),
	}
)

// onNewClocks sets AWS's time against that of new nodes.
func onNewClocks(ahead time.Duration) func(context.Context, *World) (Undo, error) {
	return func(_ context.Context, w *World) (Undo, error) {
		old := map[string]bool{}
		for _, instance := range w.Region.EC2.Instances() {
			old[instance.ID] = true
		}
		return put(w, &w.board.clocks, func(p api.Principal) time.Duration {
			if !isNode(p) || old[p.Session] {
				return 0
			}
			return ahead
		}), nil
	}
}
