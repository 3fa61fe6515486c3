package refresh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	regionec2 "github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

func poll(ctx context.Context, check func() error) error {
	return phase.Poll(ctx, phase.Local, func(context.Context) error { return check() })
}

// quiet is a watcher that wants to know nothing.
type quiet struct{}

func (quiet) Look(scenario.Expectation, scenario.View, string, time.Duration) {}

// journal is what the group has told of its instances, in order.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

type entry struct{ instance, what string }

// What the journal keeps of the group's events.
const (
	launched   = "launched"
	failed     = "failed to launch"
	inService  = "in service"
	leaving    = "leaving"
	terminated = "terminated"
)

func (j *journal) Struck(string, string) {}

func (j *journal) Emitted(e events.Event) {
	kinds := map[string]string{
		"EC2 Instance-launch Lifecycle Action": launched, "EC2 Instance Launch Successful": inService,
		"EC2 Instance Launch Unsuccessful":        failed,
		"EC2 Instance-terminate Lifecycle Action": leaving, "EC2 Instance Terminate Successful": terminated,
	}
	var detail struct {
		EC2InstanceID string `json:"EC2InstanceId"`
	}
	content, err := json.Marshal(e.Detail)
	if kinds[e.DetailType] == "" || err != nil || json.Unmarshal(content, &detail) != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{detail.EC2InstanceID, kinds[e.DetailType]})
}

func (j *journal) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = nil
}

// count is how often something was told.
func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := 0
	for _, e := range j.entries {
		if e.what == what {
			found++
		}
	}
	return found
}

// oneAfterTheOther checks that each new instance entered service before an old
// one was taken away, and was launched after the last one had gone.
func (j *journal) oneAfterTheOther(t *testing.T, before, after []string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var went, came []string
	cycle := []string{launched, inService, leaving, terminated}
	for i, e := range j.entries {
		if want := cycle[i%len(cycle)]; e.what != want {
			t.Errorf("the group's event %d is %v, want one that is %s", i, e, want)
		}
		switch e.what {
		case inService:
			came = append(came, e.instance)
		case terminated:
			went = append(went, e.instance)
		}
		if before := j.entries[max(0, i-1)]; (e.what == inService || e.what == terminated) && e.instance != before.instance {
			t.Errorf("%v follows %v: two instances at a time", e, before)
		}
	}
	for _, list := range [][]string{went, came, before, after} {
		slices.Sort(list)
	}
	if !slices.Equal(went, before) || !slices.Equal(came, after) {
		t.Errorf("%v came and %v went, want %v and %v; events: %v", came, went, after, before, j.entries)
	}
}

// watch looks at etcd and at the volume while something happens to a cluster.
type watch struct {
	w       *world
	client  *clientv3.Client
	stop    context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	written     []string // the acknowledged keys
	failed      int
	last        time.Time
	pause       time.Duration // the longest between two acknowledgements
	readings    int
	fewest      int    // voters whose instance ran
	worst       string // the members then
	minority    string // the members when less than a quorum of them ran
	most        int    // attachments of the volume
	attachments int    // readings of them
}

const (
	// patience is how long no write may be acknowledged: an election, on a
	// machine that is busy.
	patience = 15 * time.Second
	// onceTries is how long one write may take, and then counts as failed.
	onceTries = 2 * time.Second
)

func (w *world) watch(v scenario.View) *watch {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	watch := &watch{w: w, stop: cancel, last: time.Now(), fewest: len(v.Nodes)}
	var err error
	watch.client, err = clientv3.New(clientv3.Config{Endpoints: watch.endpoints(), Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		w.t.Fatal(err)
	}
	watch.running.Go(func() { watch.write(ctx) })
	watch.running.Go(func() { watch.look(ctx) })
	w.t.Cleanup(func() { cancel(); watch.running.Wait(); watch.client.Close() })
	return watch
}

// endpoints are the client addresses of the instances that run.
func (w *watch) endpoints() []string {
	var list []string
	for _, instance := range w.w.EC2.Instances() {
		if instance.State == regionec2.StateRunning {
			list = append(list, etcd.ClientURL(instance.PrivateIP))
		}
	}
	return list
}

// write writes one key after the other.
func (w *watch) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprintf("refresh/%08d", i)
		within, cancel := context.WithTimeout(ctx, onceTries)
		_, err := w.client.Put(within, key, key)
		cancel()
		now := time.Now()
		w.mu.Lock()
		if err == nil {
			w.written = append(w.written, key)
			w.pause, w.last = max(w.pause, now.Sub(w.last)), now
		} else if ctx.Err() == nil {
			w.failed++
		}
		w.mu.Unlock()
		rest(ctx, 10*time.Millisecond)
	}
}

// look reads the members and the attachments again and again. Who runs is read
// before who votes: a voter that is found not to have run then was left behind.
func (w *watch) look(ctx context.Context) {
	compute := ec2.NewFromConfig(w.w.AWSConfig())
	for ctx.Err() == nil {
		stopped := map[string]bool{}
		for _, instance := range w.w.EC2.Instances() {
			stopped[instance.ID] = instance.State != regionec2.StatePending && instance.State != regionec2.StateRunning
		}
		endpoints := w.endpoints()
		w.client.SetEndpoints(endpoints...)
		within, cancel := context.WithTimeout(ctx, onceTries)
		members, err := etcd.Cluster{}.Members(within, endpoints)
		cancel()
		if err == nil {
			w.count(members, stopped)
		}
		if volumes, err := compute.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{w.w.volume}}); err == nil {
			w.mu.Lock()
			w.attachments++
			w.most = max(w.most, len(volumes.Volumes[0].Attachments))
			w.mu.Unlock()
		}
		rest(ctx, 50*time.Millisecond)
	}
}

func (w *watch) count(members []membership.Member, stopped map[string]bool) {
	voters := 0
	var dead, names []string
	for _, m := range members {
		names = append(names, m.String())
		if m.Learner || !m.Started() {
			continue
		}
		voters++
		for id, gone := range stopped {
			if gone && m.Of(id, "") {
				dead = append(dead, id)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readings++
	up, told := voters-len(dead), fmt.Sprintf("members %s, of which %v had stopped", strings.Join(names, ", "), dead)
	if up < w.fewest {
		w.fewest, w.worst = up, told
	}
	if up <= voters/2 {
		w.minority = told
	}
}

// end stops looking and judges what was seen.
func (w *watch) end() {
	t := w.w.t
	t.Helper()
	w.stop()
	w.running.Wait()
	w.pause = max(w.pause, time.Since(w.last))
	t.Logf("%d writes, of which %d failed, the longest pause %s; %d readings of the members, %d of the attachments",
		len(w.written)+w.failed, w.failed, w.pause.Round(time.Millisecond), w.readings, w.attachments)
	if len(w.written) < 100 || w.readings < 20 || w.attachments < 20 {
		t.Error("that is too little to judge by")
	}
	if w.pause > patience {
		t.Errorf("no write was acknowledged for %s, want less than %s", w.pause, patience)
	}
	if w.minority != "" {
		t.Errorf("etcd had no quorum: %s", w.minority)
	}
	if want := nodes + 1; w.most != want {
		t.Errorf("the volume had up to %d attachments, want %d", w.most, want)
	}
	w.kept()
}

// kept checks that nothing that was acknowledged is lost.
func (w *watch) kept() {
	t := w.w.t
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: w.endpoints(), Context: t.Context(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	found, err := client.Get(t.Context(), "refresh/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, kv := range found.Kvs {
		has[string(kv.Key)] = true
	}
	for _, key := range w.written {
		if !has[key] {
			t.Errorf("the acknowledged write of %s is lost", key)
		}
	}
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
