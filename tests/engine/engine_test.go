package engine_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	awsprovider "github.com/pulumi/pulumi-aws/sdk/v6/go/aws"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// perCluster is the number of resources that a cluster consists of, the
// component among them.
const perCluster = 31

func TestLifeOfACluster(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	s.program(one(demo(nil)))

	got, err := s.preview()
	s.must("preview", got, err, changes{"create": perCluster + 1}) // and the stack
	if calls := region.Changes(); len(calls) > 0 {
		t.Errorf("preview: got calls %v, want nothing but looks", calls)
	}
	got, err = s.up()
	s.must("up", got, err, changes{"create": perCluster + 1})
	if got, want := s.exported("fs.group"), "demo-asg"; got != want {
		t.Errorf("group: got %v, want %v", got, want)
	}
	if got, want := aws.ToInt32(group(t, region, "demo-asg").DesiredCapacity), int32(3); got != want {
		t.Errorf("desired capacity: got %d, want the default, %d", got, want)
	}

	got, err = s.up()
	s.must("up again", got, err, nil)
	got, err = s.refresh()
	s.must("refresh", got, err, nil)
	got, err = s.up()
	s.must("up after refresh", got, err, nil)

	// What others scale is left alone, also when the state has seen it.
	scale(t, region, "demo-asg", 4)
	got, err = s.up()
	s.must("up after somebody scaled", got, err, nil)
	if _, err = s.refresh(); err != nil {
		t.Fatal(err)
	}
	got, err = s.up()
	s.must("up after somebody scaled, and a refresh", got, err, nil)
	if got, want := aws.ToInt32(group(t, region, "demo-asg").DesiredCapacity), int32(4); got != want {
		t.Errorf("desired capacity that somebody set: got %d, want it left at %d", got, want)
	}

	// What the program changes is changed.
	s.program(one(demo(pulumi.Map{"desiredCapacity": pulumi.Int(5)})))
	got, err = s.up()
	s.must("up with a capacity", got, err, changes{"update": 1})
	if got, want := aws.ToInt32(group(t, region, "demo-asg").DesiredCapacity), int32(5); got != want {
		t.Errorf("desired capacity of the program: got %d, want %d", got, want)
	}

	s.program(one(demo(pulumi.Map{"desiredCapacity": pulumi.Int(5), "leaseTtl": pulumi.String("20s")})))
	got, err = s.preview()
	s.must("preview with another setting", got, err, changes{"update": 2}) // template and group
	got, err = s.up()
	s.must("up with another setting", got, err, changes{"update": 2})
	if got, want := s.exported("fs.templateVersion"), 2.0; got != want {
		t.Errorf("template version: got %v, want %v", got, want)
	}
	if got, want := aws.ToString(group(t, region, "demo-asg").LaunchTemplate.Version), "2"; got != want {
		t.Errorf("template version of the group: got %s, want %s", got, want)
	}
	got, err = s.up()
	s.must("up at last", got, err, nil)
	s.mustDestroy()
}

func TestBadInputFailsThePreviewAndCreatesNothing(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	for _, test := range []struct {
		name string
		args pulumi.Map
		want []string
	}{
		{"nothing given", pulumi.Map{}, []string{"clusterName", "availabilityZone"}},
		{"sizes out of order", demo(pulumi.Map{"minSize": pulumi.Int(4), "maxSize": pulumi.Int(2)}), []string{"minSize", "4 is more than maxSize, 2"}},
		{"malformed setting", demo(pulumi.Map{"leaseTtl": pulumi.String("soon")}), []string{"leaseTtl", `"soon" is not a duration`}},
		{"no such zone", demo(pulumi.Map{"availabilityZone": pulumi.String("eu-west-1z")}), []string{"availabilityZone", "no matching EC2 Subnet found"}},
		{
			"several at once",
			demo(pulumi.Map{"clusterName": pulumi.String("Demo"), "volumeIops": pulumi.Int(1), "sshIngressCidr": pulumi.String("everywhere")}),
			[]string{"clusterName", "volumeIops", "sshIngressCidr"},
		},
	} {
		s.program(one(test.args))
		if _, err := s.preview(); err == nil {
			t.Errorf("%s: got no error", test.name)
		}
		for _, part := range test.want {
			if !strings.Contains(s.output.String(), part) {
				t.Errorf("%s: got output without %q:\n%s", test.name, part, &s.output)
			}
		}
	}
	if _, err := s.up(); err == nil { // without a preview before it
		t.Error("up: got no error")
	}
	if calls := region.Changes(); len(calls) > 0 {
		t.Errorf("got calls %v, want nothing but looks", calls)
	}
	s.mustDestroy()
}

func TestUpThatFailsIsRepeatedOrDestroyed(t *testing.T) {
	t.Parallel()
	refusal := api.Errorf(http.StatusBadRequest, "ServiceQuotaExceeded", "not today")
	for _, test := range []struct {
		operation string // what is refused
		destroyed bool   // as it is, in place of being repeated
	}{
		{"PutRetentionPolicy", false},     // the log group is there, its retention is not
		{"CreateFunction", true},          // much is there already
		{"CreateAutoScalingGroup", false}, // everything is there but the nodes
		{"PutLifecycleHook", false},       // the nodes run
		{"PutLifecycleHook", true},
	} {
		t.Run(fmt.Sprintf("%s, destroyed %t", test.operation, test.destroyed), func(t *testing.T) {
			t.Parallel()
			region := plane.New(t, "eu-west-1")
			s := newStack(t, region, nil)
			s.program(one(demo(nil)))
			remove := region.Refuse(test.operation, refusal)
			if _, err := s.up(); err == nil || !strings.Contains(s.output.String(), "ServiceQuotaExceeded: not today") {
				t.Fatalf("up that is refused: got error %v and output\n%s", err, &s.output)
			}
			if test.destroyed {
				s.mustDestroy()
				return
			}
			remove()
			for _, step := range []func() (changes, error){s.up, s.refresh, s.up} {
				if _, err := step(); err != nil {
					t.Fatalf("up again: %v", err)
				}
			}
			got, err := s.up()
			s.must("up at last", got, err, nil)
			s.mustDestroy()
		})
	}
}

func TestTwoClustersInAnotherRegionByAnExplicitProvider(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-central-1")
	// Only the explicit provider knows the way.
	s := newStack(t, region, map[string]string{"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "nobody"})
	if err := s.SetConfigWithOptions(t.Context(), "pulumi:disable-default-providers[0]", auto.ConfigValue{Value: "aws"}, &auto.ConfigOptions{Path: true}); err != nil {
		t.Fatal(err)
	}
	environment := region.Environment()
	s.program(func(ctx *pulumi.Context) error {
		var endpoints awsprovider.ProviderEndpointArray
		endpoints = append(endpoints, awsprovider.ProviderEndpointArgs{
			Autoscaling: pulumi.String(region.URL), Cloudwatch: pulumi.String(region.URL), Cloudwatchevents: pulumi.String(region.URL), Cloudwatchlogs: pulumi.String(region.URL),
			Dynamodb: pulumi.String(region.URL), Ec2: pulumi.String(region.URL), Iam: pulumi.String(region.URL),
			Lambda: pulumi.String(region.URL), S3: pulumi.String(region.URL), Sqs: pulumi.String(region.URL), Ssm: pulumi.String(region.URL), Sts: pulumi.String(region.URL),
		})
		provider, err := awsprovider.NewProvider(ctx, "frankfurt", &awsprovider.ProviderArgs{
			Region: pulumi.String("eu-central-1"), Endpoints: endpoints,
			AccessKey: pulumi.String(environment["AWS_ACCESS_KEY_ID"]), SecretKey: pulumi.String(environment["AWS_SECRET_ACCESS_KEY"]),
		})
		if err != nil {
			return err
		}
		for _, name := range []string{"one", "two"} {
			if err := declare(ctx, name, pulumi.Map{
				"clusterName": pulumi.String(name), "availabilityZone": pulumi.String("eu-central-1a"), "minSize": pulumi.Int(1),
			}, pulumi.Providers(provider)); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := s.up()
	s.must("up", got, err, changes{"create": 2*perCluster + 2})
	var zones []string
	for _, name := range []string{"one.volume", "two.volume"} {
		volumes, err := ec2.NewFromConfig(region.Config()).DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{s.exported(name).(string)}})
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, aws.ToString(volumes.Volumes[0].AvailabilityZone))
	}
	if want := []string{"eu-central-1a", "eu-central-1a"}; !slices.Equal(zones, want) {
		t.Errorf("zones of the volumes: got %v, want %v", zones, want)
	}
	got, err = s.up()
	s.must("up again", got, err, nil)
	s.mustDestroy()
}
