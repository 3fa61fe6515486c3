package autoscaling_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// useTemplate has the group launch from another template.
func (w *world) useTemplate(id string) {
	w.Helper()
	if _, err := w.client.UpdateAutoScalingGroup(w.Context(), &sdk.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(groupName),
		LaunchTemplate:       &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(id), Version: aws.String("1")},
	}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) startRefresh(least, most, warmup int32) error {
	_, err := w.client.StartInstanceRefresh(w.Context(), &sdk.StartInstanceRefreshInput{
		AutoScalingGroupName: aws.String(groupName), Strategy: types.RefreshStrategyRolling,
		Preferences: &types.RefreshPreferences{
			MinHealthyPercentage: aws.Int32(least), MaxHealthyPercentage: aws.Int32(most), InstanceWarmup: aws.Int32(warmup), SkipMatching: aws.Bool(true),
		},
	})
	return err
}

func (w *world) refreshStatus() types.InstanceRefreshStatus {
	w.Helper()
	out, err := w.client.DescribeInstanceRefreshes(w.Context(), &sdk.DescribeInstanceRefreshesInput{AutoScalingGroupName: aws.String(groupName)})
	if err != nil {
		w.Fatal(err)
	}
	if len(out.InstanceRefreshes) != 1 {
		w.Fatalf("got refreshes %v, want one", out.InstanceRefreshes)
	}
	return out.InstanceRefreshes[0].Status
}

// kinds are the numbers of instances per type.
func (w *world) kinds() map[string]int {
	w.Helper()
	kinds := map[string]int{}
	for _, each := range w.group().Instances {
		kinds[aws.ToString(each.InstanceType)]++
	}
	return kinds
}

// One node more at a time, none less than desired, and each new one warm
// before an old one goes.
func TestRefreshLaunchesBeforeItTerminates(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(3)
		w.wantStates("InService", "InService", "InService")
		w.useTemplate(w.newTemplate("m5.large"))
		if err := w.startRefresh(100, 101, 30); err != nil {
			w.Fatal(err)
		}
		w.wantCode(w.startRefresh(100, 101, 30), "InstanceRefreshInProgress", "")
		for replaced := range 3 {
			w.wantStates("InService", "InService", "InService", "InService")
			if got, want := w.kinds()["m5.large"], replaced+1; got != want {
				w.Errorf("replacing %d: got %d new instances, want %d", replaced, got, want)
			}
			if got, want := w.refreshStatus(), types.InstanceRefreshStatusInProgress; got != want {
				w.Errorf("replacing %d: the refresh is %s, want %s", replaced, got, want)
			}
			<-time.After(30 * time.Second)
			synctest.Wait()
		}
		w.wantStates("InService", "InService", "InService")
		if got, want := w.kinds()["m5.large"], 3; got != want {
			w.Errorf("got %d new instances, want %d", got, want)
		}
		if got, want := w.refreshStatus(), types.InstanceRefreshStatusSuccessful; got != want {
			w.Errorf("the refresh is %s, want %s", got, want)
		}
	})
}

func TestRefreshIsCancelled(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(2)
		w.wantStates("InService", "InService")
		_, err := w.client.CancelInstanceRefresh(w.Context(), &sdk.CancelInstanceRefreshInput{AutoScalingGroupName: aws.String(groupName)})
		w.wantCode(err, "ActiveInstanceRefreshNotFound", "")
		w.useTemplate(w.newTemplate("m5.large"))
		if err := w.startRefresh(100, 101, 30); err != nil {
			w.Fatal(err)
		}
		w.wantStates("InService", "InService", "InService")
		if _, err := w.client.CancelInstanceRefresh(w.Context(), &sdk.CancelInstanceRefreshInput{AutoScalingGroupName: aws.String(groupName)}); err != nil {
			w.Fatal(err)
		}
		w.wantStates("InService", "InService")
		if got, want := w.refreshStatus(), types.InstanceRefreshStatusCancelled; got != want {
			w.Errorf("the refresh is %s, want %s", got, want)
		}
	})
}

func TestRefreshesThatAreRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.createGroup(1)
		w.wantStates("InService")
		w.wantCode(w.startRefresh(101, 101, 0), "ValidationError", "")
		w.wantCode(w.startRefresh(100, 99, 0), "ValidationError", "")
		w.wantCode(w.startRefresh(90, 191, 0), "ValidationError", "")
	})
}
