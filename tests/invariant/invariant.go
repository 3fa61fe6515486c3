package invariant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
)

// Validator judges one thing.
type Validator struct {
	Name string
	// Holds is the sentence that must hold.
	Holds string
	// Enough says why the history is no ground for a judgement, nil when it is.
	Enough func(*History) error
	// Judge says what is wrong.
	Judge func(*History) error
}

// All are the validators.
func All() []Validator {
	return []Validator{OneCluster, LiveMembersStay, NoWriteLost, QuorumKept, DeadMembersGone, HooksCompleted, NodesMounted}
}

// ViolationError is what a validator found.
type ViolationError struct {
	Validator Validator
	Err       error
}

func (v *ViolationError) Error() string {
	return fmt.Sprintf("%s: %s: %v", v.Validator.Name, v.Validator.Holds, v.Err)
}

// Unwrap returns what was found.
func (v *ViolationError) Unwrap() error { return v.Err }

// ErrTooLittle says that a history is no ground for a judgement.
var ErrTooLittle = errors.New("too little has happened to judge this")

// Judge lets every validator judge a history. Its error joins a *[ViolationError]
// for each that found something.
func Judge(h *History) error {
	var found []error
	for _, v := range All() {
		if err := v.Apply(h); err != nil {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// Apply lets one validator judge a history.
func (v Validator) Apply(h *History) error {
	if err := v.Enough(h); err != nil {
		return &ViolationError{v, fmt.Errorf("%w: %w", ErrTooLittle, err)}
	}
	if err := v.Judge(h); err != nil {
		return &ViolationError{v, err}
	}
	return nil
}

// formationPatience is how long after the cluster was recorded as formed an
// etcd that lost the election may still answer.
const formationPatience = time.Minute

// OneCluster is the unforgivable mistake.
var OneCluster = Validator{
	Name: "OneCluster", Holds: "there is one etcd cluster for the volume",
	Enough: func(h *History) error {
		switch {
		case !slices.ContainsFunc(h.Seeds, isFormed):
			return errors.New("no seed item ever said that a cluster has formed")
		case len(h.Samples) == 0:
			return errors.New("no members were ever read")
		}
		return nil
	},
	Judge: func(h *History) error {
		first := h.Seeds[slices.IndexFunc(h.Seeds, isFormed)]
		for _, seed := range h.Seeds {
			if isFormed(seed) && seed.Item.ClusterID != first.Item.ClusterID {
				return fmt.Errorf("the seed item named cluster %s at %s, formed by %s, and cluster %s at %s, formed by %s", first.Item.ClusterID,
					clock(first.At), first.Item.InstanceID, seed.Item.ClusterID, clock(seed.At), seed.Item.InstanceID)
			}
		}
		for _, sample := range h.Samples {
			switch {
			case sample.Cluster == first.Item.ClusterID:
			case len(sample.Members) > 1:
				return fmt.Errorf("cluster %s had %d members at %s, but the seed item names cluster %s", sample.Cluster, len(sample.Members), clock(sample.From), first.Item.ClusterID)
			case sample.From.After(first.At.Add(formationPatience)):
				return fmt.Errorf("cluster %s still answered at %s, but cluster %s was formed at %s", sample.Cluster, clock(sample.From), first.Item.ClusterID, clock(first.At))
			}
		}
		return nil
	},
}

func isFormed(s Seed) bool { return s.Item.State == membership.StateFormed && s.Item.ClusterID != "" }

// LiveMembersStay protects what holds the metadata.
var LiveMembersStay = Validator{
	Name: "LiveMembersStay", Holds: "no member of an instance that stays is ever removed",
	Enough: func(h *History) error {
		if len(removals(h)) == 0 {
			return errors.New("no member was ever removed")
		}
		return nil
	},
	Judge: func(h *History) error {
		for _, r := range removals(h) {
			instance := h.instanceOf(r.member)
			// What a node removes that has not voted yet is its own failed try.
			if instance == nil || r.member.Learner {
				continue
			}
			if instance.Leaving.IsZero() || instance.Leaving.After(r.To) {
				return fmt.Errorf("member %s was removed between %s and %s, but %s stayed until %s", r.member, clock(r.From), clock(r.To), instance.ID, clock(instance.Leaving))
			}
		}
		return nil
	},
}

// removal is a member that went away at some time of an interval.
type removal struct {
	Interval
	member membership.Member
}

func removals(h *History) []removal {
	type key struct {
		cluster string
		id      uint64
	}
	last := map[key]removal{}
	for _, sample := range h.Samples {
		for _, member := range sample.Members {
			k := key{sample.Cluster, member.ID}
			if seen, ok := last[k]; !ok || sample.From.After(seen.From) {
				last[k] = removal{Interval{From: sample.From}, member}
			}
		}
	}
	var removed []removal
	for k, r := range last {
		for _, sample := range h.Samples {
			// A reading that began later and lacks the member: gone by its end.
			if sample.Cluster == k.cluster && sample.From.After(r.From) && (r.To.IsZero() || sample.To.Before(r.To)) {
				r.To = sample.To
			}
		}
		if !r.To.IsZero() {
			removed = append(removed, r)
		}
	}
	slices.SortFunc(removed, func(a, b removal) int { return cmp.Or(a.To.Compare(b.To), cmp.Compare(a.member.ID, b.member.ID)) })
	return removed
}

// DeadMembersGone keeps etcd's quorum honest.
var DeadMembersGone = Validator{
	Name: "DeadMembersGone", Holds: "in the end etcd has the members of the nodes and no other",
	Enough: func(h *History) error {
		switch {
		case h.lastSample() == nil:
			return errors.New("no members were read after the cluster had settled")
		case !slices.ContainsFunc(h.Instances, func(i Instance) bool { return !i.Leaving.IsZero() }):
			return errors.New("no instance ever left")
		}
		return nil
	},
	Judge: func(h *History) error {
		var wrong []string
		have := map[string]bool{}
		for _, member := range h.lastSample().Members {
			instance := h.instanceOf(member)
			switch {
			case instance == nil:
				wrong = append(wrong, fmt.Sprintf("member %s belongs to no instance", member))
			case !instance.Leaving.IsZero():
				wrong = append(wrong, fmt.Sprintf("member %s is there, but %s left at %s", member, instance.ID, clock(instance.Leaving)))
			case !member.Started() || member.Learner:
				wrong = append(wrong, fmt.Sprintf("member %s does not vote", member))
			default:
				have[instance.ID] = true
			}
		}
		for _, instance := range h.Instances {
			if instance.Leaving.IsZero() && !have[instance.ID] {
				wrong = append(wrong, instance.ID+" has no voting member")
			}
		}
		return sentence(wrong)
	},
}

func (h *History) lastSample() *Sample {
	var last *Sample
	for i := range h.Samples {
		if sample := &h.Samples[i]; sample.From.After(h.Healed) && (last == nil || sample.From.After(last.From)) {
			last = sample
		}
	}
	return last
}

// HooksCompleted is what the graceful-leave function promises.
var HooksCompleted = Validator{
	Name: "HooksCompleted", Holds: "every lifecycle action is completed, and none by its heartbeat while the function could work",
	Enough: func(h *History) error {
		if len(h.Actions) == 0 {
			return errors.New("no instance ever waited for its hook")
		}
		return nil
	},
	Judge: func(h *History) error {
		var wrong []string
		for _, a := range h.Actions {
			hindered := slices.ContainsFunc(h.Hindrances, func(i Interval) bool { return i.overlaps(a.Interval) })
			switch {
			case a.To.IsZero():
				wrong = append(wrong, fmt.Sprintf("the action of %s, begun at %s, was never completed", a.Instance, clock(a.From)))
			case !a.Completed && !hindered:
				wrong = append(wrong, fmt.Sprintf("the heartbeat of the action of %s ran out at %s", a.Instance, clock(a.To)))
			}
		}
		return sentence(wrong)
	},
}

// NodesMounted is what it is all for.
var NodesMounted = Validator{
	Name: "NodesMounted", Holds: "every node is mounted or was replaced",
	Enough: func(h *History) error {
		if h.Wanted == 0 || len(h.Instances) == 0 {
			return errors.New("no node was wanted, or none launched")
		}
		return nil
	},
	Judge: func(h *History) error {
		var wrong []string
		mounted := 0
		for _, instance := range h.Instances {
			switch {
			case !instance.Leaving.IsZero():
			case instance.Mounted:
				mounted++
			default:
				wrong = append(wrong, fmt.Sprintf("%s, launched at %s, is there and has not mounted", instance.ID, clock(instance.Launched)))
			}
		}
		if mounted != h.Wanted {
			wrong = append(wrong, fmt.Sprintf("%d nodes are mounted, not %d", mounted, h.Wanted))
		}
		return sentence(wrong)
	},
}

func sentence(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "the end"
	}
	return t.Format("15:04:05.000")
}
