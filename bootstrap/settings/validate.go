package settings

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is one setting that cannot be accepted.
type Problem struct {
	// Variable is the environment variable that carries the setting.
	Variable string
	// Reason says what is wrong with which value, and what is accepted.
	Reason string
}

func (p Problem) String() string { return p.Variable + ": " + p.Reason }

// InvalidError lists everything that is wrong with a node's settings.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "invalid settings: " + strings.Join(lines, "; ")
}

// Patterns of the settings that have one.
var (
	clusterNamePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{1,38}[a-z0-9]$`)
	regionPattern      = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d+$`)
	volumePattern      = regexp.MustCompile(`^vol-([0-9a-f]{8}|[0-9a-f]{17})$`)
	hookPattern        = regexp.MustCompile(`^[A-Za-z0-9_/-]{1,255}$`)
	tablePattern       = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
	repositoryPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*/\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
	versionPattern     = regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?$`)
)

// minLeaseTTL is the lowest lease that etcfuse-meta starts with: it refuses a
// TTL of which the double does not exceed ten seconds.
const minLeaseTTL = 6 * time.Second

// Validate reports every setting that is missing or malformed as an
// *[InvalidError], nil when there is none.
func (s Settings) Validate() error {
	var problems []Problem
	for _, check := range checks {
		if reason := check.reason(s); reason != "" {
			problems = append(problems, Problem{check.variable, reason})
		}
	}
	if problems == nil {
		return nil
	}
	return &InvalidError{problems}
}

// checks holds one entry per setting that can be wrong.
var checks = []struct {
	variable string
	reason   func(Settings) string
}{
	{"ETCFS_CLUSTER_NAME", func(s Settings) string { return CheckClusterName(s.ClusterName) }},
	{"ETCFS_REGION", func(s Settings) string {
		return match(s.Region, regionPattern, "an AWS Region such as eu-west-1")
	}},
	{"ETCFS_VOLUME_ID", func(s Settings) string {
		return match(s.VolumeID, volumePattern, "an EBS volume ID such as vol-0123456789abcdef0")
	}},
	{"ETCFS_SEED_TABLE", func(s Settings) string {
		return match(s.SeedTable, tablePattern, "a DynamoDB table name")
	}},
	{"ETCFS_VERSION", func(s Settings) string { return CheckVersion(s.Version) }},
	{"ETCFS_ETCD_VERSION", func(s Settings) string { return CheckEtcdVersion(s.EtcdVersion) }},
	{"ETCFS_LEASE_TTL", func(s Settings) string { return CheckLeaseTTL(s.LeaseTTL) }},
	{"ETCFS_GITHUB_REPO", func(s Settings) string { return CheckRepository(s.Repository) }},
	{"ETCFS_RELEASES_URL", func(s Settings) string { return CheckReleasesURL(s.ReleasesURL) }},
	{"ETCFS_ON_BOOTSTRAP_FAILURE", func(s Settings) string {
		return oneOf(string(s.OnBootstrapFailure), string(FailureReplace), string(FailureKeep))
	}},
	{"ETCFS_LAUNCH_HOOK", func(s Settings) string {
		if s.LaunchHook == "" {
			return ""
		}
		return match(s.LaunchHook, hookPattern, "the name of a lifecycle hook")
	}},
	{"ETCFS_RECOVERY", func(s Settings) string {
		return oneOf(string(s.Recovery), string(RecoveryNone), string(RecoveryReform))
	}},
}

// The Check functions each say in a sentence why a value is refused, or return
// "" when it is accepted. The component calls them per property.

// CheckClusterName judges a cluster's name. Forty characters leave room for
// the suffixes that AWS names are made with, of which the IAM role's is the
// tightest (64 characters), and "sg-" may not start a security group's name.
func CheckClusterName(name string) string {
	if name == "" {
		return "is missing"
	}
	if strings.HasPrefix(name, "sg-") {
		return fmt.Sprintf("%q starts with \"sg-\", which AWS reserves for security group IDs", name)
	}
	return match(name, clusterNamePattern,
		"3 to 40 lower-case letters, digits and hyphens that start with a letter and do not end with a hyphen")
}

// CheckVersion judges an EtcFS release. Releases up to 0.35.0 were linked
// against a newer C library than Amazon Linux 2023 has and cannot start there.
func CheckVersion(version string) string {
	if version == "" || version == LatestVersion {
		return ""
	}
	if reason := match(version, versionPattern, `an EtcFS release such as 0.36.0, or "latest"`); reason != "" {
		return reason
	}
	if compareVersions(version, lastUnusable) <= 0 {
		return fmt.Sprintf("release %s does not start on Amazon Linux 2023 (releases up to %s need a newer C library); use a later one", version, lastUnusable)
	}
	return ""
}

const lastUnusable = "0.35.0"

// CheckEtcdVersion judges an etcd release: 3.5 and 3.6 are supported. Releases of
// 3.5 before 3.5.20 forget on their disk that a learner was promoted, as every
// joining node is, and fail when they go over to 3.6
// (https://etcd.io/blog/2025/upgrade_from_3.5_to_3.6_issue/).
func CheckEtcdVersion(version string) string {
	const want = "an etcd release of the 3.5 or 3.6 series, such as v3.6.16"
	if version == "" {
		return "is missing; it takes " + want
	}
	number, ok := strings.CutPrefix(version, "v")
	if !ok || !versionPattern.MatchString(number) ||
		!strings.HasPrefix(number, "3.5.") && !strings.HasPrefix(number, "3.6.") {
		return fmt.Sprintf("%q is not %s", version, want)
	}
	if compareVersions(number, firstUsableEtcd) < 0 {
		return fmt.Sprintf("release %s may lose its quorum when it goes over to 3.6, as it forgets that learners were promoted; use v%s or later",
			version, firstUsableEtcd)
	}
	return ""
}

const firstUsableEtcd = "3.5.20"

// CheckEtcdSeries judges whether an etcd release can join a cluster that works at
// a version, such as 3.6.0: not when its series is an earlier one
// (https://etcd.io/docs/v3.6/downgrades/). A cluster that has not agreed on a
// version yet takes any.
func CheckEtcdSeries(release, cluster string) string {
	number := strings.TrimPrefix(release, "v")
	if !versionPattern.MatchString(number) || !versionPattern.MatchString(cluster) {
		return ""
	}
	ours, theirs := versionNumbers(number), versionNumbers(cluster)
	if slices.Compare(ours[:2], theirs[:2]) < 0 {
		return fmt.Sprintf("etcd %s cannot join a cluster that has gone over to %d.%d: set etcdVersion to a release of that series", release, theirs[0], theirs[1])
	}
	return ""
}

// CheckLeaseTTL judges a lease: whole seconds, at least six.
func CheckLeaseTTL(ttl time.Duration) string {
	switch {
	case ttl < minLeaseTTL:
		return fmt.Sprintf("%s is too short: twice the TTL must exceed 10s, so use %s or more", ttl, minLeaseTTL)
	case ttl%time.Second != 0:
		return fmt.Sprintf("%s is not a whole number of seconds, which etcd counts leases in", ttl)
	}
	return ""
}

// CheckRepository judges a GitHub repository.
func CheckRepository(repository string) string {
	return match(repository, repositoryPattern, "a GitHub repository such as etcfs/etcfs")
}

// CheckReleasesURL judges the base URL of a release mirror.
func CheckReleasesURL(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.ContainsAny(base, "?#") {
		return fmt.Sprintf("%q is not a base URL such as https://github.com", base)
	}
	return ""
}

func match(value string, pattern *regexp.Regexp, want string) string {
	switch {
	case value == "":
		return "is missing; it takes " + want
	case !pattern.MatchString(value):
		return fmt.Sprintf("%q is not %s", value, want)
	}
	return ""
}

func oneOf(value string, accepted ...string) string {
	if slices.Contains(accepted, value) {
		return ""
	}
	quoted := make([]string, 0, len(accepted))
	for _, a := range accepted {
		if a != "" {
			quoted = append(quoted, strconv.Quote(a))
		}
	}
	return fmt.Sprintf("%q is not %s", value, strings.Join(quoted, " or "))
}

// compareVersions orders the numbers of two versions that match
// versionPattern; a pre-release counts as its release.
func compareVersions(a, b string) int {
	na, nb := versionNumbers(a), versionNumbers(b)
	return slices.Compare(na[:], nb[:])
}

func versionNumbers(version string) (numbers [3]int) {
	release, _, _ := strings.Cut(version, "-")
	for i, part := range strings.SplitN(release, ".", 3) {
		numbers[i], _ = strconv.Atoi(part)
	}
	return numbers
}
