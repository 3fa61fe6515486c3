package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
)

// environ are complete settings.
var environ = []string{
	"ETCFS_CLUSTER_NAME=demo", "ETCFS_REGION=eu-west-1",
	"ETCFS_VOLUME_ID=vol-0123456789abcdef0", "ETCFS_SEED_TABLE=demo-etcfs-seed",
}

type result struct {
	status         int
	stdout, stderr string
}

func run(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	return runFor(t.Context(), environ, args...)
}

func runFor(ctx context.Context, environ []string, args ...string) result {
	var stdout, stderr bytes.Buffer
	status := execute(ctx, args, environ, &stdout, &stderr)
	return result{status, stdout.String(), stderr.String()}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"help":                    {[]string{"--help"}, 0, "phase mount failed"},
		"no command":              {nil, 0, "Available Commands"},
		"help of run":             {[]string{"run", "--help"}, 0, "identify, resume, install-etcd, install-etcfs, attach, elect, member, configure, start, mount"},
		"help of phase":           {[]string{"phase", "--help"}, 0, "install-etcfs"},
		"help of status":          {[]string{"status", "--help"}, 0, "--output"},
		"help of remove-member":   {[]string{"remove-member", "--help"}, 0, "--instance-id"},
		"unknown command":         {[]string{"celebrate"}, 2, `unknown command "celebrate"`},
		"unknown flag":            {[]string{"run", "--fast"}, 2, "unknown flag: --fast"},
		"unknown phase":           {[]string{"phase", "celebrate"}, 2, `invalid argument "celebrate"`},
		"phase without a name":    {[]string{"phase"}, 2, "accepts 1 arg(s), received 0"},
		"run with an argument":    {[]string{"run", "identify"}, 2, "identify"},
		"no instance":             {[]string{"remove-member"}, 2, "--instance-id is missing"},
		"instance that is none":   {[]string{"remove-member", "--instance-id=i-0123456789abcdef"}, 2, `not "i-0123456789abcdef"`},
		"address that is none":    {[]string{"remove-member", "--instance-id=i-0123456789abcdef0", "--address=10.0.0"}, 2, "10.0.0"},
		"unknown format":          {[]string{"status", "--output=xml"}, 2, `not "xml"`},
		"status without settings": {[]string{"status"}, 2, "ETCFS_CLUSTER_NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, nil, append(test.args, "--root="+t.TempDir())...)
			if got.status != test.status || !strings.Contains(got.stdout+got.stderr, test.want) {
				t.Errorf("got status %d and\n%s%s\nwant status %d and %q", got.status, got.stdout, got.stderr, test.status, test.want)
			}
		})
	}
}

func TestExitStatusesAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[int]string{}
	for _, name := range bootstrap.Phases() {
		status, kind := exitPhases[name], strings.SplitN(name, "-", 2)[0]
		if status < 10 {
			t.Errorf("phase %s has exit status %d", name, status)
		}
		if other, ok := seen[status]; ok && other != kind {
			t.Errorf("phases %s and %s share exit status %d", other, kind, status)
		}
		seen[status] = kind
		if !strings.Contains(exitHelp, fmt.Sprintf("  %d  phase ", status)) {
			t.Errorf("the help does not list exit status %d", status)
		}
	}
}

func TestSettingsAreCheckedBeforeAnything(t *testing.T) {
	t.Parallel()
	for missing := range environ {
		root := t.TempDir()
		some := append(append([]string{}, environ[:missing]...), environ[missing+1:]...)
		name, _, _ := strings.Cut(environ[missing], "=")
		got := run(t, some, "run", "--root", root)
		if got.status != exitSettings || !strings.Contains(got.stderr, name+": is missing") {
			t.Errorf("without %s: got status %d and %s", name, got.status, got.stderr)
		}
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
			t.Errorf("without %s: %v, %v were made", name, entries, err)
		}
	}
	got := run(t, append(environ, "ETCFS_LEASE_TLL=10s"), "run", "--root", t.TempDir())
	if got.status != exitSettings || !strings.Contains(got.stderr, "ETCFS_LEASE_TLL") {
		t.Errorf("got status %d and %s, want the misspelt setting", got.status, got.stderr)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, nil, "version")
	if want := fmt.Sprintf("sha256:%x go", sha256.Sum256(binary)); got.status != 0 || !strings.HasPrefix(got.stdout, want) {
		t.Errorf("got status %d and %s, want %s…", got.status, got.stdout, want)
	}
}

// surroundings serves an instance's metadata and its AWS.
func surroundings(t *testing.T, region, ip string) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
		_, _ = io.WriteString(w, "token")
	})
	mux.HandleFunc("GET /latest/dynamic/instance-identity/document", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"instanceId":"i-0123456789abcdef0","privateIp":%q,"region":%q,"availabilityZone":"%sa"}`, ip, region, region)
	})
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "nodes")
	})
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/nodes", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"Code":"Success","AccessKeyId":"ASIA","SecretAccessKey":"secret","Token":"token","Expiration":"2999-01-01T00:00:00Z"}`)
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		switch action := r.FormValue("Action"); action {
		case "DescribeInstances":
			fmt.Fprintf(w, `<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId>
				<instanceState><code>16</code><name>running</name></instanceState><privateIpAddress>%s</privateIpAddress><tagSet><item><key>Role</key><value>etcfs-node</value></item></tagSet>
				</item></instancesSet></item></reservationSet></DescribeInstancesResponse>`, ip)
		case "DescribeVolumes":
			_, _ = io.WriteString(w, `<DescribeVolumesResponse><volumeSet><item><attachmentSet><item><instanceId>i-0123456789abcdef0</instanceId>
				<status>attached</status></item></attachmentSet></item></volumeSet></DescribeVolumesResponse>`)
		case "DescribeAutoScalingInstances":
			_, _ = io.WriteString(w, `<DescribeAutoScalingInstancesResponse><DescribeAutoScalingInstancesResult><AutoScalingInstances><member>
				<InstanceId>i-0123456789abcdef0</InstanceId><LifecycleState>InService</LifecycleState><HealthStatus>HEALTHY</HealthStatus>
				</member></AutoScalingInstances></DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>`)
		default:
			t.Errorf("unexpected call %s", action)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestRunLogsAndExitsByPhase(t *testing.T) {
	url := surroundings(t, "us-east-1", "127.0.0.1")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
	t.Setenv("AWS_ENDPOINT_URL", url)
	root := t.TempDir()
	got := run(t, append(environ, "ETCFS_ROOT="+root), "run")
	if got.status != exitPhases[bootstrap.PhaseIdentify] || !strings.Contains(got.stderr, "identify: this instance is in us-east-1") {
		t.Errorf("got status %d and %s", got.status, got.stderr)
	}
	log, err := os.ReadFile(filepath.Join(root, "var/log/etcfs-bootstrap.log"))
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]bool{}
	for line := range strings.Lines(string(log)) {
		var entry struct{ Msg, Phase, Error string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("the log has the line %q: %v", line, err)
		}
		entries[entry.Msg+" "+entry.Phase] = true
	}
	if !entries["start identify"] || !entries["failed identify"] {
		t.Errorf("got log\n%s\nwant the start and the failure of identify", log)
	}
}

// A log that cannot be written ends nothing.
func TestRunWithoutALog(t *testing.T) {
	url := surroundings(t, "us-east-1", "127.0.0.1")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
	t.Setenv("AWS_ENDPOINT_URL", url)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/log/etcfs-bootstrap.log"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := run(t, environ, "run", "--root", root)
	if got.status != exitPhases[bootstrap.PhaseIdentify] || !strings.Contains(got.stderr, "there is no log file of this run") {
		t.Errorf("got status %d and %s, want the failure of identify", got.status, got.stderr)
	}
}

func TestRunsDoNotOverlap(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := flock.New(filepath.Join(root, "run/etcfs-bootstrap.lock"))
	if locked, err := first.TryLock(); !locked || err != nil {
		t.Fatal(locked, err)
	}
	defer first.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	got := runFor(ctx, environ, "run", "--root", root)
	if got.status != exitFailure || !strings.Contains(got.stderr, "another etcfs-bootstrap works on this machine") {
		t.Errorf("got status %d and %s", got.status, got.stderr)
	}
}

func TestStatus(t *testing.T) {
	const ip = "127.23.45.67" // nothing listens there
	url := surroundings(t, "eu-west-1", ip)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
	t.Setenv("AWS_ENDPOINT_URL", url)
	root := t.TempDir()
	// Settings as an earlier run has kept them.
	kept := filepath.Join(root, "etc/etcfs/bootstrap.env")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, []byte(strings.Join(environ, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}

	got := run(t, nil, "status", "--root", root, "--timeout=500ms", "--output=json")
	var status bootstrap.Status
	if err := json.Unmarshal([]byte(got.stdout), &status); err != nil {
		t.Fatalf("%v in %s%s", err, got.stdout, got.stderr)
	}
	want := bootstrap.NodeStatus{Instance: "i-0123456789abcdef0", Address: ip, Group: "InService", Volume: "attached"}
	if len(status.Nodes) != 1 || status.Nodes[0] != want || len(status.Unseen) != 2 || got.status != exitUnseen {
		t.Errorf("got status %d and %+v, want %d, %+v and no etcd", got.status, status, exitUnseen, want)
	}

	got = run(t, nil, "status", "--root", root, "--timeout=500ms")
	for _, want := range []string{"INSTANCE", "i-0123456789abcdef0", "InService", "attached", "not seen: etcd"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the table does not have %q:\n%s", want, got.stdout)
		}
	}
}

// Off a node there is no metadata service, or what answers at its address is
// something else.
func TestOffANode(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(refusing.Close)
	closed := httptest.NewServer(nil)
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, nothing answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	status, removeMember := []string{"status"}, []string{"remove-member", "--instance-id=i-0123456789abcdef0"}
	for name, test := range map[string]struct {
		address, disabled string
		command           []string
		reason            string
	}{
		"status beside something else":        {refusing.URL, "", status, "403"},
		"remove-member beside something else": {refusing.URL, "", removeMember, "403"},
		"nobody":                              {closed.URL, "", status, "connection refused"},
		"silence":                             {"http://" + silent.Addr().String(), "", removeMember, "getToken"},
		"switched off":                        {refusing.URL, "true", status, "AWS_EC2_METADATA_DISABLED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", test.address)
			t.Setenv("AWS_EC2_METADATA_DISABLED", test.disabled)
			start := time.Now()
			got := run(t, environ, append(test.command, "--root", t.TempDir())...)
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("it took %s", took)
			}
			if got.status != exitFailure || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 ||
				!strings.Contains(got.stderr, "this is no EC2 instance") || !strings.Contains(got.stderr, test.reason) {
				t.Errorf("got status %d, %s and %s, want %d and one line that says %q", got.status, got.stdout, got.stderr, exitFailure, test.reason)
			}
		})
	}
}

func TestRemoveMemberOfItself(t *testing.T) {
	url := surroundings(t, "eu-west-1", "127.0.0.1")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
	t.Setenv("AWS_ENDPOINT_URL", url)
	got := run(t, nil, "remove-member", "--instance-id=i-0123456789abcdef0")
	if got.status != exitFailure || !strings.Contains(got.stderr, "a node does not remove itself") || got.stdout != "" {
		t.Errorf("got status %d, %s and %s", got.status, got.stdout, got.stderr)
	}
}
