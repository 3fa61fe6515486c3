package aws

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/cenkalti/backoff/v5"
)

// launchAPI is the calls that [Launch] makes.
type launchAPI interface {
	autoscaling.DescribeAutoScalingInstancesAPIClient
	CompleteLifecycleAction(context.Context, *autoscaling.CompleteLifecycleActionInput, ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error)
	RecordLifecycleActionHeartbeat(context.Context, *autoscaling.RecordLifecycleActionHeartbeatInput, ...func(*autoscaling.Options)) (*autoscaling.RecordLifecycleActionHeartbeatOutput, error)
}

var _ launchAPI = (*autoscaling.Client)(nil)

// Launch is the lifecycle hook that keeps an instance out of service until its
// bootstrap says that it is ready. Every method is a no-op for an instance that
// does not wait: one that is in service, or in no group.
type Launch struct {
	API launchAPI
	// Hook is the hook's name.
	Hook string
}

// The states of an instance that waits for a launching hook, or is about to.
const (
	statePending     = "Pending"
	statePendingWait = "Pending:Wait"
)

// Waits tells whether the instance waits for the hook.
func (l Launch) Waits(ctx context.Context, instanceID string) (bool, error) {
	_, state, err := l.find(ctx, instanceID)
	return state == statePending || state == statePendingWait, err
}

// Continue puts the instance into service.
func (l Launch) Continue(ctx context.Context, instanceID string) error {
	return l.complete(ctx, instanceID, "CONTINUE")
}

// Abandon has the group terminate and replace the instance.
func (l Launch) Abandon(ctx context.Context, instanceID string) error {
	return l.complete(ctx, instanceID, "ABANDON")
}

// Extend starts the hook's time anew.
func (l Launch) Extend(ctx context.Context, instanceID string) error {
	return l.act(ctx, instanceID, "extend the time of the launch of", func(group string) error {
		_, err := l.API.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{
			AutoScalingGroupName: aws.String(group), LifecycleHookName: aws.String(l.Hook), InstanceId: aws.String(instanceID),
		})
		return err
	})
}

func (l Launch) complete(ctx context.Context, instanceID, result string) error {
	return l.act(ctx, instanceID, "answer "+result+" to the launch of", func(group string) error {
		_, err := l.API.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: aws.String(group), LifecycleHookName: aws.String(l.Hook), InstanceId: aws.String(instanceID),
			LifecycleActionResult: aws.String(result),
		})
		return err
	})
}

func (l Launch) find(ctx context.Context, instanceID string) (group, state string, err error) {
	found, err := l.API.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: []string{instanceID}})
	if err != nil {
		return "", "", fmt.Errorf("ask Auto Scaling for the state of %s: %w", instanceID, err)
	}
	for _, instance := range found.AutoScalingInstances {
		return aws.ToString(instance.AutoScalingGroupName), aws.ToString(instance.LifecycleState), nil
	}
	return "", "", nil
}

// act makes a call for the instance's group as long as the instance waits for
// the hook. It keeps trying for as long as that can help and ctx allows.
func (l Launch) act(ctx context.Context, instanceID, what string, call func(group string) error) error {
	var patience Patience
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		group, state, err := l.find(ctx, instanceID)
		switch {
		case err == nil && state == statePending:
			return struct{}{}, fmt.Errorf("%s does not wait for a hook yet", instanceID)
		case err == nil && state != statePendingWait:
			return struct{}{}, nil
		case err == nil:
			err = call(group)
		}
		if err == nil || Code(err) == "ValidationError" && strings.Contains(err.Error(), "No active Lifecycle Action") {
			return struct{}{}, nil // its time was over, or somebody else was first
		}
		if patience.Over(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(2*time.Minute))
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, instanceID, err)
	}
	return nil
}
