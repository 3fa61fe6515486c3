package leave

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"
)

// AutoScalingClient holds the calls of the Auto Scaling API that are made.
type AutoScalingClient interface {
	autoscaling.DescribeAutoScalingInstancesAPIClient
	CompleteLifecycleAction(context.Context, *autoscaling.CompleteLifecycleActionInput, ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error)
}

// AutoScaling is [Groups] by the Auto Scaling API.
type AutoScaling struct {
	Client AutoScalingClient
}

var _ Groups = AutoScaling{}

// describeLimit is how many instances one DescribeAutoScalingInstances takes.
const describeLimit = 50

// Leaving counts every state that begins with Terminat, from Terminating to
// Terminated. An instance that belongs to no group leaves none.
func (a AutoScaling) Leaving(ctx context.Context, instanceIDs []string) (map[string]bool, error) {
	leaving := map[string]bool{}
	for chunk := range slices.Chunk(instanceIDs, describeLimit) {
		pages := autoscaling.NewDescribeAutoScalingInstancesPaginator(a.Client,
			&autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: chunk})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, instance := range page.AutoScalingInstances {
				if strings.HasPrefix(aws.ToString(instance.LifecycleState), "Terminat") {
					leaving[aws.ToString(instance.InstanceId)] = true
				}
			}
		}
	}
	return leaving, nil
}

// Continue completes the action by its token and its instance, either of which
// may be missing in the action.
func (a AutoScaling) Continue(ctx context.Context, action Action) (active bool, err error) {
	input := &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName:  aws.String(action.Group),
		LifecycleHookName:     aws.String(action.Hook),
		LifecycleActionResult: aws.String("CONTINUE"),
	}
	if action.Token != "" {
		input.LifecycleActionToken = aws.String(action.Token)
	}
	if instanceID.MatchString(action.Instance) {
		input.InstanceId = aws.String(action.Instance)
	}
	_, err = a.Client.CompleteLifecycleAction(ctx, input, untilContextEnds)
	if nothingWaits(err) {
		return false, nil
	}
	return err == nil, err
}

// nothingWaits says whether Auto Scaling refused to complete an action because
// there is none: it is over, or its hook or its group was deleted, which ends
// whatever waited for them. All of it has one code.
func nothingWaits(err error) bool {
	refusal, ok := errors.AsType[smithy.APIError](err)
	return ok && refusal.ErrorCode() == "ValidationError" && slices.ContainsFunc([]string{
		"No active Lifecycle Action", "No Lifecycle Hook found", "AutoScalingGroup name not found",
	}, func(text string) bool { return strings.Contains(refusal.ErrorMessage(), text) })
}

// untilContextEnds makes the SDK go on trying whatever can pass: contention,
// throttling, faults of the service and of the network. The context bounds the
// tries, so neither their number nor the SDK's retry quota does.
func untilContextEnds(options *autoscaling.Options) {
	standard := retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxBackoff = 2 * time.Second
		o.RateLimiter = ratelimit.None
	})
	options.Retryer = retry.AddWithMaxAttempts(
		retry.AddWithErrorCodes(standard, (*types.ResourceContentionFault)(nil).ErrorCode()), 0)
}
