package dynamodb_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	region "github.com/etcfs/pulumi-etcfs/tests/region/dynamodb"
)

var table = aws.String("demo-etcfs-seed")

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func number(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }

type item = map[string]types.AttributeValue

func start(t *testing.T) (*region.DB, *apitest.Endpoint, *dynamodb.Client) {
	t.Helper()
	db := region.New(region.Config{Account: apitest.Account, Region: apitest.Region})
	endpoint := apitest.New(t, db.Service())
	client := dynamodb.NewFromConfig(endpoint.Config())
	createTable(t, client)
	return db, endpoint, client
}

func createTable(t *testing.T, client *dynamodb.Client) {
	t.Helper()
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            table,
		BillingMode:          types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("cluster_name"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("cluster_name"), AttributeType: types.ScalarAttributeTypeS}},
		Tags:                 []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}},
	}); err != nil {
		t.Fatal(err)
	}
}

func seed() item {
	return item{"cluster_name": text("demo"), "seed_ip": text("10.0.0.1"), "created_at": number("1700000000"), "state": text("forming")}
}

func key() item { return item{"cluster_name": text("demo")} }

func put(t *testing.T, client *dynamodb.Client, i item) {
	t.Helper()
	if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: i}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, client *dynamodb.Client, consistent bool) item {
	t.Helper()
	out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key(), ConsistentRead: &consistent})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

var values = cmpopts.IgnoreUnexported(types.AttributeValueMemberS{}, types.AttributeValueMemberN{})

func TestTableLifeCycle(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	ctx := t.Context()
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: table, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
	})
	if got, want := apitest.Code(err), "ResourceInUseException"; got != want {
		t.Errorf("create it twice: got %q (%v), want %q", got, err, want)
	}
	arn := "arn:aws:dynamodb:eu-west-1:123456789012:table/demo-etcfs-seed"
	described, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &arn})
	if err != nil {
		t.Fatal(err)
	}
	d := described.Table
	if diff := cmp.Diff(
		[]any{arn, types.TableStatusActive, types.BillingModePayPerRequest, "cluster_name", types.KeyTypeHash, types.ScalarAttributeTypeS, false},
		[]any{
			*d.TableArn, d.TableStatus, d.BillingModeSummary.BillingMode, *d.KeySchema[0].AttributeName, d.KeySchema[0].KeyType,
			d.AttributeDefinitions[0].AttributeType, *d.DeletionProtectionEnabled,
		}); diff != "" {
		t.Errorf("described table (-want +got):\n%s", diff)
	}
	backups, err := client.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: table})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := backups.ContinuousBackupsDescription.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus, types.PointInTimeRecoveryStatusDisabled; got != want {
		t.Errorf("recovery to a point in time: got %s, want %s", got, want)
	}
	updated, err := client.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
		TableName: table, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := updated.ContinuousBackupsDescription.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus, types.PointInTimeRecoveryStatusEnabled; got != want {
		t.Errorf("recovery to a point in time, switched on: got %s, want %s", got, want)
	}
	ttl, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: table})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ttl.TimeToLiveDescription.TimeToLiveStatus, types.TimeToLiveStatusDisabled; got != want {
		t.Errorf("time to live: got %s, want %s", got, want)
	}
	if _, err := client.TagResource(ctx, &dynamodb.TagResourceInput{ResourceArn: &arn, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UntagResource(ctx, &dynamodb.UntagResourceInput{ResourceArn: &arn, TagKeys: []string{"ClusterName"}}); err != nil {
		t.Fatal(err)
	}
	tags, err := client.ListTagsOfResource(ctx, &dynamodb.ListTagsOfResourceInput{ResourceArn: &arn})
	if err != nil {
		t.Fatal(err)
	}
	if len(tags.Tags) != 1 || *tags.Tags[0].Key != "a" {
		t.Errorf("tags: got %v, want a=b", tags.Tags)
	}
	protect := func(on bool) {
		t.Helper()
		if _, err := client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: table, DeletionProtectionEnabled: &on}); err != nil {
			t.Fatal(err)
		}
	}
	protect(true)
	_, err = client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: table})
	if got, want := apitest.Code(err), "ValidationException"; got != want {
		t.Errorf("delete a protected table: got %q (%v), want %q", got, err, want)
	}
	protect(false)
	if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: table}); err != nil {
		t.Fatal(err)
	}
	_, err = client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: table})
	var notFound *types.ResourceNotFoundException
	if !errors.As(err, &notFound) {
		t.Errorf("describe a deleted table: got %v, want a ResourceNotFoundException", err)
	}
	_, err = client.GetItem(ctx, &dynamodb.GetItemInput{TableName: table, Key: key()})
	if !errors.As(err, &notFound) {
		t.Errorf("read from a deleted table: got %v, want a ResourceNotFoundException", err)
	}
	list, err := client.ListTables(ctx, &dynamodb.ListTablesInput{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.TableNames) != 0 {
		t.Errorf("tables: got %v, want none", list.TableNames)
	}
}

func TestCreateTableRefuses(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	hash := []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}}
	id := []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}}
	for name, in := range map[string]*dynamodb.CreateTableInput{
		"short name":            {TableName: aws.String("ab"), KeySchema: hash, AttributeDefinitions: id, BillingMode: types.BillingModePayPerRequest},
		"undefined key":         {TableName: aws.String("abc"), KeySchema: hash, BillingMode: types.BillingModePayPerRequest, AttributeDefinitions: []types.AttributeDefinition{}},
		"superfluous attribute": {TableName: aws.String("abc"), KeySchema: hash, AttributeDefinitions: append(id, types.AttributeDefinition{AttributeName: aws.String("x"), AttributeType: "S"}), BillingMode: types.BillingModePayPerRequest},
		"no throughput":         {TableName: aws.String("abc"), KeySchema: hash, AttributeDefinitions: id},
		"a stream":              {TableName: aws.String("abc"), KeySchema: hash, AttributeDefinitions: id, BillingMode: types.BillingModePayPerRequest, StreamSpecification: &types.StreamSpecification{StreamEnabled: aws.Bool(true)}},
	} {
		_, err := client.CreateTable(t.Context(), in)
		if got, want := apitest.Code(err), "ValidationException"; got != want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestElection(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	ctx := t.Context()
	// Many nodes put the item at once; exactly one may succeed, and the others
	// see whose it is.
	var mu sync.Mutex
	var winners, losersSaw []string
	var wait sync.WaitGroup
	for n := range 16 {
		wait.Go(func() {
			i := seed()
			address := fmt.Sprintf("10.0.0.%d", n)
			i["seed_ip"] = text(address)
			_, err := client.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: table, Item: i, ConditionExpression: aws.String("attribute_not_exists(cluster_name)"),
				ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			})
			mu.Lock()
			defer mu.Unlock()
			var failed *types.ConditionalCheckFailedException
			switch {
			case err == nil:
				winners = append(winners, address)
			case errors.As(err, &failed):
				losersSaw = append(losersSaw, failed.Item["seed_ip"].(*types.AttributeValueMemberS).Value)
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if len(winners) != 1 || len(losersSaw) != 15 {
		t.Fatalf("got %d winners and %d losers, want 1 and 15", len(winners), len(losersSaw))
	}
	for _, saw := range losersSaw {
		if saw != winners[0] {
			t.Errorf("a loser saw %s, want the winner %s", saw, winners[0])
		}
	}
	// Takeover: conditional on the exact item that was read.
	found := get(t, client, true)
	takeover := func(of item) error {
		_, err := client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: table, Item: seed(), ConditionExpression: aws.String("seed_ip = :ip AND created_at = :at"),
			ExpressionAttributeValues: item{":ip": of["seed_ip"], ":at": of["created_at"]},
		})
		return err
	}
	changed := seed()
	changed["seed_ip"] = text("10.9.9.9")
	put(t, client, changed)
	var failed *types.ConditionalCheckFailedException
	if err := takeover(found); !errors.As(err, &failed) {
		t.Errorf("takeover of an item that changed: got %v, want a ConditionalCheckFailedException", err)
	} else if failed.Item != nil {
		t.Errorf("item of a failure that did not ask for it: got %v, want none", failed.Item)
	}
	if err := takeover(get(t, client, true)); err != nil {
		t.Errorf("takeover of the item that is there: %v", err)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	names := map[string]string{"#state": "state"}
	vals := item{
		":ip": text("10.0.0.1"), ":other": text("10.0.0.2"), ":at": number("1700000000.0"), ":later": number("1700000600"),
		":forming": text("forming"), ":big": number("9007199254740993"),
	}
	big := seed()
	big["big"] = number("9007199254740992") // equal to :big as a 64-bit float
	big["tags"] = &types.AttributeValueMemberM{Value: item{"keeper": &types.AttributeValueMemberL{Value: []types.AttributeValue{text("x"), text("10.0.0.1")}}}}
	for _, test := range []struct {
		condition string
		want      bool
	}{
		{"attribute_exists(cluster_name)", true},
		{"attribute_not_exists(cluster_name)", false},
		{"attribute_exists(instance_id)", false},
		{"attribute_not_exists(instance_id)", true},
		{"attribute_exists(tags.keeper[1])", true},
		{"attribute_exists(tags.keeper[2])", false},
		{"attribute_exists(tags.keeper.x)", false},
		{"tags.keeper[1] = :ip", true},
		{"seed_ip = :ip", true},
		{":ip = seed_ip", true},
		{"seed_ip = :other", false},
		{"seed_ip <> :other", true},
		{"instance_id = :ip", false},
		{"instance_id <> :ip", true}, // an attribute that is not there differs
		{"created_at = :at", true},   // by value, not by text
		{"created_at = :ip", false},
		{"created_at < :later", true},
		{"created_at <= :at", true},
		{"created_at > :at", false},
		{"created_at >= :at", true},
		{"created_at > :ip", false}, // types differ
		{"absent < :later", false},
		{"big = :big", false},
		{"big < :big", true},
		{"#state = :forming", true},
		{"NOT seed_ip = :ip", false},
		{"not seed_ip = :ip", false},
		{"NOT NOT seed_ip = :ip", true},
		// AND binds closer than OR, NOT closer than both.
		{"seed_ip = :ip OR seed_ip = :ip AND seed_ip = :other", true},
		{"(seed_ip = :ip OR seed_ip = :ip) AND seed_ip = :other", false},
		{"NOT seed_ip = :other AND seed_ip = :ip", true},
		{"NOT (seed_ip = :other OR seed_ip = :ip)", false},
		{"(seed_ip = :ip) AND (created_at = :at)", true},
		{"attribute_not_exists(cluster_name) OR (seed_ip = :ip AND created_at = :at)", true},
	} {
		put(t, client, big)
		in := &dynamodb.PutItemInput{
			TableName: table, Item: seed(), ConditionExpression: &test.condition,
			ExpressionAttributeNames: map[string]string{}, ExpressionAttributeValues: item{},
		}
		for name := range names {
			if strings.Contains(test.condition, name) {
				in.ExpressionAttributeNames[name] = names[name]
			}
		}
		for name := range vals {
			if strings.Contains(test.condition, name) {
				in.ExpressionAttributeValues[name] = vals[name]
			}
		}
		if len(in.ExpressionAttributeNames) == 0 {
			in.ExpressionAttributeNames = nil
		}
		if len(in.ExpressionAttributeValues) == 0 {
			in.ExpressionAttributeValues = nil
		}
		_, err := client.PutItem(t.Context(), in)
		var failed *types.ConditionalCheckFailedException
		switch {
		case err == nil && !test.want:
			t.Errorf("%s: holds, want not", test.condition)
		case errors.As(err, &failed) && test.want:
			t.Errorf("%s: does not hold, want so", test.condition)
		case err != nil && !errors.As(err, &failed):
			t.Errorf("%s: %v", test.condition, err)
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	one := item{":v": text("x")}
	for _, test := range []struct {
		condition string
		names     map[string]string
		values    item
		message   string
	}{
		{"", nil, nil, "Invalid ConditionExpression: The expression can not be empty;"},
		{"seed_ip = ", nil, nil, `Invalid ConditionExpression: Syntax error; token: "<EOF>"`},
		{"seed_ip == :v", nil, one, `Invalid ConditionExpression: Syntax error; token: "="`},
		{"seed_ip = :v AND", nil, one, "Syntax error"},
		{"(seed_ip = :v", nil, one, "Syntax error"},
		{"seed_ip = :v)", nil, one, `Syntax error; token: ")"`},
		{"seed_ip = 'x'", nil, nil, `Syntax error; token: "'"`},
		{"seed_ip", nil, nil, "Syntax error"},
		{"attribute_exists(:v)", nil, one, "Syntax error"},
		{"exists(seed_ip)", nil, nil, "Invalid function name; function: exists"},
		{"((seed_ip = :v))", nil, one, "The expression has redundant parentheses;"},
		{"state = :v", nil, one, "Attribute name is a reserved keyword; reserved keyword: state"},
		{"#s = :v", nil, one, "An expression attribute name used in the document path is not defined; attribute name: #s"},
		{"seed_ip = :w", nil, one, "An expression attribute value used in expression is not defined; attribute value: :w"},
		{"attribute_exists(seed_ip)", nil, one, "Value provided in ExpressionAttributeValues unused in expressions: keys: {:v}"},
		{"attribute_exists(seed_ip)", map[string]string{"#s": "state"}, nil, "Value provided in ExpressionAttributeNames unused in expressions: keys: {#s}"},
		{"seed_ip < :v", nil, item{":v": &types.AttributeValueMemberBOOL{Value: true}}, "Incorrect operand type for operator or function; operator: <, operand type: BOOL"},
		{"seed_ip = seed_ip", nil, nil, "The first operand must be distinct from the remaining operands"},
		{"seed_ip = :v", nil, item{":v": number("ten")}, "cannot be converted to a numeric value: ten"},
	} {
		_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: table, Item: seed(), ConditionExpression: &test.condition, ExpressionAttributeNames: test.names, ExpressionAttributeValues: test.values,
		})
		if got, want := apitest.Code(err), "ValidationException"; got != want || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%q: got %v, want a %s with %q", test.condition, err, want, test.message)
		}
	}
	for name, i := range map[string]item{
		"no key":               {"seed_ip": text("x")},
		"key of another type":  {"cluster_name": number("1")},
		"empty key":            {"cluster_name": text("")},
		"a word as a number":   {"cluster_name": text("demo"), "n": number("one")},
		"39 digits":            {"cluster_name": text("demo"), "n": number(strings.Repeat("1", 39))},
		"a number too large":   {"cluster_name": text("demo"), "n": number("1e126")},
		"a number too small":   {"cluster_name": text("demo"), "n": number("1e-131")},
		"an empty set":         {"cluster_name": text("demo"), "set": &types.AttributeValueMemberSS{Value: []string{}}},
		"an element twice":     {"cluster_name": text("demo"), "set": &types.AttributeValueMemberNS{Value: []string{"1", "1.0"}}},
		"a bad value in a map": {"cluster_name": text("demo"), "map": &types.AttributeValueMemberM{Value: item{"n": number("")}}},
	} {
		_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: i})
		if got, want := apitest.Code(err), "ValidationException"; got != want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, want)
		}
	}
	_, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: seed()})
	if got, want := apitest.Code(err), "ValidationException"; got != want {
		t.Errorf("more than the key: got %q (%v), want %q", got, err, want)
	}
	_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: seed(), ExpressionAttributeValues: one})
	if got, want := apitest.Code(err), "ValidationException"; got != want {
		t.Errorf("values without an expression: got %q (%v), want %q", got, err, want)
	}
	// A parameter that the region does not have is refused by name.
	_, err = client.Scan(t.Context(), &dynamodb.ScanInput{TableName: table, IndexName: aws.String("by-ip")})
	if err == nil || !strings.Contains(err.Error(), "IndexName") {
		t.Errorf("scan of an index: got %v, want a refusal that names IndexName", err)
	}
}

func TestItems(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	ctx := t.Context()
	if got := get(t, client, true); got != nil {
		t.Errorf("an item that was not put: got %v, want none", got)
	}
	in := seed()
	in["n"] = number("+001.500e2")
	in["fraction"] = number(".05")
	put(t, client, in)
	want := seed()
	want["n"], want["fraction"] = number("150"), number("0.05")
	if diff := cmp.Diff(want, get(t, client, true), values); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
	projected, err := client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: table, Key: key(), ProjectionExpression: aws.String("seed_ip, #s, absent"), ExpressionAttributeNames: map[string]string{"#s": "state"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(item{"seed_ip": text("10.0.0.1"), "state": text("forming")}, projected.Item, values); diff != "" {
		t.Errorf("projection (-want +got):\n%s", diff)
	}
	replaced, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: seed(), ReturnValues: types.ReturnValueAllOld})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, replaced.Attributes, values); diff != "" {
		t.Errorf("what PutItem replaced (-want +got):\n%s", diff)
	}
	updated, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: table, Key: key(), UpdateExpression: aws.String("SET #s = :formed, etcd_cluster = seed_ip REMOVE created_at"),
		ConditionExpression:      aws.String("#s = :forming"),
		ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: item{":formed": text("formed"), ":forming": text("forming")},
		ReturnValues: types.ReturnValueAllNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	want = item{"cluster_name": text("demo"), "seed_ip": text("10.0.0.1"), "state": text("formed"), "etcd_cluster": text("10.0.0.1")}
	if diff := cmp.Diff(want, updated.Attributes, values); diff != "" {
		t.Errorf("updated item (-want +got):\n%s", diff)
	}
	for expression, message := range map[string]string{
		"SET cluster_name = :v":         "This attribute is part of the key",
		"SET a = :v, a = :v":            "overlap",
		"SET a = absent, b = :v":        "refers to an attribute that does not exist",
		"ADD n :v":                      "Syntax error",
		"SET a = :v SET b = :v":         "can only be used once",
		"SET a = if_not_exists(b, :v)":  "Syntax error",
		"SET a = :v REMOVE a":           "overlap",
		"REMOVE cluster_name SET a= :v": "This attribute is part of the key",
	} {
		_, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: table, Key: key(), UpdateExpression: &expression, ExpressionAttributeValues: item{":v": text("x")},
		})
		if apitest.Code(err) != "ValidationException" || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: got %v, want a ValidationException with %q", expression, err, message)
		}
	}
	deleted, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: table, Key: key(), ReturnValues: types.ReturnValueAllOld,
		ConditionExpression: aws.String("attribute_exists(etcd_cluster)"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, deleted.Attributes, values); diff != "" {
		t.Errorf("deleted item (-want +got):\n%s", diff)
	}
	var failed *types.ConditionalCheckFailedException
	if _, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: table, Key: key(), ConditionExpression: aws.String("attribute_exists(etcd_cluster)"),
	}); !errors.As(err, &failed) {
		t.Errorf("delete it twice, if it is there: got %v, want a ConditionalCheckFailedException", err)
	}
	if _, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: table, Key: key()}); err != nil {
		t.Errorf("delete it twice: %v", err)
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	for n := range 7 {
		put(t, client, item{"cluster_name": text(fmt.Sprintf("c%d", n)), "n": number(fmt.Sprint(n))})
	}
	var got []string
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
		TableName: table, Limit: aws.Int32(2), FilterExpression: aws.String("n >= :low"), ExpressionAttributeValues: item{":low": number("3")},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Items {
			got = append(got, i["cluster_name"].(*types.AttributeValueMemberS).Value)
		}
	}
	if diff := cmp.Diff([]string{"c3", "c4", "c5", "c6"}, got); diff != "" {
		t.Errorf("scan (-want +got):\n%s", diff)
	}
}

func TestStaleReads(t *testing.T) {
	t.Parallel()
	db, _, client := start(t)
	db.SetStaleReads(true)
	put(t, client, seed())
	if got := get(t, client, false); got != nil {
		t.Errorf("stale read after the first write: got %v, want none", got)
	}
	second := seed()
	second["seed_ip"] = text("10.0.0.2")
	put(t, client, second)
	if diff := cmp.Diff(seed(), get(t, client, false), values); diff != "" {
		t.Errorf("stale read after the second write (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(second, get(t, client, true), values); diff != "" {
		t.Errorf("consistent read (-want +got):\n%s", diff)
	}
	db.SetStaleReads(false)
	if diff := cmp.Diff(second, get(t, client, false), values); diff != "" {
		t.Errorf("read once the fault is over (-want +got):\n%s", diff)
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	_, endpoint, client := start(t)
	ctx := t.Context()
	arn := "arn:aws:dynamodb:eu-west-1:123456789012:table/demo-etcfs-seed"
	for action, call := range map[string]func() error{
		"DescribeTable": func() error {
			_, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: table})
			return err
		},
		"UpdateTable": func() error {
			_, err := client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: table, DeletionProtectionEnabled: aws.Bool(false)})
			return err
		},
		"TagResource": func() error {
			_, err := client.TagResource(ctx, &dynamodb.TagResourceInput{ResourceArn: &arn, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
			return err
		},
		"UntagResource": func() error {
			_, err := client.UntagResource(ctx, &dynamodb.UntagResourceInput{ResourceArn: &arn, TagKeys: []string{"a"}})
			return err
		},
		"ListTagsOfResource": func() error {
			_, err := client.ListTagsOfResource(ctx, &dynamodb.ListTagsOfResourceInput{ResourceArn: &arn})
			return err
		},
		"DescribeTimeToLive": func() error {
			_, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: table})
			return err
		},
		"DescribeContinuousBackups": func() error {
			_, err := client.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: table})
			return err
		},
		"UpdateContinuousBackups": func() error {
			_, err := client.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
				TableName: table, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
			})
			return err
		},
		"PutItem": func() error {
			_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: seed()})
			return err
		},
		"GetItem": func() error {
			_, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: table, Key: key()})
			return err
		},
		"UpdateItem": func() error {
			_, err := client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: table, Key: key()})
			return err
		},
		"DeleteItem": func() error {
			_, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: table, Key: key()})
			return err
		},
		"Scan": func() error {
			_, err := client.Scan(ctx, &dynamodb.ScanInput{TableName: table})
			return err
		},
	} {
		endpoint.RequireAccess(t, "dynamodb:"+action, arn, call)
	}
	endpoint.RequireAccess(t, "dynamodb:ListTables", "*", func() error {
		_, err := client.ListTables(ctx, &dynamodb.ListTablesInput{})
		return err
	})
	endpoint.RequireAccess(t, "dynamodb:DeleteTable", arn, func() error {
		_, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: table})
		return err
	})

	createTable(t, client)
	endpoint.Asked()
	put(t, client, seed())
	want := map[string]string{"dynamodb:LeadingKeys": "demo", "aws:ResourceTag/ClusterName": "demo"}
	if diff := cmp.Diff(want, endpoint.Asked()[0].Context); diff != "" {
		t.Errorf("context of PutItem (-want +got):\n%s", diff)
	}
}
