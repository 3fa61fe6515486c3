package autoscaling_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
)

const (
	launchingTransition   = "autoscaling:EC2_INSTANCE_LAUNCHING"
	terminatingTransition = "autoscaling:EC2_INSTANCE_TERMINATING"
	terminateAction       = "EC2 Instance-terminate Lifecycle Action"
)

// detail is the detail of a lifecycle action's event, as it is on the wire.
type detail struct {
	LifecycleActionToken, AutoScalingGroupName, LifecycleHookName string
	InstanceID                                                    string `json:"EC2InstanceId"`
	LifecycleTransition, NotificationMetadata                     string
	Origin, Destination                                           string
}

// lastAction is the last lifecycle action of a kind.
func (w *world) lastAction(detailType string) detail {
	w.Helper()
	synctest.Wait()
	events := w.events.Of(detailType)
	if len(events) == 0 {
		w.Fatalf("no event %q", detailType)
	}
	text, err := json.Marshal(events[len(events)-1].Detail)
	if err != nil {
		w.Fatal(err)
	}
	var d detail
	if err := json.Unmarshal(text, &d); err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) complete(result string, by func(*sdk.CompleteLifecycleActionInput)) error {
	in := &sdk.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String(groupName), LifecycleHookName: aws.String("hook"), LifecycleActionResult: aws.String(result),
	}
	by(in)
	_, err := w.client.CompleteLifecycleAction(w.Context(), in)
	return err
}

func byToken(token string) func(*sdk.CompleteLifecycleActionInput) {
	return func(in *sdk.CompleteLifecycleActionInput) { in.LifecycleActionToken = aws.String(token) }
}

func byInstance(id string) func(*sdk.CompleteLifecycleActionInput) {
	return func(in *sdk.CompleteLifecycleActionInput) { in.InstanceId = aws.String(id) }
}

func TestTerminatingHookHoldsTheInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1)
		w.putHook(terminatingTransition, 180, "CONTINUE")
		id := *w.group().Instances[0].InstanceId
		w.setDesired(0)
		w.wantStates("Terminating:Wait")
		got := w.lastAction(terminateAction)
		want := detail{
			LifecycleActionToken: got.LifecycleActionToken, AutoScalingGroupName: groupName, LifecycleHookName: "hook", InstanceID: id,
			LifecycleTransition: terminatingTransition, NotificationMetadata: "meta", Origin: "AutoScalingGroup", Destination: "EC2",
		}
		if got != want || len(got.LifecycleActionToken) != 36 {
			t.Errorf("got event %+v, want %+v", got, want)
		}
		if event := w.events.Of(terminateAction)[0]; event.Source != "aws.autoscaling" || event.Resources[0] != *w.group().AutoScalingGroupARN {
			t.Errorf("got event %+v", event)
		}
		if running, _ := w.machines.Running(); running != 1 {
			t.Error("the machine was shut down before the hook was completed")
		}
		if err := w.complete("CONTINUE", byToken(got.LifecycleActionToken)); err != nil {
			t.Fatal(err)
		}
		w.wantStates()
		if err := w.complete("CONTINUE", byToken(got.LifecycleActionToken)); err == nil {
			t.Error("an action was completed twice")
		} else {
			w.wantCode(err, "ValidationError", "No active Lifecycle Action found with token "+got.LifecycleActionToken)
		}
		w.wantCode(w.complete("CONTINUE", byInstance(id)), "ValidationError", "No active Lifecycle Action found with instance ID "+id)
	})
}

func TestHeartbeatRunsOut(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1)
		w.putHook(terminatingTransition, 180, "CONTINUE")
		w.setDesired(0)
		action := w.lastAction(terminateAction)
		<-time.After(179 * time.Second)
		w.wantStates("Terminating:Wait")
		_, err := w.client.RecordLifecycleActionHeartbeat(w.Context(), &sdk.RecordLifecycleActionHeartbeatInput{
			AutoScalingGroupName: aws.String(groupName), LifecycleHookName: aws.String("hook"), LifecycleActionToken: aws.String(action.LifecycleActionToken),
		})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(179 * time.Second)
		w.wantStates("Terminating:Wait")
		<-time.After(time.Second)
		w.wantStates()
	})
}

func TestHeartbeatsDoNotOutlastTheGlobalTimeout(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1)
		w.putHook(terminatingTransition, 30, "CONTINUE")
		w.setDesired(0)
		action := w.lastAction(terminateAction)
		for range 120 { // every 25 s: 3000 s are the most
			<-time.After(25 * time.Second)
			synctest.Wait()
			if len(w.states()) == 0 {
				break
			}
			_, err := w.client.RecordLifecycleActionHeartbeat(w.Context(), &sdk.RecordLifecycleActionHeartbeatInput{
				AutoScalingGroupName: aws.String(groupName), LifecycleHookName: aws.String("hook"), InstanceId: aws.String(action.InstanceID),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		w.wantStates()
		if got := len(w.events.Of("EC2 Instance Terminate Successful")); got != 1 {
			t.Errorf("got %d terminations, want 1", got)
		}
	})
}

func TestLaunchingHook(t *testing.T) {
	t.Parallel()
	for _, result := range []string{"CONTINUE", "ABANDON"} {
		t.Run(result, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.createGroup(0)
				w.putHook(launchingTransition, 60, "ABANDON")
				w.setDesired(1)
				w.wantStates("Pending:Wait")
				first := w.lastAction("EC2 Instance-launch Lifecycle Action").InstanceID
				if err := w.complete(result, byInstance(first)); err != nil {
					t.Fatal(err)
				}
				if result == "CONTINUE" {
					w.wantStates("InService")
					return
				}
				w.wantStates()
				<-time.After(5 * time.Second) // the group tries again after a moment
				w.wantStates("Pending:Wait")
				if second := w.lastAction("EC2 Instance-launch Lifecycle Action").InstanceID; second == first {
					t.Error("no other instance was launched")
				}
				<-time.After(time.Minute) // and this one times out
				synctest.Wait()
				if got := len(w.events.Of("EC2 Instance Launch Unsuccessful")); got != 2 {
					t.Errorf("got %d failed launches, want 2", got)
				}
				activities, err := w.client.DescribeScalingActivities(w.Context(), &sdk.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String(groupName)})
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{"Heartbeat Timeout", "Lifecycle Action Completed with ABANDON Result"} {
					if !slices.ContainsFunc(activities.Activities, func(a types.Activity) bool {
						return a.StatusCode == types.ScalingActivityStatusCodeCancelled && strings.HasSuffix(*a.StatusMessage, " was abandoned: "+want) &&
							strings.HasSuffix(*a.Description, *a.StatusMessage)
					}) {
						t.Errorf("no launch was cancelled by %q", want)
					}
				}
			})
		})
	}
}

func TestInstanceThatDiedPassesTheHookAndIsReplaced(t *testing.T) {
	t.Parallel()
	deaths := map[string]func(w *world, id string){
		"crash": func(w *world, id string) {
			if err := w.ec2.Crash(id); err != nil {
				w.Fatal(err)
			}
		},
		"terminated behind the group's back": func(w *world, id string) { w.ec2.Terminate(id) },
	}
	for name, die := range deaths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.createGroup(1)
				w.putHook(terminatingTransition, 180, "CONTINUE")
				id := *w.group().Instances[0].InstanceId
				die(w, id)
				w.wantStates("InService", "Terminating:Wait")
				action := w.lastAction(terminateAction)
				if action.InstanceID != id {
					t.Errorf("got an action for %s, want %s", action.InstanceID, id)
				}
				if err := w.complete("CONTINUE", byToken(action.LifecycleActionToken)); err != nil {
					t.Fatal(err)
				}
				w.wantStates("InService")
				if got := *w.group().Instances[0].InstanceId; got == id {
					t.Error("the dead instance was not replaced")
				}
			})
		})
	}
}

func TestDeletedHookLetsInstancesGo(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1)
		w.putHook(terminatingTransition, 7200, "CONTINUE")
		w.setDesired(0)
		w.wantStates("Terminating:Wait")
		in := &sdk.DeleteLifecycleHookInput{AutoScalingGroupName: aws.String(groupName), LifecycleHookName: aws.String("hook")}
		if _, err := w.client.DeleteLifecycleHook(w.Context(), in); err != nil {
			t.Fatal(err)
		}
		w.wantStates()
		_, err := w.client.DeleteLifecycleHook(w.Context(), in)
		w.wantCode(err, "ValidationError", "")
	})
}

func TestHookIsDescribedAndChanged(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(0)
		w.putHook(terminatingTransition, 180, "CONTINUE")
		_, err := w.client.PutLifecycleHook(w.Context(), &sdk.PutLifecycleHookInput{
			AutoScalingGroupName: aws.String(groupName), LifecycleHookName: aws.String("hook"), HeartbeatTimeout: aws.Int32(60),
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := w.client.DescribeLifecycleHooks(w.Context(), &sdk.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String(groupName)})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.LifecycleHooks) != 1 {
			t.Fatalf("got %d hooks, want 1", len(out.LifecycleHooks))
		}
		hook := out.LifecycleHooks[0]
		if *hook.HeartbeatTimeout != 60 || *hook.GlobalTimeout != 6000 || *hook.DefaultResult != "CONTINUE" ||
			*hook.LifecycleTransition != terminatingTransition || *hook.NotificationMetadata != "meta" {
			t.Errorf("got hook %+v", hook)
		}
		for name, in := range map[string]*sdk.PutLifecycleHookInput{
			"heartbeat too short": {HeartbeatTimeout: aws.Int32(29)},
			"heartbeat too long":  {HeartbeatTimeout: aws.Int32(7201)},
			"no such result":      {DefaultResult: aws.String("MAYBE")},
			"no such transition":  {LifecycleTransition: aws.String("autoscaling:EC2_INSTANCE_SLEEPING")},
			"target":              {NotificationTargetARN: aws.String("arn:aws:sqs:eu-west-1:123456789012:queue")},
		} {
			in.AutoScalingGroupName, in.LifecycleHookName = aws.String(groupName), aws.String("hook")
			if _, err := w.client.PutLifecycleHook(w.Context(), in); err == nil {
				t.Errorf("%s: was accepted", name)
			}
		}
	})
}

// A function's role may complete the actions of its own cluster's group only.
func TestCompletingIsJudgedByTheGroupsTags(t *testing.T) {
	t.Parallel()
	for cluster, allowed := range map[string]bool{"demo": true, "other": false} {
		t.Run(cluster, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.createGroup(1)
				w.putHook(terminatingTransition, 180, "CONTINUE")
				w.setDesired(0)
				action := w.lastAction(terminateAction)
				err := fake.PutRole(w.Context(), w.door, "leaver", "lambda.amazonaws.com", `{"Version":"2012-10-17","Statement":{"Effect":"Allow",
					"Action":"autoscaling:CompleteLifecycleAction",
					"Resource":"arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/demo-asg",
					"Condition":{"StringEquals":{"autoscaling:ResourceTag/ClusterName":"`+cluster+`"}}}}`)
				if err != nil {
					t.Fatal(err)
				}
				config, err := w.door.As("leaver", "function")
				if err != nil {
					t.Fatal(err)
				}
				w.client = sdk.NewFromConfig(config)
				err = w.complete("CONTINUE", byToken(action.LifecycleActionToken))
				if allowed && err != nil {
					t.Fatal(err)
				}
				if !allowed {
					w.wantCode(err, "AccessDenied", "User: arn:aws:sts::123456789012:assumed-role/leaver/function is not authorized to perform: "+
						"autoscaling:CompleteLifecycleAction on resource: "+w.events.Of(terminateAction)[0].Resources[0]+
						" because no identity-based policy allows the autoscaling:CompleteLifecycleAction action")
				}
			})
		})
	}
}
