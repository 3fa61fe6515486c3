// Package stack drives one stack of a Pulumi program through the real CLI. The
// program's copy, the state, the CLI's home and its caches of plugins are in
// one folder, so that stacks do not see each other nor the user's own Pulumi.
package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Name is the name of the one stack in a folder.
const Name = "test"

// Config says what to run, and with what.
type Config struct {
	// Folder is an empty folder for everything that the stack leaves behind.
	Folder string
	// Program is the folder of the Pulumi program; it is copied, never
	// written to.
	Program string
	// Replace names local modules to compile a Go program with: module path to
	// folder. Relative replacements do not survive the copy.
	Replace map[string]string
	// Tools is the folder of the CLI and its language hosts.
	Tools string
	// Plugins are the resource plugins that are taken in place of installed
	// ones: provider's name to the folder that holds the binary.
	Plugins map[string]string
	// Environment is added to the process's own: NAME=value.
	Environment []string
	// Output receives what the CLI tells its user.
	Output io.Writer
}

// Stack is a stack that exists.
type Stack struct {
	program     string
	pulumi      string
	environment []string
	output      io.Writer
}

// New copies the program, compiles it if its runtime is "go" and nothing more,
// and creates its stack.
func New(ctx context.Context, c Config) (*Stack, error) {
	program, state, temporary := filepath.Join(c.Folder, "program"), filepath.Join(c.Folder, "state"), filepath.Join(c.Folder, "tmp")
	for _, folder := range []string{state, temporary} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return nil, fmt.Errorf("create the stack's folders: %w", err)
		}
	}
	if err := os.CopyFS(program, os.DirFS(c.Program)); err != nil {
		return nil, fmt.Errorf("copy the program: %w", err)
	}
	s := &Stack{
		program: program,
		pulumi:  filepath.Join(c.Tools, "pulumi"),
		output:  c.Output,
		environment: slices.Concat(os.Environ(), []string{
			"PATH=" + c.Tools + string(os.PathListSeparator) + os.Getenv("PATH"),
			"TMPDIR=" + temporary, // a language host that is killed leaves what it compiled there
			"PULUMI_BACKEND_URL=file://" + state,
			"PULUMI_HOME=" + filepath.Join(c.Folder, "home"),
			"PULUMI_CONFIG_PASSPHRASE=test",
			"PULUMI_SKIP_UPDATE_CHECK=true",
			"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION=true",
			"PULUMI_SKIP_CONFIRMATIONS=true",
		}, c.Environment),
	}
	if err := s.prepare(ctx, c); err != nil {
		return nil, err
	}
	if err := s.Pulumi(ctx, io.Discard, "stack", "init", Name); err != nil {
		return nil, err
	}
	return s, nil
}

// binary is what a Go program is compiled to. The language hosts of a released
// CLI run it; those that can be built link the program anew for each command,
// out of the build cache that compiling it has filled.
const binary = "compiled-program"

// prepare writes into the project what holds for this stack only: where its
// plugins are, and that the program is compiled already.
func (s *Stack) prepare(ctx context.Context, c Config) error {
	path := filepath.Join(s.program, "Pulumi.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the project: %w", err)
	}
	// Not by Pulumi's package for it, which brings a program that asks the
	// terminal for its colours as it starts, and waits long for an answer.
	project := map[string]any{}
	if err := yaml.Unmarshal(content, &project); err != nil {
		return fmt.Errorf("read the project: %w", err)
	}
	providers := []any{}
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		providers = append(providers, map[string]any{"name": name, "path": c.Plugins[name]})
	}
	project["plugins"] = map[string]any{"providers": providers}
	if project["runtime"] == "go" {
		if err := s.compile(ctx, c.Replace); err != nil {
			return err
		}
		project["runtime"] = map[string]any{"name": "go", "options": map[string]any{"binary": binary}}
	}
	if content, err = yaml.Marshal(project); err != nil {
		return fmt.Errorf("encode the project: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write the project: %w", err)
	}
	return nil
}

func (s *Stack) compile(ctx context.Context, replace map[string]string) error {
	for module, folder := range replace {
		if err := s.run(ctx, io.Discard, "go", "mod", "edit", "-replace="+module+"="+folder); err != nil {
			return fmt.Errorf("replace module %s: %w", module, err)
		}
	}
	if err := s.run(ctx, io.Discard, "go", "build", "-o", binary, "."); err != nil {
		return fmt.Errorf("compile the program: %w", err)
	}
	return nil
}

// Set sets a value of the program's configuration.
func (s *Stack) Set(ctx context.Context, key, value string) error {
	return s.Pulumi(ctx, io.Discard, "config", "set", key, value)
}

// Up is "pulumi up" without a preview before it.
func (s *Stack) Up(ctx context.Context, arguments ...string) error {
	return s.Pulumi(ctx, s.output, append([]string{"up", "--skip-preview"}, arguments...)...)
}

// Preview is "pulumi preview".
func (s *Stack) Preview(ctx context.Context, arguments ...string) error {
	return s.Pulumi(ctx, s.output, append([]string{"preview"}, arguments...)...)
}

// Destroy is "pulumi destroy" without a preview before it.
func (s *Stack) Destroy(ctx context.Context, arguments ...string) error {
	return s.Pulumi(ctx, s.output, append([]string{"destroy", "--skip-preview"}, arguments...)...)
}

// Outputs reads the stack's outputs, secret ones in plain text.
func (s *Stack) Outputs(ctx context.Context) (map[string]any, error) {
	var text bytes.Buffer
	if err := s.Pulumi(ctx, &text, "stack", "output", "--json", "--show-secrets"); err != nil {
		return nil, err
	}
	var outputs map[string]any
	if err := json.Unmarshal(text.Bytes(), &outputs); err != nil {
		return nil, fmt.Errorf("read the outputs: %w", err)
	}
	return outputs, nil
}

// Pulumi runs the CLI with any arguments. A command that fails is an error
// with the end of what the command wrote.
func (s *Stack) Pulumi(ctx context.Context, stdout io.Writer, arguments ...string) error {
	arguments = append(arguments, "--non-interactive", "--color=never")
	if slices.Contains([]string{"up", "destroy", "refresh"}, arguments[0]) {
		arguments = append(arguments, "--yes", "--suppress-permalink=true")
	}
	if err := s.run(ctx, stdout, s.pulumi, arguments...); err != nil {
		return fmt.Errorf("pulumi %s: %w", arguments[0], err)
	}
	return nil
}

// run runs a command in the program's folder, and ends all of its descendants
// with it.
func (s *Stack) run(ctx context.Context, stdout io.Writer, name string, arguments ...string) error {
	var tail tail
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = s.program
	command.Env = s.environment
	command.Stdout = io.MultiWriter(stdout, &tail)
	command.Stderr = io.MultiWriter(&tail)
	contain(command)
	err := command.Run()
	end := endSession(context.WithoutCancel(ctx), command)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return errors.Join(fmt.Errorf("%w\n%s", err, tail.String()), end)
	}
	return end
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if excess := len(t.kept) - tailSize; excess > 0 {
		t.kept = slices.Delete(t.kept, 0, excess)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.kept)) }
