package artifact

import (
	"context"
	"io/fs"
	"testing"
)

// What the tests outside the package look into.
var (
	Compiled = compiled
	Unpacked = unpacked
)

// LoadInto is Load with a cache folder of the test's own.
func LoadInto(ctx context.Context, b Bundle, cache string, progress func(string)) (Set, error) {
	return b.load(ctx, cache, progress)
}

// Fingerprint is what the programs compiled from a source are cached by.
func Fingerprint(t *testing.T, source fs.FS) string {
	t.Helper()
	files, err := sourceFiles(source)
	if err != nil {
		t.Fatal(err)
	}
	return fingerprint(files, "go1.26")
}
