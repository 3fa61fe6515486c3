package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-retryablehttp"
)

// Downloader fetches files over HTTP.
type Downloader struct {
	logger *slog.Logger
	client *retryablehttp.Client
	pace   Pace
}

// Pace is how patient downloads are.
type Pace struct {
	// RetryWait is the first pause between tries; later ones grow up to thirty
	// times that.
	RetryWait time.Duration
	// Stall is how long a transfer may deliver nothing before it is broken off
	// and resumed.
	Stall time.Duration
}

// DefaultPace suits the internet.
var DefaultPace = Pace{RetryWait: time.Second, Stall: 30 * time.Second}

// NewDownloader makes a downloader. Its requests are tried again when the
// connection breaks or the server has a bad moment (429, 5xx), after as long as
// the server asks for (Retry-After) or with growing pauses.
func NewDownloader(logger *slog.Logger, pace Pace) *Downloader {
	return &Downloader{logger: logger, client: newClient(logger, pace, nil), pace: pace}
}

func newClient(logger *slog.Logger, pace Pace, redirect func(*http.Request, []*http.Request) error) *retryablehttp.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = pace.Stall
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{Transport: transport, CheckRedirect: redirect}
	client.RetryMax = requestTries - 1
	client.RetryWaitMin = pace.RetryWait
	client.RetryWaitMax = 30 * pace.RetryWait
	client.Logger = logger
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return client
}

// ChecksumError refuses a file that is not the one that its release published.
type ChecksumError struct {
	URL       string
	Got, Want string // SHA-256, hexadecimal
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s has SHA-256 %s, but its release says %s", e.URL, e.Got, e.Want)
}

// StatusError is an answer that no further try can turn into a file.
type StatusError struct {
	URL    string
	Status string
}

func (e *StatusError) Error() string { return e.URL + " answered " + e.Status }

// Tries of one file. Each one starts where the one before was cut off, so it
// takes this many interruptions to give up.
const (
	requestTries  = 8
	transferTries = 10
)

// Fetch brings a file whose SHA-256 sum is known to a path. What an earlier,
// broken try has left beside it is continued; a file that is there already and
// right is left alone. A file that turns out wrong is refused with a
// *[ChecksumError] and not kept.
func (d *Downloader) Fetch(ctx context.Context, url, path, sum string) error {
	if got, err := fileSum(path); err == nil && got == sum {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("download %s: %w", url, err)
	}
	partial := path + ".partial"
	resumed := size(partial) > 0

	err := d.fetch(ctx, url, partial, sum)
	if wrong, ok := errors.AsType[*ChecksumError](err); ok && resumed {
		// What an earlier boot had left may have been another file's start.
		d.logger.Warn("a resumed download is wrong, starting it again", "url", url, "got", wrong.Got, "want", wrong.Want)
		err = d.fetch(ctx, url, partial, sum)
	}
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("download %s: %w", url, err)
	}
	return nil
}

// fetch completes the partial file and verifies it. A wrong one is removed.
func (d *Downloader) fetch(ctx context.Context, url, partial, sum string) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = d.pace.RetryWait
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, d.transfer(ctx, url, partial)
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(transferTries), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, pause time.Duration) {
			d.logger.Warn("download interrupted, will resume", "url", url, "have", size(partial), "error", err, "pause", pause)
		}))
	if err != nil {
		return err
	}
	got, err := fileSum(partial)
	if err != nil {
		return fmt.Errorf("read what was downloaded: %w", err)
	}
	if got != sum {
		if err := os.Remove(partial); err != nil {
			return fmt.Errorf("remove a wrong download: %w", err)
		}
		return &ChecksumError{URL: url, Got: got, Want: sum}
	}
	return nil
}

// transfer asks for what is missing in the partial file and appends it.
func (d *Downloader) transfer(parent context.Context, url, partial string) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)

	have := size(partial)
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return backoff.Permanent(err)
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	flags := os.O_CREATE | os.O_WRONLY
	switch resp.StatusCode {
	case http.StatusPartialContent:
		flags |= os.O_APPEND
	case http.StatusOK: // all of it, whatever was asked for
		flags |= os.O_TRUNC
	case http.StatusRequestedRangeNotSatisfiable:
		return nil // nothing is missing; the sum will tell whether it is right
	default:
		return backoff.Permanent(&StatusError{URL: url, Status: resp.Status})
	}
	file, err := os.OpenFile(partial, flags, 0o600)
	if err != nil {
		return backoff.Permanent(err)
	}
	stalled := time.AfterFunc(d.pace.Stall, func() {
		cancel(fmt.Errorf("nothing arrived for %s", d.pace.Stall))
	})
	defer stalled.Stop()
	_, err = io.Copy(file, &watched{resp.Body, func() { stalled.Reset(d.pace.Stall) }})
	if cause := context.Cause(ctx); err != nil && cause != nil && parent.Err() == nil {
		err = cause
	}
	return errors.Join(err, file.Close())
}

// watched is a reader that tells of every read.
type watched struct {
	io.Reader
	onRead func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.onRead()
	return n, err
}

// size is a file's size, 0 when there is none.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func fileSum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
