package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// Units of the two EtcFS daemons.
const (
	UnitMeta = "etcfuse-meta.service"
	UnitFuse = "etcfuse.service"
)

// configure writes the configuration of the two EtcFS daemons.
//
// The daemons' units are not enabled, and neither is etcd's: after a reboot it
// is the bootstrap that decides whether this node is still a member.
func (b *Bootstrap) configure() phase.Phase {
	// What Run has worked out holds for the question after it: nodes that join
	// in the meantime change the list of endpoints, which is no reason to start
	// over.
	var ran *configuration
	return phase.Phase{
		Name:    PhaseConfigure,
		Timeout: 2 * time.Minute,
		Done: func(ctx context.Context) (bool, error) {
			if installed, err := b.etcfsInstalled(); err != nil || !installed {
				return false, err
			}
			wanted := ran
			if wanted == nil {
				now, err := b.configuration(ctx)
				if err != nil {
					return false, nil //nolint:nilerr // Run asks again, with patience
				}
				wanted = &now
			}
			return b.configured(*wanted)
		},
		Run: func(ctx context.Context) error {
			var wanted configuration
			err := phase.Poll(ctx, phase.Local, func(ctx context.Context) (err error) {
				wanted, err = b.configuration(ctx)
				if _, unusable := errors.AsType[*unusableDaemonError](err); unusable {
					return phase.Permanent(err)
				}
				return err
			})
			if err != nil {
				return err
			}
			if wanted.shared == "" {
				err = os.Remove(b.path(settings.MetaConfigFile))
				if errors.Is(err, fs.ErrNotExist) {
					err = nil
				}
			} else {
				err = b.writeFile(settings.MetaConfigFile, wanted.shared, 0o644)
			}
			if err != nil {
				return err
			}
			if err := b.Services.Install(ctx, wanted.units...); err != nil {
				return err
			}
			ran = &wanted
			return nil
		},
	}
}

// configuration is the content of every file that configure writes.
type configuration struct {
	// shared is etcfuse-meta's configuration file, "" when the installed
	// release takes everything as flags.
	shared string
	units  []systemd.File
}

func (b *Bootstrap) configured(wanted configuration) (bool, error) {
	got, err := os.ReadFile(b.path(settings.MetaConfigFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read the node's configuration: %w", err)
	}
	if string(got) != wanted.shared {
		return false, nil
	}
	return b.Services.Installed(wanted.units...)
}

// configuration works out what the files have to say.
func (b *Bootstrap) configuration(ctx context.Context) (configuration, error) {
	accepts, err := b.daemonFlags(ctx, "etcfuse-meta")
	if err != nil {
		return configuration{}, err
	}
	endpoints, err := b.endpoints(ctx)
	if err != nil {
		return configuration{}, err
	}
	device := ""
	if !accepts["volume-id"] {
		if device, err = findDevice(b.Root, b.Settings.VolumeID); err != nil {
			return configuration{}, err
		}
	}
	shared, own := metaOptions(b.Settings, b.Node, endpoints, device)
	if err := accepts.check(shared, own); err != nil {
		return configuration{}, err
	}
	config, dropIn, err := metaConfig(accepts, shared, own)
	if err != nil {
		return configuration{}, err
	}
	return configuration{
		shared: config,
		units: []systemd.File{
			systemd.DropIn(UnitMeta, dropIn),
			systemd.DropIn(UnitFuse, fuseDropIn(b.Node.ID(b.Settings.ClusterName))),
		},
	}, nil
}

// endpoints are the client addresses of the etcd members: this node's first,
// then the others'.
func (b *Bootstrap) endpoints(ctx context.Context) ([]string, error) {
	own := etcd.ClientURL(b.Node.PrivateIP)
	members, err := b.Etcd.Members(ctx, []string{own})
	if err != nil {
		return nil, err
	}
	return endpointsFrom(own, members), nil
}

func endpointsFrom(own string, members []membership.Member) []string {
	var others []string
	for _, member := range members {
		for _, url := range member.ClientURLs { // none while it has not started
			if url != own {
				others = append(others, url)
			}
		}
	}
	slices.Sort(others)
	return append([]string{own}, slices.Compact(others)...)
}

// option is one setting of etcfuse-meta. It is a flag, and in newer releases a
// key of the configuration file too.
type option struct {
	name     string
	value    any // a string, or a list of them
	required bool
}

// metaOptions are the settings of etcfuse-meta: those that every node shares
// and those that are this node's own. The device is given for releases that
// cannot find the volume by its ID.
func metaOptions(s settings.Settings, n Node, endpoints []string, device string) (shared, own []option) {
	shared = []option{
		{name: "listen", value: settings.SocketFile},
		{name: "etcd-endpoints", value: endpoints, required: true},
		{name: "cluster-name", value: s.ClusterName, required: true},
		{name: "lease-ttl", value: s.LeaseTTL.String(), required: true},
	}
	if device == "" {
		// The daemon resolves it at each start, so it survives a new name.
		shared = append(shared, option{name: "volume-id", value: s.VolumeID, required: true})
	} else {
		shared = append(shared, option{name: "block-device", value: device, required: true})
	}
	shared = append(shared,
		// Peers fence a node that is gone by detaching the volume from it.
		option{name: "ebs-volume-id", value: s.VolumeID},
		option{name: "metrics-addr", value: fmt.Sprintf(":%d", settings.MetricsPort)},
	)
	own = []option{
		{name: "node-id", value: n.ID(s.ClusterName), required: true},
		{name: "ec2-instance-id", value: n.InstanceID},
		{name: "etcd-local-endpoint", value: etcd.ClientURL(n.PrivateIP)},
	}
	return shared, own
}

// metaConfig renders the options that the daemon accepts. With a configuration
// file, the shared ones go there and the node's own on the command line, which
// would win over the file; without, all are flags. No option is in both.
func metaConfig(accepts flags, shared, own []option) (config, dropIn string, err error) {
	if accepts["config"] {
		if config, err = yamlFile(accepts.only(shared)); err != nil {
			return "", "", err
		}
		return config, metaDropIn(accepts.only(own)), nil
	}
	return "", metaDropIn(accepts.only(append(shared, own...))), nil
}

const generated = "# Written by etcfs-bootstrap; changes are overwritten at the next boot.\n"

func yamlFile(options []option) (string, error) {
	mapping := &yaml.Node{Kind: yaml.MappingNode} // keeps the order
	for _, o := range options {
		var key, value yaml.Node
		key.SetString(o.name)
		if err := value.Encode(o.value); err != nil {
			return "", fmt.Errorf("encode option %s: %w", o.name, err)
		}
		mapping.Content = append(mapping.Content, &key, &value)
	}
	content, err := yaml.Marshal(mapping)
	if err != nil {
		return "", fmt.Errorf("encode the configuration of etcfuse-meta: %w", err)
	}
	return generated + string(content), nil
}

// metaDropIn gives etcfuse-meta its options. It has the volume attached before
// each start: others detach it from a node that they have lost sight of, and
// such a node would never mount again by itself.
func metaDropIn(options []option) string {
	command := []string{filepath.Join(binDir, "etcfuse-meta")}
	for _, o := range options {
		value := o.value
		if list, ok := value.([]string); ok {
			value = strings.Join(list, ",")
		}
		command = append(command, fmt.Sprintf("--%s=%s", o.name, value))
	}
	return generated + "[Service]\nExecStartPre=" + settings.BootstrapBinary + " attach\nExecStart=\nExecStart=" + strings.Join(command, " ") + "\n"
}

// fuseDropIn gives etcfuse the node's ID in place of the host's name. One that
// was killed has left its mount behind, over which none can be mounted again.
func fuseDropIn(nodeID string) string {
	return generated + fmt.Sprintf("[Service]\nExecStartPre=-/usr/bin/umount --lazy --quiet %s\nExecStart=\nExecStart=%s --socket=%s --node-id=%s --log-level=1 %s\n",
		settings.MountPoint, filepath.Join(binDir, "etcfuse"), settings.SocketFile, nodeID, settings.MountPoint)
}

// flags are the flags that an installed daemon lists in its --help.
type flags map[string]bool

// unusableDaemonError says that the installed daemon lacks a flag that this
// node cannot do without.
type unusableDaemonError struct{ missing []string }

func (e *unusableDaemonError) Error() string {
	return fmt.Sprintf("the installed etcfuse-meta does not list --%s in its --help: this release cannot be used",
		strings.Join(e.missing, ", --"))
}

var flagPattern = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--?([a-z][a-z0-9-]*)`)

// daemonFlags asks an installed daemon what it supports. A release does not
// refuse a configuration file that it never heard of, it just never reads it:
// it would come up with defaults, open no device and fence nobody.
func (b *Bootstrap) daemonFlags(ctx context.Context, name string) (flags, error) {
	// Go's flag package prints the help to standard error, others do not, and
	// the exit status differs too.
	out, err := b.ask(ctx, name, "--help")
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return nil, fmt.Errorf("learn what the daemon supports: %w", err)
	}
	return parseFlags(out), nil
}

func parseFlags(help string) flags {
	list := flags{}
	for _, match := range flagPattern.FindAllStringSubmatch(help, -1) {
		list[match[1]] = true
	}
	return list
}

// check reports the required options that the daemon does not know.
func (f flags) check(options ...[]option) error {
	var missing []string
	for _, o := range slices.Concat(options...) {
		if o.required && !f[o.name] {
			missing = append(missing, o.name)
		}
	}
	if missing == nil {
		return nil
	}
	return &unusableDaemonError{missing}
}

// only returns the options that the daemon knows.
func (f flags) only(options []option) []option {
	return slices.DeleteFunc(slices.Clone(options), func(o option) bool { return !f[o.name] })
}
