package events

import (
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

const (
	defaultBus = "default"
	// maxTargets is the quota of targets of a rule.
	maxTargets = 5
	// Limits of retry policies.
	// https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_RetryPolicy.html
	maxRetries, minAge, maxAge = 185, 60, 86400
)

// Service is the service for the region's front door.
func (b *Bus) Service() *api.Service {
	return &api.Service{
		Name:     "events",
		Protocol: api.JSON,
		Operations: map[string]api.Operation{
			"PutRule":             b.putRule,
			"DescribeRule":        b.describeRule,
			"ListRules":           b.listRules,
			"DeleteRule":          b.deleteRule,
			"EnableRule":          b.enableRule,
			"DisableRule":         b.disableRule,
			"PutTargets":          b.putTargets,
			"ListTargetsByRule":   b.listTargetsByRule,
			"RemoveTargets":       b.removeTargets,
			"TagResource":         b.tagResource,
			"UntagResource":       b.untagResource,
			"ListTagsForResource": b.listTagsForResource,
			"TestEventPattern":    b.testEventPattern,
		},
	}
}

type tag struct{ Key, Value string }

// on authorizes a call on a rule and does the work under the lock. The rule is
// nil when there is none.
func (b *Bus) on(c *api.Call, name, bus string, work func(*rule) error) error {
	b.mu.Lock()
	context := map[string]string{}
	if r := b.rules[name]; r != nil {
		for key, value := range r.tags {
			context["aws:ResourceTag/"+key] = value
		}
	}
	b.mu.Unlock()
	if err := c.Authorize(api.Access{Action: c.IAMAction(), Resource: b.ARN(name), Context: context}); err != nil {
		return err
	}
	if bus != "" && bus != defaultBus && !strings.HasSuffix(bus, ":event-bus/"+defaultBus) {
		return refuse("ResourceNotFoundException", "Event bus %s does not exist.", bus)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return work(b.rules[name])
}

// onExisting is on for a rule that has to be there.
func (b *Bus) onExisting(c *api.Call, name, bus string, work func(*rule) error) error {
	return b.on(c, name, bus, func(r *rule) error {
		if r == nil {
			return refuse("ResourceNotFoundException", "Rule %s does not exist on EventBus default.", name)
		}
		return work(r)
	})
}

var namePattern = regexp.MustCompile(`^[.\-_A-Za-z0-9]{1,64}$`)

func (b *Bus) putRule(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Name, EventPattern, EventBusName, State string
		Description                             *string
		Tags                                    []tag
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	err := b.on(c, in.Name, in.EventBusName, func(r *rule) error {
		if !namePattern.MatchString(in.Name) {
			return refuse("ValidationException", "rule name %q must be 1 to 64 of a-z, A-Z, 0-9, '.', '-' and '_'", in.Name)
		}
		if in.State != "" && in.State != "ENABLED" && in.State != "DISABLED" {
			return refuse("ValidationException", "state %q is not one of ENABLED, DISABLED", in.State)
		}
		if in.EventPattern == "" {
			return refuse("ValidationException", "Parameter EventPattern is required: this region schedules nothing")
		}
		p, err := parsePattern(in.EventPattern)
		if err != nil {
			return refuse("InvalidEventPatternException", "Event pattern is not valid. Reason: %v", err)
		}
		if r == nil {
			r = &rule{name: in.Name, tags: map[string]string{}}
			b.rules[in.Name] = r
		}
		r.pattern, r.patternText, r.enabled = p, in.EventPattern, in.State != "DISABLED"
		if in.Description != nil {
			r.description = *in.Description
		}
		for _, t := range in.Tags {
			r.tags[t.Key] = t.Value
		}
		return nil
	})
	return struct{ RuleArn string }{b.ARN(in.Name)}, err
}

// ruleRequest is what most requests about one rule have.
type ruleRequest struct {
	Name, EventBusName string
}

// description is a rule as the API shows it.
type description struct {
	Name, Arn, EventPattern, State, EventBusName string
	Description                                  string `json:",omitempty"`
}

func (b *Bus) describe(r *rule) description {
	d := description{Name: r.name, Arn: b.ARN(r.name), EventPattern: r.patternText, State: "DISABLED", EventBusName: defaultBus, Description: r.description}
	if r.enabled {
		d.State = "ENABLED"
	}
	return d
}

func (b *Bus) describeRule(_ context.Context, c *api.Call) (any, error) {
	var in ruleRequest
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out description
	err := b.onExisting(c, in.Name, in.EventBusName, func(r *rule) error {
		out = b.describe(r)
		return nil
	})
	return out, err
}

func (b *Bus) listRules(_ context.Context, c *api.Call) (any, error) {
	var in struct{ NamePrefix, EventBusName string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := struct{ Rules []description }{[]description{}}
	for _, name := range slices.Sorted(maps.Keys(b.rules)) {
		if strings.HasPrefix(name, in.NamePrefix) {
			out.Rules = append(out.Rules, b.describe(b.rules[name]))
		}
	}
	return out, nil
}

func (b *Bus) deleteRule(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ruleRequest
		Force bool
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, b.on(c, in.Name, in.EventBusName, func(r *rule) error {
		if r != nil && len(r.targets) > 0 {
			return refuse("ValidationException", "Rule can't be deleted since it has targets.")
		}
		delete(b.rules, in.Name)
		return nil
	})
}

func (b *Bus) enableRule(_ context.Context, c *api.Call) (any, error)  { return b.enable(c, true) }
func (b *Bus) disableRule(_ context.Context, c *api.Call) (any, error) { return b.enable(c, false) }

func (b *Bus) enable(c *api.Call, enabled bool) (any, error) {
	var in ruleRequest
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, b.onExisting(c, in.Name, in.EventBusName, func(r *rule) error {
		r.enabled = enabled
		return nil
	})
}

// failedEntries is the result of calls that can fail in part, which none does
// here.
type failedEntries struct {
	FailedEntryCount int
	FailedEntries    []struct{}
}

func noFailures() failedEntries { return failedEntries{FailedEntries: []struct{}{}} }

func (b *Bus) putTargets(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Rule, EventBusName string
		Targets            []target
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	for _, t := range in.Targets {
		if err := t.check(); err != nil {
			return nil, err
		}
	}
	err := b.onExisting(c, in.Rule, in.EventBusName, func(r *rule) error {
		targets := slices.Clone(r.targets)
		for _, t := range in.Targets {
			targets = slices.DeleteFunc(targets, func(old target) bool { return old.ID == t.ID })
			targets = append(targets, t)
		}
		if len(targets) > maxTargets {
			return refuse("LimitExceededException", "The requested resource exceeds the maximum number allowed: %d targets", maxTargets)
		}
		r.targets = targets
		return nil
	})
	return noFailures(), err
}

func (t target) check() error {
	if !namePattern.MatchString(t.ID) {
		return refuse("ValidationException", "target id %q must be 1 to 64 of a-z, A-Z, 0-9, '.', '-' and '_'", t.ID)
	}
	if !strings.HasPrefix(t.Arn, "arn:aws:lambda:") {
		return refuse("ValidationException", "Provided Arn is not in correct format or no function: %s", t.Arn)
	}
	if d := t.DeadLetterConfig; d != nil && d.Arn != "" && !strings.HasPrefix(d.Arn, "arn:aws:sqs:") {
		return refuse("ValidationException", "Provided Arn of the dead-letter queue is no queue: %s", d.Arn)
	}
	if t.Input != "" {
		if _, err := parse([]byte(t.Input)); err != nil {
			return refuse("ValidationException", "Input of target %s is no JSON: %v", t.ID, err)
		}
	}
	if p := t.RetryPolicy; p != nil {
		if n := p.MaximumRetryAttempts; n != nil && (*n < 0 || *n > maxRetries) {
			return refuse("ValidationException", "MaximumRetryAttempts %d is not from 0 to %d", *n, maxRetries)
		}
		if n := p.MaximumEventAgeInSeconds; n != nil && (*n < minAge || *n > maxAge) {
			return refuse("ValidationException", "MaximumEventAgeInSeconds %d is not from %d to %d", *n, minAge, maxAge)
		}
	}
	return nil
}

func (b *Bus) listTargetsByRule(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Rule, EventBusName string
		Limit              int
		NextToken          string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	start, err := strconv.Atoi("0" + in.NextToken)
	if err != nil {
		return nil, refuse("ValidationException", "NextToken is not valid")
	}
	var out struct {
		Targets   []target
		NextToken string `json:",omitempty"`
	}
	err = b.onExisting(c, in.Rule, in.EventBusName, func(r *rule) error {
		end := len(r.targets)
		if in.Limit > 0 && start+in.Limit < end {
			end = start + in.Limit
			out.NextToken = strconv.Itoa(end)
		}
		out.Targets = append([]target{}, r.targets[min(start, end):end]...)
		return nil
	})
	return out, err
}

func (b *Bus) removeTargets(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Rule, EventBusName string
		Ids                []string
		Force              bool
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	err := b.onExisting(c, in.Rule, in.EventBusName, func(r *rule) error {
		r.targets = slices.DeleteFunc(r.targets, func(t target) bool { return slices.Contains(in.Ids, t.ID) })
		return nil
	})
	return noFailures(), err
}

// ruleOf returns the name of the rule in its ARN.
func ruleOf(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

func (b *Bus) tagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceARN string
		Tags        []tag
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, b.onExisting(c, ruleOf(in.ResourceARN), "", func(r *rule) error {
		for _, t := range in.Tags {
			r.tags[t.Key] = t.Value
		}
		return nil
	})
}

func (b *Bus) untagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceARN string
		TagKeys     []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, b.onExisting(c, ruleOf(in.ResourceARN), "", func(r *rule) error {
		for _, key := range in.TagKeys {
			delete(r.tags, key)
		}
		return nil
	})
}

func (b *Bus) listTagsForResource(_ context.Context, c *api.Call) (any, error) {
	var in struct{ ResourceARN string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	out := struct{ Tags []tag }{[]tag{}}
	err := b.onExisting(c, ruleOf(in.ResourceARN), "", func(r *rule) error {
		for _, key := range slices.Sorted(maps.Keys(r.tags)) {
			out.Tags = append(out.Tags, tag{key, r.tags[key]})
		}
		return nil
	})
	return out, err
}

func (b *Bus) testEventPattern(_ context.Context, c *api.Call) (any, error) {
	var in struct{ EventPattern, Event string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	p, err := parsePattern(in.EventPattern)
	if err != nil {
		return nil, refuse("InvalidEventPatternException", "Event pattern is not valid. Reason: %v", err)
	}
	event, err := parse([]byte(in.Event))
	if err != nil {
		return nil, api.Errorf(http.StatusBadRequest, "ValidationException", "Event is not valid: %v", err)
	}
	return struct{ Result bool }{p.matches(event)}, nil
}
