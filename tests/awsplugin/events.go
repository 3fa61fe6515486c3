package awsplugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
)

type eventRule struct {
	ARN                string            `pulumi:"arn" aws:"output"`
	Description        string            `pulumi:"description"`
	EventBusName       string            `pulumi:"eventBusName" aws:"default=default,replace"`
	EventPattern       string            `pulumi:"eventPattern" aws:"json"`
	ForceDestroy       bool              `pulumi:"forceDestroy" aws:"default=false"`
	Name               string            `pulumi:"name" aws:"computed,replace"`
	NamePrefix         string            `pulumi:"namePrefix" aws:"computed,replace"`
	RoleARN            string            `pulumi:"roleArn"`
	ScheduleExpression string            `pulumi:"scheduleExpression"`
	State              string            `pulumi:"state" aws:"default=ENABLED"`
	Tags               map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll            map[string]string `pulumi:"tagsAll" aws:"output"`
}

const (
	eventsNotFound      = "ResourceNotFoundException"
	eventsDeleteTimeout = 5 * time.Minute
)

var eventRuleHandler = handler[eventRule]{
	naming: naming{property: "name", max: 64},
	create: func(ctx context.Context, c *cloud, r *eventRule) (string, error) {
		if err := putRule(ctx, c, r, r.TagsAll); err != nil {
			return "", fmt.Errorf("creating EventBridge Rule (%s): %w", r.Name, err)
		}
		if r.EventBusName != "default" {
			return r.EventBusName + "/" + r.Name, nil
		}
		return r.Name, nil
	},
	read: func(ctx context.Context, c *cloud, id string, r *eventRule) error {
		bus, name := "default", id
		if i := strings.LastIndex(id, "/"); i > 0 {
			bus, name = id[:i], id[i+1:]
		}
		found, err := c.events.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: aws.String(name), EventBusName: aws.String(bus)})
		if err != nil {
			return missing(err, eventsNotFound)
		}
		r.ARN = aws.ToString(found.Arn)
		r.Description = aws.ToString(found.Description)
		r.EventBusName = bus
		r.EventPattern = aws.ToString(found.EventPattern)
		r.Name = aws.ToString(found.Name)
		r.RoleARN = aws.ToString(found.RoleArn)
		r.ScheduleExpression = aws.ToString(found.ScheduleExpression)
		r.State = string(found.State)
		tags, err := c.events.ListTagsForResource(ctx, &eventbridge.ListTagsForResourceInput{ResourceARN: found.Arn})
		if err != nil {
			return fmt.Errorf("listing tags for EventBridge Rule (%s): %w", id, err)
		}
		r.TagsAll = tagMap(tags.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
		r.Tags = c.ownTags(r.TagsAll, r.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, r *eventRule, changed set) error {
		if changed.any("description", "eventPattern", "roleArn", "scheduleExpression", "state") {
			if err := putRule(ctx, c, r, nil); err != nil {
				return fmt.Errorf("updating EventBridge Rule (%s): %w", id, err)
			}
		}
		set, remove := tagChanges(old.TagsAll, r.TagsAll)
		if len(remove) > 0 {
			if _, err := c.events.UntagResource(ctx, &eventbridge.UntagResourceInput{ResourceARN: aws.String(old.ARN), TagKeys: remove}); err != nil {
				return fmt.Errorf("untagging EventBridge Rule (%s): %w", id, err)
			}
		}
		if len(set) > 0 {
			if _, err := c.events.TagResource(ctx, &eventbridge.TagResourceInput{ResourceARN: aws.String(old.ARN), Tags: tagList(set, eventsTag)}); err != nil {
				return fmt.Errorf("tagging EventBridge Rule (%s): %w", id, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, r *eventRule) error {
		err := retryMessage(ctx, eventsDeleteTimeout, func(ctx context.Context) error {
			_, err := c.events.DeleteRule(ctx, &eventbridge.DeleteRuleInput{
				Name: aws.String(r.Name), EventBusName: aws.String(r.EventBusName), Force: r.ForceDestroy,
			})
			return err
		}, "ValidationException", "Rule can't be deleted since it has targets")
		if err = ifPresent(err, eventsNotFound); err != nil {
			return fmt.Errorf("deleting EventBridge Rule (%s): %w", id, err)
		}
		return nil
	},
}

func putRule(ctx context.Context, c *cloud, r *eventRule, tags map[string]string) error {
	_, err := c.events.PutRule(ctx, &eventbridge.PutRuleInput{
		Description:        optional(r.Description),
		EventBusName:       optional(r.EventBusName),
		EventPattern:       optional(r.EventPattern),
		Name:               aws.String(r.Name),
		RoleArn:            optional(r.RoleARN),
		ScheduleExpression: optional(r.ScheduleExpression),
		State:              types.RuleState(r.State),
		Tags:               tagList(tags, eventsTag),
	})
	return err
}

func eventsTag(key, value string) types.Tag {
	return types.Tag{Key: aws.String(key), Value: aws.String(value)}
}

type eventTarget struct {
	ARN              string                 `pulumi:"arn" aws:"required"`
	DeadLetterConfig *eventTargetDeadLetter `pulumi:"deadLetterConfig"`
	EventBusName     string                 `pulumi:"eventBusName" aws:"default=default,replace"`
	ForceDestroy     bool                   `pulumi:"forceDestroy" aws:"default=false"`
	Input            string                 `pulumi:"input"`
	InputPath        string                 `pulumi:"inputPath"`
	RetryPolicy      *eventTargetRetry      `pulumi:"retryPolicy"`
	RoleARN          string                 `pulumi:"roleArn"`
	Rule             string                 `pulumi:"rule" aws:"required,replace"`
	TargetID         string                 `pulumi:"targetId" aws:"computed,replace"`
}

type eventTargetDeadLetter struct {
	ARN string `pulumi:"arn"`
}

type eventTargetRetry struct {
	MaximumEventAgeInSeconds int `pulumi:"maximumEventAgeInSeconds"`
	MaximumRetryAttempts     int `pulumi:"maximumRetryAttempts"`
}

var eventTargetHandler = handler[eventTarget]{
	create: func(ctx context.Context, c *cloud, t *eventTarget) (string, error) {
		if t.TargetID == "" {
			t.TargetID = uniqueName("terraform-")
		}
		if err := putTarget(ctx, c, t); err != nil {
			return "", fmt.Errorf("creating EventBridge Target (%s): %w", t.TargetID, err)
		}
		id := t.Rule + "-" + t.TargetID
		if t.EventBusName != "default" {
			id = t.EventBusName + "-" + id
		}
		return id, nil
	},
	read: func(ctx context.Context, c *cloud, _ string, t *eventTarget) error {
		listed, err := c.events.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{
			Rule: aws.String(t.Rule), EventBusName: aws.String(t.EventBusName),
		})
		if err != nil {
			return missing(err, eventsNotFound)
		}
		for _, found := range listed.Targets {
			if aws.ToString(found.Id) != t.TargetID {
				continue
			}
			t.ARN = aws.ToString(found.Arn)
			t.Input = aws.ToString(found.Input)
			t.InputPath = aws.ToString(found.InputPath)
			t.RoleARN = aws.ToString(found.RoleArn)
			t.DeadLetterConfig = nil
			if found.DeadLetterConfig != nil {
				t.DeadLetterConfig = &eventTargetDeadLetter{ARN: aws.ToString(found.DeadLetterConfig.Arn)}
			}
			t.RetryPolicy = nil
			if p := found.RetryPolicy; p != nil {
				t.RetryPolicy = &eventTargetRetry{
					MaximumEventAgeInSeconds: int(aws.ToInt32(p.MaximumEventAgeInSeconds)),
					MaximumRetryAttempts:     int(aws.ToInt32(p.MaximumRetryAttempts)),
				}
			}
			return nil
		}
		return errNotFound
	},
	update: func(ctx context.Context, c *cloud, id string, _, t *eventTarget, changed set) error {
		if len(changed) == 0 {
			return nil
		}
		if err := putTarget(ctx, c, t); err != nil {
			return fmt.Errorf("updating EventBridge Target (%s): %w", id, err)
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, t *eventTarget) error {
		removed, err := c.events.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{
			Rule: aws.String(t.Rule), EventBusName: aws.String(t.EventBusName), Ids: []string{t.TargetID}, Force: t.ForceDestroy,
		})
		if hasCode(err, eventsNotFound) {
			return nil
		}
		if err == nil && len(removed.FailedEntries) > 0 {
			err = fmt.Errorf("%s: %s", aws.ToString(removed.FailedEntries[0].ErrorCode), aws.ToString(removed.FailedEntries[0].ErrorMessage))
		}
		if err != nil {
			return fmt.Errorf("deleting EventBridge Target (%s): %w", id, err)
		}
		return nil
	},
}

func putTarget(ctx context.Context, c *cloud, t *eventTarget) error {
	target := types.Target{
		Arn: aws.String(t.ARN), Id: aws.String(t.TargetID), Input: optional(t.Input), InputPath: optional(t.InputPath), RoleArn: optional(t.RoleARN),
	}
	if t.DeadLetterConfig != nil {
		target.DeadLetterConfig = &types.DeadLetterConfig{Arn: optional(t.DeadLetterConfig.ARN)}
	}
	if p := t.RetryPolicy; p != nil {
		target.RetryPolicy = &types.RetryPolicy{
			MaximumEventAgeInSeconds: pointer(optional(p.MaximumEventAgeInSeconds)), MaximumRetryAttempts: aws.Int32(int32(p.MaximumRetryAttempts)),
		}
	}
	put, err := c.events.PutTargets(ctx, &eventbridge.PutTargetsInput{
		Rule: aws.String(t.Rule), EventBusName: aws.String(t.EventBusName), Targets: []types.Target{target},
	})
	if err != nil {
		return err
	}
	if len(put.FailedEntries) > 0 {
		return fmt.Errorf("%s: %s", aws.ToString(put.FailedEntries[0].ErrorCode), aws.ToString(put.FailedEntries[0].ErrorMessage))
	}
	return nil
}
