package dynamodb

import (
	"context"
	"net/http"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
)

// Service is the service for the region's front door.
func (d *DB) Service() *api.Service {
	return &api.Service{
		Name:     "dynamodb",
		Protocol: api.JSON,
		Operations: map[string]api.Operation{
			"CreateTable":               d.createTable,
			"DescribeTable":             d.describeTable,
			"UpdateTable":               d.updateTable,
			"DeleteTable":               d.deleteTable,
			"ListTables":                d.listTables,
			"TagResource":               d.tagResource,
			"UntagResource":             d.untagResource,
			"ListTagsOfResource":        d.listTagsOfResource,
			"DescribeTimeToLive":        d.describeTimeToLive,
			"DescribeContinuousBackups": d.describeContinuousBackups,
			"UpdateContinuousBackups":   d.updateContinuousBackups,
			"PutItem":                   d.putItem,
			"GetItem":                   d.getItem,
			"UpdateItem":                d.updateItem,
			"DeleteItem":                d.deleteItem,
			"Scan":                      d.scan,
		},
	}
}

func decode(c *api.Call, into any) error {
	return jsonbody.Decode(c, "ValidationException", into)
}

// onTable authorizes a call on a table and does the work under the lock.
func (d *DB) onTable(c *api.Call, nameOrARN string, work func(*table) error) error {
	if err := c.Authorize(d.access(c.IAMAction(), nameOrARN, "")); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.table(nameOrARN)
	if err != nil {
		return err
	}
	return work(t)
}

// description is a table as the API shows it.
type description struct {
	TableName                 string
	TableArn                  string
	TableID                   string `json:"TableId"`
	TableStatus               string
	CreationDateTime          float64 // seconds
	KeySchema                 []keyElement
	AttributeDefinitions      []attributeDefinition
	ProvisionedThroughput     throughput
	BillingModeSummary        billingMode
	ItemCount                 int
	TableSizeBytes            int
	DeletionProtectionEnabled bool
}

type billingMode struct{ BillingMode string }

func (d *DB) describe(t *table, status string) description {
	count := 0
	for _, r := range t.items {
		if r.current != nil {
			count++
		}
	}
	return description{
		TableName: t.name, TableArn: d.TableARN(t.name), TableID: t.id, TableStatus: status,
		CreationDateTime: float64(t.created.UnixMilli()) / 1000,
		KeySchema:        t.schema, AttributeDefinitions: t.types,
		ProvisionedThroughput: t.capacity, BillingModeSummary: billingMode{t.billing},
		ItemCount: count, DeletionProtectionEnabled: t.protected,
	}
}

func (d *DB) createTable(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		TableName                 string
		KeySchema                 []keyElement
		AttributeDefinitions      []attributeDefinition
		BillingMode               string
		ProvisionedThroughput     throughput
		DeletionProtectionEnabled bool
		TableClass                string
		Tags                      []tag
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(d.TableARN(in.TableName)); err != nil {
		return nil, err
	}
	t, err := newTable(in.TableName, in.KeySchema, in.AttributeDefinitions)
	if err != nil {
		return nil, err
	}
	if err := t.setBilling(in.BillingMode, in.ProvisionedThroughput); err != nil {
		return nil, err
	}
	t.protected = in.DeletionProtectionEnabled
	mergeTags(t.tags, in.Tags)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tables[t.name] != nil {
		return nil, api.Errorf(http.StatusBadRequest, "ResourceInUseException", "Table already exists: %s", t.name)
	}
	d.tables[t.name] = t
	return struct{ TableDescription description }{d.describe(t, "CREATING")}, nil
}

func (t *table) setBilling(mode string, capacity throughput) error {
	switch mode {
	case "", "PROVISIONED":
		mode = "PROVISIONED"
		if capacity.ReadCapacityUnits < 1 || capacity.WriteCapacityUnits < 1 {
			return invalid("No provisioned throughput specified for the table")
		}
	case "PAY_PER_REQUEST":
		if capacity != (throughput{}) {
			return invalid("One or more parameter values were invalid: Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST")
		}
	default:
		return invalid("BillingMode %q is not one of PROVISIONED, PAY_PER_REQUEST", mode)
	}
	t.billing, t.capacity = mode, capacity
	return nil
}

func (d *DB) describeTable(_ context.Context, c *api.Call) (any, error) {
	var in struct{ TableName string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct{ Table description }
	err := d.onTable(c, in.TableName, func(t *table) error {
		out.Table = d.describe(t, "ACTIVE")
		return nil
	})
	return out, err
}

func (d *DB) updateTable(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		TableName                 string
		BillingMode               string
		ProvisionedThroughput     throughput
		DeletionProtectionEnabled *bool
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct{ TableDescription description }
	err := d.onTable(c, in.TableName, func(t *table) error {
		if in.BillingMode != "" || in.ProvisionedThroughput != (throughput{}) {
			if err := t.setBilling(in.BillingMode, in.ProvisionedThroughput); err != nil {
				return err
			}
		}
		if in.DeletionProtectionEnabled != nil {
			t.protected = *in.DeletionProtectionEnabled
		}
		out.TableDescription = d.describe(t, "UPDATING")
		return nil
	})
	return out, err
}

func (d *DB) deleteTable(_ context.Context, c *api.Call) (any, error) {
	var in struct{ TableName string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct{ TableDescription description }
	err := d.onTable(c, in.TableName, func(t *table) error {
		if t.protected {
			return invalid("Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.")
		}
		delete(d.tables, t.name)
		out.TableDescription = d.describe(t, "DELETING")
		return nil
	})
	return out, err
}

func (d *DB) listTables(_ context.Context, c *api.Call) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return struct{ TableNames []string }{sortedKeys(d.tables)}, nil
}

func (d *DB) tagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceArn string
		Tags        []tag
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, d.onTable(c, in.ResourceArn, func(t *table) error {
		mergeTags(t.tags, in.Tags)
		return nil
	})
}

func (d *DB) untagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceArn string
		TagKeys     []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, d.onTable(c, in.ResourceArn, func(t *table) error {
		for _, key := range in.TagKeys {
			delete(t.tags, key)
		}
		return nil
	})
}

func (d *DB) listTagsOfResource(_ context.Context, c *api.Call) (any, error) {
	var in struct{ ResourceArn, NextToken string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct{ Tags []tag }
	err := d.onTable(c, in.ResourceArn, func(t *table) error {
		out.Tags = tagList(t.tags)
		return nil
	})
	return out, err
}

func (d *DB) describeTimeToLive(_ context.Context, c *api.Call) (any, error) {
	var in struct{ TableName string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	type timeToLive struct{ TimeToLiveStatus string }
	err := d.onTable(c, in.TableName, func(*table) error { return nil })
	return struct{ TimeToLiveDescription timeToLive }{timeToLive{"DISABLED"}}, err
}

type backups struct {
	ContinuousBackupsStatus        string
	PointInTimeRecoveryDescription struct{ PointInTimeRecoveryStatus string }
}

func (t *table) backups() backups {
	b := backups{ContinuousBackupsStatus: "ENABLED"}
	b.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus = "DISABLED"
	if t.recovery {
		b.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus = "ENABLED"
	}
	return b
}

func (d *DB) describeContinuousBackups(_ context.Context, c *api.Call) (any, error) {
	var in struct{ TableName string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct{ ContinuousBackupsDescription backups }
	err := d.onTable(c, in.TableName, func(t *table) error {
		out.ContinuousBackupsDescription = t.backups()
		return nil
	})
	return out, err
}

func (d *DB) updateContinuousBackups(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		TableName                        string
		PointInTimeRecoverySpecification struct {
			PointInTimeRecoveryEnabled bool
			RecoveryPeriodInDays       int
		}
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct{ ContinuousBackupsDescription backups }
	err := d.onTable(c, in.TableName, func(t *table) error {
		t.recovery = in.PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled
		out.ContinuousBackupsDescription = t.backups()
		return nil
	})
	return out, err
}
