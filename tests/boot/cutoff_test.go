package boot_test

import (
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/fault"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
)

// A node that loses its power in the middle of its first boot, when it is about
// to become a member, goes on at the next one: user data runs only once.
func TestPowerFailsDuringTheFirstBoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	struck := strikes(make(chan string, 1))
	faults := fault.NewWorld(w.Region, "demo", 1, struck)
	t.Cleanup(faults.Close)
	end, err := fault.PowerCycleAtMember.Inject(t.Context(), faults)
	if err != nil {
		t.Fatal(err)
	}
	w.launch(3, "")
	v := w.settle(3)
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case victim := <-struck:
		if !has(v, victim) {
			t.Errorf("%s lost its power and was replaced, want it back", victim)
		}
	default:
		t.Error("no node lost its power")
	}
}

// strikes are the instances that a fault struck.
type strikes chan string

func (s strikes) Struck(instanceID, _ string) { s <- instanceID }
func (strikes) Emitted(events.Event)          {}
