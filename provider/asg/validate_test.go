package asg_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	presource "github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/provider/asg"
)

// limit is a rule with both sides: what is refused, with the property and the
// words that matter, and what is just accepted.
type limit struct {
	name    string
	refused map[string]property.Value
	path    string
	words   string
	passes  map[string]property.Value
}

// types are the instance types that the limits speak of.
var types = map[string]instanceType{
	"m5.metal":   {metal: true, nvme: true, architecture: "x86_64", offered: true},
	"i1.metal":   {metal: true, architecture: "x86_64", offered: true},
	"m4.large":   {hypervisor: "xen", architecture: "x86_64", offered: true},
	"t4g.medium": {hypervisor: "nitro", architecture: "arm64", nvme: true, offered: true},
	"m7i.large":  {hypervisor: "nitro", architecture: "x86_64", nvme: true},
}

func limits(t *testing.T) []limit {
	t.Helper()
	var (
		text   = func(s string) property.Value { return property.New(s) }
		number = func(n int) property.Value { return property.New(float64(n)) }
		list   = func(items ...string) property.Value {
			var values []property.Value
			for _, item := range items {
				values = append(values, text(item))
			}
			return property.New(values)
		}
		tags = func(pairs ...string) property.Value {
			m := map[string]property.Value{}
			for i := 0; i < len(pairs); i += 2 {
				m[pairs[i]] = text(pairs[i+1])
			}
			return property.New(m)
		}
		many = func(n int) property.Value {
			var pairs []string
			for i := range n {
				pairs = append(pairs, fmt.Sprintf("key%d", i), "value")
			}
			return tags(pairs...)
		}
	)
	const mirror = "https://mirror.example/"
	size, err := asg.UserDataSize(t.Context(), &asg.ClusterArgs{ClusterName: pulumi.String("demo"), ReleasesUrl: pulumi.String(mirror)})
	if err != nil {
		t.Fatal(err)
	}
	fill := 16384 - size // what fits
	type inputs = map[string]property.Value
	yes := property.New(true)
	unset := property.New(property.Null)
	return []limit{
		{"name missing", inputs{"clusterName": unset}, "clusterName", `is missing: give the cluster a name, such as "demo"`, nil},
		{"name too short", inputs{"clusterName": text("ab")}, "clusterName", "3 to 40 lower-case letters", inputs{"clusterName": text("abc")}},
		{"name too long", inputs{"clusterName": text(strings.Repeat("a", 41))}, "clusterName", "3 to 40", inputs{"clusterName": text(strings.Repeat("a", 40))}},
		{"name in capitals", inputs{"clusterName": text("Demo")}, "clusterName", "lower-case", nil},
		{"name like a security group", inputs{"clusterName": text("sg-demo")}, "clusterName", `"sg-"`, inputs{"clusterName": text("sgdemo")}},

		{"no placement", inputs{"availabilityZone": unset}, "availabilityZone", "is missing", inputs{"availabilityZone": unset, "subnetId": text(subnetID)}},
		{"two placements", inputs{"subnetId": text(subnetID), "availabilityZone": text("eu-west-1b")}, "subnetId", "is in eu-west-1a, not in availabilityZone, eu-west-1b", inputs{"subnetId": text(subnetID)}},
		{"a Region for a zone", inputs{"availabilityZone": text("eu-west-1")}, "availabilityZone", "such as eu-west-1a", inputs{"availabilityZone": text("us-gov-west-1b")}},
		{"a Local Zone", inputs{"availabilityZone": text("us-west-2-lax-1")}, "availabilityZone", "such as eu-west-1a", inputs{"availabilityZone": text("us-west-2-lax-1a")}},
		{"not a subnet", inputs{"availabilityZone": unset, "subnetId": text("vpc-0123456789abcdef0")}, "subnetId", "subnet ID", inputs{"availabilityZone": unset, "subnetId": text("subnet-01234567")}},

		{"no nodes", inputs{"minSize": number(0)}, "minSize", "at least one", inputs{"minSize": number(1)}},
		{"min above max", inputs{"minSize": number(6)}, "minSize", "more than maxSize, 5", inputs{"minSize": number(5)}},
		{"too many nodes", inputs{"maxSize": number(17), "volumeSize": number(20)}, "maxSize", "at most 16", inputs{"maxSize": number(16), "volumeSize": number(20)}},
		{"desired below min", inputs{"desiredCapacity": number(2)}, "desiredCapacity", "less than minSize, 3", inputs{"desiredCapacity": number(3)}},
		{"desired above max", inputs{"desiredCapacity": number(6)}, "desiredCapacity", "more than maxSize, 5", inputs{"desiredCapacity": number(5)}},

		{"not an instance type", inputs{"instanceType": text("medium")}, "instanceType", "t3.medium", inputs{"instanceType": text("m5.metal")}},
		{"no such instance type", inputs{"instanceType": text("x9.large")}, "instanceType", "name an instance type that this Region has", nil},
		{"a Xen instance type", inputs{"instanceType": text("m4.large")}, "instanceType", "not of the Nitro system", nil},
		{"old bare metal", inputs{"instanceType": text("i1.metal")}, "instanceType", "not of the Nitro system", nil},
		{"an ARM instance type", inputs{"instanceType": text("t4g.medium")}, "instanceType", "is for arm64, and EtcFS is released for x86_64", nil},
		{"not offered in the zone", inputs{"instanceType": text("m7i.large")}, "instanceType", "is not offered in eu-west-1a", nil},
		{"not an image", inputs{"amiId": text("al2023")}, "amiId", "AMI ID", inputs{"amiId": text("ami-0123456789abcdef0")}},
		{"an image of nine digits", inputs{"amiId": text("ami-012345678")}, "amiId", "AMI ID", inputs{"amiId": text("ami-01234567")}},
		{"root volume too small", inputs{"rootVolumeSize": number(7)}, "rootVolumeSize", "8 to 65536", inputs{"rootVolumeSize": number(8)}},
		{"root volume too large", inputs{"rootVolumeSize": number(65537)}, "rootVolumeSize", "8 to 65536", inputs{"rootVolumeSize": number(65536)}},
		{"empty key name", inputs{"keyName": text("")}, "keyName", "key pair", inputs{"keyName": text("my key")}},
		{"a long key name", inputs{"keyName": text(strings.Repeat("k", 256))}, "keyName", "1 to 255", inputs{"keyName": text(strings.Repeat("k", 255))}},
		{"not a range", inputs{"sshIngressCidr": text("203.0.113.7")}, "sshIngressCidr", "IPv4 range", inputs{"sshIngressCidr": text("203.0.113.0/24")}},
		{"an IPv6 range", inputs{"sshIngressCidr": text("2001:db8::/32")}, "sshIngressCidr", "IPv4 range", inputs{"sshIngressCidr": text("0.0.0.0/0")}},
		{"bits outside the prefix", inputs{"sshIngressCidr": text("203.0.113.7/24")}, "sshIngressCidr", "write 203.0.113.0/24", nil},
		{"the ARN of a profile", inputs{"instanceProfile": text("arn:aws:iam::123456789012:instance-profile/nodes")}, "instanceProfile", "not its ARN", inputs{"instanceProfile": text("etcfs-nodes")}},
		{"a long profile name", inputs{"instanceProfile": text(strings.Repeat("p", 129))}, "instanceProfile", "instance profile", inputs{"instanceProfile": text(strings.Repeat("p", 128))}},

		{"volume too small", inputs{"volumeSize": number(3)}, "volumeSize", "4 to 65536", inputs{"volumeSize": number(4), "minSize": number(1), "maxSize": number(4)}},
		{"volume too large", inputs{"volumeSize": number(65537)}, "volumeSize", "4 to 65536", inputs{"volumeSize": number(65536)}},
		{"fewer GiB than nodes", inputs{"volumeSize": number(4)}, "volumeSize", "too small for 5 nodes", inputs{"volumeSize": number(5)}},
		{"too few IOPS", inputs{"volumeIops": number(99)}, "volumeIops", "100 to 256000", inputs{"volumeIops": number(100)}},
		{"too many IOPS", inputs{"volumeIops": number(256001), "volumeSize": number(1000)}, "volumeIops", "100 to 256000", inputs{"volumeIops": number(256000), "volumeSize": number(1000)}},
		{"too many IOPS per GiB", inputs{"volumeIops": number(10001)}, "volumeIops", "10000 or less", inputs{"volumeIops": number(10000)}},

		{"not a release", inputs{"etcfsVersion": text("v0.36.0")}, "etcfsVersion", "0.36.0", inputs{"etcfsVersion": text("0.36.0")}},
		{"a release that does not start", inputs{"etcfsVersion": text("0.35.0")}, "etcfsVersion", "does not start on Amazon Linux 2023", inputs{"etcfsVersion": text("0.35.1")}},
		{"an unsupported etcd", inputs{"etcdVersion": text("v3.4.37")}, "etcdVersion", "3.5 or 3.6", inputs{"etcdVersion": text("v3.5.20")}},
		{"an etcd that forgets promotions", inputs{"etcdVersion": text("v3.5.19")}, "etcdVersion", "use v3.5.20 or later", inputs{"etcdVersion": text("v3.5.20")}},
		{"a later etcd", inputs{"etcdVersion": text("v3.7.0")}, "etcdVersion", "3.5 or 3.6", inputs{"etcdVersion": text("v3.6.16")}},
		{"not a duration", inputs{"leaseTtl": text("10")}, "leaseTtl", "duration such as 10s", inputs{"leaseTtl": text("10s")}},
		{"lease too short", inputs{"leaseTtl": text("5s")}, "leaseTtl", "too short", inputs{"leaseTtl": text("6s")}},
		{"a lease of part of a second", inputs{"leaseTtl": text("6500ms")}, "leaseTtl", "whole number of seconds", inputs{"leaseTtl": text("7000ms")}},
		{"not a repository", inputs{"githubRepo": text("etcfs")}, "githubRepo", "etcfs/etcfs", inputs{"githubRepo": text("my-fork/etcfs")}},
		{"not a URL", inputs{"releasesUrl": text("mirror.example")}, "releasesUrl", "base URL", inputs{"releasesUrl": text("http://mirror.example/github")}},
		{"a URL with a query", inputs{"releasesUrl": text("https://mirror.example/?token=x")}, "releasesUrl", "base URL", nil},
		{"an unknown policy", inputs{"onBootstrapFailure": text("retry")}, "onBootstrapFailure", `"replace" or "keep"`, inputs{"onBootstrapFailure": text("keep")}},
		{"an unknown recovery", inputs{"recovery": text("yes")}, "recovery", `"reform"`, inputs{"recovery": text("reform")}},
		{"user data too long", inputs{"releasesUrl": text(mirror + strings.Repeat("x", fill+1))}, "releasesUrl", "16385 bytes long, of which EC2 takes 16384", inputs{"releasesUrl": text(mirror + strings.Repeat("x", fill))}},

		{"waiting, and keeping what failed", inputs{"waitForReady": yes, "onBootstrapFailure": text("keep")}, "waitForReady", "remove one of them", inputs{"waitForReady": yes}},
		{"refreshing without waiting", inputs{"instanceRefresh": yes}, "instanceRefresh", "needs waitForReady", inputs{"instanceRefresh": yes, "waitForReady": yes}},
		{"refreshing without room", inputs{"instanceRefresh": yes, "waitForReady": yes, "maxSize": number(16), "volumeSize": number(16)}, "instanceRefresh", "maxSize of at most 15",
			inputs{"instanceRefresh": yes, "waitForReady": yes, "maxSize": number(15), "volumeSize": number(16)}},
		{"a snapshot of a kept volume", inputs{"finalSnapshot": yes, "retainVolume": yes}, "finalSnapshot", "remove one of them", inputs{"finalSnapshot": yes}},
		{"one of two is no ARN", inputs{"alarmActions": list("arn:aws-us-gov:sns:us-gov-west-1:123456789012:oncall", "oncall")}, "alarmActions[1]", "not an ARN", inputs{"alarmActions": list("arn:aws-us-gov:sns:us-gov-west-1:123456789012:oncall")}},
		{"not an ARN", inputs{"alarmActions": list("oncall")}, "alarmActions[0]", "not an ARN", inputs{"alarmActions": list("arn:aws:sns:eu-west-1:123456789012:oncall")}},
		{"too many actions", inputs{"alarmActions": list(slices.Repeat([]string{"arn:aws:sns:eu-west-1:123456789012:oncall"}, 6)...)}, "alarmActions", "of which CloudWatch takes 5",
			inputs{"alarmActions": list(slices.Repeat([]string{"arn:aws:sns:eu-west-1:123456789012:oncall"}, 5)...)}},
		{"too many tags", inputs{"tags": many(41)}, "tags", "at most 40", inputs{"tags": many(40)}},
		{"the component's own tag", inputs{"tags": tags("Role", "db")}, `tags["Role"]`, "sets itself", inputs{"tags": tags("role", "db")}},
		{"AWS's tags", inputs{"tags": tags("aws:cost", "x")}, `tags["aws:cost"]`, `"aws:"`, inputs{"tags": tags("awscost", "x")}},
		{"a long tag key", inputs{"tags": tags(strings.Repeat("k", 129), "x")}, `tags["` + strings.Repeat("k", 129) + `"]`, "128 characters", inputs{"tags": tags(strings.Repeat("k", 128), "x")}},
		{"a tag key that IAM refuses", inputs{"tags": tags("a!", "x")}, `tags["a!"]`, "characters that IAM does not take", inputs{"tags": tags("größe:a/b=c+d-e@f_g.h", "x")}},
		{"a tag value that IAM refuses", inputs{"tags": tags("k", "<none>")}, `tags["k"]`, "characters that IAM does not take", inputs{"tags": tags("k", "", "l", "zwei Wörter 2")}},
		{"keys that are one to IAM", inputs{"tags": tags("Team", "a", "team", "b")}, `tags["team"]`, "differs from the tag Team by its case only", inputs{"tags": tags("team", "a", "teams", "b")}},
		{"the component's tag in another case", inputs{"tags": tags("clustername", "x")}, `tags["clustername"]`, "differs from the tag ClusterName", nil},
		{"a long tag value", inputs{"tags": tags("k", strings.Repeat("v", 257))}, `tags["k"]`, "256 characters", inputs{"tags": tags("k", strings.Repeat("v", 256))}},
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	for _, test := range limits(t) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.preview, w.types = true, types
			_, err := w.construct(t, given(test.refused))
			var problems refusal
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if len(problems) != 1 || !strings.HasPrefix(problems[0], test.path+": ") || !strings.Contains(problems[0], test.words) {
				t.Errorf("got %q, want one problem of %s with %q", problems, test.path, test.words)
			}
			if made := w.children(); len(made) != 0 {
				t.Errorf("%d resources were declared in spite of it", len(made))
			}
			if test.passes == nil {
				return
			}
			w = newWorld()
			w.preview, w.types = true, types
			if _, err := w.construct(t, given(test.passes)); err != nil {
				t.Errorf("the other side of the limit is refused: %v", err)
			}
		})
	}
}

// Of an input that is secret, and of others' secrets, nothing is told: neither in
// what is said, nor by the path, at which the engine finds what it prints.
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	type inputs = map[string]property.Value
	secret := func(v property.Value) property.Value { return v.WithSecret(true) }
	tests := []limit{
		{name: "a zone, and no subnet", refused: inputs{"availabilityZone": secret(property.New("eu-west-1z")), "subnetId": property.New(property.Computed)}, path: "availabilityZone" + hidden},
		{name: "of minSize", refused: inputs{"minSize": property.New(4.0), "maxSize": secret(property.New(3.0))}, path: "minSize"},
		{name: "of desiredCapacity, below", refused: inputs{"desiredCapacity": property.New(3.0), "minSize": secret(property.New(4.0))}, path: "desiredCapacity"},
		{name: "of desiredCapacity, above", refused: inputs{"desiredCapacity": property.New(6.0), "maxSize": secret(property.New(5.0))}, path: "desiredCapacity"},
		{name: "of volumeSize", refused: inputs{"volumeSize": property.New(5.0), "maxSize": secret(property.New(7.0))}, path: "volumeSize"},
		{name: "of volumeIops", refused: inputs{"volumeIops": property.New(6001.0), "volumeSize": secret(property.New(6.0))}, path: "volumeIops"},
		{name: "of subnetId", refused: inputs{"subnetId": property.New(subnetID), "availabilityZone": secret(property.New("eu-west-1b"))}, path: "subnetId"},
		{name: "of instanceType", refused: inputs{"instanceType": property.New("m7i.large"), "availabilityZone": secret(property.New(zone))}, path: "instanceType"},
		{name: "an entry", refused: inputs{"alarmActions": property.New([]property.Value{secret(property.New("geheim"))})}, path: "alarmActions[0]" + hidden},
		{name: "a tag's value", refused: inputs{"tags": property.New(map[string]property.Value{"k": secret(property.New("geheim!"))})}, path: `tags["k"]` + hidden},
		{name: "a type", refused: inputs{"keyName": secret(property.New(4711.0))}, path: "keyName" + hidden},
		{name: "a tag's type", refused: inputs{"tags": property.New(map[string]property.Value{"k": secret(property.New(4711.0))})}, path: `tags["k"]` + hidden},
		{name: "a flag", refused: inputs{"retainVolume": secret(property.New(true))}, path: "retainVolume" + hidden},
	}
	for _, test := range limits(t) {
		refused := inputs{}
		for name, in := range test.refused {
			if !in.IsNull() {
				refused[name] = secret(in)
			}
			if in.IsBool() { // refused for its being secret, as above
				refused = nil
				break
			}
		}
		if len(refused) == 0 {
			continue
		}
		path, _, _ := strings.Cut(test.path, `["`) // the keys of a secret map are secret
		tests = append(tests, limit{name: test.name, refused: refused, path: path + hidden})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.preview, w.types = true, types
			_, err := w.construct(t, given(test.refused))
			var problems refusal
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want a refusal", err)
			}
			if len(problems) != 1 || !strings.HasPrefix(problems[0], test.path+": ") {
				t.Errorf("got %q, want one problem of %s", problems, test.path)
			}
			if strings.HasSuffix(problems[0], "accepted: ") {
				t.Errorf("%s does not say what is accepted", problems[0])
			}
			for name, in := range test.refused {
				var public strings.Builder // what the reference says to everybody
				for _, limit := range asg.Limits(name) {
					public.WriteString(limit.Text)
				}
				for _, told := range secretsOf(in, false) {
					word := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(told) + `($|\W)`)
					if word.MatchString(problems[0]) && !word.MatchString(public.String()) {
						t.Errorf("the secret %s, %s, is told: %s", name, told, problems[0])
					}
				}
			}
		})
	}
}

// hidden ends the path of a secret.
const hidden = " (secret)"

// secretsOf lists the texts that a secret value consists of, keys included.
func secretsOf(in property.Value, within bool) (list []string) {
	within = within || in.Secret()
	switch {
	case in.IsArray():
		for _, entry := range in.AsArray().AsSlice() {
			list = append(list, secretsOf(entry, within)...)
		}
	case in.IsMap():
		for key, entry := range in.AsMap().AsMap() {
			if within && key != "" {
				list = append(list, key)
			}
			list = append(list, secretsOf(entry, within)...)
		}
	case within && in.IsNumber():
		list = append(list, strconv.FormatFloat(in.AsNumber(), 'f', -1, 64))
	case within && in.IsString() && in.AsString() != "":
		list = append(list, in.AsString())
	}
	return list
}

// An input of another type is a problem as any other: named, shown, and
// together with the rest. Nothing else is said of it.
func TestTypes(t *testing.T) {
	t.Parallel()
	type inputs = map[string]property.Value
	text, number, yes := property.New("x"), property.New(10.0), property.New(true)
	unknown := property.New(property.Computed).WithDependencies([]presource.URN{"urn:pulumi:stack::project::aws:ec2/vpc:Vpc::other"})
	none := property.New(property.Null)
	list := func(v ...property.Value) property.Value { return property.New(v) }
	entry := func(v property.Value) property.Value { return property.New(map[string]property.Value{"k": v}) }
	for _, test := range []struct {
		inputs inputs
		want   string
	}{
		{inputs{"clusterName": number}, "clusterName: is the number 10, and must be a string, in quotes"},
		{inputs{"leaseTtl": number}, "leaseTtl: is the number 10, and must be a string, in quotes"},
		{inputs{"recovery": yes}, "recovery: is the boolean true, and must be a string, in quotes"},
		{inputs{"keyName": list(text)}, "keyName: is a list, and must be a string"},
		{inputs{"subnetId": entry(text)}, "subnetId: is a map, and must be a string"},
		{inputs{"minSize": text}, `minSize: is the string "x", and must be a whole number`},
		{inputs{"minSize": property.New(1.5)}, "minSize: is the number 1.5, and must be a whole number"},
		{inputs{"maxSize": property.New(1e300)}, "maxSize: is the number 1e+300, and must be a whole number from -2147483647 to 2147483647"},
		{inputs{"maxSize": property.New(2147483648.0)}, "maxSize: is the number 2147483648, and must be a whole number from -2147483647 to 2147483647"},
		{inputs{"maxSize": property.New(math.Inf(-1))}, "maxSize: is the number -Inf, and must be a whole number from -2147483647 to 2147483647"},
		{inputs{"minSize": property.New(math.NaN())}, "minSize: is the number NaN, and must be a whole number"},
		{inputs{"waitForReady": property.New("true"), "instanceRefresh": yes}, `waitForReady: is the string "true", and must be true or false`},
		{inputs{"instanceRefresh": unknown}, "instanceRefresh: is not known before something else is created, and what is declared depends on it: give true or false in plain"},
		{inputs{"finalSnapshot": yes.WithSecret(true)}, "finalSnapshot (secret): is a secret that cannot be kept, since what is declared depends on it: give true or false in plain"},
		{inputs{"alarmActions": text}, `alarmActions: is the string "x", and must be a list of strings`},
		{inputs{"alarmActions": list(number)}, "alarmActions[0]: is the number 10, and must be a string, in quotes"},
		{inputs{"alarmActions": list(none)}, "alarmActions[0]: is null, and must be a string"},
		{inputs{"tags": list(text)}, "tags: is a list, and must be a map of strings"},
		{inputs{"tags": entry(yes)}, `tags["k"]: is the boolean true, and must be a string, in quotes`},
		{inputs{"tags": entry(none)}, `tags["k"]: is null, and must be a string`},
	} {
		for _, preview := range []bool{true, false} {
			w := newWorld()
			w.preview = preview
			more := given(test.inputs)
			more["rootVolumeSize"] = property.New(1.0)
			_, err := w.construct(t, more)
			var problems refusal
			want := []string{test.want, "rootVolumeSize: 1 GiB is outside of 8 to 65536"}
			if !errors.As(err, &problems) || !slices.Equal(problems, want) {
				t.Errorf("preview %t: got %v, want %q", preview, err, want)
			}
		}
	}

	// A plain value that comes from a resource which exists is as good as another.
	w := newWorld()
	if _, err := w.construct(t, given(inputs{"retainVolume": yes.WithDependencies(unknown.Dependencies())})); err != nil {
		t.Errorf("a known output for a plain value is refused: %v", err)
	}
}

// What is accepted with a warning, and what just needs none.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args asg.ClusterArgs
		want []string // the beginnings
	}{
		{"the defaults", asg.ClusterArgs{}, nil},
		{"an even minimum", asg.ClusterArgs{MinSize: pulumi.Int(2)}, []string{"minSize: 2 is an even number of nodes: etcd then survives the loss of 0, as with 1"}},
		{"an even minimum that is not the size", asg.ClusterArgs{MinSize: pulumi.Int(2), DesiredCapacity: pulumi.Int(3)}, nil},
		{"an even size", asg.ClusterArgs{DesiredCapacity: pulumi.Int(4)}, []string{"desiredCapacity: 4 is an even number of nodes: etcd then survives the loss of 1, as with 3"}},
		{"an even minimum that is secret", asg.ClusterArgs{MinSize: pulumi.ToSecret(pulumi.Int(2)).(pulumi.IntOutput)}, []string{"minSize (secret): is of doubtful use, and not shown, since it is secret; accepted: an even number gives a warning"}},
		{"seven at most", asg.ClusterArgs{MaxSize: pulumi.Int(7)}, nil},
		{"eight at most", asg.ClusterArgs{MaxSize: pulumi.Int(8)}, []string{"maxSize: 8 nodes are more than the 7 that etcd recommends"}},
	} {
		got, err := asg.Warnings(t.Context(), &test.args)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%s: got warnings %q, want %q", test.name, got, test.want)
		}
	}
}

// Every input is in the reference, with what is accepted of it.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	var got, want []string
	for _, input := range asg.Inputs() {
		got = append(got, input.Name)
		if len(asg.Limits(input.Name)) == 0 {
			t.Errorf("nothing says what is accepted of %s", input.Name)
		}
		if input.Effect == "" {
			t.Errorf("nothing says what changing %s does", input.Name)
		}
	}
	for field := range reflect.TypeFor[asg.ClusterArgs]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("pulumi"), ",")
		want = append(want, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inputs of the reference (-want +got):\n%s", diff)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	_, err := w.construct(t, map[string]property.Value{
		"minSize":     property.New(0.0),
		"maxSize":     property.New(99.0),
		"volumeIops":  property.New(1.0),
		"etcdVersion": property.New("3.6"),
		"tags":        property.New(map[string]property.Value{"Name": property.New("x")}),
	})
	var problems refusal
	if !errors.As(err, &problems) {
		t.Fatalf("got %v, want a refusal", err)
	}
	want := []string{"clusterName", "availabilityZone", "minSize", "maxSize", "volumeSize", "volumeIops", "etcdVersion", `tags["Name"]`}
	if diff := cmp.Diff(want, problems.paths()); diff != "" {
		t.Errorf("refused properties (-want +got):\n%s", diff)
	}
}

// A value that is refused is refused once, and hides nothing that is wrong with
// others, nor makes something wrong with them.
func TestRefusedNextToOthers(t *testing.T) {
	t.Parallel()
	type inputs = map[string]property.Value
	long := property.New("https://mirror.example/" + strings.Repeat("x", 16384))
	for _, test := range []struct {
		name   string
		inputs inputs
		want   []string // paths
	}{
		{"no volume", inputs{"volumeSize": property.New(0.0)}, []string{"volumeSize"}},
		{"a negative volume", inputs{"volumeSize": property.New(-10.0), "volumeIops": property.New(500.0)}, []string{"volumeSize"}},
		{"user data next to a name", inputs{"clusterName": property.New("Demo"), "releasesUrl": long}, []string{"clusterName", "releasesUrl"}},
		{
			"user data next to settings",
			inputs{
				"etcfsVersion": property.New("v1"), "etcdVersion": property.New("v1"), "leaseTtl": property.New("1s"), "githubRepo": property.New("x"),
				"onBootstrapFailure": property.New("x"), "recovery": property.New("x"), "releasesUrl": long,
			},
			[]string{"etcfsVersion", "etcdVersion", "leaseTtl", "githubRepo", "onBootstrapFailure", "recovery", "releasesUrl"},
		},
		{"user data that is long for what is refused", inputs{"githubRepo": property.New(strings.Repeat("x", 16384))}, []string{"githubRepo"}},
	} {
		w := newWorld()
		w.preview = true
		_, err := w.construct(t, given(test.inputs))
		var problems refusal
		if !errors.As(err, &problems) || !slices.Equal(problems.paths(), test.want) {
			t.Errorf("%s: got %v, want %q refused", test.name, err, test.want)
		}
	}
}

// A value that is not known yet is neither refused nor does it hide what is
// wrong with others.
func TestUnknownInputs(t *testing.T) {
	t.Parallel()
	// As the engine sends it: an output of another resource, without a value.
	unknown := property.New(property.Computed).WithDependencies([]presource.URN{"urn:pulumi:stack::project::aws:ec2/vpc:Vpc::other"})
	// One entry does not hide another.
	w := newWorld()
	w.preview = true
	_, err := w.construct(t, given(map[string]property.Value{
		"tags":         property.New(map[string]property.Value{"Vpc": unknown, "Role": property.New("db"), "Name": unknown}),
		"alarmActions": property.New([]property.Value{unknown, property.New("oncall")}),
	}))
	var problems refusal
	if want := []string{"alarmActions[1]", `tags["Name"]`, `tags["Role"]`}; !errors.As(err, &problems) || !slices.Equal(problems.paths(), want) {
		t.Errorf("next to unknown entries: got %v, want %v refused", err, want)
	}

	for _, name := range []string{
		"clusterName", "availabilityZone", "minSize", "maxSize", "desiredCapacity", "instanceType", "amiId",
		"rootVolumeSize", "keyName", "sshIngressCidr", "instanceProfile", "volumeSize", "volumeIops", "etcfsVersion",
		"etcdVersion", "leaseTtl", "githubRepo", "releasesUrl", "onBootstrapFailure", "recovery", "alarmActions", "tags",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.preview = true
			if _, err := w.construct(t, given(map[string]property.Value{name: unknown})); err != nil {
				t.Errorf("refused: %v", err)
			}
			if got, least := len(w.children()), 20; got < least {
				t.Errorf("%d resources in the preview, want %d or more", got, least)
			}

			other, value := "volumeIops", property.New(1.0)
			if name == other {
				other = "rootVolumeSize"
			}
			w = newWorld()
			w.preview = true
			_, err := w.construct(t, given(map[string]property.Value{name: unknown, other: value}))
			var problems refusal
			if !errors.As(err, &problems) || len(problems) != 1 || !strings.HasPrefix(problems[0], other+": ") {
				t.Errorf("got %v, want %s refused", err, other)
			}
		})
	}
}

// What is wrong with the place is told together, whatever else is wrong, and
// nothing twice.
func TestPlacementProblems(t *testing.T) {
	t.Parallel()
	type inputs = map[string]property.Value
	text := func(s string) property.Value { return property.New(s) }
	unset := property.New(property.Null)
	for _, test := range []struct {
		name     string
		noSubnet bool
		inputs   inputs
		want     []string // the beginnings
	}{
		{"no subnet in the zone", true, nil, []string{
			"availabilityZone: cannot be looked up: name a zone of this Region that has a default subnet, or give subnetId (no matching EC2 Subnet found)",
		}},
		{"no such subnet", true, inputs{"availabilityZone": unset, "subnetId": text(subnetID)}, []string{
			"subnetId: cannot be looked up: name a subnet of this account and Region (no matching EC2 Subnet found)",
		}},
		{"malformed subnet, wrong zone", false, inputs{"availabilityZone": text("eu-west-1z"), "subnetId": text("subnet-1")}, []string{
			`subnetId: "subnet-1" is not a subnet ID`, "availabilityZone: eu-west-1z is not a zone of this Region, which has eu-west-1a, eu-west-1b",
		}},
		{"malformed subnet, right zone", false, inputs{"subnetId": text("subnet-1"), "instanceType": text("m7i.large")}, []string{
			`subnetId: "subnet-1" is not a subnet ID`, "instanceType: m7i.large is not offered in eu-west-1a",
		}},
		{"no such subnet, wrong zone and type", true, inputs{"availabilityZone": text("eu-west-1z"), "subnetId": text(subnetID), "instanceType": text("x9.large")}, []string{
			"availabilityZone: eu-west-1z is not a zone of this Region", "subnetId: cannot be looked up",
			"instanceType: x9.large cannot be looked up: name an instance type that this Region has (no matching EC2 Instance Type found)",
		}},
		{"unknown subnet, wrong zone", false, inputs{"availabilityZone": text("eu-west-1z"), "subnetId": property.New(property.Computed)}, []string{
			"availabilityZone: eu-west-1z is not a zone of this Region",
		}},
		{"malformed zone, no such subnet", true, inputs{"availabilityZone": text("eu-west-1"), "subnetId": text(subnetID)}, []string{
			`availabilityZone: "eu-west-1" is not an availability zone`, "subnetId: cannot be looked up",
		}},
		{"malformed zone, a subnet", false, inputs{"availabilityZone": text("eu-west-1"), "subnetId": text(subnetID)}, []string{
			`availabilityZone: "eu-west-1" is not an availability zone`,
		}},
		{"no place, and no such type", false, inputs{"availabilityZone": unset, "instanceType": text("x9.large")}, []string{
			"availabilityZone: is missing", "instanceType: x9.large cannot be looked up",
		}},
	} {
		w := newWorld()
		w.preview, w.noSubnet, w.types = true, test.noSubnet, types
		_, err := w.construct(t, given(test.inputs))
		var problems refusal
		if !errors.As(err, &problems) || !slices.EqualFunc(problems, test.want, strings.HasPrefix) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}
