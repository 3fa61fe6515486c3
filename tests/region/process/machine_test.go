package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

// The test program is the stand-in program too, under its names.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	os.Exit(m.Run())
}

// world is a subnet with machines.
type world struct {
	*process.Machines
	network *process.Network
	count   int
}

func newWorld(t *testing.T, change ...func(*process.Config)) *world {
	t.Helper()
	network, err := process.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	config := process.Config{Network: network, WorkDir: t.TempDir(), Standin: executable(t), Endpoint: "http://" + network.Gateway() + ":1"}
	for _, c := range change {
		c(&config)
	}
	machines, err := process.New(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Machines: machines, network: network}
	t.Cleanup(func() {
		if err := machines.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// boot starts a machine with user data and prints its console when the test
// fails.
func (w *world) boot(t *testing.T, userData string) *process.Machine {
	t.Helper()
	w.count++
	machine, err := w.Start(t.Context(), ec2.MachineSpec{
		InstanceID: fmt.Sprintf("i-%017x", w.count), PrivateIP: strings.TrimSuffix(w.network.Gateway(), "1") + fmt.Sprint(9+w.count),
		AvailabilityZone: "eu-west-1a", Region: "eu-west-1", AccountID: "123456789012", InstanceType: "t3.medium",
		UserData: []byte(userData), Tags: map[string]string{"ClusterName": "demo"}, RoleName: "node",
		Credentials: func() (ec2.Credentials, error) {
			return ec2.Credentials{AccessKeyID: "ASIA1", SecretAccessKey: "secret", Token: "token", Expiration: time.Now().Add(time.Hour)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console of machine %d:\n%s", w.count, machine.Console())
		}
	})
	return machine.(*process.Machine)
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	_, err := backoff.Retry(t.Context(), func() (struct{}, error) { return struct{}{}, check() },
		backoff.WithBackOff(backoff.NewConstantBackOff(10*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// finished waits for the end of the user data and returns its problems.
func finished(t *testing.T, m *process.Machine) []string {
	t.Helper()
	var result struct {
		V1 struct{ Errors []string }
	}
	eventually(t, "cloud-init's result", func() error {
		data, err := os.ReadFile(filepath.Join(m.Root(), "run/cloud-init/result.json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &result)
	})
	return result.V1.Errors
}

// run executes a script that must succeed and returns its output.
func run(t *testing.T, m *process.Machine, script string) string {
	t.Helper()
	result, err := m.Execute(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 0 {
		t.Fatalf("%s: exit status %d\n%s%s", script, result.ExitCode, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// survivors lists the processes that carry the machine's root.
func survivors(t *testing.T, root string) []string {
	t.Helper()
	var list []string
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(environ), "ETCFS_ROOT="+root+"\x00") {
			cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			if err == nil {
				list = append(list, strings.ReplaceAll(string(cmdline), "\x00", " "))
			}
		}
	}
	return list
}

func TestUserDataRunsOncePerInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.boot(t, `#!/bin/sh -e
echo "hello from user data"
echo run >> $ETCFS_ROOT/root/runs
token=$(curl -sSf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/api/token)
curl -sSf -H "X-aws-ec2-metadata-token: $token" $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/meta-data/instance-id > $ETCFS_ROOT/root/id
`)
	if problems := finished(t, m); len(problems) > 0 {
		t.Fatalf("user data failed: %v", problems)
	}
	if got, want := read(t, m, "root/id"), "i-00000000000000001"; got != want {
		t.Errorf("instance ID %q, want %q", got, want)
	}
	for _, log := range []string{m.Console(), read(t, m, "var/log/cloud-init-output.log")} {
		if want := "hello from user data"; !strings.Contains(log, want) {
			t.Errorf("%q is not in %q", want, log)
		}
	}
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	finished(t, m)
	if got, want := read(t, m, "root/runs"), "run\n"; got != want {
		t.Errorf("after a reboot the user data left %q, want %q", got, want)
	}
}

func TestUserDataThatFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, userData, problem string }{
		{"exit status", "#!/bin/sh\nexit 3\n", "exit status 3"},
		{"no script", "echo hello\n", "Unhandled non-multipart"},
		{"no interpreter", "#!/no/such/shell\n", "no such file"},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			problems := finished(t, newWorld(t).boot(t, test.userData))
			if got := strings.Join(problems, "\n"); !strings.Contains(got, test.problem) || (got == "") != (test.problem == "") {
				t.Errorf("problems %q, want %q", got, test.problem)
			}
		})
	}
}

func read(t *testing.T, m *process.Machine, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(m.Root(), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Processes that try to get away: into a session of their own, deaf to
// SIGTERM, orphaned.
const escapes = `#!/bin/sh
trap '' TERM
setsid sh -c 'trap "" TERM; sleep 1000 & exec sleep 1001' &
(sleep 1002 &)
sleep 1003
`

// sleepers says whether all of them run.
func sleepers(t *testing.T, root string) error {
	t.Helper()
	running := strings.Join(survivors(t, root), "\n") + "\n"
	for _, want := range []string{"sleep 1000 \n", "sleep 1001 \n", "sleep 1002 \n", "sleep 1003 \n"} {
		if !strings.Contains("\n"+running, "\n"+want) {
			return fmt.Errorf("no %q in %q", want, running)
		}
	}
	return nil
}

func TestNothingSurvives(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(*testing.T, *process.Machine) error
	}{
		{"kill", func(_ *testing.T, m *process.Machine) error { return m.Kill() }},
		{"kill while frozen", func(_ *testing.T, m *process.Machine) error { return errors.Join(m.Freeze(), m.Kill()) }},
		{"stop in order, then out of patience", func(t *testing.T, m *process.Machine) error {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := m.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("stop: want that the deadline was exceeded, got %w", err)
			}
			return nil
		}},
		{"init killed", func(t *testing.T, m *process.Machine) error {
			result, err := m.Execute(t.Context(), "echo $PPID")
			if err != nil {
				return err
			}
			var pid int
			if _, err := fmt.Sscan(result.Stdout, &pid); err != nil {
				return err
			}
			return syscall.Kill(pid, syscall.SIGKILL)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newWorld(t).boot(t, escapes)
			eventually(t, "the sleepers", func() error { return sleepers(t, m.Root()) })
			if err := test.end(t, m); err != nil {
				t.Fatal(err)
			}
			select {
			case <-m.Exited():
			case <-time.After(10 * time.Second):
				t.Fatal("the machine did not exit")
			}
			if got := survivors(t, m.Root()); got != nil {
				t.Errorf("survivors: %q", got)
			}
			if err := m.Remove(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(m.Root()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the disk is still there: %v", err)
			}
		})
	}
}

// A region that is killed takes its machines with it: this test starts one in
// a process of its own.
func TestNothingSurvivesTheRegion(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("PROCESS_TEST_REGION"); dir != "" {
		network, err := process.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		machines, err := process.New(process.Config{Network: network, WorkDir: dir, Standin: executable(t)})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{Machines: machines, network: network}
		w.boot(t, escapes)
		select {} // until killed
	}
	dir := t.TempDir()
	region := exec.Command(executable(t), "-test.run=^TestNothingSurvivesTheRegion$") //nolint:noctx // killed below
	region.Env = append(os.Environ(), "PROCESS_TEST_REGION="+dir)
	if err := region.Start(); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "i-00000000000000001")
	eventually(t, "the sleepers", func() error { return sleepers(t, root) })
	if err := region.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = region.Wait() // killed
	eventually(t, "the end of every process", func() error {
		if got := survivors(t, root); got != nil {
			return fmt.Errorf("survivors: %q", got)
		}
		return nil
	})
}

func TestExecute(t *testing.T) {
	t.Parallel()
	m := newWorld(t, func(c *process.Config) { c.AgentDelay = 50 * time.Millisecond }).boot(t, "")
	if m.AgentOnline() {
		t.Error("the agent is online at once, want after its delay")
	}
	eventually(t, "the agent", func() error {
		if !m.AgentOnline() {
			return errors.New("not online")
		}
		return nil
	})
	got, err := m.Execute(t.Context(), "echo out; echo err >&2; exit 3")
	if want := (ec2.CommandResult{ExitCode: 3, Stdout: "out\n", Stderr: "err\n"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.Execute(ctx, "exec sleep 1000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a script that is too slow: %v, want that the deadline was exceeded", err)
	}
	eventually(t, "the end of the slow script", func() error {
		for _, p := range survivors(t, m.Root()) {
			if strings.Contains(p, "sleep") {
				return errors.New(p)
			}
		}
		return nil
	})
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Execute(t.Context(), "true"); err == nil {
		t.Error("a machine that is off executed a script")
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	m := newWorld(t).boot(t, "#!/bin/sh\nwhile :; do date +%N > $ETCFS_ROOT/root/clock; sleep 0.01; done\n")
	clock := filepath.Join(m.Root(), "root/clock")
	ticks := func() error {
		before, err := os.ReadFile(clock)
		if err != nil {
			return err
		}
		<-time.After(50 * time.Millisecond) // the observation itself takes time
		if after, err := os.ReadFile(clock); err != nil || string(after) == string(before) {
			return errors.Join(errors.New("stands still"), err)
		}
		return nil
	}
	eventually(t, "the clock", ticks)
	if err := m.Freeze(); err != nil {
		t.Fatal(err)
	}
	if ticks() == nil {
		t.Error("the clock of a frozen machine goes on")
	}
	if m.AgentOnline() {
		t.Error("the agent of a frozen machine is online")
	}
	if err := m.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the clock", ticks)
}

func TestDisks(t *testing.T) {
	t.Parallel()
	m := newWorld(t, func(c *process.Config) { c.InstanceStore = true }).boot(t, "")
	const id, name = "vol-0123456789abcdef0", "vol0123456789abcdef0"
	file := filepath.Join(t.TempDir(), "volume")
	if err := os.WriteFile(file, []byte("on the volume"), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		link := "dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + name
		if got, want := read(t, m, link), "on the volume"; got != want {
			t.Errorf("by-id link reads %q, want %q", got, want)
		}
		// The local disk has the name that a guess would expect.
		if got, want := read(t, m, "sys/block/nvme1n1/device/model"), "Amazon EC2 NVMe Instance Storage\n"; got != want {
			t.Errorf("model of nvme1n1 %q, want %q", got, want)
		}
		if got, want := read(t, m, "sys/block/nvme2n1/device/serial"), name+"\n"; got != want {
			t.Errorf("serial of nvme2n1 %q, want %q", got, want)
		}
	}
	if err := errors.Join(m.Attach(id, file), m.Attach(id, file)); err != nil {
		t.Fatal(err)
	}
	check()
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
	if err := errors.Join(m.Detach(id), m.Detach(id)); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(m.Root(), "*/*/nvme2n1"))
	links, err2 := filepath.Glob(filepath.Join(m.Root(), "dev/disk/by-id/*"+name+"*"))
	if left != nil || links != nil || err != nil || err2 != nil {
		t.Errorf("after detaching there is %q %q", left, links)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "on the volume" {
		t.Errorf("the volume's file reads %q, %v", got, err)
	}
}

const unitFile = `[Unit]
Description=A server
[Service]
Type=%s
ExecStart=/bin/sh -c 'echo serving; exec sleep 1000'
Restart=on-failure
RestartSec=10ms
[Install]
WantedBy=multi-user.target
`

func TestEnabledUnitsStartAtBoot(t *testing.T) {
	t.Parallel()
	for _, again := range []struct {
		name string
		boot func(*process.Machine) error
	}{
		{"reboot", func(m *process.Machine) error { return m.Reboot(t.Context()) }},
		{"power cycle", func(m *process.Machine) error { return m.PowerCycle(t.Context()) }},
		{"reboot from inside", func(m *process.Machine) error {
			_, _ = m.Execute(t.Context(), "systemctl reboot") // its connection may break
			return nil
		}},
	} {
		t.Run(again.name, func(t *testing.T) {
			t.Parallel()
			m := newWorld(t).boot(t, "")
			if err := os.WriteFile(filepath.Join(m.Root(), "etc/systemd/system/server.service"), fmt.Appendf(nil, unitFile, "simple"), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, m, "systemctl enable --now server")
			before := run(t, m, "systemctl show -p MainPID --value server")
			if err := again.boot(m); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the unit after the boot", func() error {
				result, err := m.Execute(t.Context(), "systemctl show -p MainPID -p ActiveState --value server")
				if err != nil {
					return err
				}
				pid, state, _ := strings.Cut(result.Stdout, "\n")
				if state != "active\n" || pid+"\n" == before || pid == "0" {
					return fmt.Errorf("pid %s (before %s), state %s", pid, before, state)
				}
				return nil
			})
			select {
			case <-m.Exited():
				t.Error("the machine counts as exited")
			default:
			}
		})
	}
}

func TestPowerOffFromInside(t *testing.T) {
	t.Parallel()
	m := newWorld(t).boot(t, "#!/bin/sh\npoweroff\n")
	select {
	case <-m.Exited():
	case <-time.After(10 * time.Second):
		t.Fatal("the machine did not exit")
	}
	if got := survivors(t, m.Root()); got != nil {
		t.Errorf("survivors: %q", got)
	}
}

func TestReservationsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 20 {
		network, err := process.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer network.Close()
		if seen[network.Subnet()] {
			t.Errorf("%s was reserved twice", network.Subnet())
		}
		seen[network.Subnet()] = true
	}
}

func TestMetadataEndsWithTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.boot(t, "")
	url := strings.TrimSpace(run(t, m, "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT"))
	response, err := http.Get(url) //nolint:noctx // on loopback
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got, want := response.StatusCode, http.StatusUnauthorized; got != want {
		t.Errorf("status %d, want %d", got, want)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get(url); err == nil { //nolint:noctx,bodyclose // on loopback, and it fails
		t.Error("the metadata service answers for a machine that is gone")
	}
}
