package awsplugin

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type table struct {
	ARN                       string                    `pulumi:"arn" aws:"output"`
	Attributes                []tableAttribute          `pulumi:"attributes" aws:"computed,set"`
	BillingMode               string                    `pulumi:"billingMode" aws:"default=PROVISIONED"`
	DeletionProtectionEnabled bool                      `pulumi:"deletionProtectionEnabled"`
	HashKey                   string                    `pulumi:"hashKey" aws:"computed,replace"`
	Name                      string                    `pulumi:"name" aws:"computed,replace"`
	PointInTimeRecovery       *tablePointInTimeRecovery `pulumi:"pointInTimeRecovery" aws:"computed"`
	RangeKey                  string                    `pulumi:"rangeKey" aws:"computed,replace"`
	ReadCapacity              int                       `pulumi:"readCapacity" aws:"computed"`
	ServerSideEncryption      *tableEncryption          `pulumi:"serverSideEncryption" aws:"computed"`
	Tags                      map[string]string         `pulumi:"tags" aws:"tags"`
	TagsAll                   map[string]string         `pulumi:"tagsAll" aws:"output"`
	WriteCapacity             int                       `pulumi:"writeCapacity" aws:"computed"`
}

type tableAttribute struct {
	Name string `pulumi:"name" aws:"required"`
	Type string `pulumi:"type" aws:"required"`
}

type tablePointInTimeRecovery struct {
	Enabled bool `pulumi:"enabled" aws:"required"`
}

type tableEncryption struct {
	Enabled   bool   `pulumi:"enabled" aws:"required"`
	KMSKeyARN string `pulumi:"kmsKeyArn" aws:"computed"`
}

const (
	tableCreateTimeout = 30 * time.Minute
	tableUpdateTimeout = 60 * time.Minute
	tableDeleteTimeout = 10 * time.Minute
	tableNotFound      = "ResourceNotFoundException"
)

var tableHandler = handler[table]{
	naming: naming{property: "name", max: 255},
	create: func(ctx context.Context, c *cloud, t *table) (string, error) {
		input := &dynamodb.CreateTableInput{
			BillingMode: types.BillingMode(t.BillingMode),
			KeySchema:   []types.KeySchemaElement{{AttributeName: aws.String(t.HashKey), KeyType: types.KeyTypeHash}},
			TableName:   aws.String(t.Name),
			Tags:        tagList(t.TagsAll, dynamodbTag),
		}
		if t.RangeKey != "" {
			input.KeySchema = append(input.KeySchema, types.KeySchemaElement{AttributeName: aws.String(t.RangeKey), KeyType: types.KeyTypeRange})
		}
		for _, a := range t.Attributes {
			input.AttributeDefinitions = append(input.AttributeDefinitions, types.AttributeDefinition{
				AttributeName: aws.String(a.Name), AttributeType: types.ScalarAttributeType(a.Type),
			})
		}
		if t.BillingMode == string(types.BillingModeProvisioned) {
			input.ProvisionedThroughput = t.throughput()
		}
		if t.DeletionProtectionEnabled {
			input.DeletionProtectionEnabled = aws.Bool(true)
		}
		if e := t.ServerSideEncryption; e != nil && e.Enabled {
			input.SSESpecification = &types.SSESpecification{Enabled: aws.Bool(true), KMSMasterKeyId: optional(e.KMSKeyARN)}
		}
		if _, err := c.dynamodb.CreateTable(ctx, input); err != nil {
			return "", fmt.Errorf("creating AWS DynamoDB Table (%s): %w", t.Name, err)
		}
		if err := waitTableActive(ctx, c, t.Name, tableCreateTimeout); err != nil {
			return t.Name, fmt.Errorf("creating AWS DynamoDB Table (%s): waiting for completion: %w", t.Name, err)
		}
		if p := t.PointInTimeRecovery; p != nil && p.Enabled {
			return t.Name, updateBackups(ctx, c, t.Name, true)
		}
		return t.Name, nil
	},
	read: func(ctx context.Context, c *cloud, id string, t *table) error {
		described, err := c.dynamodb.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(id)})
		if err != nil {
			return missing(err, tableNotFound)
		}
		found := described.Table
		t.ARN = aws.ToString(found.TableArn)
		t.Name = aws.ToString(found.TableName)
		t.BillingMode = string(types.BillingModeProvisioned)
		if found.BillingModeSummary != nil && found.BillingModeSummary.BillingMode != "" {
			t.BillingMode = string(found.BillingModeSummary.BillingMode)
		}
		t.DeletionProtectionEnabled = aws.ToBool(found.DeletionProtectionEnabled)
		t.Attributes = nil
		for _, a := range found.AttributeDefinitions {
			t.Attributes = append(t.Attributes, tableAttribute{Name: aws.ToString(a.AttributeName), Type: string(a.AttributeType)})
		}
		t.HashKey, t.RangeKey = "", ""
		for _, key := range found.KeySchema {
			if key.KeyType == types.KeyTypeHash {
				t.HashKey = aws.ToString(key.AttributeName)
			} else {
				t.RangeKey = aws.ToString(key.AttributeName)
			}
		}
		t.ReadCapacity, t.WriteCapacity = 0, 0
		if p := found.ProvisionedThroughput; p != nil {
			t.ReadCapacity, t.WriteCapacity = int(aws.ToInt64(p.ReadCapacityUnits)), int(aws.ToInt64(p.WriteCapacityUnits))
		}
		t.ServerSideEncryption = nil
		if e := found.SSEDescription; e != nil {
			t.ServerSideEncryption = &tableEncryption{Enabled: e.Status == types.SSEStatusEnabled, KMSKeyARN: aws.ToString(e.KMSMasterKeyArn)}
		}
		backups, err := c.dynamodb.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: aws.String(id)})
		if err != nil {
			return fmt.Errorf("reading DynamoDB Table (%s) continuous backups: %w", id, err)
		}
		t.PointInTimeRecovery = &tablePointInTimeRecovery{}
		if d := backups.ContinuousBackupsDescription; d != nil && d.PointInTimeRecoveryDescription != nil {
			t.PointInTimeRecovery.Enabled = d.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled
		}
		tags, err := c.dynamodb.ListTagsOfResource(ctx, &dynamodb.ListTagsOfResourceInput{ResourceArn: found.TableArn})
		if err != nil {
			return fmt.Errorf("listing tags for DynamoDB Table (%s): %w", id, err)
		}
		t.TagsAll = tagMap(tags.Tags, func(tag types.Tag) (*string, *string) { return tag.Key, tag.Value })
		t.Tags = c.ownTags(t.TagsAll, t.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, t *table, changed set) error {
		if changed.any("billingMode", "deletionProtectionEnabled", "readCapacity", "writeCapacity") {
			input := &dynamodb.UpdateTableInput{TableName: aws.String(id)}
			if changed.any("billingMode", "readCapacity", "writeCapacity") {
				input.BillingMode = types.BillingMode(t.BillingMode)
				if t.BillingMode == string(types.BillingModeProvisioned) {
					input.ProvisionedThroughput = t.throughput()
				}
			}
			if changed["deletionProtectionEnabled"] {
				input.DeletionProtectionEnabled = aws.Bool(t.DeletionProtectionEnabled)
			}
			if _, err := c.dynamodb.UpdateTable(ctx, input); err != nil {
				return fmt.Errorf("updating DynamoDB Table (%s): %w", id, err)
			}
			if err := waitTableActive(ctx, c, id, tableUpdateTimeout); err != nil {
				return fmt.Errorf("updating DynamoDB Table (%s): waiting for completion: %w", id, err)
			}
		}
		if changed["pointInTimeRecovery"] && t.PointInTimeRecovery != nil {
			if err := updateBackups(ctx, c, id, t.PointInTimeRecovery.Enabled); err != nil {
				return err
			}
		}
		set, remove := tagChanges(old.TagsAll, t.TagsAll)
		if len(remove) > 0 {
			if _, err := c.dynamodb.UntagResource(ctx, &dynamodb.UntagResourceInput{ResourceArn: aws.String(old.ARN), TagKeys: remove}); err != nil {
				return fmt.Errorf("untagging DynamoDB Table (%s): %w", id, err)
			}
		}
		if len(set) > 0 {
			if _, err := c.dynamodb.TagResource(ctx, &dynamodb.TagResourceInput{ResourceArn: aws.String(old.ARN), Tags: tagList(set, dynamodbTag)}); err != nil {
				return fmt.Errorf("tagging DynamoDB Table (%s): %w", id, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, _ *table) error {
		err := retry(ctx, tableDeleteTimeout, func(ctx context.Context) error {
			_, err := c.dynamodb.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: aws.String(id)})
			return err
		}, "ResourceInUseException", "LimitExceededException")
		if hasCode(err, tableNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("deleting DynamoDB Table (%s): %w", id, err)
		}
		err = waitGone(ctx, tableDeleteTimeout, func(ctx context.Context) error {
			_, err := c.dynamodb.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(id)})
			return missing(err, tableNotFound)
		})
		if err != nil {
			return fmt.Errorf("waiting for DynamoDB Table (%s) delete: %w", id, err)
		}
		return nil
	},
}

func (t *table) throughput() *types.ProvisionedThroughput {
	return &types.ProvisionedThroughput{ReadCapacityUnits: aws.Int64(int64(t.ReadCapacity)), WriteCapacityUnits: aws.Int64(int64(t.WriteCapacity))}
}

func waitTableActive(ctx context.Context, c *cloud, name string, timeout time.Duration) error {
	return poll(ctx, timeout, "state to become 'ACTIVE'", func(ctx context.Context) (bool, string, error) {
		described, err := c.dynamodb.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(name)})
		if err != nil {
			return false, "", err
		}
		return described.Table.TableStatus == types.TableStatusActive, string(described.Table.TableStatus), nil
	})
}

func updateBackups(ctx context.Context, c *cloud, name string, enabled bool) error {
	_, err := c.dynamodb.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
		TableName:                        aws.String(name),
		PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(enabled)},
	})
	if err != nil {
		return fmt.Errorf("updating DynamoDB Table (%s) point in time recovery: %w", name, err)
	}
	return nil
}

func dynamodbTag(key, value string) types.Tag {
	return types.Tag{Key: aws.String(key), Value: aws.String(value)}
}
