package scenario_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

var voter = scenario.Member{ID: 7, Started: true}

// three is a cluster as it should be, led by its first node.
func three() scenario.View {
	v := scenario.View{Serving: true}
	for _, id := range []string{"i-1", "i-2", "i-3"} {
		v.Nodes = append(v.Nodes, scenario.Node{
			InstanceID: id, Address: "10.0.0.1", GroupState: "InService", Healthy: true, Member: voter, Mounted: true,
		})
	}
	v.Nodes[0].Member.Leader = true
	return v
}

func TestExpectations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expectation scenario.Expectation
		change      func(*scenario.View)
		missing     string
	}{
		"as it should be": {scenario.Settled(3), func(*scenario.View) {}, ""},
		"nothing there": {scenario.Settled(3), func(v *scenario.View) { *v = scenario.View{} },
			"0 of 3 mounted, 0 of 3 instances, etcd does not serve"},
		"one not mounted": {scenario.Settled(3), func(v *scenario.View) { v.Nodes[1].Mounted = false }, "2 of 3 mounted"},
		"one unhealthy":   {scenario.Settled(3), func(v *scenario.View) { v.Nodes[1].Healthy = false }, "2 of 3 mounted"},
		"one learns":      {scenario.Settled(3), func(v *scenario.View) { v.Nodes[2].Member.Learner = true }, "2 of 3 voters"},
		"one not started": {scenario.Settled(3), func(v *scenario.View) { v.Nodes[2].Member.Started = false }, "2 of 3 voters"},
		"no leader":       {scenario.Settled(3), func(v *scenario.View) { v.Nodes[0].Member.Leader = false }, "no leader"},
		"one leaves": {scenario.Settled(3), func(v *scenario.View) { v.Nodes[2].GroupState = "Terminating:Wait" },
			"2 of 3 mounted, 1 on the way in or out"},
		"one too many":      {scenario.Settled(2), func(*scenario.View) {}, "3 of 2 mounted, 3 of 2 instances, 3 of 2 voters"},
		"a member is left":  {scenario.Settled(3), func(v *scenario.View) { v.Strays = []string{"demo-i-0"} }, "members without instance: demo-i-0"},
		"nobody leaves":     {scenario.NobodyLeaves(), func(v *scenario.View) { v.Nodes[0].GroupState = "Pending" }, ""},
		"somebody leaves":   {scenario.NobodyLeaves(), func(v *scenario.View) { v.Nodes[2].GroupState = "Terminating:Wait" }, "i-3 is Terminating:Wait"},
		"without one there": {scenario.Settled(3).Without("i-2"), func(*scenario.View) {}, "i-2 is still in the group"},
		"without another":   {scenario.Settled(3).Without("i-9"), func(*scenario.View) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := three()
			c.change(&v)
			if got, want := c.expectation.Missing(v), c.missing; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestChronicle(t *testing.T) {
	t.Parallel()
	node := func(change func(*scenario.Node)) scenario.View {
		n := scenario.Node{InstanceID: "i-1", GroupState: "InService", Healthy: true}
		change(&n)
		return scenario.View{Serving: true, Nodes: []scenario.Node{n}}
	}
	silent := func(v scenario.View) scenario.View {
		v.Serving, v.Strays = false, nil
		for i := range v.Nodes {
			v.Nodes[i].Member = scenario.Member{}
		}
		return v
	}
	empty, plain := scenario.View{Serving: true}, node(func(*scenario.Node) {})
	stray := scenario.View{Serving: true, Strays: []string{"x"}}
	for name, c := range map[string]struct {
		views []scenario.View
		want  []string // of the last view
	}{
		"nothing":     {[]scenario.View{three(), three()}, nil},
		"launch":      {[]scenario.View{empty, plain}, []string{"i-1 is InService"}},
		"gone":        {[]scenario.View{plain, empty}, []string{"i-1 left the group"}},
		"terminating": {[]scenario.View{plain, node(func(n *scenario.Node) { n.GroupState = "Terminating:Wait" })}, []string{"i-1 is Terminating:Wait"}},
		"unhealthy":   {[]scenario.View{plain, node(func(n *scenario.Node) { n.Healthy = false })}, []string{"i-1 is unhealthy"}},
		"added":       {[]scenario.View{plain, node(func(n *scenario.Node) { n.Member.ID = 1 })}, []string{"i-1 was added to etcd"}},
		"learns": {[]scenario.View{plain, node(func(n *scenario.Node) { n.Member = scenario.Member{ID: 1, Started: true, Learner: true} })},
			[]string{"i-1 learns in etcd"}},
		"votes":                  {[]scenario.View{plain, node(func(n *scenario.Node) { n.Member = voter })}, []string{"i-1 votes in etcd"}},
		"removed":                {[]scenario.View{node(func(n *scenario.Node) { n.Member = voter }), plain}, []string{"i-1 has no etcd member any more"}},
		"mounted":                {[]scenario.View{plain, node(func(n *scenario.Node) { n.Mounted = true })}, []string{"i-1 has mounted"}},
		"unmounted":              {[]scenario.View{node(func(n *scenario.Node) { n.Mounted = true }), plain}, []string{"i-1 is not mounted any more, or does not answer"}},
		"a stray":                {[]scenario.View{empty, stray}, []string{"etcd member x has no instance"}},
		"cleared":                {[]scenario.View{stray, empty}, []string{"etcd member x is gone"}},
		"etcd falls silent":      {[]scenario.View{three(), silent(three())}, []string{"etcd does not serve"}},
		"etcd was never there":   {[]scenario.View{silent(empty)}, nil},
		"etcd is there again":    {[]scenario.View{three(), silent(three()), three()}, nil},
		"a stray in the silence": {[]scenario.View{stray, silent(stray), stray}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var chronicle scenario.Chronicle
			var got []string
			for _, v := range c.views {
				got = chronicle.Tell(v)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}
