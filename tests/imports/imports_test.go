// Package imports guards the direction of imports.
package imports_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/etcfs/pulumi-etcfs/"

// rule forbids packages to some others, with the reason.
type rule struct {
	// of is what the rule is about, as arguments of go list.
	of []string
	// forbidden are prefixes of import paths, each with the reason.
	forbidden map[string]string
	// allowed are import paths that a forbidden prefix does not mean.
	allowed []string
}

var rules = map[string]rule{
	// A user whose Pulumi runs the plugin from source compiles all of this.
	"the plugin": {
		of: []string{module[:len(module)-1], module + "provider/asg", module + "provider/artifact"},
		forbidden: map[string]string{
			"go.etcd.io/":                                "the component declares nodes, it never talks to etcd",
			"github.com/aws/aws-sdk-go-v2/service":       "the AWS provider makes the calls; an SDK service costs a user minutes of compiling",
			"github.com/aws/aws-lambda-go":               "the function's runtime belongs in the function's binary",
			"github.com/coreos/go-systemd":               "systemd is on the node",
			"github.com/pulumi/pulumi/pkg/v3/codegen/go": "SDKs are generated when this module is built, not when it is used",
			"github.com/pulumi/pulumi/pkg/v3/engine":     "the plugin is run by the engine",
			module + "bootstrap/":                        "the node's code is compiled for the node only",
			module + "lambda/":                           "the function's code is compiled for Lambda only",
			module + "tests/":                            "production code knows nothing of its tests",
			module + "provider/generate":                 "the generators are for the build",
			"testing":                                    "test helpers do not belong into a plugin",
		},
		allowed: []string{module + "bootstrap/settings", module + "lambda/contract"},
	},
	// Both sides import it.
	"the settings": {
		of: []string{module + "bootstrap/settings", module + "lambda/contract"},
		forbidden: map[string]string{
			"github.com/": "what node and component share costs neither a dependency",
			"golang.org/": "what node and component share costs neither a dependency",
		},
		allowed: []string{module + "bootstrap/settings", module + "lambda/contract"},
	},
	"the node and the function": {
		of: []string{module + "bootstrap/...", module + "lambda/..."},
		forbidden: map[string]string{
			"github.com/pulumi/": "a node does not need Pulumi",
			module + "provider":  "a node does not need the component",
			module + "tests/":    "production code knows nothing of its tests",
		},
	},
	"what people run at a terminal": {
		of: []string{module + "tests/demo", module + "tests/e2e", module + "tests/chaos", module + "tests/region/cmd/region"},
		forbidden: map[string]string{
			"github.com/charmbracelet/bubbletea": "it asks the terminal for its colours before main, and waits five seconds for one that does not answer",
		},
	},
}

func TestImports(t *testing.T) {
	t.Parallel()
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for path, importer := range dependencies(t, rule.of) {
				for prefix, reason := range rule.forbidden {
					if matches(path, prefix) && !slices.Contains(rule.allowed, path) {
						t.Errorf("%s imports %s: %s", importer, path, reason)
					}
				}
			}
		})
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path, prefix string
		want         bool
	}{
		{"testing", "testing", true},
		{"testing/fstest", "testing", true},
		{"testingx", "testing", false},
		{"go.etcd.io/etcd/client/v3", "go.etcd.io/", true},
		{"example.com/go.etcd.io/", "go.etcd.io/", false},
	} {
		if got := matches(test.path, test.prefix); got != test.want {
			t.Errorf("matches(%q, %q) is %t, want %t", test.path, test.prefix, got, test.want)
		}
	}
}

// matches says whether an import path is a prefix or below it.
func matches(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix) && (strings.HasSuffix(prefix, "/") || path[len(prefix)] == '/')
}

// dependencies are all packages that the given ones need, without tests, each
// with one that imports it.
func dependencies(t *testing.T, of []string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-json=ImportPath,Imports"}, of...)...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	importers := map[string]string{}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var listed struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, imported := range listed.Imports {
			importers[imported] = listed.ImportPath
		}
	}
	if len(importers) == 0 {
		t.Fatalf("go list names no dependency of %v", of)
	}
	return importers
}
