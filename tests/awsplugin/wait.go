package awsplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	"github.com/cenkalti/backoff/v5"
)

// errNotFound is what a read answers when the resource is gone.
var errNotFound = errors.New("couldn't find resource")

// hasCode says whether AWS answered with one of the error codes.
func hasCode(err error, codes ...string) bool {
	apiError, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains(codes, apiError.ErrorCode())
}

// missing turns the errors by which AWS tells that a thing is not there into
// errNotFound.
func missing(err error, codes ...string) error {
	if hasCode(err, codes...) {
		return errNotFound
	}
	return err
}

// ifPresent drops the errors by which AWS tells that a thing to delete is gone
// already.
func ifPresent(err error, codes ...string) error {
	if hasCode(err, codes...) || errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

// poll asks until the answer is yes. When the time is up, the error says what
// was waited for and what was seen last.
func poll(ctx context.Context, timeout time.Duration, what string, ask func(context.Context) (done bool, seen string, err error)) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		done, seen, err := ask(ctx)
		if err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		if !done {
			return struct{}{}, fmt.Errorf("timeout while waiting for %s (last: %s, timeout: %s)", what, seen, timeout)
		}
		return struct{}{}, nil
	}, backoff.WithBackOff(pollInterval()), backoff.WithMaxElapsedTime(timeout))
	return unwrapPermanent(err)
}

// retry repeats a call that AWS refuses with one of the codes for now.
func retry(ctx context.Context, timeout time.Duration, call func(context.Context) error, codes ...string) error {
	return retryWhen(ctx, timeout, call, func(err error) bool { return hasCode(err, codes...) })
}

// retryMessage repeats a call that AWS refuses for now with the code and a
// message that contains one of the texts.
func retryMessage(ctx context.Context, timeout time.Duration, call func(context.Context) error, code string, texts ...string) error {
	return retryWhen(ctx, timeout, call, func(err error) bool {
		return hasCode(err, code) && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
	})
}

func retryWhen(ctx context.Context, timeout time.Duration, call func(context.Context) error, passing func(error) bool) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := call(ctx)
		if err != nil && !passing(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pollInterval()), backoff.WithMaxElapsedTime(timeout))
	return unwrapPermanent(err)
}

func pollInterval() backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 10 * time.Millisecond
	b.MaxInterval = time.Second
	return b
}

func unwrapPermanent(err error) error {
	if permanent, ok := errors.AsType[*backoff.PermanentError](err); ok {
		return permanent.Err
	}
	return err
}

// waitGone asks until the answer is errNotFound.
func waitGone(ctx context.Context, timeout time.Duration, find func(context.Context) error) error {
	return poll(ctx, timeout, "resource to be gone", func(ctx context.Context) (bool, string, error) {
		err := find(ctx)
		if errors.Is(err, errNotFound) {
			return true, "", nil
		}
		return false, "still found", err
	})
}
