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
type pages struct{ total, fails int }

func (p pages) DescribeInstances(_ context.Context, input *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	page := len(aws.ToString(input.NextToken)) + 1
	if page == p.fails {
		return nil, errors.New("throttled")
	}
	output := &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: []types.Instance{{InstanceId: aws.String("i")}}}}}
	if page < p.total {
		output.NextToken = aws.String("nnnnnnnn"[:page])
	}
	return output, nil
}

// TestInstancesAreAllOrNone: whoever is missing from the list counts as dead.
func TestInstancesAreAllOrNone(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]int{0: 3, 1: 0, 2: 0, 3: 0} {
		got, err := nodeaws.Group{EC2: pages{total: 3, fails: fails}, Cluster: "demo"}.Instances(t.Context())
		if len(got) != want || (err != nil) != (fails > 0) {
			t.Errorf("with page %d failing: %d instances, %v, want %d", fails, len(got), err, want)
		}
	}
}
