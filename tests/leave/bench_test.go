package leave_test

import (
	"testing"
	"time"
)

// BenchmarkScaleIn measures scale-in as a whole, with a function that has to be
// started first: from the call that terminates an instance, by way of the event,
// the rule, the function, Run Command and a survivor's answer, until the
// lifecycle action is completed. The survivor's answer takes no time, and what
// AWS needs for its part of the way is not in it. The invocation of the command
// does not exist for its first 50 ms, as with the real SSM.
func BenchmarkScaleIn(b *testing.B) {
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		c := newCluster(b, 2)
		victim := c.inService()[0]
		b.StartTimer()
		begun := time.Now()
		c.terminate(victim)
		c.lines(victim, 1)
		b.StopTimer()
		took += c.completed().Sub(begun)
		c.gone(victim)
		b.StartTimer()
	}
	b.ReportMetric(0, "ns/op") // it includes looking for the line
	b.ReportMetric(took.Seconds()*1000/float64(b.N), "ms/completed")
}
