package awscli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	s3sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/imds"
	"github.com/etcfs/pulumi-etcfs/tests/region/s3"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/awscli"
)

// account is a region's front door with one object in one bucket.
type account struct {
	*apitest.Endpoint
	health    []api.Params // the calls of SetInstanceHealth
	completed []string     // the lifecycle actions: group, hook, instance, result
}

func newAccount(t *testing.T) *account {
	t.Helper()
	a := &account{}
	a.Endpoint = apitest.New(t, s3.New(s3.Config{Region: apitest.Region}).Service(),
		&api.Service{Name: "autoscaling", Protocol: api.Query, Operations: map[string]api.Operation{
			"SetInstanceHealth": func(_ context.Context, c *api.Call) (any, error) {
				a.health = append(a.health, c.Params)
				if c.Params.Get("InstanceId") != "i-1" {
					return nil, api.Errorf(http.StatusBadRequest, "ValidationError", "Instance Id not found - No managed instance found for instance ID: %s", c.Params.Get("InstanceId"))
				}
				return nil, c.AuthorizeOn()
			},
			"DescribeAutoScalingInstances": func(_ context.Context, c *api.Call) (any, error) {
				type instance struct{ InstanceId, AutoScalingGroupName string } //nolint:staticcheck // AWS spells it so
				var out struct {
					Instances []instance `xml:"AutoScalingInstances>member"`
				}
				if id := c.Params.Get("InstanceIds.member.1"); id == "i-1" {
					out.Instances = append(out.Instances, instance{id, "group"})
				}
				return out, c.AuthorizeOn()
			},
			"CompleteLifecycleAction": func(_ context.Context, c *api.Call) (any, error) {
				if c.Params.Get("InstanceId") != "i-1" {
					return nil, api.Errorf(http.StatusBadRequest, "ValidationError", "No active Lifecycle Action found with instance ID %s", c.Params.Get("InstanceId"))
				}
				a.completed = append(a.completed, strings.Join([]string{
					c.Params.Get("AutoScalingGroupName"), c.Params.Get("LifecycleHookName"), c.Params.Get("InstanceId"), c.Params.Get("LifecycleActionResult"),
				}, " "))
				return struct{}{}, c.AuthorizeOn()
			},
		}},
		&api.Service{Name: "sts", Protocol: api.Query, Operations: map[string]api.Operation{
			"GetCallerIdentity": func(_ context.Context, c *api.Call) (any, error) {
				return struct{ Arn string }{c.Principal.ARN}, c.Authorize()
			},
		}},
	)
	client := s3sdk.NewFromConfig(a.Config())
	if _, err := client.CreateBucket(t.Context(), &s3sdk.CreateBucketInput{
		Bucket: aws.String("bucket"), CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: apitest.Region},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutObject(t.Context(), &s3sdk.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String("a/key"), Body: strings.NewReader("content")}); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": a.URL, "AWS_REGION": apitest.Region, "AWS_MAX_ATTEMPTS": "1",
		"AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret", "HOME": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	return a
}

// run runs a command line of words.
func run(t *testing.T, words ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = awscli.Main(words, &out, &err)
	return status, out.String(), err.String()
}

func TestCopyFromS3(t *testing.T) { //nolint:paralleltest // it sets the environment
	a := newAccount(t)
	file := filepath.Join(t.TempDir(), "file")
	for _, test := range []struct {
		name   string
		words  []string
		deny   string
		status int
		stderr string
	}{
		{"there", []string{"s3", "cp", "--only-show-errors", "--region", "eu-west-1", "s3://bucket/a/key", file}, "", 0, ""},
		{"no such key", []string{"s3", "cp", "s3://bucket/none", file}, "", 1,
			`fatal error: An error occurred (404) when calling the HeadObject operation: Key "none" does not exist`},
		{"not allowed", []string{"s3", "cp", "s3://bucket/a/key", file}, "s3:GetObject", 1,
			"fatal error: An error occurred (403) when calling the HeadObject operation: Forbidden"},
		{"no folder for it", []string{"s3", "cp", "s3://bucket/a/key", filepath.Join(file, "no", "folder")}, "", 1, "download failed: s3://bucket/a/key"},
		{"the other way", []string{"s3", "cp", file, "s3://bucket/a/key"}, "", 252, "copies from s3://BUCKET/KEY to a file"},
		{"no file", []string{"s3", "cp", "s3://bucket/a/key"}, "", 252, "takes 2 arguments"},
		{"by API", []string{"s3api", "get-object", "--bucket", "bucket", "--key", "a/key", file}, "", 0, ""},
		{"by API, no such key", []string{"s3api", "get-object", "--bucket", "bucket", "--key", "none", file}, "", 254,
			"An error occurred (NoSuchKey) when calling the GetObject operation"},
		{"by API, no key", []string{"s3api", "get-object", "--bucket", "bucket", file}, "", 252, "the following arguments are required: --key"},
		{"no such command", []string{"s3", "ls"}, "", 252, "Invalid choice"},
		{"no such flag", []string{"s3", "cp", "--recursive", "s3://bucket/a/key", file}, "", 252, "unknown flag"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a.Deny(test.deny)
			_ = os.Remove(file) // of the case before
			status, _, stderr := run(t, test.words...)
			if status != test.status || !strings.Contains(stderr, test.stderr) || (stderr == "") != (test.stderr == "") {
				t.Errorf("status %d, %q, want %d, %q", status, stderr, test.status, test.stderr)
			}
			if got, err := os.ReadFile(file); test.status == 0 && (err != nil || string(got) != "content") {
				t.Errorf("the file reads %q, %v, want %q", got, err, "content")
			} else if test.status != 0 && err == nil {
				t.Errorf("there is a file after all: %q", got)
			}
		})
	}
}

func TestSetInstanceHealth(t *testing.T) { //nolint:paralleltest // it sets the environment
	a := newAccount(t)
	status, stdout, stderr := run(t, "autoscaling", "set-instance-health", "--instance-id", "i-1", "--health-status", "Unhealthy", "--no-should-respect-grace-period", "--region", "eu-west-1")
	if status != 0 || stdout+stderr != "" {
		t.Errorf("status %d, %q %q", status, stdout, stderr)
	}
	if got, want := a.health[0].Get("ShouldRespectGracePeriod"), "false"; got != want {
		t.Errorf("ShouldRespectGracePeriod is %q, want %q", got, want)
	}
	if got, want := a.health[0].Get("HealthStatus"), "Unhealthy"; got != want {
		t.Errorf("HealthStatus is %q, want %q", got, want)
	}
	status, _, stderr = run(t, "autoscaling", "set-instance-health", "--instance-id=i-2", "--health-status=Unhealthy")
	if want := "An error occurred (ValidationError) when calling the SetInstanceHealth operation: Instance Id not found"; status != 254 || !strings.Contains(stderr, want) {
		t.Errorf("status %d, %q, want 254, %q", status, stderr, want)
	}
	if got, want := a.health[1].Get("ShouldRespectGracePeriod"), "true"; got != want {
		t.Errorf("by default ShouldRespectGracePeriod is %q, want %q", got, want)
	}
}

// The two commands with which an instance ends its own launch.
func TestLifecycleAction(t *testing.T) { //nolint:paralleltest // it sets the environment
	a := newAccount(t)
	describe := []string{"autoscaling", "describe-auto-scaling-instances", "--region", "eu-west-1", "--instance-ids"}
	for _, test := range []struct {
		name   string
		words  []string
		status int
		stdout string
		stderr string
	}{
		{"the group", []string{"i-1", "--query", "AutoScalingInstances[0].AutoScalingGroupName", "--output", "text"}, 0, "group\n", ""},
		{"as JSON", []string{"i-1", "--query", "AutoScalingInstances[0].AutoScalingGroupName"}, 0, "\"group\"\n", ""},
		{"in no group", []string{"i-2", "--query", "AutoScalingInstances[0].AutoScalingGroupName", "--output", "text"}, 0, "None\n", ""},
		{"another query", []string{"i-1", "--query", "AutoScalingInstances[].LifecycleState", "--output", "text"}, 252, "", "knows queries such as"},
		{"too much for text", []string{"i-1", "--output", "text"}, 252, "", "writes strings as text"},
	} {
		status, stdout, stderr := run(t, slices.Concat(describe, test.words)...)
		if status != test.status || stdout != test.stdout || !strings.Contains(stderr, test.stderr) || (stderr == "") != (test.stderr == "") {
			t.Errorf("%s: status %d, %q, %q, want %d, %q, %q", test.name, status, stdout, stderr, test.status, test.stdout, test.stderr)
		}
	}

	complete := []string{"autoscaling", "complete-lifecycle-action", "--auto-scaling-group-name", "group", "--lifecycle-hook-name", "ready"}
	status, stdout, stderr := run(t, append(complete, "--instance-id", "i-1", "--lifecycle-action-result", "ABANDON")...)
	if status != 0 || stdout+stderr != "" {
		t.Errorf("status %d, %q %q", status, stdout, stderr)
	}
	if got, want := a.completed, []string{"group ready i-1 ABANDON"}; !slices.Equal(got, want) {
		t.Errorf("completed %q, want %q", got, want)
	}
	status, _, stderr = run(t, append(complete, "--instance-id", "i-2", "--lifecycle-action-result", "ABANDON")...)
	if want := "An error occurred (ValidationError) when calling the CompleteLifecycleAction operation: No active Lifecycle Action"; status != 254 || !strings.Contains(stderr, want) {
		t.Errorf("no action: status %d, %q, want 254, %q", status, stderr, want)
	}
}

// On a node the credentials come from the metadata service.
func TestCredentialsOfTheInstance(t *testing.T) {
	newAccount(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	instance := &ec2.MachineSpec{InstanceID: "i-1", RoleName: "node", Credentials: func() (ec2.Credentials, error) {
		return ec2.Credentials{AccessKeyID: "ASIATEST", SecretAccessKey: "secret", Token: "token", Expiration: time.Now().Add(time.Hour)}, nil
	}}
	metadata := httptest.NewServer(imds.For(instance))
	t.Cleanup(metadata.Close)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	status, stdout, stderr := run(t, "sts", "get-caller-identity", "--output", "json")
	var identity struct{ Arn string }
	if err := json.NewDecoder(strings.NewReader(stdout)).Decode(&identity); status != 0 || err != nil && err != io.EOF {
		t.Fatalf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
	if want := "arn:aws:sts::123456789012:assumed-role/tester/session"; identity.Arn != want {
		t.Errorf("got %q, want %q", identity.Arn, want)
	}

	instance.RoleName = ""
	status, _, stderr = run(t, "sts", "get-caller-identity")
	if want := "Unable to locate credentials"; status != 253 || !strings.Contains(stderr, want) {
		t.Errorf("without a role: status %d, %q, want 253, %q", status, stderr, want)
	}
	status, _, stderr = run(t, "s3", "cp", "s3://bucket/a/key", filepath.Join(t.TempDir(), "file"))
	if want := "fatal error: Unable to locate credentials"; status != 1 || !strings.Contains(stderr, want) {
		t.Errorf("without a role: status %d, %q, want 1, %q", status, stderr, want)
	}
}
