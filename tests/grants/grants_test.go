// Package grants_test holds what the roles of a cluster may do against what
// they do in its life: nothing more is granted, and nothing is missing.
package grants_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
	"github.com/etcfs/pulumi-etcfs/tests/stack"
)

// unused are the grants that the life of a healthy cluster does not need, each
// with who does.
var unused = map[string]string{
	"node AttachDataVolume ec2:DetachVolume":                    "etcfuse-meta, to fence a node whose lease has ended",
	"node AttachToNodes ec2:DetachVolume":                       "etcfuse-meta, to fence a node whose lease has ended",
	"node Look ec2:DescribeTags":                                "etcfuse-meta, whose makers list it for fencing",
	"node Look ec2:DescribeVolumeStatus":                        "etcfuse-meta, to see that a fenced node is detached",
	"node ReportHealth autoscaling:SetInstanceHealth":           "a node in service whose bootstrap fails",
	"node EndLaunch autoscaling:RecordLifecycleActionHeartbeat": "a node that cannot mount and that its cluster cannot spare",
	"leave KeepFailedEvents sqs:SendMessage":                    "Lambda, for an event that the function has failed three times",
}

const limit = 3 * time.Minute // for one step, on a machine that is busy

// TestGrants tells the life of a cluster, declared in YAML, whose up waits for
// mounted nodes.
func TestGrants(t *testing.T) {
	t.Parallel()
	tools := os.Getenv("ETCFS_TOOLS")
	if tools == "" {
		t.Skip("ETCFS_TOOLS does not name the folder of the Pulumi CLI and etcd (make test sets it)")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r, err := region.New(ctx, region.Config{WorkDir: t.TempDir(), Standin: filepath.Join(root, "bin", "region", "standin"), Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	var output bytes.Buffer
	s, err := stack.New(ctx, stack.Config{
		Folder: t.TempDir(), Program: filepath.Join(root, "examples", "yaml"), Tools: tools, Output: &output,
		Plugins:     map[string]string{"etcfs": filepath.Join(root, "bin"), "aws": filepath.Join(root, "bin", "region")},
		Environment: r.Environment(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"releasesUrl": r.ReleasesURL(), "waitForReady": "true"} {
		if err := s.Set(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Up(ctx); err != nil {
		t.Fatalf("%v\n%s", err, &output)
	}
	outputs, err := s.Outputs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cluster := scenario.Open(r.AWSConfig(), scenario.Names{
		Cluster: "demo", Group: fmt.Sprint(outputs["autoScalingGroupName"]), LogGroup: "/aws/lambda/" + fmt.Sprint(outputs["gracefulLeaveFunctionName"]),
	})
	view, err := cluster.Look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range view.Nodes {
		if !n.Mounted || n.GroupState != "InService" {
			t.Errorf("when pulumi up is done %s is %s and mounted %t, want it in service and mounted", n.InstanceID, n.GroupState, n.Mounted)
		}
	}
	if got, want := len(view.Nodes), 3; got != want {
		t.Errorf("got %d nodes, want %d", got, want)
	}

	settle := func(e scenario.Expectation) scenario.View {
		view, err := cluster.Await(ctx, limit, e, quiet{})
		if err != nil {
			t.Fatal(err)
		}
		return view
	}
	for _, nodes := range []int{4, 3} {
		if err := cluster.Scale(ctx, nodes); err != nil {
			t.Fatal(err)
		}
		view = settle(scenario.Settled(nodes))
	}
	victim := view.Nodes[0].InstanceID
	if err := r.Kill(victim); err != nil {
		t.Fatal(err)
	}
	settle(scenario.Settled(3).Without(victim))
	if err := s.Destroy(ctx); err != nil {
		t.Fatalf("%v\n%s", err, &output)
	}

	for _, refusal := range r.IAM.Refusals() {
		if refusal.Access.Action == "logs:CreateLogGroup" && refusal.Principal.Session == outputs["gracefulLeaveFunctionName"] {
			continue // Lambda would make the log group, which the stack has made
		}
		t.Errorf("%s is not allowed %s on %s", refusal.Principal.Role, refusal.Access.Action, refusal.Access.Resource)
	}
	listed := map[string]bool{}
	for _, grant := range r.IAM.Grants() {
		if grant.Managed() {
			continue // AWS's own, for the SSM agent
		}
		// demo-node-20261129… and demo-leave-20261129…
		name := strings.Split(grant.Role, "-")[1] + " " + grant.Statement + " " + grant.Action
		listed[name] = true
		if _, ok := unused[name]; grant.Uses == 0 && !ok {
			t.Errorf("%s is granted and never used", name)
		}
	}
	for name := range unused {
		if !listed[name] {
			t.Errorf("%s is listed as unused and not granted", name)
		}
	}
}

type quiet struct{}

func (quiet) Look(scenario.Expectation, scenario.View, string, time.Duration) {}
