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
	"google.golang.org/grpc/status"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// rule is one thing that can be wrong with the inputs.
type rule struct {
	// property is the path of the input to be changed, "" when entries has whole
	// paths.
	property string
	// accepts says for the reference, and of a secret, what is accepted; "" when
	// another rule says it and the reason is not about a value.
	accepts string
	// source is where the limit comes from, "" when it is the component's own.
	source string
	// warns is true for what is accepted with a warning.
	warns bool
	// discreet is true when the reason is said of a secret, too, as it does not
	// tell its value; of others only what is accepted is.
	discreet bool
	// reason says in a sentence what is wrong and what is accepted; "" when
	// nothing is, or when it cannot be known yet. It formats values of type
	// value, which know whether they may be shown.
	reason func(*values) string
	// entries is reason for each entry of a list or map, by its index.
	entries func(*values) map[string]string
}

// Where limits come from.
const (
	sourceMultiAttach = "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html"
	sourceIO2         = "https://docs.aws.amazon.com/ebs/latest/userguide/provisioned-iops.html"
	sourceGP3         = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html"
	sourceUserData    = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html"
	sourceTags        = "https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"
	sourceIAMTag      = "https://docs.aws.amazon.com/IAM/latest/APIReference/API_Tag.html"
	sourceIAMTags     = "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_tags.html"
	sourceEtcd        = "https://etcd.io/docs/v3.6/faq/#what-is-maximum-cluster-size"
	sourceReleases    = "https://github.com/etcfs/etcfs/releases"
	sourceEtcdUpgrade = "https://etcd.io/blog/2025/upgrade_from_3.5_to_3.6_issue/"
	sourceKeyPair     = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateKeyPair.html"
	sourceAlarm       = "https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"
	sourceProfile     = "https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateInstanceProfile.html"
)

// rules is everything that is judged at preview. The limits of a node's
// settings are settings' own. The rules that need to know what AWS has come
// last, and hold their judgement until it was asked.
var rules = []rule{
	{
		discreet: true,
		entries:  func(v *values) map[string]string { return v.mistyped },
	},

	{
		property: "clusterName",
		reason:   required(func(v *values) value[string] { return v.clusterName }, `give the cluster a name, such as "demo"`),
	},
	{
		property: "clusterName",
		accepts:  "3 to 40 lower-case letters, digits and hyphens that start with a letter and do not end with a hyphen, and not `sg-…`",
		reason:   setting("ETCFS_CLUSTER_NAME"),
	},

	{
		property: "availabilityZone",
		accepts:  "it or `subnetId` must be given; both, if they agree",
		reason: func(v *values) string {
			if v.availabilityZone.given || v.subnetID.given {
				return ""
			}
			return `is missing: give the zone that the cluster lives in, such as "eu-west-1a", or subnetId`
		},
	},
	{
		property: "availabilityZone",
		accepts:  "the name of a zone",
		reason: text(func(v *values) value[string] { return v.availabilityZone },
			zonePattern, "an availability zone such as eu-west-1a"),
	},
	{
		property: "subnetId",
		accepts:  "a subnet ID",
		reason: text(func(v *values) value[string] { return v.subnetID },
			regexp.MustCompile(`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`), "a subnet ID such as subnet-0123456789abcdef0"),
	},

	{
		property: "minSize",
		accepts:  "1 or more",
		reason: func(v *values) string {
			if v.minSize.known && v.minSize.v < 1 {
				return fmt.Sprintf("%d is too small: a cluster has at least one node", v.minSize)
			}
			return ""
		},
	},
	{
		property: "minSize",
		accepts:  "at most `maxSize`",
		reason: func(v *values) string {
			if v.minSize.known && v.maxSize.known && v.minSize.v > v.maxSize.v {
				return fmt.Sprintf("%d is more than maxSize, %d: lower it, or raise maxSize", v.minSize, v.maxSize)
			}
			return ""
		},
	},
	{
		property: "minSize", warns: true, source: sourceEtcd,
		accepts: "an even number gives a warning while `desiredCapacity` is unset: it survives the loss of no more nodes than one less",
		reason: func(v *values) string {
			if v.desiredCapacity.given {
				return ""
			}
			return even(v.minSize)
		},
	},
	{
		property: "maxSize", source: sourceMultiAttach,
		accepts: fmt.Sprintf("at most %d, the number of instances that can attach one volume", settings.MaxNodes),
		reason: func(v *values) string {
			if v.maxSize.known && v.maxSize.v > settings.MaxNodes {
				return fmt.Sprintf("%d is too large: at most %d instances can attach one Multi-Attach volume", v.maxSize, settings.MaxNodes)
			}
			return ""
		},
	},
	{
		property: "maxSize", warns: true, source: sourceEtcd,
		accepts: fmt.Sprintf("more than %d gives a warning: each further etcd member makes writes slower", maxMembers),
		reason: func(v *values) string {
			if v.maxSize.known && v.maxSize.v > maxMembers {
				return fmt.Sprintf("%d nodes are more than the %d that etcd recommends at most: every node is an etcd member, and each further one makes writes slower", v.maxSize, maxMembers)
			}
			return ""
		},
	},
	{
		property: "desiredCapacity",
		accepts:  "from `minSize` to `maxSize`",
		reason: func(v *values) string {
			switch {
			case !v.desiredCapacity.known:
				return ""
			case v.minSize.known && v.desiredCapacity.v < v.minSize.v:
				return fmt.Sprintf("%d is less than minSize, %d: raise it, lower minSize, or leave it out", v.desiredCapacity, v.minSize)
			case v.maxSize.known && v.desiredCapacity.v > v.maxSize.v:
				return fmt.Sprintf("%d is more than maxSize, %d: lower it, raise maxSize, or leave it out", v.desiredCapacity, v.maxSize)
			}
			return ""
		},
	},
	{
		property: "desiredCapacity", warns: true, source: sourceEtcd,
		accepts: "an even number gives a warning: it survives the loss of no more nodes than one less",
		reason:  func(v *values) string { return even(v.desiredCapacity) },
	},

	{
		property: "instanceType",
		accepts:  "the name of an EC2 instance type",
		reason: text(func(v *values) value[string] { return v.instanceType },
			regexp.MustCompile(`^[a-z0-9][a-z0-9-]*\.[a-z0-9-]+$`), "an EC2 instance type such as t3.medium"),
	},
	{
		property: "amiId",
		accepts:  "an AMI ID",
		reason: text(func(v *values) value[string] { return v.amiID },
			regexp.MustCompile(`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`), "an AMI ID such as ami-0123456789abcdef0"),
	},
	{
		property: "rootVolumeSize", source: sourceGP3,
		accepts: fmt.Sprintf("from %d to %d GiB", minRootVolumeSize, maxRootVolumeSize),
		reason:  within(func(v *values) value[int] { return v.rootVolumeSize }, minRootVolumeSize, maxRootVolumeSize, "GiB"),
	},
	{
		property: "keyName", source: sourceKeyPair,
		accepts: "1 to 255 printable ASCII characters",
		reason: text(func(v *values) value[string] { return v.keyName },
			regexp.MustCompile(`^[!-~]([ -~]{0,253}[!-~])?$`), "the name of an EC2 key pair: 1 to 255 printable ASCII characters"),
	},
	{
		property: "sshIngressCidr",
		accepts:  "an IPv4 range without bits set outside of its prefix",
		reason: func(v *values) string {
			if !v.sshIngressCIDR.known {
				return ""
			}
			prefix, err := netip.ParsePrefix(v.sshIngressCIDR.v)
			if err != nil || !prefix.Addr().Is4() {
				return fmt.Sprintf("%q is not an IPv4 range such as 203.0.113.7/32", v.sshIngressCIDR)
			}
			if prefix != prefix.Masked() {
				return fmt.Sprintf("%q has bits set outside its prefix: write %s", v.sshIngressCIDR, prefix.Masked())
			}
			return ""
		},
	},
	{
		property: "instanceProfile", source: sourceProfile,
		accepts: "an instance profile's name, not its ARN: 1 to 128 letters, digits and `_+=,.@-`",
		reason: text(func(v *values) value[string] { return v.instanceProfile },
			regexp.MustCompile(`^[\w+=,.@-]{1,128}$`), "the name of an instance profile (its name, not its ARN)"),
	},

	{
		property: "volumeSize", source: sourceIO2,
		accepts: fmt.Sprintf("from %d to %d GiB", minVolumeSize, maxVolumeSize),
		reason:  within(func(v *values) value[int] { return v.volumeSize }, minVolumeSize, maxVolumeSize, "GiB"),
	},
	{
		property: "volumeSize",
		accepts:  fmt.Sprintf("at least %d GiB per node of `maxSize`, which a node that writes takes at a time", arenaGiB),
		reason: func(v *values) string {
			need := v.maxSize.with(v.maxSize.v * arenaGiB)
			if v.volumeSize.known && need.known && v.volumeSize.v >= minVolumeSize && v.volumeSize.v < need.v {
				return fmt.Sprintf("%d GiB is too small for %d nodes: each node that writes takes %d GiB at a time, so use %d or more, or lower maxSize",
					v.volumeSize, v.maxSize, arenaGiB, need)
			}
			return ""
		},
	},
	{
		property: "volumeIops", source: sourceIO2,
		accepts: fmt.Sprintf("from %d to %d", minVolumeIOPS, maxVolumeIOPS),
		reason:  within(func(v *values) value[int] { return v.volumeIOPS }, minVolumeIOPS, maxVolumeIOPS, "IOPS"),
	},
	{
		property: "volumeIops", source: sourceIO2,
		accepts: fmt.Sprintf("at most %d per GiB of `volumeSize`", maxIOPSPerGiB),
		reason: func(v *values) string {
			limit := v.volumeSize.with(v.volumeSize.v * maxIOPSPerGiB)
			sized := limit.known && v.volumeSize.v >= minVolumeSize && v.volumeSize.v <= maxVolumeSize
			if v.volumeIOPS.known && sized && v.volumeIOPS.v <= maxVolumeIOPS && v.volumeIOPS.v > limit.v {
				return fmt.Sprintf("%d IOPS are too many for %d GiB: io2 has at most %d per GiB, so use %d or less, or raise volumeSize",
					v.volumeIOPS, v.volumeSize, maxIOPSPerGiB, limit)
			}
			return ""
		},
	},

	{
		property: "etcfsVersion", source: sourceReleases,
		accepts: "a release such as `0.36.0`, or `latest`; none up to 0.35.0, which do not start on Amazon Linux 2023",
		reason:  setting("ETCFS_VERSION"),
	},
	{
		property: "etcdVersion", source: sourceEtcdUpgrade,
		accepts: "a release of the 3.5 series from 3.5.20 on, or of the 3.6 series, with its leading v",
		reason:  setting("ETCFS_ETCD_VERSION"),
	},
	{
		property: "leaseTtl",
		accepts:  "a duration such as `10s`",
		reason: func(v *values) string {
			if !v.leaseTTL.known {
				return ""
			}
			if _, err := time.ParseDuration(v.leaseTTL.v); err != nil {
				return fmt.Sprintf("%q is not a duration such as 10s", v.leaseTTL)
			}
			return ""
		},
	},
	{property: "leaseTtl", accepts: "whole seconds of which the double exceeds 10s: 6s or more", reason: setting("ETCFS_LEASE_TTL")},
	{property: "githubRepo", accepts: "`owner/name`", reason: setting("ETCFS_GITHUB_REPO")},
	{property: "releasesUrl", accepts: "an http or https URL without query and fragment", reason: setting("ETCFS_RELEASES_URL")},
	{property: "onBootstrapFailure", accepts: fmt.Sprintf("`%s` or `%s`", settings.FailureReplace, settings.FailureKeep), reason: setting("ETCFS_ON_BOOTSTRAP_FAILURE")},
	{property: "recovery", accepts: fmt.Sprintf("`%s`", settings.RecoveryReform), reason: setting("ETCFS_RECOVERY")},
	{
		property: "releasesUrl", source: sourceUserData,
		accepts: fmt.Sprintf("short enough for the instances' user data to have at most %d bytes", maxUserData),
		reason: func(v *values) string {
			// What AWS has not told yet is measured at its longest.
			data, err := userData(v.sound().settings(), longestBucketName, longestSHA256)
			if err != nil || len(data) <= maxUserData {
				return ""
			}
			return fmt.Sprintf("makes the instances' user data %d bytes long, of which EC2 takes %d: use shorter values for releasesUrl and githubRepo", len(data), maxUserData)
		},
	},

	{
		property: "waitForReady",
		accepts:  fmt.Sprintf("not together with `%s` of `onBootstrapFailure`: a launch that fails ends with its instance", settings.FailureKeep),
		reason: func(v *values) string {
			if !v.waitForReady.v || v.onBootstrapFailure.v != string(settings.FailureKeep) {
				return ""
			}
			return fmt.Sprintf("cannot be combined with %q of onBootstrapFailure, since the group terminates an instance whose launch fails: remove one of them", settings.FailureKeep)
		},
	},
	{
		property: "instanceRefresh",
		accepts:  "only with `waitForReady`: without it, old nodes would leave before new ones are members of etcd",
		reason: func(v *values) string {
			if !v.instanceRefresh.v || !v.waitForReady.known || v.waitForReady.v {
				return ""
			}
			return "needs waitForReady, or old nodes would be terminated before new ones are members of etcd: set that as well"
		},
	},
	{
		property: "instanceRefresh", source: sourceMultiAttach,
		accepts: fmt.Sprintf("only with a `maxSize` of at most %d: a new node attaches the volume before an old one leaves", settings.MaxNodes-1),
		reason: func(v *values) string {
			if !v.instanceRefresh.v || !v.maxSize.known || v.maxSize.v != settings.MaxNodes {
				return ""
			}
			return fmt.Sprintf("needs a maxSize of at most %d, since a new node attaches the volume before an old one leaves, and %d can at a time", settings.MaxNodes-1, settings.MaxNodes)
		},
	},
	{
		property: "retainVolume",
		accepts:  "`true` or `false`, in plain",
		reason:   func(*values) string { return "" },
	},
	{
		property: "finalSnapshot",
		accepts:  "not together with `retainVolume`, which deletes no volume",
		reason: func(v *values) string {
			if !v.finalSnapshot.v || !v.retainVolume.v {
				return ""
			}
			return "cannot be combined with retainVolume: a volume that is kept is never deleted, so it never gets a final snapshot; remove one of them"
		},
	},
	{
		property: "alarmActions", source: sourceAlarm,
		accepts: fmt.Sprintf("at most %d ARNs", maxAlarmActions),
		reason: func(v *values) string {
			if n := len(v.alarmActions.v); n > maxAlarmActions {
				return fmt.Sprintf("has %d entries, of which CloudWatch takes %d", n, maxAlarmActions)
			}
			return ""
		},
	},
	{
		property: "alarmActions",
		accepts:  "each of them an ARN such as `arn:aws:sns:eu-west-1:123456789012:topic`",
		entries: func(v *values) map[string]string {
			found := map[string]string{}
			for i, arn := range v.alarmActions.v {
				if arn.known && !arnPattern.MatchString(arn.v) {
					found[fmt.Sprintf("[%d]", i)] = fmt.Sprintf("%q is not an ARN such as arn:aws:sns:eu-west-1:123456789012:topic", arn)
				}
			}
			return found
		},
	},

	{
		property: "tags", source: sourceTags,
		accepts: fmt.Sprintf("at most %d: AWS takes 50 and keeps some for itself and the component", maxTags),
		reason: func(v *values) string {
			if len(v.tags.v) > maxTags {
				return fmt.Sprintf("has %d entries: at most %d, since AWS takes 50 and keeps some for itself and the component", len(v.tags.v), maxTags)
			}
			return ""
		},
	},
	{
		property: "tags",
		accepts:  fmt.Sprintf("not `%s`, `%s` and `%s`, which the component sets itself", settings.TagClusterName, settings.TagRole, tagName),
		entries: eachTag(func(key string, _ value[string]) string {
			if key == settings.TagClusterName || key == settings.TagRole || key == tagName {
				return "is a tag that the component sets itself; choose another key"
			}
			return ""
		}),
	},
	{
		property: "tags", source: sourceTags,
		accepts: "keys of 1 to 128 characters that do not start with `aws:`, values of up to 256",
		entries: eachTag(func(key string, in value[string]) string {
			switch {
			case strings.HasPrefix(strings.ToLower(key), "aws:"):
				return `starts with "aws:", which AWS keeps for itself; choose another key`
			case key == "" || len([]rune(key)) > 128:
				return "has a key that is empty or longer than 128 characters"
			case in.known && len([]rune(in.v)) > 256:
				return "has a value longer than 256 characters"
			}
			return ""
		}),
	},
	{
		property: "tags", source: sourceIAMTag,
		accepts: "letters, digits, spaces and `_.:/=+-@`, since IAM takes no other characters",
		entries: eachTag(func(key string, in value[string]) string {
			if tagPattern.MatchString(key) && (!in.known || tagPattern.MatchString(in.v)) {
				return ""
			}
			return "has characters that IAM does not take in a tag: use letters, digits, spaces and _.:/=+-@"
		}),
	},
	{
		property: "tags", source: sourceIAMTags,
		accepts: fmt.Sprintf("keys that differ from one another, and from `%s`, in more than their case, which IAM ignores in a role's tags", settings.TagClusterName),
		entries: func(v *values) map[string]string {
			seen := map[string]string{strings.ToLower(settings.TagClusterName): settings.TagClusterName}
			return eachTag(func(key string, _ value[string]) string {
				folded := strings.ToLower(key)
				other, ok := seen[folded]
				seen[folded] = key
				if !ok || other == key {
					return ""
				}
				return fmt.Sprintf("differs from the tag %s by its case only, which is one key to IAM; choose another key", other)
			})(v)
		},
	},

	{
		property: "availabilityZone",
		accepts:  "a zone of the provider's Region, with a default subnet unless `subnetId` is given",
		reason: func(v *values) string {
			subnet, zones := v.aws.subnet, v.aws.zones
			switch {
			case subnet.err != nil && !v.subnetID.given:
				return fmt.Sprintf("cannot be looked up: name a zone of this Region that has a default subnet, or give subnetId (%s)", cause(subnet.err))
			case zones.err != nil:
				return fmt.Sprintf("cannot be looked up among the zones of this Region (%s)", cause(zones.err))
			case !zones.known || slices.Contains(zones.v, v.availabilityZone.v):
				return ""
			}
			return fmt.Sprintf("%s is not a zone of this Region, which has %s", v.availabilityZone, strings.Join(zones.v, ", "))
		},
	},
	{
		property: "subnetId",
		accepts:  "a subnet of the provider's account and Region",
		reason: func(v *values) string {
			if v.aws.subnet.err == nil || !v.subnetID.given {
				return ""
			}
			return fmt.Sprintf("cannot be looked up: name a subnet of this account and Region (%s)", cause(v.aws.subnet.err))
		},
	},
	{
		property: "subnetId",
		accepts:  "in `availabilityZone`, if that is given as well",
		reason: func(v *values) string {
			zone := v.availabilityZone
			if !v.subnetID.given || !v.aws.subnet.known || !zone.known || !zonePattern.MatchString(zone.v) || v.aws.subnet.v == zone.v {
				return ""
			}
			return fmt.Sprintf("is in %s, not in availabilityZone, %s: name a subnet of that zone, or leave availabilityZone out", v.aws.subnet, zone)
		},
	},
	{
		property: "instanceType",
		accepts:  "one that exists in the Region",
		reason: func(v *values) string {
			if v.aws.instanceType.err == nil {
				return ""
			}
			return fmt.Sprintf("%s cannot be looked up: name an instance type that this Region has (%s)", v.instanceType, cause(v.aws.instanceType.err))
		},
	},
	{
		property: "instanceType", source: sourceMultiAttach,
		accepts: "of the Nitro system, which Multi-Attach needs",
		reason: func(v *values) string {
			if kind := v.aws.instanceType; !kind.known || kind.v.nitro {
				return ""
			}
			return fmt.Sprintf("%s is not of the Nitro system, which a Multi-Attach volume needs: use one that is, such as %s", v.instanceType, defaultInstanceType)
		},
	},
	{
		property: "instanceType", source: sourceReleases,
		accepts: "for x86_64, which EtcFS is released for",
		reason: func(v *values) string {
			if kind := v.aws.instanceType; !kind.known || slices.Contains(kind.v.architectures, architecture) {
				return ""
			}
			return fmt.Sprintf("%s is for %s, and EtcFS is released for %s: use an instance type for that, such as %s",
				v.instanceType, strings.Join(v.aws.instanceType.v.architectures, " and "), architecture, defaultInstanceType)
		},
	},
	{
		property: "instanceType",
		accepts:  "offered in the cluster's zone",
		reason: func(v *values) string {
			offered := v.aws.offered
			switch {
			case offered.err != nil:
				return fmt.Sprintf("%s cannot be looked up in the zone (%s)", v.instanceType, cause(offered.err))
			case !offered.known || offered.v:
				return ""
			}
			return fmt.Sprintf("%s is not offered in %s: use another instance type, or another zone", v.instanceType, v.zone())
		},
	},
}

// maxAlarmActions is how many actions an alarm takes per state.
const maxAlarmActions = 5

// tagPattern is what IAM, the strictest of the services, takes in a tag.
var tagPattern = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

var zonePattern = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d+(-[a-z]+-\d+)?[a-z]$`)

var arnPattern = regexp.MustCompile(`^arn:aws(-[a-z]+)*:[a-z0-9-]+:[a-z0-9-]*:(\d{12})?:.+$`)

// maxMembers is the largest etcd cluster that its makers recommend.
const maxMembers = 7

// architecture is what EtcFS is released for, as EC2 calls it.
const architecture = "x86_64"

func even(nodes value[int]) string {
	if !nodes.known || nodes.v%2 != 0 {
		return ""
	}
	return fmt.Sprintf("%d is an even number of nodes: etcd then survives the loss of %d, as with %d", nodes, nodes.with((nodes.v-1)/2), nodes.with(nodes.v-1))
}

// maxTags leaves room for the component's own tags and for those that Auto
// Scaling and others put on a resource, of which AWS allows fifty:
// https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html
const maxTags = 40

// validate judges the inputs by the rules: problems are everything that cannot
// be accepted, warnings what can, both in the order of the rules.
func validate(v *values) (problems, warnings []errors.InputPropertyErrorDetails) {
	for _, rule := range rules {
		found := map[string]string{}
		if rule.entries != nil {
			found = rule.entries(v)
		} else if reason := rule.reason(v); reason != "" {
			found[""] = reason
		}
		for _, index := range slices.Sorted(maps.Keys(found)) {
			detail := errors.InputPropertyErrorDetails{PropertyPath: rule.property + index, Reason: found[index]}
			if v.secret[detail.PropertyPath] {
				detail = rule.discreetly(detail)
			}
			if rule.warns {
				warnings = append(warnings, detail)
			} else {
				problems = append(problems, detail)
			}
		}
	}
	return problems, warnings
}

// discreetly says something of a secret. The engine prints the value that it
// finds by the path of a problem, so the path is made one that leads nowhere.
func (r rule) discreetly(of errors.InputPropertyErrorDetails) errors.InputPropertyErrorDetails {
	of.PropertyPath += secretSuffix
	if r.discreet {
		return of
	}
	verdict := "is refused"
	if r.warns {
		verdict = "is of doubtful use"
	}
	of.Reason = fmt.Sprintf("%s, and not shown, since it is secret; accepted: %s", verdict, r.accepts)
	return of
}

// secretSuffix follows the path of a secret.
const secretSuffix = " (secret)"

// eachTag judges every tag, in the order of their keys. The keys of a map that
// is secret as a whole are not told apart.
func eachTag(judge func(key string, in value[string]) string) func(*values) map[string]string {
	return func(v *values) map[string]string {
		found := map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(v.tags.v)) {
			index := fmt.Sprintf("[%q]", key)
			if v.tags.secret {
				index = ""
			}
			if reason := judge(key, v.tags.v[key]); reason != "" {
				found[index] = reason
			}
		}
		return found
	}
}

// The provider that is asked wraps its answer: "invocation of … returned an
// error: invoking …: 1 error occurred:", a new line, a star.
var wrapping = regexp.MustCompile(`^(.* returned an error: )?(invoking \S+: )?(\d+ errors? occurred: \* )?`)

// cause is what AWS, or its provider, says in an error, on one line.
func cause(err error) string {
	text := strings.Join(strings.Fields(status.Convert(err).Message()), " ")
	return wrapping.ReplaceAllString(text, "")
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
func text(of func(*values) value[string], pattern *regexp.Regexp, want string) func(*values) string {
	return func(v *values) string {
		if in := of(v); in.known && !pattern.MatchString(in.v) {
			return fmt.Sprintf("%q is not %s", in, want)
		}
		return ""
	}
}

// within refuses a known number outside its limits.
func within(of func(*values) value[int], low, high int, unit string) func(*values) string {
	return func(v *values) string {
		if in := of(v); in.known && (in.v < low || in.v > high) {
			return fmt.Sprintf("%d %s is outside of %d to %d", in, unit, low, high)
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
	if v.waitForReady.v {
		s.LaunchHook = readyHook(s.ClusterName)
	}
	return s
}

// sound is v with the settings that are refused as good as not known yet, so that
// what is wrong with them does not hide what is wrong with all together.
func (v *values) sound() *values {
	sound := *v
	for variable, in := range map[string]*value[string]{
		"ETCFS_CLUSTER_NAME":         &sound.clusterName,
		"ETCFS_VERSION":              &sound.etcfsVersion,
		"ETCFS_ETCD_VERSION":         &sound.etcdVersion,
		"ETCFS_LEASE_TTL":            &sound.leaseTTL,
		"ETCFS_GITHUB_REPO":          &sound.githubRepo,
		"ETCFS_RELEASES_URL":         &sound.releasesURL,
		"ETCFS_ON_BOOTSTRAP_FAILURE": &sound.onBootstrapFailure,
		"ETCFS_RECOVERY":             &sound.recovery,
	} {
		if setting(variable)(v) != "" {
			in.known = false
		}
	}
	return &sound
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
