package logs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	"github.com/etcfs/pulumi-etcfs/tests/region/logs"
)

const group = "/aws/lambda/demo-graceful-leave"

func start(t *testing.T) (*logs.Logs, *apitest.Endpoint, *cloudwatchlogs.Client) {
	t.Helper()
	service := logs.New(logs.Config{Account: apitest.Account, Region: apitest.Region})
	endpoint := apitest.New(t, service.Service())
	return service, endpoint, cloudwatchlogs.NewFromConfig(endpoint.Config())
}

func TestGroupLifeCycle(t *testing.T) {
	t.Parallel()
	_, _, client := start(t)
	ctx := t.Context()
	if _, err := client.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{
		LogGroupName: aws.String(group), Tags: map[string]string{"ClusterName": "demo"},
	}); err != nil {
		t.Fatal(err)
	}
	_, err := client.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String(group)})
	if got, want := apitest.Code(err), "ResourceAlreadyExistsException"; got != want {
		t.Errorf("creating the group twice: got %q (%v), want %q", got, err, want)
	}
	_, err = client.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String("b"), KmsKeyId: aws.String("key")})
	if got, want := apitest.Code(err), "InvalidParameterException"; got != want {
		t.Errorf("a key that the region does not have: got %q (%v), want %q", got, err, want)
	}
	if _, err := client.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{
		LogGroupName: aws.String(group), RetentionInDays: aws.Int32(14),
	}); err != nil {
		t.Fatal(err)
	}
	_, err = client.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: aws.String(group), RetentionInDays: aws.Int32(15)})
	if got, want := apitest.Code(err), "InvalidParameterException"; got != want {
		t.Errorf("retention of 15 days: got %q (%v), want %q", got, err, want)
	}
	out, err := client.DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String(group)})
	if err != nil {
		t.Fatal(err)
	}
	arn := "arn:aws:logs:eu-west-1:123456789012:log-group:" + group
	if len(out.LogGroups) != 1 {
		t.Fatalf("got %d groups, want 1", len(out.LogGroups))
	}
	described := out.LogGroups[0]
	if got, want := []any{*described.LogGroupArn, *described.Arn, *described.RetentionInDays}, []any{arn, arn + ":*", int32(14)}; !cmp.Equal(got, want) {
		t.Errorf("described group: got %v, want %v", got, want)
	}
	if _, err := client.TagResource(ctx, &cloudwatchlogs.TagResourceInput{ResourceArn: &arn, Tags: map[string]string{"a": "1", "b": "2"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UntagResource(ctx, &cloudwatchlogs.UntagResourceInput{ResourceArn: &arn, TagKeys: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	tags, err := client.ListTagsForResource(ctx, &cloudwatchlogs.ListTagsForResourceInput{ResourceArn: &arn})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"ClusterName": "demo", "b": "2"}, tags.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if _, err := client.DeleteRetentionPolicy(ctx, &cloudwatchlogs.DeleteRetentionPolicyInput{LogGroupName: aws.String(group)}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: aws.String(group)}); err != nil {
		t.Fatal(err)
	}
	_, err = client.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: aws.String(group)})
	if got, want := apitest.Code(err), "ResourceNotFoundException"; got != want {
		t.Errorf("deleting the group twice: got %q (%v), want %q", got, err, want)
	}
}

func TestDescribeLogGroupsPages(t *testing.T) {
	t.Parallel()
	service, _, client := start(t)
	want := []string{"a", "b", "c", "d", "e"}
	for _, name := range want {
		if err := service.CreateGroup(name); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	pages := cloudwatchlogs.NewDescribeLogGroupsPaginator(client, &cloudwatchlogs.DescribeLogGroupsInput{Limit: aws.Int32(2)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range page.LogGroups {
			got = append(got, *g.LogGroupName)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	service, _, client := start(t)
	ctx := t.Context()
	if err := service.CreateGroup(group); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{LogGroupName: aws.String(group), LogStreamName: aws.String("one")}); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	events := func(messages ...string) (list []types.InputLogEvent) {
		for i, message := range messages {
			list = append(list, types.InputLogEvent{Timestamp: aws.Int64(now + int64(i)), Message: &message})
		}
		return list
	}
	if _, err := client.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{
		LogGroupName: aws.String(group), LogStreamName: aws.String("one"), LogEvents: events("removed member", "completed action", "removed another"),
	}); err != nil {
		t.Fatal(err)
	}
	backwards := events("later", "earlier")
	backwards[0], backwards[1] = backwards[1], backwards[0]
	for name, refused := range map[string]struct {
		stream string
		events []types.InputLogEvent
		want   string
	}{
		"out of order":   {"one", backwards, "InvalidParameterException"},
		"unknown stream": {"two", events("x"), "ResourceNotFoundException"},
	} {
		_, err := client.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{
			LogGroupName: aws.String(group), LogStreamName: aws.String(refused.stream), LogEvents: refused.events,
		})
		if got := apitest.Code(err); got != refused.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, refused.want)
		}
	}

	var got []string
	pages := cloudwatchlogs.NewGetLogEventsPaginator(client, &cloudwatchlogs.GetLogEventsInput{
		LogGroupName: aws.String(group), LogStreamName: aws.String("one"), StartFromHead: aws.Bool(true), Limit: aws.Int32(2),
	}, func(o *cloudwatchlogs.GetLogEventsPaginatorOptions) { o.StopOnDuplicateToken = true })
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range page.Events {
			got = append(got, *event.Message)
		}
	}
	if diff := cmp.Diff([]string{"removed member", "completed action", "removed another"}, got); diff != "" {
		t.Errorf("GetLogEvents (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got, service.Messages(group)); diff != "" {
		t.Errorf("Messages (-want +got):\n%s", diff)
	}

	for pattern, want := range map[string][]string{
		"":                 {"removed member", "completed action", "removed another"},
		"removed":          {"removed member", "removed another"},
		`removed another`:  {"removed another"},
		`"removed member"`: {"removed member"},
		"nothing":          nil,
	} {
		var got []string
		pages := cloudwatchlogs.NewFilterLogEventsPaginator(client, &cloudwatchlogs.FilterLogEventsInput{
			LogGroupName: aws.String(group), FilterPattern: aws.String(pattern), Limit: aws.Int32(1), StartTime: aws.Int64(now), EndTime: aws.Int64(now + 3),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range page.Events {
				got = append(got, *event.Message)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("FilterLogEvents %q (-want +got):\n%s", pattern, diff)
		}
	}

	streams, err := client.DescribeLogStreams(ctx, &cloudwatchlogs.DescribeLogStreamsInput{LogGroupName: aws.String(group)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := aws.ToInt64(streams.LogStreams[0].LastEventTimestamp), now+2; got != want {
		t.Errorf("last event of the stream: got %d, want %d", got, want)
	}
}

func TestFilterPatternsOfJSON(t *testing.T) {
	t.Parallel()
	service, _, client := start(t)
	if err := errors.Join(service.CreateGroup(group), service.CreateStream(group, "one")); err != nil {
		t.Fatal(err)
	}
	messages := []string{
		"START i-0a", `{"instance":"i-0a","outcome":"removed","from":{"group":"demo-asg"}}` + "\n", `{"instance":"i-0b","attempts":2}`, `["i-0a"]`, `null`,
	}
	for i, message := range messages {
		if err := service.Append(group, "one", logs.Entry{Time: time.UnixMilli(int64(i)), Message: message}); err != nil {
			t.Fatal(err)
		}
	}
	const refused = "InvalidParameterException"
	for _, test := range []struct {
		pattern string
		want    []string
		code    string
	}{
		{`{ $.instance = "i-0a" }`, messages[1:2], ""},
		{`{$.instance="i-0b"}`, messages[2:3], ""},
		{`{ $.from.group = "demo-asg" }`, messages[1:2], ""},
		{`{ $.instance = "i-0" }`, nil, ""},
		{`{ $.group = "demo-asg" }`, nil, ""},
		{`{ $.instance.group = "demo-asg" }`, nil, ""},
		{`{ $.attempts = "2" }`, nil, ""},
		{`{ $.attempts = 2 }`, nil, refused},
		{`{ $.instance = "i-*" }`, nil, refused},
		{`{ $.instance != "i-0a" }`, nil, refused},
		{`{ $.instance = "i-0a" && $.outcome = "removed" }`, nil, refused},
		{`{ $.instance = "i-0a"`, nil, refused},
		{`[instance, outcome]`, nil, refused},
		{`-removed`, nil, refused},
	} {
		out, err := client.FilterLogEvents(t.Context(), &cloudwatchlogs.FilterLogEventsInput{LogGroupName: aws.String(group), FilterPattern: aws.String(test.pattern)})
		if got := apitest.Code(err); got != test.code {
			t.Errorf("%s: got %q (%v), want %q", test.pattern, got, err, test.code)
		}
		if err != nil {
			continue
		}
		var got []string
		for _, event := range out.Events {
			got = append(got, *event.Message)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.pattern, diff)
		}
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	service, endpoint, client := start(t)
	if err := service.CreateGroup(group); err != nil {
		t.Fatal(err)
	}
	if err := service.CreateStream(group, "one"); err != nil {
		t.Fatal(err)
	}
	ctx, name, arn := t.Context(), aws.String(group), service.GroupARN(group)
	onGroup, onStream := arn+":log-stream:", arn+":log-stream:one"
	for _, call := range []struct {
		action, resource string
		do               func() error
	}{
		{"logs:CreateLogGroup", service.GroupARN("new") + ":log-stream:", func() error {
			_, err := client.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String("new")})
			return err
		}},
		{"logs:DescribeLogGroups", service.GroupARN("") + ":log-stream:", func() error {
			_, err := client.DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{})
			return err
		}},
		{"logs:PutRetentionPolicy", onGroup, func() error {
			_, err := client.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: name, RetentionInDays: aws.Int32(1)})
			return err
		}},
		{"logs:DeleteRetentionPolicy", onGroup, func() error {
			_, err := client.DeleteRetentionPolicy(ctx, &cloudwatchlogs.DeleteRetentionPolicyInput{LogGroupName: name})
			return err
		}},
		{"logs:TagResource", onGroup, func() error {
			_, err := client.TagResource(ctx, &cloudwatchlogs.TagResourceInput{ResourceArn: &arn, Tags: map[string]string{"a": "b"}})
			return err
		}},
		{"logs:UntagResource", onGroup, func() error {
			_, err := client.UntagResource(ctx, &cloudwatchlogs.UntagResourceInput{ResourceArn: &arn, TagKeys: []string{"a"}})
			return err
		}},
		{"logs:ListTagsForResource", onGroup, func() error {
			_, err := client.ListTagsForResource(ctx, &cloudwatchlogs.ListTagsForResourceInput{ResourceArn: &arn})
			return err
		}},
		{"logs:CreateLogStream", arn + ":log-stream:two", func() error {
			_, err := client.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{LogGroupName: name, LogStreamName: aws.String("two")})
			return err
		}},
		{"logs:DescribeLogStreams", onGroup, func() error {
			_, err := client.DescribeLogStreams(ctx, &cloudwatchlogs.DescribeLogStreamsInput{LogGroupName: name})
			return err
		}},
		{"logs:PutLogEvents", onStream, func() error {
			_, err := client.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{
				LogGroupName: name, LogStreamName: aws.String("one"), LogEvents: []types.InputLogEvent{{Message: aws.String("x"), Timestamp: aws.Int64(1)}},
			})
			return err
		}},
		{"logs:GetLogEvents", onStream, func() error {
			_, err := client.GetLogEvents(ctx, &cloudwatchlogs.GetLogEventsInput{LogGroupName: name, LogStreamName: aws.String("one")})
			return err
		}},
		{"logs:FilterLogEvents", onGroup, func() error {
			_, err := client.FilterLogEvents(ctx, &cloudwatchlogs.FilterLogEventsInput{LogGroupName: name})
			return err
		}},
		{"logs:DeleteLogGroup", onGroup, func() error {
			_, err := client.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: name})
			return err
		}},
	} {
		endpoint.RequireAccess(t, call.action, call.resource, call.do)
	}
}
