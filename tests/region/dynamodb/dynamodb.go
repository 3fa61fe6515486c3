// Package dynamodb is DynamoDB of the region: tables with a hash and perhaps a
// range key, conditional writes, consistent and stale reads, kept in memory.
// It has no indexes, streams, transactions or queries; a parameter that it
// does not have is refused, never ignored.
//
// It is not modelled on a library: the emulator that was looked at does not
// return the item of a failed condition, and the one expression interpreter in
// Go compares numbers as 64-bit floats, which makes two different timestamps
// equal.
package dynamodb

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Config is what the service needs to know of its surroundings.
type Config struct {
	Account, Region string
}

// DB is the service.
type DB struct {
	config Config

	mu     sync.Mutex
	tables map[string]*table
	stale  bool
}

type table struct {
	name, id  string
	created   time.Time
	schema    []keyElement
	types     []attributeDefinition
	billing   string
	capacity  throughput
	protected bool // from deletion
	recovery  bool // to a point in time
	tags      map[string]string

	items map[string]*record
}

// record is an item with the one that was there before the last write; either
// is nil when there is or was none.
type record struct {
	current, previous item
}

type keyElement struct {
	AttributeName string
	KeyType       string
}

type attributeDefinition struct {
	AttributeName string
	AttributeType string
}

type throughput struct {
	ReadCapacityUnits, WriteCapacityUnits, NumberOfDecreasesToday int64
}

// New makes the service.
func New(config Config) *DB {
	return &DB{config: config, tables: map[string]*table{}}
}

// SetStaleReads makes reads that do not ask for consistency return what was
// there before the last write of each item, the worst that eventual
// consistency allows.
func (d *DB) SetStaleReads(stale bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stale = stale
}

// TableARN is a table's ARN.
func (d *DB) TableARN(name string) string {
	return "arn:aws:dynamodb:" + d.config.Region + ":" + d.config.Account + ":table/" + name
}

// tableName returns the name in a TableName parameter, which may be an ARN.
func tableName(nameOrARN string) string {
	if _, name, ok := strings.Cut(nameOrARN, ":table/"); ok {
		return name
	}
	return nameOrARN
}

// table returns a table; the caller holds the lock.
func (d *DB) table(nameOrARN string) (*table, error) {
	t := d.tables[tableName(nameOrARN)]
	if t == nil {
		return nil, api.Errorf(http.StatusBadRequest, "ResourceNotFoundException", "Requested resource not found: Table: %s not found", tableName(nameOrARN))
	}
	return t, nil
}

var tablePattern = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

func newTable(name string, schema []keyElement, types []attributeDefinition) (*table, error) {
	if !tablePattern.MatchString(name) {
		return nil, invalid("Invalid table/index name. Table/index names must be between 3 and 255 characters long, and may contain only the characters a-z, A-Z, 0-9, '_', '-', and '.'")
	}
	if len(schema) == 0 || len(schema) > 2 || schema[0].KeyType != "HASH" || len(schema) == 2 && schema[1].KeyType != "RANGE" {
		return nil, invalid("Invalid KeySchema: a HASH element, then perhaps a RANGE element")
	}
	defined := map[string]string{}
	for _, definition := range types {
		if t := definition.AttributeType; t != "S" && t != "N" && t != "B" {
			return nil, invalid("Invalid AttributeType %q of %s: one of S, N, B", t, definition.AttributeName)
		}
		defined[definition.AttributeName] = definition.AttributeType
	}
	for _, element := range schema {
		if defined[element.AttributeName] == "" {
			return nil, invalid("One or more parameter values were invalid: Some index key attributes are not defined in AttributeDefinitions. Keys: [%s]", element.AttributeName)
		}
	}
	if len(defined) != len(schema) {
		return nil, invalid("One or more parameter values were invalid: Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
	}
	return &table{
		name: name, id: uuid.NewString(), created: time.Now(), schema: schema, types: types,
		tags: map[string]string{}, items: map[string]*record{},
	}, nil
}

// keyOf returns the text that identifies an item by its key attributes, which
// it checks.
func (t *table) keyOf(attributes item) (string, error) {
	var parts []string
	for _, element := range t.schema {
		v, ok := attributes[element.AttributeName]
		if !ok {
			return "", invalid("One or more parameter values were invalid: Missing the key %s in the item", element.AttributeName)
		}
		want := ""
		for _, definition := range t.types {
			if definition.AttributeName == element.AttributeName {
				want = definition.AttributeType
			}
		}
		if got := v.kind(); got != want {
			return "", invalid("One or more parameter values were invalid: Type mismatch for key %s expected: %s actual: %s", element.AttributeName, want, got)
		}
		text := v.scalar()
		if text == "" {
			return "", invalid("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: %s", element.AttributeName)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "\x00"), nil
}

// key is keyOf for a Key parameter, which has the key attributes and no others.
func (t *table) key(key item) (string, error) {
	if len(key) != len(t.schema) {
		return "", invalid("The provided key element does not match the schema")
	}
	text, err := t.keyOf(key)
	if err != nil {
		return "", invalid("The provided key element does not match the schema")
	}
	return text, nil
}

func (t *table) isKey(attribute string) bool {
	for _, element := range t.schema {
		if element.AttributeName == attribute {
			return true
		}
	}
	return false
}

// current returns the item under a key, nil without one.
func (t *table) current(key string) item {
	if r := t.items[key]; r != nil {
		return r.current
	}
	return nil
}

// read returns the item under a key as a read sees it.
func (t *table) read(key string, stale bool) item {
	r := t.items[key]
	switch {
	case r == nil:
		return nil
	case stale:
		return r.previous
	}
	return r.current
}

// write puts an item (nil: none) under a key.
func (t *table) write(key string, i item) {
	t.items[key] = &record{current: i, previous: t.current(key)}
}

// access is the permission to do something with a table, or with the items of
// it that have the hash key.
func (d *DB) access(action, nameOrARN, leadingKey string) api.Access {
	context := map[string]string{}
	if leadingKey != "" {
		context["dynamodb:LeadingKeys"] = leadingKey
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tables[tableName(nameOrARN)]; t != nil {
		for key, value := range t.tags {
			context["aws:ResourceTag/"+key] = value
		}
	}
	return api.Access{Action: action, Resource: d.TableARN(tableName(nameOrARN)), Context: context}
}

func invalid(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "ValidationException", format, args...)
}

type tag struct{ Key, Value string }

func tagList(tags map[string]string) []tag {
	list := []tag{}
	for _, key := range sortedKeys(tags) {
		list = append(list, tag{key, tags[key]})
	}
	return list
}

func mergeTags(into map[string]string, tags []tag) {
	for _, t := range tags {
		into[t.Key] = t.Value
	}
}
