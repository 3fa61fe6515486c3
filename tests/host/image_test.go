package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestImageInTheCacheIsNotBuilt(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	name, err := recipeHash()
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(cache, name)
	if err := os.Mkdir(want, 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := Image(t.Context(), cache, func(line string) { t.Errorf("told %q", line) })
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What other recipes have left goes when there is a new image, but not what
// machines may be running on.
func TestEarlierImagesAreRemoved(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	for name, ago := range map[string]time.Duration{"new": 2 * busy, "old": 2 * busy, "old.partial": 2 * busy, "in-use": busy / 2} {
		folder := filepath.Join(cache, name)
		if err := errors.Join(os.MkdirAll(filepath.Join(folder, "usr", "bin"), 0o755), os.WriteFile(folder+".lock", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(folder, time.Now().Add(-ago), time.Now().Add(-ago)); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(cache, filepath.Join(cache, "new")); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range left {
		left[i] = filepath.Base(path)
	}
	if want := []string{"in-use", "in-use.lock", "new", "new.lock"}; !slices.Equal(left, want) {
		t.Errorf("got %q, want %q", left, want)
	}
	// Asking for an image is using it.
	name, err := recipeHash()
	if err != nil {
		t.Fatal(err)
	}
	folder, long := filepath.Join(cache, name), time.Now().Add(-2*busy)
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Chtimes(folder, long, long)); err != nil {
		t.Fatal(err)
	}
	if _, err := Image(t.Context(), cache, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(folder); err != nil || time.Since(info.ModTime()) > busy {
		t.Errorf("got an image that was used at %v (%v), want just now", info.ModTime(), err)
	}
}

// The image's name changes with any file of the recipe, so all are part of it.
func TestRecipeIsComplete(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"image/build",
		"image/files/etc/cloud/cloud.cfg.d/90_ec2.cfg",
		"image/files/etc/systemd/system/amazon-ssm-agent.service",
		"image/files/etc/dnf/vars/releasever",
	} {
		if _, err := recipe.ReadFile(path); err != nil {
			t.Error(err)
		}
	}
}
