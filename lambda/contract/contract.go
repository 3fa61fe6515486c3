// Package contract is what the component and the graceful-leave function must
// agree on: how long the function, its retries and the lifecycle hook last,
// and the names of the environment variables that the function is configured
// by. It holds constants only, so that the provider can read them without
// compiling the AWS SDK.
//
// The times fit together, which this package's test computes:
//
//   - An invocation works until [CompletionReserve] before its timeout; the
//     rest is kept for completing the lifecycle action.
//   - One invocation may die without completing anything, at its timeout at
//     the latest. Lambda then tries again after [FirstRetryAfter], and that
//     second invocation still ends before the hook's heartbeat does.
//   - If that one dies as well, or the event never arrives, the heartbeat ends
//     and the hook's default result, CONTINUE, lets the instance go.
package contract

import "time"

// Times that the component deploys the function and the hook with.
const (
	// HookHeartbeat is the heartbeat timeout of the terminating lifecycle hook:
	// the longest that an instance waits for the function. Its default result
	// is CONTINUE.
	HookHeartbeat = 180 * time.Second

	// FunctionTimeout is the function's timeout.
	FunctionTimeout = 55 * time.Second

	// RetryAttempts is how often Lambda invokes the function again for an event
	// that it returned an error for (MaximumRetryAttempts of the asynchronous
	// invoke configuration). The function returns an error when a member may
	// have stayed in etcd. The action is completed by then, so retries after
	// the first need not fit into the heartbeat: they remove the member of an
	// instance that is already gone.
	RetryAttempts = 2

	// EventAge is how long Lambda keeps trying to deliver one event
	// (MaximumEventAgeInSeconds of the asynchronous invoke configuration): six
	// hours, Lambda's maximum. A late event does no harm and still removes the
	// member.
	EventAge = 6 * time.Hour
)

// Times that the function itself keeps.
const (
	// CompletionReserve is the end of an invocation's time that is kept for
	// completing the lifecycle action, whatever the removal is doing.
	CompletionReserve = 10 * time.Second

	// ReportReserve is the last part of it, kept for the log line and the
	// answer to Lambda.
	ReportReserve = time.Second

	// CommandLimit is how long one survivor has to remove the member before the
	// next one is asked.
	CommandLimit = 15 * time.Second

	// RemovalLimit is how long the survivor's command itself tries. It ends
	// before CommandLimit, so that its reason gets back in time.
	RemovalLimit = 12 * time.Second
)

// Times of AWS that the above must suit.
const (
	// FirstRetryAfter is how long Lambda waits before it invokes a function
	// again that failed an asynchronous event the first time:
	// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
	FirstRetryAfter = time.Minute

	// DeliveryAllowance is set aside for the event's way from Auto Scaling over
	// EventBridge to the function, cold start included. AWS promises no number;
	// it is commonly well below a second.
	DeliveryAllowance = 10 * time.Second
)

// Environment variables of the function. All are required: the function's
// initialisation fails with the name of one that is missing. AWS_REGION comes
// from Lambda itself.
const (
	// ClusterVariable holds the cluster's name, the ClusterName tag of its
	// instances.
	ClusterVariable = "ETCFS_CLUSTER_NAME"
	// GroupVariable holds the name of the Auto Scaling Group whose events the
	// function acts on.
	GroupVariable = "ETCFS_GROUP_NAME"
	// HookVariable holds the name of the terminating lifecycle hook that the
	// function completes.
	HookVariable = "ETCFS_HOOK_NAME"
)

// Names that the function's package is deployed with.
const (
	// Runtime is the Lambda runtime of the package.
	Runtime = "provided.al2023"
	// Architecture is the instruction set that the package is built for.
	Architecture = "x86_64"
	// HandlerName is the executable at the root of the package.
	HandlerName = "bootstrap"
)

// MetricNamespace is the CloudWatch namespace that the function's log lines
// carry their metrics to.
const MetricNamespace = "EtcFS/ScaleIn"
