package bootstrap

import (
	"os"
	"testing"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

func TestResume(t *testing.T) {
	t.Parallel()
	b, daemons := newNode(t)
	twice(t, b, b.resume())
	if !daemons.enabled[UnitBootstrap] || len(daemons.enabled) != 1 {
		t.Errorf("enabled are %v, want the bootstrap's unit and no other", daemons.enabled)
	}
	files := []string{settings.EnvironmentFile, bootstrapService.Path}
	before := map[string]string{}
	all := ""
	for _, path := range files {
		before[path] = content(t, b, path)
		all += "==> " + path + "\n" + before[path] + "\n"
	}
	golden(t, "resume", all)

	// Half done: one file is missing, or differs, or nothing is enabled.
	for _, path := range files {
		put(t, b, path, "something else", 0o644)
		twice(t, b, b.resume())
		if err := os.Remove(b.path(path)); err != nil {
			t.Fatal(err)
		}
		twice(t, b, b.resume())
		if got := content(t, b, path); got != before[path] {
			t.Errorf("%s after repairs: got %q, want %q", path, got, before[path])
		}
	}
	delete(daemons.enabled, UnitBootstrap)
	twice(t, b, b.resume())
}
