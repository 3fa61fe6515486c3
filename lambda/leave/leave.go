// Package leave is the graceful-leave function: when an Auto Scaling Group
// terminates a node, it removes the node's member from etcd, by a command on a
// node that stays, and then lets the termination go on.
//
// Two promises rule everything else. The lifecycle action is completed with
// CONTINUE whatever happens to the removal, for a termination that waits is
// worse than a member that stays: time is kept back for it before the
// function's own deadline. And handling an event twice, late, or for an
// instance that nobody knows any more does no harm, for EventBridge promises
// neither once nor order.
//
// # Configuration
//
// Three environment variables, all required; [ConfigFromEnvironment] names the
// ones that are missing:
//
//	ETCFS_CLUSTER_NAME  the cluster, the ClusterName tag of its instances
//	ETCFS_GROUP_NAME    the Auto Scaling Group whose events are ours
//	ETCFS_HOOK_NAME     its terminating lifecycle hook
//
// # Permissions
//
// The function's role needs autoscaling:CompleteLifecycleAction on the group,
// ssm:SendCommand on the document AWS-RunShellScript and on instances tagged
// with the cluster's name, and on "*", as AWS offers nothing narrower,
// autoscaling:DescribeAutoScalingInstances, ec2:DescribeInstances,
// ssm:DescribeInstanceInformation and ssm:GetCommandInvocation.
package leave

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// Config says which events are the function's own.
type Config struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Group is the name of its Auto Scaling Group.
	Group string
	// Hook is the name of the group's terminating lifecycle hook.
	Hook string
}

// ConfigFromEnvironment reads the configuration through getenv, such as
// os.Getenv. Its error names every variable that is missing.
func ConfigFromEnvironment(getenv func(string) string) (Config, error) {
	var missing []string
	get := func(variable string) string {
		value := getenv(variable)
		if value == "" {
			missing = append(missing, variable)
		}
		return value
	}
	config := Config{
		Cluster: get(contract.ClusterVariable),
		Group:   get(contract.GroupVariable),
		Hook:    get(contract.HookVariable),
	}
	if missing != nil {
		return Config{}, fmt.Errorf("missing in the function's environment: %s", strings.Join(missing, ", "))
	}
	return config, nil
}

// Instances is EC2 as the handler sees it.
type Instances interface {
	// Lookup tells what EC2 still knows of an instance. An instance that EC2
	// does not know is no error: found is false.
	Lookup(ctx context.Context, instanceID string) (instance Instance, found bool, err error)
	// Running lists the IDs of a cluster's running nodes.
	Running(ctx context.Context, cluster string) ([]string, error)
}

// Instance is what EC2 knows of an instance. Each field is empty when it is
// gone, as it is some time after the instance was terminated.
type Instance struct {
	// Cluster is its ClusterName tag.
	Cluster string
	// Address is its private IPv4 address.
	Address string
}

// Groups is Auto Scaling as the handler sees it.
type Groups interface {
	// Leaving tells which of the instances their groups are terminating.
	Leaving(ctx context.Context, instanceIDs []string) (map[string]bool, error)
	// Continue completes a lifecycle action with CONTINUE. It tries again until
	// ctx ends when Auto Scaling is busy. An action that is over already is no
	// error: active is false.
	Continue(ctx context.Context, action Action) (active bool, err error)
}

// Commands is SSM Run Command as the handler sees it.
type Commands interface {
	// Online tells which of the instances have an SSM agent that answers.
	Online(ctx context.Context, instanceIDs []string) (map[string]bool, error)
	// Send starts a shell script on an instance and returns the command's ID.
	// The script is not started later than half a minute after, and is stopped
	// after [contract.CommandLimit].
	Send(ctx context.Context, instanceID, script, comment string) (commandID string, err error)
	// Result tells how far a command is.
	Result(ctx context.Context, instanceID, commandID string) (Invocation, error)
}

// Invocation is a command on one instance.
type Invocation struct {
	// Ended is false while the command has yet to run or runs.
	Ended bool
	// Status is SSM's detailed status, such as Success, Failed, Undeliverable.
	Status string
	// ExitCode, Stdout and Stderr are what an ended script left.
	ExitCode       int
	Stdout, Stderr string
}

// Handler handles lifecycle events. All its fields are required.
type Handler struct {
	Config    Config
	Instances Instances
	Groups    Groups
	Commands  Commands
	Log       *slog.Logger
}

// Handle deals with one event and writes one log line about it. It returns an
// error, so that Lambda tries the event again and keeps it in the end in the
// dead-letter queue, only when a member may have stayed in etcd or the action
// could not be completed.
func (h *Handler) Handle(ctx context.Context, payload json.RawMessage) error {
	report := newReport(h.Config)
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = report.start.Add(contract.FunctionTimeout)
	}

	action, reason := h.Config.judge(payload)
	report.event(action)
	if reason != "" {
		report.ends(Ignored, reason)
		return report.write(ctx, h.Log)
	}

	if err := guard(func() error { return h.leave(ctx, deadline, action, report) }); err != nil {
		report.ends(Failed, err.Error())
	}
	report.Completion, report.completionError = h.complete(ctx, deadline, action)
	return report.write(ctx, h.Log)
}

// leave removes the instance's member, within the time that is not kept back.
func (h *Handler) leave(ctx context.Context, deadline time.Time, action Action, report *report) error {
	if !instanceID.MatchString(action.Instance) {
		report.ends(Ignored, fmt.Sprintf("the event names no instance (%q)", action.Instance))
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-contract.CompletionReserve))
	defer cancel()
	r := &removal{handler: h, report: report, instance: action.Instance}
	return r.run(ctx)
}

// complete lets the termination go on. It does so even when the invocation's
// own context was cancelled: the process lives until Lambda ends it.
func (h *Handler) complete(ctx context.Context, deadline time.Time, action Action) (Completion, error) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(-contract.ReportReserve))
	defer cancel()
	active := false
	err := guard(func() (err error) {
		active, err = h.Groups.Continue(ctx, action)
		return err
	})
	switch {
	case err != nil:
		return NotCompleted, fmt.Errorf("complete the lifecycle action: %w", err)
	case !active:
		return AlreadyOver, nil
	}
	return Completed, nil
}

// errPanic marks the error that a panic was turned into.
var errPanic = errors.New("panic")

// guard calls f and turns a panic in it into an error, so that what must
// happen afterwards does.
func guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, value, debug.Stack())
		}
	}()
	return f()
}
