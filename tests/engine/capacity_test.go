package engine_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// A program that gives the capacity owns it: what somebody else set is set back
// once the state has seen it. One that does not give it any more leaves it to
// whoever scales from then on.
func TestWhoOwnsTheCapacity(t *testing.T) {
	t.Parallel()
	region := plane.New(t, "eu-west-1")
	s := newStack(t, region, nil)
	desired := func(step string, want int32) {
		t.Helper()
		if got := aws.ToInt32(group(t, region, "demo-asg").DesiredCapacity); got != want {
			t.Errorf("%s: desired capacity %d, want %d", step, got, want)
		}
	}
	given := demo(pulumi.Map{"minSize": pulumi.Int(2), "desiredCapacity": pulumi.Int(4)})
	s.program(one(given))
	if _, err := s.up(); err != nil {
		t.Fatal(err)
	}
	desired("given at first", 4)

	scale(t, region, "demo-asg", 3)
	if _, err := s.refresh(); err != nil {
		t.Fatal(err)
	}
	got, err := s.up()
	s.must("up after the refresh", got, err, changes{"update": 1})
	desired("given, and somebody scaled", 4)

	free := demo(pulumi.Map{"minSize": pulumi.Int(2)})
	s.program(one(free))
	got, err = s.up()
	s.must("up without a capacity", got, err, nil)
	desired("not given any more", 4)
	scale(t, region, "demo-asg", 5)
	if _, err := s.refresh(); err != nil {
		t.Fatal(err)
	}
	got, err = s.up()
	s.must("up after that refresh", got, err, nil)
	desired("not given, and somebody scaled", 5)

	// The limits move it only where it is outside of them.
	s.program(one(demo(pulumi.Map{"minSize": pulumi.Int(1), "maxSize": pulumi.Int(7)})))
	got, err = s.up()
	s.must("up with wider limits", got, err, changes{"update": 1})
	desired("wider limits", 5)
	s.program(one(demo(pulumi.Map{"minSize": pulumi.Int(1), "maxSize": pulumi.Int(3)})))
	got, err = s.up()
	s.must("up with narrower limits", got, err, changes{"update": 1})
	desired("narrower limits", 3)
	s.mustDestroy()
}
