// Package awsplugin is a stand-in for the Pulumi resource plugin of AWS,
// version 6.83.4: it provisions the aws:* resources that the cluster component
// uses by calling the APIs of AWS with the AWS SDK, so that a Pulumi program
// meant for AWS runs unchanged against tests/region on a machine that cannot
// download the real plugin.
//
// [Resources] is the table of what it knows. Each resource is a struct whose
// tags declare its properties, spelled as in the real plugin's SDK (a test
// holds them against it), and a handful of functions that call AWS. What the
// real plugin does for every resource alike is in this package's plan, diff and
// check: physical names made of the logical name and seven random hex digits,
// previews in which what AWS decides is unknown, replacements, properties
// whose order or formatting means nothing, state kept after a half failure,
// waiting until a thing is there or gone.
//
// What it does not model: GetSchema, import by anything but the ID, resources
// and inputs that the component does not use (Check refuses these by name),
// and AWS's eventual consistency, which the region does not have.
package awsplugin

// Version is the version of the real plugin that this one stands in for. It
// must be that of github.com/pulumi/pulumi-aws/sdk/v6 in go.mod, because the
// engine looks the plugin up by the version that the SDK asks for.
const Version = "6.83.4"
