// Package ec2 is the region's Elastic Compute Cloud: instances on real
// machines, io2 Multi-Attach volumes backed by files, launch templates,
// security groups, and one default VPC with a default subnet in each of three
// zones and a second subnet in the first of them.
//
// State is kept across calls and every call is authorized on the resources and
// with the condition keys of AWS's service authorization reference. Creation
// calls honour client tokens, so a retry after a lost answer creates nothing
// twice. A parameter that is not modelled is refused by name.
//
// Not modelled: security groups filter nothing (machines share loopback or one
// bridge), root volumes and their block device mappings are described but do
// not exist, an instance's public address is its private one and is had in
// default subnets only, instances are launched by the Auto Scaling service
// only, stopped instances do not start again, there are no key pairs, no data in
// snapshots, no spot instances, no network interfaces but the first, and no
// eventual consistency.
//
// Errors whose exact code AWS does not document, and which are a best guess:
// the 17th attachment of a Multi-Attach volume (VolumeInUse), the second one
// to the same instance (VolumeInUse), Multi-Attach to an instance that is not
// on the Nitro system (UnsupportedOperation), and a detachment that does not
// say from which of several instances (InvalidParameterCombination).
package ec2
