package etcfs

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

// Defaults of etcfuse-meta.
const (
	defaultSocket = "/run/etcfuse/etcfuse.sock"
	defaultConfig = "/etc/etcfs/etcfuse-meta.yaml"
	// requestTimeout is what a node's fencing window, twice its lease, has to
	// exceed.
	requestTimeout = 10 * time.Second
)

// metaConfig is the configuration of etcfuse-meta.
type metaConfig struct {
	listen, notifySocket                   string
	endpoints, localEndpoint               string
	nodeID, clusterName, instanceID        string
	leaseTTL                               time.Duration
	logLevel                               int
	blockDevice, volumeID, ebsVolumeID     string
	metricsAddr                            string
	certificate, key, certificateAuthority string
	readOnly, reservations, version        bool
	config                                 string
}

// modes are flags that say what to do rather than how; only the command line
// takes them.
var modes = map[string]bool{"config": true, "version": true}

func (c *metaConfig) flags(release Release) *flag.FlagSet {
	all := flag.NewFlagSet("etcfuse-meta", flag.ContinueOnError)
	all.StringVar(&c.config, "config", defaultConfig, "Path to the YAML configuration file")
	all.BoolVar(&c.version, "version", false, "Show version and exit")
	all.StringVar(&c.listen, "listen", defaultSocket, "Unix domain socket path for the FUSE daemon")
	all.StringVar(&c.notifySocket, "notify-socket", "/run/etcfuse/etcfuse-notify.sock", "Unix socket for cache-invalidation notifications")
	all.StringVar(&c.endpoints, "etcd-endpoints", "http://localhost:2379", "Comma-separated etcd client endpoints")
	all.StringVar(&c.localEndpoint, "etcd-local-endpoint", "", "Endpoint of the etcd member on this node")
	all.StringVar(&c.certificate, "etcd-cert", "", "Path to etcd client certificate")
	all.StringVar(&c.key, "etcd-key", "", "Path to etcd client key")
	all.StringVar(&c.certificateAuthority, "etcd-ca", "", "Path to etcd CA certificate")
	all.StringVar(&c.nodeID, "node-id", "", "Node identifier (default: hostname)")
	all.StringVar(&c.clusterName, "cluster-name", "etcfuse", "EtcFS cluster name")
	all.DurationVar(&c.leaseTTL, "lease-ttl", 10*time.Second, "Membership lease TTL")
	all.IntVar(&c.logLevel, "log-level", 1, "Log level: 0=error, 1=info, 2=debug")
	all.StringVar(&c.blockDevice, "block-device", "", "Block device path for data I/O")
	all.StringVar(&c.volumeID, "volume-id", "", "Volume ID of the shared data volume; overrides --block-device")
	all.StringVar(&c.metricsAddr, "metrics-addr", "", "Metrics HTTP listen address (e.g., :9090)")
	all.StringVar(&c.ebsVolumeID, "ebs-volume-id", "", "Shared EBS volume ID; enables fencing by detaching it from expired nodes")
	all.StringVar(&c.instanceID, "ec2-instance-id", "", "This node's EC2 instance ID")
	all.BoolVar(&c.reservations, "nvme-reservations", false, "Fence peers by NVMe reservations")
	all.BoolVar(&c.readOnly, "read-only", false, "Reject every change with EROFS")
	set := flag.NewFlagSet("etcfuse-meta", flag.ContinueOnError)
	all.VisitAll(func(f *flag.Flag) {
		if release.lists(f) {
			set.Var(f.Value, f.Name, f.Usage)
		}
	})
	return set
}

// parse reads the configuration: a flag beats the environment, which beats the
// file.
func (c *metaConfig) parse(release Release, args []string, stderr io.Writer) error {
	set := c.flags(release)
	set.SetOutput(stderr)
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	file := map[string]any{}
	if release.Config {
		var err error
		if file, err = readConfig(rootfs.Path(rootfs.Root(), c.config), given["config"]); err != nil {
			return err
		}
		for name := range file {
			if set.Lookup(name) == nil || modes[name] {
				return fmt.Errorf("unknown config key %q", name)
			}
		}
	}
	var problems []error
	set.VisitAll(func(f *flag.Flag) {
		if given[f.Name] || modes[f.Name] {
			return
		}
		source := "ETCFS_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(source)
		if raw, in := file[f.Name]; !ok && in {
			source, ok = "config key "+f.Name, true
			value = yamlValue(raw)
		}
		if !ok {
			return
		}
		if err := set.Set(f.Name, value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", source, err))
		}
	})
	return errors.Join(problems...)
}

func readConfig(path string, explicit bool) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !explicit {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read config file: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return values, nil
}

// yamlValue renders a value as a flag takes it: a list with commas.
func yamlValue(raw any) string {
	list, ok := raw.([]any)
	if !ok {
		return fmt.Sprint(raw)
	}
	members := make([]string, len(list))
	for i, member := range list {
		members[i] = fmt.Sprint(member)
	}
	return strings.Join(members, ",")
}

// check refuses what the real daemon refuses before it does anything.
func (c *metaConfig) check() error {
	if window := 2 * c.leaseTTL; window <= requestTimeout {
		return fmt.Errorf("lease-ttl %s gives a %s self-fencing window, at or below the %s request timeout", c.leaseTTL, window, requestTimeout)
	}
	if c.reservations {
		return errors.New("this stand-in has no NVMe reservations")
	}
	if c.nodeID == "" {
		name, err := os.ReadFile(rootfs.Path(rootfs.Root(), "/etc/hostname"))
		if err != nil {
			return fmt.Errorf("get the hostname: %w", err)
		}
		c.nodeID = strings.TrimSpace(string(name))
	}
	return nil
}

// open opens the shared device, nil without one: the daemon then starts, and
// can store nothing.
func (c *metaConfig) open() (*device, error) {
	root, path := rootfs.Root(), c.blockDevice
	if c.volumeID != "" {
		var err error
		if path, err = deviceOf(root, c.volumeID); err != nil {
			return nil, fmt.Errorf("resolve volume %s to a block device: %w", c.volumeID, err)
		}
	}
	if path == "" {
		return nil, nil
	}
	opened, err := openDevice(rootfs.Path(root, path))
	if err != nil {
		return nil, fmt.Errorf("open block device %s: %w", path, err)
	}
	return opened, nil
}

// deviceOf finds a volume's device by the serial number in sysfs.
func deviceOf(root, volumeID string) (string, error) {
	serials, err := filepath.Glob(rootfs.Path(root, "/sys/block/*/device/serial"))
	if err != nil {
		return "", err
	}
	for _, path := range serials {
		serial, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(serial)) == strings.Replace(volumeID, "-", "", 1) {
			return "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(path))), nil
		}
	}
	return "", errors.New("no attached device has its serial")
}
