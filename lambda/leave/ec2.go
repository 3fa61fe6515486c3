package leave

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// EC2 is [Instances] by the EC2 API.
type EC2 struct {
	Client ec2.DescribeInstancesAPIClient
}

var _ Instances = EC2{}

// Lookup asks for one instance by its ID.
func (e EC2) Lookup(ctx context.Context, instanceID string) (Instance, bool, error) {
	instances, err := e.describe(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{instanceID}})
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "InvalidInstanceID.NotFound" {
		return Instance{}, false, nil
	}
	if err != nil {
		return Instance{}, false, err
	}
	if len(instances) == 0 {
		return Instance{}, false, nil
	}
	instance := Instance{Address: aws.ToString(instances[0].PrivateIpAddress)}
	for _, tag := range instances[0].Tags {
		if aws.ToString(tag.Key) == settings.TagClusterName {
			instance.Cluster = aws.ToString(tag.Value)
		}
	}
	return instance, true, nil
}

// Running lists the instances that carry the cluster's two tags and run.
func (e EC2) Running(ctx context.Context, cluster string) ([]string, error) {
	instances, err := e.describe(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: aws.String("tag:" + settings.TagClusterName), Values: []string{cluster}},
		{Name: aws.String("tag:" + settings.TagRole), Values: []string{settings.RoleNode}},
		{Name: aws.String("instance-state-name"), Values: []string{string(types.InstanceStateNameRunning)}},
	}})
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(instances))
	for i, instance := range instances {
		ids[i] = aws.ToString(instance.InstanceId)
	}
	return ids, nil
}

func (e EC2) describe(ctx context.Context, input *ec2.DescribeInstancesInput) ([]types.Instance, error) {
	var instances []types.Instance
	for pages := ec2.NewDescribeInstancesPaginator(e.Client, input); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, reservation := range page.Reservations {
			instances = append(instances, reservation.Instances...)
		}
	}
	return instances, nil
}
