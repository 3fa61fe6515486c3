// Package logs is CloudWatch Logs of the region: log groups with their
// retention and tags, streams, and the events in them, all kept in memory.
// Retention is remembered and not carried out: a region lives for minutes.
package logs

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Config is what the service needs to know of its surroundings.
type Config struct {
	Account, Region string
}

// Logs is the service.
type Logs struct {
	config Config

	mu     sync.Mutex
	groups map[string]*group
}

// Entry is one log event.
type Entry struct {
	Time    time.Time
	Message string
}

type group struct {
	name          string
	class         string
	created       time.Time
	retentionDays int
	tags          map[string]string
	streams       map[string]*stream
}

type stream struct {
	created time.Time
	entries []entry
}

type entry struct {
	Entry
	ingested time.Time
}

// New makes the service.
func New(config Config) *Logs {
	return &Logs{config: config, groups: map[string]*group{}}
}

// GroupARN is the ARN of a log group, as the API and policies without a stream
// have it (no trailing ":*").
func (l *Logs) GroupARN(name string) string {
	return "arn:aws:logs:" + l.config.Region + ":" + l.config.Account + ":log-group:" + name
}

// StreamARN is the resource that access is judged on: IAM looks at the group's
// own calls as calls on the stream "", which is why a policy on a bare group
// ARN allows none of them.
func (l *Logs) StreamARN(group, stream string) string {
	return l.GroupARN(group) + ":log-stream:" + stream
}

var groupPattern = regexp.MustCompile(`^[.\-_/#A-Za-z0-9]{1,512}$`)

// CreateGroup makes a log group.
func (l *Logs) CreateGroup(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.createGroup(name)
	return err
}

func (l *Logs) createGroup(name string) (*group, error) {
	if !groupPattern.MatchString(name) {
		return nil, invalid("log group name %q must be 1 to 512 of a-z, A-Z, 0-9, '_', '-', '/', '.' and '#'", name)
	}
	if l.groups[name] != nil {
		return nil, api.Errorf(http.StatusBadRequest, "ResourceAlreadyExistsException", "The specified log group already exists")
	}
	g := &group{name: name, class: "STANDARD", created: time.Now(), tags: map[string]string{}, streams: map[string]*stream{}}
	l.groups[name] = g
	return g, nil
}

// CreateStream makes a stream in a group.
func (l *Logs) CreateStream(groupName, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, err := l.group(groupName)
	if err != nil {
		return err
	}
	if name == "" || len(name) > 512 || strings.ContainsAny(name, ":*") {
		return invalid("log stream name %q must be 1 to 512 characters without ':' and '*'", name)
	}
	if g.streams[name] != nil {
		return api.Errorf(http.StatusBadRequest, "ResourceAlreadyExistsException", "The specified log stream already exists")
	}
	g.streams[name] = &stream{created: time.Now()}
	return nil
}

// Append adds entries, which must be in order of time, to a stream.
func (l *Logs) Append(groupName, streamName string, entries ...Entry) error {
	if len(entries) == 0 {
		return invalid("logEvents must have at least one member")
	}
	if !slices.IsSortedFunc(entries, func(a, b Entry) int { return a.Time.Compare(b.Time) }) {
		return invalid("Log events in a single PutLogEvents request must be in chronological order.")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.stream(groupName, streamName)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, e := range entries {
		s.entries = append(s.entries, entry{e, now})
	}
	return nil
}

// Messages returns what is in all streams of a group, in order of time.
func (l *Logs) Messages(groupName string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[groupName]
	if g == nil {
		return nil
	}
	var messages []string
	for _, found := range g.search(nil) {
		messages = append(messages, found.Message)
	}
	return messages
}

// located is an entry with the name of its stream.
type located struct {
	entry
	stream string
}

// search returns the entries of the named streams (nil: of all) in order of
// time.
func (g *group) search(streams []string) []located {
	var found []located
	for name, s := range g.streams {
		if streams != nil && !slices.Contains(streams, name) {
			continue
		}
		for _, e := range s.entries {
			found = append(found, located{e, name})
		}
	}
	slices.SortStableFunc(found, func(a, b located) int {
		if order := a.Time.Compare(b.Time); order != 0 {
			return order
		}
		return strings.Compare(a.stream, b.stream)
	})
	return found
}

func (l *Logs) group(name string) (*group, error) {
	g := l.groups[name]
	if g == nil {
		return nil, api.Errorf(http.StatusBadRequest, "ResourceNotFoundException", "The specified log group does not exist.")
	}
	return g, nil
}

func (l *Logs) stream(groupName, name string) (*stream, error) {
	g, err := l.group(groupName)
	if err != nil {
		return nil, err
	}
	s := g.streams[name]
	if s == nil {
		return nil, api.Errorf(http.StatusBadRequest, "ResourceNotFoundException", "The specified log stream does not exist.")
	}
	return s, nil
}

func invalid(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "InvalidParameterException", format, args...)
}
