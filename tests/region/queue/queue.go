// Package queue runs work one piece after the other, in the order in which it
// was added: events leave a service in order, and outside its mutex.
package queue

import "sync"

// Queue is a queue of work; its zero value is ready. Nothing runs while it is
// empty.
type Queue struct {
	mu      sync.Mutex
	work    []func()
	running bool
	done    sync.WaitGroup
}

// Add adds work and returns at once; callers may hold any lock.
func (q *Queue) Add(work func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.work = append(q.work, work)
	if q.running {
		return
	}
	q.running = true
	q.done.Go(q.drain)
}

func (q *Queue) drain() {
	for {
		q.mu.Lock()
		if len(q.work) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		next := q.work[0]
		q.work = q.work[1:]
		q.mu.Unlock()
		next()
	}
}

// Wait returns when the queue is empty and its last work has ended.
func (q *Queue) Wait() { q.done.Wait() }
