package logs

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
)

// Service is the service for the region's front door.
func (l *Logs) Service() *api.Service {
	return &api.Service{
		Name:     "logs",
		Protocol: api.JSON,
		Operations: map[string]api.Operation{
			"CreateLogGroup":        l.createLogGroup,
			"DeleteLogGroup":        l.deleteLogGroup,
			"DescribeLogGroups":     l.describeLogGroups,
			"PutRetentionPolicy":    l.putRetentionPolicy,
			"DeleteRetentionPolicy": l.deleteRetentionPolicy,
			"TagResource":           l.tagResource,
			"UntagResource":         l.untagResource,
			"ListTagsForResource":   l.listTagsForResource,
			"CreateLogStream":       l.createLogStream,
			"DescribeLogStreams":    l.describeLogStreams,
			"PutLogEvents":          l.putLogEvents,
			"GetLogEvents":          l.getLogEvents,
			"FilterLogEvents":       l.filterLogEvents,
		},
	}
}

func decode(c *api.Call, into any) error {
	return jsonbody.Decode(c, "InvalidParameterException", into)
}

// groupRequest is the part that most requests share. A group may be named by
// its ARN instead.
type groupRequest struct {
	LogGroupName       string `json:"logGroupName"`
	LogGroupIdentifier string `json:"logGroupIdentifier"`
	LogStreamName      string `json:"logStreamName"`
}

func (r groupRequest) group() string {
	if r.LogGroupName != "" {
		return r.LogGroupName
	}
	_, name, _ := strings.Cut(r.LogGroupIdentifier, ":log-group:")
	if name == "" {
		return r.LogGroupIdentifier
	}
	return name
}

func (l *Logs) createLogGroup(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		groupRequest
		LogGroupClass string            `json:"logGroupClass"`
		Tags          map[string]string `json:"tags"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(l.StreamARN(in.group(), "")); err != nil {
		return nil, err
	}
	if len(in.Tags) > 0 {
		if err := c.Authorize(api.Access{Action: "logs:TagResource", Resource: l.StreamARN(in.group(), "")}); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g, err := l.createGroup(in.group())
	if err != nil {
		return nil, err
	}
	maps.Copy(g.tags, in.Tags)
	if in.LogGroupClass != "" {
		g.class = in.LogGroupClass
	}
	return nil, nil
}

func (l *Logs) deleteLogGroup(_ context.Context, c *api.Call) (any, error) {
	var in groupRequest
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, l.onGroup(c, in.group(), func(g *group) error {
		delete(l.groups, g.name)
		return nil
	})
}

// onGroup authorizes a call on a group and does the work under the lock.
func (l *Logs) onGroup(c *api.Call, name string, work func(*group) error) error {
	if err := c.AuthorizeOn(l.StreamARN(name, "")); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g, err := l.group(name)
	if err != nil {
		return err
	}
	return work(g)
}

func (l *Logs) describeLogGroups(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Prefix    string `json:"logGroupNamePrefix"`
		Pattern   string `json:"logGroupNamePattern"`
		Limit     int    `json:"limit"`
		NextToken string `json:"nextToken"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(l.StreamARN("", "")); err != nil {
		return nil, err
	}
	type logGroup struct {
		ARN               string `json:"arn"`
		LogGroupARN       string `json:"logGroupArn"`
		LogGroupName      string `json:"logGroupName"`
		LogGroupClass     string `json:"logGroupClass"`
		CreationTime      int64  `json:"creationTime"`
		RetentionInDays   int    `json:"retentionInDays,omitempty"`
		MetricFilterCount int    `json:"metricFilterCount"`
		StoredBytes       int    `json:"storedBytes"`
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name := range l.groups {
		if strings.HasPrefix(name, in.Prefix) && strings.Contains(name, in.Pattern) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names, next := page(names, in.NextToken, in.Limit)
	groups := []logGroup{}
	for _, name := range names {
		g, arn := l.groups[name], l.GroupARN(name)
		groups = append(groups, logGroup{arn + ":*", arn, name, g.class, g.created.UnixMilli(), g.retentionDays, 0, 0})
	}
	return struct {
		LogGroups []logGroup `json:"logGroups"`
		NextToken string     `json:"nextToken,omitempty"`
	}{groups, next}, nil
}

// page returns the sorted names that follow the token, and the token of the
// page after it. A token is the last name of its page.
func page(names []string, token string, limit int) ([]string, string) {
	if limit <= 0 {
		limit = 50
	}
	start := 0
	if token != "" {
		at, found := slices.BinarySearch(names, token)
		if start = at; found {
			start++
		}
	}
	names = names[start:]
	if len(names) <= limit {
		return names, ""
	}
	return names[:limit], names[limit-1]
}

// retentions are the numbers of days that CloudWatch Logs takes.
// https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html
var retentions = []int{
	1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
}

func (l *Logs) putRetentionPolicy(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		groupRequest
		RetentionInDays int `json:"retentionInDays"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, l.onGroup(c, in.group(), func(g *group) error {
		if !slices.Contains(retentions, in.RetentionInDays) {
			return invalid("retentionInDays %d is not one of %v", in.RetentionInDays, retentions)
		}
		g.retentionDays = in.RetentionInDays
		return nil
	})
}

func (l *Logs) deleteRetentionPolicy(_ context.Context, c *api.Call) (any, error) {
	var in groupRequest
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, l.onGroup(c, in.group(), func(g *group) error {
		g.retentionDays = 0
		return nil
	})
}

// groupOf returns the name of the group in its ARN.
func groupOf(arn string) string {
	_, name, _ := strings.Cut(arn, ":log-group:")
	return strings.TrimSuffix(name, ":*")
}

func (l *Logs) tagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceARN string            `json:"resourceArn"`
		Tags        map[string]string `json:"tags"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, l.onGroup(c, groupOf(in.ResourceARN), func(g *group) error {
		maps.Copy(g.tags, in.Tags)
		return nil
	})
}

func (l *Logs) untagResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceARN string   `json:"resourceArn"`
		TagKeys     []string `json:"tagKeys"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return nil, l.onGroup(c, groupOf(in.ResourceARN), func(g *group) error {
		for _, key := range in.TagKeys {
			delete(g.tags, key)
		}
		return nil
	})
}

func (l *Logs) listTagsForResource(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		ResourceARN string `json:"resourceArn"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	var out struct {
		Tags map[string]string `json:"tags"`
	}
	err := l.onGroup(c, groupOf(in.ResourceARN), func(g *group) error {
		out.Tags = maps.Clone(g.tags)
		return nil
	})
	return out, err
}

func (l *Logs) createLogStream(_ context.Context, c *api.Call) (any, error) {
	var in groupRequest
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(l.StreamARN(in.group(), in.LogStreamName)); err != nil {
		return nil, err
	}
	return nil, l.CreateStream(in.group(), in.LogStreamName)
}

func (l *Logs) describeLogStreams(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		groupRequest
		Prefix    string `json:"logStreamNamePrefix"`
		Limit     int    `json:"limit"`
		NextToken string `json:"nextToken"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	type logStream struct {
		ARN                 string `json:"arn"`
		LogStreamName       string `json:"logStreamName"`
		CreationTime        int64  `json:"creationTime"`
		FirstEventTimestamp int64  `json:"firstEventTimestamp,omitempty"`
		LastEventTimestamp  int64  `json:"lastEventTimestamp,omitempty"`
	}
	out := struct {
		LogStreams []logStream `json:"logStreams"`
		NextToken  string      `json:"nextToken,omitempty"`
	}{LogStreams: []logStream{}}
	err := l.onGroup(c, in.group(), func(g *group) error {
		names := slices.Sorted(maps.Keys(g.streams))
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, in.Prefix) })
		names, out.NextToken = page(names, in.NextToken, in.Limit)
		for _, name := range names {
			s := g.streams[name]
			described := logStream{ARN: l.StreamARN(g.name, name), LogStreamName: name, CreationTime: s.created.UnixMilli()}
			if len(s.entries) > 0 {
				described.FirstEventTimestamp = s.entries[0].Time.UnixMilli()
				described.LastEventTimestamp = s.entries[len(s.entries)-1].Time.UnixMilli()
			}
			out.LogStreams = append(out.LogStreams, described)
		}
		return nil
	})
	return out, err
}

func (l *Logs) putLogEvents(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		groupRequest
		LogEvents []struct {
			Timestamp int64  `json:"timestamp"`
			Message   string `json:"message"`
		} `json:"logEvents"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(l.StreamARN(in.group(), in.LogStreamName)); err != nil {
		return nil, err
	}
	var entries []Entry
	for _, event := range in.LogEvents {
		entries = append(entries, Entry{time.UnixMilli(event.Timestamp), event.Message})
	}
	if err := l.Append(in.group(), in.LogStreamName, entries...); err != nil {
		return nil, err
	}
	return struct {
		NextSequenceToken string `json:"nextSequenceToken"`
	}{c.RequestID}, nil
}

// logEvent is an event as GetLogEvents and FilterLogEvents show it.
type logEvent struct {
	Timestamp     int64  `json:"timestamp"`
	Message       string `json:"message"`
	IngestionTime int64  `json:"ingestionTime"`
	LogStreamName string `json:"logStreamName,omitempty"`
	EventID       string `json:"eventId,omitempty"`
}

const maxEvents = 10000 // a page of GetLogEvents and FilterLogEvents

func (l *Logs) getLogEvents(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		groupRequest
		StartTime     *int64 `json:"startTime"`
		EndTime       *int64 `json:"endTime"`
		StartFromHead bool   `json:"startFromHead"`
		Limit         int    `json:"limit"`
		NextToken     string `json:"nextToken"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(l.StreamARN(in.group(), in.LogStreamName)); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.stream(in.group(), in.LogStreamName)
	if err != nil {
		return nil, err
	}
	all := []logEvent{}
	for _, e := range s.entries {
		if within(e.Time, in.StartTime, in.EndTime) {
			all = append(all, logEvent{Timestamp: e.Time.UnixMilli(), Message: e.Message, IngestionTime: e.ingested.UnixMilli()})
		}
	}
	// Tokens are "f/N", the page that begins at event N, and "b/N", the page
	// that ends before it. At either end the token stays the same, which is how
	// a caller notices.
	limit := min(max(in.Limit, 0), maxEvents)
	if limit == 0 {
		limit = maxEvents
	}
	from, to := max(0, len(all)-limit), len(all)
	if in.StartFromHead {
		from, to = 0, min(limit, len(all))
	}
	if in.NextToken != "" {
		direction, number, _ := strings.Cut(in.NextToken, "/")
		at, err := strconv.Atoi(number)
		switch {
		case err != nil || at < 0 || at > len(all):
			return nil, invalid("The specified nextToken is invalid.")
		case direction == "f":
			from, to = at, min(at+limit, len(all))
		case direction == "b":
			from, to = max(0, at-limit), at
		default:
			return nil, invalid("The specified nextToken is invalid.")
		}
	}
	return struct {
		Events            []logEvent `json:"events"`
		NextForwardToken  string     `json:"nextForwardToken"`
		NextBackwardToken string     `json:"nextBackwardToken"`
	}{all[from:to], "f/" + strconv.Itoa(to), "b/" + strconv.Itoa(from)}, nil
}

func (l *Logs) filterLogEvents(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		groupRequest
		StartTime           *int64   `json:"startTime"`
		EndTime             *int64   `json:"endTime"`
		FilterPattern       string   `json:"filterPattern"`
		LogStreamNames      []string `json:"logStreamNames"`
		LogStreamNamePrefix string   `json:"logStreamNamePrefix"`
		Limit               int      `json:"limit"`
		NextToken           string   `json:"nextToken"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	matches, err := parseFilter(in.FilterPattern)
	if err != nil {
		return nil, err
	}
	start, err := strconv.Atoi("0" + in.NextToken)
	if err != nil {
		return nil, invalid("The specified nextToken is invalid.")
	}
	limit := in.Limit
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	out := struct {
		Events    []logEvent `json:"events"`
		NextToken string     `json:"nextToken,omitempty"`
	}{Events: []logEvent{}}
	err = l.onGroup(c, in.group(), func(g *group) error {
		matched := 0
		for i, e := range g.search(in.LogStreamNames) {
			if !within(e.Time, in.StartTime, in.EndTime) || !strings.HasPrefix(e.stream, in.LogStreamNamePrefix) || !matches(e.Message) {
				continue
			}
			if matched++; matched <= start {
				continue
			}
			if len(out.Events) == limit {
				out.NextToken = strconv.Itoa(start + limit)
				break
			}
			out.Events = append(out.Events, logEvent{
				Timestamp: e.Time.UnixMilli(), Message: e.Message, IngestionTime: e.ingested.UnixMilli(),
				LogStreamName: e.stream, EventID: strconv.Itoa(i),
			})
		}
		return nil
	})
	return out, err
}

// within says whether a time lies in [from, to), in milliseconds.
func within(at time.Time, from, to *int64) bool {
	ms := at.UnixMilli()
	return (from == nil || ms >= *from) && (to == nil || ms < *to)
}
