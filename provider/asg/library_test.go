package asg_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/provider/asg"
)

// As a library, in a program that knows no plugin, the component declares the
// same, and says no in the same words.
func TestLibrary(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(out)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())

	library, plugin := newWorld(), newWorld()
	var volume string
	err = pulumi.RunErr(func(ctx *pulumi.Context) error {
		fs, err := asg.NewCluster(ctx, "fs", &asg.ClusterArgs{
			ClusterName:      pulumi.String("demo"),
			AvailabilityZone: pulumi.String(zone),
		})
		if err != nil {
			return err
		}
		fs.VolumeId.ApplyT(func(id string) string { volume = id; return id })
		return nil
	}, pulumi.WithMocks("project", "stack", library))
	if err != nil {
		t.Fatal(err)
	}
	if volume != volumeID {
		t.Errorf("got volumeId %q, want %q", volume, volumeID)
	}
	if _, err := plugin.construct(t, given(nil)); err != nil {
		t.Fatal(err)
	}
	names := func(w *world) (list []string) {
		for _, c := range w.children() {
			list = append(list, c.typ+" "+c.name)
		}
		return list
	}
	if diff := cmp.Diff(names(plugin), names(library)); diff != "" {
		t.Errorf("the library declares otherwise (-plugin +library):\n%s", diff)
	}

	for _, test := range []struct {
		args *asg.ClusterArgs
		want []string
	}{
		{nil, []string{"clusterName: is missing", "availabilityZone: is missing"}},
		{
			&asg.ClusterArgs{AlarmActions: pulumi.StringArray{nil}, Tags: pulumi.StringMap{"Team": nil}},
			[]string{"clusterName: is missing", "alarmActions[0]: is null, and must be a string", `tags["Team"]: is null, and must be a string`},
		},
	} {
		err = pulumi.RunErr(func(ctx *pulumi.Context) error {
			_, err := asg.NewCluster(ctx, "fs", test.args)
			return err
		}, pulumi.WithMocks("project", "stack", newWorld()))
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), "\n  - "+want) {
				t.Errorf("got %v, want %q in it, on a line of its own", err, want)
			}
		}
	}
}
