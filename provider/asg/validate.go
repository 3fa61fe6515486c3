package asg

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/errors"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// rule is one thing that can be wrong with the inputs.
type rule struct {
	// property is the path of the input to be changed.
	property string
	// reason says in a sentence what is wrong and what is accepted; "" when
	// nothing is, or when it cannot be known yet.
	reason func(*values) string
}

// rules is everything that is judged before AWS is asked. The limits of a
// node's settings are settings' own; those of AWS have their source in args.go.
var rules = []rule{
	{"clusterName", required(func(v *values) value[string] { return v.clusterName }, `give the cluster a name, such as "demo"`)},
	{"clusterName", setting("ETCFS_CLUSTER_NAME")},

	{"availabilityZone", func(v *values) string {
		if v.availabilityZone.given || v.subnetID.given {
			return ""
		}
		return `is missing: give the zone that the cluster lives in, such as "eu-west-1a", or subnetId`
	}},
	{"subnetId", func(v *values) string {
		if !v.availabilityZone.given || !v.subnetID.given {
			return ""
		}
		return "cannot be combined with availabilityZone: the subnet's zone is the cluster's; remove one of them"
	}},
	{"availabilityZone", text(func(v *values) value[string] { return v.availabilityZone },
		`^[a-z]{2,}(-[a-z]+)+-\d+(-[a-z]+-\d+)?[a-z]$`, "an availability zone such as eu-west-1a")},
	{"subnetId", text(func(v *values) value[string] { return v.subnetID },
		`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`, "a subnet ID such as subnet-0123456789abcdef0")},

	{"minSize", func(v *values) string {
		if v.minSize.known && v.minSize.v < 1 {
			return fmt.Sprintf("%d is too small: a cluster has at least one node", v.minSize.v)
		}
		return ""
	}},
	{"minSize", func(v *values) string {
		if v.minSize.known && v.maxSize.known && v.minSize.v > v.maxSize.v {
			return fmt.Sprintf("%d is more than maxSize, %d: lower it, or raise maxSize", v.minSize.v, v.maxSize.v)
		}
		return ""
	}},
	{"maxSize", func(v *values) string {
		if v.maxSize.known && v.maxSize.v > settings.MaxNodes {
			return fmt.Sprintf("%d is too large: at most %d instances can attach one Multi-Attach volume", v.maxSize.v, settings.MaxNodes)
		}
		return ""
	}},
	{"desiredCapacity", func(v *values) string {
		if v.desiredCapacity.known && v.minSize.known && v.desiredCapacity.v < v.minSize.v {
			return fmt.Sprintf("%d is less than minSize, %d: raise it, lower minSize, or leave it out", v.desiredCapacity.v, v.minSize.v)
		}
		return ""
	}},
	{"desiredCapacity", func(v *values) string {
		if v.desiredCapacity.known && v.maxSize.known && v.desiredCapacity.v > v.maxSize.v {
			return fmt.Sprintf("%d is more than maxSize, %d: lower it, raise maxSize, or leave it out", v.desiredCapacity.v, v.maxSize.v)
		}
		return ""
	}},

	{"instanceType", text(func(v *values) value[string] { return v.instanceType },
		`^[a-z0-9][a-z0-9-]*\.[a-z0-9-]+$`, "an EC2 instance type such as t3.medium")},
	{"amiId", text(func(v *values) value[string] { return v.amiID },
		`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`, "an AMI ID such as ami-0123456789abcdef0")},
	{"rootVolumeSize", within(func(v *values) value[int] { return v.rootVolumeSize }, minRootVolumeSize, maxRootVolumeSize, "GiB")},
	{"keyName", text(func(v *values) value[string] { return v.keyName },
		`^[!-~]([ -~]{0,253}[!-~])?$`, "the name of an EC2 key pair: 1 to 255 printable ASCII characters")},
	{"sshIngressCidr", func(v *values) string {
		if !v.sshIngressCIDR.known {
			return ""
		}
		prefix, err := netip.ParsePrefix(v.sshIngressCIDR.v)
		if err != nil || !prefix.Addr().Is4() {
			return fmt.Sprintf("%q is not an IPv4 range such as 203.0.113.7/32", v.sshIngressCIDR.v)
		}
		if prefix != prefix.Masked() {
			return fmt.Sprintf("%q has bits set outside its prefix: write %s", v.sshIngressCIDR.v, prefix.Masked())
		}
		return ""
	}},
	{"instanceProfile", text(func(v *values) value[string] { return v.instanceProfile },
		`^[\w+=,.@-]{1,128}$`, "the name of an instance profile (its name, not its ARN)")},

	{"volumeSize", within(func(v *values) value[int] { return v.volumeSize }, minVolumeSize, maxVolumeSize, "GiB")},
	{"volumeSize", func(v *values) string {
		if need := v.maxSize.v * arenaGiB; v.volumeSize.known && v.maxSize.known && v.volumeSize.v >= minVolumeSize && v.volumeSize.v < need {
			return fmt.Sprintf("%d GiB is too small for %d nodes: each node that writes takes %d GiB at a time, so use %d or more, or lower maxSize",
				v.volumeSize.v, v.maxSize.v, arenaGiB, need)
		}
		return ""
	}},
	{"volumeIops", within(func(v *values) value[int] { return v.volumeIOPS }, minVolumeIOPS, maxVolumeIOPS, "IOPS")},
	{"volumeIops", func(v *values) string {
		if limit := v.volumeSize.v * maxIOPSPerGiB; v.volumeIOPS.known && v.volumeSize.known && v.volumeIOPS.v <= maxVolumeIOPS && v.volumeIOPS.v > limit {
			return fmt.Sprintf("%d IOPS are too many for %d GiB: io2 has at most %d per GiB, so use %d or less, or raise volumeSize",
				v.volumeIOPS.v, v.volumeSize.v, maxIOPSPerGiB, limit)
		}
		return ""
	}},

	{"etcfsVersion", setting("ETCFS_VERSION")},
	{"etcdVersion", setting("ETCFS_ETCD_VERSION")},
	{"leaseTtl", func(v *values) string {
		if !v.leaseTTL.known {
			return ""
		}
		if _, err := time.ParseDuration(v.leaseTTL.v); err != nil {
			return fmt.Sprintf("%q is not a duration such as 10s", v.leaseTTL.v)
		}
		return ""
	}},
	{"leaseTtl", setting("ETCFS_LEASE_TTL")},
	{"githubRepo", setting("ETCFS_GITHUB_REPO")},
	{"releasesUrl", setting("ETCFS_RELEASES_URL")},
	{"onBootstrapFailure", setting("ETCFS_ON_BOOTSTRAP_FAILURE")},
	{"recovery", setting("ETCFS_RECOVERY")},
	{"releasesUrl", func(v *values) string {
		// What AWS has not told yet is measured at its longest.
		data, err := userData(v.settings(), longestBucketName, longestSHA256)
		if err != nil || len(data) <= maxUserData {
			return ""
		}
		return fmt.Sprintf("makes the instances' user data %d bytes long, of which EC2 takes %d: use shorter values for releasesUrl and githubRepo", len(data), maxUserData)
	}},

	{"tags", func(v *values) string {
		if len(v.tags.v) > maxTags {
			return fmt.Sprintf("has %d entries: at most %d, since AWS takes 50 and keeps some for itself and the component", len(v.tags.v), maxTags)
		}
		return ""
	}},
}

// maxTags leaves room for the component's own tags and for those that Auto
// Scaling and others put on a resource, of which AWS allows fifty:
// https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html
const maxTags = 40

// validate judges the inputs by the rules, and each tag by its own; all
// problems are returned, in the order of the rules.
func validate(v *values) []errors.InputPropertyErrorDetails {
	var problems []errors.InputPropertyErrorDetails
	for _, rule := range rules {
		if reason := rule.reason(v); reason != "" {
			problems = append(problems, errors.InputPropertyErrorDetails{PropertyPath: rule.property, Reason: reason})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.tags.v)) {
		if reason := checkTag(key, v.tags.v[key]); reason != "" {
			problems = append(problems, errors.InputPropertyErrorDetails{PropertyPath: fmt.Sprintf("tags[%q]", key), Reason: reason})
		}
	}
	return problems
}

func checkTag(key, value string) string {
	switch {
	case key == settings.TagClusterName || key == settings.TagRole || key == tagName:
		return "is a tag that the component sets itself; choose another key"
	case strings.HasPrefix(strings.ToLower(key), "aws:"):
		return `starts with "aws:", which AWS keeps for itself; choose another key`
	case key == "" || len([]rune(key)) > 128:
		return "has a key that is empty or longer than 128 characters"
	case len([]rune(value)) > 256:
		return "has a value longer than 256 characters"
	}
	return ""
}

// required refuses an input that was not given.
func required(of func(*values) value[string], remedy string) func(*values) string {
	return func(v *values) string {
		if of(v).given {
			return ""
		}
		return "is missing: " + remedy
	}
}

// text refuses a known value that does not match.
func text(of func(*values) value[string], pattern, want string) func(*values) string {
	expression := regexp.MustCompile(pattern)
	return func(v *values) string {
		if in := of(v); in.known && !expression.MatchString(in.v) {
			return fmt.Sprintf("%q is not %s", in.v, want)
		}
		return ""
	}
}

// within refuses a known number outside its limits.
func within(of func(*values) value[int], low, high int, unit string) func(*values) string {
	return func(v *values) string {
		if in := of(v); in.known && (in.v < low || in.v > high) {
			return fmt.Sprintf("%d %s is outside of %d to %d", in.v, unit, low, high)
		}
		return ""
	}
}

// setting asks the settings' own check about one variable: what a node would
// refuse at boot is refused here.
func setting(variable string) func(*values) string {
	return func(v *values) string {
		invalid, ok := v.settings().Validate().(*settings.InvalidError) //nolint:errorlint // Validate documents the type
		if !ok {
			return ""
		}
		for _, problem := range invalid.Problems {
			if problem.Variable == variable {
				return problem.Reason
			}
		}
		return ""
	}
}

// settings is what a node will be told, with a valid stand-in, and where it
// has no limit of its own the longest, for each value that is not known yet.
func (v *values) settings() settings.Settings {
	s := settings.Defaults()
	known(&s.ClusterName, v.clusterName, longestClusterName)
	s.Region = longestRegion
	s.VolumeID = longestVolumeID
	s.SeedTable = settings.SeedTableName(s.ClusterName)
	known(&s.Version, v.etcfsVersion, s.Version)
	known(&s.EtcdVersion, v.etcdVersion, s.EtcdVersion)
	if ttl, err := time.ParseDuration(v.leaseTTL.v); err == nil && v.leaseTTL.known {
		s.LeaseTTL = ttl
	}
	known(&s.Repository, v.githubRepo, s.Repository)
	known(&s.ReleasesURL, v.releasesURL, s.ReleasesURL)
	known((*string)(&s.OnBootstrapFailure), v.onBootstrapFailure, string(s.OnBootstrapFailure))
	known((*string)(&s.Recovery), v.recovery, string(s.Recovery))
	return s
}

func known(field *string, v value[string], otherwise string) {
	if *field = otherwise; v.known {
		*field = v.v
	}
}

// Stand-ins for what AWS, or another resource, has not told yet.
var (
	longestClusterName = strings.Repeat("c", 40)
	longestRegion      = "us-gov-northcentral-1"
	longestVolumeID    = "vol-" + strings.Repeat("0", 17)
	longestBucketName  = strings.Repeat("b", 63)
	longestSHA256      = strings.Repeat("0", 64)
)
