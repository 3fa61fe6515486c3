package contract_test

import (
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// Limits of AWS on the values that the component deploys.
const (
	minHeartbeat = 30 * time.Second // PutLifecycleHook
	maxTimeout   = 900 * time.Second
	minEventAge  = 60 * time.Second // PutFunctionEventInvokeConfig
	maxEventAge  = 21600 * time.Second
	maxRetries   = 2
)

func TestSecondInvocationEndsBeforeTheHeartbeat(t *testing.T) {
	t.Parallel()
	firstDies := contract.DeliveryAllowance + contract.FunctionTimeout
	secondEnds := firstDies + contract.FirstRetryAfter + contract.FunctionTimeout
	if secondEnds > contract.HookHeartbeat {
		t.Errorf("the second invocation ends %s after the hook fired, later than its heartbeat of %s", secondEnds, contract.HookHeartbeat)
	}
}

func TestTwoSlowSurvivorsLeaveTimeForAThird(t *testing.T) {
	t.Parallel()
	work := contract.FunctionTimeout - contract.CompletionReserve
	if need := 3 * contract.CommandLimit; need > work {
		t.Errorf("three survivors take up to %s, more than the %s that an invocation works", need, work)
	}
	if contract.RemovalLimit >= contract.CommandLimit {
		t.Errorf("the command tries for %s, no less than the %s until it is given up", contract.RemovalLimit, contract.CommandLimit)
	}
	if contract.ReportReserve >= contract.CompletionReserve {
		t.Errorf("ReportReserve %s leaves nothing of CompletionReserve %s", contract.ReportReserve, contract.CompletionReserve)
	}
}

func TestValuesAreAcceptedByAWS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		got      time.Duration
		min, max time.Duration
	}{
		{"HookHeartbeat", contract.HookHeartbeat, minHeartbeat, 7200 * time.Second},
		{"FunctionTimeout", contract.FunctionTimeout, time.Second, maxTimeout},
		{"EventAge", contract.EventAge, minEventAge, maxEventAge},
	} {
		if c.got < c.min || c.got > c.max || c.got%time.Second != 0 {
			t.Errorf("%s is %s, want whole seconds from %s to %s", c.name, c.got, c.min, c.max)
		}
	}
	if contract.RetryAttempts < 0 || contract.RetryAttempts > maxRetries {
		t.Errorf("RetryAttempts is %d, want 0 to %d", contract.RetryAttempts, maxRetries)
	}
}
