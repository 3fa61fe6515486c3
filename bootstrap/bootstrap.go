// Package bootstrap turns a fresh instance into a node of an EtcFS cluster, and
// brings a node back after a reboot. What it does, in order, is in sequence.go;
// each phase has a file of its own.
package bootstrap

import (
	"log/slog"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	nodeaws "github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/install"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/bootstrap/systemd"
)

// Bootstrap makes one node. Its fields are what the node was told, what it
// found out, and the outside world.
type Bootstrap struct {
	// Settings is what the node was told.
	Settings settings.Settings
	// Node is what it found out; the identify phase fills it in.
	Node Node
	// Root prefixes every path that is read or written, "" on a real machine.
	// What is written into files names paths without it.
	Root   string
	Logger *slog.Logger

	Metadata Metadata
	Download *install.Downloader
	Release  ReleasePin
	Volume   Volume
	Seed     SeedTable
	Group    Group
	Etcd     Etcd
	Registry Registry
	Units    Units
	Services Services
	Health   Health
	Launch   Launch

	seen observer
}

// New makes a bootstrap for this machine that talks to AWS with the given
// configuration.
func New(s settings.Settings, root string, logger *slog.Logger, cfg aws.Config) *Bootstrap {
	machines := ec2.NewFromConfig(cfg)
	table := nodeaws.SeedTable{DynamoDB: dynamodb.NewFromConfig(cfg), Table: s.SeedTable, Cluster: s.ClusterName}
	manager := &systemd.Manager{Root: root}
	groups := autoscaling.NewFromConfig(cfg)
	metadata := imds.NewFromConfig(cfg, func(o *imds.Options) { o.EnableFallback = aws.FalseTernary }) // never version 1
	return &Bootstrap{
		Settings: s,
		Root:     root,
		Logger:   logger,
		Metadata: nodeaws.Metadata{API: metadata},
		Download: install.NewDownloader(logger, install.DefaultPace),
		Release:  table,
		Volume:   &nodeaws.Volume{API: machines, ID: s.VolumeID, Logger: logger},
		Seed:     table,
		Group:    nodeaws.Group{EC2: machines, Cluster: s.ClusterName},
		Etcd:     etcd.Cluster{},
		Registry: etcd.Cluster{},
		Units:    manager,
		Services: manager,
		Health:   nodeaws.Health{API: groups},
		Launch:   nodeaws.Launch{API: groups, Hook: s.LaunchHook},
	}
}

// path is where a path of the node is on this machine.
func (b *Bootstrap) path(path string) string { return filepath.Join(b.Root, path) }
