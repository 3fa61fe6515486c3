// Package fleet keeps a region's machines, of whatever kind, from their start
// to their removal.
package fleet

import (
	"errors"
	"sync"
)

// Machine is what a fleet needs of a machine.
type Machine interface {
	// Kill ends the machine at once.
	Kill() error
}

// Fleet is the machines that have not been removed. The zero value is an empty
// one.
type Fleet[M Machine] struct {
	mu       sync.Mutex
	closed   bool
	machines map[string]M
}

// ErrClosed refuses a machine that comes too late.
var ErrClosed = errors.New("the region is closing")

// Add takes a machine in, unless the fleet is closed.
func (f *Fleet[M]) Add(instanceID string, machine M) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if f.machines == nil {
		f.machines = map[string]M{}
	}
	f.machines[instanceID] = machine
	return nil
}

// Machine returns a machine by its instance ID, the zero value when there is
// none.
func (f *Fleet[M]) Machine(instanceID string) M {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machines[instanceID]
}

// Remove forgets a machine.
func (f *Fleet[M]) Remove(instanceID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.machines, instanceID)
}

// Close kills every machine, all at the same time, and refuses new ones. Those
// killed stay until Remove.
func (f *Fleet[M]) Close() error {
	f.mu.Lock()
	f.closed = true
	var machines []M
	for _, machine := range f.machines {
		machines = append(machines, machine)
	}
	f.mu.Unlock()
	problems := make([]error, len(machines))
	var group sync.WaitGroup
	for i, machine := range machines {
		group.Go(func() { problems[i] = machine.Kill() })
	}
	group.Wait()
	return errors.Join(problems...)
}
