package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/cenkalti/backoff/v5"
)

// healthAPI is the call that [Health] makes.
type healthAPI interface {
	SetInstanceHealth(context.Context, *autoscaling.SetInstanceHealthInput, ...func(*autoscaling.Options)) (*autoscaling.SetInstanceHealthOutput, error)
}

var _ healthAPI = (*autoscaling.Client)(nil)

// Health reports on an instance to its Auto Scaling Group.
type Health struct {
	API healthAPI
}

// ReportUnhealthy has the group terminate and replace the instance, at once:
// without the flag, a report in the grace period after the launch is ignored.
// It keeps trying for as long as trying can help and ctx allows.
func (h Health) ReportUnhealthy(ctx context.Context, instanceID string) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		_, err := h.API.SetInstanceHealth(ctx, &autoscaling.SetInstanceHealthInput{
			InstanceId:               aws.String(instanceID),
			HealthStatus:             aws.String("Unhealthy"),
			ShouldRespectGracePeriod: aws.Bool(false),
		})
		if err != nil && Classify(err) == Stop {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(2*time.Minute))
	if err != nil {
		return fmt.Errorf("report %s unhealthy: %w", instanceID, err)
	}
	return nil
}
