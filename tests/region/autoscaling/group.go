package autoscaling

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

type group struct {
	name, arn            string
	created              time.Time
	least, most, desired int
	template             template
	subnet, zone         string
	healthCheckType      string
	gracePeriod          time.Duration
	cooldown, warmup     int
	policies             []string
	tags                 []groupTag
	hooks                []*hook
	members              map[string]*member
	activities           []*activity // the newest first
	refresh              *refresh    // the last one, or nil
	deleting             bool

	backoff *backoff.ExponentialBackOff
	retry   *time.Timer // set while the group waits after a launch that failed
}

type template struct {
	ID      string `xml:"LaunchTemplateId" query:"LaunchTemplateId"`
	Name    string `xml:"LaunchTemplateName" query:"LaunchTemplateName"`
	Version string
}

// settings are the parameters that making and changing a group share; nil and
// empty ones are not given.
type settings struct {
	Name                string    `query:"AutoScalingGroupName,required"`
	Template            *template `query:"LaunchTemplate"`
	MinSize             *int
	MaxSize             *int
	DesiredCapacity     *int
	VPCZoneIdentifier   string
	AvailabilityZones   []string
	HealthCheckType     string
	GracePeriod         *int `query:"HealthCheckGracePeriod"`
	DefaultCooldown     *int
	DefaultWarmup       *int `query:"DefaultInstanceWarmup"`
	TerminationPolicies []string
	Protected           bool `query:"NewInstancesProtectedFromScaleIn"`
	CapacityRebalance   bool
	ServiceLinkedRole   string `query:"ServiceLinkedRoleARN"`
}

// apply changes a group, which is a copy, as far as settings are given.
func (s *Service) apply(g *group, in settings) error {
	if in.Protected {
		return invalid("this region does not protect instances from scale-in")
	}
	if in.CapacityRebalance {
		return invalid("this region has no spot capacity to rebalance")
	}
	set := func(into *int, value *int) {
		if value != nil {
			*into = *value
		}
	}
	set(&g.least, in.MinSize)
	set(&g.most, in.MaxSize)
	set(&g.cooldown, in.DefaultCooldown)
	set(&g.warmup, in.DefaultWarmup)
	set(&g.desired, in.DesiredCapacity)
	if in.DesiredCapacity == nil { // it follows the limits
		g.desired = min(max(g.desired, g.least), g.most)
	}
	if in.GracePeriod != nil {
		g.gracePeriod = time.Duration(*in.GracePeriod) * time.Second
	}
	if g.least < 0 || g.least > g.most {
		return invalid("Max bound, %d, must be greater than or equal to min bound, %d", g.most, g.least)
	}
	if g.desired < g.least || g.desired > g.most {
		return invalid("Desired capacity:%d must be between the specified min size:%d and max size:%d", g.desired, g.least, g.most)
	}
	if in.HealthCheckType != "" {
		for kind := range strings.SplitSeq(in.HealthCheckType, ",") {
			if kind != "EC2" && kind != "EBS" {
				return invalid("this region checks the health of instances by EC2 and EBS only, not by %s", kind)
			}
		}
		g.healthCheckType = in.HealthCheckType
	}
	for _, each := range in.TerminationPolicies {
		if !slices.Contains([]string{policyDefault, policyOldest, policyNewest, policyOldestTemplate}, each) {
			return invalid("this region does not know the termination policy %s", each)
		}
	}
	if len(in.TerminationPolicies) > 0 {
		g.policies = in.TerminationPolicies
	}
	if err := s.applySubnet(g, in); err != nil {
		return err
	}
	return s.applyTemplate(g, in)
}

func (s *Service) applySubnet(g *group, in settings) error {
	subnet := in.VPCZoneIdentifier
	switch {
	case strings.Contains(subnet, ",") || len(in.AvailabilityZones) > 1:
		return invalid("this region's groups have one subnet")
	case subnet == "" && len(in.AvailabilityZones) == 1:
		found, ok := s.config.EC2.DefaultSubnet(in.AvailabilityZones[0])
		if !ok {
			return invalid("Invalid availability zones: [%s]", in.AvailabilityZones[0])
		}
		subnet = found
	case subnet == "":
		subnet = g.subnet
	}
	if subnet == "" {
		return invalid("At least one Availability Zone or VPC Subnet is required.")
	}
	zone, ok := s.config.EC2.SubnetZone(subnet)
	if !ok {
		return invalid("The subnet ID '%s' does not exist", subnet)
	}
	if len(in.AvailabilityZones) == 1 && in.AvailabilityZones[0] != zone {
		return invalid("The availability zones of the specified subnets and the AutoScalingGroup do not match")
	}
	g.subnet, g.zone = subnet, zone
	return nil
}

func (s *Service) applyTemplate(g *group, in settings) error {
	if in.Template != nil {
		id, name, err := s.config.EC2.FindTemplate(in.Template.ID, in.Template.Name)
		if err != nil {
			return invalid("You must use a valid fully-formed launch template. %s", message(err))
		}
		g.template = template{ID: id, Name: name, Version: cmp.Or(in.Template.Version, "$Default")}
	}
	if g.template.ID == "" {
		return invalid("Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
	}
	if in.Template == nil && in.VPCZoneIdentifier == "" {
		return nil
	}
	if err := s.config.EC2.CheckLaunch(g.launchRequest()); err != nil {
		return invalid("You must use a valid fully-formed launch template. %s", message(err))
	}
	return nil
}

// message is an error's own words, without its code.
func message(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

type createGroupInput struct {
	settings
	Tags        []groupTag
	Hooks       []hookSpecification `query:"LifecycleHookSpecificationList"`
	ClientToken string
}

func (s *Service) createGroup(c *api.Call, in createGroupInput) (any, error) {
	context := map[string]string{}
	for _, each := range in.Tags {
		context["aws:RequestTag/"+each.Key] = each.Value
	}
	if err := c.Authorize(api.Access{Action: c.IAMAction(), Resource: s.groupARN("*", in.Name), Context: context}); err != nil {
		return nil, err
	}
	valid := in.Name != "" && len(in.Name) <= 255
	for _, r := range in.Name {
		valid = valid && r >= '!' && r <= '~' && r != ':'
	}
	if !valid {
		return nil, invalid("AutoScalingGroupName must be of 1 to 255 printable ASCII characters other than a space and a colon")
	}
	if s.groups[in.Name] != nil {
		return nil, api.Errorf(http.StatusBadRequest, "AlreadyExists", "AutoScalingGroup by this name already exists - A group with the name %s already exists", in.Name)
	}
	if in.MinSize == nil || in.MaxSize == nil {
		return nil, invalid("MinSize and MaxSize are required")
	}
	g := &group{
		name: in.Name, arn: s.groupARN(uuid.NewString(), in.Name), created: time.Now(), healthCheckType: "EC2", cooldown: 300,
		policies: []string{policyDefault}, members: map[string]*member{}, backoff: newBackoff(),
	}
	if err := s.apply(g, in.settings); err != nil {
		return nil, err
	}
	for _, each := range in.Tags {
		if err := each.check(); err != nil {
			return nil, err
		}
		g.setTag(each)
	}
	for _, each := range in.Hooks {
		if err := g.putHook(each); err != nil {
			return nil, err
		}
	}
	s.groups[g.name] = g
	s.reconcile(g, "a user request created an AutoScalingGroup changing the desired capacity from 0 to "+strconv.Itoa(g.desired))
	return nil, nil
}

func (s *Service) updateGroup(c *api.Call, in settings) (any, error) {
	g, err := s.authorizedGroup(c, in.Name)
	if err != nil {
		return nil, err
	}
	if g.deleting {
		return nil, inProgress("AutoScalingGroup is being deleted: %s", g.name)
	}
	changed := *g
	if err := s.apply(&changed, in); err != nil {
		return nil, err
	}
	if changed.template != g.template {
		changed.stopRetry()
		changed.backoff.Reset()
	}
	before := g.desired
	*g = changed
	s.reconcile(g, desiredChange(before, g.desired))
	return nil, nil
}

func desiredChange(before, after int) string {
	return "a user request update of AutoScalingGroup constraints changing the desired capacity from " +
		strconv.Itoa(before) + " to " + strconv.Itoa(after)
}

func inProgress(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "ScalingActivityInProgress", format, args...)
}

type deleteGroupInput struct {
	Name  string `query:"AutoScalingGroupName,required"`
	Force bool   `query:"ForceDelete"`
}

func (s *Service) deleteGroup(c *api.Call, in deleteGroupInput) (any, error) {
	g, err := s.authorizedGroup(c, in.Name)
	if err != nil {
		return nil, err
	}
	if len(g.members) > 0 && !in.Force {
		return nil, api.Errorf(http.StatusBadRequest, "ResourceInUse",
			"You cannot delete an AutoScalingGroup while there are instances or pending activities still in the group.")
	}
	g.deleting, g.desired, g.least = true, 0, 0
	for _, m := range sorted(g.members) {
		if m.isTerminating() {
			for _, each := range slices.Clone(m.actions) {
				s.complete(g, m, each, resultContinue, completedWith(resultContinue))
			}
			continue
		}
		s.beginTermination(g, m, "a user request force-deleted the AutoScalingGroup")
	}
	s.reconcile(g, "")
	return nil, nil
}

type setDesiredCapacityInput struct {
	Name     string `query:"AutoScalingGroupName,required"`
	Desired  int    `query:"DesiredCapacity,required"`
	Cooldown bool   `query:"HonorCooldown"` // there are no cooldowns to honour
}

func (s *Service) setDesiredCapacity(c *api.Call, in setDesiredCapacityInput) (any, error) {
	g, err := s.authorizedGroup(c, in.Name)
	if err != nil {
		return nil, err
	}
	if g.deleting {
		return nil, inProgress("AutoScalingGroup is being deleted: %s", g.name)
	}
	if in.Desired > g.most {
		return nil, invalid("New SetDesiredCapacity value %d is above max value %d for the AutoScalingGroup.", in.Desired, g.most)
	}
	if in.Desired < g.least {
		return nil, invalid("New SetDesiredCapacity value %d is below min value %d for the AutoScalingGroup.", in.Desired, g.least)
	}
	before := g.desired
	g.desired = in.Desired
	s.reconcile(g, "a user request explicitly set group desired capacity changing the desired capacity from "+
		strconv.Itoa(before)+" to "+strconv.Itoa(g.desired))
	return nil, nil
}

func (g *group) launchRequest() ec2.LaunchRequest {
	tags := map[string]string{"aws:autoscaling:groupName": g.name}
	for _, each := range g.tags {
		if each.Propagate {
			tags[each.Key] = each.Value
		}
	}
	return ec2.LaunchRequest{TemplateID: g.template.ID, Version: g.template.Version, SubnetID: g.subnet, Tags: tags}
}

// The termination policies that the region knows.
const (
	policyDefault        = "Default"
	policyOldest         = "OldestInstance"
	policyNewest         = "NewestInstance"
	policyOldestTemplate = "OldestLaunchTemplate"
)

// victim chooses the instance that a scale-in terminates, by the group's
// policies; the oldest of those that are alike.
func (g *group) victim(candidates []*member) *member {
	age := func(a, b *member) int { return a.launched.Compare(b.launched) }
	version := func(a, b *member) int { return cmp.Compare(a.templateVersion, b.templateVersion) }
	return slices.MinFunc(candidates, func(a, b *member) int {
		for _, policy := range g.policies {
			order := 0
			switch policy {
			case policyOldest:
				order = age(a, b)
			case policyNewest:
				order = age(b, a)
			case policyOldestTemplate, policyDefault:
				order = version(a, b)
			}
			if order != 0 {
				return order
			}
		}
		return cmp.Or(age(a, b), strings.Compare(a.id, b.id))
	})
}

func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = time.Second, time.Minute
	b.Reset()
	return b
}

func (g *group) stopRetry() {
	if g.retry != nil {
		g.retry.Stop()
		g.retry = nil
	}
}

type describeGroupsInput struct {
	Names      []string `query:"AutoScalingGroupNames"`
	Filters    []filter
	MaxRecords int
	NextToken  string
}

type groupXML struct {
	Name              string   `xml:"AutoScalingGroupName"`
	ARN               string   `xml:"AutoScalingGroupARN"`
	Template          template `xml:"LaunchTemplate"`
	MinSize           int
	MaxSize           int
	DesiredCapacity   int
	DefaultCooldown   int
	Zones             []string `xml:"AvailabilityZones>member"`
	HealthCheckType   string
	GracePeriod       int         `xml:"HealthCheckGracePeriod"`
	Instances         []memberXML `xml:"Instances>member"`
	CreatedTime       string
	VPCZoneIdentifier string
	Status            string   `xml:",omitempty"`
	Tags              []tagXML `xml:"Tags>member"`
	Policies          []string `xml:"TerminationPolicies>member"`
	Protected         bool     `xml:"NewInstancesProtectedFromScaleIn"`
	Warmup            int      `xml:"DefaultInstanceWarmup,omitempty"`
	Role              string   `xml:"ServiceLinkedRoleARN"`
}

func (s *Service) groupXML(g *group) groupXML {
	x := groupXML{
		Name: g.name, ARN: g.arn, Template: g.template, MinSize: g.least, MaxSize: g.most, DesiredCapacity: g.desired,
		DefaultCooldown: g.cooldown, Zones: []string{g.zone}, HealthCheckType: g.healthCheckType, GracePeriod: int(g.gracePeriod.Seconds()),
		CreatedTime: timestamp(g.created), VPCZoneIdentifier: g.subnet, Tags: g.tagsXML(), Policies: g.policies, Warmup: g.warmup,
		Role: "arn:aws:iam::" + s.config.AccountID + ":role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
	}
	if g.deleting {
		x.Status = "Delete in progress"
	}
	for _, m := range sorted(g.members) {
		x.Instances = append(x.Instances, m.xml(g))
	}
	return x
}

type describeGroupsOutput struct {
	Groups    []groupXML `xml:"AutoScalingGroups>member"`
	NextToken string     `xml:",omitempty"`
}

func (s *Service) describeGroups(c *api.Call, in describeGroupsInput) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	var selected []*group
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		if len(in.Names) > 0 && !slices.Contains(in.Names, name) {
			continue
		}
		fits, err := s.groups[name].fits(in.Filters)
		if err != nil {
			return nil, err
		}
		if fits {
			selected = append(selected, s.groups[name])
		}
	}
	cut, next, err := page(selected, func(g *group) string { return g.name }, in.MaxRecords, in.NextToken)
	out := describeGroupsOutput{NextToken: next}
	for _, each := range cut {
		out.Groups = append(out.Groups, s.groupXML(each))
	}
	return out, err
}
