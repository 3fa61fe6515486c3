package invariant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// NoWriteLost holds the client's history against a register per key: there
// must be an order of all operations, each between its call and its answer, in
// which every read returns what was written last.
var NoWriteLost = Validator{
	Name: "NoWriteLost", Holds: "no acknowledged write is lost, and no read is stale",
	Enough: func(h *History) error {
		writes, reads := 0, 0
		for _, o := range h.Operations {
			switch {
			case o.Known && o.Write:
				writes++
			case o.Known:
				reads++
			}
		}
		if writes < 10 || reads < 10 {
			return fmt.Errorf("%d writes and %d reads were answered, at least ten of each are needed", writes, reads)
		}
		return nil
	},
	Judge: func(h *History) error {
		byKey := map[string][]porcupine.Operation{}
		client, end := 0, h.end()
		for _, o := range h.Operations {
			client = max(client, o.Client)
		}
		for _, o := range h.Operations {
			switch {
			case o.Known:
				byKey[o.Key] = append(byKey[o.Key], operation(o, o.Client, o.To))
			case o.Write:
				// It may take effect at any time from now on, and whoever called
				// goes on meanwhile: as a client of its own.
				client++
				byKey[o.Key] = append(byKey[o.Key], operation(o, client, end))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(byKey)) {
			switch porcupine.CheckOperationsTimeout(register, byKey[key], judgement) {
			case porcupine.Illegal:
				return fmt.Errorf("the %d operations on key %s have no order that explains them", len(byKey[key]), key)
			case porcupine.Unknown:
				return fmt.Errorf("the %d operations on key %s could not be judged within %s", len(byKey[key]), key, judgement)
			case porcupine.Ok:
			}
		}
		return nil
	},
}

// judgement is how long the search for an order of one key may take.
const judgement = time.Minute

func operation(o Operation, client int, end time.Time) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Input: o, Call: o.From.UnixNano(), Output: o.Value, Return: end.UnixNano()}
}

// register is what a key of etcd is to its clients.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if o, _ := input.(Operation); o.Write {
			return true, o.Value
		}
		return state == output, state
	},
}

// end is later than everything that was recorded.
func (h *History) end() time.Time {
	end := h.Ended
	for _, o := range h.Operations {
		for _, t := range []time.Time{o.From, o.To} {
			if t.After(end) {
				end = t
			}
		}
	}
	return end.Add(time.Second)
}

// writePatience is how long no write may succeed while a majority of the
// members is up: an election, and what a client needs to find the new leader,
// on a machine that is busy.
const writePatience = 15 * time.Second

// QuorumKept is that the cluster serves.
var QuorumKept = Validator{
	Name: "QuorumKept", Holds: fmt.Sprintf("writes succeed within %s whenever a majority of the members is up", writePatience),
	Enough: func(h *History) error {
		switch {
		case len(acknowledged(h)) < 10:
			return errors.New("fewer than ten writes were answered")
		case len(h.Samples) == 0:
			return errors.New("no members were ever read")
		}
		return nil
	},
	Judge: func(h *History) error {
		writes := acknowledged(h)
		for i, to := range append(writes[1:], h.Ended) {
			from := writes[i]
			if to.Sub(from) <= writePatience {
				continue
			}
			if since, ok := h.majorityFor(Interval{from, to}, writePatience); ok {
				return fmt.Errorf("no write succeeded between %s and %s, although a majority was up from %s on", clock(from), clock(to), clock(since))
			}
		}
		return nil
	},
}

// acknowledged are the times at which writes were answered, in order.
func acknowledged(h *History) []time.Time {
	var times []time.Time
	for _, o := range h.Operations {
		if o.Write && o.Known {
			times = append(times, o.To)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// majorityFor finds a time in an interval from which on a majority of the
// voters was up for that long.
func (h *History) majorityFor(in Interval, long time.Duration) (since time.Time, ok bool) {
	for at := in.From; !at.After(in.To); at = at.Add(250 * time.Millisecond) {
		switch {
		case !h.majority(at):
			since = time.Time{}
		case since.IsZero():
			since = at
		case at.Sub(since) > long:
			return since, true
		}
	}
	return time.Time{}, false
}

func (h *History) majority(at time.Time) bool {
	var latest *Sample
	for i := range h.Samples {
		if sample := &h.Samples[i]; !sample.From.After(at) && (latest == nil || sample.From.After(latest.From)) {
			latest = sample
		}
	}
	if latest == nil {
		return false
	}
	voters, up := 0, 0
	for _, member := range latest.Members {
		if member.Learner {
			continue
		}
		voters++
		if h.up(h.instanceOf(member), at) {
			up++
		}
	}
	return up > voters/2
}
