package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

var quote = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

var unquote = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// environmentFile renders variables for systemd's EnvironmentFile.
func environmentFile(variables []string) string {
	var file strings.Builder
	file.WriteString(generated)
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&file, "%s=\"%s\"\n", name, quote.Replace(value))
	}
	return file.String()
}

// ReadEnvironment returns the variables that an earlier run on this machine has
// kept, none when there was none. User data exports them at the first boot
// only; status, and anything that is run by hand, finds them here.
func ReadEnvironment(root string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(root, settings.EnvironmentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's settings: %w", err)
	}
	var variables []string
	for line := range strings.Lines(string(content)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		value = strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`)
		variables = append(variables, name+"="+unquote.Replace(value))
	}
	return variables, nil
}
