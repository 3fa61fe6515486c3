package aws

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

// DynamoDB is what the seed table needs of DynamoDB.
type DynamoDB interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

var _ DynamoDB = (*dynamodb.Client)(nil)

// SeedTable reads and writes the one seed item of a cluster. Every write is
// conditional on exactly the item that was read.
type SeedTable struct {
	DynamoDB DynamoDB
	Table    string
	Cluster  string
}

// Attributes of the seed item. The first three are the shell bootstrap's.
const (
	attributeCluster    = "cluster_name"
	attributeSeedIP     = "seed_ip"
	attributeCreatedAt  = "created_at"
	attributeInstanceID = "instance_id"
	attributeState      = "state"
	attributeClusterID  = "etcd_cluster_id"
	attributeVolumeID   = "volume_id"
	attributeVersion    = "etcfs_version"
)

// Read returns the seed item by a consistent read, nil when there is none, and
// the time by DynamoDB's clock, which is the one that every node shares.
func (t SeedTable) Read(ctx context.Context) (*membership.Item, time.Time, error) {
	output, err := t.DynamoDB.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &t.Table,
		Key:            map[string]types.AttributeValue{attributeCluster: text(t.Cluster)},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the seed item of %s in table %s: %w", t.Cluster, t.Table, err)
	}
	now, err := serverTime(output.ResultMetadata)
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(output.Item) == 0 {
		return nil, now, nil
	}
	item, err := decodeItem(output.Item)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("decode the seed item of %s in table %s: %w", t.Cluster, t.Table, err)
	}
	return &item, now, nil
}

func serverTime(metadata middleware.Metadata) (time.Time, error) {
	now, ok := awsmiddleware.GetServerTime(metadata)
	if !ok {
		return time.Time{}, errors.New("response of DynamoDB has no Date header to judge the seed item's age by")
	}
	return now, nil
}

// Create writes the item if there is none. It reports false when there is one
// already that is not the very item to be written.
func (t SeedTable) Create(ctx context.Context, item membership.Item) (bool, error) {
	return t.put(ctx, item, "attribute_not_exists(#cluster)", map[string]string{"#cluster": attributeCluster}, nil)
}

// Replace writes the item if the present one is exactly old. It reports false
// when it is not, unless it is the very item to be written already: that is
// this node's own write, the answer to which was lost.
func (t SeedTable) Replace(ctx context.Context, old, item membership.Item) (bool, error) {
	var conditions []string
	names, values := map[string]string{}, map[string]types.AttributeValue{}
	encoded := encodeItem(old)
	for i, attribute := range []string{attributeSeedIP, attributeCreatedAt, attributeInstanceID, attributeState, attributeClusterID, attributeVolumeID} {
		name, placeholder := fmt.Sprintf("#a%d", i), fmt.Sprintf(":v%d", i)
		names[name] = attribute
		value, ok := encoded[attribute]
		if !ok {
			conditions = append(conditions, "attribute_not_exists("+name+")")
			continue
		}
		conditions = append(conditions, name+" = "+placeholder)
		values[placeholder] = value
	}
	return t.put(ctx, item, strings.Join(conditions, " AND "), names, values)
}

func (t SeedTable) put(ctx context.Context, item membership.Item, condition string, names map[string]string, values map[string]types.AttributeValue) (bool, error) {
	_, err := t.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &t.Table,
		Item:                                encodeItem(item),
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return t.same(failed.Item, item)
	}
	if err != nil {
		return false, fmt.Errorf("write the seed item of %s in table %s: %w", t.Cluster, t.Table, err)
	}
	return true, nil
}

func (t SeedTable) same(attributes map[string]types.AttributeValue, item membership.Item) (bool, error) {
	if len(attributes) == 0 {
		return false, nil
	}
	present, err := decodeItem(attributes)
	if err != nil {
		return false, fmt.Errorf("decode the seed item of %s in table %s: %w", t.Cluster, t.Table, err)
	}
	return present == item, nil
}

// Pin writes down which EtcFS release the cluster runs, unless an earlier node
// did, and returns what is written down. It is an item of its own beside the
// seed item, which the shell bootstrap replaces whole.
func (t SeedTable) Pin(ctx context.Context, version string) (string, error) {
	_, err := t.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &t.Table,
		Item: map[string]types.AttributeValue{
			attributeCluster: text(t.Cluster + "/release"),
			attributeVersion: text(version),
		},
		ConditionExpression:                 aws.String("attribute_not_exists(#cluster)"),
		ExpressionAttributeNames:            map[string]string{"#cluster": attributeCluster},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if pinned, ok := failed.Item[attributeVersion].(*types.AttributeValueMemberS); ok {
			return pinned.Value, nil
		}
		return "", fmt.Errorf("read the pinned release of %s in table %s: no attribute %s", t.Cluster, t.Table, attributeVersion)
	}
	if err != nil {
		return "", fmt.Errorf("pin release %s of %s in table %s: %w", version, t.Cluster, t.Table, err)
	}
	return version, nil
}

func encodeItem(item membership.Item) map[string]types.AttributeValue {
	attributes := map[string]types.AttributeValue{
		attributeCluster:   text(item.ClusterName),
		attributeSeedIP:    text(item.SeedIP),
		attributeCreatedAt: &types.AttributeValueMemberN{Value: strconv.FormatInt(item.CreatedAt.Unix(), 10)},
	}
	for attribute, value := range map[string]string{
		attributeInstanceID: item.InstanceID, attributeState: string(item.State), attributeClusterID: item.ClusterID,
		attributeVolumeID: item.VolumeID,
	} {
		if value != "" {
			attributes[attribute] = text(value)
		}
	}
	return attributes
}

func decodeItem(attributes map[string]types.AttributeValue) (membership.Item, error) {
	var problems []error
	get := func(name string) string {
		switch value := attributes[name].(type) {
		case nil:
			return ""
		case *types.AttributeValueMemberS:
			return value.Value
		default:
			problems = append(problems, fmt.Errorf("attribute %s is no string but %T", name, value))
			return ""
		}
	}
	item := membership.Item{
		ClusterName: get(attributeCluster),
		SeedIP:      get(attributeSeedIP),
		InstanceID:  get(attributeInstanceID),
		State:       membership.State(get(attributeState)),
		ClusterID:   get(attributeClusterID),
		VolumeID:    get(attributeVolumeID),
	}
	created, ok := attributes[attributeCreatedAt].(*types.AttributeValueMemberN)
	if !ok {
		problems = append(problems, fmt.Errorf("attribute %s is no number but %T", attributeCreatedAt, attributes[attributeCreatedAt]))
		return membership.Item{}, errors.Join(problems...)
	}
	seconds, err := strconv.ParseInt(created.Value, 10, 64)
	if err != nil {
		problems = append(problems, fmt.Errorf("attribute %s: %w", attributeCreatedAt, err))
	}
	item.CreatedAt = time.Unix(seconds, 0).UTC()
	switch item.State {
	case membership.StateUnknown, membership.StateForming, membership.StateFormed:
	default:
		problems = append(problems, fmt.Errorf("attribute %s is %q, which this version does not know", attributeState, item.State))
	}
	if item.SeedIP == "" {
		problems = append(problems, fmt.Errorf("attribute %s is missing", attributeSeedIP))
	}
	return item, errors.Join(problems...)
}

func text(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }
