// Package settings is what the component and the node agree on: the settings
// that travel in the user data, and the names, tags, ports and paths that both
// sides must spell alike.
//
// The component encodes a [Settings] into the launch template's user data, the
// bootstrap binary decodes it on the node. Both call [Settings.Validate], so a
// value that a node would refuse at boot is refused at preview. The package
// uses the standard library only: it is compiled into the provider.
package settings

import (
	"time"
)

// Settings is everything a node is told. Each field is one environment
// variable, named as the shell bootstrap of the Terraform module names it, so
// one binary serves every launch template and a roll-out by hand.
type Settings struct {
	// ClusterName names the cluster: the ClusterName tag of its instances, the
	// key of its seed item and EtcFS's own cluster name.
	ClusterName string `env:"ETCFS_CLUSTER_NAME"`

	// Region is the AWS Region of the cluster.
	Region string `env:"ETCFS_REGION"`

	// VolumeID is the shared io2 Multi-Attach volume (vol-…).
	VolumeID string `env:"ETCFS_VOLUME_ID"`

	// SeedTable is the DynamoDB table that holds the cluster's seed item.
	SeedTable string `env:"ETCFS_SEED_TABLE"`

	// Version is the EtcFS release to install, without a leading "v". Empty or
	// "latest" means the newest release at the time the cluster's first node
	// installs; every later node follows that one.
	Version string `env:"ETCFS_VERSION"`

	// EtcdVersion is the etcd release to install, with its leading "v".
	EtcdVersion string `env:"ETCFS_ETCD_VERSION"`

	// LeaseTTL is the time to live of a node's membership lease in etcd. A node
	// that cannot renew it for that long is fenced.
	LeaseTTL time.Duration `env:"ETCFS_LEASE_TTL"`

	// Repository is the GitHub repository, owner/name, whose releases hold the
	// EtcFS packages.
	Repository string `env:"ETCFS_GITHUB_REPO"`

	// ReleasesURL is the base URL that releases are fetched from; a mirror
	// keeps the layout of github.com below it
	// (<owner>/<name>/releases/download/<tag>/<file>).
	ReleasesURL string `env:"ETCFS_RELEASES_URL"`

	// OnBootstrapFailure says what becomes of an instance whose bootstrap
	// failed.
	OnBootstrapFailure FailurePolicy `env:"ETCFS_ON_BOOTSTRAP_FAILURE"`

	// LaunchHook is the launching lifecycle hook that the instance's group waits
	// for, and that the node completes once it has mounted. Empty when the group
	// does not wait.
	LaunchHook string `env:"ETCFS_LAUNCH_HOOK"`

	// Recovery, when [RecoveryReform], accepts that the metadata of a cluster
	// that once formed is lost, and with it every file on the volume.
	Recovery Recovery `env:"ETCFS_RECOVERY"`
}

// FailurePolicy says what becomes of an instance whose bootstrap failed.
type FailurePolicy string

const (
	// FailureReplace reports the instance unhealthy to its Auto Scaling Group,
	// which terminates and replaces it.
	FailureReplace FailurePolicy = "replace"
	// FailureKeep leaves the instance as it is, for study.
	FailureKeep FailurePolicy = "keep"
)

// Recovery is what the user has accepted after all of a cluster's metadata was
// lost.
type Recovery string

const (
	// RecoveryNone accepts nothing: a node that finds a formed cluster of which
	// no member answers refuses to form another.
	RecoveryNone Recovery = ""
	// RecoveryReform lets such a node form an empty etcd; the files on the
	// volume are lost.
	RecoveryReform Recovery = "reform"
)

// Defaults returns the settings that have a safe default, with it.
func Defaults() Settings {
	return Settings{
		Version:            LatestVersion,
		EtcdVersion:        "v3.6.16",
		LeaseTTL:           10 * time.Second,
		Repository:         "etcfs/etcfs",
		ReleasesURL:        "https://github.com",
		OnBootstrapFailure: FailureReplace,
	}
}

// LatestVersion asks for the newest release instead of a fixed one.
const LatestVersion = "latest"

// Tag keys and values that mark the instances of a cluster.
const (
	TagClusterName = "ClusterName"
	TagRole        = "Role"
	RoleNode       = "etcfs-node"
)

// Ports that the nodes of a cluster open to one another.
const (
	EtcdClientPort   = 2379
	EtcdPeerPort     = 2380
	MetricsPort      = 9090
	NodeExporterPort = 9100
)

// Paths on a node.
const (
	BootstrapBinary = "/usr/local/bin/etcfs-bootstrap"
	// EnvironmentFile keeps the node's settings for the boots after the first
	// one, when no user data runs.
	EnvironmentFile = "/etc/etcfs/bootstrap.env"
	LogFile         = "/var/log/etcfs-bootstrap.log"
	MetaConfigFile  = "/etc/etcfs/etcfuse-meta.yaml"
	SocketFile      = "/run/etcfuse/etcfuse.sock"
	MountPoint      = "/mnt/etcfuse"
	EtcdDataDir     = "/var/lib/etcd"
	EtcdWALDir      = "/var/lib/etcd-wal"
)

// RootVariable names the environment variable that prefixes every path a node
// reads or writes; empty on a real machine. It is no setting of the cluster.
const RootVariable = "ETCFS_ROOT"

// SeedTableName is the name of a cluster's seed table.
func SeedTableName(clusterName string) string { return clusterName + "-etcfs-seed" }

// MaxNodes is how many instances may attach one Multi-Attach volume at a time:
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html
const MaxNodes = 16
