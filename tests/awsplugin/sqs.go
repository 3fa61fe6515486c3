package awsplugin

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

type queue struct {
	ARN                      string            `pulumi:"arn" aws:"output"`
	DelaySeconds             int               `pulumi:"delaySeconds" aws:"default=0"`
	MaxMessageSize           int               `pulumi:"maxMessageSize" aws:"default=262144"`
	MessageRetentionSeconds  int               `pulumi:"messageRetentionSeconds" aws:"default=345600"`
	Name                     string            `pulumi:"name" aws:"computed,replace"`
	NamePrefix               string            `pulumi:"namePrefix" aws:"computed,replace"`
	Policy                   string            `pulumi:"policy" aws:"computed,json"`
	ReceiveWaitTimeSeconds   int               `pulumi:"receiveWaitTimeSeconds" aws:"default=0"`
	SQSManagedSSEEnabled     bool              `pulumi:"sqsManagedSseEnabled" aws:"computed"`
	Tags                     map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll                  map[string]string `pulumi:"tagsAll" aws:"output"`
	URL                      string            `pulumi:"url" aws:"output"`
	VisibilityTimeoutSeconds int               `pulumi:"visibilityTimeoutSeconds" aws:"default=30"`
}

// queueNotFound are the error codes of a queue that is not there: the name of
// the type, and the one that older protocols had.
var queueNotFound = []string{"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"}

func (q *queue) attributes() map[string]string {
	attributes := map[string]string{
		"DelaySeconds":                  strconv.Itoa(q.DelaySeconds),
		"MaximumMessageSize":            strconv.Itoa(q.MaxMessageSize),
		"MessageRetentionPeriod":        strconv.Itoa(q.MessageRetentionSeconds),
		"ReceiveMessageWaitTimeSeconds": strconv.Itoa(q.ReceiveWaitTimeSeconds),
		"VisibilityTimeout":             strconv.Itoa(q.VisibilityTimeoutSeconds),
	}
	if q.SQSManagedSSEEnabled {
		attributes["SqsManagedSseEnabled"] = "true"
	}
	if q.Policy != "" {
		attributes["Policy"] = q.Policy
	}
	return attributes
}

var queueHandler = handler[queue]{
	naming: naming{property: "name", max: 80},
	create: func(ctx context.Context, c *cloud, q *queue) (string, error) {
		made, err := c.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(q.Name), Attributes: q.attributes(), Tags: q.TagsAll})
		if err != nil {
			return "", fmt.Errorf("creating SQS Queue (%s): %w", q.Name, err)
		}
		return aws.ToString(made.QueueUrl), nil
	},
	read: func(ctx context.Context, c *cloud, id string, q *queue) error {
		got, err := c.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
			QueueUrl: aws.String(id), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
		})
		if err != nil {
			return missing(err, queueNotFound...)
		}
		for name, into := range map[string]*int{
			"DelaySeconds": &q.DelaySeconds, "MaximumMessageSize": &q.MaxMessageSize, "MessageRetentionPeriod": &q.MessageRetentionSeconds,
			"ReceiveMessageWaitTimeSeconds": &q.ReceiveWaitTimeSeconds, "VisibilityTimeout": &q.VisibilityTimeoutSeconds,
		} {
			if *into, err = strconv.Atoi(got.Attributes[name]); err != nil {
				return fmt.Errorf("read attribute %s: %w", name, err)
			}
		}
		q.ARN, q.URL, q.Policy = got.Attributes["QueueArn"], id, got.Attributes["Policy"]
		q.SQSManagedSSEEnabled = got.Attributes["SqsManagedSseEnabled"] == "true"
		tags, err := c.sqs.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: aws.String(id)})
		if err != nil {
			return fmt.Errorf("listing tags for SQS Queue (%s): %w", id, err)
		}
		q.TagsAll = nil
		if len(tags.Tags) > 0 {
			q.TagsAll = tags.Tags
		}
		q.Tags = c.ownTags(q.TagsAll, q.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, q *queue, _ set) error {
		attributes := q.attributes()
		if old.Policy != "" && q.Policy == "" {
			attributes["Policy"] = ""
		}
		if _, err := c.sqs.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: aws.String(id), Attributes: attributes}); err != nil {
			return fmt.Errorf("updating SQS Queue (%s) attributes: %w", id, err)
		}
		set, remove := tagChanges(old.TagsAll, q.TagsAll)
		if len(remove) > 0 {
			if _, err := c.sqs.UntagQueue(ctx, &sqs.UntagQueueInput{QueueUrl: aws.String(id), TagKeys: remove}); err != nil {
				return fmt.Errorf("untagging SQS Queue (%s): %w", id, err)
			}
		}
		if len(set) > 0 {
			if _, err := c.sqs.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: aws.String(id), Tags: set}); err != nil {
				return fmt.Errorf("tagging SQS Queue (%s): %w", id, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, _ *queue) error {
		_, err := c.sqs.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: aws.String(id)})
		if err = ifPresent(err, queueNotFound...); err != nil {
			return fmt.Errorf("deleting SQS Queue (%s): %w", id, err)
		}
		return nil
	},
}

type queuePolicy struct {
	Policy   string `pulumi:"policy" aws:"required,json"`
	QueueURL string `pulumi:"queueUrl" aws:"required,replace"`
}

func putQueuePolicy(ctx context.Context, c *cloud, url, policy string) error {
	_, err := c.sqs.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: aws.String(url), Attributes: map[string]string{"Policy": policy}})
	if err != nil {
		return fmt.Errorf("setting SQS Queue (%s) policy: %w", url, err)
	}
	return nil
}

var queuePolicyHandler = handler[queuePolicy]{
	create: func(ctx context.Context, c *cloud, p *queuePolicy) (string, error) {
		return p.QueueURL, putQueuePolicy(ctx, c, p.QueueURL, p.Policy)
	},
	read: func(ctx context.Context, c *cloud, id string, p *queuePolicy) error {
		got, err := c.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
			QueueUrl: aws.String(id), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNamePolicy},
		})
		if err != nil {
			return missing(err, queueNotFound...)
		}
		if got.Attributes["Policy"] == "" {
			return errNotFound
		}
		p.Policy, p.QueueURL = got.Attributes["Policy"], id
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, _, p *queuePolicy, _ set) error {
		return putQueuePolicy(ctx, c, id, p.Policy)
	},
	delete: func(ctx context.Context, c *cloud, id string, _ *queuePolicy) error {
		return ifPresent(putQueuePolicy(ctx, c, id, ""), queueNotFound...)
	},
}
