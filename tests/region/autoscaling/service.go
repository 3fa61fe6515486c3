package autoscaling

import (
	"cmp"
	"context"
	"encoding/base64"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/query"
	"github.com/etcfs/pulumi-etcfs/tests/region/queue"
)

// Events takes events, as the default event bus does. It is called by one
// goroutine, in the order in which things happened.
type Events interface {
	Emit(ctx context.Context, source, detailType string, resources []string, detail any)
}

// Config is what the service needs; every field is required.
type Config struct {
	Region    string
	AccountID string
	// EC2 launches and terminates the instances.
	EC2 *ec2.Service
	// Events takes the lifecycle actions and what came of launches and
	// terminations.
	Events Events
	// Logger tells what groups do.
	Logger *slog.Logger
}

// Service is the Auto Scaling of one account in one region.
type Service struct {
	config Config
	outbox queue.Queue

	// lifetime ends with Close.
	lifetime context.Context //nolint:containedctx // events are emitted outside of any call
	end      context.CancelFunc

	mu     sync.Mutex
	closed bool
	groups map[string]*group
}

// New makes the service.
func New(config Config) *Service {
	lifetime, end := context.WithCancel(context.Background())
	s := &Service{config: config, lifetime: lifetime, end: end, groups: map[string]*group{}}
	config.EC2.Watch(s.instanceChanged)
	return s
}

// API is the service's table of operations.
func (s *Service) API() *api.Service {
	return &api.Service{
		Name:      "autoscaling",
		Protocol:  api.Query,
		Namespace: "http://autoscaling.amazonaws.com/doc/2011-01-01/",
		Operations: map[string]api.Operation{
			"CreateAutoScalingGroup":              operation(s, s.createGroup),
			"UpdateAutoScalingGroup":              operation(s, s.updateGroup),
			"DeleteAutoScalingGroup":              operation(s, s.deleteGroup),
			"DescribeAutoScalingGroups":           operation(s, s.describeGroups),
			"DescribeAutoScalingInstances":        operation(s, s.describeInstances),
			"DescribeScalingActivities":           operation(s, s.describeActivities),
			"SetDesiredCapacity":                  operation(s, s.setDesiredCapacity),
			"SetInstanceHealth":                   operation(s, s.setInstanceHealth),
			"TerminateInstanceInAutoScalingGroup": operation(s, s.terminateInstance),

			"StartInstanceRefresh":      operation(s, s.startRefresh),
			"CancelInstanceRefresh":     operation(s, s.cancelRefresh),
			"DescribeInstanceRefreshes": operation(s, s.describeRefreshes),

			"PutLifecycleHook":               operation(s, s.putHook),
			"DeleteLifecycleHook":            operation(s, s.deleteHook),
			"DescribeLifecycleHooks":         operation(s, s.describeHooks),
			"CompleteLifecycleAction":        operation(s, s.completeAction),
			"RecordLifecycleActionHeartbeat": operation(s, s.recordHeartbeat),

			"CreateOrUpdateTags": operation(s, s.createOrUpdateTags),
			"DeleteTags":         operation(s, s.deleteTags),
			"DescribeTags":       operation(s, s.describeTags),
		},
	}
}

// operation makes an operation of a function from its parameters to its
// result, which runs with the mutex held. A parameter that the function does
// not take is refused.
func operation[In any](s *Service, run func(c *api.Call, in In) (any, error)) api.Operation {
	return func(_ context.Context, c *api.Call) (any, error) {
		var in In
		if err := query.Decode(c.Params, &in); err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		result, err := run(c, in)
		if result == nil {
			result = struct{}{} // the SDK looks for a result, be it empty
		}
		return result, err
	}
}

// Close stops every group: none launches or terminates anything any more.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for _, g := range s.groups {
		g.stopRetry()
		for _, m := range g.members {
			m.cancelActions()
		}
	}
	s.mu.Unlock()
	s.end()
	s.outbox.Wait()
}

// emit sends an event once the mutex is free again.
func (s *Service) emit(detailType string, resources []string, detail any) {
	s.outbox.Add(func() { s.config.Events.Emit(s.lifetime, "aws.autoscaling", detailType, resources, detail) })
}

func (s *Service) instanceARN(id string) string {
	return "arn:aws:ec2:" + s.config.Region + ":" + s.config.AccountID + ":instance/" + id
}

func (s *Service) groupARN(id, name string) string {
	return "arn:aws:autoscaling:" + s.config.Region + ":" + s.config.AccountID + ":autoScalingGroup:" + id + ":autoScalingGroupName/" + name
}

func invalid(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "ValidationError", format, args...)
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// authorizeGroup asks for the call's own action on a group.
func (s *Service) authorizeGroup(c *api.Call, g *group) error {
	context := map[string]string{}
	for _, each := range g.tags {
		context["aws:ResourceTag/"+each.Key] = each.Value
		context["autoscaling:ResourceTag/"+each.Key] = each.Value
	}
	return c.Authorize(api.Access{Action: c.IAMAction(), Resource: g.arn, Context: context})
}

// authorizedGroup finds the group that a call names and asks whether the
// caller may.
func (s *Service) authorizedGroup(c *api.Call, name string) (*group, error) {
	g := s.groups[name]
	if g == nil {
		if err := c.AuthorizeOn(s.groupARN("*", name)); err != nil {
			return nil, err
		}
		return nil, invalid("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", name)
	}
	return g, s.authorizeGroup(c, g)
}

// authorizedMember finds the instance that a call names and its group, and
// asks whether the caller may act on the group.
func (s *Service) authorizedMember(c *api.Call, instanceID string) (*group, *member, error) {
	for _, g := range s.groups {
		if m := g.members[instanceID]; m != nil {
			return g, m, s.authorizeGroup(c, g)
		}
	}
	if err := c.AuthorizeOn(s.groupARN("*", "*")); err != nil {
		return nil, nil, err
	}
	return nil, nil, invalid("Instance Id not found - No managed instance found for instance ID: %s", instanceID)
}

// page cuts one page out of what is in order of key. The token names the last
// key of the page before.
func page[T any](all []T, key func(T) string, maxRecords int, token string) (cut []T, next string, err error) {
	const most = 100
	if maxRecords < 0 || maxRecords > most {
		return nil, "", invalid("MaxRecords is %d, it must be between 1 and %d", maxRecords, most)
	}
	if token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, "", api.Errorf(http.StatusBadRequest, "InvalidNextToken", "The token '%s' is invalid", token)
		}
		all = slices.DeleteFunc(slices.Clone(all), func(each T) bool { return key(each) <= string(last) })
	}
	size := cmp.Or(maxRecords, 50)
	if len(all) > size {
		all = all[:size]
		next = base64.RawURLEncoding.EncodeToString([]byte(key(all[size-1])))
	}
	return all, next, nil
}

func sorted[T any](all map[string]T) []T {
	values := make([]T, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		values = append(values, all[key])
	}
	return values
}
