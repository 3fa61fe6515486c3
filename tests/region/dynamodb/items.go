package dynamodb

import (
	"context"
	"net/http"
	"slices"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// common are the parameters that all calls on items have. The last two ask for
// a report on consumed capacity, which this DynamoDB leaves out.
type common struct {
	TableName                   string
	ExpressionAttributeNames    map[string]string
	ExpressionAttributeValues   map[string]value
	ReturnConsumedCapacity      string
	ReturnItemCollectionMetrics string
}

func (in *common) substitutions() *substitutions {
	return &substitutions{Names: in.ExpressionAttributeNames, Values: in.ExpressionAttributeValues}
}

// writing are the parameters that all writes have.
type writing struct {
	common
	ConditionExpression                 *string
	ReturnValues                        string
	ReturnValuesOnConditionCheckFailure string
}

func oneOf(parameter, got string, allowed ...string) error {
	if got == "" || slices.Contains(allowed, got) {
		return nil
	}
	return invalid("%s set to invalid value: %q is not one of %v", parameter, got, allowed)
}

// mutation is a write of one item.
type mutation struct {
	writing
	*substitutions
	// updates says that there is an expression besides the condition.
	updates bool
	// key holds the key attributes, and with wholeItem others too.
	key       item
	wholeItem bool
	// change makes the item (nil: none) of the one that is there (nil: none).
	change func(t *table, before item) (item, error)
}

// write authorizes a mutation and does it if its condition holds.
func (d *DB) write(c *api.Call, m mutation) (any, error) {
	if err := oneOf("ReturnValuesOnConditionCheckFailure", m.ReturnValuesOnConditionCheckFailure, "NONE", "ALL_OLD"); err != nil {
		return nil, err
	}
	holds := condition(func(item) bool { return true })
	if m.ConditionExpression != nil {
		var err error
		if holds, err = parseCondition("ConditionExpression", *m.ConditionExpression, m.substitutions); err != nil {
			return nil, err
		}
	}
	if err := m.substitutions.check(m.updates || m.ConditionExpression != nil); err != nil {
		return nil, err
	}
	if err := c.Authorize(d.access(c.IAMAction(), m.TableName, d.leadingKey(m.TableName, m.key))); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.table(m.TableName)
	if err != nil {
		return nil, err
	}
	keyOf := t.key
	if m.wholeItem {
		keyOf = t.keyOf
	}
	at, err := keyOf(m.key)
	if err != nil {
		return nil, err
	}
	before := t.current(at)
	if !holds(before) {
		refusal := api.Errorf(http.StatusBadRequest, "ConditionalCheckFailedException", "The conditional request failed")
		if m.ReturnValuesOnConditionCheckFailure == "ALL_OLD" && before != nil {
			refusal.Fields = map[string]any{"Item": before}
		}
		return nil, refusal
	}
	after, err := m.change(t, before)
	if err != nil {
		return nil, err
	}
	if before != nil || after != nil {
		t.write(at, after)
	}
	var out struct {
		Attributes item `json:",omitempty"`
	}
	switch m.ReturnValues {
	case "ALL_OLD":
		out.Attributes = before
	case "ALL_NEW":
		out.Attributes = after
	}
	return out, nil
}

// leadingKey returns the text of a table's hash key among attributes.
func (d *DB) leadingKey(nameOrARN string, attributes item) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tables[tableName(nameOrARN)]
	if t == nil {
		return ""
	}
	return attributes[t.schema[0].AttributeName].scalar()
}

func (d *DB) putItem(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		writing
		Item item
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := oneOf("ReturnValues", in.ReturnValues, "NONE", "ALL_OLD"); err != nil {
		return nil, err
	}
	if err := in.Item.check(); err != nil {
		return nil, err
	}
	return d.write(c, mutation{
		writing: in.writing, substitutions: in.substitutions(), key: in.Item, wholeItem: true,
		change: func(*table, item) (item, error) { return in.Item, nil },
	})
}

func (d *DB) deleteItem(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		writing
		Key item
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := oneOf("ReturnValues", in.ReturnValues, "NONE", "ALL_OLD"); err != nil {
		return nil, err
	}
	if err := in.Key.check(); err != nil {
		return nil, err
	}
	return d.write(c, mutation{
		writing: in.writing, substitutions: in.substitutions(), key: in.Key,
		change: func(*table, item) (item, error) { return nil, nil },
	})
}

func (d *DB) updateItem(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		writing
		Key              item
		UpdateExpression *string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := oneOf("ReturnValues", in.ReturnValues, "NONE", "ALL_OLD", "ALL_NEW"); err != nil {
		return nil, err
	}
	if err := in.Key.check(); err != nil {
		return nil, err
	}
	s, u := in.substitutions(), &update{}
	if in.UpdateExpression != nil {
		var err error
		if u, err = parseUpdate(*in.UpdateExpression, s); err != nil {
			return nil, err
		}
	}
	return d.write(c, mutation{
		writing: in.writing, substitutions: s, updates: in.UpdateExpression != nil, key: in.Key,
		change: func(t *table, before item) (item, error) {
			for _, name := range append(sortedKeys(u.set), u.remove...) {
				if t.isKey(name) {
					return nil, invalid("One or more parameter values were invalid: Cannot update attribute %s. This attribute is part of the key", name)
				}
			}
			if before == nil {
				before = in.Key
			}
			return u.apply(before)
		},
	})
}

func (d *DB) getItem(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		common
		Key                  item
		ConsistentRead       bool
		ProjectionExpression *string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := in.Key.check(); err != nil {
		return nil, err
	}
	s := in.substitutions()
	var projection []string
	if in.ProjectionExpression != nil {
		var err error
		if projection, err = parseProjection(*in.ProjectionExpression, s); err != nil {
			return nil, err
		}
	}
	if err := s.check(in.ProjectionExpression != nil); err != nil {
		return nil, err
	}
	if err := c.Authorize(d.access(c.IAMAction(), in.TableName, d.leadingKey(in.TableName, in.Key))); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.table(in.TableName)
	if err != nil {
		return nil, err
	}
	at, err := t.key(in.Key)
	if err != nil {
		return nil, err
	}
	found := t.read(at, d.stale && !in.ConsistentRead)
	if found == nil {
		return nil, nil
	}
	if projection != nil {
		projected := item{}
		for _, name := range projection {
			if v, ok := found[name]; ok {
				projected[name] = v
			}
		}
		found = projected
	}
	return struct{ Item item }{found}, nil
}

func (d *DB) scan(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		common
		ConsistentRead    bool
		FilterExpression  *string
		Limit             *int
		ExclusiveStartKey item
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := in.ExclusiveStartKey.check(); err != nil {
		return nil, err
	}
	s := in.substitutions()
	matches := condition(func(item) bool { return true })
	if in.FilterExpression != nil {
		var err error
		if matches, err = parseCondition("FilterExpression", *in.FilterExpression, s); err != nil {
			return nil, err
		}
	}
	if err := s.check(in.FilterExpression != nil); err != nil {
		return nil, err
	}
	if in.Limit != nil && *in.Limit < 1 {
		return nil, invalid("Limit %d is not at least 1", *in.Limit)
	}
	out := struct {
		Items               []item
		Count, ScannedCount int
		LastEvaluatedKey    item `json:",omitempty"`
	}{Items: []item{}}
	err := d.onTable(c, in.TableName, func(t *table) error {
		after := ""
		if in.ExclusiveStartKey != nil {
			var err error
			if after, err = t.key(in.ExclusiveStartKey); err != nil {
				return err
			}
		}
		for _, at := range sortedKeys(t.items) {
			found := t.read(at, d.stale && !in.ConsistentRead)
			if found == nil || at <= after {
				continue
			}
			out.ScannedCount++
			if matches(found) {
				out.Items = append(out.Items, found)
			}
			if in.Limit != nil && out.ScannedCount == *in.Limit {
				out.LastEvaluatedKey = item{}
				for _, element := range t.schema {
					out.LastEvaluatedKey[element.AttributeName] = found[element.AttributeName]
				}
				break
			}
		}
		out.Count = len(out.Items)
		return nil
	})
	return out, err
}
