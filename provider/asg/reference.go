package asg

import (
	"strconv"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// Effect is what changing an input does to a cluster that exists.
type Effect string

// The effects, as docs/reference.md has them. tests/engine proves each.
const (
	// InPlace changes resources as they are; nodes that run are not touched.
	InPlace Effect = "Resources are updated in place; running nodes are not touched."
	// NewNodes makes a new version of the launch template.
	NewNodes Effect = "A new version of the launch template, which new nodes start from; running nodes keep the old one until they are replaced."
	// Replaced makes everything anew, the data volume included.
	Replaced Effect = "Everything is replaced, and the data volume with it: **the data is lost**, unless a snapshot is kept."
	// Moved makes anew what lives in a zone: the volume, the nodes, and what they
	// have agreed on.
	Moved Effect = "The group with its nodes, the seed table and the data volume, which cannot leave its zone, are replaced: **the data is lost**, unless a snapshot is kept."
	// Moves depends on where to.
	Moves Effect = "Within the zone and the VPC, new nodes start in the other subnet and running ones stay. In another zone or VPC the group with its nodes, the seed table and the data volume are replaced: **the data is lost**, unless a snapshot is kept."
	// Disowns takes the nodes' role away.
	Disowns Effect = "A new version of the launch template, which new nodes start from. When it is set for the first time, the role and the profile that were created are deleted: nodes that still run with them lose their permissions at once, so have them replaced."
	// Nothing changes nothing until something else happens.
	Nothing Effect = "Nothing is changed now; it matters when the cluster is destroyed."
)

// Input is what the reference says about an input besides its description.
type Input struct {
	Name string
	// Default is the default's text, "" without one.
	Default string
	Effect  Effect
}

// Inputs lists the inputs in the order of ClusterArgs.
func Inputs() []Input {
	node := settings.Defaults()
	return []Input{
		{"clusterName", "", Replaced},
		{"availabilityZone", "", Moved},
		{"subnetId", "", Moves},
		{"minSize", strconv.Itoa(defaultMinSize), InPlace},
		{"maxSize", strconv.Itoa(defaultMaxSize), InPlace},
		{"desiredCapacity", "", InPlace},
		{"instanceType", defaultInstanceType, NewNodes},
		{"amiId", "", NewNodes},
		{"rootVolumeSize", strconv.Itoa(defaultRootVolumeSize), NewNodes},
		{"keyName", "", NewNodes},
		{"sshIngressCidr", "", InPlace},
		{"instanceProfile", "", Disowns},
		{"volumeSize", strconv.Itoa(defaultVolumeSize), InPlace},
		{"volumeIops", strconv.Itoa(defaultVolumeIOPS), InPlace},
		{"etcfsVersion", node.Version, NewNodes},
		{"etcdVersion", node.EtcdVersion, NewNodes},
		{"leaseTtl", node.LeaseTTL.String(), NewNodes},
		{"githubRepo", node.Repository, NewNodes},
		{"releasesUrl", node.ReleasesURL, NewNodes},
		{"onBootstrapFailure", string(node.OnBootstrapFailure), NewNodes},
		{"recovery", "", NewNodes},
		{"waitForReady", "false", NewNodes},
		{"instanceRefresh", "false", InPlace},
		{"retainVolume", "false", Nothing},
		{"finalSnapshot", "false", InPlace},
		{"alarmActions", "", InPlace},
		{"tags", "", NewNodes},
	}
}

// Limit is something that is accepted of an input, or warned about.
type Limit struct {
	Text string
	// Source is where it comes from, "" when it is the component's own.
	Source string
}

// Limits lists what is accepted of an input.
func Limits(input string) []Limit {
	var list []Limit
	for _, rule := range rules {
		if rule.property == input && rule.accepts != "" {
			list = append(list, Limit{rule.accepts, rule.source})
		}
	}
	return list
}
