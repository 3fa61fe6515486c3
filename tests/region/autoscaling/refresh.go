package autoscaling

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// refresh is an instance refresh: the group's instances are replaced until all
// have the group's template. Only rolling ones are modelled, to the template of
// the group itself, without checkpoints, rollback, protected and standby
// instances.
type refresh struct {
	id, status, reason string
	begun, ended       time.Time
	preferences        refreshPreferences
}

type refreshPreferences struct {
	MinHealthyPercentage      *int
	MaxHealthyPercentage      *int
	InstanceWarmup            *int
	SkipMatching              bool
	AutoRollback              bool
	ScaleInProtectedInstances string
	StandbyInstances          string
}

// The states of a refresh.
const (
	refreshRuns      = "InProgress"
	refreshDone      = "Successful"
	refreshCancelled = "Cancelled"
)

func percent(of *int, fallback int) int {
	if of == nil {
		return fallback
	}
	return *of
}

// surge is how many instances more than the desired number the refresh lets the
// group have, and least how many must stay healthy. AWS rounds both up.
func (r *refresh) surge(desired int) int {
	return (desired*percent(r.preferences.MaxHealthyPercentage, 100)+99)/100 - desired
}

func (r *refresh) least(desired int) int {
	return (desired*percent(r.preferences.MinHealthyPercentage, 90) + 99) / 100
}

func (r *refresh) warmup() time.Duration {
	return time.Duration(percent(r.preferences.InstanceWarmup, 0)) * time.Second
}

// wanted is how many instances the group wants now: the desired ones, and
// during a refresh one more for each that is to be replaced, as far as the
// refresh and what still terminates leave room.
func (s *Service) wanted(g *group) int {
	if g.refresh == nil || g.refresh.status != refreshRuns || g.deleting {
		return g.desired
	}
	terminating := 0
	for _, m := range g.members {
		if m.isTerminating() {
			terminating++
		}
	}
	return g.desired + max(0, min(g.refresh.surge(g.desired), len(s.outdated(g)))-terminating)
}

// outdated are the instances that a refresh has yet to replace.
func (s *Service) outdated(g *group) []*member {
	version, err := s.config.EC2.TemplateVersion(g.template.ID, g.template.Version)
	if err != nil {
		return nil // the template is gone: the next launch says so
	}
	var old []*member
	for _, m := range sorted(g.members) {
		if !m.isTerminating() && (m.template.ID != g.template.ID || m.templateVersion != version) {
			old = append(old, m)
		}
	}
	return old
}

// advance takes a refresh as far as it can go now.
func (s *Service) advance(g *group) {
	r := g.refresh
	if r == nil || r.status != refreshRuns || s.closed {
		return
	}
	warm, active := 0, 0
	for _, m := range g.members {
		switch {
		case m.isTerminating():
			return // one after the other
		case m.lifecycle == inService && time.Since(m.inService) >= r.warmup():
			warm++
		case m.lifecycle == inService:
			time.AfterFunc(r.warmup()-time.Since(m.inService), func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if g.refresh == r {
					s.advance(g)
				}
			})
		}
		active++
	}
	old := s.outdated(g)
	switch {
	case len(old) == 0 && warm == active && active == g.desired:
		r.status, r.ended = refreshDone, time.Now()
	case len(old) > 0 && (warm > r.least(g.desired) || r.surge(g.desired) == 0 && warm >= g.desired):
		s.beginTermination(g, g.victim(old), "an instance refresh replaces it")
		s.reconcile(g, "an instance refresh")
	}
}

type startRefreshInput struct {
	Group       string `query:"AutoScalingGroupName,required"`
	Strategy    string
	Preferences refreshPreferences
}

type refreshOutput struct {
	ID string `xml:"InstanceRefreshId"`
}

func (s *Service) startRefresh(c *api.Call, in startRefreshInput) (any, error) {
	g, err := s.authorizedGroup(c, in.Group)
	if err != nil {
		return nil, err
	}
	least, most := percent(in.Preferences.MinHealthyPercentage, 90), percent(in.Preferences.MaxHealthyPercentage, 100)
	switch {
	case in.Strategy != "" && in.Strategy != "Rolling":
		return nil, invalid("this region's instance refreshes are Rolling, not %s", in.Strategy)
	case in.Preferences.AutoRollback:
		return nil, invalid("this region's instance refreshes do not roll back")
	case least < 0 || least > 100 || most < 100 || most > 200 || most-least > 100:
		return nil, invalid("MinHealthyPercentage is 0 to 100, MaxHealthyPercentage 100 to 200 and at most 100 more")
	case g.refresh != nil && g.refresh.status == refreshRuns:
		return nil, api.Errorf(http.StatusBadRequest, "InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh.")
	}
	g.refresh = &refresh{id: uuid.NewString(), status: refreshRuns, begun: time.Now(), preferences: in.Preferences}
	s.reconcile(g, "an instance refresh was started")
	s.advance(g)
	return refreshOutput{g.refresh.id}, nil
}

type cancelRefreshInput struct {
	Group string `query:"AutoScalingGroupName,required"`
}

func (s *Service) cancelRefresh(c *api.Call, in cancelRefreshInput) (any, error) {
	g, err := s.authorizedGroup(c, in.Group)
	if err != nil {
		return nil, err
	}
	if g.refresh == nil || g.refresh.status != refreshRuns {
		return nil, api.Errorf(http.StatusBadRequest, "ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found for Auto Scaling group %s", g.name)
	}
	g.refresh.status, g.refresh.reason, g.refresh.ended = refreshCancelled, "Cancelled by a user request", time.Now()
	s.reconcile(g, "an instance refresh was cancelled")
	return refreshOutput{g.refresh.id}, nil
}

type refreshXML struct {
	ID           string `xml:"InstanceRefreshId"`
	Group        string `xml:"AutoScalingGroupName"`
	Status       string
	StatusReason string `xml:",omitempty"`
	StartTime    string
	EndTime      string `xml:",omitempty"`
	ToUpdate     string `xml:"InstancesToUpdate"`
	Min          int    `xml:"Preferences>MinHealthyPercentage"`
	Max          int    `xml:"Preferences>MaxHealthyPercentage"`
	Warmup       int    `xml:"Preferences>InstanceWarmup"`
	Skip         bool   `xml:"Preferences>SkipMatching"`
}

type describeRefreshesOutput struct {
	Refreshes []refreshXML `xml:"InstanceRefreshes>member"`
}

// describeRefreshes tells the last refresh: the region forgets those before it.
func (s *Service) describeRefreshes(c *api.Call, in cancelRefreshInput) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	g := s.groups[in.Group]
	if g == nil {
		return nil, invalid("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", in.Group)
	}
	var out describeRefreshesOutput
	if r := g.refresh; r != nil {
		x := refreshXML{
			ID: r.id, Group: g.name, Status: r.status, StatusReason: r.reason, StartTime: timestamp(r.begun), ToUpdate: strconv.Itoa(len(s.outdated(g))),
			Min: percent(r.preferences.MinHealthyPercentage, 90), Max: percent(r.preferences.MaxHealthyPercentage, 100),
			Warmup: percent(r.preferences.InstanceWarmup, 0), Skip: r.preferences.SkipMatching,
		}
		if !r.ended.IsZero() {
			x.EndTime = timestamp(r.ended)
		}
		out.Refreshes = append(out.Refreshes, x)
	}
	return out, nil
}
