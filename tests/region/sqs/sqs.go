// Package sqs is SQS of the region: standard queues with their attributes, tags
// and resource policies, kept in memory.
//
// A message that was received stays hidden for the queue's visibility timeout
// and is then there again. Not modelled: FIFO queues, delays, long polling,
// redrive, the minute that has to be between two purges, and the ends of
// retention, since a region lives for minutes.
package sqs

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Config is what the service needs; every field is required.
type Config struct {
	Account, Region string
	// Authorizer judges what roles send.
	Authorizer api.Authorizer
}

// Queues is the service.
type Queues struct {
	config Config

	mu     sync.Mutex
	queues map[string]*queue
}

// New makes the service.
func New(config Config) *Queues {
	return &Queues{config: config, queues: map[string]*queue{}}
}

type queue struct {
	name       string
	created    time.Time
	attributes map[string]string
	policy     policy
	tags       map[string]string
	messages   []*message
}

type message struct {
	id, body   string
	attributes map[string]attribute
	// hidden is until when a receiver has the message.
	hidden   time.Time
	receipt  string
	received int
}

// attribute is a message's own.
type attribute struct {
	DataType    string
	StringValue string
}

// policy is a queue's resource policy, as far as it lets services send.
type policy struct {
	Statement []struct {
		Effect    string
		Principal map[string]string
		Action    string
		Resource  string
		Condition map[string]map[string]string
	}
}

// allows says whether the policy lets a service send for one of its resources.
func (p policy) allows(service, sourceARN, queueARN string) bool {
	for _, s := range p.Statement {
		if s.Effect != "Allow" || s.Principal["Service"] != service || !strings.EqualFold(s.Action, "sqs:SendMessage") || s.Resource != queueARN {
			continue
		}
		holds := true
		for operator, block := range s.Condition {
			for key, value := range block {
				comparison := operator == "ArnEquals" || operator == "StringEquals"
				holds = holds && comparison && strings.EqualFold(key, "aws:SourceArn") && value == sourceARN
			}
		}
		if holds {
			return true
		}
	}
	return false
}

// ARN is the ARN of a queue.
func (q *Queues) ARN(name string) string {
	return "arn:aws:sqs:" + q.config.Region + ":" + q.config.Account + ":" + name
}

// Create makes a queue with the defaults, and returns its ARN.
func (q *Queues) Create(name string) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues[name] != nil {
		return "", api.Errorf(http.StatusBadRequest, "QueueNameExists", "A queue already exists with the name %s", name)
	}
	q.queues[name] = &queue{name: name, created: time.Now(), attributes: defaults(), tags: map[string]string{}}
	return q.ARN(name), nil
}

// SendFor sends a message of a service for one of its resources, as the
// queue's policy has to allow. Attributes are text.
func (q *Queues) SendFor(service, sourceARN, queueARN, body string, attributes map[string]string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	found, err := q.find(nameOf(queueARN))
	if err != nil {
		return err
	}
	if !found.policy.allows(service, sourceARN, queueARN) {
		return api.Errorf(http.StatusForbidden, "AccessDenied", "%s is not authorized to perform: sqs:SendMessage on resource: %s for %s because no resource-based policy allows it", service, queueARN, sourceARN)
	}
	of := map[string]attribute{}
	for name, value := range attributes {
		of[name] = attribute{"String", value}
	}
	found.send(body, of)
	return nil
}

// SendAs sends a message of a role that a service has assumed.
func (q *Queues) SendAs(principal api.Principal, queueARN, body string) error {
	if err := q.config.Authorizer.Authorize(principal, api.Access{Action: "sqs:SendMessage", Resource: queueARN}); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	found, err := q.find(nameOf(queueARN))
	if err != nil {
		return err
	}
	found.send(body, nil)
	return nil
}

// Messages returns the bodies of all messages in a queue, in the order of their
// arrival.
func (q *Queues) Messages(name string) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := q.queues[name]
	if found == nil {
		return nil
	}
	var bodies []string
	for _, m := range found.messages {
		bodies = append(bodies, m.body)
	}
	return bodies
}

// Metric is the latest value of one of the service's CloudWatch metrics.
func (q *Queues) Metric(namespace, name string, dimensions map[string]string) (float64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := q.queues[dimensions["QueueName"]]
	if namespace != "AWS/SQS" || name != "ApproximateNumberOfMessagesVisible" || len(dimensions) != 1 || found == nil {
		return 0, false
	}
	visible, _ := found.count()
	return float64(visible), true
}

func (q *queue) send(body string, attributes map[string]attribute) *message {
	m := &message{id: uuid.NewString(), body: body, attributes: attributes}
	q.messages = append(q.messages, m)
	return m
}

// count is how many messages can be received, and how many receivers have.
func (q *queue) count() (visible, hidden int) {
	now := time.Now()
	for _, m := range q.messages {
		if m.hidden.After(now) {
			hidden++
		} else {
			visible++
		}
	}
	return visible, hidden
}

func (q *queue) seconds(attribute string) time.Duration {
	n, _ := strconv.Atoi(q.attributes[attribute]) // it was judged when it was set
	return time.Duration(n) * time.Second
}

func (q *Queues) find(name string) (*queue, error) {
	found := q.queues[name]
	if found == nil {
		return nil, api.Errorf(http.StatusBadRequest, "QueueDoesNotExist", "The specified queue does not exist.")
	}
	return found, nil
}

func nameOf(urlOrARN string) string {
	return urlOrARN[strings.LastIndexAny(urlOrARN, "/:")+1:]
}

func digest(text string) string {
	sum := md5.Sum([]byte(text)) //nolint:gosec // the protocol's checksum
	return hex.EncodeToString(sum[:])
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,80}$`)

// defaults are the attributes that can be set, with their defaults:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
func defaults() map[string]string {
	return map[string]string{
		"DelaySeconds": "0", "MaximumMessageSize": "262144", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
		"VisibilityTimeout": "30", "SqsManagedSseEnabled": "true", "Policy": "",
	}
}

// limits are the limits of the attributes that are numbers.
var limits = map[string][2]int{
	"DelaySeconds": {0, 900}, "MaximumMessageSize": {1024, 1048576}, "MessageRetentionPeriod": {60, 1209600},
	"ReceiveMessageWaitTimeSeconds": {0, 20}, "VisibilityTimeout": {0, 43200},
}

// set judges attributes and takes them over.
func (q *queue) set(attributes map[string]string) error {
	for name, value := range attributes {
		if _, ok := defaults()[name]; !ok {
			return api.Errorf(http.StatusBadRequest, "InvalidAttributeName", "Unknown Attribute %s.", name)
		}
		invalid := api.Errorf(http.StatusBadRequest, "InvalidAttributeValue", "Invalid value for the parameter %s.", name)
		if limit, ok := limits[name]; ok {
			if n, err := strconv.Atoi(value); err != nil || n < limit[0] || n > limit[1] {
				return invalid
			}
		}
		if name == "SqsManagedSseEnabled" && !slices.Contains([]string{"true", "false"}, value) {
			return invalid
		}
		if name != "Policy" {
			continue
		}
		parsed := policy{}
		if value != "" && json.Unmarshal([]byte(value), &parsed) != nil {
			return invalid
		}
		q.policy = parsed
	}
	maps.Copy(q.attributes, attributes)
	return nil
}
