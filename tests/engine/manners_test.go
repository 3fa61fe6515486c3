package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	awsprovider "github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ebs"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

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

// Options of the component reach its children, and its inputs keep what they
// are: an alias, a transform, a change that is ignored on a child, a secret.
func TestOptionsAndSecrets(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	const secret = "https://user-and-token.example"
	args := func(iops int) pulumi.Map {
		return demo(pulumi.Map{
			"volumeIops": pulumi.Int(iops), "releasesUrl": pulumi.ToSecret(pulumi.String(secret)), "minSize": pulumi.Int(1),
		})
	}
	s.program(one(args(100)))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	exported, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state := string(exported.Deployment); strings.Contains(state, secret) {
		t.Error("the state holds the secret in plain text")
	}

	// By its URN: the library that serves the component drops other aliases.
	former := pulumi.Aliases([]pulumi.Alias{{URN: pulumi.URN("urn:pulumi:test::engine::etcfs:asg:Cluster::fs")}})
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
