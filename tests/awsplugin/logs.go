package awsplugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
)

type logGroup struct {
	ARN             string            `pulumi:"arn" aws:"output"`
	KMSKeyID        string            `pulumi:"kmsKeyId"`
	LogGroupClass   string            `pulumi:"logGroupClass" aws:"computed,replace"`
	Name            string            `pulumi:"name" aws:"computed,replace"`
	NamePrefix      string            `pulumi:"namePrefix" aws:"computed,replace"`
	RetentionInDays int               `pulumi:"retentionInDays" aws:"default=0"`
	SkipDestroy     bool              `pulumi:"skipDestroy" aws:"default=false"`
	Tags            map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll         map[string]string `pulumi:"tagsAll" aws:"output"`
}

const logsNotFound = "ResourceNotFoundException"

var logGroupHandler = handler[logGroup]{
	naming: naming{property: "name", max: 512},
	create: func(ctx context.Context, c *cloud, g *logGroup) (string, error) {
		_, err := c.logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{
			KmsKeyId:      optional(g.KMSKeyID),
			LogGroupClass: types.LogGroupClass(g.LogGroupClass),
			LogGroupName:  aws.String(g.Name),
			Tags:          g.TagsAll,
		})
		if err != nil {
			return "", fmt.Errorf("creating CloudWatch Logs Log Group (%s): %w", g.Name, err)
		}
		if g.RetentionInDays > 0 {
			return g.Name, putRetention(ctx, c, g)
		}
		return g.Name, nil
	},
	read: func(ctx context.Context, c *cloud, id string, g *logGroup) error {
		found, err := findLogGroup(ctx, c, id)
		if err != nil {
			return err
		}
		g.ARN = strings.TrimSuffix(aws.ToString(found.Arn), ":*")
		g.KMSKeyID = aws.ToString(found.KmsKeyId)
		g.LogGroupClass = string(found.LogGroupClass)
		g.Name = id
		g.RetentionInDays = int(aws.ToInt32(found.RetentionInDays))
		tags, err := c.logs.ListTagsForResource(ctx, &cloudwatchlogs.ListTagsForResourceInput{ResourceArn: aws.String(g.ARN)})
		if err != nil {
			return fmt.Errorf("listing tags for CloudWatch Logs Log Group (%s): %w", id, err)
		}
		g.TagsAll = nil
		if len(tags.Tags) > 0 {
			g.TagsAll = tags.Tags
		}
		g.Tags = c.ownTags(g.TagsAll, g.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, g *logGroup, changed set) error {
		if changed["kmsKeyId"] {
			var err error
			if g.KMSKeyID != "" {
				_, err = c.logs.AssociateKmsKey(ctx, &cloudwatchlogs.AssociateKmsKeyInput{LogGroupName: aws.String(id), KmsKeyId: aws.String(g.KMSKeyID)})
			} else {
				_, err = c.logs.DisassociateKmsKey(ctx, &cloudwatchlogs.DisassociateKmsKeyInput{LogGroupName: aws.String(id)})
			}
			if err != nil {
				return fmt.Errorf("updating CloudWatch Logs Log Group (%s) KMS key: %w", id, err)
			}
		}
		if changed["retentionInDays"] {
			if err := putRetention(ctx, c, g); err != nil {
				return err
			}
		}
		set, remove := tagChanges(old.TagsAll, g.TagsAll)
		if len(remove) > 0 {
			if _, err := c.logs.UntagResource(ctx, &cloudwatchlogs.UntagResourceInput{ResourceArn: aws.String(old.ARN), TagKeys: remove}); err != nil {
				return fmt.Errorf("untagging CloudWatch Logs Log Group (%s): %w", id, err)
			}
		}
		if len(set) > 0 {
			if _, err := c.logs.TagResource(ctx, &cloudwatchlogs.TagResourceInput{ResourceArn: aws.String(old.ARN), Tags: set}); err != nil {
				return fmt.Errorf("tagging CloudWatch Logs Log Group (%s): %w", id, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, g *logGroup) error {
		if g.SkipDestroy {
			return nil
		}
		_, err := c.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: aws.String(id)})
		if err = ifPresent(err, logsNotFound); err != nil {
			return fmt.Errorf("deleting CloudWatch Logs Log Group (%s): %w", id, err)
		}
		return nil
	},
}

func findLogGroup(ctx context.Context, c *cloud, name string) (types.LogGroup, error) {
	pages := cloudwatchlogs.NewDescribeLogGroupsPaginator(c.logs, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String(name)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return types.LogGroup{}, err
		}
		for _, group := range page.LogGroups {
			if aws.ToString(group.LogGroupName) == name {
				return group, nil
			}
		}
	}
	return types.LogGroup{}, errNotFound
}

func putRetention(ctx context.Context, c *cloud, g *logGroup) error {
	var err error
	if g.RetentionInDays > 0 {
		_, err = c.logs.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{
			LogGroupName: aws.String(g.Name), RetentionInDays: aws.Int32(int32(g.RetentionInDays)),
		})
	} else {
		_, err = c.logs.DeleteRetentionPolicy(ctx, &cloudwatchlogs.DeleteRetentionPolicyInput{LogGroupName: aws.String(g.Name)})
	}
	if err != nil {
		return fmt.Errorf("setting CloudWatch Logs Log Group (%s) retention policy: %w", g.Name, err)
	}
	return nil
}
