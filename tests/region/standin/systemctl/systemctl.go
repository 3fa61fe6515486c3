// Package systemctl is a machine's systemctl and its relatives reboot,
// poweroff and journalctl: the commands that talk to the stand-in of systemd
// in package supervisor.
package systemctl

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/rpc"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/journal"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/supervisor"
)

// options are the flags of systemctl.
type options struct {
	noBlock, now, quiet, value bool
	properties                 []string
	signal                     string
	lines                      int
}

// Main runs systemctl and returns its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	var o options
	set := pflag.NewFlagSet("systemctl", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.BoolVar(&o.noBlock, "no-block", false, "")
	set.BoolVar(&o.now, "now", false, "")
	set.BoolVarP(&o.quiet, "quiet", "q", false, "")
	set.BoolVar(&o.value, "value", false, "")
	set.StringSliceVarP(&o.properties, "property", "p", nil, "")
	set.StringVarP(&o.signal, "signal", "s", "SIGTERM", "")
	set.IntVarP(&o.lines, "lines", "n", 10, "")
	for _, accepted := range []string{"no-pager", "system", "full", "no-legend", "plain", "force", "no-ask-password"} {
		set.Bool(accepted, false, "")
	}
	if err := set.Parse(args); err != nil {
		fmt.Fprintln(stderr, "systemctl:", err)
		return 1
	}
	if set.NArg() == 0 {
		fmt.Fprintln(stderr, "systemctl: this stand-in needs a command")
		return 1
	}
	c := &client{options: o, root: rootfs.Root(), stdout: stdout, stderr: stderr}
	verb, names := set.Arg(0), set.Args()[1:]
	for i, name := range names {
		if filepath.Ext(name) == "" {
			names[i] = name + ".service"
		}
	}
	run := verbs[verb]
	if run == nil {
		fmt.Fprintf(stderr, "Unknown command verb '%s', known to this stand-in: %s.\n", verb, strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
		return 1
	}
	status, err := run(c, names)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return status
}

type client struct {
	options
	root           string
	stdout, stderr io.Writer
}

var verbs = map[string]func(*client, []string) (int, error){
	"start":         ask("Start"),
	"stop":          ask("Stop"),
	"restart":       ask("Restart"),
	"try-restart":   tryRestart,
	"daemon-reload": ask("Reload"),
	"reset-failed":  ask("ResetFailed"),
	"kill":          ask("Kill"),
	"enable":        enable,
	"disable":       disable,
	"is-active":     isActive,
	"is-failed":     isFailed,
	"is-enabled":    isEnabled,
	"show":          show,
	"status":        status,
	"reboot":        power("reboot"),
	"poweroff":      power("poweroff"),
}

// call asks init.
func (c *client) call(method string, argument, reply any) error {
	connection, err := supervisor.Dial(c.root)
	if err != nil {
		return fmt.Errorf("Failed to connect to bus: %w", err) //nolint:staticcheck // systemctl's own words
	}
	defer connection.Close()
	if err := connection.Call("Systemd."+method, argument, reply); err != nil {
		if errors.Is(err, rpc.ErrShutdown) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("Connection terminated by the machine's init") //nolint:staticcheck // systemctl's own words
		}
		return err
	}
	return nil
}

// ask makes a verb of a request that init answers with messages and a status.
func ask(method string) func(*client, []string) (int, error) {
	return func(c *client, names []string) (int, error) {
		if len(names) == 0 && method != "Reload" && method != "ResetFailed" {
			return 1, errors.New("Too few arguments.") //nolint:staticcheck // systemctl's own words
		}
		var reply supervisor.Reply
		err := c.call(method, supervisor.Request{Units: names, NoBlock: c.noBlock, Signal: c.signal}, &reply)
		if err != nil {
			return 1, err
		}
		for _, line := range reply.Stderr {
			fmt.Fprintln(c.stderr, line)
		}
		return reply.Status, nil
	}
}

func tryRestart(c *client, names []string) (int, error) {
	var running []string
	for _, name := range names {
		properties, err := c.properties(name)
		if err != nil {
			return 1, err
		}
		if properties["ActiveState"] == "active" {
			running = append(running, name)
		}
	}
	if running == nil {
		return 0, nil
	}
	return ask("Restart")(c, running)
}

func enable(c *client, names []string) (int, error) {
	for _, name := range names {
		made, target, err := supervisor.Enable(c.root, name)
		if supervisor.IsNotFound(err) {
			return 1, fmt.Errorf("Failed to enable unit: Unit file %s does not exist.", name) //nolint:staticcheck // systemctl's own words
		}
		if err != nil {
			return 1, fmt.Errorf("Failed to enable unit: %w", err) //nolint:staticcheck // systemctl's own words
		}
		for _, link := range made {
			if !c.quiet {
				fmt.Fprintf(c.stderr, "Created symlink %s → %s.\n", link, target)
			}
		}
		if supervisor.FileState(c.root, name) == "static" {
			fmt.Fprintf(c.stderr, "The unit files have no installation config (WantedBy=, RequiredBy=, Also=,\nAlias= settings in the [Install] section, and DefaultInstance= for template\nunits). This means they are not meant to be enabled using systemctl.\n")
		}
	}
	return c.reloadAndThen("Start", names)
}

func disable(c *client, names []string) (int, error) {
	for _, name := range names {
		removed, err := supervisor.Disable(c.root, name)
		if supervisor.IsNotFound(err) {
			return 1, fmt.Errorf("Failed to disable unit: Unit file %s does not exist.", name) //nolint:staticcheck // systemctl's own words
		}
		if err != nil {
			return 1, fmt.Errorf("Failed to disable unit: %w", err) //nolint:staticcheck // systemctl's own words
		}
		for _, link := range removed {
			if !c.quiet {
				fmt.Fprintf(c.stderr, "Removed \"%s\".\n", link)
			}
		}
	}
	return c.reloadAndThen("Stop", names)
}

// reloadAndThen is the second half of enable and disable: they imply a
// daemon-reload and, with --now, a start or stop.
func (c *client) reloadAndThen(method string, names []string) (int, error) {
	if status, err := ask("Reload")(c, nil); status != 0 || err != nil || !c.now {
		return status, err
	}
	return ask(method)(c, names)
}

func (c *client) properties(name string) (map[string]string, error) {
	var properties map[string]string
	err := c.call("Show", name, &properties)
	return properties, err
}

func isActive(c *client, names []string) (int, error) {
	return c.anyState(names, 3, func(state string) bool { return state == "active" })
}

func isFailed(c *client, names []string) (int, error) {
	return c.anyState(names, 1, func(state string) bool { return state == "failed" })
}

func (c *client) anyState(names []string, otherwise int, want func(string) bool) (int, error) {
	code := otherwise
	for _, name := range names {
		properties, err := c.properties(name)
		if err != nil {
			return 1, err
		}
		if !c.quiet {
			fmt.Fprintln(c.stdout, properties["ActiveState"])
		}
		if want(properties["ActiveState"]) {
			code = 0
		}
	}
	return code, nil
}

func isEnabled(c *client, names []string) (int, error) {
	code := 1
	for _, name := range names {
		state := supervisor.FileState(c.root, name)
		switch state {
		case "":
			fmt.Fprintf(c.stderr, "Failed to get unit file state for %s: No such file or directory\n", name)
			continue
		case "enabled", "static":
			code = 0
		}
		if !c.quiet {
			fmt.Fprintln(c.stdout, state)
		}
	}
	return code, nil
}

func show(c *client, names []string) (int, error) {
	for i, name := range names {
		properties, err := c.properties(name)
		if err != nil {
			return 1, err
		}
		if i > 0 {
			fmt.Fprintln(c.stdout)
		}
		wanted := c.options.properties
		if wanted == nil {
			wanted = slices.Sorted(maps.Keys(properties))
		}
		for _, property := range wanted {
			value, ok := properties[property]
			switch {
			case !ok:
				// systemctl leaves out what it does not know.
			case c.value:
				fmt.Fprintln(c.stdout, value)
			default:
				fmt.Fprintf(c.stdout, "%s=%s\n", property, value)
			}
		}
	}
	return 0, nil
}

func status(c *client, names []string) (int, error) {
	code := 0
	for _, name := range names {
		p, err := c.properties(name)
		if err != nil {
			return 1, err
		}
		if p["LoadState"] == "not-found" {
			fmt.Fprintf(c.stderr, "Unit %s could not be found.\n", name)
			code = 4
			continue
		}
		fmt.Fprintf(c.stdout, "%s - %s\n     Loaded: %s (%s; %s)\n     Active: %s (%s)", name, p["Description"], p["LoadState"], p["FragmentPath"], p["UnitFileState"], p["ActiveState"], p["SubState"])
		if p["ActiveState"] == "failed" {
			fmt.Fprintf(c.stdout, " (Result: %s)", p["Result"])
		}
		fmt.Fprintf(c.stdout, " since %s\n", p["StateChangeTimestamp"])
		if p["MainPID"] != "0" {
			fmt.Fprintf(c.stdout, "   Main PID: %s\n", p["MainPID"])
		}
		if p["StatusText"] != "" {
			fmt.Fprintf(c.stdout, "     Status: %q\n", p["StatusText"])
		}
		entries, err := journal.Read(rootfs.Path(c.root, journal.File), journal.Query{Units: []string{name}, ThisBoot: true, Last: c.lines})
		if err != nil {
			return 1, err
		}
		fmt.Fprintln(c.stdout)
		for _, entry := range entries {
			fmt.Fprintln(c.stdout, formats["short"](entry))
		}
		if p["ActiveState"] != "active" {
			code = 3
		}
	}
	return code, nil
}

func power(action string) func(*client, []string) (int, error) {
	return func(c *client, _ []string) (int, error) {
		return 0, c.call("Power", action, &struct{}{})
	}
}
