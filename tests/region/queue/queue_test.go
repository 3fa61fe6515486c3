package queue_test

import (
	"slices"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/region/queue"
)

func TestQueueKeepsOrder(t *testing.T) {
	t.Parallel()
	var q queue.Queue
	var got, want []int // touched by the queue only, until Wait
	for i := range 100 {
		want = append(want, i)
		q.Add(func() { got = append(got, i) })
	}
	q.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("got order %v", got)
	}
	q.Add(func() { got = nil }) // and it starts again after it was empty
	q.Wait()
	if got != nil {
		t.Errorf("work added to an empty queue did not run")
	}
}
