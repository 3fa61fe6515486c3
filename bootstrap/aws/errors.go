// Package aws is the node's view of AWS: its own identity, the shared volume,
// the seed table, the group's instances and its own health. Each type wraps
// one service with just the calls that the bootstrap makes.
package aws

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/aws/smithy-go"
)

// Outcome is what an error of an AWS call means for the caller.
type Outcome int

const (
	// Stop: trying again cannot help.
	Stop Outcome = iota
	// Retry: the same call may succeed soon.
	Retry
	// Reread: the call may have happened all the same; look before trying
	// again.
	Reread
)

// outcomes classifies the error codes that the node meets. A code that is not
// listed stops.
//
// Retries that the SDK makes by itself come first: what arrives here has
// already been throttled several times.
var outcomes = map[string]Outcome{
	// Throttling, https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
	"RequestLimitExceeded":                   Retry,
	"Throttling":                             Retry,
	"ThrottlingException":                    Retry,
	"ProvisionedThroughputExceededException": Retry,
	"TooManyRequestsException":               Retry,
	"ResourceContention":                     Retry,

	// The service had a bad moment; a write may have happened.
	"InternalError":           Reread,
	"InternalFailure":         Reread,
	"InternalServerError":     Reread,
	"ServiceUnavailable":      Reread,
	"Unavailable":             Reread,
	"RequestTimeout":          Reread,
	"TransactionConflict":     Retry,
	"IncorrectState":          Retry, // the instance or the volume is not ready yet
	"IncorrectStateException": Retry,

	// IAM is eventually consistent: right after the stack was made, a role may
	// not have its policy everywhere. Callers bound how long they believe so.
	"UnauthorizedOperation":       Retry,
	"AccessDenied":                Retry,
	"AccessDeniedException":       Retry,
	"InvalidClientTokenId":        Retry,
	"UnrecognizedClientException": Retry,
	"ExpiredToken":                Retry,
	"ExpiredTokenException":       Retry,

	// A resource made moments ago may not be visible yet.
	"InvalidVolume.NotFound":     Retry,
	"InvalidInstanceID.NotFound": Retry,
	"ResourceNotFoundException":  Retry,

	"VolumeInUse":             Reread, // it may be in use by this very instance
	"AttachmentLimitExceeded": Stop,   // the instance type's own limit
}

// eventual lists the codes of outcomes that are retried only because IAM and
// EC2 are eventually consistent: when they persist they mean what they say.
var eventual = map[string]bool{
	"UnauthorizedOperation":       true,
	"AccessDenied":                true,
	"AccessDeniedException":       true,
	"InvalidClientTokenId":        true,
	"UnrecognizedClientException": true,
	"InvalidVolume.NotFound":      true,
	"InvalidInstanceID.NotFound":  true,
	"ResourceNotFoundException":   true,
}

// Patience says when to stop trying, for a caller that repeats a call. Errors
// that may come from eventual consistency are believed to do so for a while
// after the first of them.
type Patience struct {
	// Settle is that while; zero means two minutes.
	Settle time.Duration

	since time.Time
}

// Over says whether trying again after this error is pointless.
func (p *Patience) Over(err error) bool {
	switch {
	case Classify(err) == Stop:
		return true
	case !eventual[Code(err)]:
		p.since = time.Time{}
		return false
	case p.since.IsZero():
		p.since = time.Now()
	}
	settle := p.Settle
	if settle == 0 {
		settle = 2 * time.Minute
	}
	return time.Since(p.since) > settle
}

// Classify says what an error of an AWS call means. A call whose answer was
// lost (a broken connection, a timeout of the transport) is to be re-read.
func Classify(err error) Outcome {
	if errors.Is(err, context.Canceled) {
		return Stop
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return outcomes[api.ErrorCode()]
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return Reread
	}
	if _, ok := errors.AsType[*smithy.OperationError](err); ok {
		return Reread // no API error: the answer never arrived or made no sense
	}
	return Stop
}

// Code is the AWS error code of an error, "" without one.
func Code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// Denied says that IAM refused the call.
func Denied(err error) bool {
	switch Code(err) {
	case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException":
		return true
	}
	return false
}
