package engine_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin/plane"
)

// targetPreview is what is aimed at: the time of a preview of the component, in
// that of the same resources declared one by one in the same language. Nothing
// fails above it.
const targetPreview = 1.3

// BenchmarkPreview previews a cluster that does not exist yet, by the component
// and flat, in turns.
func BenchmarkPreview(b *testing.B) {
	region := plane.New(b, "eu-west-1")
	made := newStack(b, region, nil)
	made.program(one(demo(nil)))
	if _, err := made.up(); err != nil {
		b.Fatal(err)
	}
	resources := made.resources()
	if err := made.destroy(); err != nil {
		b.Fatal(err)
	}

	component, flat := newStack(b, region, nil), newStack(b, region, nil)
	component.program(one(demo(nil)))
	flat.program(func(ctx *pulumi.Context) error {
		for _, r := range resources {
			var declared pulumi.CustomResourceState
			if err := ctx.RegisterResource(string(r.Type), r.URN.Name(), inputsOf(r), &declared, pulumi.Version("6.83.4")); err != nil {
				return err
			}
		}
		return nil
	})
	preview := func(s *stack, want int) time.Duration {
		begun := time.Now()
		got, err := s.preview()
		taken := time.Since(begun)
		s.must("preview", got, err, changes{"create": want})
		return taken
	}
	var ofComponent, ofFlat time.Duration
	for b.Loop() {
		ofComponent += preview(component, perCluster+1)
		ofFlat += preview(flat, perCluster)
	}
	n := float64(b.N)
	b.ReportMetric(ofComponent.Seconds()*1000/n, "ms/component")
	b.ReportMetric(ofFlat.Seconds()*1000/n, "ms/flat")
	b.ReportMetric(ofComponent.Seconds()/ofFlat.Seconds(), "component/flat")
	b.ReportMetric(ofComponent.Seconds()/ofFlat.Seconds()/targetPreview, "ratio/target")
}

// resources are the AWS resources in the stack's state.
func (s *stack) resources() []apitype.ResourceV3 {
	s.t.Helper()
	return slices.DeleteFunc(s.state(), func(r apitype.ResourceV3) bool { return !r.Custom || r.Type.Package() != "aws" })
}

// state is all resources of the stack's state, in which secrets are encrypted.
func (s *stack) state() []apitype.ResourceV3 {
	s.t.Helper()
	exported, err := s.Export(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var state apitype.DeploymentV3
	if err := json.Unmarshal(exported.Deployment, &state); err != nil {
		s.t.Fatal(err)
	}
	return state.Resources
}

// inputsOf makes inputs of a state's, with its files as the program gave them.
func inputsOf(r apitype.ResourceV3) pulumi.Map {
	inputs := pulumi.Map{}
	for name, value := range r.Inputs {
		object, ok := value.(map[string]any)
		path, _ := object["path"].(string)
		switch {
		case name == "__defaults":
		case ok && path != "" && name == "code":
			inputs[name] = pulumi.NewFileArchive(path)
		case ok && path != "" && name == "source":
			inputs[name] = pulumi.NewFileAsset(path)
		default:
			inputs[name] = pulumi.Any(value)
		}
	}
	return inputs
}
