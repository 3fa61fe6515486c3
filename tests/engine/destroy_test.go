package engine_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// What the user asked to keep stays when the cluster is destroyed with its
// nodes running, and nothing else.
func TestWhatADestroyKeeps(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	compute := ec2.NewFromConfig(region.Config())
	s := newStack(t, region, nil)
	for _, test := range []struct {
		name      string
		args      pulumi.Map
		volumes   int
		snapshots int
	}{
		{"a final snapshot", pulumi.Map{"finalSnapshot": pulumi.Bool(true)}, 0, 1},
		{"the volume", pulumi.Map{"retainVolume": pulumi.Bool(true)}, 1, 1}, // and the snapshot from before
	} {
		s.program(one(demo(test.args)))
		if _, err := s.up(); err != nil {
			t.Fatal(err)
		}
		volume, _ := s.exported("fs.volume").(string)
		if running, _ := region.Machines.Running(); running == 0 {
			t.Errorf("%s: no node runs", test.name)
		}
		if err := s.destroy(); err != nil {
			t.Fatalf("%s: destroy: %v", test.name, err)
		}
		var want []string
		if test.volumes == 1 {
			want = []string{"volume " + volume}
		}
		if got := inventory(t, region); strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: got %v left, want %v", test.name, got, want)
		}
		snapshots, err := compute.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(snapshots.Snapshots); got != test.snapshots {
			t.Errorf("%s: got %d snapshots, want %d", test.name, got, test.snapshots)
		}
		for _, tag := range snapshots.Snapshots[0].Tags {
			if aws.ToString(tag.Key) == "ClusterName" && aws.ToString(tag.Value) != "demo" {
				t.Errorf("%s: the snapshot is tagged with the cluster %s", test.name, aws.ToString(tag.Value))
			}
		}
	}
}

// A protected cluster, and with it its volume, is not destroyed.
func TestProtect(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	protected := func(protect bool) pulumi.RunFunc {
		return func(ctx *pulumi.Context) error { return declare(ctx, "fs", demo(nil), pulumi.Protect(protect)) }
	}
	s.program(protected(true))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	before := inventory(t, region)
	if err := s.destroy(); err == nil || !strings.Contains(s.output.String(), "protected") {
		t.Errorf("destroy: got error %v and output without a reason:\n%s", err, &s.output)
	}
	if got, want := strings.Join(inventory(t, region), ", "), strings.Join(before, ", "); got != want {
		t.Errorf("after a destroy that was refused: got %s, want %s", got, want)
	}
	s.program(protected(false))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	s.mustDestroy()
}

// Pulumi's own option for a resource that is to be kept holds for a cluster as a
// whole, its volume included.
func TestRetainOnDelete(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	s.program(func(ctx *pulumi.Context) error { return declare(ctx, "fs", demo(nil), pulumi.RetainOnDelete(true)) })
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	before := inventory(t, region)
	if err := s.destroy(); err != nil {
		t.Fatalf("destroy: %v\n%s", err, &s.output)
	}
	if diff := gocmp.Diff(before, inventory(t, region)); diff != "" {
		t.Errorf("what a destroy leaves (-before +after):\n%s", diff)
	}
}
