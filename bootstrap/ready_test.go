package bootstrap

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// launch is an instance in its group: waiting for the launching hook, or not.
type launch struct {
	waits bool
	err   error
	calls []string
}

func (l *launch) Waits(context.Context, string) (bool, error) { return l.waits, l.err }

func (l *launch) Continue(context.Context, string) error { return l.answer("continue") }

func (l *launch) Abandon(context.Context, string) error { return l.answer("abandon") }

func (l *launch) Extend(context.Context, string) error {
	l.calls = append(l.calls, "extend")
	return nil
}

func (l *launch) answer(call string) error {
	l.calls, l.waits = append(l.calls, call), false
	return nil
}

func TestReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hook  string
		waits bool
		want  []string
	}{
		"the group does not wait for nodes": {"", true, nil},
		"the launch waits":                  {"demo-ready", true, []string{"continue"}},
		"in service already":                {"demo-ready", false, nil},
	} {
		b, _ := newNode(t)
		l := &launch{waits: test.waits}
		b.Settings.LaunchHook, b.Launch = test.hook, l
		if err := (phase.Runner{Logger: b.Logger}).Run(t.Context(), phase.Stage{b.ready()}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(l.calls, test.want) {
			t.Errorf("%s: got calls %v, want %v", name, l.calls, test.want)
		}
	}
}

// A launch that failed is abandoned, since a report on its health is for
// instances in service; but not when the cluster cannot spare the node.
func TestFailedLaunch(t *testing.T) {
	t.Parallel()
	boom := &phase.Error{Phase: PhaseMount, Err: errors.New("boom")}
	for name, test := range map[string]struct {
		launch   launch
		members  []string
		working  working
		want     []string
		reported bool
	}{
		"it waits":                    {launch: launch{waits: true}, want: []string{"abandon"}},
		"it waits and is needed":      {launch: launch{waits: true}, members: []string{testInstance}, working: working{}, want: []string{"extend"}},
		"in service":                  {reported: true},
		"the group cannot be asked":   {launch: launch{err: errors.New("denied")}, reported: true},
		"one of three, two others up": {launch: launch{waits: true}, members: []string{testInstance, nodeA, nodeB}, working: working{nodeA, nodeB}, want: []string{"abandon"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, daemons := newNode(t)
			var r reports
			b.Settings.LaunchHook, b.Launch, b.Health, b.Group = "demo-ready", &test.launch, &r, nobody{}
			b.Etcd, b.Registry = voters{ids: test.members}, test.working
			daemons.onStart = func(string) systemd.State { return running }
			if test.members != nil {
				put(t, b, settings.EtcdWALDir+"/0.wal", "", 0o600)
			}
			if err := b.failed(t.Context(), boom); !errors.Is(err, boom) {
				t.Errorf("got error %v, want the cause", err)
			}
			if !slices.Equal(test.launch.calls, test.want) {
				t.Errorf("got calls %v, want %v", test.launch.calls, test.want)
			}
			if got := len(r.instances) > 0; got != test.reported {
				t.Errorf("reported unhealthy %t, want %t", got, test.reported)
			}
		})
	}
}
