package cloudwatch_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	region "github.com/etcfs/pulumi-etcfs/tests/region/cloudwatch"
)

// depth is the alarm that the tests put.
func depth() *cloudwatch.PutMetricAlarmInput {
	return &cloudwatch.PutMetricAlarmInput{
		AlarmName: aws.String("failed"), Namespace: aws.String("AWS/SQS"), MetricName: aws.String("ApproximateNumberOfMessagesVisible"),
		Dimensions: []types.Dimension{{Name: aws.String("QueueName"), Value: aws.String("failed")}},
		Statistic:  types.StatisticMaximum, Period: aws.Int32(60), EvaluationPeriods: aws.Int32(1), Threshold: aws.Float64(0.5),
		ComparisonOperator: types.ComparisonOperatorGreaterThanThreshold, TreatMissingData: aws.String("notBreaching"),
		Tags: []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}},
	}
}

func TestLifeOfAnAlarm(t *testing.T) {
	t.Parallel()
	value, known := 0.0, false
	alarms := region.New(region.Config{Account: apitest.Account, Region: apitest.Region, Metrics: func(namespace, name string, dimensions map[string]string) (float64, bool) {
		return value, known && namespace == "AWS/SQS" && name == "ApproximateNumberOfMessagesVisible" && dimensions["QueueName"] == "failed"
	}})
	client := cloudwatch.NewFromConfig(apitest.New(t, alarms.Service()).Config())
	if _, err := client.PutMetricAlarm(t.Context(), depth()); err != nil {
		t.Fatal(err)
	}
	described := func() []types.MetricAlarm {
		out, err := client.DescribeAlarms(t.Context(), &cloudwatch.DescribeAlarmsInput{AlarmNames: []string{"failed"}})
		if err != nil {
			t.Fatal(err)
		}
		return out.MetricAlarms
	}
	for _, step := range []struct {
		value float64
		known bool
		want  types.StateValue
	}{{0, false, "OK"}, {0, true, "OK"}, {1, true, "ALARM"}, {0, true, "OK"}} {
		value, known = step.value, step.known
		if got := described()[0].StateValue; got != step.want {
			t.Errorf("at %v (known %t): got %s, want %s", step.value, step.known, got, step.want)
		}
	}
	found := described()[0]
	if got, want := aws.ToString(found.AlarmArn), "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:failed"; got != want {
		t.Errorf("ARN: got %s, want %s", got, want)
	}
	if got, want := aws.ToFloat64(found.Threshold), 0.5; got != want {
		t.Errorf("threshold: got %v, want %v", got, want)
	}
	if got, want := aws.ToInt32(found.Period), int32(60); got != want {
		t.Errorf("period: got %v, want %v", got, want)
	}
	if _, err := client.TagResource(t.Context(), &cloudwatch.TagResourceInput{ResourceARN: found.AlarmArn, Tags: []types.Tag{{Key: aws.String("Team"), Value: aws.String("storage")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UntagResource(t.Context(), &cloudwatch.UntagResourceInput{ResourceARN: found.AlarmArn, TagKeys: []string{"ClusterName"}}); err != nil {
		t.Fatal(err)
	}
	tags, err := client.ListTagsForResource(t.Context(), &cloudwatch.ListTagsForResourceInput{ResourceARN: found.AlarmArn})
	if err != nil || len(tags.Tags) != 1 || aws.ToString(tags.Tags[0].Value) != "storage" {
		t.Errorf("tags: got %v, %v, want the one of the team", tags, err)
	}
	if _, err := client.DeleteAlarms(t.Context(), &cloudwatch.DeleteAlarmsInput{AlarmNames: []string{"failed", "unknown"}}); err != nil {
		t.Fatal(err)
	}
	if left := described(); len(left) != 0 {
		t.Errorf("after it was deleted: got %v, want nothing", left)
	}
}

func TestAlarmsThatAreRefused(t *testing.T) {
	t.Parallel()
	alarms := region.New(region.Config{Account: apitest.Account, Region: apitest.Region, Metrics: func(string, string, map[string]string) (float64, bool) { return 0, false }})
	client := cloudwatch.NewFromConfig(apitest.New(t, alarms.Service()).Config())
	for name, change := range map[string]func(*cloudwatch.PutMetricAlarmInput){
		"no metric":  func(in *cloudwatch.PutMetricAlarmInput) { in.MetricName = nil },
		"no periods": func(in *cloudwatch.PutMetricAlarmInput) { in.EvaluationPeriods = aws.Int32(0) },
		"odd period": func(in *cloudwatch.PutMetricAlarmInput) { in.Period = aws.Int32(45) },
		"a comparison with a band": func(in *cloudwatch.PutMetricAlarmInput) {
			in.ComparisonOperator = types.ComparisonOperatorGreaterThanUpperThreshold
		},
	} {
		in := depth()
		change(in)
		if _, err := client.PutMetricAlarm(t.Context(), in); apitest.Code(err) != "ValidationError" {
			t.Errorf("%s: got %v, want a ValidationError", name, err)
		}
	}
}

// The SDK for Go speaks CBOR, the AWS CLI JSON 1.0, to the same operations; this
// is what aws-cli 1.46 sends.
func TestJSON(t *testing.T) {
	t.Parallel()
	alarms := region.New(region.Config{Account: apitest.Account, Region: apitest.Region, Metrics: func(string, string, map[string]string) (float64, bool) { return 0, false }})
	endpoint := apitest.New(t, alarms.Service())
	if _, err := cloudwatch.NewFromConfig(endpoint.Config()).PutMetricAlarm(t.Context(), depth()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		operation, body string
		status          int
		key             string // of the answer, or of the alarm in it
		want            any
	}{
		{"DescribeAlarms", `{"AlarmNames": ["failed"]}`, http.StatusOK, "StateValue", "OK"},
		{"DescribeAlarms", `{"AlarmNamePrefix": "fail"}`, http.StatusOK, "Threshold", 0.5},
		{"DeleteAlarms", `{"AlarmNames": ["other"]}`, http.StatusOK, "", nil},
		{"DescribeAlarms", `{"Unknown": 1}`, http.StatusBadRequest, "__type", "InvalidParameterValue"},
		{"GetDashboard", `{}`, http.StatusBadRequest, "__type", "InvalidAction"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint.URL, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{
			"X-Amz-Target":  {"GraniteServiceVersion20100801." + test.operation},
			"Content-Type":  {"application/x-amz-json-1.0"},
			"Authorization": {"AWS4-HMAC-SHA256 Credential=AKIDTEST/20261129/eu-west-1/monitoring/aws4_request, SignedHeaders=host, Signature=0"},
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got, want := response.Header.Get("Content-Type"), "application/x-amz-json-1.0"; response.StatusCode != test.status || got != want {
			t.Errorf("%s %s: got %d, %s, want %d, %s", test.operation, test.body, response.StatusCode, got, test.status, want)
		}
		var found map[string]any
		if err := json.Unmarshal(answer, &found); err != nil {
			t.Errorf("%s %s: got %q: %v", test.operation, test.body, answer, err)
			continue
		}
		if described, ok := found["MetricAlarms"].([]any); ok {
			found = described[0].(map[string]any)
		}
		if test.key != "" && found[test.key] != test.want {
			t.Errorf("%s %s: got %s, want %s %v", test.operation, test.body, answer, test.key, test.want)
		}
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	alarms := region.New(region.Config{Account: apitest.Account, Region: apitest.Region, Metrics: func(string, string, map[string]string) (float64, bool) { return 0, false }})
	endpoint := apitest.New(t, alarms.Service())
	client := cloudwatch.NewFromConfig(endpoint.Config())
	endpoint.RequireAccess(t, "cloudwatch:PutMetricAlarm", "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:failed", func() error {
		_, err := client.PutMetricAlarm(t.Context(), depth())
		return err
	})
	endpoint.RequireAccess(t, "cloudwatch:DescribeAlarms", "*", func() error {
		_, err := client.DescribeAlarms(t.Context(), nil)
		return err
	})
}
