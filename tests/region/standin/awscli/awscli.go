// Package awscli is a machine's AWS CLI (version 2): the few commands that
// user data and operators run on a node, made of the AWS SDK with the CLI's
// exit statuses and error lines.
package awscli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/spf13/pflag"
)

// Exit statuses of the AWS CLI:
// https://docs.aws.amazon.com/cli/latest/userguide/cli-usage-returncodes.html
const (
	exitS3            = 1 // an s3 transfer failed
	exitSyntax        = 252
	exitConfiguration = 253
	exitService       = 254
	exitOther         = 255
)

// exitError is an error with the CLI's exit status for it.
type exitError struct {
	status int
	line   string
}

func (e *exitError) Error() string { return e.line }

// command is one command of a service.
type command struct {
	// required and optional are its flags; those in switches take no value.
	required, optional, switches []string
	positional                   int
	run                          func(context.Context, invocation) error
}

// invocation is one run of a command.
type invocation struct {
	config aws.Config
	flags  map[string]string
	args   []string
	stdout io.Writer
	output string // json or text
}

var commands = map[string]command{
	"s3 cp": {
		positional: 2, run: copyObject,
		switches: []string{"only-show-errors", "quiet", "no-progress"},
	},
	"s3api get-object": {
		required: []string{"bucket", "key"}, positional: 1, run: getObject,
	},
	"autoscaling set-instance-health": {
		required: []string{"instance-id", "health-status"}, run: setInstanceHealth,
		switches: []string{"should-respect-grace-period", "no-should-respect-grace-period"},
	},
	"autoscaling describe-auto-scaling-instances": {
		required: []string{"instance-ids"}, optional: []string{"query"}, run: describeAutoScalingInstances,
	},
	"autoscaling complete-lifecycle-action": {
		required: []string{"auto-scaling-group-name", "lifecycle-hook-name", "instance-id", "lifecycle-action-result"}, run: completeLifecycleAction,
	},
	"sts get-caller-identity": {run: getCallerIdentity},
}

// Main runs the CLI and returns its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	err := run(context.Background(), args, stdout)
	if err == nil {
		return 0
	}
	status := exitOther
	if exit, ok := errors.AsType[*exitError](err); ok {
		status = exit.status
	}
	fmt.Fprintf(stderr, "\n%s\n", err)
	return status
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Fprintln(stdout, "aws-cli/2.0.0 standin")
		return nil
	}
	set := pflag.NewFlagSet("aws", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	region := set.String("region", "", "")
	endpoint := set.String("endpoint-url", "", "")
	output := set.String("output", "json", "")
	for _, accepted := range []string{"cli-connect-timeout", "cli-read-timeout"} {
		set.String(accepted, "", "")
	}
	set.Bool("no-cli-pager", false, "")

	name := commandName(args)
	c, ok := commands[name]
	if !ok {
		return &exitError{exitSyntax, fmt.Sprintf("aws: error: argument command: Invalid choice %q, this stand-in has: %s", name, strings.Join(slices.Sorted(maps.Keys(commands)), ", "))}
	}
	values := map[string]*string{}
	for _, flag := range slices.Concat(c.required, c.optional) {
		values[flag] = set.String(flag, "", "")
	}
	switches := map[string]*bool{}
	for _, flag := range c.switches {
		switches[flag] = set.Bool(flag, false, "")
	}
	if err := set.Parse(args); err != nil {
		return &exitError{exitSyntax, "aws: error: " + err.Error()}
	}
	i := invocation{flags: map[string]string{}, stdout: stdout, output: *output}
	for _, flag := range c.required {
		if *values[flag] == "" {
			return &exitError{exitSyntax, "aws: error: the following arguments are required: --" + flag}
		}
	}
	for flag, value := range values {
		i.flags[flag] = *value
	}
	for flag, value := range switches {
		if *value {
			i.flags[flag] = "true"
		}
	}
	if i.args = set.Args()[2:]; len(i.args) != c.positional {
		return &exitError{exitSyntax, fmt.Sprintf("aws: error: %s takes %d arguments, not %q", name, c.positional, i.args)}
	}
	options := []func(*config.LoadOptions) error{}
	if *region != "" {
		options = append(options, config.WithRegion(*region))
	}
	if *endpoint != "" {
		options = append(options, config.WithBaseEndpoint(*endpoint))
	}
	var err error
	if i.config, err = config.LoadDefaultConfig(ctx, options...); err != nil {
		return &exitError{exitConfiguration, err.Error()}
	}
	if i.config.Region == "" {
		return &exitError{exitConfiguration, "You must specify a region. You can also configure your region by running \"aws configure\"."}
	}
	return c.run(ctx, i)
}

// commandName is the service and the operation, the first two words that are
// no flags. A flag before them takes its value along.
func commandName(args []string) string {
	var words []string
	for i := 0; i < len(args) && len(words) < 2; i++ {
		switch {
		case !strings.HasPrefix(args[i], "-"):
			words = append(words, args[i])
		case !strings.Contains(args[i], "=") && args[i] != "--no-cli-pager":
			i++
		}
	}
	return strings.Join(words, " ")
}

// serviceError turns an SDK error into the CLI's line and status.
func serviceError(operation string, err error) error {
	if isCredentials(err) {
		return &exitError{exitConfiguration, "Unable to locate credentials. You can configure credentials by running \"aws configure\"."}
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return &exitError{exitService, fmt.Sprintf("An error occurred (%s) when calling the %s operation: %s", api.ErrorCode(), operation, api.ErrorMessage())}
	}
	return &exitError{exitOther, err.Error()}
}

func isCredentials(err error) bool {
	return strings.Contains(err.Error(), "get credentials") || strings.Contains(err.Error(), "get identity")
}

func s3Client(c aws.Config) *s3.Client {
	return s3.NewFromConfig(c, func(o *s3.Options) { o.UsePathStyle = true })
}

// copyObject is s3 cp from a bucket to a file: a HeadObject, then the
// download into a file that appears whole.
func copyObject(ctx context.Context, i invocation) error {
	source, ok := strings.CutPrefix(i.args[0], "s3://")
	bucket, key, _ := strings.Cut(source, "/")
	if !ok || key == "" {
		return &exitError{exitSyntax, fmt.Sprintf("this stand-in copies from s3://BUCKET/KEY to a file, not from %q", i.args[0])}
	}
	target := i.args[1]
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		target = filepath.Join(target, filepath.Base(key))
	}
	client := s3Client(i.config)
	if _, err := client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key}); err != nil {
		return &exitError{exitS3, "fatal error: " + headError(key, err)}
	}
	object, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err == nil {
		err = save(object.Body, target)
	}
	if err != nil {
		return &exitError{exitS3, fmt.Sprintf("download failed: %s to %s %v", i.args[0], i.args[1], serviceError("GetObject", err))}
	}
	if i.flags["only-show-errors"] == "" && i.flags["quiet"] == "" {
		fmt.Fprintf(i.stdout, "download: %s to %s\n", i.args[0], i.args[1])
	}
	return nil
}

// headError words the failure of a HeadObject, whose answer has no body: the
// CLI knows the status only.
func headError(key string, err error) string {
	var response *awshttp.ResponseError
	switch {
	case isCredentials(err):
		return "Unable to locate credentials"
	case !errors.As(err, &response):
		return err.Error()
	case response.HTTPStatusCode() == 404:
		return fmt.Sprintf("An error occurred (404) when calling the HeadObject operation: Key %q does not exist", key)
	case response.HTTPStatusCode() == 403:
		return "An error occurred (403) when calling the HeadObject operation: Forbidden"
	default:
		return serviceError("HeadObject", err).Error()
	}
}

func getObject(ctx context.Context, i invocation) error {
	bucket, key := i.flags["bucket"], i.flags["key"]
	object, err := s3Client(i.config).GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return serviceError("GetObject", err)
	}
	if err := save(object.Body, i.args[0]); err != nil {
		return &exitError{exitOther, err.Error()}
	}
	return i.print(map[string]any{"ContentLength": object.ContentLength, "ETag": aws.ToString(object.ETag), "ContentType": aws.ToString(object.ContentType)})
}

func save(body io.ReadCloser, target string) error {
	defer body.Close()
	temporary, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+".")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // gone once renamed
	if _, err := io.Copy(temporary, body); err != nil {
		return errors.Join(err, temporary.Close())
	}
	return errors.Join(temporary.Chmod(0o644), temporary.Close(), os.Rename(temporary.Name(), target))
}

func setInstanceHealth(ctx context.Context, i invocation) error {
	respect := i.flags["no-should-respect-grace-period"] == ""
	_, err := autoscaling.NewFromConfig(i.config).SetInstanceHealth(ctx, &autoscaling.SetInstanceHealthInput{
		InstanceId: aws.String(i.flags["instance-id"]), HealthStatus: aws.String(i.flags["health-status"]), ShouldRespectGracePeriod: &respect,
	})
	if err != nil {
		return serviceError("SetInstanceHealth", err)
	}
	return nil
}

func describeAutoScalingInstances(ctx context.Context, i invocation) error {
	found, err := autoscaling.NewFromConfig(i.config).DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{
		InstanceIds: []string{i.flags["instance-ids"]},
	})
	if err != nil {
		return serviceError("DescribeAutoScalingInstances", err)
	}
	return i.print(map[string]any{"AutoScalingInstances": found.AutoScalingInstances})
}

func completeLifecycleAction(ctx context.Context, i invocation) error {
	_, err := autoscaling.NewFromConfig(i.config).CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String(i.flags["auto-scaling-group-name"]), LifecycleHookName: aws.String(i.flags["lifecycle-hook-name"]),
		InstanceId: aws.String(i.flags["instance-id"]), LifecycleActionResult: aws.String(i.flags["lifecycle-action-result"]),
	})
	if err != nil {
		return serviceError("CompleteLifecycleAction", err)
	}
	return nil
}

func getCallerIdentity(ctx context.Context, i invocation) error {
	identity, err := sts.NewFromConfig(i.config).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return serviceError("GetCallerIdentity", err)
	}
	return i.print(map[string]string{"UserId": aws.ToString(identity.UserId), "Account": aws.ToString(identity.Account), "Arn": aws.ToString(identity.Arn)})
}

// print writes a value, or what --query picks of it. As text, only single
// values are written.
func (i invocation) print(value any) error {
	text, err := json.MarshalIndent(value, "", "    ")
	if err != nil {
		return err
	}
	if query := i.flags["query"]; query != "" {
		var whole any
		if err := json.Unmarshal(text, &whole); err != nil {
			return err
		}
		if value, err = pick(whole, query); err != nil {
			return err
		}
		if text, err = json.MarshalIndent(value, "", "    "); err != nil {
			return err
		}
	}
	if i.output != "text" {
		fmt.Fprintln(i.stdout, string(text))
		return nil
	}
	switch value := value.(type) {
	case nil:
		fmt.Fprintln(i.stdout, "None")
	case string:
		fmt.Fprintln(i.stdout, value)
	default:
		return &exitError{exitSyntax, fmt.Sprintf("this stand-in writes strings as text, not %s", text)}
	}
	return nil
}

// step is a name, and an index where that is a list.
var step = regexp.MustCompile(`^(\w+)(?:\[(\d+)\])?$`)

// pick follows a path such as Names[0].Name, the part of JMESPath that is
// known here. What is not there is nil.
func pick(value any, path string) (any, error) {
	for part := range strings.SplitSeq(path, ".") {
		parsed := step.FindStringSubmatch(part)
		if parsed == nil {
			return nil, &exitError{exitSyntax, fmt.Sprintf("this stand-in knows queries such as Names[0].Name, not %q", path)}
		}
		object, _ := value.(map[string]any)
		value = object[parsed[1]]
		if parsed[2] == "" {
			continue
		}
		index, err := strconv.Atoi(parsed[2])
		list, _ := value.([]any)
		if value = nil; err == nil && index < len(list) {
			value = list[index]
		}
	}
	return value, nil
}
