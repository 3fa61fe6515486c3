package standin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
	"github.com/etcfs/pulumi-etcfs/tests/region/release"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
)

// The test program is the stand-in program too, under its names.
func TestMain(m *testing.M) {
	if standin.Is(filepath.Base(os.Args[0])) {
		os.Exit(standin.Main(os.Args))
	}
	os.Exit(m.Run())
}

// The stories in testdata each run on a machine of their own. What lies below
// root/ in a story is on the machine's disk. Commands of the stories, beside
// testscript's own:
//
//	[!] on SCRIPT     runs a shell script on the machine, as root
//	eventually SCRIPT runs it until it succeeds
//	attach, detach    the volume vol-0123456789abcdef0, of 64 KiB
//	reboot            the machine
//	etcd              starts an etcd on the machine's address
func TestStories(t *testing.T) {
	t.Parallel()
	releases := &release.Server{}
	for _, r := range []etcfs.Release{{Version: "0.34.0"}, {Version: "0.36.0", Config: true, VolumeID: true}} {
		if err := releases.PublishEtcFS(r); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(releases)
	t.Cleanup(server.Close)

	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Condition: func(condition string) (bool, error) {
			if condition == "etcd" {
				return os.Getenv("ETCFS_TOOLS") != "", nil
			}
			return false, fmt.Errorf("unknown condition %q", condition)
		},
		Setup: func(env *testscript.Env) error {
			machine, err := boot(env)
			if err != nil {
				return err
			}
			env.Values["machine"] = machine
			env.Setenv("RELEASES", server.URL+"/"+release.EtcFS+"/releases/download")
			return os.CopyFS(machine.Root(), os.DirFS(filepath.Join(env.WorkDir, "root")))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"on":         on,
			"eventually": eventually,
			"attach":     func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(attach(ts)) },
			"detach": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(machine(ts).Detach(volumeID))
			},
			"reboot": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(machine(ts).Reboot(context.Background()))
			},
			"etcd": func(ts *testscript.TestScript, _ bool, _ []string) {
				tools := os.Getenv("ETCFS_TOOLS")
				for _, name := range []string{"etcd", "etcdctl"} {
					ts.Check(os.Symlink(filepath.Join(tools, name), filepath.Join(machine(ts).Root(), "usr/local/bin", name)))
				}
				ts.Check(os.WriteFile(filepath.Join(machine(ts).Root(), "etc/systemd/system/etcd.service"), []byte(etcdUnit), 0o600))
				on(ts, false, []string{"systemctl start etcd"})
			},
		},
	})
}

const volumeID = "vol-0123456789abcdef0"

const etcdUnit = `[Service]
Type=notify
ExecStart=/usr/local/bin/etcd --data-dir=/var/lib/etcd --log-level=error \
  --listen-client-urls=http://${STANDIN_ADDRESS}:2379 --advertise-client-urls=http://${STANDIN_ADDRESS}:2379 \
  --listen-peer-urls=http://${STANDIN_ADDRESS}:2380 --initial-advertise-peer-urls=http://${STANDIN_ADDRESS}:2380 \
  --initial-cluster=default=http://${STANDIN_ADDRESS}:2380
`

func boot(env *testscript.Env) (*process.Machine, error) {
	network, err := process.Reserve()
	if err != nil {
		return nil, err
	}
	env.Defer(func() { _ = network.Close() })
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	machines, err := process.New(process.Config{Network: network, WorkDir: filepath.Join(env.WorkDir, "m"), Standin: program, Endpoint: "http://" + network.Gateway() + ":1"})
	if err != nil {
		return nil, err
	}
	env.Defer(func() { _ = machines.Close() })
	_, err = machines.Start(context.Background(), ec2.MachineSpec{
		InstanceID: "i-0123456789abcdef0", PrivateIP: strings.TrimSuffix(network.Gateway(), ".1") + ".10", Region: "eu-west-1",
	})
	if err := os.MkdirAll(filepath.Join(env.WorkDir, "root"), 0o755); err != nil {
		return nil, err
	}
	return machines.Machine("i-0123456789abcdef0"), err
}

func machine(ts *testscript.TestScript) *process.Machine {
	return ts.Value("machine").(*process.Machine)
}

func execute(ts *testscript.TestScript, args []string) ec2.CommandResult {
	if len(args) != 1 {
		ts.Fatalf("usage: on|eventually SCRIPT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	result, err := machine(ts).Execute(ctx, "RELEASES="+ts.Getenv("RELEASES")+"\n"+args[0])
	ts.Check(err)
	return result
}

func on(ts *testscript.TestScript, neg bool, args []string) {
	result := execute(ts, args)
	_, _ = fmt.Fprint(ts.Stdout(), result.Stdout)
	_, _ = fmt.Fprint(ts.Stderr(), result.Stderr)
	if (result.ExitCode != 0) != neg {
		ts.Fatalf("exit status %d\n%s%s", result.ExitCode, result.Stdout, result.Stderr)
	}
}

func eventually(ts *testscript.TestScript, _ bool, args []string) {
	result, err := backoff.Retry(context.Background(), func() (ec2.CommandResult, error) {
		result := execute(ts, args)
		if result.ExitCode != 0 {
			return result, fmt.Errorf("exit status %d\n%s%s", result.ExitCode, result.Stdout, result.Stderr)
		}
		return result, nil
	}, backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	ts.Check(err)
	_, _ = fmt.Fprint(ts.Stdout(), result.Stdout)
	_, _ = fmt.Fprint(ts.Stderr(), result.Stderr)
}

func attach(ts *testscript.TestScript) error {
	file := ts.MkAbs("volume")
	return errors.Join(
		os.WriteFile(file, make([]byte, 64<<10), 0o600),
		machine(ts).Attach(volumeID, file),
	)
}
