package aws_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	nodeaws "github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	db "github.com/etcfs/pulumi-etcfs/tests/region/dynamodb"
)

// newSeedTable makes the table that a cluster named demo has. lose makes the
// next answer get lost after the write has happened.
func newSeedTable(t *testing.T) (table nodeaws.SeedTable, client *dynamodb.Client, lose *atomic.Bool) {
	t.Helper()
	service := db.New(db.Config{Account: "123456789012", Region: "eu-west-1"}).Service()
	lose = &atomic.Bool{}
	put := service.Operations["PutItem"]
	service.Operations["PutItem"] = func(ctx context.Context, c *api.Call) (any, error) {
		result, err := put(ctx, c)
		if lose.CompareAndSwap(true, false) {
			return nil, api.ErrDropped
		}
		return result, err
	}
	config := apitest.New(t, service).Config()
	config.Retryer = nil // the SDK's own tries, as on a node
	client = dynamodb.NewFromConfig(config, func(o *dynamodb.Options) { o.RetryMaxAttempts = 3 })
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("demo-etcfs-seed"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("cluster_name"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("cluster_name"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return nodeaws.SeedTable{DynamoDB: client, Table: "demo-etcfs-seed", Cluster: "demo"}, client, lose
}

var (
	claim = membership.Item{
		ClusterName: "demo", SeedIP: "10.0.0.1", InstanceID: "i-0000000000000000a",
		CreatedAt: time.Unix(1_700_000_000, 0).UTC(), State: membership.StateForming,
	}
	formed = membership.Item{
		ClusterName: "demo", SeedIP: "10.0.0.1", InstanceID: "i-0000000000000000a",
		CreatedAt: time.Unix(1_700_000_100, 0).UTC(), State: membership.StateFormed, ClusterID: "c1", VolumeID: "vol-0123456789abcdef0",
	}
	rival = membership.Item{
		ClusterName: "demo", SeedIP: "10.0.0.2", InstanceID: "i-0000000000000000b",
		CreatedAt: time.Unix(1_700_000_000, 0).UTC(), State: membership.StateForming,
	}
)

func wantItem(t *testing.T, table nodeaws.SeedTable, want *membership.Item) {
	t.Helper()
	got, now, err := table.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case (got == nil) != (want == nil):
		t.Errorf("item is %+v, want %+v", got, want)
	case got != nil && *got != *want:
		t.Errorf("item is %+v, want %+v", *got, *want)
	}
	if off := time.Since(now).Abs(); off > 2*time.Second {
		t.Errorf("the table's clock is %s off", off)
	}
}

func TestSeedItem(t *testing.T) {
	t.Parallel()
	table, _, _ := newSeedTable(t)
	wantItem(t, table, nil)

	steps := []struct {
		what string
		do   func() (bool, error)
		won  bool
		item membership.Item
	}{
		{"the first claim wins", func() (bool, error) { return table.Create(t.Context(), claim) }, true, claim},
		{"a second one does not", func() (bool, error) { return table.Create(t.Context(), rival) }, false, claim},
		{"its own once more is its own", func() (bool, error) { return table.Create(t.Context(), claim) }, true, claim},
		{"a write against another item loses", func() (bool, error) { return table.Replace(t.Context(), rival, formed) }, false, claim},
		{"a write against exactly the item wins", func() (bool, error) { return table.Replace(t.Context(), claim, formed) }, true, formed},
		{"and wins again as the same write", func() (bool, error) { return table.Replace(t.Context(), claim, formed) }, true, formed},
		{"the old item is no longer there to be taken over", func() (bool, error) { return table.Replace(t.Context(), claim, rival) }, false, formed},
	}
	for _, step := range steps {
		won, err := step.do()
		if err != nil || won != step.won {
			t.Errorf("%s: got %v, %v, want %v", step.what, won, err, step.won)
		}
		wantItem(t, table, &step.item)
	}
}

// A lost answer has the SDK try again, and the second try meets the first one's
// own item.
func TestSeedItemAnswerLost(t *testing.T) {
	t.Parallel()
	table, _, lose := newSeedTable(t)
	lose.Store(true)
	if won, err := table.Create(t.Context(), claim); !won || err != nil {
		t.Errorf("claim with a lost answer is %v, %v, want won", won, err)
	}
	lose.Store(true)
	if won, err := table.Replace(t.Context(), claim, formed); !won || err != nil {
		t.Errorf("replacement with a lost answer is %v, %v, want won", won, err)
	}
	if lose.Load() {
		t.Error("no answer was lost")
	}
	wantItem(t, table, &formed)
}

func TestTakeoverHasOneWinner(t *testing.T) {
	t.Parallel()
	table, _, _ := newSeedTable(t)
	if _, err := table.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	var winners atomic.Int32
	var tries errgroup.Group
	for i := range 16 {
		tries.Go(func() error {
			item := rival
			item.InstanceID = item.InstanceID[:17] + string(rune('a'+i))
			won, err := table.Replace(t.Context(), claim, item)
			if won {
				winners.Add(1)
			}
			return err
		})
	}
	if err := tries.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := winners.Load(); got != 1 {
		t.Errorf("%d of 16 takeovers won, want 1", got)
	}
}

// The shell bootstrap writes three attributes, and replaces the item whole.
func TestSeedItemOfTheShell(t *testing.T) {
	t.Parallel()
	table, client, _ := newSeedTable(t)
	put := func(item map[string]types.AttributeValue) {
		if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table.Table, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	put(map[string]types.AttributeValue{
		"cluster_name": &types.AttributeValueMemberS{Value: "demo"},
		"seed_ip":      &types.AttributeValueMemberS{Value: "10.0.0.9"},
		"created_at":   &types.AttributeValueMemberN{Value: "1700000000"},
	})
	shell := membership.Item{ClusterName: "demo", SeedIP: "10.0.0.9", CreatedAt: time.Unix(1_700_000_000, 0).UTC()}
	wantItem(t, table, &shell)

	// An item of ours with the same address and time is another item.
	ours := shell
	ours.InstanceID, ours.State = claim.InstanceID, membership.StateForming
	if won, err := table.Replace(t.Context(), ours, formed); won || err != nil {
		t.Errorf("replacing an item with more attributes is %v, %v, want lost", won, err)
	}
	if won, err := table.Replace(t.Context(), shell, formed); !won || err != nil {
		t.Errorf("replacing the shell's item is %v, %v, want won", won, err)
	}

	put(map[string]types.AttributeValue{
		"cluster_name": &types.AttributeValueMemberS{Value: "demo"},
		"seed_ip":      &types.AttributeValueMemberS{Value: "10.0.0.9"},
		"created_at":   &types.AttributeValueMemberN{Value: "1700000000"},
		"state":        &types.AttributeValueMemberS{Value: "dissolved"},
	})
	if item, _, err := table.Read(t.Context()); err == nil {
		t.Errorf("an item in a state of a later version is read as %+v, want an error", item)
	}
}

func TestPin(t *testing.T) {
	t.Parallel()
	table, _, _ := newSeedTable(t)
	for _, proposed := range []string{"0.36.0", "0.37.0"} {
		if got, err := table.Pin(t.Context(), proposed); err != nil || got != "0.36.0" {
			t.Errorf("pin of %s is %q, %v, want 0.36.0", proposed, got, err)
		}
	}
	wantItem(t, table, nil) // the pin is no seed item
}
