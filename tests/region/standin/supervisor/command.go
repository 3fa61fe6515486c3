package supervisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// split cuts a value into words as systemd.syntax(7) does: quotes group,
// backslashes escape. With an environment, ${NAME} is replaced inside a word
// and a whole word $NAME by the words of its value; without one, dollars stay.
func split(value string, environment map[string]string) ([]string, error) {
	var list []string
	var word strings.Builder
	started := false
	var quote rune
	runes := []rune(value)
	for i := 0; i < len(runes); i++ {
		c := runes[i]
		switch {
		case c == '\\' && quote != '\'':
			if i++; i == len(runes) {
				return nil, errors.New("ends in a backslash")
			}
			started = true
			switch runes[i] {
			case 'n':
				word.WriteRune('\n')
			case 't':
				word.WriteRune('\t')
			default:
				word.WriteRune(runes[i])
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, started = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if started {
				list = append(list, word.String())
				word.Reset()
				started = false
			}
		case c == '$' && environment != nil && i+1 < len(runes) && runes[i+1] == '$':
			i++
			started = true
			word.WriteRune('$')
		case c == '$' && environment != nil && i+1 < len(runes) && runes[i+1] == '{':
			end := strings.IndexRune(string(runes[i:]), '}')
			if end < 0 {
				return nil, fmt.Errorf("unclosed variable in %q", value)
			}
			name := string(runes[i:])[2:end]
			word.WriteString(environment[name])
			i += len([]rune(name)) + 2
			started = true
		case c == '$' && environment != nil && quote == 0 && !started:
			end := i + 1
			for end < len(runes) && (runes[end] == '_' || isAlphanumeric(runes[end])) {
				end++
			}
			list = append(list, strings.Fields(environment[string(runes[i+1:end])])...)
			i = end - 1
		default:
			started = true
			word.WriteRune(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("unclosed quote in %q", value)
	}
	if started {
		list = append(list, word.String())
	}
	return list, nil
}

func isAlphanumeric(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// environ is the environment of a unit's processes: the machine's, then
// Environment=, then EnvironmentFile=, each beating the former. Values that
// are absolute paths are placed below the root.
func (m *Manager) environ(u *unit) (map[string]string, error) {
	environment := map[string]string{}
	for _, entry := range m.env {
		name, value, _ := strings.Cut(entry, "=")
		environment[name] = value
	}
	assign := func(entry string) error {
		name, value, ok := strings.Cut(entry, "=")
		if !ok {
			return fmt.Errorf("%q is no assignment", entry)
		}
		if name != "PATH" {
			value = rootfs.Argument(m.root, value)
		}
		environment[name] = value
		return nil
	}
	for _, entry := range u.environment {
		if err := assign(entry); err != nil {
			return nil, err
		}
	}
	for _, file := range u.environmentFiles {
		path, optional := strings.CutPrefix(file, "-")
		data, err := os.ReadFile(rootfs.Path(m.root, path))
		if errors.Is(err, os.ErrNotExist) && optional {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("load environment file: %w", err)
		}
		entries, err := parseEnvironmentFile(data)
		if err != nil {
			return nil, fmt.Errorf("load environment file %s: %w", path, err)
		}
		for _, entry := range entries {
			if err := assign(entry); err != nil {
				return nil, fmt.Errorf("load environment file %s: %w", path, err)
			}
		}
	}
	return environment, nil
}

// parseEnvironmentFile reads the assignments of a file for EnvironmentFile=;
// unlike a shell script's, they may not be exported.
func parseEnvironmentFile(data []byte) ([]string, error) {
	var entries []string
	scanner := bufio.NewScanner(bytes.NewReader(data))
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.ContainsAny(name, " \t") {
			continue // systemd logs and ignores such a line
		}
		words, err := split(value, nil)
		if err != nil {
			return nil, err
		}
		entries = append(entries, name+"="+strings.Join(words, " "))
	}
	return entries, scanner.Err()
}

// argv makes the command line of an Exec line for this machine: variables
// replaced, absolute paths placed below the root.
func (m *Manager) argv(c command, environment map[string]string) ([]string, error) {
	words, err := split(c.line, environment)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("empty command line")
	}
	program, err := m.program(words[0])
	if err != nil {
		return nil, err
	}
	argv := []string{program}
	for i, argument := range words[1:] {
		if words[i] == "-c" && isShell(words[0]) {
			if err := checkScript(argument); err != nil {
				return nil, err
			}
		}
		argv = append(argv, rootfs.Argument(m.root, argument))
	}
	return argv, nil
}

func isShell(program string) bool {
	base := filepath.Base(program)
	return base == "sh" || base == "bash"
}

// checkScript refuses an inline shell script that names absolute paths: they
// would mean the host's files, not the machine's.
func checkScript(script string) error {
	for word := range strings.FieldsSeq(script) {
		word = strings.TrimLeft(word, `"'(<>&|`)
		if strings.HasPrefix(word, "/") && !strings.HasPrefix(word, "/dev/null") {
			return fmt.Errorf("this stand-in cannot place %s, inside a shell script, below the machine's root", word)
		}
	}
	return nil
}

// program finds an executable: the machine's own file, a stand-in of that
// name, the host's.
func (m *Manager) program(name string) (string, error) {
	if filepath.IsAbs(name) {
		own := rootfs.Path(m.root, name)
		if info, err := os.Stat(own); err == nil && !info.IsDir() {
			return own, nil
		}
		for _, folder := range []string{m.standins, "/usr/bin", "/bin"} {
			candidate := filepath.Join(folder, filepath.Base(name))
			if _, err := os.Stat(candidate); err == nil && !strings.HasPrefix(name, "/usr/local/") {
				return candidate, nil
			}
		}
		return own, nil // executing it fails, and says so
	}
	for _, entry := range m.env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			for _, folder := range filepath.SplitList(path) {
				candidate := filepath.Join(folder, name)
				if _, err := exec.LookPath(candidate); err == nil {
					return candidate, nil
				}
			}
		}
	}
	return "", fmt.Errorf("find %s: %w", name, exec.ErrNotFound)
}
