// Package supervisor is the init of a process machine and its stand-in of
// systemd: it starts the units that are enabled, runs the user data, owns and
// reaps every process of the machine, and ends them all.
//
// What it models of systemd: services of Type= simple, exec, notify and
// oneshot with their helper commands, restarts, rate limit and timeouts;
// drop-ins; ordering and requirement dependencies; enabled units at boot; a
// changed file having no effect on a loaded unit before daemon-reload. It does
// not model sockets, timers, mounts and paths (refused), targets (each counts
// as reached), users, sandboxing and resource limits (without effect). A
// directive that it does not know is refused by name.
package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/journal"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// Manager holds the units of a machine.
type Manager struct {
	root     string
	standins string
	env      []string
	reaper   *reaper
	journal  *journal.Writer
	console  func(line string)

	mu    sync.Mutex
	units map[string]*service
	// order lists the services in the order of their last activation.
	order []*service
	// hurry is the most time that one unit's stop may take while the machine
	// shuts down; zero otherwise.
	hurry time.Duration
}

func (m *Manager) log(unit, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	m.journal.Write(unit, "systemd", 1, line)
	m.console("systemd[1]: " + line)
}

func (m *Manager) stopWithin() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hurry > 0 {
		return m.hurry
	}
	return forever
}

// get returns a unit, loading it from its files when it is not in memory. One
// that neither runs nor failed is not kept in memory, as in systemd.
func (m *Manager) get(name string) (*service, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.units[name]
	if s != nil && (s.cancel != nil || s.state.Active == "failed") {
		return s, nil
	}
	if filepath.Ext(name) != ".service" {
		return nil, fmt.Errorf("unit %s: this stand-in of systemd has only services and targets", name)
	}
	u, err := loadUnit(m.root, name)
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = &service{m: m, state: inactive}
		m.units[name] = s
	}
	s.unit = u
	return s, nil
}

// changed says whether a unit's files are not those it was loaded from.
func (m *Manager) changed(s *service) bool {
	fresh, err := loadUnit(m.root, s.unit.name)
	return err == nil && fresh.contents != s.unit.contents || errors.Is(err, errNotFound)
}

// reload reads every unit in memory again.
func (m *Manager) reload() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var problems []error
	for name, s := range m.units {
		u, err := loadUnit(m.root, name)
		switch {
		case errors.Is(err, errNotFound):
			// It goes on as it was loaded until it ends.
		case err != nil:
			problems = append(problems, err)
		default:
			s.unit = u
		}
	}
	return errors.Join(problems...)
}

func isTarget(name string) bool { return filepath.Ext(name) == ".target" }

// job is the start of one unit in a transaction.
type job struct {
	service *service
	done    chan struct{}
	err     error
}

// begin starts units with what they require and want, each after what it is
// ordered after, and returns the jobs without waiting for them.
func (m *Manager) begin(names ...string) (map[string]*job, error) {
	jobs := map[string]*job{}
	for _, name := range names {
		if err := m.collect(jobs, name); err != nil {
			return nil, err
		}
	}
	if cycle := findCycle(jobs); cycle != nil {
		return nil, fmt.Errorf("found ordering cycle: %s", strings.Join(cycle, " after "))
	}
	for _, j := range jobs {
		go m.work(jobs, j)
	}
	return jobs, nil
}

func (m *Manager) collect(jobs map[string]*job, name string) error {
	if isTarget(name) || jobs[name] != nil {
		return nil
	}
	s, err := m.get(name)
	if err != nil {
		return err
	}
	jobs[name] = &job{service: s, done: make(chan struct{})}
	u := m.unitOf(s)
	for _, dependency := range slices.Concat(u.requires, u.bindsTo) {
		if err := m.collect(jobs, dependency); err != nil {
			return fmt.Errorf("%s requires %s: %w", name, dependency, err)
		}
	}
	for _, dependency := range u.wants {
		if err := m.collect(jobs, dependency); err != nil && !errors.Is(err, errNotFound) {
			m.log(name, "%s: cannot add dependency job for unit %s, ignoring: %v", name, dependency, err)
		}
	}
	return nil
}

func (m *Manager) unitOf(s *service) *unit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.unit
}

// predecessors lists the jobs that one is ordered after.
func predecessors(jobs map[string]*job, j *job) []*job {
	var list []*job
	for name, other := range jobs {
		if other != j && (slices.Contains(j.service.unit.after, name) || slices.Contains(other.service.unit.before, j.service.unit.name)) {
			list = append(list, other)
		}
	}
	return list
}

func findCycle(jobs map[string]*job) []string {
	done := map[*job]bool{}
	var path []*job
	var visit func(*job) []string
	visit = func(j *job) []string {
		if i := slices.Index(path, j); i >= 0 {
			var names []string
			for _, p := range append(path[i:], j) {
				names = append(names, p.service.unit.name)
			}
			return names
		}
		if done[j] {
			return nil
		}
		path = append(path, j)
		for _, p := range predecessors(jobs, j) {
			if cycle := visit(p); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		done[j] = true
		return nil
	}
	for _, j := range jobs {
		if cycle := visit(j); cycle != nil {
			return cycle
		}
	}
	return nil
}

func (m *Manager) work(jobs map[string]*job, j *job) {
	defer close(j.done)
	u := m.unitOf(j.service)
	for _, p := range predecessors(jobs, j) {
		<-p.done
		name := p.service.unit.name
		if p.err != nil && (slices.Contains(u.requires, name) || slices.Contains(u.bindsTo, name)) {
			m.log(u.name, "Dependency failed for %s.", u.title())
			j.err = &failure{"dependency", "a dependency job failed"}
			return
		}
	}
	for _, name := range u.after { // those that other transactions are starting
		m.mu.Lock()
		var starting chan struct{}
		if s := m.units[name]; s != nil && jobs[name] == nil && s.cancel != nil {
			starting = s.started
		}
		m.mu.Unlock()
		if starting != nil {
			<-starting
		}
	}
	<-j.service.activate()
	m.mu.Lock()
	defer m.mu.Unlock()
	j.err = j.service.startErr
}

// dependents lists the running services that go down with one.
func (m *Manager) dependents(name string) []*service {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*service
	for _, s := range m.order {
		if s.cancel != nil && s.unit.name != name && slices.Contains(slices.Concat(s.unit.requires, s.unit.bindsTo, s.unit.partOf), name) {
			list = append(list, s)
		}
	}
	return list
}

// stop stops a unit after those that require it, and returns these, so that a
// restart can start them again.
func (m *Manager) stop(s *service) []*service {
	var down []*service
	for _, dependent := range m.dependents(m.unitOf(s).name) {
		down = append(down, dependent)
		down = append(down, m.stop(dependent)...)
	}
	s.deactivate()
	return down
}

// stopBound stops the units that are bound to one that ended by itself.
func (m *Manager) stopBound(s *service) {
	name := m.unitOf(s).name
	for _, dependent := range m.dependents(name) {
		if slices.Contains(m.unitOf(dependent).bindsTo, name) {
			go m.stop(dependent)
		}
	}
}

// restartDependents restarts the units that require one which Restart= starts
// again, as the restart job of systemd does.
func (m *Manager) restartDependents(s *service) {
	name := m.unitOf(s).name
	var names []string
	for _, dependent := range m.dependents(name) {
		u := m.unitOf(dependent)
		if !slices.Contains(u.bindsTo, name) {
			m.stop(dependent)
			names = append(names, u.name)
		}
	}
	if names == nil {
		return
	}
	m.mu.Lock()
	started := s.started
	m.mu.Unlock()
	go func() {
		<-started
		if _, err := m.begin(names...); err != nil {
			m.log(name, "restart of what requires %s: %v", name, err)
		}
	}()
}

// boot starts the enabled units.
func (m *Manager) boot() {
	for _, kind := range []string{"wants", "requires"} {
		links, err := filepath.Glob(rootfs.Path(m.root, "/etc/systemd/system/multi-user.target."+kind+"/*"))
		if err != nil {
			continue // only a malformed pattern
		}
		for _, link := range links {
			name := filepath.Base(link)
			if _, err := m.begin(name); err != nil {
				m.log(name, "%s: cannot start at boot: %v", name, err)
			}
		}
	}
}

// shutdown stops every unit, the last started first, each within a limit.
func (m *Manager) shutdown(within time.Duration) {
	m.mu.Lock()
	m.hurry = within
	order := slices.Clone(m.order)
	m.mu.Unlock()
	for _, s := range slices.Backward(order) {
		m.stop(s)
	}
}

// properties is what systemctl show tells of a unit.
func (m *Manager) properties(name string) map[string]string {
	properties := map[string]string{
		"Id": name, "Names": name, "LoadState": "loaded", "NeedDaemonReload": "no",
		"UnitFileState": FileState(m.root, name),
	}
	if isTarget(name) {
		properties["ActiveState"], properties["SubState"] = "active", "active"
		return properties
	}
	s, err := m.get(name)
	if err != nil {
		properties["LoadState"] = "bad-setting"
		if errors.Is(err, errNotFound) {
			properties["LoadState"] = "not-found"
		}
		properties["LoadError"] = err.Error()
		properties["ActiveState"], properties["SubState"] = "inactive", "dead"
		return properties
	}
	if m.changed(s) {
		properties["NeedDaemonReload"] = "yes"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	state, u := s.state, s.unit
	code := "0"
	if state.Signaled {
		code = "2" // CLD_KILLED
	} else if !state.Since.IsZero() && state.MainPID == 0 && state.Sub != "auto-restart" {
		code = "1" // CLD_EXITED
	}
	for property, value := range map[string]any{
		"Description": u.description, "Type": u.kind, "Restart": u.restart,
		"FragmentPath": u.fragment, "DropInPaths": strings.Join(u.dropIns, " "),
		"ActiveState": state.Active, "SubState": state.Sub, "Result": state.Result,
		"MainPID": state.MainPID, "ExecMainStatus": state.ExitCode, "ExecMainCode": code,
		"NRestarts": state.Restarts, "StatusText": state.Status,
	} {
		properties[property] = fmt.Sprint(value)
	}
	if !state.Since.IsZero() {
		properties["StateChangeTimestamp"] = state.Since.Format("Mon 2006-01-02 15:04:05 MST")
	}
	return properties
}

// FileState says whether a unit starts at boot: enabled, disabled, static
// (nothing to install), or "" when there is no such unit.
func FileState(root, name string) string {
	if isTarget(name) {
		return "static"
	}
	u, err := loadUnit(root, name)
	if err != nil {
		return ""
	}
	links := installLinks(u)
	if len(links) == 0 {
		return "static"
	}
	for _, link := range links {
		if _, err := os.Lstat(rootfs.Path(root, link)); err == nil {
			return "enabled"
		}
	}
	return "disabled"
}

func installLinks(u *unit) []string {
	var links []string
	for _, target := range u.wantedBy {
		links = append(links, filepath.Join("/etc/systemd/system", target+".wants", u.name))
	}
	for _, target := range u.requiredBy {
		links = append(links, filepath.Join("/etc/systemd/system", target+".requires", u.name))
	}
	for _, alias := range u.aliases {
		links = append(links, filepath.Join("/etc/systemd/system", alias))
	}
	return links
}

// Enable makes the links of a unit's [Install] section and returns them with
// their target, as made now; none when they were there or there is nothing to
// install.
func Enable(root, name string) (made []string, target string, err error) {
	u, err := loadUnit(root, name)
	if err != nil {
		return nil, "", err
	}
	for _, link := range installLinks(u) {
		path := rootfs.Path(root, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, "", err
		}
		err := os.Symlink(u.fragment, path)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		made = append(made, link)
	}
	return made, u.fragment, nil
}

// Disable removes the links that Enable makes and returns those it removed.
func Disable(root, name string) (removed []string, err error) {
	u, err := loadUnit(root, name)
	if err != nil {
		return nil, err
	}
	for _, link := range installLinks(u) {
		err := os.Remove(rootfs.Path(root, link))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		removed = append(removed, link)
	}
	return removed, nil
}

// IsNotFound says whether an error of Enable or Disable means that there is no
// such unit.
func IsNotFound(err error) bool { return errors.Is(err, errNotFound) }
