package autoscaling

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

// The lifecycle states of an instance in a group.
const (
	pending            = "Pending"
	pendingWait        = "Pending:Wait"
	pendingProceed     = "Pending:Proceed"
	inService          = "InService"
	terminating        = "Terminating"
	terminatingWait    = "Terminating:Wait"
	terminatingProceed = "Terminating:Proceed"
)

// member is an instance of a group.
type member struct {
	id, kind        string
	lifecycle       string
	unhealthy       bool
	template        template
	templateVersion int
	launched        time.Time
	inService       time.Time // zero until it is
	activity        *activity // the launch or termination that goes on
	actions         []*action // what it waits for
}

func (m *member) isTerminating() bool { return strings.HasPrefix(m.lifecycle, terminating) }

func (m *member) cancelActions() {
	for _, each := range m.actions {
		each.timer.Stop()
	}
	m.actions = nil
}

// reconcile brings a group as near to its desired capacity as it can come now.
// The cause says what made it necessary, for the record.
func (s *Service) reconcile(g *group, cause string) {
	if s.closed {
		return
	}
	if g.deleting && len(g.members) == 0 {
		g.stopRetry()
		delete(s.groups, g.name)
		return
	}
	var active []*member
	for _, m := range sorted(g.members) {
		if !m.isTerminating() {
			active = append(active, m)
		}
	}
	wanted := s.wanted(g)
	for have := len(active); have < wanted && g.retry == nil; have++ {
		s.launch(g, cause, have)
	}
	for len(active) > wanted {
		victim := g.victim(active)
		active = slices.DeleteFunc(active, func(m *member) bool { return m == victim })
		s.beginTermination(g, victim, cause+". An instance was taken out of service in response to a difference between desired and actual capacity, shrinking the capacity from "+
			strconv.Itoa(len(active)+1)+" to "+strconv.Itoa(len(active)))
	}
}

// launch launches one instance more than the group has.
func (s *Service) launch(g *group, cause string, have int) {
	record := g.record("Launching a new EC2 instance", cause+". An instance was started in response to a difference between desired and actual capacity, increasing the capacity from "+
		strconv.Itoa(have)+" to "+strconv.Itoa(have+1))
	made, err := s.config.EC2.Launch(g.launchRequest())
	if err != nil {
		record.end("Failed", message(err)+" Launching EC2 instance failed.")
		s.emitResult(g, "EC2 Instance Launch Unsuccessful", record, "")
		s.retryLater(g)
		return
	}
	record.description += ": " + made.ID
	g.members[made.ID] = &member{
		id: made.ID, kind: made.Type, lifecycle: pending, template: g.template, templateVersion: made.TemplateVersion,
		launched: made.LaunchTime, activity: record,
	}
}

// retryLater lets the group launch again after a while.
func (s *Service) retryLater(g *group) {
	if g.retry != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(g.backoff.NextBackOff(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g := s.groups[g.name]; g != nil && g.retry == timer {
			g.retry = nil
			s.reconcile(g, "the group tried again after a launch that failed")
		}
	})
	g.retry = timer
}

// instanceChanged follows an instance's state.
func (s *Service) instanceChanged(instance ec2.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, g := range s.groups {
		m := g.members[instance.ID]
		if m == nil {
			continue
		}
		switch {
		case instance.State == ec2.StateRunning:
			if m.lifecycle == pending {
				s.beginActions(g, m, launching)
			}
		case instance.State == ec2.StatePending:
		case !m.isTerminating():
			s.died(g, m, instance)
		case m.lifecycle == terminatingProceed && instance.State == ec2.StateTerminated:
			s.gone(g, m)
		}
		return
	}
}

// died replaces an instance that no longer runs though the group wants it.
func (s *Service) died(g *group, m *member, instance ec2.Instance) {
	m.unhealthy = true
	if m.lifecycle != inService {
		m.activity.end("Failed", "Instance "+m.id+" failed to launch: "+instance.Reason)
		s.emitResult(g, "EC2 Instance Launch Unsuccessful", m.activity, m.id)
		s.retryLater(g)
	}
	s.beginTermination(g, m, "an instance was taken out of service in response to an EC2 health check indicating it has been terminated or stopped")
	s.reconcile(g, "an unhealthy instance is replaced")
}

// enterService ends a launch.
func (s *Service) enterService(g *group, m *member) {
	m.lifecycle, m.inService = inService, time.Now()
	g.backoff.Reset()
	m.activity.end("Successful", "")
	s.emitResult(g, "EC2 Instance Launch Successful", m.activity, m.id)
	s.config.Logger.Debug("instance in service", "group", g.name, "instance", m.id)
	s.advance(g)
}

// beginTermination takes an instance out of service; the terminating hooks run
// unless the group is deleted by force.
func (s *Service) beginTermination(g *group, m *member, cause string) {
	if m.activity.status == statusInProgress {
		m.activity.end("Cancelled", "")
	}
	m.cancelActions()
	m.lifecycle = terminating
	m.activity = g.record("Terminating EC2 instance: "+m.id, cause)
	s.beginActions(g, m, leaving)
}

// proceedTermination terminates the instance after the hooks.
func (s *Service) proceedTermination(g *group, m *member) {
	m.lifecycle = terminatingProceed
	if instance, ok := s.config.EC2.Instance(m.id); !ok || instance.State == ec2.StateTerminated {
		s.gone(g, m) // it was so before the hooks ended
		return
	}
	s.config.EC2.Terminate(m.id)
}

// gone ends a termination.
func (s *Service) gone(g *group, m *member) {
	delete(g.members, m.id)
	m.activity.end("Successful", "")
	s.emitResult(g, "EC2 Instance Terminate Successful", m.activity, m.id)
	s.config.Logger.Debug("instance gone", "group", g.name, "instance", m.id)
	s.reconcile(g, "an instance has been terminated")
	s.advance(g)
}

type memberXML struct {
	ID        string   `xml:"InstanceId"`
	GroupName string   `xml:"AutoScalingGroupName,omitempty"`
	Type      string   `xml:"InstanceType"`
	Zone      string   `xml:"AvailabilityZone"`
	Lifecycle string   `xml:"LifecycleState"`
	Health    string   `xml:"HealthStatus"`
	Template  template `xml:"LaunchTemplate"`
	Protected bool     `xml:"ProtectedFromScaleIn"`
}

func (m *member) xml(g *group) memberXML {
	x := memberXML{ID: m.id, Type: m.kind, Zone: g.zone, Lifecycle: m.lifecycle, Health: "Healthy", Template: m.template}
	x.Template.Version = strconv.Itoa(m.templateVersion)
	if m.unhealthy {
		x.Health = "Unhealthy"
	}
	return x
}

type describeInstancesInput struct {
	IDs        []string `query:"InstanceIds"`
	MaxRecords int
	NextToken  string
}

type describeInstancesOutput struct {
	Instances []memberXML `xml:"AutoScalingInstances>member"`
	NextToken string      `xml:",omitempty"`
}

func (s *Service) describeInstances(c *api.Call, in describeInstancesInput) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	selected := map[string]memberXML{}
	for _, g := range s.groups {
		for id, m := range g.members {
			if len(in.IDs) == 0 || slices.Contains(in.IDs, id) {
				x := m.xml(g)
				x.GroupName = g.name
				x.Health = strings.ToUpper(x.Health) // this call shouts
				selected[id] = x
			}
		}
	}
	cut, next, err := page(sorted(selected), func(m memberXML) string { return m.ID }, in.MaxRecords, in.NextToken)
	return describeInstancesOutput{Instances: cut, NextToken: next}, err
}

type setInstanceHealthInput struct {
	InstanceID string `query:"InstanceId,required"`
	Status     string `query:"HealthStatus,required"`
	Respect    *bool  `query:"ShouldRespectGracePeriod"`
}

func (s *Service) setInstanceHealth(c *api.Call, in setInstanceHealthInput) (any, error) {
	g, m, err := s.authorizedMember(c, in.InstanceID)
	if err != nil {
		return nil, err
	}
	if m.isTerminating() {
		return nil, invalid("The instance %s is not in a state in which its health can be set: %s", m.id, m.lifecycle)
	}
	respect := in.Respect == nil || *in.Respect
	inGrace := g.gracePeriod > 0 && (m.inService.IsZero() || time.Since(m.inService) < g.gracePeriod)
	switch {
	case in.Status == "Healthy":
		m.unhealthy = false
	case in.Status != "Unhealthy":
		return nil, invalid("HealthStatus is %q, it must be Healthy or Unhealthy", in.Status)
	case respect && inGrace:
		// The grace period has it: nothing changes.
	default:
		m.unhealthy = true
		s.beginTermination(g, m, "an instance was taken out of service in response to a user health-check")
		s.reconcile(g, "an unhealthy instance is replaced")
	}
	return nil, nil
}

type terminateInstanceInput struct {
	InstanceID string `query:"InstanceId,required"`
	Decrement  bool   `query:"ShouldDecrementDesiredCapacity,required"`
}

type terminateInstanceOutput struct {
	Activity activityXML
}

func (s *Service) terminateInstance(c *api.Call, in terminateInstanceInput) (any, error) {
	g, m, err := s.authorizedMember(c, in.InstanceID)
	if err != nil {
		return nil, err
	}
	if m.isTerminating() {
		return terminateInstanceOutput{m.activity.xml(g)}, nil
	}
	if in.Decrement {
		if g.desired <= g.least {
			return nil, invalid("Currently, desiredSize equals minSize (%d). Terminating instance without replacement will violate group's min size constraint. "+
				"Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.", g.least)
		}
		g.desired--
	}
	s.beginTermination(g, m, "instance "+m.id+" was taken out of service in response to a user request")
	activity := m.activity.xml(g)
	s.reconcile(g, "an instance was taken out of service in response to a user request")
	return terminateInstanceOutput{activity}, nil
}
