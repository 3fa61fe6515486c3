// Package install brings released software onto a node: it finds a release,
// downloads its files, verifies them against the sums that the release
// publishes, and puts them in place.
package install

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-retryablehttp"
)

// Release is one release of a repository, on GitHub or on a mirror that keeps
// its layout.
type Release struct {
	// BaseURL is where repositories are: https://github.com.
	BaseURL string
	// Repository is owner/name.
	Repository string
	// Tag is the release's tag, such as v3.6.16.
	Tag string
}

// URL is the address of one file of the release.
func (r Release) URL(file string) string {
	return strings.TrimSuffix(r.BaseURL, "/") + "/" + r.Repository + "/releases/download/" + r.Tag + "/" + file
}

// maxSumsSize bounds what is read of a file of sums: they are a few kilobytes.
const maxSumsSize = 1 << 20

// Sums fetches the release's list of SHA-256 sums, in the format of sha256sum,
// and returns it by file name. A list that breaks off on its way is fetched
// again.
func (d *Downloader) Sums(ctx context.Context, release Release, file string) (map[string]string, error) {
	url := release.URL(file)
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = d.pace.RetryWait
	list, err := backoff.Retry(ctx, func() ([]byte, error) { return d.read(ctx, url) },
		backoff.WithBackOff(pauses), backoff.WithMaxTries(transferTries), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, pause time.Duration) {
			d.logger.Warn("list of sums interrupted, will fetch it again", "url", url, "error", err, "pause", pause)
		}))
	if err != nil {
		return nil, fmt.Errorf("fetch sums: %w", err)
	}
	sums, err := parseSums(bytes.NewReader(list))
	if err != nil {
		return nil, fmt.Errorf("fetch sums: %s: %w", url, err)
	}
	return sums, nil
}

// read reads a small file. What the client has tried often enough is not tried
// again; a body that breaks off, or stalls, is.
func (d *Downloader) read(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, backoff.Permanent(&StatusError{URL: url, Status: resp.Status})
	}
	defer time.AfterFunc(d.pace.Stall, cancel).Stop()
	return io.ReadAll(io.LimitReader(resp.Body, maxSumsSize))
}

func parseSums(r io.Reader) (map[string]string, error) {
	sums := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 {
			continue // etcd's list starts with a line of instructions
		}
		sum := strings.ToLower(fields[0])
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
			continue
		}
		// A star marks a file that was read in binary mode.
		sums[path.Base(strings.TrimPrefix(fields[1], "*"))] = sum
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(sums) == 0 {
		return nil, errors.New("no SHA-256 sum in it")
	}
	return sums, nil
}

// Latest returns the version, without a leading "v", of a repository's newest
// release. It is read out of the redirect of releases/latest, which needs no
// API and so meets none of the API's rate limits.
func (d *Downloader) Latest(ctx context.Context, baseURL, repository string) (string, error) {
	url := strings.TrimSuffix(baseURL, "/") + "/" + repository + "/releases/latest"
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("find the latest release: %w", err)
	}
	client := newClient(d.logger, d.pace, stopAtRelease)
	defer client.HTTPClient.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("find the latest release: %w", err)
	}
	defer resp.Body.Close()
	location, err := resp.Location()
	if err != nil {
		return "", fmt.Errorf("find the latest release: %s answered %s and not with the address of a release", url, resp.Status)
	}
	version := strings.TrimPrefix(path.Base(location.Path), "v")
	if !strings.Contains(location.Path, "/releases/tag/") || version == "" {
		return "", fmt.Errorf("find the latest release: %s points to %s, which is no release", url, location)
	}
	return version, nil
}

// stopAtRelease follows the redirects of a repository that was renamed, and
// not the last one, to the page of a release.
func stopAtRelease(next *http.Request, via []*http.Request) error {
	if strings.Contains(next.URL.Path, "/releases/tag/") || len(via) >= 10 {
		return http.ErrUseLastResponse
	}
	return nil
}
