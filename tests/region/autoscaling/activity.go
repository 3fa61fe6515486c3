package autoscaling

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// activity is the record of one launch or termination.
type activity struct {
	id, description, cause string
	status, message        string
	begun, ended           time.Time
}

const statusInProgress = "InProgress"

// record begins an activity of a group.
func (g *group) record(description, cause string) *activity {
	now := time.Now()
	begun := &activity{id: uuid.NewString(), description: description, status: statusInProgress, begun: now}
	begun.cause = "At " + now.UTC().Format(time.RFC3339) + " " + cause + "."
	g.activities = append([]*activity{begun}, g.activities...)
	return begun
}

func (a *activity) end(status, message string) {
	a.status, a.message, a.ended = status, message, time.Now()
}

// activityResult is the detail of the events that tell what came of a launch
// or termination.
type activityResult struct {
	StatusCode    string
	Description   string
	Group         string `json:"AutoScalingGroupName"`
	ActivityID    string `json:"ActivityId"`
	RequestID     string `json:"RequestId"`
	Details       map[string]string
	StatusMessage string
	StartTime     string
	EndTime       string
	InstanceID    string `json:"EC2InstanceId"`
	Cause         string
}

func (s *Service) emitResult(g *group, detailType string, a *activity, instanceID string) {
	status := statusInProgress // so the events of successes say
	if a.status == "Failed" || a.status == "Cancelled" {
		status = a.status
	}
	resources := []string{g.arn}
	if instanceID != "" {
		resources = append(resources, s.instanceARN(instanceID))
	}
	s.emit(detailType, resources, activityResult{
		StatusCode: status, Description: a.description, Group: g.name, ActivityID: a.id, RequestID: a.id,
		Details:       map[string]string{"Availability Zone": g.zone, "Subnet ID": g.subnet},
		StatusMessage: a.message, StartTime: timestamp(a.begun), EndTime: timestamp(a.ended), InstanceID: instanceID, Cause: a.cause,
	})
}

type activityXML struct {
	ID            string `xml:"ActivityId"`
	GroupName     string `xml:"AutoScalingGroupName"`
	GroupARN      string `xml:"AutoScalingGroupARN"`
	Description   string
	Cause         string
	StartTime     string
	EndTime       string `xml:",omitempty"`
	StatusCode    string
	StatusMessage string `xml:",omitempty"`
	Progress      int
	Details       string
}

func (a *activity) xml(g *group) activityXML {
	x := activityXML{
		ID: a.id, GroupName: g.name, GroupARN: g.arn, Description: a.description, Cause: a.cause, StartTime: timestamp(a.begun),
		StatusCode: a.status, StatusMessage: a.message, Progress: 50,
		Details: `{"Subnet ID":"` + g.subnet + `","Availability Zone":"` + g.zone + `"}`,
	}
	if !a.ended.IsZero() {
		x.EndTime, x.Progress = timestamp(a.ended), 100
	}
	return x
}

type describeActivitiesInput struct {
	Group      string   `query:"AutoScalingGroupName"`
	IDs        []string `query:"ActivityIds"`
	MaxRecords int
}

type describeActivitiesOutput struct {
	Activities []activityXML `xml:"Activities>member"`
}

// describeActivities tells the newest activities of the groups that exist, up
// to a hundred; there are no further pages.
func (s *Service) describeActivities(c *api.Call, in describeActivitiesInput) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	if in.Group != "" && s.groups[in.Group] == nil {
		return nil, invalid("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", in.Group)
	}
	var all []activityXML
	for _, g := range sorted(s.groups) {
		if in.Group != "" && g.name != in.Group {
			continue
		}
		for _, each := range g.activities {
			if len(in.IDs) == 0 || slices.Contains(in.IDs, each.id) {
				all = append(all, each.xml(g))
			}
		}
	}
	most := 100
	if in.MaxRecords > 0 {
		most = min(most, in.MaxRecords)
	}
	return describeActivitiesOutput{Activities: all[:min(len(all), most)]}, nil
}
