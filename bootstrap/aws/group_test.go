package aws_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	nodeaws "github.com/etcfs/pulumi-etcfs/bootstrap/aws"
)

// pages is EC2 that lists one instance a page, and fails at the page given.
type pages struct {
	total, fails int
	state        types.InstanceStateName
}

func (p pages) DescribeInstances(_ context.Context, input *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	page := len(aws.ToString(input.NextToken)) + 1
	if page == p.fails {
		return nil, errors.New("throttled")
	}
	output := &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: []types.Instance{
		{InstanceId: aws.String("i"), State: &types.InstanceState{Name: p.state}},
	}}}}
	if page < p.total {
		output.NextToken = aws.String("nnnnnnnn"[:page])
	}
	return output, nil
}

// TestInstancesAreAllOrNone: whoever is missing from the list counts as dead.
func TestInstancesAreAllOrNone(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]int{0: 3, 1: 0, 2: 0, 3: 0} {
		got, err := nodeaws.Group{EC2: pages{total: 3, fails: fails, state: types.InstanceStateNameRunning}, Cluster: "demo"}.Instances(t.Context())
		if len(got.Live) != want || (err != nil) != (fails > 0) {
			t.Errorf("with page %d failing: %d instances, %v, want %d", fails, len(got.Live), err, want)
		}
	}
}

// TestInstancesByState: only what is over for good proves a death, and an
// instance that may come back is neither alive nor dead.
func TestInstancesByState(t *testing.T) {
	t.Parallel()
	for state, want := range map[types.InstanceStateName][2]int{
		"pending": {1, 0}, "running": {1, 0}, "stopping": {0, 0}, "stopped": {0, 0}, "shutting-down": {0, 1}, "terminated": {0, 1},
	} {
		got, err := nodeaws.Group{EC2: pages{total: 1, state: state}, Cluster: "demo"}.Instances(t.Context())
		if err != nil || len(got.Live) != want[0] || len(got.Terminated) != want[1] {
			t.Errorf("%s: got %+v, %v, want %d live, %d terminated", state, got, err, want[0], want[1])
		}
	}
}
