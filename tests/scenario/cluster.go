// Package scenario holds the verbs that stories about a running cluster are
// told with: look at it, wait until it is as it should be, scale it, lose a
// node. A story sees what an operator sees, through the APIs of AWS and through
// etcd, and nothing of a simulator's inside, so that it can be told about any
// region.
package scenario

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	bootstrapaws "github.com/etcfs/pulumi-etcfs/bootstrap/aws"
)

// Names are what the component's outputs call the parts of a cluster.
type Names struct {
	// Cluster is the cluster's own name.
	Cluster string
	// Group is the Auto Scaling Group.
	Group string
	// LogGroup holds what the graceful-leave function logs.
	LogGroup string
}

// Cluster is a cluster that a story is told about.
type Cluster struct {
	names   Names
	groups  *autoscaling.Client
	compute *ec2.Client
	agents  *ssm.Client
	logs    *cloudwatchlogs.Client
}

// Open makes a cluster of the names of its parts. It calls nothing yet.
func Open(config aws.Config, names Names) *Cluster {
	return &Cluster{
		names:   names,
		groups:  autoscaling.NewFromConfig(config),
		compute: ec2.NewFromConfig(config),
		agents:  ssm.NewFromConfig(config),
		logs:    cloudwatchlogs.NewFromConfig(config),
	}
}

// Scale sets the group's desired capacity, as a scaling policy does.
func (c *Cluster) Scale(ctx context.Context, nodes int) error {
	_, err := c.groups.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: &c.names.Group,
		DesiredCapacity:      aws.Int32(int32(nodes)),
	})
	if err != nil {
		return fmt.Errorf("scale to %d nodes: %w", nodes, err)
	}
	return nil
}

// Instances lists the cluster's instances that run or are about to, in the
// group or not.
func (c *Cluster) Instances(ctx context.Context) ([]string, error) {
	instances, err := bootstrapaws.Group{EC2: c.compute, Cluster: c.names.Cluster}.Instances(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(instances.Live))
	for i, instance := range instances.Live {
		ids[i] = instance.ID
	}
	return ids, nil
}

// Console returns the last lines that an instance wrote to its console.
func (c *Cluster) Console(ctx context.Context, instanceID string, lines int) (string, error) {
	output, err := c.compute.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &instanceID, Latest: aws.Bool(true)})
	if err != nil {
		return "", fmt.Errorf("read the console of %s: %w", instanceID, err)
	}
	text, err := base64.StdEncoding.DecodeString(aws.ToString(output.Output))
	if err != nil {
		return "", fmt.Errorf("decode the console of %s: %w", instanceID, err)
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n"), nil
}

// Leave is what the graceful-leave function did for one terminating instance.
type Leave struct {
	Instance   string `json:"instance"`
	Survivor   string `json:"survivor"`
	Member     string `json:"member"`
	Outcome    string `json:"outcome"`
	Reason     string `json:"reason"`
	Completion string `json:"completion"`
	// DurationMS is how long the function took, in milliseconds.
	DurationMS int64 `json:"duration"`
}

// Leaves reads what the graceful-leave function has logged so far, in order.
func (c *Cluster) Leaves(ctx context.Context) ([]Leave, error) {
	var leaves []Leave
	pages := cloudwatchlogs.NewFilterLogEventsPaginator(c.logs, &cloudwatchlogs.FilterLogEventsInput{LogGroupName: &c.names.LogGroup})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the graceful-leave function's log: %w", err)
		}
		for _, event := range page.Events {
			var leave Leave
			// Lambda itself writes lines that are no JSON, such as START and REPORT.
			if json.Unmarshal([]byte(aws.ToString(event.Message)), &leave) == nil && leave.Outcome != "" {
				leaves = append(leaves, leave)
			}
		}
	}
	return leaves, nil
}
