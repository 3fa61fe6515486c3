package sqs_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	region "github.com/etcfs/pulumi-etcfs/tests/region/sqs"
)

const queueARN = "arn:aws:sqs:eu-west-1:123456789012:failed"

// anybody lets everybody do everything but what it denies.
type anybody struct{ denied string }

func (a anybody) Authorize(_ api.Principal, access api.Access) error {
	if access.Action == a.denied {
		return api.Errorf(403, "AccessDenied", "not authorized to perform: %s", access.Action)
	}
	return nil
}

func newQueues(t *testing.T, denied string) (*region.Queues, *sqs.Client, *apitest.Endpoint) {
	t.Helper()
	queues := region.New(region.Config{Account: apitest.Account, Region: apitest.Region, Authorizer: anybody{denied}})
	endpoint := apitest.New(t, queues.Service())
	return queues, sqs.NewFromConfig(endpoint.Config()), endpoint
}

func create(t *testing.T, client *sqs.Client, attributes map[string]string) *string {
	t.Helper()
	made, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{
		QueueName: aws.String("failed"), Attributes: attributes, Tags: map[string]string{"ClusterName": "demo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return made.QueueUrl
}

func TestLifeOfAQueue(t *testing.T) {
	t.Parallel()
	_, client, _ := newQueues(t, "")
	url := create(t, client, map[string]string{"MessageRetentionPeriod": "1209600"})
	if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("one")}); err != nil {
		t.Fatal(err)
	}
	attributes := func() map[string]string {
		got, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: []types.QueueAttributeName{
			"QueueArn", "MessageRetentionPeriod", "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
		}})
		if err != nil {
			t.Fatal(err)
		}
		return got.Attributes
	}
	want := map[string]string{
		"QueueArn": queueARN, "MessageRetentionPeriod": "1209600", "ApproximateNumberOfMessages": "1", "ApproximateNumberOfMessagesNotVisible": "0",
	}
	if diff := cmp.Diff(want, attributes()); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	received, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10})
	if err != nil || len(received.Messages) != 1 || aws.ToString(received.Messages[0].Body) != "one" {
		t.Fatalf("got %v, %v, want the message", received, err)
	}
	want["ApproximateNumberOfMessages"], want["ApproximateNumberOfMessagesNotVisible"] = "0", "1"
	if diff := cmp.Diff(want, attributes()); diff != "" {
		t.Errorf("attributes while a receiver has the message (-want +got):\n%s", diff)
	}
	if again, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url}); err != nil || len(again.Messages) != 0 {
		t.Errorf("got %v, %v, want nothing while a receiver has the message", again, err)
	}
	if _, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: received.Messages[0].ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	want["ApproximateNumberOfMessagesNotVisible"] = "0"
	if diff := cmp.Diff(want, attributes()); diff != "" {
		t.Errorf("attributes after the message was deleted (-want +got):\n%s", diff)
	}
	if _, err := client.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: url, Tags: map[string]string{"Team": "storage"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UntagQueue(t.Context(), &sqs.UntagQueueInput{QueueUrl: url, TagKeys: []string{"ClusterName"}}); err != nil {
		t.Fatal(err)
	}
	tags, err := client.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: url})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Team": "storage"}, tags.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if _, err := client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: url}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("failed")}); apitest.Code(err) != "QueueDoesNotExist" {
		t.Errorf("a deleted queue: got %v, want QueueDoesNotExist", err)
	}
}

// Purging takes the messages that a receiver has, too.
func TestPurge(t *testing.T) {
	t.Parallel()
	queues, client, _ := newQueues(t, "")
	url := create(t, client, nil)
	for _, body := range []string{"one", "two"} {
		if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
	}
	if received, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url}); err != nil || len(received.Messages) != 1 {
		t.Fatalf("got %v, %v, want one message", received, err)
	}
	if _, err := client.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: url}); err != nil {
		t.Fatal(err)
	}
	if left := queues.Messages("failed"); len(left) != 0 {
		t.Errorf("got %q left, want nothing", left)
	}
}

func TestAttributesThatAreRefused(t *testing.T) {
	t.Parallel()
	_, client, _ := newQueues(t, "")
	for name, want := range map[string]string{
		"MessageRetentionPeriod": "InvalidAttributeValue", "VisibilityTimeout": "InvalidAttributeValue",
		"SqsManagedSseEnabled": "InvalidAttributeValue", "Policy": "InvalidAttributeValue", "FifoQueue": "InvalidAttributeName",
	} {
		_, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("failed"), Attributes: map[string]string{name: "59000000x"}})
		if got := apitest.Code(err); got != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func TestServicesSendAsThePolicyAllows(t *testing.T) {
	t.Parallel()
	const rule = "arn:aws:events:eu-west-1:123456789012:rule/terminating"
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage",
		"Resource":"` + queueARN + `","Condition":{"ArnEquals":{"aws:SourceArn":"` + rule + `"}}}]}`
	queues, client, _ := newQueues(t, "sqs:SendMessage")
	create(t, client, map[string]string{"Policy": policy})
	if err := queues.SendFor("events.amazonaws.com", rule, queueARN, "event", nil); err != nil {
		t.Errorf("as the policy allows: %v", err)
	}
	for name, err := range map[string]error{
		"another rule":    queues.SendFor("events.amazonaws.com", rule+"2", queueARN, "x", nil),
		"another service": queues.SendFor("sns.amazonaws.com", rule, queueARN, "x", nil),
		"no such queue":   queues.SendFor("events.amazonaws.com", rule, queueARN+"2", "x", nil),
		"a role without":  queues.SendAs(api.Principal{Role: "other"}, queueARN, "x"),
	} {
		if err == nil {
			t.Errorf("%s: got a message sent, want it refused", name)
		}
	}
	if diff := cmp.Diff([]string{"event"}, queues.Messages("failed")); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if got, ok := queues.Metric("AWS/SQS", "ApproximateNumberOfMessagesVisible", map[string]string{"QueueName": "failed"}); !ok || got != 1 {
		t.Errorf("metric: got %v, %t, want 1", got, ok)
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	_, client, endpoint := newQueues(t, "")
	url := create(t, client, nil)
	for action, call := range map[string]func() error{
		"sqs:GetQueueAttributes": func() error {
			_, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: url})
			return err
		},
		"sqs:SendMessage": func() error {
			_, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("x")})
			return err
		},
		"sqs:ReceiveMessage": func() error {
			_, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url})
			return err
		},
		"sqs:PurgeQueue": func() error {
			_, err := client.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: url})
			return err
		},
		"sqs:SetQueueAttributes": func() error {
			_, err := client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: url, Attributes: map[string]string{"VisibilityTimeout": "1"}})
			return err
		},
	} {
		endpoint.RequireAccess(t, action, queueARN, call)
	}
}
