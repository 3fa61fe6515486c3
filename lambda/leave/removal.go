package leave

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/lambda/contract"
)

// removal gets one instance's member out of etcd, by way of the nodes that
// stay.
type removal struct {
	handler  *Handler
	report   *report
	instance string
}

// run goes round the survivors until one of them has an answer that is final
// or ctx ends. A refusal is not final: etcd refuses while removing the member
// would cost the quorum, which passes when another node has joined or left.
func (r *removal) run(ctx context.Context) error {
	script, notOurs := r.script(ctx)
	if notOurs != "" {
		r.report.ends(Ignored, notOurs)
		return nil
	}

	// The end of the time is only why there was no further try; the report
	// says how the last one went.
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, r.round(ctx, script)
	}, backoff.WithBackOff(every(500*time.Millisecond, 4*time.Second)), backoff.WithMaxElapsedTime(0))
	if r.report.Outcome == "" {
		return err
	}
	return nil
}

// errAgain ends a round that another may follow.
var errAgain = errors.New("another round may do better")

// round asks the survivors one after another. It notes the outcome in the
// report and returns nil when that is final.
func (r *removal) round(ctx context.Context, script string) error {
	survivors, err := r.survivors(ctx)
	if err != nil {
		// That the time is over says less than what went wrong before it was.
		if ctx.Err() == nil || r.report.Outcome == "" {
			r.report.ends(Failed, err.Error())
		}
		return err
	}
	if len(survivors) == 0 {
		r.report.ends(NoSurvivor, "no other node of the cluster runs and stays")
		return nil
	}
	for _, survivor := range survivors {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch answer, err := r.ask(ctx, survivor, script); {
		case err != nil:
			r.report.ends(Failed, err.Error())
		case answer.Result == Refused:
			// Every survivor speaks for the same etcd: the next one would be
			// refused as well.
			r.report.answered(survivor, answer)
			return errAgain
		default:
			r.report.answered(survivor, answer)
			return nil
		}
	}
	return errAgain
}

// script is the command that a survivor runs. It also tells why there is
// nothing to do when the instance turns out to be another cluster's.
func (r *removal) script(ctx context.Context) (script, notOurs string) {
	instance, found, err := r.handler.Instances.Lookup(ctx, r.instance)
	switch {
	case err != nil:
		// The member of a started etcd is found by the instance ID alone.
		r.report.note("look up the instance: %v", err)
	case !found:
		r.report.note("EC2 does not know the instance any more")
	case instance.Cluster != "" && instance.Cluster != r.handler.Config.Cluster:
		return "", fmt.Sprintf("the instance is tagged as one of cluster %q, not %q", instance.Cluster, r.handler.Config.Cluster)
	}
	// By its path, as the PATH of an SSM agent need not have /usr/local/bin; below
	// the root that everything of the node is below, if it has one of its own.
	script = fmt.Sprintf(`"${ETCFS_ROOT:-}"%s remove-member --timeout %s --instance-id %s`,
		settings.BootstrapBinary, contract.RemovalLimit, quote(r.instance))
	if r.report.Address = instance.Address; instance.Address != "" {
		script += " --address " + quote(instance.Address)
	}
	return script, ""
}

// survivors lists the nodes that stay in the order they are asked: those whose
// SSM agent answers first, and otherwise in random order, so that several
// removals at a time do not all ask the same one.
func (r *removal) survivors(ctx context.Context) ([]string, error) {
	running, err := r.handler.Instances.Running(ctx, r.handler.Config.Cluster)
	if err != nil {
		return nil, fmt.Errorf("list the cluster's running nodes: %w", err)
	}
	candidates := slices.DeleteFunc(running, func(id string) bool { return id == r.instance })
	if len(candidates) == 0 {
		return nil, nil
	}

	// Neither of the next two is needed to succeed, only to choose well: a
	// survivor that is chosen badly fails, and the next one is asked.
	leaving, err := r.handler.Groups.Leaving(ctx, candidates)
	if err != nil {
		r.report.note("tell which nodes are leaving: %v", err)
	}
	candidates = slices.DeleteFunc(candidates, func(id string) bool { return leaving[id] })
	if len(candidates) == 0 {
		return nil, nil
	}
	online, err := r.handler.Commands.Online(ctx, candidates)
	if err != nil {
		r.report.note("tell which SSM agents are online: %v", err)
	}
	rand.Shuffle(len(candidates), func(i, j int) {
		candidates[i], candidates[j] = candidates[j], candidates[i]
	})
	slices.SortStableFunc(candidates, func(a, b string) int {
		return rank(online[a]) - rank(online[b])
	})
	return candidates, nil
}

func rank(online bool) int {
	if online {
		return 0
	}
	return 1
}

// answer is the line that etcfs-bootstrap remove-member prints.
type answer struct {
	// Result is Removed, Absent or Refused.
	Result   Outcome `json:"result"`
	MemberID string  `json:"memberId"`
	Reason   string  `json:"reason"`
}

// ask has one survivor remove the member, within the time that one survivor
// gets.
func (r *removal) ask(ctx context.Context, survivor, script string) (reply answer, err error) {
	start := time.Now()
	defer func() { r.report.attempted(survivor, start, reply, err) }()
	ctx, cancel := context.WithTimeout(ctx, contract.CommandLimit)
	defer cancel()

	commands := r.handler.Commands
	command, err := commands.Send(ctx, survivor, script, "EtcFS scale-in: remove the etcd member of "+r.instance)
	if err != nil {
		return answer{}, fmt.Errorf("send the command to %s: %w", survivor, err)
	}
	latest := "no status yet"
	invocation, err := backoff.Retry(ctx, func() (Invocation, error) {
		invocation, err := commands.Result(ctx, survivor, command)
		switch {
		case err != nil:
			// The last status before the time was over says more than that the
			// time was over.
			if ctx.Err() == nil {
				latest = err.Error()
			}
			return invocation, err
		case !invocation.Ended:
			latest = invocation.Status
			return invocation, errAgain
		}
		return invocation, nil
	}, backoff.WithBackOff(every(200*time.Millisecond, 2*time.Second)), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return answer{}, fmt.Errorf("wait for %s: too slow (%s): %w", survivor, latest, err)
	}
	reply, err = parseAnswer(invocation.Stdout)
	if err != nil {
		return answer{}, fmt.Errorf("command on %s ended %s with exit code %d: %w%s",
			survivor, invocation.Status, invocation.ExitCode, err, excerpt(invocation.Stderr))
	}
	return reply, nil
}

// parseAnswer reads the last line of a command's output that is not empty.
func parseAnswer(stdout string) (answer, error) {
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return answer{}, errors.New("it printed no answer")
	}
	var reply answer
	if err := json.Unmarshal([]byte(last), &reply); err != nil {
		return answer{}, fmt.Errorf("read its answer %q: %w", shorten(last), err)
	}
	switch reply.Result {
	case Removed, Absent, Refused:
		return reply, nil
	}
	return answer{}, fmt.Errorf("its answer %q has an unknown result", shorten(last))
}

// excerpt is the end of what a command wrote to stderr, which tells why it
// failed.
func excerpt(stderr string) string {
	stderr = strings.TrimSpace(stderr)
	if stderr == "" {
		return ""
	}
	return ": " + shorten(stderr)
}

// maxExcerpt bounds what is repeated of others' output in a log line.
const maxExcerpt = 400

func shorten(text string) string {
	if len(text) <= maxExcerpt {
		return text
	}
	return "…" + strings.ToValidUTF8(text[len(text)-maxExcerpt:], "")
}

// quote makes one word of text for a POSIX shell.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// every is a jittered backoff between two intervals.
func every(first, most time.Duration) backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, most
	return b
}
