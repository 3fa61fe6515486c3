package aws_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	nodeaws "github.com/etcfs/pulumi-etcfs/bootstrap/aws"
)

// pages is EC2 that lists one instance a page, and fails at the page given.
type pages struct {
	total, fails int
	state        types.InstanceStateName
	attached     time.Time // when the instance's network interface was
}

var lastStart = time.Unix(1_700_000_000, 0).UTC()

func (p pages) DescribeInstances(_ context.Context, input *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	page := len(aws.ToString(input.NextToken)) + 1
	if page == p.fails {
		return nil, errors.New("throttled")
	}
	output := &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: []types.Instance{
		{
			InstanceId: aws.String("i"), State: &types.InstanceState{Name: p.state}, LaunchTime: aws.Time(lastStart),
			NetworkInterfaces: []types.InstanceNetworkInterface{
				{}, {Attachment: &types.InstanceNetworkInterfaceAttachment{}},
				{Attachment: &types.InstanceNetworkInterfaceAttachment{AttachTime: aws.Time(p.attached)}},
			},
		},
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
	for state, want := range map[types.InstanceStateName][3]int{
		"pending": {1, 0, 0}, "running": {1, 0, 0}, "stopping": {0, 1, 0}, "stopped": {0, 1, 0}, "shutting-down": {0, 0, 1}, "terminated": {0, 0, 1},
	} {
		got, err := nodeaws.Group{EC2: pages{total: 1, state: state}, Cluster: "demo"}.Instances(t.Context())
		if err != nil || len(got.Live) != want[0] || len(got.Stopped) != want[1] || len(got.Terminated) != want[2] {
			t.Errorf("%s: got %+v, %v, want %d live, %d stopped, %d terminated", state, got, err, want[0], want[1], want[2])
		}
	}
}

// TestFirstLaunch: an instance that was stopped and started is as old as it was,
// although its LaunchTime is new.
func TestFirstLaunch(t *testing.T) {
	t.Parallel()
	for attached, want := range map[time.Time]time.Time{
		lastStart.Add(-time.Hour): lastStart.Add(-time.Hour), lastStart: lastStart, lastStart.Add(time.Hour): lastStart,
	} {
		got, err := nodeaws.Group{EC2: pages{total: 1, state: types.InstanceStateNameRunning, attached: attached}, Cluster: "demo"}.Instances(t.Context())
		if err != nil || len(got.Live) != 1 || !got.Live[0].Launched.Equal(want) {
			t.Errorf("interface attached at %s: got %+v, %v, want it launched at %s", attached, got.Live, err, want)
		}
	}
}
