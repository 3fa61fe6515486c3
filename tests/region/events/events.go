// Package events is EventBridge of the region: rules of the default event bus,
// their patterns, and Lambda functions as their targets, which it invokes as
// far as their resource policies let it.
//
// Nothing is scheduled or transformed. An event whose target refuses it goes to
// the target's dead-letter queue; without one it is lost, as in AWS.
package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
)

// servicePrincipal is who the bus is to a function's resource policy.
const servicePrincipal = "events.amazonaws.com"

// Functions are the targets of rules.
type Functions interface {
	// InvokeFor queues an asynchronous invocation for another service's
	// resource, or refuses it.
	InvokeFor(service, resourceARN, functionARN string, payload []byte) error
}

// Queues are the dead-letter queues of targets.
type Queues interface {
	// SendFor sends a message of a service for one of its resources, or refuses
	// it.
	SendFor(service, sourceARN, queueARN, body string, attributes map[string]string) error
}

// Config is what the service needs; every field is required.
type Config struct {
	Account, Region string
	Functions       Functions
	Queues          Queues
	// Logger tells what becomes of events.
	Logger *slog.Logger
}

// Event is an event as targets get it.
type Event struct {
	Version    string   `json:"version"`
	ID         string   `json:"id"`
	DetailType string   `json:"detail-type"`
	Source     string   `json:"source"`
	Account    string   `json:"account"`
	Time       string   `json:"time"`
	Region     string   `json:"region"`
	Resources  []string `json:"resources"`
	Detail     any      `json:"detail"`
}

// Bus is the service.
type Bus struct {
	config Config

	mu     sync.Mutex
	rules  map[string]*rule
	copies func(Event) int
}

type rule struct {
	name, description, patternText string
	pattern                        pattern
	enabled                        bool
	tags                           map[string]string
	targets                        []target
}

type target struct {
	ID               string `json:"Id"`
	Arn              string
	Input            string            `json:",omitempty"`
	RetryPolicy      *retryPolicy      `json:",omitempty"`
	DeadLetterConfig *deadLetterConfig `json:",omitempty"`
}

type deadLetterConfig struct{ Arn string }

// retryPolicy is kept and not needed: delivery to a function of the region
// succeeds or is refused for good.
type retryPolicy struct {
	MaximumRetryAttempts     *int `json:",omitempty"`
	MaximumEventAgeInSeconds *int `json:",omitempty"`
}

// New makes the service.
func New(config Config) *Bus {
	return &Bus{config: config, rules: map[string]*rule{}}
}

// SetCopies says how often each event is delivered to each target: EventBridge
// may lose an event (0) or deliver it more than once. Nil is once.
func (b *Bus) SetCopies(copies func(Event) int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.copies = copies
}

// ARN is the ARN of a rule.
func (b *Bus) ARN(rule string) string {
	return "arn:aws:events:" + b.config.Region + ":" + b.config.Account + ":rule/" + rule
}

// Emit puts an event of an AWS service on the bus. It returns once the event's
// targets have queued it. Emit blocks on nothing but the bus and the functions,
// so that callers may hold their own locks; ctx is for logging.
func (b *Bus) Emit(ctx context.Context, source, detailType string, resources []string, detail any) {
	if resources == nil {
		resources = []string{}
	}
	event := Event{
		Version: "0", ID: uuid.NewString(), DetailType: detailType, Source: source, Account: b.config.Account,
		Time: time.Now().UTC().Format("2006-01-02T15:04:05Z"), Region: b.config.Region, Resources: resources, Detail: detail,
	}
	log := b.config.Logger.With("event", event.ID, "detail_type", detailType)
	payload, err := json.Marshal(event)
	if err != nil {
		log.ErrorContext(ctx, "event cannot be encoded", "error", err)
		return
	}
	parsed, err := parse(payload)
	if err != nil {
		log.ErrorContext(ctx, "event cannot be read", "error", err)
		return
	}
	type delivery struct {
		rule string
		target
	}
	var deliveries []delivery
	b.mu.Lock()
	copies := 1
	if b.copies != nil {
		copies = b.copies(event)
	}
	for _, r := range b.rules {
		if !r.enabled || !r.pattern.matches(parsed) {
			continue
		}
		for _, t := range r.targets {
			for range copies {
				deliveries = append(deliveries, delivery{r.name, t})
			}
		}
	}
	b.mu.Unlock()
	for _, d := range deliveries {
		body := payload
		if d.Input != "" {
			body = []byte(d.Input)
		}
		if err := b.config.Functions.InvokeFor(servicePrincipal, b.ARN(d.rule), d.Arn, body); err != nil {
			b.bury(ctx, log, d.rule, d.target, body, err)
			continue
		}
		log.DebugContext(ctx, "event delivered", "rule", d.rule, "target", d.Arn)
	}
}

// bury gives an event that its target refused to the target's dead-letter
// queue, with the attributes that EventBridge puts there:
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-dlq.html
func (b *Bus) bury(ctx context.Context, log *slog.Logger, rule string, t target, body []byte, cause error) {
	log = log.With("rule", rule, "target", t.Arn, "cause", cause)
	if t.DeadLetterConfig == nil || t.DeadLetterConfig.Arn == "" {
		log.WarnContext(ctx, "event lost")
		return
	}
	attributes := map[string]string{"RULE_ARN": b.ARN(rule), "TARGET_ARN": t.Arn, "ERROR_MESSAGE": cause.Error()}
	if refusal, ok := errors.AsType[*api.Error](cause); ok {
		attributes["ERROR_CODE"] = refusal.Code
	}
	if err := b.config.Queues.SendFor(servicePrincipal, b.ARN(rule), t.DeadLetterConfig.Arn, string(body), attributes); err != nil {
		log.WarnContext(ctx, "event lost, its dead-letter queue refused it", "error", err)
		return
	}
	log.WarnContext(ctx, "event in its dead-letter queue")
}

// parse reads a JSON document with its numbers as they are written: patterns
// compare them so.
func parse(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	return document, nil
}

func decode(c *api.Call, into any) error {
	return jsonbody.Decode(c, "ValidationException", into)
}

func refuse(code, format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, code, format, args...)
}
