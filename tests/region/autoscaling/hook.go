package autoscaling

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// The transitions that hooks stand in.
const (
	launching = "autoscaling:EC2_INSTANCE_LAUNCHING"
	leaving   = "autoscaling:EC2_INSTANCE_TERMINATING"
)

// The results of a lifecycle action.
const (
	resultContinue = "CONTINUE"
	resultAbandon  = "ABANDON"
)

type hook struct {
	name, transition, result, metadata string
	heartbeat                          time.Duration
}

// waitsAtMost is how long an action can wait, however many heartbeats are
// recorded: https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks.html
func (h *hook) waitsAtMost() time.Duration { return min(48*time.Hour, 100*h.heartbeat) }

// action is a hook that an instance waits for.
type action struct {
	hook     *hook
	token    string
	timer    *time.Timer
	deadline time.Time
}

// hookSpecification is a hook as calls give it.
type hookSpecification struct {
	Name       string  `query:"LifecycleHookName,required"`
	Transition string  `query:"LifecycleTransition"`
	Heartbeat  *int    `query:"HeartbeatTimeout"`
	Result     *string `query:"DefaultResult"`
	Metadata   *string `query:"NotificationMetadata"`
}

const mostHooks = 50

// putHook adds a hook, or changes one as far as the specification says.
func (g *group) putHook(in hookSpecification) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/"
	if len(in.Name) > 255 || strings.Trim(in.Name, allowed) != "" {
		return invalid("LifecycleHookName must be of 1 to 255 letters, digits, and the characters - _ /")
	}
	changed := hook{name: in.Name, transition: in.Transition, result: resultAbandon, heartbeat: time.Hour}
	i := slices.IndexFunc(g.hooks, func(h *hook) bool { return h.name == in.Name })
	if i >= 0 {
		changed = *g.hooks[i]
		changed.transition = cmp.Or(in.Transition, changed.transition)
	}
	if changed.transition != launching && changed.transition != leaving {
		return invalid("LifecycleTransition is %q, it must be %s or %s", changed.transition, launching, leaving)
	}
	if in.Heartbeat != nil {
		if *in.Heartbeat < 30 || *in.Heartbeat > 7200 {
			return invalid("HeartbeatTimeout is %d, it must be between 30 and 7200 seconds", *in.Heartbeat)
		}
		changed.heartbeat = time.Duration(*in.Heartbeat) * time.Second
	}
	if in.Result != nil {
		if *in.Result != resultContinue && *in.Result != resultAbandon {
			return invalid("DefaultResult is %q, it must be CONTINUE or ABANDON", *in.Result)
		}
		changed.result = *in.Result
	}
	if in.Metadata != nil {
		if len(*in.Metadata) > 4000 {
			return invalid("NotificationMetadata exceeds 4000 characters")
		}
		changed.metadata = *in.Metadata
	}
	if i >= 0 {
		g.hooks[i] = &changed
		return nil
	}
	if len(g.hooks) == mostHooks {
		return invalid("The group has %d lifecycle hooks already", mostHooks)
	}
	g.hooks = append(slices.Clone(g.hooks), &changed)
	return nil
}

// lifecycleAction is the detail of the events that hooks send.
type lifecycleAction struct {
	Token       string `json:"LifecycleActionToken"`
	Group       string `json:"AutoScalingGroupName"`
	Hook        string `json:"LifecycleHookName"`
	InstanceID  string `json:"EC2InstanceId"`
	Transition  string `json:"LifecycleTransition"`
	Metadata    string `json:"NotificationMetadata,omitempty"`
	Origin      string
	Destination string
}

// beginActions lets an instance wait for the hooks of a transition, or go on
// when there are none.
func (s *Service) beginActions(g *group, m *member, transition string) {
	detailType, origin, destination := "EC2 Instance-launch Lifecycle Action", "EC2", "AutoScalingGroup"
	if transition == leaving {
		detailType, origin, destination = "EC2 Instance-terminate Lifecycle Action", "AutoScalingGroup", "EC2"
	}
	for _, each := range g.hooks {
		if each.transition != transition || g.deleting {
			continue
		}
		begun := &action{hook: each, token: uuid.NewString(), deadline: time.Now().Add(each.waitsAtMost())}
		m.actions = append(m.actions, begun)
		s.await(g, m, begun)
		s.emit(detailType, []string{g.arn}, lifecycleAction{
			Token: begun.token, Group: g.name, Hook: each.name, InstanceID: m.id, Transition: transition, Metadata: each.metadata,
			Origin: origin, Destination: destination,
		})
	}
	if len(m.actions) == 0 {
		s.actionsDone(g, m)
		return
	}
	m.lifecycle = pendingWait
	if transition == leaving {
		m.lifecycle = terminatingWait
	}
}

// await starts an action's heartbeat: when it runs out, the hook's default
// result is the action's.
func (s *Service) await(g *group, m *member, a *action) {
	var timer *time.Timer
	timer = time.AfterFunc(min(a.hook.heartbeat, time.Until(a.deadline)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.timer == timer && slices.Contains(m.actions, a) && !s.closed {
			s.config.Logger.Info("lifecycle action timed out", "group", g.name, "instance", m.id, "hook", a.hook.name, "result", a.hook.result)
			s.complete(g, m, a, a.hook.result, "Heartbeat Timeout")
		}
	})
	a.timer = timer
}

// complete ends an action. The reason is for the record of a launch that is
// abandoned, which counts as cancelled and not as failed.
func (s *Service) complete(g *group, m *member, a *action, result, reason string) {
	a.timer.Stop()
	m.actions = slices.DeleteFunc(slices.Clone(m.actions), func(each *action) bool { return each == a })
	if result == resultAbandon {
		m.cancelActions() // the other hooks are skipped
		if !m.isTerminating() {
			m.activity.end("Cancelled", "Instance failed to complete user's Lifecycle Action: Lifecycle Action with token "+a.token+" was abandoned: "+reason)
			m.activity.description += ".  Status Reason: " + m.activity.message
			s.emitResult(g, "EC2 Instance Launch Unsuccessful", m.activity, m.id)
			s.retryLater(g)
			s.beginTermination(g, m, "a lifecycle action was abandoned or timed out")
			s.reconcile(g, "an instance that did not enter service is replaced")
			return
		}
	}
	if len(m.actions) == 0 {
		s.actionsDone(g, m)
	}
}

func completedWith(result string) string {
	return "Lifecycle Action Completed with " + result + " Result"
}

// actionsDone moves an instance on that waits for nothing any more.
func (s *Service) actionsDone(g *group, m *member) {
	if m.isTerminating() {
		s.proceedTermination(g, m)
		return
	}
	m.lifecycle = pendingProceed
	s.enterService(g, m)
}

type putHookInput struct {
	Group string `query:"AutoScalingGroupName,required"`
	hookSpecification
}

func (s *Service) putHook(c *api.Call, in putHookInput) (any, error) {
	g, err := s.authorizedGroup(c, in.Group)
	if err != nil {
		return nil, err
	}
	return nil, g.putHook(in.hookSpecification)
}

type deleteHookInput struct {
	Group string `query:"AutoScalingGroupName,required"`
	Name  string `query:"LifecycleHookName,required"`
}

// deleteHook removes a hook. What waits for it goes on: a termination, that is;
// a launch is abandoned.
func (s *Service) deleteHook(c *api.Call, in deleteHookInput) (any, error) {
	g, err := s.authorizedGroup(c, in.Group)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(g.hooks, func(h *hook) bool { return h.name == in.Name })
	if i < 0 {
		return nil, invalid("No Lifecycle Hook found with name %s in the group %s", in.Name, g.name)
	}
	g.hooks = slices.Delete(slices.Clone(g.hooks), i, i+1)
	for _, m := range sorted(g.members) {
		for _, each := range slices.Clone(m.actions) {
			if each.hook.name != in.Name {
				continue
			}
			result := resultAbandon
			if m.isTerminating() {
				result = resultContinue
			}
			s.complete(g, m, each, result, completedWith(result))
		}
	}
	return nil, nil
}

type describeHooksInput struct {
	Group string   `query:"AutoScalingGroupName,required"`
	Names []string `query:"LifecycleHookNames"`
}

type hookXML struct {
	Name       string `xml:"LifecycleHookName"`
	Group      string `xml:"AutoScalingGroupName"`
	Transition string `xml:"LifecycleTransition"`
	Metadata   string `xml:"NotificationMetadata,omitempty"`
	Heartbeat  int    `xml:"HeartbeatTimeout"`
	Global     int    `xml:"GlobalTimeout"`
	Result     string `xml:"DefaultResult"`
}

type describeHooksOutput struct {
	Hooks []hookXML `xml:"LifecycleHooks>member"`
}

func (s *Service) describeHooks(c *api.Call, in describeHooksInput) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	g := s.groups[in.Group]
	if g == nil {
		return nil, invalid("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", in.Group)
	}
	var out describeHooksOutput
	for _, each := range g.hooks {
		if len(in.Names) == 0 || slices.Contains(in.Names, each.name) {
			out.Hooks = append(out.Hooks, hookXML{
				Name: each.name, Group: g.name, Transition: each.transition, Metadata: each.metadata, Result: each.result,
				Heartbeat: int(each.heartbeat.Seconds()), Global: int(each.waitsAtMost().Seconds()),
			})
		}
	}
	return out, nil
}

type actionInput struct {
	Group      string `query:"AutoScalingGroupName,required"`
	Hook       string `query:"LifecycleHookName,required"`
	Token      string `query:"LifecycleActionToken"`
	InstanceID string `query:"InstanceId"`
}

// authorizedAction finds the action that a call names by token or by instance.
func (s *Service) authorizedAction(c *api.Call, in actionInput) (*group, *member, *action, error) {
	g, err := s.authorizedGroup(c, in.Group)
	if err != nil {
		return nil, nil, nil, err
	}
	if !slices.ContainsFunc(g.hooks, func(h *hook) bool { return h.name == in.Hook }) {
		return nil, nil, nil, invalid("No Lifecycle Hook found with name %s in the group %s", in.Hook, g.name)
	}
	if in.Token == "" && in.InstanceID == "" {
		return nil, nil, nil, invalid("Either LifecycleActionToken or InstanceId is required")
	}
	for _, m := range g.members {
		for _, each := range m.actions {
			if each.hook.name == in.Hook && (in.Token == each.token || in.Token == "" && in.InstanceID == m.id) {
				return g, m, each, nil
			}
		}
	}
	if in.Token != "" {
		return nil, nil, nil, invalid("No active Lifecycle Action found with token %s", in.Token)
	}
	return nil, nil, nil, invalid("No active Lifecycle Action found with instance ID %s", in.InstanceID)
}

type completeActionInput struct {
	actionInput
	Result string `query:"LifecycleActionResult,required"`
}

func (s *Service) completeAction(c *api.Call, in completeActionInput) (any, error) {
	g, m, found, err := s.authorizedAction(c, in.actionInput)
	if err != nil {
		return nil, err
	}
	if in.Result != resultContinue && in.Result != resultAbandon {
		return nil, invalid("LifecycleActionResult is %q, it must be CONTINUE or ABANDON", in.Result)
	}
	s.complete(g, m, found, in.Result, completedWith(in.Result))
	return nil, nil
}

func (s *Service) recordHeartbeat(c *api.Call, in actionInput) (any, error) {
	g, m, found, err := s.authorizedAction(c, in)
	if err != nil {
		return nil, err
	}
	found.timer.Stop()
	s.await(g, m, found)
	return nil, nil
}
