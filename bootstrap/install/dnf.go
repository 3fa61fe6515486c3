package install

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// dnfTries bounds the tries of one dnf command. Its exit status tells a
// repository that is out of reach from a package that cannot be installed no
// better than its text does.
const dnfTries = 5

// Packages installs packages with dnf: names of the distribution's packages,
// or files as "./name.rpm" in the given folder. Packages that are installed
// already are left alone.
func (d *Downloader) Packages(ctx context.Context, folder string, packages ...string) error {
	args := append([]string{"install", "-y"}, packages...)
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = d.pace.RetryWait
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		cmd := exec.CommandContext(ctx, "dnf", args...)
		cmd.Dir = folder
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Run(); err != nil {
			return struct{}{}, fmt.Errorf("run dnf %s: %w: %s", strings.Join(args, " "), err, lastLines(output.String(), 5))
		}
		return struct{}{}, nil
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(dnfTries), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, pause time.Duration) {
			d.logger.Warn("dnf failed, will try again", "error", err, "pause", pause)
		}))
	return err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
