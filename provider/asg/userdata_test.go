package asg_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/provider/asg"
)

func nodeSettings() settings.Settings {
	s := settings.Defaults()
	s.ClusterName, s.Region, s.VolumeID, s.SeedTable = "demo", "eu-west-1", volumeID, "demo-etcfs-seed"
	return s
}

func TestUserDataText(t *testing.T) {
	t.Parallel()
	s := nodeSettings()
	s.LeaseTTL = 15 * time.Second
	s.Recovery = settings.RecoveryReform
	got, err := asg.UserData(s, "etcfs-demo-1", strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "userdata.txt", got)
	if !strings.HasSuffix(got, asg.Stub) {
		t.Error("the stub is changed on its way into the user data")
	}
}

func TestUserDataNeedsEverySetting(t *testing.T) {
	t.Parallel()
	s := nodeSettings()
	s.VolumeID = ""
	_, err := asg.UserData(s, "etcfs-demo-1", strings.Repeat("ab", 32))
	var invalid *settings.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 1 || invalid.Problems[0].Variable != "ETCFS_VOLUME_ID" {
		t.Errorf("got %v, want ETCFS_VOLUME_ID refused", err)
	}
}

// Any text that is quoted comes out of a shell as it went in.
func TestQuote(t *testing.T) {
	t.Parallel()
	for _, want := range []string{
		"", "plain", "two words", "it's", "''", `"double"`, "$HOME", "`id`", "$(id)", `back\slash`, "new\nline", "tab\t", "*", "!", "ü", `'; rm -rf "$x"; '`,
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "value="+asg.Quote(want)+`; printf '%s|' "$value"`).Output()
		if err != nil {
			t.Fatalf("%q: %v", want, err)
		}
		if got := strings.TrimSuffix(string(out), "|"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// machine is a folder tree that user data runs in, with commands of its own
// before those of this machine.
type machine struct {
	root, commands string
	log            string // what the commands were called with
	env            []string
}

// program is the bootstrap binary that the machine fetches: it prints what it
// was started with, and ends as the file outcome says, once.
const program = `#!/bin/sh
echo "started: $*"
env | grep '^ETCFS_' | sort
if outcome=$(cat "$STATE/outcome" 2>/dev/null); then rm "$STATE/outcome"; eval "$outcome"; fi
`

func checksum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	folder := t.TempDir()
	m := &machine{root: filepath.Join(folder, "root"), commands: filepath.Join(folder, "commands"), log: filepath.Join(folder, "calls")}
	if err := os.MkdirAll(m.commands, 0o755); err != nil {
		t.Fatal(err)
	}
	m.env = []string{
		"PATH=" + m.commands + string(os.PathListSeparator) + os.Getenv("PATH"),
		"ETCFS_ROOT=" + m.root, "CALLS=" + m.log, "STATE=" + folder,
	}
	// Time passes only where the script waits: each pause is noted.
	m.command(t, "sleep", `echo "sleep" >>"$CALLS"; echo $(($(cat "$STATE/now" 2>/dev/null || echo 0) + $1)) >"$STATE/now"`)
	m.command(t, "date", `cat "$STATE/now" 2>/dev/null || echo 0`)
	return m
}

func (m *machine) command(t *testing.T, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.commands, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil { //nolint:gosec // a command is executable
		t.Fatal(err)
	}
}

// boot runs user data as an instance does.
func (m *machine) boot(t *testing.T, s settings.Settings) (output string, exitCode int) {
	t.Helper()
	script, err := asg.UserData(s, "etcfs-demo-1", checksum(program))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "user-data")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil { //nolint:gosec // cloud-init executes it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = m.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("user data said:\n%s", stderr.String())
	return stdout.String(), cmd.ProcessState.ExitCode()
}

func (m *machine) calls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(m.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(text)), " ", "_"))
}

const fetchCall = "aws_s3_cp_--only-show-errors_--region_eu-west-1_s3://etcfs-demo-1/etcfs-bootstrap-"

// serving is an aws command that hands out a file after a number of failures.
func serving(content string, failures int) string {
	return fmt.Sprintf(`echo "aws $*" >>"$CALLS"
[ "$1" = s3 ] || exit 0
n=$(($(cat "$STATE/fetches" 2>/dev/null || echo 0) + 1)); echo $n >"$STATE/fetches"
for to; do :; done
if [ $n -le %d ]; then printf 'half of it' >"$to"; exit 1; fi
cat >"$to" <<'END'
%sEND`, failures, content)
}

func TestUserDataRunsTheBootstrap(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.command(t, "aws", serving(program, 0))
	s := nodeSettings()
	s.ReleasesURL = "https://mirror.example/it's;a=$HOME"
	output, code := m.boot(t, s)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	started, environment, _ := strings.Cut(strings.TrimSpace(output), "\n")
	if got, want := started, "started: run"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got, err := settings.Decode(strings.Split(environment, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" {
		t.Errorf("settings changed on their way (-component +node):\n%s", diff)
	}
	if got, want := m.calls(t), []string{fetchCall + checksum(program) + "_" + strings.ReplaceAll(m.root, " ", "_") + "/usr/local/bin/etcfs-bootstrap.new"}; !cmp.Equal(got, want) {
		t.Errorf("got calls %q, want %q", got, want)
	}

	// Again, as after a reboot by hand: what is there and right is not fetched.
	if _, code := m.boot(t, s); code != 0 {
		t.Fatalf("second run: exit code %d", code)
	}
	if got, want := len(m.calls(t)), 1; got != want {
		t.Errorf("second run: got %d calls, want %d", got, want)
	}
}

func TestUserDataRetries(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.command(t, "aws", serving(program, 3))
	if output, code := m.boot(t, nodeSettings()); code != 0 || !strings.HasPrefix(output, "started: run") {
		t.Errorf("exit code %d, output %q", code, output)
	}
	var pauses int
	for _, call := range m.calls(t) {
		if call == "sleep" {
			pauses++
		}
	}
	if want := 3; pauses != want {
		t.Errorf("got %d pauses, want %d", pauses, want)
	}
}

// The bootstrap's own outcome is the boot's, but being killed is none.
func TestUserDataRunsAKilledBootstrapAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first string
		runs  int
		code  int
	}{
		"killed": {"kill -KILL $$", 2, 0},
		"failed": {"exit 14", 1, 14},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.command(t, "aws", serving(program, 0))
			if err := os.WriteFile(filepath.Join(filepath.Dir(m.root), "outcome"), []byte(c.first), 0o644); err != nil {
				t.Fatal(err)
			}
			output, code := m.boot(t, nodeSettings())
			if runs := strings.Count(output, "started: run"); code != c.code || runs != c.runs {
				t.Errorf("got exit code %d after %d runs, want %d after %d", code, runs, c.code, c.runs)
			}
		})
	}
}

// metadata serves an instance's ID by IMDSv2.
func metadata(t *testing.T) *httptest.Server {
	t.Helper()
	imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			fmt.Fprint(w, "token-1")
		case r.URL.Path == "/latest/meta-data/instance-id" && r.Header.Get("X-aws-ec2-metadata-token") == "token-1":
			fmt.Fprint(w, "i-0123456789abcdef0")
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(imds.Close)
	return imds
}

const report = "aws_autoscaling_set-instance-health_--instance-id_i-0123456789abcdef0_--health-status_Unhealthy_--no-should-respect-grace-period_--region_eu-west-1"

// A machine that can write neither the binary nor its log asks to be replaced.
func TestUserDataOnAFullDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.env = append(m.env, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+metadata(t).URL)
	m.command(t, "aws", `echo "aws $*" >>"$CALLS"; [ "$1" != s3 ]`)
	m.command(t, "tee", `cat; exit 1`)
	if output, code := m.boot(t, nodeSettings()); code != 1 || output != "" {
		t.Errorf("exit code %d and output %q, want 1 and none", code, output)
	}
	if calls := m.calls(t); !slices.Contains(calls, report) {
		t.Errorf("not reported unhealthy; calls were %q", calls)
	}
}

// A binary that is not the one of this cluster is never run, and the instance
// asks to be replaced, unless it is to be kept.
func TestUserDataRefusesAnotherBinary(t *testing.T) {
	t.Parallel()
	imds := metadata(t)
	for policy, want := range map[settings.FailurePolicy]bool{settings.FailureReplace: true, settings.FailureKeep: false} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.env = append(m.env, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+imds.URL+"/")
			m.command(t, "aws", serving("#!/bin/sh\necho intruder\n", 0))
			s := nodeSettings()
			s.OnBootstrapFailure = policy
			output, code := m.boot(t, s)
			if code != 1 || output != "" {
				t.Errorf("exit code %d and output %q, want 1 and none", code, output)
			}
			if got := slices.Contains(m.calls(t), report); got != want {
				t.Errorf("reported unhealthy: %t, want %t; calls were %q", got, want, m.calls(t))
			}
			for _, name := range []string{"etcfs-bootstrap", "etcfs-bootstrap.new"} {
				if _, err := os.Stat(filepath.Join(m.root, "usr/local/bin", name)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left on the machine (%v)", name, err)
				}
			}
			log, err := os.ReadFile(filepath.Join(m.root, settings.LogFile))
			if err != nil || !strings.Contains(string(log), "does not have the sha256 "+checksum(program)) {
				t.Errorf("the log says %q (%v), want the wrong checksum named", log, err)
			}
		})
	}
}

// Without the binary, an instance whose launch waits for the hook ends that
// launch; in service, or without a hook, it reports itself unhealthy; and one
// that is to be kept does nothing.
func TestUserDataEndsALaunchWithoutTheBinary(t *testing.T) {
	t.Parallel()
	imds := metadata(t)
	const (
		find = "aws_autoscaling_describe-auto-scaling-instances_--instance-ids_i-0123456789abcdef0_" +
			"--query_AutoScalingInstances[0].AutoScalingGroupName_--output_text_--region_eu-west-1"
		abandon = "aws_autoscaling_complete-lifecycle-action_--auto-scaling-group-name_demo-asg_--lifecycle-hook-name_demo-ready_" +
			"--instance-id_i-0123456789abcdef0_--lifecycle-action-result_ABANDON_--region_eu-west-1"
	)
	for name, c := range map[string]struct {
		hook    string
		policy  settings.FailurePolicy
		refused string // the command that fails
		want    []string
	}{
		"no hook":                  {"", settings.FailureReplace, "none", []string{report}},
		"it waits for the hook":    {"demo-ready", settings.FailureReplace, "none", []string{find, abandon}},
		"it is in service already": {"demo-ready", settings.FailureReplace, "complete-lifecycle-action", []string{find, abandon, report}},
		"its group is not told":    {"demo-ready", settings.FailureReplace, "describe-auto-scaling-instances", []string{find, report}},
		"it is kept":               {"demo-ready", settings.FailureKeep, "none", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.env = append(m.env, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+imds.URL)
			m.command(t, "aws", `echo "aws $*" >>"$CALLS"
[ "$1" != s3 ] && [ "$2" != `+c.refused+` ] || exit 1
[ "$2" != describe-auto-scaling-instances ] || echo demo-asg`)
			s := nodeSettings()
			s.LaunchHook, s.OnBootstrapFailure = c.hook, c.policy
			if output, code := m.boot(t, s); code != 1 || output != "" {
				t.Errorf("exit code %d and output %q, want 1 and none", code, output)
			}
			got := slices.DeleteFunc(m.calls(t), func(call string) bool { return !strings.HasPrefix(call, "aws_autoscaling_") })
			if !slices.Equal(got, c.want) {
				t.Errorf("got calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// A shell of the strictest kind takes the stub.
func TestUserDataIsPOSIX(t *testing.T) {
	t.Parallel()
	script, err := asg.UserData(nodeSettings(), "etcfs-demo-1", strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range [][]string{{"sh"}, {"dash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		path, err := exec.LookPath(shell[0])
		if err != nil {
			t.Logf("%s is not on this machine", shell[0])
			continue
		}
		cmd := exec.CommandContext(t.Context(), path, append(shell[1:], "-n")...)
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}
