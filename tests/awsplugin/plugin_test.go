package awsplugin_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin"
	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	tests := []struct {
		name, token string
		inputs      object
		want        map[string]string // the start of the reason, by property
	}{
		{
			name: "missing", token: "aws:ebs/volume:Volume", inputs: object{"size": 10},
			want: map[string]string{"availabilityZone": "Missing required argument"},
		},
		{
			name: "unknown", token: "aws:ebs/volume:Volume", inputs: object{"availabilityZone": "eu-west-1a", "sizes": 10},
			want: map[string]string{"sizes": "Invalid or unknown key"},
		},
		{
			name: "an output", token: "aws:ebs/volume:Volume", inputs: object{"availabilityZone": "eu-west-1a", "arn": "arn:aws"},
			want: map[string]string{"arn": "Invalid or unknown key"},
		},
		{
			name: "types", token: "aws:ebs/volume:Volume",
			inputs: object{"availabilityZone": true, "size": "big", "iops": 1.5, "encrypted": "yes", "tags": []any{}},
			want: map[string]string{
				"availabilityZone": "expected type string, got bool", "size": "expected type whole number, got string",
				"iops": "expected type whole number, got number", "encrypted": "expected type bool, got string",
				"tags": "expected type map of strings, got list",
			},
		},
		{
			name: "inside", token: "aws:autoscaling/group:Group",
			inputs: object{"minSize": 1, "maxSize": 1, "tags": []any{object{"key": "a", "value": "b"}, "c"}, "launchTemplate": object{"ID": "lt-1"}},
			want: map[string]string{
				"tags[0].propagateAtLaunch": "Missing required argument", "tags[1]": "expected type object, got string",
				"launchTemplate.ID": "Invalid or unknown key",
			},
		},
		{name: "nothing", token: "aws:autoscaling/group:Group", inputs: object{"minSize": 1, "maxSize": 1}, want: map[string]string{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := map[string]string{}
			for _, failure := range e.check(test.token, "it", property.Map{}, test.inputs).Failures {
				reason := failure.Reason
				if want := test.want[failure.Property]; strings.HasPrefix(reason, want) {
					reason = want
				}
				got[failure.Property] = reason
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := e.plugin.Check(t.Context(), provider.CheckRequest{Urn: urn("aws:ec2/instance:Instance", "it")}); err == nil || !strings.Contains(err.Error(), "no resource type aws:ec2/instance:Instance") {
		t.Errorf("unknown type: got error %v, want it named", err)
	}
}

func TestUnknownInputsPassCheckAndStayUnknown(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	unknown := property.New(property.Computed)
	inputs := properties(object{"namePrefix": "demo-", "instanceType": "t3.medium"}).
		Set("userData", unknown).
		Set("vpcSecurityGroupIds", property.New([]property.Value{unknown})).
		Set("tags", unknown)
	checked, err := e.plugin.Check(t.Context(), provider.CheckRequest{Urn: urn("aws:ec2/launchTemplate:LaunchTemplate", "it"), Inputs: inputs})
	if err != nil || len(checked.Failures) > 0 {
		t.Fatalf("check: %v %v", err, checked.Failures)
	}
	preview, err := e.plugin.Create(t.Context(), provider.CreateRequest{
		Urn: urn("aws:ec2/launchTemplate:LaunchTemplate", "it"), Properties: checked.Inputs, DryRun: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]property.Value{
		"instanceType": property.New("t3.medium"), "namePrefix": property.New("demo-"), "userData": unknown,
		"arn": unknown, "latestVersion": unknown, "name": unknown, "tagsAll": unknown,
	} {
		if got := preview.Properties.Get(name); !got.Equals(want) {
			t.Errorf("preview of %s: got %#v, want %#v", name, got, want)
		}
	}
}

func TestPreviewOfAnUpdateKnowsWhatStays(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	inputs := object{"imageId": latestImage, "instanceType": "t3.medium"}
	template := e.create("aws:ec2/launchTemplate:LaunchTemplate", "node", inputs)

	changed := template.preview(with(inputs, object{"instanceType": "m7i.large"}))
	if !changed.Get("latestVersion").IsComputed() {
		t.Errorf("latestVersion when the instance type changes: got %#v, want unknown", changed.Get("latestVersion"))
	}
	if got, want := changed.Get("defaultVersion"), property.New(1.0); !got.Equals(want) {
		t.Errorf("defaultVersion when the instance type changes: got %#v, want %#v", got, want)
	}
	following := template.preview(with(inputs, object{"instanceType": "m7i.large", "updateDefaultVersion": true}))
	if !following.Get("defaultVersion").IsComputed() {
		t.Errorf("defaultVersion that follows: got %#v, want unknown", following.Get("defaultVersion"))
	}
	tagged := template.preview(with(inputs, object{"tags": object{"Team": "storage"}}))
	if got, want := tagged.Get("latestVersion"), property.New(1.0); !got.Equals(want) {
		t.Errorf("latestVersion when a tag changes: got %#v, want %#v", got, want)
	}

	template.update(with(inputs, object{"instanceType": "m7i.large", "updateDefaultVersion": true}))
	for _, name := range []string{"latestVersion", "defaultVersion"} {
		if got, want := template.state.Get(name), property.New(2.0); !got.Equals(want) {
			t.Errorf("%s after the update: got %#v, want %#v", name, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)

	made := e.create("aws:iam/role:Role", "node", object{"assumeRolePolicy": trust})
	if got, want := made.text("name"), regexp.MustCompile(`^node-[0-9a-f]{7}$`); !want.MatchString(got) {
		t.Errorf("name of a role without one: got %q, want %s", got, want)
	}
	kept := e.check("aws:iam/role:Role", "node", made.inputs, object{"assumeRolePolicy": trust})
	if got, want := kept.Inputs.Get("name"), made.inputs.Get("name"); !got.Equals(want) {
		t.Errorf("name on the next run: got %v, want it kept, %v", got, want)
	}
	diff, _ := made.diff(object{"assumeRolePolicy": trust, "path": "/elsewhere/"})
	if diff.DeleteBeforeReplace {
		t.Error("replacing a resource with a made-up name: got delete before replace, want the replacement first")
	}

	bucket := e.create("aws:s3/bucketV2:BucketV2", "Artifacts", object{})
	if got, want := bucket.text("bucket"), regexp.MustCompile(`^artifacts-[0-9a-f]{7}$`); !want.MatchString(got) {
		t.Errorf("name of a bucket: got %q, want %s", got, want)
	}

	prefixed := e.create("aws:iam/role:Role", "other", object{"assumeRolePolicy": trust, "namePrefix": "demo-node-"})
	if got, want := prefixed.text("name"), regexp.MustCompile(`^demo-node-[0-9]{18}[0-9a-f]{8}$`); !want.MatchString(got) {
		t.Errorf("name of a role with a prefix: got %q, want %s", got, want)
	}
	if got, want := prefixed.id, prefixed.text("name"); got != want {
		t.Errorf("ID of a role: got %q, want its name, %q", got, want)
	}

	named := e.create("aws:iam/role:Role", "named", object{"assumeRolePolicy": trust, "name": "chosen"})
	diff, _ = named.diff(object{"assumeRolePolicy": trust, "name": "chosen", "path": "/elsewhere/"})
	if !diff.DeleteBeforeReplace {
		t.Error("replacing a resource whose name was chosen: want it deleted first, as the name is taken")
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	const token = "aws:ec2/launchTemplate:LaunchTemplate"
	inputs := properties(object{"imageId": latestImage}).Set("userData", property.New("c2VjcmV0").WithSecret(true))
	checked, err := e.plugin.Check(t.Context(), provider.CheckRequest{Urn: urn(token, "it"), Inputs: inputs})
	if err != nil {
		t.Fatal(err)
	}
	created, err := e.plugin.Create(t.Context(), provider.CreateRequest{Urn: urn(token, "it"), Properties: checked.Inputs})
	if err != nil {
		t.Fatal(err)
	}
	read, err := e.plugin.Read(t.Context(), provider.ReadRequest{Urn: urn(token, "it"), ID: created.ID, Properties: created.Properties, Inputs: checked.Inputs})
	if err != nil {
		t.Fatal(err)
	}
	for where, m := range map[string]property.Map{
		"checked inputs": checked.Inputs, "state": created.Properties, "refreshed state": read.Properties, "refreshed inputs": read.Inputs,
	} {
		if got, want := m.Get("userData"), property.New("c2VjcmV0").WithSecret(true); !got.Equals(want) {
			t.Errorf("userData in the %s: got %#v, want %#v", where, got, want)
		}
		if m.Get("imageId").Secret() {
			t.Errorf("imageId in the %s: got a secret", where)
		}
	}
}

func TestRefreshSeesDrift(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	inputs := object{"namePrefix": "demo-", "assumeRolePolicy": trust, "description": "Nodes"}
	role := e.create("aws:iam/role:Role", "role", inputs)
	other := *role // what somebody else does to it
	other.update(with(inputs, object{"description": "Somebody's"}))

	if !role.refresh() {
		t.Fatal("refresh does not find the role")
	}
	for where, m := range map[string]property.Map{"state": role.state, "inputs": role.inputs} {
		if got, want := m.Get("description"), property.New("Somebody's"); !got.Equals(want) {
			t.Errorf("description in the refreshed %s: got %#v, want %#v", where, got, want)
		}
	}
	if got, want := role.inputs.Get("assumeRolePolicy"), property.New(trust); !got.Equals(want) {
		t.Errorf("assumeRolePolicy in the refreshed inputs: got %#v, want it as written, %#v", got, want)
	}
	diff, _ := role.diff(inputs)
	if got, want := diff.DetailedDiff, (map[string]provider.PropertyDiff{"description": {Kind: provider.Update}}); !cmp.Equal(got, want) {
		t.Errorf("diff after drift: got %v, want %v", got, want)
	}
	role.update(inputs)
	if got, want := role.text("description"), "Nodes"; got != want {
		t.Errorf("description after the next update: got %q, want %q", got, want)
	}
}

func TestDefaultTagsAreAddedToEveryResource(t *testing.T) {
	t.Parallel()
	e := newEngine(t, object{"defaultTags": `{"tags":{"Owner":"storage"}}`}) // as SDKs send objects
	inputs := object{"availabilityZone": "eu-west-1a", "size": 1, "tags": object{"Name": "data"}}
	volume := e.create("aws:ebs/volume:Volume", "data", inputs)
	if got, want := volume.state.Get("tagsAll"), properties(object{"m": object{"Name": "data", "Owner": "storage"}}).Get("m"); !got.Equals(want) {
		t.Errorf("tagsAll: got %#v, want %#v", got, want)
	}
	if got, want := volume.state.Get("tags"), properties(object{"m": object{"Name": "data"}}).Get("m"); !got.Equals(want) {
		t.Errorf("tags: got %#v, want %#v", got, want)
	}
	volume.unchanged("after create", inputs)
}

func TestCreateThatFailsHalfWayKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	remove := e.Refuse("PutRetentionPolicy", api.Errorf(http.StatusBadRequest, "InvalidParameterException", "not today"))
	inputs := object{"name": "/aws/lambda/demo", "retentionInDays": 30}
	group, err := e.tryCreate("aws:cloudwatch/logGroup:LogGroup", "logs", inputs)
	if err == nil {
		t.Fatal("create: got no error, want the refusal")
	}
	for _, part := range []string{"1 error occurred:", "setting CloudWatch Logs Log Group (/aws/lambda/demo) retention policy", "operation error CloudWatch Logs: PutRetentionPolicy", "InvalidParameterException: not today"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("create: got error %q, want it to contain %q", err, part)
		}
	}
	if got, want := group.id, "/aws/lambda/demo"; got != want {
		t.Fatalf("ID after the failure: got %q, want %q", got, want)
	}
	remove()
	group.refresh()
	group.update(inputs)
	if got, want := group.state.Get("retentionInDays"), property.New(30.0); !got.Equals(want) {
		t.Errorf("retentionInDays after the next update: got %#v, want %#v", got, want)
	}
	group.destroy()
}

func TestCreateThatFailsAtOnceKeepsNothing(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	volume, err := e.tryCreate("aws:ebs/volume:Volume", "data", object{"availabilityZone": "eu-west-1z", "size": 1})
	if err == nil || !strings.Contains(err.Error(), "creating EBS Volume: operation error EC2: CreateVolume") {
		t.Errorf("create: got error %v, want it to name the call", err)
	}
	if volume.id != "" {
		t.Errorf("create: got ID %q, want none", volume.id)
	}
}

func TestVolumeInUseIsDeletedWhenItIsFree(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)
	volume := e.create("aws:ebs/volume:Volume", "data", object{"availabilityZone": "eu-west-1a", "size": 1})
	refusals := 0
	e.Intercept(func(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
		if c.Action == "DeleteVolume" && refusals < 3 {
			refusals++
			return nil, api.Errorf(http.StatusBadRequest, "VolumeInUse", "it is attached")
		}
		return next(ctx)
	})
	volume.destroy()
	if got, want := refusals, 3; got != want {
		t.Errorf("refused deletions: got %d, want %d", got, want)
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	e := newEngine(t, nil)

	if got, want := e.invoke("aws:index/getCallerIdentity:getCallerIdentity", object{}).Get("accountId"), property.New(plane.Account); !got.Equals(want) {
		t.Errorf("account: got %#v, want %#v", got, want)
	}
	if got, want := e.invoke("aws:index/getRegion:getRegion", object{}).Get("name"), property.New(region); !got.Equals(want) {
		t.Errorf("Region: got %#v, want %#v", got, want)
	}
	partition := e.invoke("aws:index/getPartition:getPartition", object{})
	for name, want := range map[string]string{"partition": "aws", "dnsSuffix": "amazonaws.com", "reverseDnsPrefix": "com.amazonaws"} {
		if got := partition.Get(name); !got.Equals(property.New(want)) {
			t.Errorf("%s: got %#v, want %q", name, got, want)
		}
	}
	zones := e.invoke("aws:index/getAvailabilityZones:getAvailabilityZones", object{"state": "available"}).Get("names")
	if !zones.IsArray() || zones.AsArray().Len() == 0 || !zones.AsArray().Get(0).Equals(property.New("eu-west-1a")) {
		t.Errorf("zones: got %#v, want the first to be eu-west-1a", zones)
	}
	subnet := e.invoke("aws:ec2/getSubnet:getSubnet", object{"availabilityZone": "eu-west-1a", "defaultForAz": true})
	if got, want := subnet.Get("availabilityZone"), property.New("eu-west-1a"); !got.Equals(want) {
		t.Errorf("zone of the subnet: got %#v, want %#v", got, want)
	}
	vpc := e.invoke("aws:ec2/getVpc:getVpc", object{"default": true})
	if got, want := vpc.Get("id"), subnet.Get("vpcId"); !got.Equals(want) {
		t.Errorf("default VPC: got %#v, want the subnet's, %#v", got, want)
	}
	instanceType := e.invoke("aws:ec2/getInstanceType:getInstanceType", object{"instanceType": "t3.medium"})
	if got, want := instanceType.Get("hypervisor"), property.New("nitro"); !got.Equals(want) {
		t.Errorf("hypervisor of t3.medium: got %#v, want %#v", got, want)
	}

	for _, test := range []struct {
		token string
		args  object
		want  string
	}{
		{"aws:ec2/getSubnet:getSubnet", object{"availabilityZone": "eu-west-1z"}, "no matching EC2 Subnet found"},
		{"aws:ec2/getSubnet:getSubnet", object{}, "multiple EC2 Subnets matched"},
		{"aws:ec2/getInstanceType:getInstanceType", object{"instanceType": "t0.pico"}, "no matching EC2 Instance Type found: t0.pico"},
		{"aws:ec2/getAmi:getAmi", object{}, "no function aws:ec2/getAmi:getAmi"},
	} {
		if _, err := e.tryInvoke(test.token, test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %v: got error %v, want %q", test.token, test.args, err, test.want)
		}
	}
}

func TestConfiguration(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	plugin := awsplugin.New().WithDefaults()
	checked, err := plugin.CheckConfig(t.Context(), provider.CheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(checked.Failures) != 1 || checked.Failures[0].Property != "region" {
		t.Errorf("without a Region: got failures %v, want one of region", checked.Failures)
	}
	for name, inputs := range map[string]property.Map{
		"given":   properties(object{"region": "eu-west-1"}),
		"unknown": property.Map{}.Set("region", property.New(property.Computed)),
	} {
		if checked, err = plugin.CheckConfig(t.Context(), provider.CheckRequest{Inputs: inputs}); err != nil || len(checked.Failures) > 0 {
			t.Errorf("with a Region that is %s: got %v %v, want no failures", name, checked.Failures, err)
		}
	}
	diff, err := plugin.DiffConfig(t.Context(), provider.DiffRequest{
		State: properties(object{"region": "eu-west-1"}), Inputs: properties(object{"region": "eu-west-2"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := diff.DetailedDiff["region"].Kind, provider.UpdateReplace; got != want {
		t.Errorf("another Region: got %q, want %q, as resources cannot move", got, want)
	}
}
