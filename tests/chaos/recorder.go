package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/tests/invariant"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
)

// recorder writes the history. What it sees of calls is what happened, not what
// a fault made of the answer.
type recorder struct {
	journal *journal

	mu        sync.Mutex
	history   invariant.History
	instances map[string]*invariant.Instance
	order     []string
	actions   map[string]*invariant.Action // by token
	tokens    []string
}

func newRecorder(j *journal) *recorder {
	return &recorder{journal: j, instances: map[string]*invariant.Instance{}, actions: map[string]*invariant.Action{}}
}

// snapshot is the history so far.
func (r *recorder) snapshot() *invariant.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.history
	for _, id := range r.order {
		h.Instances = append(h.Instances, *r.instances[id])
	}
	for _, token := range r.tokens {
		h.Actions = append(h.Actions, *r.actions[token])
	}
	return &h
}

func (r *recorder) save(path string) error {
	content, err := json.Marshal(r.snapshot())
	if err != nil {
		return fmt.Errorf("encode the history: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	return nil
}

// changed follows an instance's state.
func (r *recorder) changed(i ec2.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	instance := r.instances[i.ID]
	if instance == nil {
		instance = &invariant.Instance{ID: i.ID, Launched: time.Now()}
		r.instances[i.ID] = instance
		r.order = append(r.order, i.ID)
	}
	if i.PrivateIP != "" {
		instance.Address = i.PrivateIP
	}
	if i.State != ec2.StatePending && i.State != ec2.StateRunning {
		r.leaves(i.ID)
	}
}

func (r *recorder) leaves(id string) {
	if instance := r.instances[id]; instance != nil && instance.Leaving.IsZero() {
		instance.Leaving = time.Now()
	}
}

// lost notes that an instance is about to be destroyed.
func (r *recorder) lost(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaves(id)
}

// Struck implements fault.Watcher.
func (r *recorder) Struck(instanceID, what string) {
	r.journal.tell("%s: %s", instanceID, what)
}

// Emitted implements fault.Watcher: the group's events tell of its actions.
func (r *recorder) Emitted(e events.Event) {
	content, err := json.Marshal(e.Detail)
	if err != nil || e.Source != "aws.autoscaling" {
		return
	}
	var detail struct {
		LifecycleActionToken, EC2InstanceId string //nolint:staticcheck // AWS spells it so
	}
	if err := json.Unmarshal(content, &detail); err != nil {
		return
	}
	r.journal.logger.Debug("event", "type", e.DetailType, "detail", json.RawMessage(content))
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.DetailType {
	case "EC2 Instance-terminate Lifecycle Action":
		r.leaves(detail.EC2InstanceId)
		if token := detail.LifecycleActionToken; r.actions[token] == nil {
			r.actions[token] = &invariant.Action{Instance: detail.EC2InstanceId, Interval: invariant.Interval{From: now}}
			r.tokens = append(r.tokens, token)
		}
	case "EC2 Instance Terminate Successful":
		for _, action := range r.actions {
			if action.Instance == detail.EC2InstanceId && action.To.IsZero() {
				action.To = now // and nobody has completed it
			}
		}
	}
}

// call is the innermost interceptor.
func (r *recorder) call(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
	result, err := next(ctx)
	if c.Principal.Role != "" {
		r.journal.logger.Debug("call", "caller", c.Principal.Session, "service", c.Service.Name, "action", c.Action, "error", err)
	}
	if err != nil {
		return result, err
	}
	now := time.Now()
	switch c.Service.Name + ":" + c.Action {
	case "dynamodb:PutItem":
		r.seed(now, c.Body)
	case "autoscaling:CompleteLifecycleAction":
		r.mu.Lock()
		for _, token := range r.tokens {
			action := r.actions[token]
			named := c.Params.Get("LifecycleActionToken")
			if action.To.IsZero() && (token == named || named == "" && action.Instance == c.Params.Get("InstanceId")) {
				action.To, action.Completed = now, true
			}
		}
		r.mu.Unlock()
	}
	return result, err
}

// seed notes a version of the seed item.
func (r *recorder) seed(now time.Time, body []byte) {
	var in struct{ Item map[string]map[string]string }
	if err := json.Unmarshal(body, &in); err != nil || in.Item["seed_ip"] == nil {
		return // another item of the table
	}
	seconds, _ := strconv.ParseInt(in.Item["created_at"]["N"], 10, 64) // DynamoDB has checked it
	item := membership.Item{
		ClusterName: in.Item["cluster_name"]["S"], SeedIP: in.Item["seed_ip"]["S"], InstanceID: in.Item["instance_id"]["S"],
		State: membership.State(in.Item["state"]["S"]), ClusterID: in.Item["etcd_cluster_id"]["S"], CreatedAt: time.Unix(seconds, 0),
	}
	r.mu.Lock()
	r.history.Seeds = append(r.history.Seeds, invariant.Seed{At: now, Item: item})
	r.mu.Unlock()
	r.journal.tell("the seed item says %s by %s", item.State, item.InstanceID)
}

// outage notes that an instance does not answer, and returns how to end it.
func (r *recorder) outage(instanceID string) (over func(time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.history.Outages)
	r.history.Outages = append(r.history.Outages, invariant.Outage{Instance: instanceID, Interval: invariant.Interval{From: time.Now()}})
	return func(to time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.history.Outages[i].To = to
	}
}

// hindrance notes that the graceful-leave function may be unable to work, and
// returns how to end it.
func (r *recorder) hindrance() (over func(time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.history.Hindrances)
	r.history.Hindrances = append(r.history.Hindrances, invariant.Interval{From: time.Now()})
	return func(to time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.history.Hindrances[i].To = to
	}
}

// healed notes that the last fault is over.
func (r *recorder) healed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Healed = time.Now()
}

func (r *recorder) operation(o invariant.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Operations = append(r.history.Operations, o)
}

const (
	samplePause    = 400 * time.Millisecond
	samplePatience = 2 * time.Second
)

// sample reads the members through one node, again and again, until ctx ends.
// Members of two clusters are told apart by where they were read.
func (r *recorder) sample(ctx context.Context, address string) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.ClientURL(address)}, Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		r.journal.logger.Error("cannot sample", "address", address, "error", err)
		return
	}
	defer client.Close()
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, samplePatience)
		from := time.Now()
		response, err := client.MemberList(within)
		cancel()
		if err == nil {
			r.sampled(invariant.Sample{
				Interval: invariant.Interval{From: from, To: time.Now()},
				Cluster:  strconv.FormatUint(response.Header.ClusterId, 16), Members: members(response.Members),
			})
		}
		pause(ctx, samplePause)
	}
}

// sampled keeps a sample.
func (r *recorder) sampled(s invariant.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	previous := len(r.history.Samples) - 1
	if previous < 0 || describe(r.history.Samples[previous]) != describe(s) {
		r.journal.logger.Info("members", "members", describe(s))
	}
	r.history.Samples = append(r.history.Samples, s)
}

func describe(s invariant.Sample) string {
	text := []string{s.Cluster}
	for _, member := range s.Members {
		kind := "voter"
		if member.Learner {
			kind = "learner"
		}
		text = append(text, kind+" "+member.String())
	}
	return strings.Join(text, ", ")
}

func members(list []*etcdserverpb.Member) []membership.Member {
	converted := make([]membership.Member, len(list))
	for i, m := range list {
		converted[i] = membership.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner}
	}
	return converted
}

// latest are the members by the latest sample.
func (r *recorder) latest() []membership.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	var latest invariant.Sample
	for _, s := range r.history.Samples {
		if s.From.After(latest.From) {
			latest = s
		}
	}
	return latest.Members
}

// spare is how many voters more may be lost before the majority is.
func (r *recorder) spare() int {
	voters := r.latest()
	now := time.Now()
	h := r.snapshot()
	total, up := 0, 0
	for _, member := range voters {
		if member.Learner {
			continue
		}
		total++
		for _, i := range h.Instances {
			if member.Of(i.ID, i.Address) && i.Leaving.IsZero() && !out(h, i.ID, now) {
				up++
			}
		}
	}
	return up - (total/2 + 1)
}

func out(h *invariant.History, instanceID string, at time.Time) bool {
	for _, o := range h.Outages {
		if o.Instance == instanceID && (o.To.IsZero() || o.To.After(at)) {
			return true
		}
	}
	return false
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
