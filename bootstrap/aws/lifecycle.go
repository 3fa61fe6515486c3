package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
)

// Lifecycle reads what Auto Scaling thinks of instances.
type Lifecycle struct {
	API autoscaling.DescribeAutoScalingInstancesAPIClient
}

// GroupState is an instance's state in its Auto Scaling Group.
type GroupState struct {
	// Lifecycle is Pending, InService, Terminating:Wait, …
	Lifecycle string
	// Health is Healthy or Unhealthy, in capitals or not.
	Health string
}

// maxInstanceIDs is how many instances one call may ask for.
const maxInstanceIDs = 50

// States returns the states of those of the instances that belong to a group.
func (l Lifecycle) States(ctx context.Context, instanceIDs []string) (map[string]GroupState, error) {
	states := map[string]GroupState{}
	for ids := range slices.Chunk(instanceIDs, maxInstanceIDs) {
		pages := autoscaling.NewDescribeAutoScalingInstancesPaginator(l.API, &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: ids})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("ask Auto Scaling for the state of %d instances: %w", len(ids), err)
			}
			for _, instance := range page.AutoScalingInstances {
				states[aws.ToString(instance.InstanceId)] = GroupState{
					Lifecycle: aws.ToString(instance.LifecycleState),
					Health:    aws.ToString(instance.HealthStatus),
				}
			}
		}
	}
	return states, nil
}
