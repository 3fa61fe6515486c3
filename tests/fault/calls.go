package fault

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

// Calls that AWS does not answer as it should. All of them concern the nodes
// and the function; whoever looks at the cluster from outside sees it clearly.
var (
	ThrottledEC2 = Fault{
		Name: "ThrottledEC2", Does: "EC2 throttles two of three calls.",
		Inject: onCalls(of("ec2"), refusing(0.66, http.StatusServiceUnavailable, "RequestLimitExceeded")),
	}
	ThrottledDynamoDB = Fault{
		Name: "ThrottledDynamoDB", Does: "DynamoDB throttles two of three calls.",
		Inject: onCalls(of("dynamodb"), refusing(0.66, http.StatusBadRequest, "ProvisionedThroughputExceededException")),
	}
	ThrottledAutoScaling = Fault{
		Name: "ThrottledAutoScaling", Does: "Auto Scaling throttles two of three calls.",
		Inject: onCalls(of("autoscaling"), refusing(0.66, http.StatusBadRequest, "Throttling")),
	}
	ThrottledRunCommand = Fault{
		Name: "ThrottledRunCommand", Does: "Systems Manager throttles two of three calls.",
		Inject: onCalls(of("ssm"), refusing(0.66, http.StatusBadRequest, "ThrottlingException")),
	}
	LostPutItem = Fault{
		Name: "LostPutItem", Does: "Every second write to the seed table happens, and its answer is lost.",
		Inject: onCalls(of("dynamodb", "PutItem"), losing),
	}
	LostAttachVolume = Fault{
		Name: "LostAttachVolume", Does: "Every second attachment of the volume happens, and its answer is lost.",
		Inject: onCalls(of("ec2", "AttachVolume"), losing),
	}
	LostSendCommand = Fault{
		Name: "LostSendCommand", Does: "Every second command is sent, and its ID is lost.",
		Inject: onCalls(of("ssm", "SendCommand"), losing),
	}
	LostCompleteLifecycleAction = Fault{
		Name: "LostCompleteLifecycleAction", Does: "Every second lifecycle action is completed, and the answer is lost.",
		Inject: onCalls(of("autoscaling", "CompleteLifecycleAction"), losing),
	}
	LostSetInstanceHealth = Fault{
		Name: "LostSetInstanceHealth", Does: "Every second report of a node on itself arrives, and its answer is lost.",
		Inject: onCalls(of("autoscaling", "SetInstanceHealth"), losing),
	}
	BrokenConnections = Fault{
		Name: "BrokenConnections", Does: "One of four calls to any service gets no answer; half of those happen.",
		Inject: onCalls(ofAny, func(ctx context.Context, w *World, _ *api.Call, next next) (any, error) {
			switch {
			case !w.chance(0.25):
				return next(ctx)
			case w.chance(0.5):
				return nil, api.ErrDropped
			}
			if result, err := next(ctx); err != nil {
				return result, err
			}
			return nil, api.ErrDropped
		}),
	}
	SlowAnswers = Fault{
		Name: "SlowAnswers", Does: "Every answer of AWS takes up to two seconds.",
		Inject: onCalls(ofAny, delaying(0, 2*time.Second)),
	}
	InternalErrors = Fault{
		Name: "InternalErrors", Does: "One of three calls fails with an internal error of AWS.",
		Inject: onCalls(ofAny, refusing(0.33, http.StatusInternalServerError, "InternalError")),
	}
	CutOffFromAWS = Fault{
		Name: "CutOffFromAWS", Does: "One node reaches no service of AWS.", Targeted: true,
		Inject: func(ctx context.Context, w *World) (Undo, error) {
			own := func(c *api.Call) bool { return c.Principal.Session == w.Target }
			return onCalls(own, func(context.Context, *World, *api.Call, next) (any, error) { return nil, api.ErrDropped })(ctx, w)
		},
	}
	PermissionsNotThereYet = Fault{
		Name: "PermissionsNotThereYet", Does: "IAM has not heard of the nodes' role yet: everything is denied.",
		Inject: onCalls(ofNodes, func(_ context.Context, _ *World, c *api.Call, _ next) (any, error) {
			code := map[api.Protocol]string{api.EC2Query: "UnauthorizedOperation", api.JSON: "AccessDeniedException"}[c.Service.Protocol]
			if code == "" {
				code = "AccessDenied"
			}
			return nil, api.Errorf(http.StatusForbidden, code, "%s is not authorized to perform: %s", c.Principal.ARN, c.IAMAction())
		}),
	}
	StaleReads = Fault{
		Name: "StaleReads", Does: "Reads of DynamoDB that do not ask for consistency get what was there before.",
		Inject: func(_ context.Context, w *World) (Undo, error) {
			w.Region.DynamoDB.SetStaleReads(true)
			return func(context.Context) error { w.Region.DynamoDB.SetStaleReads(false); return nil }, nil
		},
	}
)

// Lists of instances that do not tell the truth. Lookups by ID stay right.
var (
	EmptyInstanceList = Fault{
		Name: "EmptyInstanceList", Does: "The list of the cluster's instances is empty.",
		Inject: onCalls(of("ec2", "DescribeInstances"), listing(func(*World, *api.Call, ec2.Instance) bool { return false })),
	}
	ListWithoutCaller = Fault{
		Name: "ListWithoutCaller", Does: "The list of instances lacks the node that asks.",
		Inject: onCalls(of("ec2", "DescribeInstances"), listing(func(_ *World, c *api.Call, i ec2.Instance) bool { return i.ID != c.Principal.Session })),
	}
	ListWithoutNewest = Fault{
		Name: "ListWithoutNewest", Does: "Instances enter the list only ten seconds after their launch.",
		Inject: onCalls(of("ec2", "DescribeInstances"), listing(func(_ *World, _ *api.Call, i ec2.Instance) bool { return time.Since(i.LaunchTime) > 10*time.Second })),
	}
	ListWithoutOne = Fault{
		Name: "ListWithoutOne", Does: "The list of instances lacks one node that works.", Targeted: true,
		Inject: onCalls(of("ec2", "DescribeInstances"), listing(func(w *World, _ *api.Call, i ec2.Instance) bool { return i.ID != w.Target })),
	}
)

// The function and the way to it.
var (
	SlowFunction = Fault{
		Name: "SlowFunction", Does: "Every call of the graceful-leave function takes two to five seconds.", Hinders: true,
		Inject: onCalls(ofFunctions, delaying(2*time.Second, 5*time.Second)),
	}
	FunctionCutOff = Fault{
		Name: "FunctionCutOff", Does: "The graceful-leave function reaches no service of AWS.", Hinders: true,
		Inject: onCalls(ofFunctions, func(context.Context, *World, *api.Call, next) (any, error) { return nil, api.ErrDropped }),
	}
	RunCommandDown = Fault{
		Name: "RunCommandDown", Does: "Systems Manager is unavailable.",
		Inject: onCalls(of("ssm"), refusing(1, http.StatusServiceUnavailable, "ServiceUnavailable")),
	}
)

// next is the rest of a call's way.
type next = func(context.Context) (any, error)

// meddling is what happens to a call.
type meddling func(ctx context.Context, w *World, c *api.Call, next next) (any, error)

func onCalls(concerned func(*api.Call) bool, meddle meddling) func(context.Context, *World) (Undo, error) {
	return func(_ context.Context, w *World) (Undo, error) {
		return put(w, &w.board.calls, func(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
			if !concerned(c) {
				return next(ctx)
			}
			return meddle(ctx, w, c, next)
		}), nil
	}
}

// of selects the calls of nodes and functions to a service, or some of them.
func of(service string, actions ...string) func(*api.Call) bool {
	return func(c *api.Call) bool {
		return ofAny(c) && c.Service.Name == service && (len(actions) == 0 || slices.Contains(actions, c.Action))
	}
}

func ofAny(c *api.Call) bool       { return isNode(c.Principal) || isFunction(c.Principal) }
func ofNodes(c *api.Call) bool     { return isNode(c.Principal) }
func ofFunctions(c *api.Call) bool { return isFunction(c.Principal) }

// refusing refuses a part of the calls.
func refusing(part float64, status int, code string) meddling {
	return func(ctx context.Context, w *World, _ *api.Call, next next) (any, error) {
		if w.chance(part) {
			return nil, api.Errorf(status, code, "a fault was injected")
		}
		return next(ctx)
	}
}

// losing loses every second answer, of successes only.
func losing(ctx context.Context, w *World, _ *api.Call, next next) (any, error) {
	result, err := next(ctx)
	if err == nil && w.chance(0.5) {
		return nil, api.ErrDropped
	}
	return result, err
}

// delaying makes calls slow.
func delaying(least, most time.Duration) meddling {
	return func(ctx context.Context, w *World, _ *api.Call, next next) (any, error) {
		select {
		case <-time.After(w.between(least, most)):
			return next(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// listing lets a list of instances have only those that are kept. EC2 filters
// it: by one filter more.
func listing(keep func(*World, *api.Call, ec2.Instance) bool) meddling {
	return func(ctx context.Context, w *World, c *api.Call, next next) (any, error) {
		if c.Params.Has("InstanceId") {
			return next(ctx)
		}
		filter := fmt.Sprintf("Filter.%d.", len(c.Params.Structs("Filter"))+1)
		c.Params[filter+"Name"] = "instance-id"
		c.Params[filter+"Value.1"] = "none"
		kept := 1
		for _, instance := range w.Region.EC2.Instances() {
			if keep(w, c, instance) {
				kept++
				c.Params[fmt.Sprintf("%sValue.%d", filter, kept)] = instance.ID
			}
		}
		return next(ctx)
	}
}
