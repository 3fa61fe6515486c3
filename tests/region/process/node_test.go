package process_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/apitest"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
	"github.com/etcfs/pulumi-etcfs/tests/region/release"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
)

// setUp is what sets a node up here: by hand, in shell, from the release
// server, with the commands of a real node.
const setUp = `#!/bin/sh
set -eux
root=$ETCFS_ROOT
mkdir -p $root/var/cache $root/mnt/etcfuse $root/etc/etcfs $root/run/etcfuse
cd $root/var/cache
fetch() { curl -sSfLO "$releases/$1"; }
dnf install -y fuse3-libs
fetch etcfs/etcfs/releases/download/v0.36.0/checksums.txt
for p in etcfuse etcfuse-meta etcfsctl; do fetch etcfs/etcfs/releases/download/v0.36.0/$p-0.36.0-1.x86_64.rpm; done
sha256sum -c checksums.txt
dnf install -y ./etcfuse-0.36.0-1.x86_64.rpm ./etcfuse-meta-0.36.0-1.x86_64.rpm ./etcfsctl-0.36.0-1.x86_64.rpm
fetch etcd-io/etcd/releases/download/v3.6.16/SHA256SUMS
fetch etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz
sha256sum -c --ignore-missing SHA256SUMS
tar -xzf etcd-v3.6.16-linux-amd64.tar.gz --strip-components=1 -C $root/usr/local/bin

token=$(curl -sSf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/api/token)
ip=$(curl -sSf -H "X-aws-ec2-metadata-token: $token" $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/meta-data/local-ipv4)
id=$(curl -sSf -H "X-aws-ec2-metadata-token: $token" $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/meta-data/instance-id)

cat > $root/etc/systemd/system/etcd.service <<UNIT
[Unit]
Description=etcd
After=network-online.target
[Service]
Type=notify
ExecStart=/usr/local/bin/etcd --name=$ip \
  --data-dir=/var/lib/etcd --wal-dir=/var/lib/etcd-wal \
  --listen-client-urls=http://$ip:2379 --advertise-client-urls=http://$ip:2379 \
  --listen-peer-urls=http://$ip:2380 --initial-advertise-peer-urls=http://$ip:2380 \
  --initial-cluster=$cluster --initial-cluster-state=new --log-level=warn
Restart=on-failure
[Install]
WantedBy=multi-user.target
UNIT
cat > $root/etc/etcfs/etcfuse-meta.yaml <<CONFIG
etcd-endpoints: [$endpoints]
cluster-name: demo
lease-ttl: 6s
volume-id: vol-0123456789abcdef0
metrics-addr: ":9090"
ebs-volume-id: vol-0123456789abcdef0
CONFIG
mkdir -p $root/etc/systemd/system/etcfuse-meta.service.d
cat > $root/etc/systemd/system/etcfuse-meta.service.d/50.conf <<DROPIN
[Service]
ExecStart=
ExecStart=/usr/local/bin/etcfuse-meta --node-id=demo-$ip --ec2-instance-id=$id
DROPIN
mkdir -p $root/etc/systemd/system/etcfuse.service.d
printf '[Service]\nRestartSec=100ms\n[Unit]\nStartLimitBurst=0\n' > $root/etc/systemd/system/etcfuse.service.d/50.conf
systemctl daemon-reload
systemctl enable --now etcd.service
systemctl enable --now etcfuse-meta.service
until [ -S $root/run/etcfuse/etcfuse.sock ]; do sleep 0.05; done
systemctl enable --now etcfuse.service
until mountpoint -q $root/mnt/etcfuse; do sleep 0.05; done
echo "mounted after $(cut -d' ' -f1 /proc/uptime)"
`

// cluster is machines that set themselves up.
type cluster struct {
	*world
	nodes []*process.Machine
	ips   []string
	// detached receives the instances that the volume is detached from.
	detached chan string
}

// ec2 is as much of EC2 as fencing needs.
func (c *cluster) ec2() *api.Service {
	return &api.Service{Name: "ec2", Protocol: api.EC2Query, Operations: map[string]api.Operation{
		"DetachVolume": func(_ context.Context, call *api.Call) (any, error) {
			c.detached <- call.Params.Get("VolumeId") + " " + call.Params.Get("InstanceId")
			return nil, call.AuthorizeOn()
		},
		"DescribeVolumes": func(_ context.Context, call *api.Call) (any, error) { return nil, call.AuthorizeOn() },
	}}
}

// newCluster boots machines that form one etcd cluster and mount.
func newCluster(t *testing.T, size int) *cluster {
	t.Helper()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of etcd and etcdctl (make test sets it)")
	}
	var releases release.Server
	if err := releases.PublishEtcFS(etcfs.Release{Version: "0.36.0", Config: true, VolumeID: true}); err != nil {
		t.Fatal(err)
	}
	if err := releases.PublishEtcd("v3.6.16", filepath.Join(tools, "etcd"), filepath.Join(tools, "etcdctl"), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&releases)
	t.Cleanup(server.Close)

	c := &cluster{detached: make(chan string, 10)}
	endpoint := apitest.New(t, c.ec2())
	c.world = newWorld(t, func(config *process.Config) { config.Endpoint = endpoint.URL })
	volume := filepath.Join(t.TempDir(), "volume")
	if err := os.WriteFile(volume, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(volume, 10<<30); err != nil {
		t.Fatal(err)
	}
	var members, endpoints []string
	for i := range size {
		ip := strings.TrimSuffix(c.network.Gateway(), "1") + fmt.Sprint(10+i)
		c.ips = append(c.ips, ip)
		members = append(members, fmt.Sprintf("%s=http://%s:2380", ip, ip))
		endpoints = append(endpoints, fmt.Sprintf("http://%s:2379", ip))
	}
	settings := fmt.Sprintf("#!/bin/sh\nexport releases=%s cluster=%s endpoints=%s\n", server.URL, strings.Join(members, ","), strings.Join(endpoints, ","))
	for range size {
		node := c.boot(t, strings.Replace(setUp, "#!/bin/sh\n", settings, 1))
		if err := node.Attach("vol-0123456789abcdef0", volume); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, node)
	}
	for _, node := range c.nodes {
		if problems := finished(t, node); len(problems) > 0 {
			t.Fatalf("set-up failed: %v", problems)
		}
	}
	return c
}

func (c *cluster) get(path string, node int) (string, error) {
	response, err := http.Get("http://" + c.ips[node] + ":" + path) //nolint:noctx // on loopback
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

func TestOneNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	node := c.nodes[0]
	if got, err := c.get("2379/health", 0); err != nil || !strings.Contains(got, `"health":"true"`) {
		t.Errorf("etcd's health is %q, %v", got, err)
	}
	if got, err := c.get("9090/metrics", 0); err != nil || !strings.Contains(got, "etcfs_membership_alive") {
		t.Errorf("metrics are %q, %v", got, err)
	}
	if got, want := run(t, node, "etcfsctl --etcd-endpoints=http://"+c.ips[0]+":2379 status"), "demo-"+c.ips[0]; !strings.Contains(got, want) {
		t.Errorf("etcfsctl says %q, want %q in it", got, want)
	}
	run(t, node, "echo kept > $ETCFS_ROOT/mnt/etcfuse/file && etcdctl --endpoints=http://"+c.ips[0]+":2379 put key value")

	for _, boot := range []struct {
		name  string
		again func(context.Context) error
	}{{"reboot", node.Reboot}, {"power cycle", node.PowerCycle}} {
		eventually(t, "the file in the cluster", func() error {
			status := run(t, node, "etcfsctl --etcd-endpoints=http://"+c.ips[0]+":2379 status")
			if !strings.Contains(status, "files: 1") {
				return errors.New(status)
			}
			return nil
		})
		if err := boot.again(t.Context()); err != nil {
			t.Fatal(err)
		}
		if mounted, err := etcfs.Mounted(node.Root(), "/mnt/etcfuse"); err != nil || mounted {
			t.Errorf("right after a %s it is mounted: %t, %v", boot.name, mounted, err)
		}
		eventually(t, "the mount after a "+boot.name, func() error {
			result, err := node.Execute(t.Context(), "mountpoint $ETCFS_ROOT/mnt/etcfuse && cat $ETCFS_ROOT/mnt/etcfuse/file && etcdctl --endpoints=http://"+c.ips[0]+":2379 get --print-value-only key")
			if err != nil {
				return err
			}
			if result.ExitCode != 0 || !strings.HasSuffix(result.Stdout, "is a mountpoint\nkept\nvalue\n") {
				return fmt.Errorf("%+v", result)
			}
			return nil
		})
	}
	if err := node.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := survivors(t, node.Root()); got != nil {
		t.Errorf("survivors: %q", got)
	}
}

func TestThreeNodes(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := newCluster(t, 3)
	t.Logf("three nodes mounted after %s", time.Since(start))
	run(t, c.nodes[0], "echo hello > $ETCFS_ROOT/mnt/etcfuse/greeting")
	for i := range c.nodes {
		eventually(t, fmt.Sprintf("the file on node %d", i), func() error {
			data, err := os.ReadFile(filepath.Join(c.nodes[i].Root(), "mnt/etcfuse/greeting"))
			if err != nil {
				return err
			}
			if string(data) != "hello\n" {
				return fmt.Errorf("it reads %q", data)
			}
			return nil
		})
	}
	run(t, c.nodes[1], "rm $ETCFS_ROOT/mnt/etcfuse/greeting")
	eventually(t, "the end of the file on node 2", func() error {
		if _, err := os.Stat(filepath.Join(c.nodes[2].Root(), "mnt/etcfuse/greeting")); !errors.Is(err, os.ErrNotExist) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})

	// One that leaves in order is not fenced; one that dies is, once, by the
	// detaching of the volume from its instance.
	run(t, c.nodes[1], "systemctl stop etcfuse etcfuse-meta")
	if err := c.nodes[2].Kill(); err != nil {
		t.Fatal(err)
	}
	if got, want := <-c.detached, "vol-0123456789abcdef0 i-00000000000000003"; got != want {
		t.Errorf("detached %q, want %q", got, want)
	}
	eventually(t, "the end of the fencing", func() error {
		result, err := c.nodes[0].Execute(t.Context(), "journalctl -u etcfuse-meta -o cat | grep 'msg=fenced node=demo-"+c.ips[2]+"'")
		if err == nil && result.ExitCode != 0 {
			err = errors.New("not yet")
		}
		return err
	})

	// Without the second one too, the last one cannot renew its lease and
	// fences itself, with an exit status of its own.
	if err := c.nodes[1].Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the self-fencing", func() error {
		result, err := c.nodes[0].Execute(t.Context(), "journalctl -u etcfuse-meta -o cat")
		if err != nil {
			return err
		}
		if !strings.Contains(result.Stdout, "status=77") {
			return errors.New(result.Stdout)
		}
		return nil
	})
	eventually(t, "the end of the fenced node's mount", func() error {
		mounted, err := etcfs.Mounted(c.nodes[0].Root(), "/mnt/etcfuse")
		if mounted {
			err = errors.New("still mounted")
		}
		return err
	})
	select {
	case got := <-c.detached:
		t.Errorf("detached %q too", got)
	default:
	}
}
