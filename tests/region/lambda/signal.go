package lambda

import "syscall"

// Signal sends a signal to every process of a function, as the kernel does
// that runs out of memory. Functions that hang and die are made of it.
func (f *Functions) Signal(name string, signal syscall.Signal) {
	f.mu.Lock()
	var processes []*environment
	for e := range f.busy {
		processes = append(processes, e)
	}
	for _, idle := range f.idle {
		processes = append(processes, idle...)
	}
	f.mu.Unlock()
	for _, e := range processes {
		if e.function.Name == name && e.process.Process != nil && !e.ended() {
			_ = syscall.Kill(-e.process.Process.Pid, signal) // it may have ended just now
		}
	}
}
