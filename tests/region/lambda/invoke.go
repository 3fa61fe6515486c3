package lambda

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
const (
	maxPayload      = 6 << 20
	maxEventPayload = 1 << 20
	maxRetries      = 2
	maxEventAge     = 6 * time.Hour
)

// invokeConfig is how asynchronous invocations are retried, and the queue that
// gets what failed for good, "" for none.
type invokeConfig struct {
	retries   int
	age       time.Duration
	onFailure string
	changed   time.Time
}

func (f *Functions) invoke(c *api.Call, name, _ string) (any, error) {
	if err := f.authorize(c, "lambda:InvokeFunction", name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	fn, err := f.find(name)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if len(c.Body) > 0 && !json.Valid(c.Body) {
		return nil, api.Errorf(http.StatusBadRequest, "InvalidRequestContentException", "Could not parse request body into json")
	}
	if c.Request.Header.Get("X-Amz-Log-Type") == "Tail" {
		return nil, invalid("this region does not return logs with results; they are in the function's log group")
	}
	switch kind := c.Request.Header.Get("X-Amz-Invocation-Type"); kind {
	case "DryRun":
		return &api.Raw{Status: http.StatusNoContent}, nil
	case "Event":
		if len(c.Body) > maxEventPayload {
			return nil, api.Errorf(http.StatusRequestEntityTooLarge, "RequestTooLargeException", "%d byte payload is too large for the Event invocation type (limit %d bytes)", len(c.Body), maxEventPayload)
		}
		if err := f.queue(fn, c.RequestID, c.Body); err != nil {
			return nil, err
		}
		return &api.Raw{Status: http.StatusAccepted}, nil
	case "", "RequestResponse":
		if len(c.Body) > maxPayload {
			return nil, api.Errorf(http.StatusRequestEntityTooLarge, "RequestTooLargeException", "Request must be smaller than %d bytes for the InvokeFunction operation", maxPayload)
		}
		result, err := f.run(c.Request.Context(), fn, c.RequestID, c.Body)
		if err != nil {
			return nil, err
		}
		header := http.Header{"Content-Type": {"application/json"}, "X-Amz-Executed-Version": {"$LATEST"}}
		if result.failed {
			header.Set("X-Amz-Function-Error", "Unhandled")
		}
		return &api.Raw{Header: header, Body: result.payload}, nil
	default:
		return nil, invalid("invocation type %q is not one of RequestResponse, Event, DryRun", kind)
	}
}

// InvokeFor queues an asynchronous invocation by another service of the region
// for one of its resources, as the function's resource policy has to allow.
func (f *Functions) InvokeFor(service, resourceARN, functionARN string, payload []byte) error {
	f.mu.Lock()
	fn, err := f.find(functionName(functionARN))
	allowed := false
	if err == nil {
		for _, s := range fn.statements {
			allowed = allowed || s.allows(service, resourceARN, f.config.Account)
		}
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if !allowed {
		return api.Errorf(http.StatusForbidden, "AccessDeniedException", "%s is not authorized to perform: lambda:InvokeFunction on resource: %s for %s because no resource-based policy allows it", service, functionARN, resourceARN)
	}
	return f.queue(fn, uuid.NewString(), payload)
}

// queue runs an invocation later, and again if it fails.
func (f *Functions) queue(fn *function, requestID string, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return fmt.Errorf("queue invocation: %w", f.ctx.Err())
	}
	retry := invokeConfig{retries: maxRetries, age: maxEventAge}
	if fn.retries != nil {
		retry = *fn.retries
	}
	log := f.config.Logger.With("function", fn.Name, "request_id", requestID)
	f.wait.Go(func() { f.runAsynchronously(fn, requestID, payload, retry, log) })
	return nil
}

func (f *Functions) runAsynchronously(fn *function, requestID string, payload []byte, retry invokeConfig, log *slog.Logger) {
	begun := time.Now()
	for try := 0; ; try++ {
		result, err := f.run(f.ctx, fn, requestID, payload)
		if f.ctx.Err() != nil || err == nil && !result.failed {
			return
		}
		log.Info("function failed", "try", try+1, "result", string(result.payload), "error", err)
		if try == retry.retries || time.Since(begun) > retry.age {
			if retry.onFailure == "" {
				log.Warn("event discarded", "tries", try+1)
				return
			}
			f.mu.Lock()
			principal := f.principal(fn.settings)
			f.mu.Unlock()
			record, err := f.failureRecord(fn.Name, requestID, payload, result, try)
			if err == nil {
				err = f.config.Queues.SendAs(principal, retry.onFailure, record)
			}
			log.Warn("event given to the destination", "tries", try+1, "queue", retry.onFailure, "error", err)
			return
		}
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(f.config.RetryIntervals[try]):
		}
	}
}

// failureRecord is what a destination gets:
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
func (f *Functions) failureRecord(name, requestID string, payload []byte, last result, try int) (string, error) {
	type object = map[string]any
	record, err := json.Marshal(object{
		"version":   "1.0",
		"timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		"requestContext": object{
			"requestId": requestID, "functionArn": f.ARN(name) + ":$LATEST", "condition": "RetriesExhausted", "approximateInvokeCount": try + 1,
		},
		"requestPayload":  json.RawMessage(payload),
		"responseContext": object{"statusCode": http.StatusOK, "executedVersion": "$LATEST", "functionError": "Unhandled"},
		"responsePayload": json.RawMessage(last.payload),
	})
	if err != nil {
		return "", fmt.Errorf("encode the record of a failed event: %w", err)
	}
	return string(record), nil
}

// run invokes a function once, in an idle environment or in a new one.
func (f *Functions) run(ctx context.Context, fn *function, requestID string, payload []byte) (result, error) {
	e, err := f.acquire(fn)
	if err != nil {
		return result{}, err
	}
	defer f.release(fn, e)
	return e.invoke(ctx, requestID, payload), nil
}

func (f *Functions) acquire(fn *function) (*environment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return nil, fmt.Errorf("find an execution environment: %w", f.ctx.Err())
	}
	if f.functions[fn.Name] != fn {
		return nil, api.Errorf(http.StatusNotFound, "ResourceNotFoundException", "Function not found: %s", f.ARN(fn.Name))
	}
	var e *environment
	if idle := f.idle[fn]; len(idle) > 0 {
		e = idle[len(idle)-1]
		f.idle[fn] = idle[:len(idle)-1]
	} else {
		var err error
		if e, err = f.start(fn); err != nil {
			return nil, fmt.Errorf("start an execution environment of %s: %w", fn.Name, err)
		}
	}
	f.busy[e] = true
	return e, nil
}

// release keeps an environment for the next invocation, unless it has ended or
// its function has changed.
func (f *Functions) release(fn *function, e *environment) {
	f.mu.Lock()
	delete(f.busy, e)
	keep := f.ctx.Err() == nil && f.functions[fn.Name] == fn && e.generation == fn.generation && !e.ended()
	if keep {
		f.idle[fn] = append(f.idle[fn], e)
	}
	f.mu.Unlock()
	if !keep {
		e.stop()
	}
}

func (f *Functions) putFunctionEventInvokeConfig(c *api.Call, name, _ string) (any, error) {
	var in struct {
		MaximumRetryAttempts     *int
		MaximumEventAgeInSeconds *int
		DestinationConfig        struct {
			OnFailure struct{ Destination string }
			OnSuccess struct{}
		}
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	made := &invokeConfig{retries: maxRetries, age: maxEventAge, changed: time.Now()}
	if in.MaximumRetryAttempts != nil {
		if made.retries = *in.MaximumRetryAttempts; made.retries < 0 || made.retries > maxRetries {
			return nil, api.Errorf(http.StatusBadRequest, "ValidationException", "maximumRetryAttempts %d is not from 0 to %d", made.retries, maxRetries)
		}
	}
	if in.MaximumEventAgeInSeconds != nil {
		if made.age = time.Duration(*in.MaximumEventAgeInSeconds) * time.Second; made.age < time.Minute || made.age > maxEventAge {
			return nil, api.Errorf(http.StatusBadRequest, "ValidationException", "maximumEventAgeInSeconds %d is not from 60 to 21600", *in.MaximumEventAgeInSeconds)
		}
	}
	made.onFailure = in.DestinationConfig.OnFailure.Destination
	if made.onFailure != "" && !strings.HasPrefix(made.onFailure, "arn:aws:sqs:") {
		return nil, invalid("this region's destinations are queues, not %s", made.onFailure)
	}
	var out eventInvokeConfig
	err := f.on(c, name, func(fn *function) error {
		// Lambda looks whether it will be able to send.
		send := api.Access{Action: "sqs:SendMessage", Resource: made.onFailure}
		if made.onFailure != "" && f.config.Authorizer.Authorize(f.principal(fn.settings), send) != nil {
			return invalid("The function's execution role does not have permissions to call SendMessage on SQS")
		}
		fn.retries = made
		out = f.describeInvokeConfig(fn)
		return nil
	})
	return out, err
}

type eventInvokeConfig struct {
	FunctionArn              string
	LastModified             float64 // seconds
	MaximumRetryAttempts     int
	MaximumEventAgeInSeconds int
	DestinationConfig        destinationConfig
}

type destinationConfig struct{ OnFailure, OnSuccess *destination }

type destination struct{ Destination string }

func (f *Functions) describeInvokeConfig(fn *function) eventInvokeConfig {
	var to destinationConfig
	if fn.retries.onFailure != "" {
		to.OnFailure = &destination{fn.retries.onFailure}
	}
	return eventInvokeConfig{
		DestinationConfig: to,
		FunctionArn:       f.ARN(fn.Name) + ":$LATEST", LastModified: float64(fn.retries.changed.UnixMilli()) / 1000,
		MaximumRetryAttempts: fn.retries.retries, MaximumEventAgeInSeconds: int(fn.retries.age.Seconds()),
	}
}

func (f *Functions) getFunctionEventInvokeConfig(c *api.Call, name, _ string) (any, error) {
	var out eventInvokeConfig
	err := f.on(c, name, func(fn *function) error {
		if fn.retries == nil {
			return f.noInvokeConfig(name)
		}
		out = f.describeInvokeConfig(fn)
		return nil
	})
	return out, err
}

func (f *Functions) deleteFunctionEventInvokeConfig(c *api.Call, name, _ string) (any, error) {
	err := f.on(c, name, func(fn *function) error {
		if fn.retries == nil {
			return f.noInvokeConfig(name)
		}
		fn.retries = nil
		return nil
	})
	return &api.Raw{Status: http.StatusNoContent}, err
}

func (f *Functions) noInvokeConfig(name string) error {
	return api.Errorf(http.StatusNotFound, "ResourceNotFoundException", "The function %s:$LATEST doesn't have an EventInvokeConfig", f.ARN(name))
}
