package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	sdunit "github.com/coreos/go-systemd/v22/unit"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// unitFolders are searched for units, the first match wins.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"}

// errNotFound means that no folder holds the unit.
var errNotFound = errors.New("unit not found")

// unit is a service as its files describe it.
type unit struct {
	name        string
	description string
	// fragment and dropIns are the unit's files as the machine names them.
	fragment string
	dropIns  []string
	// contents is what the files held, to notice a change on disk.
	contents string

	requires, wants, bindsTo, partOf, after, before []string
	conditions                                      []condition

	kind            string // Type=
	remainAfterExit bool
	start           []command
	startPre        []command
	startPost       []command
	stop            []command
	stopPost        []command

	environment      []string
	environmentFiles []string
	workingDirectory string
	// folders are those of RuntimeDirectory= and its like, to be made before
	// the start; the runtime ones go away at the stop.
	folders, runtimeFolders []string
	runtimePreserve         bool

	restart          string
	restartPause     time.Duration
	restartPrevent   []string
	successStatus    []string
	timeoutStart     time.Duration
	timeoutStop      time.Duration
	startLimitWindow time.Duration
	startLimitBurst  int
	killSignal       syscall.Signal
	killMode         string
	sendSIGKILL      bool

	wantedBy, requiredBy, aliases []string
}

type condition struct {
	path   string
	negate bool
	assert bool
}

// command is one Exec line.
type command struct {
	line string
	// ignore is the "-" prefix: its failure is no failure.
	ignore bool
}

// loadUnit reads a unit and its drop-ins below root.
func loadUnit(root, name string) (*unit, error) {
	u := &unit{
		name: name, kind: "simple", restart: "no", restartPause: 100 * time.Millisecond,
		timeoutStart: 90 * time.Second, timeoutStop: 90 * time.Second,
		startLimitWindow: 10 * time.Second, startLimitBurst: 5,
		killSignal: syscall.SIGTERM, killMode: "control-group", sendSIGKILL: true,
	}
	for _, folder := range unitFolders {
		path := filepath.Join(folder, name)
		data, err := os.ReadFile(rootfs.Path(root, path))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		u.fragment = path
		if err := u.merge(path, string(data)); err != nil {
			return nil, err
		}
		break
	}
	if u.fragment == "" {
		return nil, errNotFound
	}
	for _, path := range dropIns(root, name) {
		data, err := os.ReadFile(rootfs.Path(root, path))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		u.dropIns = append(u.dropIns, path)
		if err := u.merge(path, string(data)); err != nil {
			return nil, err
		}
	}
	return u, u.check()
}

// dropIns lists the drop-in files of a unit in the order they apply: by file
// name, a name in an earlier folder hiding the same name in a later one.
func dropIns(root, name string) []string {
	byName := map[string]string{}
	for _, folder := range unitFolders {
		matches, err := filepath.Glob(rootfs.Path(root, filepath.Join(folder, name+".d", "*.conf")))
		if err != nil {
			continue // only a malformed pattern, which a unit's name is not
		}
		for _, match := range matches {
			if base := filepath.Base(match); byName[base] == "" {
				byName[base] = rootfs.Strip(root, match)
			}
		}
	}
	var paths []string
	for _, path := range byName {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return paths
}

func (u *unit) merge(path, text string) error {
	u.contents += path + "\n" + text
	options, err := sdunit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}
	for _, option := range options {
		key := option.Section + "." + option.Name
		value := strings.ReplaceAll(option.Value, "\\\n", " ") // a continued line
		value = strings.TrimSpace(u.specifiers(value))
		if set := directives[key]; set != nil {
			if err := set(u, value); err != nil {
				return fmt.Errorf("%s: %s=%s: %w", path, option.Name, option.Value, err)
			}
			continue
		}
		if !slices.Contains(withoutEffect, key) {
			return fmt.Errorf("%s: %s= in [%s] is not known to this stand-in of systemd", path, option.Name, option.Section)
		}
	}
	return nil
}

// specifiers expands those of systemd.unit(5) that services use.
func (u *unit) specifiers(value string) string {
	stem := strings.TrimSuffix(u.name, filepath.Ext(u.name))
	return strings.NewReplacer("%%", "%", "%n", u.name, "%N", stem, "%p", stem, "%t", "/run", "%S", "/var/lib", "%L", "/var/log").Replace(value)
}

func (u *unit) check() error {
	if u.kind != "oneshot" && len(u.start) != 1 {
		return fmt.Errorf("%s: Service has %d ExecStart= settings, which is only allowed for Type=oneshot services", u.name, len(u.start))
	}
	if u.kind == "oneshot" && (u.restart == "always" || u.restart == "on-success") {
		return fmt.Errorf("%s: Restart=%s isn't allowed for Type=oneshot services", u.name, u.restart)
	}
	return nil
}

type setter = func(*unit, string) error

// directives is everything of a unit file that has an effect here.
var directives = map[string]setter{
	"Unit.Description":           text(func(u *unit) *string { return &u.description }),
	"Unit.Requires":              words(func(u *unit) *[]string { return &u.requires }),
	"Unit.Wants":                 words(func(u *unit) *[]string { return &u.wants }),
	"Unit.BindsTo":               words(func(u *unit) *[]string { return &u.bindsTo }),
	"Unit.PartOf":                words(func(u *unit) *[]string { return &u.partOf }),
	"Unit.After":                 words(func(u *unit) *[]string { return &u.after }),
	"Unit.Before":                words(func(u *unit) *[]string { return &u.before }),
	"Unit.ConditionPathExists":   pathCondition(false),
	"Unit.AssertPathExists":      pathCondition(true),
	"Unit.StartLimitIntervalSec": span(func(u *unit) *time.Duration { return &u.startLimitWindow }),
	"Unit.StartLimitBurst": func(u *unit, value string) (err error) {
		u.startLimitBurst, err = strconv.Atoi(value)
		return err
	},

	"Service.Type":                     oneOf(func(u *unit) *string { return &u.kind }, "simple", "exec", "notify", "oneshot"),
	"Service.RemainAfterExit":          boolean(func(u *unit) *bool { return &u.remainAfterExit }),
	"Service.ExecStart":                commands(func(u *unit) *[]command { return &u.start }),
	"Service.ExecStartPre":             commands(func(u *unit) *[]command { return &u.startPre }),
	"Service.ExecStartPost":            commands(func(u *unit) *[]command { return &u.startPost }),
	"Service.ExecStop":                 commands(func(u *unit) *[]command { return &u.stop }),
	"Service.ExecStopPost":             commands(func(u *unit) *[]command { return &u.stopPost }),
	"Service.Environment":              words(func(u *unit) *[]string { return &u.environment }),
	"Service.EnvironmentFile":          appended(func(u *unit) *[]string { return &u.environmentFiles }),
	"Service.WorkingDirectory":         text(func(u *unit) *string { return &u.workingDirectory }),
	"Service.RuntimeDirectory":         folder("/run", func(u *unit) *[]string { return &u.runtimeFolders }),
	"Service.StateDirectory":           folder("/var/lib", func(u *unit) *[]string { return &u.folders }),
	"Service.LogsDirectory":            folder("/var/log", func(u *unit) *[]string { return &u.folders }),
	"Service.CacheDirectory":           folder("/var/cache", func(u *unit) *[]string { return &u.folders }),
	"Service.ConfigurationDirectory":   folder("/etc", func(u *unit) *[]string { return &u.folders }),
	"Service.Restart":                  oneOf(func(u *unit) *string { return &u.restart }, "no", "on-success", "on-failure", "on-abnormal", "on-abort", "always"),
	"Service.RestartSec":               span(func(u *unit) *time.Duration { return &u.restartPause }),
	"Service.RestartPreventExitStatus": words(func(u *unit) *[]string { return &u.restartPrevent }),
	"Service.SuccessExitStatus":        words(func(u *unit) *[]string { return &u.successStatus }),
	"Service.TimeoutStartSec":          span(func(u *unit) *time.Duration { return &u.timeoutStart }),
	"Service.TimeoutStopSec":           span(func(u *unit) *time.Duration { return &u.timeoutStop }),
	"Service.TimeoutSec":               both,
	"Service.KillMode":                 oneOf(func(u *unit) *string { return &u.killMode }, "control-group", "mixed", "process"),
	"Service.SendSIGKILL":              boolean(func(u *unit) *bool { return &u.sendSIGKILL }),
	"Service.NotifyAccess":             oneOf(func(*unit) *string { return new(string) }, "main", "exec", "all"),
	"Service.User":                     only("root"),
	"Service.Group":                    only("root"),
	"Service.StandardOutput":           only("journal", "journal+console", "inherit"),
	"Service.StandardError":            only("journal", "journal+console", "inherit"),
	"Service.RuntimeDirectoryPreserve": boolean(func(u *unit) *bool { return &u.runtimePreserve }),
	"Service.KillSignal": func(u *unit, value string) error {
		signal, ok := signals[value]
		if !ok {
			return fmt.Errorf("unknown signal %q", value)
		}
		u.killSignal = signal
		return nil
	},

	"Install.WantedBy":   words(func(u *unit) *[]string { return &u.wantedBy }),
	"Install.RequiredBy": words(func(u *unit) *[]string { return &u.requiredBy }),
	"Install.Alias":      words(func(u *unit) *[]string { return &u.aliases }),
}

// withoutEffect lists the directives that change nothing about what a process
// machine can show: limits, sandboxing, scheduling, documentation. Anything
// that is neither here nor in directives is refused, so that a misspelt or
// unsupported one is seen rather than silently ignored.
var withoutEffect = []string{
	"Unit.Documentation", "Unit.DefaultDependencies", "Unit.RequiresMountsFor",
	"Service.LimitNOFILE", "Service.LimitNPROC", "Service.LimitCORE", "Service.LimitMEMLOCK",
	"Service.TasksMax", "Service.MemoryMax", "Service.MemoryHigh", "Service.CPUWeight", "Service.IOWeight", "Service.CPUQuota",
	"Service.Nice", "Service.OOMScoreAdjust", "Service.OOMPolicy", "Service.IOSchedulingClass", "Service.IOSchedulingPriority",
	"Service.SyslogIdentifier", "Service.UMask", "Service.Slice", "Service.Delegate",
	"Service.ProtectSystem", "Service.ProtectHome", "Service.PrivateTmp", "Service.NoNewPrivileges", "Service.ReadWritePaths",
	"Service.CapabilityBoundingSet", "Service.AmbientCapabilities", "Service.RestrictAddressFamilies", "Service.DevicePolicy", "Service.DeviceAllow",
	"Service.RuntimeDirectoryMode", "Service.StateDirectoryMode", "Service.LogsDirectoryMode", "Service.ConfigurationDirectoryMode",
}

var signals = map[string]syscall.Signal{
	"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT,
	"SIGHUP": syscall.SIGHUP, "SIGKILL": syscall.SIGKILL, "SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2,
	"SIGSTOP": syscall.SIGSTOP, "SIGCONT": syscall.SIGCONT, "SIGABRT": syscall.SIGABRT,
}

func text(field func(*unit) *string) setter {
	return func(u *unit, value string) error {
		*field(u) = value
		return nil
	}
}

// words appends a list of words; an empty value clears it.
func words(field func(*unit) *[]string) setter {
	return func(u *unit, value string) error {
		if value == "" {
			*field(u) = nil
			return nil
		}
		list, err := split(value, nil)
		if err != nil {
			return err
		}
		*field(u) = append(*field(u), list...)
		return nil
	}
}

// appended is words for values that hold spaces.
func appended(field func(*unit) *[]string) setter {
	return func(u *unit, value string) error {
		if value == "" {
			*field(u) = nil
		} else {
			*field(u) = append(*field(u), value)
		}
		return nil
	}
}

func folder(parent string, field func(*unit) *[]string) setter {
	return func(u *unit, value string) error {
		if value == "" {
			*field(u) = nil
		}
		for name := range strings.FieldsSeq(value) {
			*field(u) = append(*field(u), filepath.Join(parent, name))
		}
		return nil
	}
}

func commands(field func(*unit) *[]command) setter {
	return func(u *unit, value string) error {
		if value == "" {
			*field(u) = nil
			return nil
		}
		line := strings.TrimLeft(value, "-+!:")
		prefix := value[:len(value)-len(line)]
		switch {
		case strings.HasPrefix(line, "@"):
			return errors.New(`the "@" prefix is not supported by this stand-in`)
		case strings.Contains(prefix, ":"):
			return errors.New(`the ":" prefix is not supported by this stand-in`)
		}
		*field(u) = append(*field(u), command{line: line, ignore: strings.Contains(prefix, "-")})
		return nil
	}
}

func oneOf(field func(*unit) *string, accepted ...string) setter {
	return func(u *unit, value string) error {
		if err := only(accepted...)(u, value); err != nil {
			return err
		}
		*field(u) = value
		return nil
	}
}

// only accepts the values under which a process machine behaves as asked.
func only(accepted ...string) setter {
	return func(_ *unit, value string) error {
		if !slices.Contains(accepted, value) {
			return fmt.Errorf("this stand-in supports only %s", strings.Join(accepted, ", "))
		}
		return nil
	}
}

func boolean(field func(*unit) *bool) setter {
	return func(u *unit, value string) error {
		switch value {
		case "yes", "true", "on", "1":
			*field(u) = true
		case "no", "false", "off", "0":
			*field(u) = false
		default:
			return errors.New("not a boolean")
		}
		return nil
	}
}

func span(field func(*unit) *time.Duration) setter {
	return func(u *unit, value string) error {
		duration, err := parseSpan(value)
		*field(u) = duration
		return err
	}
}

func both(u *unit, value string) error {
	duration, err := parseSpan(value)
	u.timeoutStart, u.timeoutStop = duration, duration
	return err
}

// forever stands for "infinity".
const forever = 100 * 365 * 24 * time.Hour

// parseSpan reads a time span of systemd.time(7): seconds without a unit, or
// numbers with units that add up ("1min 30s").
func parseSpan(value string) (time.Duration, error) {
	if value == "infinity" {
		return forever, nil
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	compact := strings.NewReplacer(" ", "", "sec", "s", "min", "m", "hr", "h").Replace(value)
	duration, err := time.ParseDuration(compact)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time span", value)
	}
	return duration, nil
}

func pathCondition(assert bool) setter {
	return func(u *unit, value string) error {
		path, negate := strings.CutPrefix(value, "!")
		if !filepath.IsAbs(path) {
			return errors.New("not an absolute path")
		}
		u.conditions = append(u.conditions, condition{path: path, negate: negate, assert: assert})
		return nil
	}
}
