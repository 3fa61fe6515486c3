package provider_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"

	"github.com/etcfs/pulumi-etcfs/provider"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

func served(t testing.TB) schema.PackageSpec {
	t.Helper()
	made, err := provider.New(artifact.Bundle{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := p.GetSchema(t.Context(), provider.Name, provider.Version, made)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// The schema of a release is the committed one: a change of the component's
// interface shows in review.
func TestSchema(t *testing.T) {
	t.Parallel()
	got, err := json.MarshalIndent(served(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Error("schema.json is not what the component makes: run make sdk")
	}
}

// Every input and output is described, in every SDK.
func TestEverythingIsDescribed(t *testing.T) {
	t.Parallel()
	for token, resource := range served(t).Resources {
		if resource.Description == "" {
			t.Errorf("%s has no description", token)
		}
		for name, property := range resource.InputProperties {
			if !strings.HasSuffix(property.Description, ".") {
				t.Errorf("input %s of %s has the description %q, want sentences", name, token, property.Description)
			}
		}
		for name, property := range resource.Properties {
			if !strings.HasSuffix(property.Description, ".") {
				t.Errorf("output %s of %s has the description %q, want sentences", name, token, property.Description)
			}
		}
	}
}

// An input that is a list or a map takes outputs as entries, in languages that
// check types as well.
func TestEntriesCanBeOutputs(t *testing.T) {
	t.Parallel()
	for token, resource := range served(t).Resources {
		for name, property := range resource.InputProperties {
			for _, entry := range []*schema.TypeSpec{property.Items, property.AdditionalProperties} {
				if entry != nil && entry.Plain {
					t.Errorf("an entry of %s of %s must be plain, want that it can be an output", name, token)
				}
			}
		}
	}
}

// A commit that carries a version's tag has that version.
func TestVersionIsTheTag(t *testing.T) {
	t.Parallel()
	if _, err := semver.Parse(provider.Version); err != nil {
		t.Fatalf("version %q: %v", provider.Version, err)
	}
	out, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "tag", "--points-at", "HEAD", "--list", "v*").Output()
	if err != nil {
		t.Logf("no git checkout to ask for tags: %v", err)
		return
	}
	for tag := range strings.FieldsSeq(string(out)) {
		if want := "v" + provider.Version; tag != want {
			t.Errorf("the commit is tagged %s, and the version is %s", tag, want)
		}
	}
}

func BenchmarkGetSchema(b *testing.B) {
	for b.Loop() {
		served(b)
	}
}
