// Package engine_test runs the component through the real Pulumi engine and its
// real plugin, with a stack of its own per test, against the services of a
// region. The nodes are machines in memory: what they do is tested elsewhere.
package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// plugins is the folder of both resource plugins.
var plugins string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run compiles the plugins as they are and runs the tests.
func run(m *testing.M) (_ int, err error) {
	if plugins, err = os.MkdirTemp("", "etcfs-plugins-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(plugins)) }()
	if os.Getenv("ETCFS_TOOLS") == "" {
		return m.Run(), nil // every test is skipped
	}
	for name, source := range map[string]string{
		"pulumi-resource-etcfs": "../..",
		"pulumi-resource-aws":   "../awsplugin/cmd/pulumi-resource-aws",
	} {
		out, err := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o", filepath.Join(plugins, name), source).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return m.Run(), nil
}

// stack is a stack whose program declares clusters.
type stack struct {
	auto.Stack
	t      testing.TB
	region *plane.Plane
	// output is what the CLI said at last.
	output bytes.Buffer
}

// newStack creates a stack in a region of its own. Without tools the test is
// skipped.
func newStack(t testing.TB, region *plane.Plane, environment map[string]string) *stack {
	t.Helper()
	options := append(workspaceOptions(t, region, environment), auto.Project(workspace.Project{
		Name: "engine", Runtime: workspace.NewProjectRuntimeInfo("go", nil),
	}))
	created, err := auto.NewStackInlineSource(t.Context(), "test", "engine", func(*pulumi.Context) error { return nil }, options...)
	if err != nil {
		t.Fatal(err)
	}
	return &stack{Stack: created, t: t, region: region}
}

// workspaceOptions are those of a workspace in folders of its own, with the CLI,
// the plugins and the region in its environment.
func workspaceOptions(t testing.TB, region *plane.Plane, environment map[string]string) []auto.LocalWorkspaceOption {
	t.Helper()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of the Pulumi CLI (make test sets it)")
	}
	folder := t.TempDir()
	for _, name := range []string{"home", "state", "work", "cli"} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(tools, filepath.Join(folder, "cli", "bin")); err != nil {
		t.Fatal(err)
	}
	cli, err := auto.NewPulumiCommand(&auto.PulumiCommandOptions{Root: filepath.Join(folder, "cli"), SkipVersionCheck: true})
	if err != nil {
		t.Fatal(err)
	}
	settings := []auto.LocalWorkspaceOption{auto.Pulumi(cli), auto.WorkDir(filepath.Join(folder, "work")), auto.PulumiHome(filepath.Join(folder, "home"))}
	all := map[string]string{
		"PATH":                     strings.Join([]string{plugins, tools, os.Getenv("PATH")}, string(os.PathListSeparator)),
		"PULUMI_CONFIG_PASSPHRASE": "test",
		"PULUMI_SKIP_UPDATE_CHECK": "true",
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
		"PULUMI_BACKEND_URL":                          "file://" + filepath.Join(folder, "state"),
	}
	maps.Copy(all, region.Environment())
	maps.Copy(all, environment)
	return append(settings, auto.EnvVars(all))
}

// program makes the stack declare something else from now on.
func (s *stack) program(declare pulumi.RunFunc) { s.Workspace().SetProgram(declare) }

// newYAML creates a stack of a program in YAML, a language that hands over
// values as they are written.
func newYAML(t testing.TB, region *plane.Plane) *stack {
	t.Helper()
	options := workspaceOptions(t, region, nil)
	work, err := auto.NewLocalWorkspace(t.Context(), append(options, auto.Project(yamlProject))...)
	if err != nil {
		t.Fatal(err)
	}
	created, err := auto.NewStack(t.Context(), "test", work)
	if err != nil {
		t.Fatal(err)
	}
	return &stack{Stack: created, t: t, region: region}
}

var yamlProject = workspace.Project{Name: "engine", Runtime: workspace.NewProjectRuntimeInfo("yaml", nil)}

// properties makes the program declare one cluster with these, in YAML's flow
// style.
func (s *stack) properties(flow string) {
	s.t.Helper()
	program := "name: engine\nruntime: yaml\nresources:\n  fs:\n    type: etcfs:asg:Cluster\n    properties: " + flow + "\n"
	if err := os.WriteFile(filepath.Join(s.Workspace().WorkDir(), "Pulumi.yaml"), []byte(program), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// changes are the numbers of resources per kind of change, without those that
// stay the same.
type changes map[string]int

func changesOf[K ~string](summary map[K]int) changes {
	found := changes{}
	for kind, count := range summary {
		if kind != "same" {
			found[string(kind)] = count
		}
	}
	return found
}

func (s *stack) preview() (changes, error) {
	s.output.Reset()
	result, err := s.Preview(s.t.Context(), optpreview.ProgressStreams(&s.output), optpreview.ErrorProgressStreams(&s.output), optpreview.Color("never"))
	return changesOf(result.ChangeSummary), err
}

func (s *stack) up() (changes, error) {
	s.output.Reset()
	result, err := s.Up(s.t.Context(), optup.ProgressStreams(&s.output), optup.ErrorProgressStreams(&s.output), optup.Color("never"))
	if err != nil {
		return nil, err
	}
	return changesOf(*result.Summary.ResourceChanges), nil
}

func (s *stack) refresh() (changes, error) {
	s.output.Reset()
	result, err := s.Refresh(s.t.Context(), optrefresh.ProgressStreams(&s.output), optrefresh.ErrorProgressStreams(&s.output), optrefresh.Color("never"))
	if err != nil {
		return nil, err
	}
	return changesOf(*result.Summary.ResourceChanges), nil
}

func (s *stack) destroy() error {
	s.output.Reset()
	_, err := s.Destroy(s.t.Context(), optdestroy.ProgressStreams(&s.output), optdestroy.ErrorProgressStreams(&s.output), optdestroy.Color("never"))
	return err
}

// must ends the test unless a step went well and changed as many resources as
// expected; nil expects nothing.
func (s *stack) must(step string, got changes, err error, want changes) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", step, err)
	}
	if want == nil {
		want = changes{}
	}
	if !maps.Equal(got, want) {
		s.t.Fatalf("%s: got changes %v, want %v\n%s", step, got, want, &s.output)
	}
}

// mustDestroy destroys the stack and checks that nothing is left in the region.
func (s *stack) mustDestroy() {
	s.t.Helper()
	if err := s.destroy(); err != nil {
		s.t.Fatalf("destroy: %v", err)
	}
	if left := inventory(s.t, s.region); len(left) > 0 {
		s.t.Errorf("after destroy: got %v left in the region, want nothing", left)
	}
}

// cluster is the component as the plugin serves it.
type cluster struct {
	pulumi.ResourceState

	AutoScalingGroupName  pulumi.StringOutput `pulumi:"autoScalingGroupName"`
	LaunchTemplateVersion pulumi.IntOutput    `pulumi:"launchTemplateVersion"`
	VolumeID              pulumi.StringOutput `pulumi:"volumeId"`
}

// declare declares a cluster and exports what a test asks for, named by it.
func declare(ctx *pulumi.Context, name string, args pulumi.Map, options ...pulumi.ResourceOption) error {
	var c cluster
	if err := ctx.RegisterRemoteComponentResource("etcfs:asg:Cluster", name, args, &c, options...); err != nil {
		return err
	}
	ctx.Export(name+".group", c.AutoScalingGroupName)
	ctx.Export(name+".templateVersion", c.LaunchTemplateVersion)
	ctx.Export(name+".volume", c.VolumeID)
	return nil
}

// one is a program of one cluster.
func one(args pulumi.Map) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error { return declare(ctx, "fs", args) }
}

// demo are the arguments of a cluster, with others on top.
func demo(more pulumi.Map) pulumi.Map {
	args := pulumi.Map{"clusterName": pulumi.String("demo"), "availabilityZone": pulumi.String("eu-west-1a")}
	maps.Copy(args, more)
	return args
}

// exported is an output of the stack.
func (s *stack) exported(name string) any {
	s.t.Helper()
	outputs, err := s.Outputs(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	value, ok := outputs[name]
	if !ok {
		s.t.Fatalf("no output %s among %v", name, slices.Sorted(maps.Keys(outputs)))
	}
	return value.Value
}
