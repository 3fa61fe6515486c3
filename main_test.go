package main

import (
	"bytes"
	"testing"

	"github.com/etcfs/pulumi-etcfs/provider"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, &stdout); err != nil {
		t.Fatal(err)
	}
	if got, want := stdout.String(), provider.Version+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
