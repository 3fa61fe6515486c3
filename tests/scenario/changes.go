package scenario

import (
	"fmt"
	"slices"
)

// Chronicle tells what happens to a cluster, from one view to the next. The
// zero value has seen nothing yet.
type Chronicle struct{ last View }

// Tell says in a sentence each what has changed since the view before. While
// etcd does not serve, its members count as unchanged.
func (c *Chronicle) Tell(v View) []string {
	var changes []string
	before, is := byID(c.last.Nodes), byID(v.Nodes)
	if c.last.Serving && !v.Serving {
		changes = append(changes, "etcd does not serve")
	}
	if !v.Serving {
		v = carry(c.last, v)
	}
	for _, n := range v.Nodes {
		changes = append(changes, nodeChanges(before[n.InstanceID], n)...)
	}
	for _, n := range c.last.Nodes {
		if _, still := is[n.InstanceID]; !still {
			changes = append(changes, n.InstanceID+" left the group")
		}
	}
	for _, name := range v.Strays {
		if !slices.Contains(c.last.Strays, name) {
			changes = append(changes, "etcd member "+name+" has no instance")
		}
	}
	for _, name := range c.last.Strays {
		if !slices.Contains(v.Strays, name) {
			changes = append(changes, "etcd member "+name+" is gone")
		}
	}
	c.last = v
	return changes
}

// carry takes over into a view what the one before knew of the members.
func carry(before, v View) View {
	known := byID(before.Nodes)
	v.Nodes = slices.Clone(v.Nodes)
	for i, n := range v.Nodes {
		v.Nodes[i].Member = known[n.InstanceID].Member
	}
	v.Strays = before.Strays
	return v
}

func nodeChanges(was, is Node) []string {
	var changes []string
	add := func(format string, arguments ...any) {
		changes = append(changes, is.InstanceID+" "+fmt.Sprintf(format, arguments...))
	}
	if was.GroupState != is.GroupState {
		add("is %s", is.GroupState)
	}
	if was.InstanceID != "" && was.Healthy && !is.Healthy {
		add("is unhealthy")
	}
	if was.Member.String() != is.Member.String() {
		switch {
		case is.Member.ID == 0:
			add("has no etcd member any more")
		case !is.Member.Started:
			add("was added to etcd")
		case is.Member.Learner:
			add("learns in etcd")
		default:
			add("votes in etcd")
		}
	}
	if !was.Member.Leader && is.Member.Leader {
		add("leads etcd")
	}
	switch {
	case !was.Mounted && is.Mounted:
		add("has mounted")
	case was.Mounted && !is.Mounted:
		add("is not mounted any more, or does not answer")
	}
	return changes
}

func byID(nodes []Node) map[string]Node {
	m := make(map[string]Node, len(nodes))
	for _, n := range nodes {
		m[n.InstanceID] = n
	}
	return m
}
