package membership_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// TestStories tells every file of testdata; -rewrite records what the code says
// now. A story is what a node sees, in lines, and what it decides:
//
//	decide              the election, out of
//	  item forming i-a 10.0.0.1 age=30s [cluster=ID] [volume=ID]     (unknown, forming, formed)
//	  peer i-a 10.0.0.1 silent|answering|healthy [cluster=ID] [up=1m] [for=1m] [why=REASON] [learner] [unused] [other]
//	  stopped i-a [other]
//	  unlisted, seen, reform, waited=11m
//	rival               why it must not record its own cluster, c1, out of the same
//	dead                the dead members, out of
//	  member NAME|- 10.0.0.1 [learner] [absent=2m]
//	  instance i-a [10.0.0.1]
//	  stopped i-a
//	  terminated i-a
//	  mounted i-a
//	next                a joiner's next step, out of members and
//	  data              its etcd has started before
//	  added             it has added the last member itself
//
// The node itself is always i-…0e5, at 10.0.0.5; short IDs stand for full ones.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s := parse(t, d)
			switch d.Cmd {
			case "decide":
				return tellDecision(s)
			case "rival":
				if reason := s.view.Rival("c1"); reason != "" {
					return short(reason) + "\n"
				}
				return "none\n"
			case "dead":
				return tellDeaths(membership.Dead(s.members, s.known, s.view.Self))
			case "next":
				step, member := membership.Next(s.members, s.joiner)
				if member.ID == 0 {
					return step.String() + "\n"
				}
				return step.String() + " " + short(member.String()) + "\n"
			case "initial-cluster":
				return short(strings.ReplaceAll(membership.InitialCluster(s.members, "demo-"+s.view.Self.ID, "http://10.0.0.5:2380"), ",", "\n")) + "\n"
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			}
		})
	})
}

type story struct {
	view    membership.View
	members []membership.Member
	known   membership.Evidence
	joiner  membership.Joiner
}

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

const zeros = "00000000000000"

func full(id string) string { return strings.Replace(id, "i-", "i-"+zeros, 1) }

func short(text string) string { return strings.ReplaceAll(text, zeros, "") }

func parse(t *testing.T, d *datadriven.TestData) story {
	t.Helper()
	s := story{view: membership.View{
		ClusterName: "demo", VolumeID: "vol-1", Listed: true, Now: now,
		Self: membership.Instance{ID: full("i-0e5"), IP: "10.0.0.5", Launched: now.Add(-time.Minute), Node: true},
	}}
	s.known.Absent = map[uint64]time.Duration{}
	s.joiner = membership.Joiner{Instance: s.view.Self, PeerURL: "http://10.0.0.5:2380"}
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		options := map[string]string{}
		var plain []string
		for _, word := range words {
			name, value, ok := strings.Cut(word, "=")
			if ok {
				options[name] = value
			} else {
				plain = append(plain, word)
			}
		}
		duration := func(name string) time.Duration {
			if options[name] == "" {
				return 0
			}
			parsed, err := time.ParseDuration(options[name])
			if err != nil {
				d.Fatalf(t, "%s: %v", line, err)
			}
			return parsed
		}
		has := func(word string) bool { return slices.Contains(plain, word) }
		switch words[0] {
		case "item":
			state := membership.State(plain[1])
			if state == "unknown" {
				state = membership.StateUnknown
			}
			s.view.Item = &membership.Item{
				ClusterName: "demo", State: state, InstanceID: full(strings.TrimPrefix(plain[2], "-")), SeedIP: plain[3],
				CreatedAt: now.Add(-duration("age")), ClusterID: options["cluster"], VolumeID: options["volume"],
			}
		case "peer":
			health := map[string]membership.Health{
				"silent": membership.Silent, "answering": membership.Answering, "healthy": membership.Healthy,
			}[plain[3]]
			s.view.Peers = append(s.view.Peers, membership.Peer{
				Instance: membership.Instance{ID: full(plain[1]), IP: plain[2], Launched: now.Add(-duration("up")), Node: !has("other")},
				Health:   health, ClusterID: options["cluster"], Learner: has("learner"), Unused: has("unused"), HealthyFor: duration("for"), Reason: options["why"],
			})
		case "stopped":
			stopped := membership.Instance{ID: full(plain[1]), Node: !has("other")}
			s.view.Stopped, s.known.Stopped = append(s.view.Stopped, stopped), append(s.known.Stopped, stopped)
		case "unlisted":
			s.view.Listed = false
		case "seen":
			s.view.MemberSeen = true
		case "reform":
			s.view.Recovery = settings.RecoveryReform
		case "member":
			s.members = append(s.members, membership.Member{
				ID: uint64(len(s.members) + 1), Name: full(strings.TrimPrefix(plain[1], "-")),
				PeerURLs: []string{"http://" + plain[2] + ":2380"}, Learner: has("learner"),
			})
			s.known.Absent[uint64(len(s.members))] = duration("absent")
		case "instance":
			ip := ""
			if len(plain) > 2 {
				ip = plain[2]
			}
			s.known.Live = append(s.known.Live, membership.Instance{ID: full(plain[1]), IP: ip, Node: true})
		case "terminated":
			s.known.Terminated = append(s.known.Terminated, full(plain[1]))
		case "mounted":
			s.known.Mounted = append(s.known.Mounted, full(plain[1]))
		case "data":
			s.joiner.HasData = true
		case "added":
			s.joiner.Added = s.members[len(s.members)-1].ID
		default:
			if options["waited"] == "" {
				d.Fatalf(t, "unknown line %q", line)
			}
			s.view.Waited = duration("waited")
		}
	}
	return s
}

func tellDecision(s story) string {
	d := membership.Decide(s.view)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", d.Action, d.Reason)
	for _, peer := range d.Via {
		fmt.Fprintf(&b, "through %s\n", peer)
	}
	if w := d.Write; w != nil {
		fmt.Fprintf(&b, "write %s %s %s", w.State, w.InstanceID, w.SeedIP)
		if w.ClusterID != "" {
			fmt.Fprintf(&b, " cluster=%s", w.ClusterID)
		}
		if d.MustWrite {
			b.WriteString(", or look again")
		}
		b.WriteString("\n")
		if !w.CreatedAt.Equal(now) || w.ClusterName != "demo" {
			fmt.Fprintf(&b, "with created_at %s of %s\n", w.CreatedAt, w.ClusterName)
		}
	}
	return short(b.String())
}

func tellDeaths(deaths []membership.Death) string {
	if len(deaths) == 0 {
		return "none\n"
	}
	var b strings.Builder
	for _, death := range deaths {
		b.WriteString(short(death.String()))
		switch {
		case death.Certain:
		case death.Learner:
			b.WriteString(" if it is not to vote")
		default:
			b.WriteString(" perhaps, wait")
		}
		b.WriteString("\n")
	}
	return b.String()
}
