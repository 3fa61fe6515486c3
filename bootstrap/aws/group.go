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

// Instances returns every pending or running instance that carries the
// cluster's tag, from all pages, or an error: never a part of the list.
func (g Group) Instances(ctx context.Context) ([]membership.Instance, error) {
	pages := ec2.NewDescribeInstancesPaginator(g.EC2, &ec2.DescribeInstancesInput{
		Filters: []types.Filter{
			{Name: aws.String("tag:" + settings.TagClusterName), Values: []string{g.Cluster}},
			{Name: aws.String("instance-state-name"), Values: []string{
				string(types.InstanceStateNamePending), string(types.InstanceStateNameRunning),
			}},
		},
	})
	var instances []membership.Instance
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the instances of cluster %s: %w", g.Cluster, err)
		}
		for _, reservation := range page.Reservations {
			for _, instance := range reservation.Instances {
				instances = append(instances, membership.Instance{
					ID:       aws.ToString(instance.InstanceId),
					IP:       aws.ToString(instance.PrivateIpAddress),
					Launched: aws.ToTime(instance.LaunchTime),
					Node:     hasTag(instance.Tags, settings.TagRole, settings.RoleNode),
				})
			}
		}
	}
	return instances, nil
}

func hasTag(tags []types.Tag, key, value string) bool {
	for _, tag := range tags {
		if aws.ToString(tag.Key) == key && aws.ToString(tag.Value) == value {
			return true
		}
	}
	return false
}
