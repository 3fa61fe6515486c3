package awsplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// configuration is what a program or a stack tells the provider, under the
// real plugin's names. Options that only matter on AWS itself are accepted and
// have no effect.
type configuration struct {
	AccessKey               string              `pulumi:"accessKey"`
	SecretKey               string              `pulumi:"secretKey"`
	Token                   string              `pulumi:"token"`
	Profile                 string              `pulumi:"profile"`
	Region                  string              `pulumi:"region"`
	Endpoints               []map[string]string `pulumi:"endpoints"`
	DefaultTags             *defaultTags        `pulumi:"defaultTags"`
	MaxRetries              int                 `pulumi:"maxRetries"`
	S3UsePathStyle          bool                `pulumi:"s3UsePathStyle"`
	SkipRequestingAccountID bool                `pulumi:"skipRequestingAccountId"`
}

type defaultTags struct {
	Tags map[string]string `pulumi:"tags"`
}

// readConfiguration takes the provider's inputs, whose lists, objects, numbers
// and booleans come as JSON text from SDKs and stack settings. What is missing
// is looked up in the environment.
func readConfiguration(inputs property.Map) (configuration, error) {
	inputs = plain(inputs)
	for name, value := range inputs.All {
		if !value.IsString() || name == "accessKey" || name == "secretKey" || name == "token" {
			continue
		}
		var object any
		if json.Unmarshal([]byte(value.AsString()), &object) != nil {
			continue // plain text, such as a region
		}
		structured, err := toValue(object)
		if err != nil {
			return configuration{}, fmt.Errorf("read configuration %s: %w", name, err)
		}
		inputs = inputs.Set(name, structured)
	}
	var c configuration
	if err := decode(inputs, &c); err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if c.Region == "" {
			c.Region = os.Getenv(name)
		}
	}
	return c, nil
}

func toValue(v any) (property.Value, error) {
	switch v := v.(type) {
	case []any:
		items := make([]property.Value, len(v))
		for i, item := range v {
			var err error
			if items[i], err = toValue(item); err != nil {
				return property.Value{}, err
			}
		}
		return property.New(items), nil
	case map[string]any:
		items := make(map[string]property.Value, len(v))
		for name, item := range v {
			var err error
			if items[name], err = toValue(item); err != nil {
				return property.Value{}, err
			}
		}
		return property.New(items), nil
	default:
		return property.Any(v)
	}
}

// cloud is a configured provider: clients for one account and Region.
type cloud struct {
	region      string
	partition   string
	dnsSuffix   string
	accountID   string
	defaultTags map[string]string

	autoscaling *autoscaling.Client
	cloudwatch  *cloudwatch.Client
	dynamodb    *dynamodb.Client
	ec2         *ec2.Client
	events      *eventbridge.Client
	iam         *iam.Client
	lambda      *lambda.Client
	logs        *cloudwatchlogs.Client
	s3          *s3.Client
	sqs         *sqs.Client
	ssm         *ssm.Client
	sts         *sts.Client
}

func newCloud(ctx context.Context, c configuration) (*cloud, error) {
	options := []func(*config.LoadOptions) error{
		config.WithRegion(c.Region),
		config.WithLogger(logging.Nop{}), // a plugin's error output is the user's
	}
	if c.AccessKey != "" {
		options = append(options, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, c.Token)))
	}
	if c.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.Profile))
	}
	if c.MaxRetries > 0 {
		options = append(options, config.WithRetryMaxAttempts(c.MaxRetries+1))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	endpoints := map[string]string{}
	for _, services := range c.Endpoints {
		maps.Copy(endpoints, services)
	}
	endpoint := func(names ...string) *string {
		for _, name := range names {
			if url := endpoints[name]; url != "" {
				return aws.String(url)
			}
		}
		return loaded.BaseEndpoint
	}
	cl := &cloud{
		region:    c.Region,
		partition: "aws",
		dnsSuffix: "amazonaws.com",
		autoscaling: autoscaling.NewFromConfig(loaded, func(o *autoscaling.Options) {
			o.BaseEndpoint = endpoint("autoscaling")
		}),
		cloudwatch: cloudwatch.NewFromConfig(loaded, func(o *cloudwatch.Options) { o.BaseEndpoint = endpoint("cloudwatch") }),
		dynamodb:   dynamodb.NewFromConfig(loaded, func(o *dynamodb.Options) { o.BaseEndpoint = endpoint("dynamodb") }),
		ec2:        ec2.NewFromConfig(loaded, func(o *ec2.Options) { o.BaseEndpoint = endpoint("ec2") }),
		events: eventbridge.NewFromConfig(loaded, func(o *eventbridge.Options) {
			o.BaseEndpoint = endpoint("events", "eventbridge", "cloudwatchevents")
		}),
		iam:    iam.NewFromConfig(loaded, func(o *iam.Options) { o.BaseEndpoint = endpoint("iam") }),
		lambda: lambda.NewFromConfig(loaded, func(o *lambda.Options) { o.BaseEndpoint = endpoint("lambda") }),
		logs: cloudwatchlogs.NewFromConfig(loaded, func(o *cloudwatchlogs.Options) {
			o.BaseEndpoint = endpoint("logs", "cloudwatchlogs")
		}),
		s3: s3.NewFromConfig(loaded, func(o *s3.Options) {
			o.BaseEndpoint = endpoint("s3")
			o.UsePathStyle = c.S3UsePathStyle
		}),
		sqs: sqs.NewFromConfig(loaded, func(o *sqs.Options) { o.BaseEndpoint = endpoint("sqs") }),
		ssm: ssm.NewFromConfig(loaded, func(o *ssm.Options) { o.BaseEndpoint = endpoint("ssm") }),
		sts: sts.NewFromConfig(loaded, func(o *sts.Options) { o.BaseEndpoint = endpoint("sts") }),
	}
	switch {
	case strings.HasPrefix(c.Region, "cn-"):
		cl.partition, cl.dnsSuffix = "aws-cn", "amazonaws.com.cn"
	case strings.HasPrefix(c.Region, "us-gov-"):
		cl.partition = "aws-us-gov"
	}
	if c.DefaultTags != nil {
		cl.defaultTags = c.DefaultTags.Tags
	}
	if !c.SkipRequestingAccountID {
		identity, err := cl.sts.GetCallerIdentity(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("validate provider credentials: retrieving caller identity from STS: %w", err)
		}
		cl.accountID = aws.ToString(identity.Account)
	}
	return cl, nil
}

// ec2ARN makes the ARN of an EC2 resource: EC2 does not tell it.
func (c *cloud) ec2ARN(resource string) string {
	return fmt.Sprintf("arn:%s:ec2:%s:%s:%s", c.partition, c.region, c.accountID, resource)
}

// ownTags are a resource's tags without those that the provider adds to every
// resource and the program did not give.
func (c *cloud) ownTags(all, given map[string]string) map[string]string {
	var own map[string]string
	for key, value := range all {
		if c.defaultTags[key] == value {
			if _, ok := given[key]; !ok {
				continue
			}
		}
		if own == nil {
			own = map[string]string{}
		}
		own[key] = value
	}
	return own
}
