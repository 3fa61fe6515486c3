package main_test

import (
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// targetInit is what is aimed at; nothing fails above it.
const targetInit = 100 * time.Millisecond

// BenchmarkColdStart measures a new process of the function against an AWS that
// answers at once: from its start until it asks for its first event (init), and
// until it has answered that (answer). One poll of the command's result comes
// too early, as with the real SSM, and costs up to 0.3 s of the answer.
//
// The ratios compare with the same binary ending for want of its configuration
// (exec), which is what a process of this size costs by itself, and with the
// target.
func BenchmarkColdStart(b *testing.B) {
	var inits, answers, execs time.Duration
	for b.Loop() {
		b.StopTimer()
		aws, runtime := newAWS(b), newRuntime(b)
		b.StartTimer()

		begun := time.Now()
		f := start(b, runtime, aws.server.URL, nil)
		runtime.next <- invocation{"1", event, time.Now().Add(contract.FunctionTimeout)}
		inits += time.Since(begun)
		answer := <-runtime.results
		answers += time.Since(begun)

		b.StopTimer()
		if answer.failed {
			b.Fatalf("the invocation failed: %s", answer.body)
		}
		f.kill()
		begun = time.Now()
		<-start(b, runtime, aws.server.URL, map[string]string{contract.HookVariable: ""}).done
		execs += time.Since(begun)
		b.StartTimer()
	}
	n := float64(b.N)
	b.ReportMetric(inits.Seconds()*1000/n, "ms/init")
	b.ReportMetric(answers.Seconds()*1000/n, "ms/answer")
	b.ReportMetric(inits.Seconds()/execs.Seconds(), "init/exec")
	b.ReportMetric(inits.Seconds()/n/targetInit.Seconds(), "init/target")
}
