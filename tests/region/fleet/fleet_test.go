package fleet_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/region/fleet"
)

// machine waits in Kill until all are being killed.
type machine struct {
	together *sync.WaitGroup
	problem  error
}

func (m *machine) Kill() error {
	m.together.Done()
	m.together.Wait()
	return m.problem
}

func TestFleet(t *testing.T) {
	t.Parallel()
	var together sync.WaitGroup
	var f fleet.Fleet[*machine]
	made := map[string]*machine{}
	for id, problem := range map[string]error{"i-a": nil, "i-b": errors.New("b does not end"), "i-c": errors.New("c does not end"), "i-gone": nil} {
		made[id] = &machine{&together, problem}
		if err := f.Add(id, made[id]); err != nil {
			t.Fatal(err)
		}
	}
	f.Remove("i-gone")
	f.Remove("i-never")
	if f.Machine("i-a") != made["i-a"] || f.Machine("i-gone") != nil {
		t.Errorf("got %v and %v, want the one that is there and nil", f.Machine("i-a"), f.Machine("i-gone"))
	}

	together.Add(3) // the one that was removed is not killed
	err := f.Close()
	for _, want := range []string{"b does not end", "c does not end"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if err := f.Add("i-late", &machine{}); !errors.Is(err, fleet.ErrClosed) {
		t.Errorf("after the end: got error %v, want that it is closed", err)
	}
	if f.Machine("i-a") == nil || f.Machine("i-late") != nil {
		t.Error("a killed machine is gone, or a late one is there")
	}
}
