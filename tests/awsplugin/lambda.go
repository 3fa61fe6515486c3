package awsplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/archive"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

type function struct {
	Architectures                []string             `pulumi:"architectures" aws:"computed"`
	ARN                          string               `pulumi:"arn" aws:"output"`
	Code                         property.Archive     `pulumi:"code"`
	CodeSHA256                   string               `pulumi:"codeSha256" aws:"output"`
	Description                  string               `pulumi:"description"`
	Environment                  *functionEnvironment `pulumi:"environment"`
	Handler                      string               `pulumi:"handler"`
	InvokeARN                    string               `pulumi:"invokeArn" aws:"output"`
	LastModified                 string               `pulumi:"lastModified" aws:"output"`
	LoggingConfig                *functionLogging     `pulumi:"loggingConfig" aws:"computed"`
	MemorySize                   int                  `pulumi:"memorySize" aws:"default=128"`
	Name                         string               `pulumi:"name" aws:"computed,replace"`
	PackageType                  string               `pulumi:"packageType" aws:"default=Zip,replace"`
	Publish                      bool                 `pulumi:"publish" aws:"default=false"`
	QualifiedARN                 string               `pulumi:"qualifiedArn" aws:"output"`
	ReservedConcurrentExecutions int                  `pulumi:"reservedConcurrentExecutions" aws:"default=-1"`
	Role                         string               `pulumi:"role" aws:"required"`
	Runtime                      string               `pulumi:"runtime"`
	S3Bucket                     string               `pulumi:"s3Bucket"`
	S3Key                        string               `pulumi:"s3Key"`
	S3ObjectVersion              string               `pulumi:"s3ObjectVersion"`
	SkipDestroy                  bool                 `pulumi:"skipDestroy" aws:"default=false"`
	SourceCodeHash               string               `pulumi:"sourceCodeHash" aws:"computed"`
	SourceCodeSize               int                  `pulumi:"sourceCodeSize" aws:"output"`
	Tags                         map[string]string    `pulumi:"tags" aws:"tags"`
	TagsAll                      map[string]string    `pulumi:"tagsAll" aws:"output"`
	Timeout                      int                  `pulumi:"timeout" aws:"default=3"`
	Version                      string               `pulumi:"version" aws:"output"`
}

type functionEnvironment struct {
	Variables map[string]string `pulumi:"variables"`
}

type functionLogging struct {
	LogFormat string `pulumi:"logFormat" aws:"required"`
	LogGroup  string `pulumi:"logGroup" aws:"computed"`
}

const (
	functionNotFound = "ResourceNotFoundException"
	functionTimeout  = 10 * time.Minute
	// Lambda refuses a role that it does not know everywhere yet.
	roleNotAssumable = "The role defined for the function cannot be assumed by Lambda"
)

var (
	functionCode          = []string{"code", "s3Bucket", "s3Key", "s3ObjectVersion", "sourceCodeHash"}
	functionConfiguration = []string{"description", "environment", "handler", "loggingConfig", "memorySize", "role", "runtime", "timeout"}
)

var functionHandler = handler[function]{
	naming: naming{property: "name", max: 64},
	create: func(ctx context.Context, c *cloud, f *function) (string, error) {
		zip, err := f.zip()
		if err != nil {
			return "", fmt.Errorf("creating Lambda Function (%s): %w", f.Name, err)
		}
		input := &lambda.CreateFunctionInput{
			Architectures: f.architectures(),
			Code: &types.FunctionCode{
				ZipFile: zip, S3Bucket: optional(f.S3Bucket), S3Key: optional(f.S3Key), S3ObjectVersion: optional(f.S3ObjectVersion),
			},
			Description:   optional(f.Description),
			Environment:   f.environment(),
			FunctionName:  aws.String(f.Name),
			Handler:       optional(f.Handler),
			LoggingConfig: f.logging(),
			MemorySize:    aws.Int32(int32(f.MemorySize)),
			PackageType:   types.PackageType(f.PackageType),
			Publish:       f.Publish,
			Role:          aws.String(f.Role),
			Runtime:       types.Runtime(f.Runtime),
			Tags:          f.TagsAll,
			Timeout:       aws.Int32(int32(f.Timeout)),
		}
		err = retryMessage(ctx, iamPropagation, func(ctx context.Context) error {
			_, err := c.lambda.CreateFunction(ctx, input)
			return err
		}, "InvalidParameterValueException", roleNotAssumable)
		if err != nil {
			return "", fmt.Errorf("creating Lambda Function (%s): %w", f.Name, err)
		}
		if err := waitFunction(ctx, c, f.Name); err != nil {
			return f.Name, fmt.Errorf("waiting for Lambda Function (%s) create: %w", f.Name, err)
		}
		if f.ReservedConcurrentExecutions >= 0 {
			return f.Name, putConcurrency(ctx, c, f)
		}
		return f.Name, nil
	},
	read: func(ctx context.Context, c *cloud, id string, f *function) error {
		got, err := c.lambda.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String(id)})
		if err != nil {
			return missing(err, functionNotFound)
		}
		found := got.Configuration
		f.Architectures = nil
		for _, a := range found.Architectures {
			f.Architectures = append(f.Architectures, string(a))
		}
		f.ARN = aws.ToString(found.FunctionArn)
		f.CodeSHA256 = aws.ToString(found.CodeSha256)
		f.Description = aws.ToString(found.Description)
		f.Environment = nil
		if e := found.Environment; e != nil && len(e.Variables) > 0 {
			f.Environment = &functionEnvironment{Variables: e.Variables}
		}
		f.Handler = aws.ToString(found.Handler)
		f.InvokeARN = fmt.Sprintf("arn:%s:apigateway:%s:lambda:path/2015-03-31/functions/%s/invocations", c.partition, c.region, f.ARN)
		f.LastModified = aws.ToString(found.LastModified)
		f.LoggingConfig = nil
		if l := found.LoggingConfig; l != nil {
			f.LoggingConfig = &functionLogging{LogFormat: string(l.LogFormat), LogGroup: aws.ToString(l.LogGroup)}
		}
		f.MemorySize = int(aws.ToInt32(found.MemorySize))
		f.Name = aws.ToString(found.FunctionName)
		f.PackageType = string(found.PackageType)
		f.QualifiedARN = f.ARN + ":" + aws.ToString(found.Version)
		f.ReservedConcurrentExecutions = -1
		if got.Concurrency != nil {
			f.ReservedConcurrentExecutions = int(aws.ToInt32(got.Concurrency.ReservedConcurrentExecutions))
		}
		f.Role = aws.ToString(found.Role)
		f.Runtime = string(found.Runtime)
		f.SourceCodeSize = int(found.CodeSize)
		f.Timeout = int(aws.ToInt32(found.Timeout))
		f.Version = aws.ToString(found.Version)
		f.TagsAll = nil
		if len(got.Tags) > 0 {
			f.TagsAll = got.Tags
		}
		f.Tags = c.ownTags(f.TagsAll, f.Tags)
		return nil
	},
	renewed: func(f *function, changed set) []string {
		var names []string
		code, configuration := changed.any(functionCode...), changed.any(functionConfiguration...)
		if code {
			names = append(names, "codeSha256", "lastModified")
		}
		if f.Publish && (code || configuration || changed["publish"]) {
			names = append(names, "qualifiedArn", "version")
		}
		return names
	},
	update: updateFunction,
	delete: func(ctx context.Context, c *cloud, id string, f *function) error {
		if f.SkipDestroy {
			return nil
		}
		_, err := c.lambda.DeleteFunction(ctx, &lambda.DeleteFunctionInput{FunctionName: aws.String(id)})
		if err = ifPresent(err, functionNotFound); err != nil {
			return fmt.Errorf("deleting Lambda Function (%s): %w", id, err)
		}
		return nil
	},
}

func updateFunction(ctx context.Context, c *cloud, id string, old, f *function, changed set) error {
	if changed.any(functionConfiguration...) {
		input := &lambda.UpdateFunctionConfigurationInput{
			Description:   aws.String(f.Description),
			Environment:   f.environment(),
			FunctionName:  aws.String(id),
			Handler:       optional(f.Handler),
			LoggingConfig: f.logging(),
			MemorySize:    aws.Int32(int32(f.MemorySize)),
			Role:          aws.String(f.Role),
			Runtime:       types.Runtime(f.Runtime),
			Timeout:       aws.Int32(int32(f.Timeout)),
		}
		if input.Environment == nil {
			input.Environment = &types.Environment{Variables: map[string]string{}}
		}
		err := retryMessage(ctx, iamPropagation, func(ctx context.Context) error {
			_, err := c.lambda.UpdateFunctionConfiguration(ctx, input)
			return err
		}, "InvalidParameterValueException", roleNotAssumable)
		if err != nil {
			return fmt.Errorf("updating Lambda Function (%s) configuration: %w", id, err)
		}
		if err := waitFunction(ctx, c, id); err != nil {
			return fmt.Errorf("waiting for Lambda Function (%s) configuration update: %w", id, err)
		}
	}
	if changed.any(append(functionCode, "architectures")...) {
		zip, err := f.zip()
		if err != nil {
			return fmt.Errorf("updating Lambda Function (%s) code: %w", id, err)
		}
		_, err = c.lambda.UpdateFunctionCode(ctx, &lambda.UpdateFunctionCodeInput{
			Architectures: f.architectures(), FunctionName: aws.String(id), Publish: f.Publish,
			ZipFile: zip, S3Bucket: optional(f.S3Bucket), S3Key: optional(f.S3Key), S3ObjectVersion: optional(f.S3ObjectVersion),
		})
		if err != nil {
			return fmt.Errorf("updating Lambda Function (%s) code: %w", id, err)
		}
		if err := waitFunction(ctx, c, id); err != nil {
			return fmt.Errorf("waiting for Lambda Function (%s) code update: %w", id, err)
		}
	}
	if changed["reservedConcurrentExecutions"] {
		if err := putConcurrency(ctx, c, f); err != nil {
			return err
		}
	}
	set, remove := tagChanges(old.TagsAll, f.TagsAll)
	if len(remove) > 0 {
		if _, err := c.lambda.UntagResource(ctx, &lambda.UntagResourceInput{Resource: aws.String(old.ARN), TagKeys: remove}); err != nil {
			return fmt.Errorf("untagging Lambda Function (%s): %w", id, err)
		}
	}
	if len(set) > 0 {
		if _, err := c.lambda.TagResource(ctx, &lambda.TagResourceInput{Resource: aws.String(old.ARN), Tags: set}); err != nil {
			return fmt.Errorf("tagging Lambda Function (%s): %w", id, err)
		}
	}
	return nil
}

// zip is the package to upload, nil when it lies in S3.
func (f *function) zip() ([]byte, error) {
	if f.Code == nil {
		return nil, nil
	}
	var buffer bytes.Buffer
	if err := f.Code.Archive(archive.ZIPArchive, &buffer); err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

func (f *function) architectures() []types.Architecture {
	var list []types.Architecture
	for _, a := range f.Architectures {
		list = append(list, types.Architecture(a))
	}
	return list
}

func (f *function) environment() *types.Environment {
	if f.Environment == nil {
		return nil
	}
	return &types.Environment{Variables: f.Environment.Variables}
}

func (f *function) logging() *types.LoggingConfig {
	if f.LoggingConfig == nil {
		return nil
	}
	return &types.LoggingConfig{LogFormat: types.LogFormat(f.LoggingConfig.LogFormat), LogGroup: optional(f.LoggingConfig.LogGroup)}
}

// waitFunction waits until the function is active and its last update done.
func waitFunction(ctx context.Context, c *cloud, name string) error {
	return poll(ctx, functionTimeout, "state to become 'Active'", func(ctx context.Context) (bool, string, error) {
		got, err := c.lambda.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String(name)})
		if err != nil {
			return false, "", err
		}
		found := got.Configuration
		if found.State == types.StateFailed {
			return false, "", fmt.Errorf("%s: %s", found.StateReasonCode, aws.ToString(found.StateReason))
		}
		if found.LastUpdateStatus == types.LastUpdateStatusFailed {
			return false, "", fmt.Errorf("%s: %s", found.LastUpdateStatusReasonCode, aws.ToString(found.LastUpdateStatusReason))
		}
		done := found.State == types.StateActive && found.LastUpdateStatus != types.LastUpdateStatusInProgress
		return done, fmt.Sprintf("%s, last update %s", found.State, found.LastUpdateStatus), nil
	})
}

func putConcurrency(ctx context.Context, c *cloud, f *function) error {
	var err error
	if f.ReservedConcurrentExecutions >= 0 {
		_, err = c.lambda.PutFunctionConcurrency(ctx, &lambda.PutFunctionConcurrencyInput{
			FunctionName: aws.String(f.Name), ReservedConcurrentExecutions: aws.Int32(int32(f.ReservedConcurrentExecutions)),
		})
	} else {
		_, err = c.lambda.DeleteFunctionConcurrency(ctx, &lambda.DeleteFunctionConcurrencyInput{FunctionName: aws.String(f.Name)})
	}
	if err != nil {
		return fmt.Errorf("setting Lambda Function (%s) concurrency: %w", f.Name, err)
	}
	return nil
}

type permission struct {
	Action            string `pulumi:"action" aws:"required,replace"`
	Function          string `pulumi:"function" aws:"required,replace"`
	Principal         string `pulumi:"principal" aws:"required,replace"`
	Qualifier         string `pulumi:"qualifier" aws:"replace"`
	SourceAccount     string `pulumi:"sourceAccount" aws:"replace"`
	SourceARN         string `pulumi:"sourceArn" aws:"replace"`
	StatementID       string `pulumi:"statementId" aws:"computed,replace"`
	StatementIDPrefix string `pulumi:"statementIdPrefix" aws:"computed,replace"`
}

var permissionHandler = handler[permission]{
	naming: naming{property: "statementId", max: 100},
	create: func(ctx context.Context, c *cloud, p *permission) (string, error) {
		_, err := c.lambda.AddPermission(ctx, &lambda.AddPermissionInput{
			Action:        aws.String(p.Action),
			FunctionName:  aws.String(p.Function),
			Principal:     aws.String(p.Principal),
			Qualifier:     optional(p.Qualifier),
			SourceAccount: optional(p.SourceAccount),
			SourceArn:     optional(p.SourceARN),
			StatementId:   aws.String(p.StatementID),
		})
		if err != nil {
			return "", fmt.Errorf("adding Lambda Permission (%s/%s): %w", p.Function, p.StatementID, err)
		}
		return p.StatementID, nil
	},
	read: func(ctx context.Context, c *cloud, id string, p *permission) error {
		got, err := c.lambda.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: aws.String(p.Function), Qualifier: optional(p.Qualifier)})
		if err != nil {
			return missing(err, functionNotFound)
		}
		var policy struct {
			Statement []struct {
				Sid       string
				Action    string
				Principal any
				Condition map[string]map[string]string
			}
		}
		if err := json.Unmarshal([]byte(aws.ToString(got.Policy)), &policy); err != nil {
			return fmt.Errorf("reading Lambda Permission (%s/%s): decode policy: %w", p.Function, id, err)
		}
		for _, s := range policy.Statement {
			if s.Sid != id {
				continue
			}
			p.Action = s.Action
			switch principal := s.Principal.(type) {
			case string:
				p.Principal = principal
			case map[string]any:
				for _, value := range principal { // {"Service": …} or {"AWS": …}
					p.Principal = fmt.Sprint(value)
				}
			}
			p.SourceARN, p.SourceAccount = "", ""
			for _, conditions := range s.Condition {
				for key, value := range conditions {
					switch key {
					case "AWS:SourceArn", "aws:SourceArn":
						p.SourceARN = value
					case "AWS:SourceAccount", "aws:SourceAccount":
						p.SourceAccount = value
					}
				}
			}
			p.StatementID = id
			return nil
		}
		return errNotFound
	},
	delete: func(ctx context.Context, c *cloud, id string, p *permission) error {
		_, err := c.lambda.RemovePermission(ctx, &lambda.RemovePermissionInput{
			FunctionName: aws.String(p.Function), Qualifier: optional(p.Qualifier), StatementId: aws.String(id),
		})
		if err = ifPresent(err, functionNotFound); err != nil {
			return fmt.Errorf("removing Lambda Permission (%s/%s): %w", p.Function, id, err)
		}
		return nil
	},
}

type functionEventInvokeConfig struct {
	DestinationConfig        *functionDestinations `pulumi:"destinationConfig"`
	FunctionName             string                `pulumi:"functionName" aws:"required,replace"`
	MaximumEventAgeInSeconds int                   `pulumi:"maximumEventAgeInSeconds"`
	MaximumRetryAttempts     int                   `pulumi:"maximumRetryAttempts" aws:"default=2"`
	Qualifier                string                `pulumi:"qualifier" aws:"replace"`
}

type functionDestinations struct {
	OnFailure *functionDestination `pulumi:"onFailure"`
	OnSuccess *functionDestination `pulumi:"onSuccess"`
}

type functionDestination struct {
	Destination string `pulumi:"destination" aws:"required"`
}

var functionEventInvokeConfigHandler = handler[functionEventInvokeConfig]{
	create: func(ctx context.Context, c *cloud, e *functionEventInvokeConfig) (string, error) {
		if err := putEventInvokeConfig(ctx, c, e); err != nil {
			return "", fmt.Errorf("creating Lambda Function Event Invoke Config (%s): %w", e.FunctionName, err)
		}
		if e.Qualifier != "" {
			return e.FunctionName + ":" + e.Qualifier, nil
		}
		return e.FunctionName, nil
	},
	read: func(ctx context.Context, c *cloud, _ string, e *functionEventInvokeConfig) error {
		got, err := c.lambda.GetFunctionEventInvokeConfig(ctx, &lambda.GetFunctionEventInvokeConfigInput{
			FunctionName: aws.String(e.FunctionName), Qualifier: optional(e.Qualifier),
		})
		if err != nil {
			return missing(err, functionNotFound)
		}
		e.MaximumEventAgeInSeconds = int(aws.ToInt32(got.MaximumEventAgeInSeconds))
		e.MaximumRetryAttempts = int(aws.ToInt32(got.MaximumRetryAttempts))
		e.DestinationConfig = nil
		if d := got.DestinationConfig; d != nil && (d.OnFailure != nil || d.OnSuccess != nil) {
			e.DestinationConfig = &functionDestinations{}
			if d.OnFailure != nil {
				e.DestinationConfig.OnFailure = &functionDestination{Destination: aws.ToString(d.OnFailure.Destination)}
			}
			if d.OnSuccess != nil {
				e.DestinationConfig.OnSuccess = &functionDestination{Destination: aws.ToString(d.OnSuccess.Destination)}
			}
		}
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, _, e *functionEventInvokeConfig, changed set) error {
		if len(changed) == 0 {
			return nil
		}
		if err := putEventInvokeConfig(ctx, c, e); err != nil {
			return fmt.Errorf("updating Lambda Function Event Invoke Config (%s): %w", id, err)
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, e *functionEventInvokeConfig) error {
		_, err := c.lambda.DeleteFunctionEventInvokeConfig(ctx, &lambda.DeleteFunctionEventInvokeConfigInput{
			FunctionName: aws.String(e.FunctionName), Qualifier: optional(e.Qualifier),
		})
		if err = ifPresent(err, functionNotFound); err != nil {
			return fmt.Errorf("deleting Lambda Function Event Invoke Config (%s): %w", id, err)
		}
		return nil
	},
}

func putEventInvokeConfig(ctx context.Context, c *cloud, e *functionEventInvokeConfig) error {
	input := &lambda.PutFunctionEventInvokeConfigInput{
		FunctionName:             aws.String(e.FunctionName),
		MaximumEventAgeInSeconds: pointer(optional(e.MaximumEventAgeInSeconds)),
		MaximumRetryAttempts:     aws.Int32(int32(e.MaximumRetryAttempts)),
		Qualifier:                optional(e.Qualifier),
	}
	if d := e.DestinationConfig; d != nil {
		input.DestinationConfig = &types.DestinationConfig{}
		if d.OnFailure != nil {
			input.DestinationConfig.OnFailure = &types.OnFailure{Destination: aws.String(d.OnFailure.Destination)}
		}
		if d.OnSuccess != nil {
			input.DestinationConfig.OnSuccess = &types.OnSuccess{Destination: aws.String(d.OnSuccess.Destination)}
		}
	}
	_, err := c.lambda.PutFunctionEventInvokeConfig(ctx, input)
	return err
}
