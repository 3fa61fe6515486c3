package leave

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// Action is a lifecycle action that waits to be completed.
type Action struct {
	// EventID is the ID of the event that told of it.
	EventID string
	// Group and Hook are the names of the group and of its hook.
	Group, Hook string
	// Token identifies the action.
	Token string
	// Instance is the ID of the instance that is being terminated.
	Instance string
}

const (
	terminateDetailType  = "EC2 Instance-terminate Lifecycle Action"
	terminateTransition  = "autoscaling:EC2_INSTANCE_TERMINATING"
	testNotificationName = "autoscaling:TEST_NOTIFICATION"
)

var instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// lifecycleEvent is the part that the handler reads of events such as
//
//	{
//	  "version": "0",
//	  "id": "12345678-1234-1234-1234-123456789012",
//	  "detail-type": "EC2 Instance-terminate Lifecycle Action",
//	  "source": "aws.autoscaling",
//	  "account": "123456789012",
//	  "time": "2026-11-29T10:00:00Z",
//	  "region": "eu-west-1",
//	  "resources": ["arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:…:autoScalingGroupName/demo-asg"],
//	  "detail": {
//	    "LifecycleActionToken": "87654321-4321-4321-4321-210987654321",
//	    "AutoScalingGroupName": "demo-asg",
//	    "LifecycleHookName": "demo-graceful-leave",
//	    "EC2InstanceId": "i-1234567890abcdef0",
//	    "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
//	    "Origin": "AutoScalingGroup",
//	    "Destination": "EC2"
//	  }
//	}
//
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html
type lifecycleEvent struct {
	ID         string `json:"id"`
	DetailType string `json:"detail-type"`
	// Event is set, at the top, by the test notification that Auto Scaling
	// sends to a hook's notification target.
	Event  string `json:"Event"`
	Detail struct {
		Event      string `json:"Event"`
		Token      string `json:"LifecycleActionToken"`
		Group      string `json:"AutoScalingGroupName"`
		Hook       string `json:"LifecycleHookName"`
		Instance   string `json:"EC2InstanceId"`
		Transition string `json:"LifecycleTransition"`
	} `json:"detail"`
}

// judge reads an event and says why it is none of ours, "" when it is.
func (c Config) judge(payload []byte) (action Action, notOurs string) {
	var event lifecycleEvent
	if err := json.Unmarshal(payload, &event); err != nil {
		return Action{}, fmt.Sprintf("not an event: %v", err)
	}
	detail := event.Detail
	action = Action{
		EventID:  event.ID,
		Group:    detail.Group,
		Hook:     detail.Hook,
		Token:    detail.Token,
		Instance: detail.Instance,
	}
	switch {
	case event.Event == testNotificationName, detail.Event == testNotificationName,
		detail.Transition == testNotificationName:
		return action, "a test notification"
	case event.DetailType != terminateDetailType:
		return action, fmt.Sprintf("detail-type is %q, not %q", event.DetailType, terminateDetailType)
	case detail.Transition != terminateTransition:
		return action, fmt.Sprintf("LifecycleTransition is %q, not %q", detail.Transition, terminateTransition)
	case detail.Group != c.Group:
		return action, fmt.Sprintf("it is of group %q, not %q", detail.Group, c.Group)
	case detail.Hook != c.Hook:
		return action, fmt.Sprintf("it is of hook %q, not %q", detail.Hook, c.Hook)
	}
	return action, ""
}
