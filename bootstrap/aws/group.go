package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// Group lists the instances of a cluster.
type Group struct {
	EC2     ec2.DescribeInstancesAPIClient
	Cluster string
}

// Instances returns every instance that carries the cluster's tag, from all
// pages, or an error: never a part of the list. One that is stopping or stopped
// is neither live nor terminated: it may come back.
func (g Group) Instances(ctx context.Context) (membership.Instances, error) {
	pages := ec2.NewDescribeInstancesPaginator(g.EC2, &ec2.DescribeInstancesInput{
		Filters: []types.Filter{{Name: aws.String("tag:" + settings.TagClusterName), Values: []string{g.Cluster}}},
	})
	var instances membership.Instances
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return membership.Instances{}, fmt.Errorf("list the instances of cluster %s: %w", g.Cluster, err)
		}
		for _, reservation := range page.Reservations {
			for _, instance := range reservation.Instances {
				add(&instances, instance)
			}
		}
	}
	return instances, nil
}

func add(instances *membership.Instances, instance types.Instance) {
	if instance.State == nil {
		return
	}
	switch id := aws.ToString(instance.InstanceId); instance.State.Name {
	case types.InstanceStateNamePending, types.InstanceStateNameRunning:
		instances.Live = append(instances.Live, membership.Instance{
			ID:       id,
			IP:       aws.ToString(instance.PrivateIpAddress),
			Launched: aws.ToTime(instance.LaunchTime),
			Node:     hasTag(instance.Tags, settings.TagRole, settings.RoleNode),
		})
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
		instances.Terminated = append(instances.Terminated, id)
	case types.InstanceStateNameStopping, types.InstanceStateNameStopped:
	}
}

func hasTag(tags []types.Tag, key, value string) bool {
	for _, tag := range tags {
		if aws.ToString(tag.Key) == key && aws.ToString(tag.Value) == value {
			return true
		}
	}
	return false
}
