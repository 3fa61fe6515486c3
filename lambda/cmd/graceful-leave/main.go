// Command graceful-leave is the executable of the graceful-leave Lambda
// function, for the runtime provided.al2023. What it does and how it is
// configured is told by package leave.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/etcfs/pulumi-etcfs/lambda/leave"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	handler, err := newHandler(context.Background(), log)
	if err != nil {
		log.Error("start graceful-leave", "error", err)
		os.Exit(1)
	}
	lambda.Start(handler.Handle)
}

// callLimit is how long one try of one AWS call may take. AWS answers within a
// second; a connection that hangs must not eat the time of the tries after it.
const callLimit = 4 * time.Second

func newHandler(ctx context.Context, log *slog.Logger) (*leave.Handler, error) {
	own, err := leave.ConfigFromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	aws, err := config.LoadDefaultConfig(ctx,
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(callLimit)))
	if err != nil {
		return nil, fmt.Errorf("configure the AWS SDK: %w", err)
	}
	return &leave.Handler{
		Config:    own,
		Instances: leave.EC2{Client: ec2.NewFromConfig(aws)},
		Groups:    leave.AutoScaling{Client: autoscaling.NewFromConfig(aws)},
		Commands:  leave.SSM{Client: ssm.NewFromConfig(aws)},
		Log:       log,
	}, nil
}
