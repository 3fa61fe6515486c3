package sqs

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
)

// Service is the service for the region's front door.
func (q *Queues) Service() *api.Service {
	return &api.Service{
		Name:     "sqs",
		Protocol: api.JSON,
		Operations: map[string]api.Operation{
			"CreateQueue":        q.createQueue,
			"DeleteQueue":        q.deleteQueue,
			"GetQueueUrl":        q.getQueueURL,
			"ListQueues":         q.listQueues,
			"GetQueueAttributes": q.getQueueAttributes,
			"SetQueueAttributes": q.setQueueAttributes,
			"ListQueueTags":      q.listQueueTags,
			"TagQueue":           q.tagQueue,
			"UntagQueue":         q.untagQueue,
			"SendMessage":        q.sendMessage,
			"ReceiveMessage":     q.receiveMessage,
			"DeleteMessage":      q.deleteMessage,
			"PurgeQueue":         q.purgeQueue,
		},
	}
}

func decode(c *api.Call, into any) error {
	return jsonbody.Decode(c, "InvalidParameterValue", into)
}

// url is a queue's URL: only its path is looked at.
func (q *Queues) url(c *api.Call, name string) string {
	return "http://" + c.Request.Host + "/" + q.config.Account + "/" + name
}

// on authorizes a call on a queue and does the work under the lock.
func (q *Queues) on(c *api.Call, url string, work func(*queue) error) error {
	if err := c.AuthorizeOn(q.ARN(nameOf(url))); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	found, err := q.find(nameOf(url))
	if err != nil {
		return err
	}
	return work(found)
}

type queueURL struct {
	QueueURL string `json:"QueueUrl"`
}

func (q *Queues) createQueue(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		QueueName  string
		Attributes map[string]string
		Tags       map[string]string `json:"tags"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(q.ARN(in.QueueName)); err != nil {
		return nil, err
	}
	if !namePattern.MatchString(in.QueueName) {
		return nil, api.Errorf(http.StatusBadRequest, "InvalidParameterValue", "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	made := &queue{name: in.QueueName, created: time.Now(), attributes: defaults(), tags: map[string]string{}}
	maps.Copy(made.tags, in.Tags)
	if err := made.set(in.Attributes); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// Creating a queue again is answered with the one that is there.
	if old := q.queues[in.QueueName]; old == nil {
		q.queues[in.QueueName] = made
	} else if !maps.Equal(old.attributes, made.attributes) {
		return nil, api.Errorf(http.StatusBadRequest, "QueueNameExists", "A queue already exists with the same name and a different value for an attribute")
	}
	return queueURL{q.url(c, in.QueueName)}, nil
}

func (q *Queues) deleteQueue(_ context.Context, c *api.Call) (any, error) {
	var in queueURL
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, q.on(c, in.QueueURL, func(found *queue) error {
		delete(q.queues, found.name)
		return nil
	})
}

func (q *Queues) getQueueURL(_ context.Context, c *api.Call) (any, error) {
	var in struct{ QueueName string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return queueURL{q.url(c, in.QueueName)}, q.on(c, in.QueueName, func(*queue) error { return nil })
}

func (q *Queues) listQueues(_ context.Context, c *api.Call) (any, error) {
	var in struct{ QueueNamePrefix string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var out struct {
		QueueURLs []string `json:"QueueUrls"`
	}
	for _, name := range slices.Sorted(maps.Keys(q.queues)) {
		if strings.HasPrefix(name, in.QueueNamePrefix) {
			out.QueueURLs = append(out.QueueURLs, q.url(c, name))
		}
	}
	return out, nil
}

func (q *Queues) getQueueAttributes(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		queueURL
		AttributeNames []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	out := struct{ Attributes map[string]string }{map[string]string{}}
	err := q.on(c, in.QueueURL, func(found *queue) error {
		visible, hidden := found.count()
		all := maps.Clone(found.attributes)
		all["QueueArn"] = q.ARN(found.name)
		all["CreatedTimestamp"] = strconv.FormatInt(found.created.Unix(), 10)
		all["ApproximateNumberOfMessages"] = strconv.Itoa(visible)
		all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(hidden)
		for name, value := range all {
			if value != "" && (slices.Contains(in.AttributeNames, "All") || slices.Contains(in.AttributeNames, name)) {
				out.Attributes[name] = value
			}
		}
		return nil
	})
	return out, err
}

func (q *Queues) setQueueAttributes(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		queueURL
		Attributes map[string]string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, q.on(c, in.QueueURL, func(found *queue) error { return found.set(in.Attributes) })
}

func (q *Queues) listQueueTags(_ context.Context, c *api.Call) (any, error) {
	var in queueURL
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct{ Tags map[string]string }
	err := q.on(c, in.QueueURL, func(found *queue) error {
		out.Tags = maps.Clone(found.tags)
		return nil
	})
	return out, err
}

func (q *Queues) tagQueue(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		queueURL
		Tags map[string]string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, q.on(c, in.QueueURL, func(found *queue) error {
		maps.Copy(found.tags, in.Tags)
		return nil
	})
}

func (q *Queues) untagQueue(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		queueURL
		TagKeys []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, q.on(c, in.QueueURL, func(found *queue) error {
		for _, key := range in.TagKeys {
			delete(found.tags, key)
		}
		return nil
	})
}

func (q *Queues) sendMessage(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		queueURL
		MessageBody       string
		MessageAttributes map[string]attribute
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct {
		MessageID        string `json:"MessageId"`
		MD5OfMessageBody string
	}
	err := q.on(c, in.QueueURL, func(found *queue) error {
		most, _ := strconv.Atoi(found.attributes["MaximumMessageSize"]) // it was judged when it was set
		if in.MessageBody == "" || len(in.MessageBody) > most {
			return api.Errorf(http.StatusBadRequest, "InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be 1 to %d bytes long.", most)
		}
		out.MessageID, out.MD5OfMessageBody = found.send(in.MessageBody, in.MessageAttributes).id, digest(in.MessageBody)
		return nil
	})
	return out, err
}

func (q *Queues) receiveMessage(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		queueURL
		MaxNumberOfMessages   int
		VisibilityTimeout     *int
		MessageAttributeNames []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	type received struct {
		MessageID         string `json:"MessageId"`
		ReceiptHandle     string
		Body              string
		MD5OfBody         string
		MessageAttributes map[string]attribute `json:",omitempty"`
	}
	out := struct{ Messages []received }{[]received{}}
	err := q.on(c, in.QueueURL, func(found *queue) error {
		most, now, hide := max(in.MaxNumberOfMessages, 1), time.Now(), found.seconds("VisibilityTimeout")
		if in.VisibilityTimeout != nil {
			hide = time.Duration(*in.VisibilityTimeout) * time.Second
		}
		if most > 10 {
			return api.Errorf(http.StatusBadRequest, "InvalidParameterValue", "Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.", most)
		}
		for _, m := range found.messages {
			if m.hidden.After(now) || len(out.Messages) == most {
				continue
			}
			m.hidden, m.receipt, m.received = now.Add(hide), uuid.NewString(), m.received+1
			one := received{MessageID: m.id, ReceiptHandle: m.receipt, Body: m.body, MD5OfBody: digest(m.body)}
			if slices.Contains(in.MessageAttributeNames, "All") {
				one.MessageAttributes = m.attributes
			}
			out.Messages = append(out.Messages, one)
		}
		return nil
	})
	return out, err
}

func (q *Queues) deleteMessage(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		queueURL
		ReceiptHandle string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, q.on(c, in.QueueURL, func(found *queue) error {
		found.messages = slices.DeleteFunc(found.messages, func(m *message) bool { return m.receipt != "" && m.receipt == in.ReceiptHandle })
		return nil
	})
}

func (q *Queues) purgeQueue(_ context.Context, c *api.Call) (any, error) {
	var in queueURL
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, q.on(c, in.QueueURL, func(found *queue) error {
		found.messages = nil
		return nil
	})
}
