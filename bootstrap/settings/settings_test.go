package settings_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

func valid() settings.Settings {
	s := settings.Defaults()
	s.ClusterName, s.Region = "demo", "eu-west-1"
	s.VolumeID, s.SeedTable = "vol-0123456789abcdef0", "demo-etcfs-seed"
	return s
}

func TestEncodeDecode(t *testing.T) {
	t.Parallel()
	everything := valid()
	everything.Version, everything.EtcdVersion = "0.37.1", "v3.5.35"
	everything.LeaseTTL = 90 * time.Second
	everything.Repository, everything.ReleasesURL = "fork/etcfs", "https://mirror.example/github"
	everything.OnBootstrapFailure, everything.Recovery = settings.FailureKeep, settings.RecoveryReform
	everything.LaunchHook = "demo-ready"
	for name, want := range map[string]settings.Settings{"defaults": valid(), "everything": everything} {
		environ, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := settings.Decode(append(environ, "PATH=/usr/bin", "ETCFS_ROOT=/tmp/x"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: decoded settings differ (-want +got):\n%s", name, diff)
		}
	}
}

// What the shell bootstrap of the Terraform module is given is enough.
func TestDecodeTerraform(t *testing.T) {
	t.Parallel()
	got, err := settings.Decode([]string{
		"ETCFS_CLUSTER_NAME=demo", "ETCFS_REGION=eu-west-1", "ETCFS_VOLUME_ID=vol-0123456789abcdef0",
		"ETCFS_SEED_TABLE=demo-etcfs-seed", "ETCFS_VERSION=", "ETCFS_ETCD_VERSION=v3.5.35", "ETCFS_LEASE_TTL=10s", "ETCFS_GITHUB_REPO=etcfs/etcfs",
	})
	want := valid()
	want.EtcdVersion = "v3.5.35"
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	environ, err := valid().Encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func([]string) []string
		want   []string // variable and a word of the reason
	}{
		"misspelt": {add("ETCFS_LEASE_TLL=10s"), []string{"ETCFS_LEASE_TLL: is not a setting"}},
		"no duration": {
			add("ETCFS_LEASE_TTL=10"), []string{`ETCFS_LEASE_TTL: "10" is not a duration`},
		},
		"nothing set": {
			func([]string) []string { return nil },
			[]string{"ETCFS_CLUSTER_NAME: is missing", "ETCFS_REGION: is missing", "ETCFS_VOLUME_ID: is missing", "ETCFS_SEED_TABLE: is missing"},
		},
	}
	for name, test := range tests {
		_, err := settings.Decode(test.change(slices.Clone(environ)))
		invalid, ok := errors.AsType[*settings.InvalidError](err)
		if !ok {
			t.Errorf("%s: got %v, want an InvalidError", name, err)
			continue
		}
		if len(invalid.Problems) != len(test.want) {
			t.Errorf("%s: got problems %v, want %v", name, invalid.Problems, test.want)
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
}

func add(entry string) func([]string) []string {
	return func(environ []string) []string { return append(environ, entry) }
}

func TestEncodeRefusesWhatANodeWould(t *testing.T) {
	t.Parallel()
	s := valid()
	s.VolumeID = ""
	if environ, err := s.Encode(); err == nil {
		t.Errorf("settings without a volume are encoded as %v", environ)
	}
}

// Each rule with both sides of its limit.
func TestRules(t *testing.T) {
	t.Parallel()
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	tests := []struct {
		name           string
		check          func(string) string
		accept, refuse []string
	}{
		{
			"cluster name", settings.CheckClusterName,
			[]string{"abc", "a1-2", strings.Repeat("a", 40), "sgx"},
			[]string{"", "ab", strings.Repeat("a", 41), "1abc", "-abc", "abc-", "aBc", "a_b", "sg-abc", "a.b"},
		},
		{
			"EtcFS release", settings.CheckVersion,
			[]string{"", "latest", "0.35.1", "0.36.0", "1.0.0-rc.1", "10.0.0"},
			[]string{"v0.36.0", "0.35.0", "0.9.9", "0.36", "newest", "0.35.0-rc.1", "0.036.0", "00.36.0", "0.36.0\n"},
		},
		{
			"etcd release", settings.CheckEtcdVersion,
			[]string{"v3.5.20", "v3.5.35", "v3.6.16", "v3.6.0-rc.1"},
			[]string{"", "v3.5.0", "v3.5.19", "3.6.16", "v3.4.30", "v3.7.3", "v3.6", "v3.6.016", "v4.0.0", "latest"},
		},
		{
			"repository", settings.CheckRepository,
			[]string{"etcfs/etcfs", "a-b/c.d_e", "a/.b"},
			[]string{"", "etcfs", "a/b/c", "-a/b", "a/.", "a/..", "https://github.com/etcfs/etcfs"},
		},
		{
			"releases URL", settings.CheckReleasesURL,
			[]string{"https://github.com", "http://127.0.0.1:8080/mirror"},
			[]string{"", "github.com", "ftp://x", "https://", "https://:443", "https://x?y=z", "https://x?", "https://x#y", "https://x#"},
		},
		{
			"lease", func(text string) string {
				ttl, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				return settings.CheckLeaseTTL(ttl)
			},
			[]string{seconds(6).String(), seconds(3600).String()},
			[]string{seconds(5).String(), "5.999s", "6.5s", "0s", "-10s"},
		},
	}
	for _, test := range tests {
		for _, value := range test.accept {
			if reason := test.check(value); reason != "" {
				t.Errorf("%s %q is refused: %s", test.name, value, reason)
			}
		}
		for _, value := range test.refuse {
			if test.check(value) == "" {
				t.Errorf("%s %q is accepted", test.name, value)
			}
		}
	}
}

func TestCheckEtcdSeries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		release, cluster string
		refused          bool
	}{
		{"v3.5.35", "3.5.0", false},
		{"v3.6.16", "3.5.0", false},
		{"v3.6.0-rc.1", "3.6.0", false},
		{"v3.5.35", "3.6.0", true},
		{"v3.6.16", "4.0.0", true},
		{"v3.5.35", "not_decided", false},
		{"v3.5.35", "", false},
		{"", "3.6.0", false},
	} {
		if got := settings.CheckEtcdSeries(tt.release, tt.cluster); (got != "") != tt.refused {
			t.Errorf("%q in a cluster at %q: %q, want refused: %t", tt.release, tt.cluster, got, tt.refused)
		}
	}
}
