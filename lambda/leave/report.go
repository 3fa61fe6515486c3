package leave

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// Outcome is what became of an event.
type Outcome string

// The outcomes. The first three are also the answers of a survivor.
const (
	// Removed: the member was there and is gone.
	Removed Outcome = "removed"
	// Absent: etcd had no member of this instance.
	Absent Outcome = "absent"
	// Refused: etcd kept the member until the end of the time, because it would
	// have lost its quorum. The member may still be there.
	Refused Outcome = "refused"
	// NoSurvivor: no other node runs and stays, so there is no etcd to leave.
	NoSurvivor Outcome = "no-survivor"
	// Failed: no survivor gave an answer. The member may still be there.
	Failed Outcome = "failed"
	// Ignored: the event asks nothing of this function.
	Ignored Outcome = "ignored"
)

// Completion is what became of the lifecycle action.
type Completion string

// The completions; an action that is not ours has none.
const (
	// Completed: the termination goes on.
	Completed Completion = "continued"
	// AlreadyOver: an earlier invocation or the heartbeat had ended the action.
	AlreadyOver Completion = "already-over"
	// NotCompleted: Auto Scaling refused or did not answer; the instance waits
	// for the next try or for the hook's heartbeat.
	NotCompleted Completion = "not-completed"
)

// Keys of the log line. Cluster, outcome, events and duration are also the
// dimensions and metrics of its embedded metric document, which CloudWatch
// finds by these very names.
const (
	keyEvent           = "event"
	keyInstance        = "instance"
	keyCluster         = "cluster"
	keyGroup           = "group"
	keyAddress         = "address"
	keySurvivor        = "survivor"
	keyMember          = "member"
	keyOutcome         = "outcome"
	keyReason          = "reason"
	keyCompletion      = "completion"
	keyCompletionError = "completion_error"
	keyAttempts        = "attempts"
	keyAsked           = "asked"
	keyNotes           = "notes"
	keyEvents          = "events"
	keyDuration        = "duration"
	keyMetrics         = "_aws"
)

// report collects what one invocation did.
type report struct {
	start   time.Time
	cluster string
	action  Action

	Address  string
	Outcome  Outcome
	Reason   string
	Survivor string
	Member   string

	attempts int
	asked    []asked
	notes    []string

	Completion      Completion
	completionError error
}

// asked is how a survivor answered, as it stands in the log line.
type asked struct {
	Survivor string  `json:"survivor"`
	Result   Outcome `json:"result"`
	Reason   string  `json:"reason,omitempty"`
	// Times is how often in a row it answered so.
	Times int `json:"times"`
	// Duration is how long that took in all, in milliseconds.
	Duration int64 `json:"duration"`
}

func newReport(config Config) *report {
	return &report{start: time.Now(), cluster: config.Cluster}
}

func (r *report) event(action Action) { r.action = action }

// ends notes an outcome without a survivor's answer. The latest outcome
// counts, except that a failure to ask again does not hide etcd's refusal.
func (r *report) ends(outcome Outcome, reason string) {
	if outcome == Failed && r.Outcome == Refused {
		r.note("%s", reason)
		return
	}
	r.Outcome, r.Reason = outcome, reason
}

// answered notes a survivor's answer.
func (r *report) answered(survivor string, reply answer) {
	r.Outcome, r.Reason = reply.Result, reply.Reason
	r.Survivor, r.Member = survivor, reply.MemberID
}

// attempted notes that a survivor was asked, since start, and what came of it.
func (r *report) attempted(survivor string, start time.Time, reply answer, err error) {
	r.attempts++
	now := asked{survivor, reply.Result, reply.Reason, 1, time.Since(start).Milliseconds()}
	if err != nil {
		now.Result, now.Reason = Failed, err.Error()
	}
	if n := len(r.asked); n > 0 {
		last := &r.asked[n-1]
		if last.Survivor == now.Survivor && last.Result == now.Result && last.Reason == now.Reason {
			last.Times++
			last.Duration += now.Duration
			return
		}
	}
	r.asked = append(r.asked, now)
}

// note keeps something an operator may want to know, once.
func (r *report) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// err is why Lambda should try the event again, nil when it should not.
func (r *report) err() error {
	if r.completionError != nil {
		return r.completionError
	}
	switch r.Outcome {
	case Refused, Failed:
		return fmt.Errorf("remove the etcd member of %s: %s: %s", r.action.Instance, r.Outcome, r.Reason)
	}
	return nil
}

// write writes the log line and returns what Handle does.
func (r *report) write(ctx context.Context, log *slog.Logger) error {
	now := time.Now()
	attrs := []slog.Attr{
		slog.String(keyInstance, r.action.Instance),
		slog.String(keyCluster, r.cluster),
		slog.String(keyOutcome, string(r.Outcome)),
		slog.String(keyReason, r.Reason),
		slog.String(keySurvivor, r.Survivor),
		slog.String(keyMember, r.Member),
		slog.String(keyAddress, r.Address),
		slog.String(keyCompletion, string(r.Completion)),
		slog.Int(keyAttempts, r.attempts),
		slog.Int64(keyDuration, now.Sub(r.start).Milliseconds()),
		slog.String(keyGroup, r.action.Group),
		slog.String(keyEvent, r.action.EventID),
		slog.Int(keyEvents, 1),
	}
	if r.asked != nil {
		attrs = append(attrs, slog.Any(keyAsked, r.asked))
	}
	if r.notes != nil {
		attrs = append(attrs, slog.Any(keyNotes, r.notes))
	}
	if r.completionError != nil {
		attrs = append(attrs, slog.String(keyCompletionError, r.completionError.Error()))
	}
	attrs = append(attrs, slog.Any(keyMetrics, metricsAt(now))) //nolint:sloglint // CloudWatch gives this key its name

	err := r.err()
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelError
	}
	log.LogAttrs(ctx, level, "scale-in", attrs...)
	return err
}

// embeddedMetrics is the part of a log line that makes CloudWatch read metrics
// out of the rest of it:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
//
// The libraries for the format write lines of their own; here the event's one
// line is both the log entry and the metrics.
type embeddedMetrics struct {
	// Timestamp is in milliseconds since the epoch.
	Timestamp         int64
	CloudWatchMetrics []metricDirective
}

type metricDirective struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []metricDefinition
}

type metricDefinition struct {
	Name, Unit string
}

func metricsAt(now time.Time) embeddedMetrics {
	return embeddedMetrics{
		Timestamp: now.UnixMilli(),
		CloudWatchMetrics: []metricDirective{{
			Namespace:  contract.MetricNamespace,
			Dimensions: [][]string{{keyCluster, keyOutcome}},
			Metrics:    []metricDefinition{{keyEvents, "Count"}, {keyDuration, "Milliseconds"}},
		}},
	}
}
