package aws

import (
	"context"
	"fmt"
	"time"

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
// pages, or an error: never a part of the list.
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
	one := membership.Instance{
		ID:       aws.ToString(instance.InstanceId),
		IP:       aws.ToString(instance.PrivateIpAddress),
		Launched: launched(instance),
		Node:     hasTag(instance.Tags, settings.TagRole, settings.RoleNode),
	}
	switch instance.State.Name {
	case types.InstanceStateNamePending, types.InstanceStateNameRunning:
		instances.Live = append(instances.Live, one)
	case types.InstanceStateNameStopping, types.InstanceStateNameStopped:
		instances.Stopped = append(instances.Stopped, one)
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
		instances.Terminated = append(instances.Terminated, one.ID)
	}
}

// launched is when the instance was first launched. Every start after a stop
// makes LaunchTime anew, but the network interface stays attached.
func launched(instance types.Instance) time.Time {
	first := aws.ToTime(instance.LaunchTime)
	for _, each := range instance.NetworkInterfaces {
		if at := each.Attachment; at != nil && at.AttachTime != nil && at.AttachTime.Before(first) {
			first = *at.AttachTime
		}
	}
	return first
}

func hasTag(tags []types.Tag, key, value string) bool {
	for _, tag := range tags {
		if aws.ToString(tag.Key) == key && aws.ToString(tag.Value) == value {
			return true
		}
	}
	return false
}
