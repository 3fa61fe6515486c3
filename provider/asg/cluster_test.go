package asg_test

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	presource "github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the files in testdata")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test ./provider/asg -rewrite accepts it:\n%s", path, diff)
	}
}

// TestResources shows everything that the least inputs declare.
func TestResources(t *testing.T) {
	t.Parallel()
	w := newWorld()
	if _, err := w.construct(t, given(nil)); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, c := range w.children() {
		text.WriteString(c.String())
	}
	golden(t, "resources.txt", text.String())
}

func TestPreviewDeclaresTheSame(t *testing.T) {
	t.Parallel()
	up, preview := newWorld(), newWorld()
	preview.preview = true
	for _, w := range []*world{up, preview} {
		if _, err := w.construct(t, given(map[string]property.Value{"tags": property.New(map[string]property.Value{"Team": property.New("storage")})})); err != nil {
			t.Fatal(err)
		}
	}
	names := func(w *world) (list []string) {
		for _, c := range w.children() {
			list = append(list, c.typ+" "+c.name)
		}
		return list
	}
	if diff := cmp.Diff(names(up), names(preview)); diff != "" {
		t.Errorf("up and preview declare different resources (-up +preview):\n%s", diff)
	}
}

// What the first instance meets must be there before it, and what a
// termination needs must stay until the last one is gone.
func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld()
	if _, err := w.construct(t, given(map[string]property.Value{"sshIngressCidr": property.New("203.0.113.7/32")})); err != nil {
		t.Fatal(err)
	}
	group := w.the(t, "aws:autoscaling/group:Group", "fs-nodes")
	before := w.before(group)
	for _, c := range w.children() {
		switch {
		case c.urn == group.urn:
		case c.typ == "aws:autoscaling/lifecycleHook:LifecycleHook":
			if before[c.urn] {
				t.Errorf("the group waits for the hook, which must be destroyed before it")
			}
			if !w.before(c)[group.urn] {
				t.Errorf("the hook does not wait for the group")
			}
		case !before[c.urn]:
			t.Errorf("the group does not wait for %s %s", c.typ, c.name)
		}
	}
	function := w.before(w.the(t, "aws:lambda/function:Function", "fs-graceful-leave"))
	for _, key := range [][2]string{
		{"aws:cloudwatch/logGroup:LogGroup", "fs-graceful-leave"},
		{"aws:iam/rolePolicy:RolePolicy", "fs-graceful-leave"},
	} {
		if c := w.the(t, key[0], key[1]); !function[c.urn] {
			t.Errorf("the function does not wait for %s %s", c.typ, c.name)
		}
	}
	object := w.before(w.the(t, "aws:s3/bucketObjectv2:BucketObjectv2", "fs-bootstrap"))
	if c := w.the(t, "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "fs-artifacts-private"); !object[c.urn] {
		t.Errorf("the object is uploaded before the bucket is private")
	}
}

// Everything is declared and looked up below the component and with the
// provider that was passed to it, so it works without default providers.
func TestParentAndProvider(t *testing.T) {
	t.Parallel()
	w := newWorld()
	if _, err := w.construct(t, given(nil)); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.children() {
		if c.parent != string(clusterURN) {
			t.Errorf("%s %s has parent %q, want %q", c.typ, c.name, c.parent, clusterURN)
		}
		if c.provider != awsProvider {
			t.Errorf("%s %s has provider %q, want %q", c.typ, c.name, c.provider, awsProvider)
		}
	}
	var lookups int
	for _, l := range w.lookups {
		if l.token == "pulumi:pulumi:getResource" {
			continue
		}
		lookups++
		if l.provider != awsProvider {
			t.Errorf("%s has provider %q, want %q", l.token, l.provider, awsProvider)
		}
	}
	if want := 6; lookups != want {
		t.Errorf("got %d lookups, want %d", lookups, want)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	w := newWorld()
	outputs, err := w.construct(t, given(nil))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for name, value := range outputs.All {
		got[name] = plain(presource.ToResourcePropertyValue(value)).Mappable()
	}
	want := map[string]any{
		"clusterName":               "demo",
		"autoScalingGroupName":      "demo-asg",
		"volumeId":                  volumeID,
		"seedTableName":             "demo-etcfs-seed",
		"securityGroupId":           "fs-nodes-id",
		"launchTemplateId":          "fs-node-id",
		"launchTemplateVersion":     7.0,
		"gracefulLeaveFunctionName": "demo-graceful-leave",
		"failedEventsQueueUrl":      "https://sqs.eu-west-1.amazonaws.com/123456789012/demo-graceful-leave-failed",
		"nodeRoleName":              "demo-node-20261129",
		"instanceProfileName":       "demo-node-20261129",
		"bucketName":                "etcfs-demo-20261129",
		"availabilityZone":          zone,
		"vpcId":                     "vpc-0123456789abcdef0",
		"subnetId":                  subnetID,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

// The number of nodes is the group's own until the program claims it: an input
// that is not declared is not compared, whoever scales the group.
func TestDesiredCapacity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		inputs map[string]property.Value
		want   any
	}{
		{"unset", nil, nil},
		{"null", map[string]property.Value{"desiredCapacity": property.New(property.Null)}, nil},
		{"set", map[string]property.Value{"desiredCapacity": property.New(4.0)}, 4.0},
	} {
		w := newWorld()
		if _, err := w.construct(t, given(test.inputs)); err != nil {
			t.Fatal(err)
		}
		got := plain(w.the(t, "aws:autoscaling/group:Group", "fs-nodes").inputs["desiredCapacity"]).Mappable()
		if got != test.want {
			t.Errorf("%s: the group's desiredCapacity is %v, want %v", test.name, got, test.want)
		}
	}
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		inputs map[string]property.Value
		want   map[string]any
	}{
		{
			"a zone's default subnet",
			map[string]property.Value{"availabilityZone": property.New(zone)},
			map[string]any{"availabilityZone": zone, "defaultForAz": true},
		},
		{
			"a given subnet",
			map[string]property.Value{"subnetId": property.New(subnetID)},
			map[string]any{"id": subnetID},
		},
	} {
		w := newWorld()
		test.inputs["clusterName"] = property.New("demo")
		if _, err := w.construct(t, test.inputs); err != nil {
			t.Fatal(err)
		}
		for _, l := range w.lookups {
			if l.token != "aws:ec2/getSubnet:getSubnet" {
				continue
			}
			got := plain(presource.NewProperty(l.args)).Mappable()
			if diff := cmp.Diff(any(test.want), got); diff != "" {
				t.Errorf("%s: looked up (-want +got):\n%s", test.name, diff)
			}
		}
		if got := w.the(t, "aws:ebs/volume:Volume", "fs-data").text(t, "availabilityZone"); got != zone {
			t.Errorf("%s: the volume is in %s, want %s", test.name, got, zone)
		}
	}
}

// A volume does not outlive its nodes, which cannot be reached from another VPC,
// nor its name; it stays where both do.
func TestVolumeIsReplacedWithItsNodes(t *testing.T) {
	t.Parallel()
	const here = "vpc-0123456789abcdef0"
	trigger := func(name, vpcID string) string {
		w := newWorld()
		w.vpcID = vpcID
		if _, err := w.construct(t, map[string]property.Value{"clusterName": property.New(name), "subnetId": property.New(subnetID)}); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(w.the(t, "aws:ebs/volume:Volume", "fs-data").trigger.AsInterface())
	}
	was := trigger("demo", here)
	for _, test := range []struct {
		name, vpcID string
		replaced    bool
	}{
		{"demo", here, false},
		{"other", here, true},
		{"demo", "vpc-0fedcba9876543210", true},
	} {
		if got := trigger(test.name, test.vpcID) != was; got != test.replaced {
			t.Errorf("as %s in %s the volume is replaced: %t, want %t", test.name, test.vpcID, got, test.replaced)
		}
	}
}

func TestExistingInstanceProfile(t *testing.T) {
	t.Parallel()
	w := newWorld()
	outputs, err := w.construct(t, given(map[string]property.Value{"instanceProfile": property.New("etcfs-nodes")}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range w.children() {
		if strings.HasPrefix(c.typ, "aws:iam/") && c.name != "fs-graceful-leave" {
			t.Errorf("%s %s was declared although a profile was given", c.typ, c.name)
		}
	}
	profile := plain(w.the(t, "aws:ec2/launchTemplate:LaunchTemplate", "fs-node").inputs["iamInstanceProfile"]).ObjectValue()
	if got, want := profile["name"].StringValue(), "etcfs-nodes"; got != want {
		t.Errorf("nodes have the profile %s, want %s", got, want)
	}
	if got := outputs.Get("nodeRoleName"); got.AsString() != "" {
		t.Errorf("got nodeRoleName %q, want none", got.AsString())
	}
}

// What the manual says that a role of one's own needs is what the component's
// own may do.
func TestManualListsThePermissions(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(string(manual), "```json\n")
	listed, _, _ = strings.Cut(listed, "```")
	w := newWorld()
	if _, err := w.construct(t, given(map[string]property.Value{"waitForReady": property.New(true)})); err != nil {
		t.Fatal(err)
	}
	granted := w.the(t, "aws:iam/rolePolicy:RolePolicy", "fs-node").text(t, "policy")
	if diff := cmp.Diff(actions(t, granted), actions(t, listed)); diff != "" {
		t.Errorf("actions (-granted +listed):\n%s", diff)
	}
}

// actions are what a policy allows on some resource, and what on any.
func actions(t *testing.T, policy string) map[string][]string {
	t.Helper()
	var document struct {
		Statement []struct{ Action, Resource any }
	}
	if err := json.Unmarshal([]byte(policy), &document); err != nil {
		t.Fatalf("%v in %s", err, policy)
	}
	texts := func(of any) (list []string) {
		switch of := of.(type) {
		case string:
			return []string{of}
		case []any:
			for _, each := range of {
				list = append(list, fmt.Sprint(each))
			}
		}
		return list
	}
	allowed := map[string][]string{}
	for _, statement := range document.Statement {
		on := "some"
		if slices.Contains(texts(statement.Resource), "*") {
			on = "any"
		}
		allowed[on] = append(allowed[on], texts(statement.Action)...)
	}
	for on, list := range allowed {
		slices.Sort(list)
		allowed[on] = slices.Compact(list)
	}
	return allowed
}

func TestSSHOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	w := newWorld()
	if _, err := w.construct(t, given(map[string]property.Value{
		"sshIngressCidr": property.New("203.0.113.7/32"), "keyName": property.New("ops"),
	})); err != nil {
		t.Fatal(err)
	}
	rule := w.the(t, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "fs-ingress-ssh")
	if got, want := rule.text(t, "cidrIpv4"), "203.0.113.7/32"; got != want {
		t.Errorf("SSH is open to %s, want %s", got, want)
	}
	if got, want := w.the(t, "aws:ec2/launchTemplate:LaunchTemplate", "fs-node").text(t, "keyName"), "ops"; got != want {
		t.Errorf("got key %s, want %s", got, want)
	}
}

// In other partitions ARNs begin otherwise. In China, and nowhere else, EC2's
// principal ends otherwise.
func TestPartition(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ partition, dnsSuffix, ec2 string }{
		{"aws-cn", "amazonaws.com.cn", "ec2.amazonaws.com.cn"},
		{"aws-us-gov", "amazonaws.com", "ec2.amazonaws.com"},
		{"aws-eusc", "amazonaws.eu", "ec2.amazonaws.com"},
	} {
		w := newWorld()
		w.partition, w.dnsSuffix = test.partition, test.dnsSuffix
		if _, err := w.construct(t, given(nil)); err != nil {
			t.Fatal(err)
		}
		for _, c := range w.children() {
			if text := c.String(); strings.Contains(text, "arn:aws:") {
				t.Errorf("%s: an ARN of another partition in\n%s", test.partition, text)
			}
		}
		for role, service := range map[string]string{"fs-node": test.ec2, "fs-graceful-leave": "lambda.amazonaws.com"} {
			want := `"Service":"` + service + `"}`
			if got := w.the(t, "aws:iam/role:Role", role).text(t, "assumeRolePolicy"); !strings.Contains(got, want) {
				t.Errorf("%s: %s trusts %s, want %s", test.partition, role, got, want)
			}
		}
	}
}

// AWS's limits on generated names hold for the longest cluster name.
func TestLongestClusterName(t *testing.T) {
	t.Parallel()
	w := newWorld()
	name := strings.Repeat("abcdefghij", 4)
	if _, err := w.construct(t, given(map[string]property.Value{"clusterName": property.New(name)})); err != nil {
		t.Fatal(err)
	}
	const generated = 26 // characters that are added to a prefix
	limits := map[string]int{
		"aws:iam/role:Role":                       64,
		"aws:iam/instanceProfile:InstanceProfile": 128,
		"aws:s3/bucketV2:BucketV2":                63,
		"aws:ec2/launchTemplate:LaunchTemplate":   128,
		"aws:lambda/function:Function":            64,
		"aws:cloudwatch/eventRule:EventRule":      64,
		"aws:sqs/queue:Queue":                     80,
		"aws:ec2/securityGroup:SecurityGroup":     255,
	}
	for _, c := range w.children() {
		limit, ok := limits[c.typ]
		if !ok {
			continue
		}
		var length int
		switch {
		case c.inputs["bucketPrefix"].V != nil:
			length = len(c.text(t, "bucketPrefix")) + generated
		case c.inputs["namePrefix"].V != nil:
			length = len(c.text(t, "namePrefix")) + generated
		default:
			length = len(c.text(t, "name"))
		}
		if length > limit {
			t.Errorf("%s %s gets a name of %d characters, of which AWS takes %d", c.typ, c.name, length, limit)
		}
	}
}

func TestTagsReachEverything(t *testing.T) {
	t.Parallel()
	w := newWorld()
	if _, err := w.construct(t, given(map[string]property.Value{
		"tags": property.New(map[string]property.Value{"Team": property.New("storage")}),
	})); err != nil {
		t.Fatal(err)
	}
	untagged := map[string]bool{ // AWS has no tags on these, or too few
		"aws:autoscaling/lifecycleHook:LifecycleHook":                                                true,
		"aws:cloudwatch/eventTarget:EventTarget":                                                     true,
		"aws:iam/rolePolicy:RolePolicy":                                                              true,
		"aws:iam/rolePolicyAttachment:RolePolicyAttachment":                                          true,
		"aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig":                             true,
		"aws:lambda/permission:Permission":                                                           true,
		"aws:sqs/queuePolicy:QueuePolicy":                                                            true,
		"aws:s3/bucketObjectv2:BucketObjectv2":                                                       true,
		"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock":                                     true,
		"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2": true,
	}
	for _, c := range w.children() {
		if untagged[c.typ] {
			continue
		}
		tags := map[string]any{}
		switch value := plain(c.inputs["tags"]).Mappable().(type) {
		case map[string]any:
			tags = value
		case []any: // the group's
			for _, entry := range value {
				tag, _ := entry.(map[string]any)
				key, _ := tag["key"].(string)
				tags[key] = tag["value"]
			}
		}
		if tags["ClusterName"] != "demo" || tags["Team"] != "storage" {
			t.Errorf("%s %s has the tags %v", c.typ, c.name, tags)
		}
	}
}

// With waitForReady the group has the launching hook before its first instance,
// the nodes know it and may end their launch; without it nothing of that is
// there.
func TestWaitForReady(t *testing.T) {
	t.Parallel()
	const hookType = "aws:autoscaling/lifecycleHook:LifecycleHook"
	for _, test := range []struct {
		name    string
		inputs  map[string]property.Value
		waits   bool
		refresh bool
	}{
		{"by default", nil, false, false},
		{"waiting", map[string]property.Value{"waitForReady": property.New(true)}, true, false},
		{"refreshing", map[string]property.Value{"waitForReady": property.New(true), "instanceRefresh": property.New(true)}, true, true},
	} {
		w := newWorld()
		if _, err := w.construct(t, given(test.inputs)); err != nil {
			t.Fatal(err)
		}
		group := w.the(t, "aws:autoscaling/group:Group", "fs-nodes")
		hooks := plain(group.inputs["initialLifecycleHooks"])
		if got := hooks.IsArray() && hooks.ArrayValue()[0].ObjectValue()["name"].StringValue() == "demo-ready"; got != test.waits {
			t.Errorf("%s: the group starts with the hooks %v, want demo-ready %t", test.name, hooks, test.waits)
		}
		if _, got := w.resources[key(hookType, "fs-ready")]; got != test.waits {
			t.Errorf("%s: the hook is declared %t, want %t", test.name, got, test.waits)
		}
		wait := "0"
		if test.waits {
			wait = "20m0s"
		}
		if got := group.text(t, "waitForCapacityTimeout"); got != wait {
			t.Errorf("%s: pulumi up waits %s, want %s", test.name, got, wait)
		}
		if got := strings.Contains(w.the(t, "aws:iam/rolePolicy:RolePolicy", "fs-node").text(t, "policy"), "CompleteLifecycleAction"); got != test.waits {
			t.Errorf("%s: nodes may complete their launch %t, want %t", test.name, got, test.waits)
		}
		userData, err := base64.StdEncoding.DecodeString(w.the(t, "aws:ec2/launchTemplate:LaunchTemplate", "fs-node").text(t, "userData"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(userData), "export ETCFS_LAUNCH_HOOK='demo-ready'\n"); got != test.waits {
			t.Errorf("%s: nodes know the hook %t, want %t", test.name, got, test.waits)
		}
		if got := plain(group.inputs["instanceRefresh"]).IsObject(); got != test.refresh {
			t.Errorf("%s: the group refreshes its instances %t, want %t", test.name, got, test.refresh)
		}
	}
}
