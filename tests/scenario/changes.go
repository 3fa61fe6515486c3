package scenario

import (
	"fmt"
	"slices"
)

// Changes tells in a sentence each what happened between two views.
func Changes(before, after View) []string {
	var changes []string
	was := byID(before.Nodes)
	for _, n := range after.Nodes {
		changes = append(changes, nodeChanges(was[n.InstanceID], n)...)
	}
	is := byID(after.Nodes)
	for _, n := range before.Nodes {
		if _, still := is[n.InstanceID]; !still {
			changes = append(changes, n.InstanceID+" left the group")
		}
	}
	for _, name := range after.Strays {
		if !slices.Contains(before.Strays, name) {
			changes = append(changes, "etcd member "+name+" has no instance")
		}
	}
	for _, name := range before.Strays {
		if !slices.Contains(after.Strays, name) {
			changes = append(changes, "etcd member "+name+" was removed")
		}
	}
	return changes
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
