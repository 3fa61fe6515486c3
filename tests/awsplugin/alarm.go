package awsplugin

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
)

type metricAlarm struct {
	ActionsEnabled     bool              `pulumi:"actionsEnabled" aws:"default=true"`
	AlarmActions       []string          `pulumi:"alarmActions" aws:"set"`
	AlarmDescription   string            `pulumi:"alarmDescription"`
	ARN                string            `pulumi:"arn" aws:"output"`
	ComparisonOperator string            `pulumi:"comparisonOperator" aws:"required"`
	Dimensions         map[string]string `pulumi:"dimensions"`
	EvaluationPeriods  int               `pulumi:"evaluationPeriods" aws:"required"`
	MetricName         string            `pulumi:"metricName"`
	Name               string            `pulumi:"name" aws:"computed,replace"`
	Namespace          string            `pulumi:"namespace"`
	OKActions          []string          `pulumi:"okActions" aws:"set"`
	Period             int               `pulumi:"period"`
	Statistic          string            `pulumi:"statistic"`
	Tags               map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll            map[string]string `pulumi:"tagsAll" aws:"output"`
	Threshold          float64           `pulumi:"threshold"`
	TreatMissingData   string            `pulumi:"treatMissingData" aws:"default=missing"`
}

var metricAlarmHandler = handler[metricAlarm]{
	naming: naming{property: "name", max: 255},
	create: func(ctx context.Context, c *cloud, a *metricAlarm) (string, error) {
		if err := putAlarm(ctx, c, a); err != nil {
			return "", fmt.Errorf("creating CloudWatch Metric Alarm (%s): %w", a.Name, err)
		}
		return a.Name, nil
	},
	read: func(ctx context.Context, c *cloud, id string, a *metricAlarm) error {
		described, err := c.cloudwatch.DescribeAlarms(ctx, &cloudwatch.DescribeAlarmsInput{
			AlarmNames: []string{id}, AlarmTypes: []types.AlarmType{types.AlarmTypeMetricAlarm},
		})
		if err != nil {
			return err
		}
		if len(described.MetricAlarms) == 0 {
			return errNotFound
		}
		found := described.MetricAlarms[0]
		a.ActionsEnabled = aws.ToBool(found.ActionsEnabled)
		a.AlarmActions, a.OKActions = found.AlarmActions, found.OKActions
		a.AlarmDescription = aws.ToString(found.AlarmDescription)
		a.ARN = aws.ToString(found.AlarmArn)
		a.ComparisonOperator = string(found.ComparisonOperator)
		a.Dimensions = tagMap(found.Dimensions, func(d types.Dimension) (*string, *string) { return d.Name, d.Value })
		a.EvaluationPeriods = int(aws.ToInt32(found.EvaluationPeriods))
		a.MetricName, a.Name, a.Namespace = aws.ToString(found.MetricName), id, aws.ToString(found.Namespace)
		a.Period = int(aws.ToInt32(found.Period))
		a.Statistic = string(found.Statistic)
		a.Threshold = aws.ToFloat64(found.Threshold)
		a.TreatMissingData = aws.ToString(found.TreatMissingData)
		tags, err := c.cloudwatch.ListTagsForResource(ctx, &cloudwatch.ListTagsForResourceInput{ResourceARN: found.AlarmArn})
		if err != nil {
			return fmt.Errorf("listing tags for CloudWatch Metric Alarm (%s): %w", id, err)
		}
		a.TagsAll = tagMap(tags.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
		a.Tags = c.ownTags(a.TagsAll, a.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, a *metricAlarm, _ set) error {
		if err := putAlarm(ctx, c, a); err != nil {
			return fmt.Errorf("updating CloudWatch Metric Alarm (%s): %w", id, err)
		}
		set, remove := tagChanges(old.TagsAll, a.TagsAll)
		if len(remove) > 0 {
			if _, err := c.cloudwatch.UntagResource(ctx, &cloudwatch.UntagResourceInput{ResourceARN: aws.String(old.ARN), TagKeys: remove}); err != nil {
				return fmt.Errorf("untagging CloudWatch Metric Alarm (%s): %w", id, err)
			}
		}
		if len(set) > 0 {
			if _, err := c.cloudwatch.TagResource(ctx, &cloudwatch.TagResourceInput{ResourceARN: aws.String(old.ARN), Tags: tagList(set, alarmTag)}); err != nil {
				return fmt.Errorf("tagging CloudWatch Metric Alarm (%s): %w", id, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, _ *metricAlarm) error {
		_, err := c.cloudwatch.DeleteAlarms(ctx, &cloudwatch.DeleteAlarmsInput{AlarmNames: []string{id}})
		if err = ifPresent(err, "ResourceNotFound"); err != nil {
			return fmt.Errorf("deleting CloudWatch Metric Alarm (%s): %w", id, err)
		}
		return nil
	},
}

func alarmTag(key, value string) types.Tag {
	return types.Tag{Key: aws.String(key), Value: aws.String(value)}
}

func putAlarm(ctx context.Context, c *cloud, a *metricAlarm) error {
	_, err := c.cloudwatch.PutMetricAlarm(ctx, &cloudwatch.PutMetricAlarmInput{
		ActionsEnabled:     aws.Bool(a.ActionsEnabled),
		AlarmActions:       a.AlarmActions,
		AlarmDescription:   optional(a.AlarmDescription),
		AlarmName:          aws.String(a.Name),
		ComparisonOperator: types.ComparisonOperator(a.ComparisonOperator),
		Dimensions: tagList(a.Dimensions, func(name, value string) types.Dimension {
			return types.Dimension{Name: aws.String(name), Value: aws.String(value)}
		}),
		EvaluationPeriods: aws.Int32(int32(a.EvaluationPeriods)),
		MetricName:        optional(a.MetricName),
		Namespace:         optional(a.Namespace),
		OKActions:         a.OKActions,
		Period:            pointer(optional(a.Period)),
		Statistic:         types.Statistic(a.Statistic),
		Tags:              tagList(a.TagsAll, alarmTag),
		Threshold:         aws.Float64(a.Threshold),
		TreatMissingData:  optional(a.TreatMissingData),
	})
	return err
}
