package engine_test

import (
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// What the CLI says of inputs that cannot be accepted: every problem by its
// property, in a line, and no secret.
func TestProblemsAsTheUserReadsThem(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newYAML(t, region)
	const place = "clusterName: demo, availabilityZone: eu-west-1a, "
	for _, test := range []struct {
		name       string
		properties string
		want       []string
	}{
		{"types", "{" + place + `leaseTtl: 10, minSize: 1.5, tags: {Cost: 7}, waitForReady: {"fn::secret": true}, volumeIops: 1}`, []string{
			"property leaseTtl with value '{10}' has a problem: is the number 10, and must be a string, in quotes",
			"property minSize with value '{1.5}' has a problem: is the number 1.5, and must be a whole number",
			`property tags["Cost"] with value '{7}' has a problem: is the number 7, and must be a string, in quotes`,
			"property waitForReady (secret) has a problem: is a secret that cannot be kept, since what is declared depends on it: give true or false in plain",
			"property volumeIops with value '{1}' has a problem: 1 IOPS is outside of 100 to 256000",
		}},
		{"secrets", "{" + place + `keyName: {"fn::secret": "geheimé"}, tags: {Team: {"fn::secret": "geheim!"}, Role: db}, alarmActions: {"fn::secret": [geheim]}, ` +
			`releasesUrl: {"fn::secret": "ftp://geheim"}, maxSize: {"fn::secret": 2}}`, []string{
			"property minSize has a problem: 3 is more than maxSize, [secret]: lower it, or raise maxSize",
			"property keyName (secret) has a problem: is refused, and not shown, since it is secret; accepted: 1 to 255 printable ASCII characters",
			"property releasesUrl (secret) has a problem: is refused, and not shown, since it is secret; accepted: an http or https URL without query and fragment",
			"property alarmActions[0] (secret) has a problem: is refused, and not shown, since it is secret; accepted: each of them an ARN",
			`property tags["Role"] with value '{db}' has a problem: is a tag that the component sets itself; choose another key`,
			`property tags["Team"] (secret) has a problem: is refused, and not shown, since it is secret; accepted: letters, digits, spaces`,
		}},
		{"a map that is secret with its keys", "{" + place + `tags: {"fn::secret": {"aws:geheim": x}}}`, []string{
			"property tags (secret) has a problem: is refused, and not shown, since it is secret; accepted: keys of 1 to 128 characters",
		}},
		{"what is looked up", "{clusterName: demo, availabilityZone: eu-west-1z, instanceType: x9.large}", []string{
			"property availabilityZone with value '{eu-west-1z}' has a problem: cannot be looked up: name a zone of this Region that has a default subnet, or give subnetId (no matching EC2 Subnet found)",
			"property instanceType with value '{x9.large}' has a problem: x9.large cannot be looked up: name an instance type that this Region has (no matching EC2 Instance Type found: x9.large)",
		}},
		{"a malformed subnet and a wrong zone", "{clusterName: demo, availabilityZone: eu-west-1z, subnetId: subnet-1}", []string{
			`property subnetId with value '{subnet-1}' has a problem: "subnet-1" is not a subnet ID`,
			"property availabilityZone with value '{eu-west-1z}' has a problem: eu-west-1z is not a zone of this Region, which has eu-west-1a, eu-west-1b, eu-west-1c",
		}},
	} {
		s.properties(test.properties)
		_, err := s.preview()
		if err == nil {
			t.Errorf("%s: got no error", test.name)
			continue
		}
		told := s.output.String() + err.Error()
		problems := s.problems()
		for i, problem := range problems {
			if i >= len(test.want) || !strings.HasPrefix(problem, test.want[i]) {
				t.Errorf("%s: got %q among the problems", test.name, problem)
			}
		}
		if len(problems) < len(test.want) {
			t.Errorf("%s: got %d problems, want %q", test.name, len(problems), test.want)
		}
		for _, internal := range []string{"geheim", "rpc error", "failed to copy", "error occurred", "pulumi.String"} {
			if strings.Contains(told, internal) {
				t.Errorf("%s: the CLI tells %q:\n%s", test.name, internal, told)
			}
		}
	}
	if calls := region.Changes(); len(calls) > 0 {
		t.Errorf("got calls %v, want nothing but looks", calls)
	}
}

// problems are the lines of the last output that say what is wrong with a
// property.
func (s *stack) problems() (list []string) {
	_, diagnostics, _ := strings.Cut(s.output.String(), "Diagnostics:")
	for line := range strings.Lines(diagnostics) {
		if problem, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			list = append(list, problem)
		}
	}
	return list
}
