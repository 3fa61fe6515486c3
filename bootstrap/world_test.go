package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// world is a cluster's surroundings in memory: the seed item, the list of
// instances, the network and an etcd reduced to its membership. The nodes in it
// run the real elect and member phases, on a clock that synctest owns, so a
// history of an hour takes milliseconds. Every call of a node may be slow, may
// lose its answer, and may be the last one before the machine dies.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	root string

	mu       sync.Mutex
	item     *membership.Item
	machines []*machine
	clusters map[string]*cluster
	cut      map[[2]string]bool // by instance ID, both ways
	trouble  float64            // how much goes wrong, 0 to 1
	strict   bool               // an older etcd: a member is added only while all are up

	recorded string // the cluster that the item has named last
	shell    bool   // a node of the shell bootstrap has overwritten the item

	reform  bool                          // the user accepts a loss: settings carry it
	replace bool                          // the group replaces an instance that fails without etcd data
	slow    time.Duration                 // how long every etcd takes to serve, at least
	silence time.Duration                 // how long it takes to find that nothing answers
	hook    func(m *machine, call string) // runs before some calls have their effect

	daemons  map[string]bool // clusters on which a daemon was started
	problems []string
	journal  bytes.Buffer // what the nodes have logged
	logger   *slog.Logger
}

type cluster struct {
	id      string
	members []membership.Member
	// logs are the machines on whose disks the members' logs began. A log that
	// is lost cannot be replaced: the leader takes the member to have it.
	logs map[uint64]*machine
	// fates are what etcd has stored of its learners.
	fates map[uint64]membership.Fate
}

// machine is one instance. It outlives the bootstrap processes on it.
type machine struct {
	membership.Instance
	world   *world
	root    string
	listed  bool
	visible time.Time // from when on the list of instances has it
	unit    string

	running   bool      // its etcd
	started   time.Time // since then
	ready     time.Time // from when on it serves clients and its member has a name
	complete  time.Time // from when on its log has all that makes it a member
	broken    bool      // its log misses the entry that makes it a member
	mounted   string    // the cluster that its EtcFS daemons have been started on
	cluster   string    // what its etcd has on disk
	member    uint64
	stopped   bool // the instance is stopped, and may be started again
	restarted bool // and was, of which the list of instances hears late
	forgotten bool // EC2 does not know any more that it was terminated
	retries   int  // of its etcd by the service manager; a change forgets the next one

	kill context.CancelFunc // ends its bootstrap process
	dead bool               // that process is gone: its calls have no effect
	done chan struct{}
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, seed)), root: t.TempDir(),
		clusters: map[string]*cluster{}, cut: map[[2]string]bool{}, daemons: map[string]bool{},
	}
	// The order in which goroutines run is not the seed's, so a failure is told
	// by what the nodes said.
	w.logger = slog.New(slog.NewTextHandler(&w.journal, nil))
	return w
}

// event notes what is done to a machine between the nodes' own lines.
func (w *world) event(what string, m *machine) { w.logger.Info("EVENT", "what", what, "node", m.ID) }

// pass lets time pass on the clock that synctest owns.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the synctest bubble: takes no real time
}

// between waits as a network, a loaded machine or a paused one does.
func (w *world) between() {
	w.mu.Lock()
	pause := time.Duration(w.rng.IntN(100)) * time.Millisecond
	if w.rng.Float64() < w.trouble {
		pause = time.Duration(w.rng.IntN(5000)) * time.Millisecond
		switch w.rng.IntN(20) {
		case 0:
			pause = time.Duration(w.rng.IntN(1200)) * time.Second
		case 1, 2:
			pause = time.Duration(w.rng.IntN(60)) * time.Second
		}
	}
	w.mu.Unlock()
	pass(pause)
}

func (w *world) before(m *machine, call string) {
	w.mu.Lock()
	hook := w.hook
	w.mu.Unlock()
	if hook != nil {
		hook(m, call)
	}
}

var errGone = errors.New("this process is dead")

// call performs an outside call of a machine's bootstrap process.
func call[T any](m *machine, lost error, effect func() (T, error)) (T, error) {
	var zero T
	m.world.between()
	m.world.mu.Lock()
	if m.dead {
		m.world.mu.Unlock()
		return zero, errGone
	}
	result, err := effect()
	m.world.checkDisk(m)
	answered := m.world.rng.Float64() >= m.world.trouble/5
	m.world.mu.Unlock()
	m.world.between()
	if !answered {
		return zero, lost
	}
	return result, err
}

// callEtcd is call with the time limit of etcd's client: a request that comes
// late is not performed.
func callEtcd[T any](m *machine, lost error, effect func() (T, error)) (T, error) {
	began := time.Now()
	return call(m, lost, func() (T, error) {
		if time.Since(began) > 5*time.Second {
			var zero T
			return zero, context.DeadlineExceeded
		}
		return effect()
	})
}

// The errors of an answer that never arrived, as the two clients give them.
var (
	lostByAWS  = &smithy.OperationError{ServiceID: "test", OperationName: "any", Err: io.ErrUnexpectedEOF}
	lostByEtcd = errors.New("rpc error: code = Unavailable desc = connection closed")
)

// Seed table.

type seedOf struct{ *machine }

func (s seedOf) Read(context.Context) (*membership.Item, time.Time, error) {
	item, err := call(s.machine, lostByAWS, func() (*membership.Item, error) {
		if s.world.item == nil {
			return nil, nil
		}
		item := *s.world.item
		return &item, nil
	})
	return item, time.Now().Truncate(time.Second), err
}

func (s seedOf) Create(_ context.Context, item membership.Item) (bool, error) {
	return s.put(item, func() bool { return s.world.item == nil })
}

func (s seedOf) Replace(_ context.Context, old, item membership.Item) (bool, error) {
	return s.put(item, func() bool { return s.world.item != nil && *s.world.item == old })
}

func (s seedOf) put(item membership.Item, condition func() bool) (bool, error) {
	s.world.before(s.machine, "write the item")
	return call(s.machine, lostByAWS, func() (bool, error) {
		if condition() {
			s.world.item = &item
			if item.State == membership.StateFormed {
				s.world.recorded = item.ClusterID
			}
			for _, m := range s.world.machines {
				s.world.checkDisk(m)
			}
			return true, nil
		}
		return s.world.item != nil && *s.world.item == item, nil
	})
}

// List of instances.

type groupOf struct{ *machine }

func (g groupOf) Instances(context.Context) (membership.Instances, error) {
	return call(g.machine, lostByAWS, func() (membership.Instances, error) {
		var list membership.Instances
		for _, m := range g.world.machines {
			switch {
			case m.stopped, m.restarted && time.Now().Before(m.visible):
				list.Stopped = append(list.Stopped, m.Instance)
			case m.listed && !time.Now().Before(m.visible):
				list.Live = append(list.Live, m.Instance)
			case !m.listed && !m.forgotten:
				list.Terminated = append(list.Terminated, m.ID)
			}
		}
		return list, nil
	})
}

// etcd, reduced to its membership.

type etcdOf struct{ *machine }

func (w *world) at(ip string) *machine {
	for _, m := range slices.Backward(w.machines) {
		if m.IP == ip {
			return m
		}
	}
	return nil
}

func (w *world) reaches(a, b *machine) bool { return a == b || !w.cut[[2]string{a.ID, b.ID}] }

// serves says whether the machine's etcd answers clients.
func (m *machine) serves() bool { return m.running && !time.Now().Before(m.ready) }

// quorate says whether the machine's etcd reaches a majority of the voters.
func (w *world) quorate(m *machine) bool {
	c := w.clusters[m.cluster]
	voters, up := 0, 0
	for _, member := range c.members {
		if member.Learner {
			continue
		}
		voters++
		if other := w.holder(c, member.ID); other != nil && other.running && w.reaches(m, other) {
			up++
		}
	}
	return up > voters/2
}

func (w *world) holder(c *cluster, id uint64) *machine {
	for _, m := range w.machines {
		if m.cluster == c.id && m.member == id {
			return m
		}
	}
	return nil
}

func (c *cluster) member(id uint64) *membership.Member {
	for i := range c.members {
		if c.members[i].ID == id {
			return &c.members[i]
		}
	}
	return nil
}

func (e etcdOf) Probe(_ context.Context, ip string) etcd.Reading {
	reading, _ := callEtcd(e.machine, nil, func() (etcd.Reading, error) {
		m := e.world.at(ip)
		if m == nil || !m.running || !e.world.reaches(e.machine, m) {
			return etcd.Reading{}, nil
		}
		if !m.serves() || !e.world.quorate(m) {
			return etcd.Reading{Health: membership.Answering}, nil
		}
		member := e.world.clusters[m.cluster].member(m.member)
		return etcd.Reading{Health: membership.Healthy, ClusterID: m.cluster, Learner: member != nil && member.Learner}, nil
	})
	if reading.Health == membership.Silent {
		pass(e.world.silence)
	}
	return reading
}

func (e etcdOf) ClusterID(_ context.Context, ip string) (id string, learner bool, err error) {
	id, err = callEtcd(e.machine, lostByEtcd, func() (string, error) {
		m := e.world.at(ip)
		if m == nil || !m.serves() || !e.world.reaches(e.machine, m) {
			return "", errors.New("connection refused")
		}
		member := e.world.clusters[m.cluster].member(m.member)
		learner = member != nil && member.Learner
		return m.cluster, nil
	})
	return id, learner, err
}

// through finds an endpoint whose etcd can serve.
func (e etcdOf) through(endpoints []string) (*cluster, error) {
	for _, endpoint := range endpoints {
		for _, m := range e.world.machines {
			if etcd.ClientURL(m.IP) != endpoint || !m.serves() || !e.world.reaches(e.machine, m) || !e.world.quorate(m) {
				continue
			}
			c := e.world.clusters[m.cluster]
			if member := c.member(m.member); member != nil && !member.Learner {
				e.world.publish(c)
				return c, nil
			}
		}
	}
	return nil, errors.New("no endpoint serves")
}

// publish gives the members of which etcd is up their names.
func (w *world) publish(c *cluster) {
	for i := range c.members {
		member := &c.members[i]
		if m := w.holder(c, member.ID); m != nil && m.serves() {
			member.Name = membership.NodeID("demo", m.ID)
		}
	}
}

// healthInterval is how long etcd must have been connected to a voter for it
// to count when the membership grows.
const healthInterval = 5 * time.Second

func (e etcdOf) Members(_ context.Context, endpoints []string) ([]membership.Member, error) {
	return callEtcd(e.machine, lostByEtcd, func() ([]membership.Member, error) {
		c, err := e.through(endpoints)
		if err != nil {
			return nil, err
		}
		return slices.Clone(c.members), nil
	})
}

func (e etcdOf) ClusterVersion(_ context.Context, endpoints []string) (string, error) {
	return callEtcd(e.machine, lostByEtcd, func() (string, error) {
		_, err := e.through(endpoints)
		return "3.6.0", err
	})
}

func (e etcdOf) change(endpoints []string, change func(*cluster) error) error {
	if e.world.proposedLate(e.machine, endpoints, change) {
		return context.DeadlineExceeded
	}
	_, err := callEtcd(e.machine, lostByEtcd, func() (struct{}, error) {
		c, err := e.through(endpoints)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, change(c)
	})
	return err
}

// proposedLate has a change take effect long after its client has given up, as a
// leader does that had lost its followers.
func (w *world) proposedLate(m *machine, endpoints []string, change func(*cluster) error) bool {
	w.mu.Lock()
	late, delay := w.rng.Float64() < w.trouble/10, 5*time.Second+time.Duration(w.rng.IntN(30))*time.Second
	w.mu.Unlock()
	if !late {
		return false
	}
	proposed, _ := callEtcd(m, lostByEtcd, func() (bool, error) {
		c, err := etcdOf{m}.through(endpoints)
		if err != nil {
			return false, err
		}
		time.AfterFunc(delay, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if slices.ContainsFunc(w.machines, func(m *machine) bool { return m.cluster == c.id && m.serves() && w.quorate(m) }) {
				_ = change(c)
			}
		})
		return true, nil
	})
	return proposed
}

func (e etcdOf) AddLearner(_ context.Context, endpoints []string, peerURL string) (id uint64, err error) {
	err = e.change(endpoints, func(c *cluster) error {
		up := 0
		for _, member := range c.members {
			switch {
			case slices.Contains(member.PeerURLs, peerURL):
				return rpctypes.ErrPeerURLExist
			case member.Learner:
				return rpctypes.ErrTooManyLearners
			}
			if m := e.world.holder(c, member.ID); m != nil && m.running && (len(c.members) == 1 || time.Since(m.started) >= healthInterval) {
				up++
			}
		}
		// Those that are up have to be a quorum of one member more.
		if all := len(c.members); up < all && (e.world.strict || up <= (all+1)/2) {
			return rpctypes.ErrUnhealthy
		}
		id = e.world.rng.Uint64()
		c.members = append(c.members, membership.Member{ID: id, PeerURLs: []string{peerURL}, Learner: true})
		return nil
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

func (e etcdOf) Promote(_ context.Context, endpoints []string, id uint64) error {
	return e.change(endpoints, func(c *cluster) error {
		member := c.member(id)
		switch m := e.world.holder(c, id); {
		case member == nil:
			return rpctypes.ErrMemberNotFound
		case !member.Learner:
			return rpctypes.ErrMemberNotLearner
		case c.logs[id] == nil:
			return rpctypes.ErrMemberLearnerNotReady
		case m == e.machine && !m.running:
			// The leader remembers how far the learner had come. Another one may go
			// down after it was asked.
			e.world.problem("%s promoted %s, which does not run", e.ID, member)
		}
		member.Learner = false
		return nil
	})
}

func (e etcdOf) Remove(_ context.Context, endpoints []string, id uint64) error {
	e.world.before(e.machine, "remove")
	return e.change(endpoints, func(c *cluster) error {
		member := c.member(id)
		if member == nil {
			return rpctypes.ErrMemberNotFound
		}
		if !member.Learner {
			voters, up := 0, 0
			for _, other := range c.members {
				if other.Learner || other.ID == id {
					continue
				}
				voters++
				if m := e.world.holder(c, other.ID); m != nil && m.running {
					up++
				}
			}
			if up <= voters/2 {
				return rpctypes.ErrUnhealthy
			}
		}
		if m := e.world.holder(c, id); m != nil && m.running && m.listed && m != e.machine && !member.Learner {
			e.world.problem("%s removed %s, which is alive", e.ID, member)
		}
		c.members = slices.DeleteFunc(c.members, func(m membership.Member) bool { return m.ID == id })
		delete(c.fates, id)
		if m := e.world.holder(c, id); m != nil {
			m.running = false // etcd stops itself once it learns of its removal
		}
		return nil
	})
}

func (e etcdOf) Settle(_ context.Context, endpoints []string, id uint64, fate membership.Fate) (settled membership.Fate, err error) {
	e.world.before(e.machine, "settle")
	err = e.change(endpoints, func(c *cluster) error {
		if c.fates[id] == "" {
			c.fates[id] = fate
		}
		settled = c.fates[id]
		return nil
	})
	return settled, err
}

// EtcFS's own list of its live nodes, in the etcd of the cluster.

type registryOf struct{ *machine }

func (r registryOf) Values(_ context.Context, endpoints []string, _ string) (map[string]string, error) {
	return callEtcd(r.machine, lostByEtcd, func() (map[string]string, error) {
		c, err := etcdOf(r).through(endpoints)
		if err != nil {
			return nil, err
		}
		keys := map[string]string{}
		for _, m := range r.world.machines {
			if m.mounted == c.id {
				keys[membership.NodeID("demo", m.ID)] = ""
			}
		}
		return keys, nil
	})
}

// Service manager: etcd as far as its start-up rules matter.

type unitsOf struct{ *machine }

func (u unitsOf) Installed(files ...systemd.File) (bool, error) {
	return u.unit == files[0].Content, nil
}

func (u unitsOf) Install(_ context.Context, files ...systemd.File) error {
	_, err := call(u.machine, errGone, func() (struct{}, error) {
		u.unit = files[0].Content
		return struct{}{}, nil
	})
	return err
}

var etcdFlagPattern = regexp.MustCompile(`--([a-z-]+)=(\S+)`)

func (u unitsOf) StartNoBlock(context.Context, string) error {
	_, err := call(u.machine, nil, func() (struct{}, error) {
		u.startEtcd()
		return struct{}{}, nil
	})
	return err
}

func (m *machine) startEtcd() {
	if m.running {
		return
	}
	if data, err := os.ReadFile(m.log()); err == nil {
		if _, err := fmt.Sscan(string(data), &m.cluster, &m.member); err != nil {
			m.world.problem("read the log of %s: %v", m.ID, err)
		}
		if !m.broken && m.world.clusters[m.cluster].member(m.member) != nil {
			m.starts()
		}
		return
	}
	if _, err := os.Stat(m.data()); err == nil {
		m.world.problem("%s starts a new etcd on the data of an old one", m.ID)
	}
	flags := map[string]string{}
	for _, match := range etcdFlagPattern.FindAllStringSubmatch(m.unit, -1) {
		flags[match[1]] = match[2]
	}
	name, url := flags["name"], flags["initial-advertise-peer-urls"]
	switch flags["initial-cluster-state"] {
	case "new":
		hash := fnv.New64()
		_, _ = fmt.Fprint(hash, flags["initial-cluster"], flags["initial-cluster-token"])
		id := fmt.Sprintf("%x", hash.Sum64())
		if m.world.clusters[id] != nil {
			m.world.problem("%s formed cluster %s, which exists", m.ID, id)
		}
		m.world.clusters[id] = newCluster(id, m.IP)
		m.boots(id, 1)
	case "existing":
		for _, c := range m.world.clusters {
			for i := range c.members {
				member := &c.members[i]
				if slices.Contains(member.PeerURLs, url) && !member.Started() &&
					membership.InitialCluster(c.members, name, url) == flags["initial-cluster"] {
					if c.logs[member.ID] != nil {
						m.world.problem("%s starts as %s, whose log began on %s", m.ID, member, c.logs[member.ID].ID)
					}
					m.boots(c.id, member.ID)
					return
				}
			}
		}
	}
}

// newCluster is a cluster with one member.
func newCluster(id, ip string) *cluster {
	return &cluster{
		id: id, members: []membership.Member{{ID: 1, PeerURLs: []string{etcd.PeerURL(ip)}}},
		logs: map[uint64]*machine{}, fates: map[uint64]membership.Fate{},
	}
}

func (m *machine) boots(clusterID string, member uint64) {
	m.cluster, m.member, m.broken = clusterID, member, false
	m.world.clusters[clusterID].logs[member] = m
	data := []byte(fmt.Sprint(clusterID, " ", member))
	for _, file := range []string{m.data(), m.log()} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644)); err != nil {
			m.world.problem("write the data of %s: %v", m.ID, err)
		}
	}
	m.starts()
	m.complete = m.ready
}

// starts has etcd run at once, and serve a while later, or fail and be started
// again by the service manager.
func (m *machine) starts() {
	if m.world.rng.Float64() < m.world.trouble/8 {
		m.retries++
		try := m.retries
		time.AfterFunc(time.Second, func() {
			m.world.mu.Lock()
			defer m.world.mu.Unlock()
			if m.retries == try && !m.running {
				m.startEtcd()
			}
		})
		return
	}
	m.running, m.started = true, time.Now()
	m.ready = m.started.Add(m.world.slow + time.Duration(m.world.rng.IntN(2000))*time.Millisecond)
	if m.world.rng.Float64() < m.world.trouble/4 {
		m.ready = m.ready.Add(time.Duration(m.world.rng.IntN(60)) * time.Second)
	}
}

// data is etcd's database on the machine's disk.
func (m *machine) data() string { return filepath.Join(m.root, settings.EtcdDataDir, "member/snap/db") }

// checkDisk asserts that the machine has not thrown away what it holds of the
// recorded cluster.
func (w *world) checkDisk(m *machine) {
	if w.item == nil || w.item.State != membership.StateFormed || w.item.ClusterID != m.cluster {
		return
	}
	member := w.clusters[m.cluster].member(m.member)
	if _, err := os.Stat(m.log()); err != nil && member != nil && !member.Learner {
		w.problem("%s has wiped its copy of the recorded cluster %s, of which it is %s", m.ID, m.cluster, member)
	}
}

// log is the etcd write-ahead log on the machine's disk: here, just whose it is.
func (m *machine) log() string { return filepath.Join(m.root, settings.EtcdWALDir, "0.wal") }

func (u unitsOf) Stop(context.Context, string) error {
	_, err := call(u.machine, nil, func() (struct{}, error) {
		u.running = false
		u.retries++
		return struct{}{}, nil
	})
	return err
}

func (u unitsOf) State(context.Context, string) (systemd.State, error) {
	return call(u.machine, nil, func() (systemd.State, error) {
		if u.running {
			return systemd.State{Active: "active"}, nil
		}
		return systemd.State{Active: "activating", Sub: "auto-restart"}, nil
	})
}

// What happens in the world.

func (w *world) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *world) launch() *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add()
}

// add is launch by who holds the world.
func (w *world) add() *machine {
	id := fmt.Sprintf("i-%017x", len(w.machines)+1)
	address := func(n int) string { return fmt.Sprintf("10.0.0.%d", 1+w.rng.IntN(n)) }
	ip := address(12) // addresses are reused
	for n := 12; slices.ContainsFunc(w.machines, func(m *machine) bool { return (m.listed || m.stopped) && m.IP == ip }); n++ {
		ip = address(n)
	}
	m := &machine{
		Instance: membership.Instance{ID: id, IP: ip, Launched: time.Now(), Node: true},
		world:    w, root: filepath.Join(w.root, id), listed: true,
		visible: time.Now().Add(time.Duration(w.rng.IntN(20)) * time.Second),
	}
	w.machines = append(w.machines, m)
	return m
}

// boot runs the two phases on a machine in a process of its own, again after a
// failure, as the unit of the bootstrap does. One that the group has replaced
// meanwhile is gone.
func (m *machine) boot() {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.listed {
		m.process()
	}
}

// process is boot by who holds the world.
func (m *machine) process() {
	ctx, cancel := context.WithCancel(m.world.t.Context())
	m.kill, m.dead, m.done = cancel, false, make(chan struct{})
	go func() {
		defer close(m.done)
		for ctx.Err() == nil && m.run(ctx) != nil {
			if ctx.Err() == nil && m.replaced() { //nolint:contextcheck // another machine lives on without this one
				return
			}
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
		}
	}()
}

// replaced has the group replace the instance, which has reported itself
// unhealthy. One with a copy of the metadata tries again.
func (m *machine) replaced() bool {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if _, err := os.Stat(m.log()); err == nil || !m.world.replace || m.dead {
		return false
	}
	m.dead, m.running, m.mounted, m.listed = true, false, "", false
	m.world.add().process()
	return true
}

// run is one run of the bootstrap.
func (m *machine) run(ctx context.Context) error {
	b := &Bootstrap{
		Settings: settings.Settings{ClusterName: "demo", Recovery: m.world.recovery()},
		Node:     Node{InstanceID: m.ID, PrivateIP: m.IP},
		Root:     m.root, Logger: m.world.logger.With("node", m.ID),
		Seed: seedOf{m}, Group: groupOf{m}, Etcd: etcdOf{m}, Registry: registryOf{m}, Units: unitsOf{m},
	}
	runner := phase.Runner{Logger: b.Logger}
	if err := runner.Run(ctx, phase.Stage{b.elect()}, phase.Stage{b.member()}); err != nil {
		return err
	}
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	if m.dead {
		return nil
	}
	for other := range m.world.daemons {
		// The shell bootstrap's item does not say that a cluster has formed; what
		// is on an instance does.
		if other != m.cluster && !m.world.reform && (!m.world.shell || m.world.survives(other)) {
			m.world.problem("%s starts a daemon on cluster %s, but there has been one on %s", m.ID, m.cluster, other)
		}
	}
	m.world.daemons[m.cluster], m.mounted = true, m.cluster
	for _, other := range m.world.machines {
		if other.listed && other.mounted != "" && other.mounted != m.cluster {
			m.world.problem("%s starts a daemon on cluster %s while %s has one on %s", m.ID, m.cluster, other.ID, other.mounted)
		}
	}
	if item := m.world.item; item == nil || item.State != membership.StateFormed && !m.world.shell || m.world.recorded != m.cluster {
		m.world.problem("%s starts a daemon on cluster %s, but the seed item is %+v", m.ID, m.cluster, item)
	}
	return nil
}

// survives says whether any instance has a copy of the cluster's metadata.
func (w *world) survives(clusterID string) bool {
	return slices.ContainsFunc(w.machines, func(m *machine) bool {
		if !m.listed && !m.stopped || m.cluster != clusterID {
			return false
		}
		_, err := os.Stat(m.log())
		return err == nil
	})
}

func (w *world) recovery() settings.Recovery {
	if w.reform {
		return settings.RecoveryReform
	}
	return settings.RecoveryNone
}

// crash ends the bootstrap process, and etcd with it when the machine reboots
// or is gone. It returns once nothing of the process runs.
func (w *world) crash(m *machine, etcdToo, terminated bool) {
	w.mu.Lock()
	m.dead = true
	if c := w.clusters[m.cluster]; c != nil {
		w.publish(c) // as it has been for long, most likely
	}
	if etcdToo {
		// Killed in its first moments: the log is there, its first entry is not.
		if file, _ := os.ReadFile(filepath.Join(m.root, clusterFile)); string(file) == forming && m.running && time.Now().Before(m.complete) {
			m.broken = w.rng.IntN(2) == 0
		}
		m.running = false
		m.retries++
		m.mounted = ""
	}
	if terminated {
		m.listed, m.forgotten = false, w.rng.IntN(4) == 0
	}
	w.mu.Unlock()
	m.kill()
	<-m.done
}

// leave removes a machine's member and then terminates the machine, as the
// graceful-leave function and the group do.
func (w *world) leave(m *machine) {
	w.mu.Lock()
	c := w.clusters[m.cluster]
	c.members = slices.DeleteFunc(slices.Clone(c.members), func(member membership.Member) bool { return member.ID == m.member })
	w.mu.Unlock()
	w.crash(m, true, true)
}

// unlist has EC2 not list an instance for a while.
func (w *world) unlist(m *machine, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.visible = time.Now().Add(d)
}

// mayLeave says whether etcd would let go of the machine's member.
func (w *world) mayLeave(m *machine) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clusters[m.cluster]
	if c == nil || !w.quorate(m) {
		return false
	}
	voters, up := 0, 0
	for _, other := range c.members {
		if other.Learner || other.ID == m.member {
			continue
		}
		voters++
		if h := w.holder(c, other.ID); h != nil && h.running && w.reaches(h, m) {
			up++
		}
	}
	return up > voters/2
}

// shellJoins has a node of the shell bootstrap join, which points the item at the
// node that it joins through.
func (w *world) shellJoins(m *machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.item != nil && w.item.State == membership.StateFormed && m.serves() && m.cluster == w.item.ClusterID && w.quorate(m) {
		w.item, w.shell = &membership.Item{ClusterName: "demo", SeedIP: m.IP, CreatedAt: time.Now().Truncate(time.Second)}, true
	}
}

// stop stops an instance: it keeps its disk and its address.
func (w *world) stop(m *machine) {
	w.mu.Lock()
	gone := !m.listed
	m.stopped = !gone
	w.mu.Unlock()
	if !gone {
		w.crash(m, true, true)
	}
}

// start starts an instance that was stopped.
func (w *world) start(m *machine) {
	w.mu.Lock()
	m.stopped, m.restarted, m.listed = false, true, true
	m.visible = time.Now().Add(time.Duration(w.rng.IntN(20)) * time.Second)
	w.mu.Unlock()
	m.boot()
}

// stopped lists the instances that can be started again.
func (w *world) stopped() []*machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.machines), func(m *machine) bool { return !m.stopped })
}

func (w *world) setLink(a, b *machine, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[[2]string{a.ID, b.ID}], w.cut[[2]string{b.ID, a.ID}] = cut, cut
}

// alive lists the machines that exist.
func (w *world) alive() []*machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.machines), func(m *machine) bool { return !m.listed })
}

func (w *world) pick(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// launchAt launches an instance with a given address that the list has at once.
func (w *world) launchAt(ip string) *machine {
	m := w.launch()
	w.mu.Lock()
	defer w.mu.Unlock()
	m.IP, m.visible = ip, time.Now()
	return m
}

// addLearner adds a member that has no name to the cluster, and returns its ID.
func (w *world) addLearner(clusterID, ip string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, id := w.clusters[clusterID], w.rng.Uint64()
	c.members = append(c.members, membership.Member{ID: id, PeerURLs: []string{etcd.PeerURL(ip)}, Learner: true})
	return id
}

func (w *world) etcdOf(m *machine) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return m.cluster
}

// end ends what runs, and tells what was said if something went wrong.
func (w *world) end(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	w.replace = false
	w.mu.Unlock()
	for _, m := range w.alive() {
		if m.done != nil {
			w.crash(m, false, false)
		}
	}
	if t.Failed() {
		t.Log("\n" + w.journal.String())
	}
}
