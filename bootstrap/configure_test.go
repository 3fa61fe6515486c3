package bootstrap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// helpFlags are the flags of the present release, as Go's flag package lists
// them.
var helpFlags = []string{
	"block-device string", "cluster-name string", "config string", "ebs-volume-id string", "ec2-instance-id string",
	"etcd-endpoints string", "etcd-local-endpoint string", "fsck", "lease-ttl string", "listen string",
	"log-level int", "metrics-addr string", "node-id string", "volume-id string",
}

// installMeta installs a daemon that lists the given flags in its help, and
// exits as Go's flag package does for an unknown -h.
func installMeta(t *testing.T, b *Bootstrap, flags ...string) {
	t.Helper()
	help := "Usage of etcfuse-meta:\n"
	for _, flag := range flags {
		help += fmt.Sprintf("  -%s\n    \tWhat --%s-like it does, e.g. --unlisted=1\n", flag, flag)
	}
	put(t, b, "/usr/local/bin/etcfuse-meta", "#!/bin/sh\n[ \"$1\" = --help ] || exit 9\ncat >&2 <<'END'\n"+help+"END\nexit 2\n", 0o755)
	put(t, b, "/usr/local/bin/etcfuse", "", 0o755)
	put(t, b, "/usr/local/bin/etcfsctl", "", 0o755)
	put(t, b, releaseFile, b.Settings.Version+"\n", 0o644)
}

func without(flags []string, names ...string) []string {
	var rest []string
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, " ")
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
			rest = append(rest, flag)
		}
	}
	return rest
}

// The files that configure writes, and those that it may have to remove.
var configFiles = []string{
	settings.MetaConfigFile,
	"/etc/systemd/system/etcfuse-meta.service.d/50-etcfs-bootstrap.conf",
	"/etc/systemd/system/etcfuse.service.d/50-etcfs-bootstrap.conf",
}

func written(t *testing.T, b *Bootstrap) string {
	t.Helper()
	var all strings.Builder
	for _, path := range configFiles {
		data, err := os.ReadFile(b.path(path))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "==> %s\n%s\n", path, data)
	}
	return all.String()
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"config-file":                    helpFlags,
		"config-file-without-volume-id":  without(helpFlags, "volume-id"),
		"config-file-without-later-keys": without(helpFlags, "etcd-local-endpoint", "metrics-addr"),
		"flags":                          without(helpFlags, "config"),
		"flags-without-volume-id":        without(helpFlags, "config", "volume-id"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, daemons := newNode(t)
			disk(t, b, "nvme1n1", ebsModel, testSerial)
			byID(t, b, ebsLink, "nvme1n1")
			installMeta(t, b, flags...)
			twice(t, b, b.configure())

			if len(daemons.enabled) != 0 {
				t.Errorf("enabled are %v, want no daemon's unit", daemons.enabled)
			}
			got := written(t, b)
			golden(t, name, got)
			if strings.Contains(got, b.Root) {
				t.Error("the root folder is in a file")
			}
			checkOnce(t, b, flags)

			// Half done: one file is missing, or differs.
			for _, path := range configFiles {
				if _, err := os.Stat(b.path(path)); err != nil {
					continue
				}
				put(t, b, path, "something else", 0o644)
				twice(t, b, b.configure())
				if err := os.Remove(b.path(path)); err != nil {
					t.Fatal(err)
				}
				twice(t, b, b.configure())
			}
			if after := written(t, b); after != got {
				t.Errorf("the files differ after repairs:\n%s", cmp.Diff(got, after))
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "configure", name+".golden")
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s was rewritten; review it and run without -rewrite-golden", path)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// checkOnce checks that no setting of etcfuse-meta is given twice, and none
// that the daemon does not list.
func checkOnce(t *testing.T, b *Bootstrap, flags []string) {
	t.Helper()
	listed := map[string]bool{}
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, " ")
		listed[name] = true
	}
	file, _ := os.ReadFile(b.path(settings.MetaConfigFile))
	given := regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(file), -1)
	given = append(given, regexp.MustCompile(`--([a-z0-9-]+)=`).FindAllStringSubmatch(content(t, b, configFiles[1]), -1)...)
	seen := map[string]bool{}
	for _, match := range given {
		name := match[1]
		if seen[name] {
			t.Errorf("%s is given twice", name)
		}
		if !listed[name] {
			t.Errorf("%s is given, but the daemon does not list it", name)
		}
		seen[name] = true
	}
	if len(seen) == 0 {
		t.Error("no setting was found")
	}
}

func TestConfigureAfterAnUpgradeToConfigFiles(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	installMeta(t, b, helpFlags...)
	twice(t, b, b.configure())
	installMeta(t, b, without(helpFlags, "config")...)
	twice(t, b, b.configure())
	if _, err := os.Stat(b.path(settings.MetaConfigFile)); !os.IsNotExist(err) {
		t.Errorf("a configuration file is left beside the flags: %v", err)
	}
	installMeta(t, b, helpFlags...)
	twice(t, b, b.configure())
}

// growing is an etcd cluster that another node joins each time it is asked.
type growing struct {
	Etcd
	asked *int
}

func (g growing) Members(context.Context, []string) ([]membership.Member, error) {
	*g.asked++
	list := make([]membership.Member, *g.asked)
	for i := range list {
		list[i].ClientURLs = []string{fmt.Sprintf("http://10.0.1.%d:2379", i)}
	}
	return list, nil
}

func TestConfigureWhileOthersJoin(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	installMeta(t, b, helpFlags...)
	b.Etcd = growing{asked: new(int)}
	if err := runPhase(t, b, b.configure()); err != nil {
		t.Error(err)
	}
}

func TestConfigureRefusesADaemonThatLacksAFlag(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	installMeta(t, b, without(helpFlags, "lease-ttl", "node-id")...)
	err := runPhase(t, b, b.configure())
	if err == nil || !strings.Contains(err.Error(), "does not list --lease-ttl, --node-id in its --help") {
		t.Errorf("got error %v, want one that names both", err)
	}
	if got := written(t, b); got != "" {
		t.Errorf("something was written all the same:\n%s", got)
	}
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	for name, help := range map[string]string{
		"Go's flag package": "Usage of x:\n  -config string\n    \tuse -like --other here\n  -node-id string\n    \tID\n",
		"GNU":               "Usage: x [OPTION]\n      --config=FILE   file\n  -n, --node-id=ID   see --other\n",
	} {
		got := parseFlags(help)
		if len(got) != 2 || !got["config"] || !got["node-id"] {
			t.Errorf("%s: got %v, want config and node-id", name, got)
		}
	}
}

func TestEnvironmentIsKept(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	if got, err := ReadEnvironment(b.Root); err != nil || got != nil {
		t.Errorf("before the first run: got %v, %v", got, err)
	}
	b.Settings.ReleasesURL = `https://mirror/a"b\c`
	b.Settings.OnBootstrapFailure = settings.FailureKeep
	want, err := b.Settings.Encode()
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, settings.EnvironmentFile, environmentFile(want), 0o644)
	got, err := ReadEnvironment(b.Root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if decoded, err := settings.Decode(got); err != nil || decoded != b.Settings {
		t.Errorf("got %+v, %v, want %+v", decoded, err, b.Settings)
	}
}
