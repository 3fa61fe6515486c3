package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofrs/flock"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
)

// A run of the bootstrap starts the unit of etcfuse-meta, which has the volume
// attached: that must not wait for the run.
func TestAttachDoesNotWaitForARun(t *testing.T) {
	url := surroundings(t, "us-east-1", "10.0.0.5") // the settings say eu-west-1
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	running := flock.New(filepath.Join(root, "run/etcfs-bootstrap.lock"))
	if locked, err := running.TryLock(); !locked || err != nil {
		t.Fatal(locked, err)
	}
	defer running.Close()
	got := run(t, environ, "attach", "--root", root)
	if got.status != exitPhases[bootstrap.PhaseIdentify] || !strings.Contains(got.stderr, "identify: this instance is in us-east-1") {
		t.Errorf("got status %d and %s", got.status, got.stderr)
	}
	if strings.Contains(got.stderr, "another etcfs-bootstrap") {
		t.Errorf("it has waited: %s", got.stderr)
	}
}
