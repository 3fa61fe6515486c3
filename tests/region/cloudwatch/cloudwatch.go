// Package cloudwatch is CloudWatch of the region, as far as alarms need it:
// alarms on one metric, whose state is judged by the metric's latest value when
// somebody asks. Periods, statistics and actions are kept and not carried out.
package cloudwatch

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
)

// Metrics tells the latest value of a metric, false when it has none.
type Metrics func(namespace, name string, dimensions map[string]string) (float64, bool)

// Config is what the service needs; every field is required.
type Config struct {
	Account, Region string
	Metrics         Metrics
}

// Alarms is the service.
type Alarms struct {
	config Config

	mu     sync.Mutex
	alarms map[string]*alarm
}

// New makes the service.
func New(config Config) *Alarms {
	return &Alarms{config: config, alarms: map[string]*alarm{}}
}

type tag struct{ Key, Value string }

type dimension struct{ Name, Value string }

// definition is an alarm as it was put.
type definition struct {
	AlarmName          string
	AlarmDescription   string `json:",omitempty"`
	ActionsEnabled     *bool  `json:",omitempty"`
	AlarmActions       []string
	OKActions          []string
	InsufficientData   []string `json:"InsufficientDataActions"`
	MetricName         string
	Namespace          string
	Statistic          string
	Dimensions         []dimension
	Period             int
	EvaluationPeriods  int
	DatapointsToAlarm  int `json:",omitempty"`
	Threshold          float64
	ComparisonOperator string
	TreatMissingData   string `json:",omitempty"`
}

type alarm struct {
	definition
	tags map[string]string
}

// ARN is the ARN of an alarm.
func (a *Alarms) ARN(name string) string {
	return "arn:aws:cloudwatch:" + a.config.Region + ":" + a.config.Account + ":alarm:" + name
}

// Service is the service for the region's front door.
func (a *Alarms) Service() *api.Service {
	return &api.Service{
		Name:      "monitoring",
		IAMPrefix: "cloudwatch",
		Protocol:  api.CBOR,
		Operations: map[string]api.Operation{
			"PutMetricAlarm":      a.putMetricAlarm,
			"DescribeAlarms":      a.describeAlarms,
			"DeleteAlarms":        a.deleteAlarms,
			"ListTagsForResource": a.listTagsForResource,
			"TagResource":         a.tagResource,
			"UntagResource":       a.untagResource,
		},
	}
}

func decode(c *api.Call, into any) error {
	return jsonbody.Decode(c, "InvalidParameterValue", into)
}

func invalid(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "ValidationError", format, args...)
}

// comparisons are the operators that compare with a fixed threshold.
var comparisons = map[string]func(value, threshold float64) bool{
	"GreaterThanThreshold":          func(v, t float64) bool { return v > t },
	"GreaterThanOrEqualToThreshold": func(v, t float64) bool { return v >= t },
	"LessThanThreshold":             func(v, t float64) bool { return v < t },
	"LessThanOrEqualToThreshold":    func(v, t float64) bool { return v <= t },
}

func (a *Alarms) putMetricAlarm(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		definition
		Tags []tag
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(a.ARN(in.AlarmName)); err != nil {
		return nil, err
	}
	switch {
	case in.AlarmName == "" || len(in.AlarmName) > 255:
		return nil, invalid("AlarmName must be 1 to 255 characters long")
	case comparisons[in.ComparisonOperator] == nil:
		return nil, invalid("ComparisonOperator %q is not one of this region's", in.ComparisonOperator)
	case in.EvaluationPeriods < 1 || in.DatapointsToAlarm > in.EvaluationPeriods:
		return nil, invalid("EvaluationPeriods must be 1 or more, and DatapointsToAlarm at most that")
	case in.Period < 60 && in.Period != 10 && in.Period != 20 && in.Period != 30 || in.Period%10 != 0:
		return nil, invalid("Period must be 10, 20, 30 or a multiple of 60")
	case in.MetricName == "" || in.Namespace == "" || in.Statistic == "":
		return nil, invalid("MetricName, Namespace and Statistic must be given")
	case !slices.Contains([]string{"", "breaching", "notBreaching", "ignore", "missing"}, in.TreatMissingData):
		return nil, invalid("TreatMissingData %q is unknown", in.TreatMissingData)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	made := &alarm{definition: in.definition, tags: map[string]string{}}
	if old := a.alarms[in.AlarmName]; old != nil {
		made.tags = old.tags // those of the call are for a new alarm only
	} else {
		for _, t := range in.Tags {
			made.tags[t.Key] = t.Value
		}
	}
	a.alarms[in.AlarmName] = made
	return nil, nil
}

// state judges an alarm.
func (a *Alarms) state(of *alarm) string {
	dimensions := map[string]string{}
	for _, d := range of.Dimensions {
		dimensions[d.Name] = d.Value
	}
	value, ok := a.config.Metrics(of.Namespace, of.MetricName, dimensions)
	breaches := ok && comparisons[of.ComparisonOperator](value, of.Threshold)
	switch {
	case breaches || !ok && of.TreatMissingData == "breaching":
		return "ALARM"
	case ok || of.TreatMissingData == "notBreaching":
		return "OK"
	}
	return "INSUFFICIENT_DATA"
}

func (a *Alarms) describeAlarms(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		AlarmNames      []string
		AlarmNamePrefix string
		AlarmTypes      []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	type described struct {
		definition
		AlarmARN   string `json:"AlarmArn"`
		StateValue string
	}
	out := struct{ MetricAlarms []described }{[]described{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.alarms)) {
		if in.AlarmNames != nil && !slices.Contains(in.AlarmNames, name) || !strings.HasPrefix(name, in.AlarmNamePrefix) {
			continue
		}
		found := a.alarms[name]
		out.MetricAlarms = append(out.MetricAlarms, described{found.definition, a.ARN(name), a.state(found)})
	}
	return out, nil
}

func (a *Alarms) deleteAlarms(_ context.Context, c *api.Call) (any, error) {
	var in struct{ AlarmNames []string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var arns []string
	for _, name := range in.AlarmNames {
		arns = append(arns, a.ARN(name))
	}
	if err := c.AuthorizeOn(arns...); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range in.AlarmNames {
		delete(a.alarms, name) // unknown ones are no error
	}
	return nil, nil
}

// on authorizes a call on an alarm and does the work under the lock.
func (a *Alarms) on(c *api.Call, arn string, work func(*alarm)) error {
	if err := c.AuthorizeOn(arn); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.alarms[arn[strings.LastIndex(arn, ":")+1:]]
	if found == nil {
		return api.Errorf(http.StatusNotFound, "ResourceNotFoundException", "%s does not exist", arn)
	}
	work(found)
	return nil
}

func (a *Alarms) listTagsForResource(_ context.Context, c *api.Call) (any, error) {
	var in struct{ ResourceARN string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	out := struct{ Tags []tag }{[]tag{}}
	err := a.on(c, in.ResourceARN, func(found *alarm) {
		for _, key := range slices.Sorted(maps.Keys(found.tags)) {
			out.Tags = append(out.Tags, tag{key, found.tags[key]})
		}
	})
	return out, err
}

func (a *Alarms) tagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceARN string
		Tags        []tag
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, a.on(c, in.ResourceARN, func(found *alarm) {
		for _, t := range in.Tags {
			found.tags[t.Key] = t.Value
		}
	})
}

func (a *Alarms) untagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceARN string
		TagKeys     []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, a.on(c, in.ResourceARN, func(found *alarm) {
		for _, key := range in.TagKeys {
			delete(found.tags, key)
		}
	})
}
