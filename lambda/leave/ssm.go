package leave

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// SSMClient holds the calls of the SSM API that are made.
type SSMClient interface {
	ssm.DescribeInstanceInformationAPIClient
	ssm.GetCommandInvocationAPIClient
	SendCommand(context.Context, *ssm.SendCommandInput, ...func(*ssm.Options)) (*ssm.SendCommandOutput, error)
}

// SSM is [Commands] by SSM Run Command.
type SSM struct {
	Client SSMClient
}

var _ Commands = SSM{}

// Limits of the SSM API.
const (
	// deliverySeconds is the shortest time that SSM takes for the delivery of a
	// command.
	deliverySeconds = 30
	commentLimit    = 100
)

// Online counts the agents whose last ping was in time.
func (s SSM) Online(ctx context.Context, instanceIDs []string) (map[string]bool, error) {
	online := map[string]bool{}
	for chunk := range slices.Chunk(instanceIDs, 50) { // the largest page
		pages := ssm.NewDescribeInstanceInformationPaginator(s.Client, &ssm.DescribeInstanceInformationInput{
			Filters: []types.InstanceInformationStringFilter{{Key: aws.String("InstanceIds"), Values: chunk}},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, information := range page.InstanceInformationList {
				if information.PingStatus == types.PingStatusOnline {
					online[aws.ToString(information.InstanceId)] = true
				}
			}
		}
	}
	return online, nil
}

// Send runs the script by AWS-RunShellScript. What SSM could not deliver in
// time it drops, and what runs too long it stops, so that a command that was
// given up does not act much later.
func (s SSM) Send(ctx context.Context, instanceID, script, comment string) (string, error) {
	if len(comment) > commentLimit {
		comment = comment[:commentLimit]
	}
	output, err := s.Client.SendCommand(ctx, &ssm.SendCommandInput{
		DocumentName:   aws.String("AWS-RunShellScript"),
		InstanceIds:    []string{instanceID},
		Comment:        aws.String(comment),
		TimeoutSeconds: aws.Int32(deliverySeconds),
		Parameters: map[string][]string{
			"commands":         {script},
			"executionTimeout": {strconv.Itoa(int(contract.CommandLimit.Seconds()))},
		},
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(output.Command.CommandId), nil
}

// Result counts an invocation that SSM does not know yet as one that has yet
// to run: for some moments after SendCommand it may not.
func (s SSM) Result(ctx context.Context, instanceID, commandID string) (Invocation, error) {
	output, err := s.Client.GetCommandInvocation(ctx, &ssm.GetCommandInvocationInput{
		CommandId:  aws.String(commandID),
		InstanceId: aws.String(instanceID),
	})
	if _, ok := errors.AsType[*types.InvocationDoesNotExist](err); ok {
		return Invocation{Status: "InvocationDoesNotExist"}, nil
	}
	if err != nil {
		return Invocation{}, err
	}
	invocation := Invocation{
		Status:   aws.ToString(output.StatusDetails),
		ExitCode: int(output.ResponseCode),
		Stdout:   aws.ToString(output.StandardOutputContent),
		Stderr:   aws.ToString(output.StandardErrorContent),
	}
	if invocation.Status == "" {
		invocation.Status = string(output.Status)
	}
	switch output.Status {
	case types.CommandInvocationStatusSuccess, types.CommandInvocationStatusFailed,
		types.CommandInvocationStatusCancelled, types.CommandInvocationStatusTimedOut:
		invocation.Ended = true
	}
	return invocation, nil
}
