package engine_test

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	gocmp "github.com/google/go-cmp/cmp"
	awsprovider "github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ebs"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/provider/asg"
	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// provider is an explicit provider of a region.
func provider(ctx *pulumi.Context, name string, region *plane.Plane) (*awsprovider.Provider, error) {
	environment, url := region.Environment(), pulumi.String(region.URL)
	return awsprovider.NewProvider(ctx, name, &awsprovider.ProviderArgs{
		Region:    pulumi.String(region.Region),
		AccessKey: pulumi.String(environment["AWS_ACCESS_KEY_ID"]), SecretKey: pulumi.String(environment["AWS_SECRET_ACCESS_KEY"]),
		Endpoints: awsprovider.ProviderEndpointArray{awsprovider.ProviderEndpointArgs{
			Autoscaling: url, Cloudwatch: url, Cloudwatchevents: url, Cloudwatchlogs: url, Dynamodb: url, Ec2: url, Iam: url,
			Lambda: url, S3: url, Sqs: url, Ssm: url, Sts: url,
		}},
	})
}

// One name in two Regions, in one stack in which nothing but the two explicit
// providers knows the way.
func TestOneNameInTwoRegions(t *testing.T) {
	t.Parallel()
	frankfurt, ireland := plane.New(t, "eu-central-1"), plane.New(t, "eu-west-1")
	s := newStack(t, frankfurt, map[string]string{"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "nobody"})
	if err := s.SetConfigWithOptions(t.Context(), "pulumi:disable-default-providers[0]", auto.ConfigValue{Value: "aws"}, &auto.ConfigOptions{Path: true}); err != nil {
		t.Fatal(err)
	}
	s.program(func(ctx *pulumi.Context) error {
		for name, region := range map[string]*plane.Plane{"frankfurt": frankfurt, "ireland": ireland} {
			explicit, err := provider(ctx, name, region)
			if err != nil {
				return err
			}
			if err := declare(ctx, name, demo(pulumi.Map{"availabilityZone": pulumi.String(region.Region + "a")}), pulumi.Providers(explicit)); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := s.up()
	s.must("up", got, err, changes{"create": 2*perCluster + 3})
	var roles []string
	for _, region := range []*plane.Plane{frankfurt, ireland} {
		if got, want := aws.ToString(group(t, region, "demo-asg").VPCZoneIdentifier), defaultSubnet(t, region, region.Region+"a"); got != want {
			t.Errorf("%s: the group is in %s, want %s", region.Region, got, want)
		}
		// IAM is one for the account: names must differ between the Regions.
		listed, err := iam.NewFromConfig(region.Config()).ListRoles(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, role := range listed.Roles {
			roles = append(roles, aws.ToString(role.RoleName))
		}
	}
	slices.Sort(roles)
	if all := len(roles); all != 4 || len(slices.Compact(roles)) != all {
		t.Errorf("got roles %v, want four different names", roles)
	}
	s.mustDestroy()
	if left := inventory(t, ireland); len(left) > 0 {
		t.Errorf("after destroy: got %v left in the other Region, want nothing", left)
	}
}

// A second cluster of a name that is taken fails, and neither it nor its
// destruction touches what the first one has: AWS takes the creation of a rule,
// a queue or an alarm that exists for an update.
func TestOneNameTwice(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	first, second := newStack(t, region, nil), newStack(t, region, nil)
	first.program(one(demo(nil)))
	got, err := first.up()
	first.must("up", got, err, changes{"create": perCluster + 1})
	before := inventory(t, region)

	second.program(one(demo(nil)))
	if _, err := second.up(); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("the second cluster of one name came up, or failed with %v, want what exists already", err)
	}
	if err := second.destroy(); err != nil {
		t.Errorf("destroy what came of the second cluster: %v", err)
	}
	if after := inventory(t, region); !slices.Equal(after, before) {
		t.Errorf("the first cluster has %v, had %v", after, before)
	}
	got, err = first.up()
	first.must("up after all that", got, err, nil)
}

// Options of the component reach its children: an alias, a transform, a change
// that is ignored on a child.
func TestOptions(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	args := func(iops int) pulumi.Map {
		return demo(pulumi.Map{"volumeIops": pulumi.Int(iops), "minSize": pulumi.Int(1)})
	}
	s.program(one(args(100)))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	former := pulumi.Aliases([]pulumi.Alias{{Name: pulumi.String("fs")}})
	// Under another name, with an alias to the old one, nothing is made anew;
	// the transform sees the children of the component.
	var seen []string
	s.program(func(ctx *pulumi.Context) error {
		return declare(ctx, "renamed", args(100), former,
			pulumi.Transforms([]pulumi.ResourceTransform{func(_ context.Context, t *pulumi.ResourceTransformArgs) *pulumi.ResourceTransformResult {
				seen = append(seen, t.Type)
				if t.Type != "aws:ebs/volume:Volume" {
					return nil
				}
				t.Props["iops"] = pulumi.Int(500)
				return &pulumi.ResourceTransformResult{Props: t.Props, Opts: t.Opts}
			}}))
	})
	got, err := s.up()
	if err != nil {
		t.Fatal(err)
	}
	if got["create"]+got["delete"]+got["replace"] > 0 {
		t.Errorf("renamed with an alias: got changes %v, want only updates\n%s", got, &s.output)
	}
	if !slices.Contains(seen, "aws:ebs/volume:Volume") {
		t.Errorf("the transform has seen %v, want the volume among them", seen)
	}
	volume, _ := s.exported("renamed.volume").(string)
	if got, want := iops(t, region, volume), int32(500); got != want {
		t.Errorf("after the transform: got %d IOPS, want %d", got, want)
	}

	// A transform can have a change of a child ignored.
	s.program(func(ctx *pulumi.Context) error {
		return declare(ctx, "renamed", args(900), former,
			pulumi.Transforms([]pulumi.ResourceTransform{func(_ context.Context, t *pulumi.ResourceTransformArgs) *pulumi.ResourceTransformResult {
				if t.Type != "aws:ebs/volume:Volume" {
					return nil
				}
				t.Opts.IgnoreChanges = append(t.Opts.IgnoreChanges, "iops")
				return &pulumi.ResourceTransformResult{Props: t.Props, Opts: t.Opts}
			}}))
	})
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	if got, want := iops(t, region, volume), int32(500); got != want {
		t.Errorf("a change that is ignored: got %d IOPS, want them left at %d", got, want)
	}
	s.mustDestroy()
}

// A cluster that was renamed, or moved in the program, and says so, stays what it
// is in AWS.
func TestAliases(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	args := demo(pulumi.Map{"minSize": pulumi.Int(1)})
	s.program(one(args))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	volume := s.exported("fs.volume")
	alias := func(of pulumi.Alias) pulumi.ResourceOption { return pulumi.Aliases([]pulumi.Alias{of}) }
	below := func(ctx *pulumi.Context, name string, of pulumi.Alias) error {
		var outer pulumi.ResourceState
		if err := ctx.RegisterComponentResource("test:index:Outer", "outer", &outer); err != nil {
			return err
		}
		return declare(ctx, name, args, pulumi.Parent(&outer), alias(of))
	}
	const outer = "urn:pulumi:test::engine::test:index:Outer::outer"
	for _, step := range []struct {
		name    string
		cluster string
		program pulumi.RunFunc
		want    []string
	}{
		{"another name", "renamed", func(ctx *pulumi.Context) error {
			return declare(ctx, "renamed", args, alias(pulumi.Alias{Name: pulumi.String("fs")}))
		}, nil},
		{"below a parent", "renamed", func(ctx *pulumi.Context) error {
			return below(ctx, "renamed", pulumi.Alias{NoParent: pulumi.Bool(true)})
		}, []string{"create Outer outer"}},
		{"another name below the parent", "inner", func(ctx *pulumi.Context) error {
			return below(ctx, "inner", pulumi.Alias{Name: pulumi.String("renamed")})
		}, nil},
		{"from below a parent, with another name", "fs", func(ctx *pulumi.Context) error {
			return declare(ctx, "fs", args, alias(pulumi.Alias{Name: pulumi.String("inner"), ParentURN: pulumi.URN(outer)}))
		}, []string{"delete Outer outer"}},
	} {
		s.program(step.program)
		if diff := gocmp.Diff(step.want, s.steps()); diff != "" {
			t.Fatalf("%s: changes (-want +got):\n%s", step.name, diff)
		}
		if _, err := s.up(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := s.exported(step.cluster + ".volume"); got != volume {
			t.Errorf("%s: got volume %v, want %v", step.name, got, volume)
		}
	}
	s.mustDestroy()
}

// What comes in as a secret stays one: in the state, the user data and the
// outputs. A tag does not, which the AWS provider has twice in its outputs.
func TestSecrets(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	secret := func(text string) pulumi.Input { return pulumi.ToSecret(pulumi.String(text)) }
	s.program(one(pulumi.Map{
		"clusterName": secret("demo"), "availabilityZone": pulumi.String("eu-west-1a"), "minSize": pulumi.Int(1),
		"releasesUrl": secret("https://geheim.example"), "githubRepo": secret("geheim/etcfs"), "sshIngressCidr": secret("198.51.100.77/32"),
		"alarmActions": pulumi.Array{secret("arn:aws:sns:eu-west-1:123456789012:geheim")},
	}))
	got, err := s.up()
	s.must("up", got, err, changes{"create": perCluster + 2})
	got, err = s.up()
	s.must("up again", got, err, nil)
	exported, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	decrypted := regexp.MustCompile(`"plaintext":\s*"(\\.|[^"\\])*"`) // as the state itself has it not
	state := decrypted.ReplaceAllString(string(exported.Deployment), "")
	for _, plain := range []string{"geheim", "198.51.100.77"} {
		if strings.Contains(state, plain) {
			t.Errorf("the state holds the secret %q in plain text", plain)
		}
	}
	isSecret := func(value any) bool {
		object, ok := value.(map[string]any)
		return ok && object[resource.SigKey] == resource.SecretSig
	}
	for _, r := range s.state() {
		switch r.Type {
		case "aws:ec2/launchTemplate:LaunchTemplate":
			if !isSecret(r.Inputs["userData"]) || !isSecret(r.Outputs["userData"]) {
				t.Error("the user data, with a secret in it, is not secret")
			}
		case asg.Token:
			if !isSecret(r.Outputs["clusterName"]) {
				t.Errorf("the output clusterName of a secret is %v", r.Outputs["clusterName"])
			}
			if got, want := len(r.Outputs), reflect.TypeFor[asg.Cluster]().NumField()-1; got != want {
				t.Errorf("%d outputs are registered, want %d", got, want)
			}
		}
	}
	s.mustDestroy()
}

// A Go program that uses the component as a library, without the plugin, has
// the same resources: it takes over what the plugin made, without a change.
func TestLibraryTakesOver(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	s.program(one(demo(pulumi.Map{"minSize": pulumi.Int(1), "tags": pulumi.StringMap{"Team": pulumi.String("storage")}})))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	s.program(func(ctx *pulumi.Context) error {
		_, err := asg.NewCluster(ctx, "fs", &asg.ClusterArgs{
			ClusterName: pulumi.String("demo"), AvailabilityZone: pulumi.String("eu-west-1a"), MinSize: pulumi.Int(1),
			Tags: pulumi.StringMap{"Team": pulumi.String("storage")},
		})
		return err
	})
	if got, want := s.steps(), []string{"delete etcfs default"}; !slices.Equal(got, want) { // the plugin itself
		t.Errorf("with the library: got changes %q, want %q", got, want)
	}
	s.mustDestroy()
}

// Inputs of other resources, unknown in the first preview, pass; and what
// depends on the component waits for it.
func TestUnknownsAndDependencies(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	s.program(func(ctx *pulumi.Context) error {
		first, err := ebs.NewVolume(ctx, "first", &ebs.VolumeArgs{AvailabilityZone: pulumi.String("eu-west-1a"), Size: pulumi.Int(20)})
		if err != nil {
			return err
		}
		return declare(ctx, "fs", demo(pulumi.Map{
			"availabilityZone": first.AvailabilityZone, "tags": pulumi.StringMap{"After": first.ID().ToStringOutput()}, "minSize": pulumi.Int(1),
		}), pulumi.DependsOn([]pulumi.Resource{first}))
	})
	got, err := s.preview()
	s.must("preview", got, err, changes{"create": perCluster + 2})
	got, err = s.up()
	s.must("up", got, err, changes{"create": perCluster + 2})
	got, err = s.up()
	s.must("up again", got, err, nil)
	s.mustDestroy()
}

// Every input can come from a resource that does not exist yet, and none of them
// hides what is wrong with another.
func TestUnknownInEveryInput(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	program := func(of map[string]any) pulumi.RunFunc {
		return func(ctx *pulumi.Context) error {
			first, err := ebs.NewVolume(ctx, "first", &ebs.VolumeArgs{AvailabilityZone: pulumi.String("eu-west-1a"), Size: pulumi.Int(20)})
			if err != nil {
				return err
			}
			args := pulumi.Map{}
			for name, value := range of {
				args[name] = first.ID().ApplyT(func(pulumi.ID) any { return value })
			}
			args["releasesUrl"] = pulumi.ToSecret(args["releasesUrl"])
			if _, unknown := of["rootVolumeSize"]; !unknown {
				args["rootVolumeSize"] = pulumi.Int(1)
			}
			return declare(ctx, "fs", args)
		}
	}
	all := map[string]any{
		"clusterName": "demo", "availabilityZone": "eu-west-1a", "subnetId": defaultSubnet(t, region, "eu-west-1a"),
		"minSize": 1, "maxSize": 4, "desiredCapacity": 2, "instanceType": "m5.large", "amiId": "ami-0a1c2b3d4e5f60718", "rootVolumeSize": 30,
		"keyName": "ops", "sshIngressCidr": "203.0.113.7/32", "instanceProfile": "etcfs-nodes", "volumeSize": 20, "volumeIops": 200,
		"etcfsVersion": "0.36.0", "etcdVersion": "v3.6.8", "leaseTtl": "20s", "githubRepo": "fork/etcfs", "releasesUrl": "https://mirror.example",
		"onBootstrapFailure": "keep", "recovery": "reform", "alarmActions": []string{"arn:aws:sns:eu-west-1:123456789012:oncall"},
		"tags": map[string]string{"Team": "storage"},
	}
	for _, input := range asg.Inputs() {
		if _, ok := all[input.Name]; !ok && !slices.Contains([]string{"waitForReady", "instanceRefresh", "retainVolume", "finalSnapshot"}, input.Name) {
			t.Errorf("%s is not tested", input.Name) // those are plain values
		}
	}
	s.program(program(all))
	got, err := s.preview()
	s.must("preview", got, err, changes{"create": perCluster + 2 - 3}) // the rule for SSH, and no role of its own with what belongs to it

	delete(all, "rootVolumeSize")
	s.program(program(all))
	if _, err := s.preview(); err == nil {
		t.Error("what is wrong with rootVolumeSize is hidden by the others")
	}
	if got, want := s.problems(), "property rootVolumeSize with value '{1}' has a problem: 1 GiB is outside of 8 to 65536"; !slices.Equal(got, []string{want}) {
		t.Errorf("got problems %q, want %q", got, want)
	}
}
