package ec2

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
	"github.com/etcfs/pulumi-etcfs/tests/region/query"
	"github.com/etcfs/pulumi-etcfs/tests/region/queue"
)

// Config is what the service needs; every field is required.
type Config struct {
	Region    string
	AccountID string
	// Directory is where the volumes' files lie.
	Directory string
	// Machines makes the computers that instances run on. Its subnet is the
	// VPC's address block.
	Machines Machines
	// IAM knows the instance profiles and hands out their roles' credentials.
	IAM *iam.Service
	// Events takes the service's events.
	Events Events
	// Logger tells what becomes of machines.
	Logger *slog.Logger
}

// Events takes events, as the default event bus does.
type Events interface {
	Emit(ctx context.Context, source, detailType string, resources []string, detail any)
}

// Service is the EC2 of one account in one region.
type Service struct {
	config  Config
	network network
	catalog catalog

	// lifetime ends with Close; machines start within it.
	lifetime context.Context //nolint:containedctx // machines outlive the calls that launch them
	end      context.CancelFunc
	tasks    sync.WaitGroup
	outbox   queue.Queue

	mu        sync.Mutex
	closed    bool
	groups    map[string]*securityGroup
	volumes   map[string]*volume
	snapshots map[string]*snapshot
	templates map[string]*launchTemplate
	instances map[string]*instance
	tags      map[string]map[string]string // by resource ID
	tokens    map[string]string            // what a client token created, by action and token
	watchers  []func(Instance)
	lastHost  map[string]netip.Addr // the address given out last, by subnet
}

// New makes the service.
func New(config Config) (*Service, error) {
	network, err := newNetwork(config.Region, config.Machines.Subnet())
	if err != nil {
		return nil, fmt.Errorf("lay out the VPC: %w", err)
	}
	lifetime, end := context.WithCancel(context.Background())
	s := &Service{
		config:    config,
		network:   network,
		catalog:   newCatalog(network.zoneNames()),
		lifetime:  lifetime,
		end:       end,
		groups:    map[string]*securityGroup{},
		volumes:   map[string]*volume{},
		snapshots: map[string]*snapshot{},
		templates: map[string]*launchTemplate{},
		instances: map[string]*instance{},
		tags:      map[string]map[string]string{},
		tokens:    map[string]string{},
		lastHost:  map[string]netip.Addr{},
	}
	s.addSecurityGroup("default", "default VPC security group").isDefault = true
	return s, nil
}

// API is the service's table of operations.
func (s *Service) API() *api.Service {
	return &api.Service{
		Name:      "ec2",
		Protocol:  api.EC2Query,
		Namespace: "http://ec2.amazonaws.com/doc/2016-11-15/",
		Operations: map[string]api.Operation{
			"DescribeAvailabilityZones":     operation(s.describeAvailabilityZones),
			"DescribeVpcs":                  operation(s.describeVpcs),
			"DescribeSubnets":               operation(s.describeSubnets),
			"DescribeInstanceTypes":         operation(s.describeInstanceTypes),
			"DescribeInstanceTypeOfferings": operation(s.describeInstanceTypeOfferings),
			"DescribeImages":                operation(s.describeImages),

			"CreateSecurityGroup":           operation(s.createSecurityGroup),
			"DeleteSecurityGroup":           operation(s.deleteSecurityGroup),
			"DescribeSecurityGroups":        operation(s.describeSecurityGroups),
			"DescribeSecurityGroupRules":    operation(s.describeSecurityGroupRules),
			"AuthorizeSecurityGroupIngress": operation(s.authorizeSecurityGroupIngress),
			"AuthorizeSecurityGroupEgress":  operation(s.authorizeSecurityGroupEgress),
			"RevokeSecurityGroupIngress":    operation(s.revokeSecurityGroupIngress),
			"RevokeSecurityGroupEgress":     operation(s.revokeSecurityGroupEgress),
			"ModifySecurityGroupRules":      operation(s.modifySecurityGroupRules),

			"CreateSnapshot":               operation(s.createSnapshot),
			"DescribeSnapshots":            operation(s.describeSnapshots),
			"DeleteSnapshot":               operation(s.deleteSnapshot),
			"CreateVolume":                 operation(s.createVolume),
			"DeleteVolume":                 operation(s.deleteVolume),
			"DescribeVolumes":              operation(s.describeVolumes),
			"ModifyVolume":                 operation(s.modifyVolume),
			"DescribeVolumesModifications": operation(s.describeVolumesModifications),
			"AttachVolume":                 operation(s.attachVolume),
			"DetachVolume":                 operation(s.detachVolume),

			"CreateLaunchTemplate":           operation(s.createLaunchTemplate),
			"CreateLaunchTemplateVersion":    operation(s.createLaunchTemplateVersion),
			"ModifyLaunchTemplate":           operation(s.modifyLaunchTemplate),
			"DeleteLaunchTemplate":           operation(s.deleteLaunchTemplate),
			"DescribeLaunchTemplates":        operation(s.describeLaunchTemplates),
			"DescribeLaunchTemplateVersions": operation(s.describeLaunchTemplateVersions),

			"DescribeInstances":      operation(s.describeInstances),
			"DescribeInstanceStatus": operation(s.describeInstanceStatus),
			"TerminateInstances":     operation(s.terminateInstances),
			"RebootInstances":        operation(s.rebootInstances),
			"GetConsoleOutput":       operation(s.getConsoleOutput),

			"CreateTags":   operation(s.createTags),
			"DeleteTags":   operation(s.deleteTags),
			"DescribeTags": operation(s.describeTags),
		},
	}
}

// operation makes an operation of a function from its parameters to its
// result. A parameter that the function does not take is refused.
func operation[In any](run func(ctx context.Context, c *api.Call, in In) (any, error)) api.Operation {
	return func(ctx context.Context, c *api.Call) (any, error) {
		var in In
		if err := query.Decode(c.Params, &in); err != nil {
			return nil, err
		}
		return run(ctx, c, in)
	}
}

// Close ends every machine at once and removes their disks. Nothing can be
// launched afterwards.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	ended := make(chan struct{})
	go func() {
		s.tasks.Wait()
		s.outbox.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the machines: %w", context.Cause(ctx))
	}
}

// task runs work that outlives the call that began it, unless the service is
// closed; the mutex is held.
func (s *Service) task(work func()) {
	if !s.closed {
		s.tasks.Go(work)
	}
}

func (s *Service) arn(kind, id string) string {
	return "arn:aws:ec2:" + s.config.Region + ":" + s.config.AccountID + ":" + kind + "/" + id
}

// newID makes an ID as EC2 makes them: a prefix and 17 hexadecimal digits.
func newID(prefix string) string {
	var random [9]byte
	_, _ = rand.Read(random[:]) // never fails
	return prefix + "-" + hex.EncodeToString(random[:])[:17]
}

func clientError(code, format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, code, format, args...)
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// keys are the values of condition keys.
type keys map[string]string

// with adds the keys of a resource's tags, in both spellings.
func (k keys) with(tags map[string]string) keys {
	all := maps.Clone(k)
	if all == nil {
		all = keys{}
	}
	for key, value := range tags {
		all["aws:ResourceTag/"+key] = value
		all["ec2:ResourceTag/"+key] = value
	}
	return all
}

// on is an access of the call's own action on a resource that exists.
func (s *Service) on(c *api.Call, kind, id string, context keys) api.Access {
	context = context.with(s.tags[id])
	context["ec2:Region"] = s.config.Region
	return api.Access{Action: c.IAMAction(), Resource: s.arn(kind, id), Context: context}
}

// authorizeDescribe asks for a call that is about no resource in particular.
func (s *Service) authorizeDescribe(c *api.Call) error {
	return c.Authorize(api.Access{Action: c.IAMAction(), Resource: "*", Context: map[string]string{"ec2:Region": s.config.Region}})
}

// authorizeCreate asks for a call that makes a resource, and for tagging it
// where it is made with tags.
func (s *Service) authorizeCreate(c *api.Call, kind string, tags map[string]string, context keys) error {
	context = maps.Clone(context)
	if context == nil {
		context = keys{}
	}
	context["ec2:Region"] = s.config.Region
	for key, value := range tags {
		context["aws:RequestTag/"+key] = value
	}
	accesses := []api.Access{{Action: c.IAMAction(), Resource: s.arn(kind, "*"), Context: context}}
	if len(tags) > 0 {
		tagging := maps.Clone(context)
		tagging["ec2:CreateAction"] = c.Action
		accesses = append(accesses, api.Access{Action: "ec2:CreateTags", Resource: s.arn(kind, "*"), Context: tagging})
	}
	return c.Authorize(accesses...)
}

// sorted returns the values of a map in order of their keys.
func sorted[T any](all map[string]T) []T {
	values := make([]T, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		values = append(values, all[key])
	}
	return values
}
