package host

import (
	"os"
	"path/filepath"
	"testing"
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
