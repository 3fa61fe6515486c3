package bootstrap

import (
	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

// Node is what an instance found out about itself, as opposed to what it was
// told in its settings.
type Node aws.Identity

// ID is the node's name in EtcFS and of its etcd member.
func (n Node) ID(clusterName string) string { return membership.NodeID(clusterName, n.InstanceID) }
