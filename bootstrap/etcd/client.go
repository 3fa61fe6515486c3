// Package etcd reads and changes the membership of the etcd cluster that the
// nodes run, and tells how the etcd of one node answers.
package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// ClientURL is the address that clients reach the etcd of a node at.
func ClientURL(ip string) string { return nodeURL(ip, settings.EtcdClientPort) }

// PeerURL is the address that the other members reach the etcd of a node at.
func PeerURL(ip string) string { return nodeURL(ip, settings.EtcdPeerPort) }

func nodeURL(ip string, port int) string { return "http://" + address(ip, port) }

func address(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

// Cluster reads and changes an etcd cluster through some of its members. The
// zero value uses the default timeout.
type Cluster struct {
	// Timeout bounds each call, 5 s by default: etcd itself gives up on a
	// change after 7 s at its default election timeout, and what it did is read
	// again anyway.
	Timeout time.Duration
}

func (c Cluster) timeout() time.Duration {
	if c.Timeout == 0 {
		return 5 * time.Second
	}
	return c.Timeout
}

// Members lists the members by a linearizable read, so a change made before is
// in it.
func (c Cluster) Members(ctx context.Context, endpoints []string) ([]membership.Member, error) {
	var members []membership.Member
	err := c.with(ctx, endpoints, func(ctx context.Context, client *clientv3.Client) error {
		response, err := client.MemberList(ctx)
		if err == nil {
			members = convert(response.Members)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the etcd members through %v: %w", endpoints, err)
	}
	return members, nil
}

// AddLearner adds a member that does not vote yet and returns its ID.
func (c Cluster) AddLearner(ctx context.Context, endpoints []string, peerURL string) (uint64, error) {
	var id uint64
	err := c.with(ctx, endpoints, func(ctx context.Context, client *clientv3.Client) error {
		response, err := client.MemberAddAsLearner(ctx, []string{peerURL})
		if err == nil {
			id = response.Member.ID
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("add learner %s through %v: %w", peerURL, endpoints, err)
	}
	return id, nil
}

// Promote makes a learner a voting member.
func (c Cluster) Promote(ctx context.Context, endpoints []string, id uint64) error {
	err := c.with(ctx, endpoints, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.MemberPromote(ctx, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("promote member %x through %v: %w", id, endpoints, err)
	}
	return nil
}

// Settle writes the fate of a learner down, unless it has one already, and
// returns the one that it has: the first word stands. The member's removal
// forgets it.
func (c Cluster) Settle(ctx context.Context, endpoints []string, id uint64, fate membership.Fate) (membership.Fate, error) {
	key := fateKey(id)
	err := c.with(ctx, endpoints, func(ctx context.Context, client *clientv3.Client) error {
		response, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(fate))).
			Else(clientv3.OpGet(key)).
			Commit()
		if err == nil && !response.Succeeded {
			fate = membership.Fate(response.Responses[0].GetResponseRange().Kvs[0].Value)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("settle the fate of learner %x through %v: %w", id, endpoints, err)
	}
	return fate, nil
}

// fateKey is where a learner's fate is kept. etcd is EtcFS's, whose keys have
// other prefixes.
func fateKey(id uint64) string { return fmt.Sprintf("pulumi-etcfs/fate/%x", id) }

// Remove removes a member for good. etcd refuses when the rest would have no
// quorum.
func (c Cluster) Remove(ctx context.Context, endpoints []string, id uint64) error {
	err := c.with(ctx, endpoints, func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.MemberRemove(ctx, id); err != nil {
			return err
		}
		_, _ = client.Delete(ctx, fateKey(id)) // a few bytes that nobody reads again
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove member %x through %v: %w", id, endpoints, err)
	}
	return nil
}

func (c Cluster) with(ctx context.Context, endpoints []string, call func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Context:   ctx,
		Logger:    zap.NewNop(), // what matters is in the errors
	})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // reports no more than that ctx is done
	return call(ctx, client)
}

func convert(members []*etcdserverpb.Member) []membership.Member {
	converted := make([]membership.Member, len(members))
	for i, m := range members {
		converted[i] = membership.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner}
	}
	return converted
}

// ClusterID asks one node for the ID of the cluster that its member belongs
// to, in hexadecimal, and whether the member still learns. It needs no quorum.
func (c Cluster) ClusterID(ctx context.Context, ip string) (id string, learner bool, err error) {
	endpoint := ClientURL(ip)
	err = c.with(ctx, []string{endpoint}, func(ctx context.Context, client *clientv3.Client) error {
		status, err := client.Status(ctx, endpoint)
		if err == nil {
			id, learner = strconv.FormatUint(status.Header.ClusterId, 16), status.IsLearner
		}
		return err
	})
	if err != nil {
		return "", false, fmt.Errorf("ask the etcd at %s for its status: %w", ip, err)
	}
	return id, learner, nil
}

// Reading is how the etcd of one node answered.
type Reading struct {
	Health    membership.Health
	ClusterID string
	Learner   bool
	// Reason is why etcd says that it is not healthy, such as "ALARM NOSPACE", ""
	// when it says nothing.
	Reason string
}

// Probe tells how the etcd of a node answers. It is cluster health that it asks
// for (/health), since that decides whether the node can be joined through; a
// node whose ports accept a connection and whose etcd does not serve, for
// whatever reason, is Answering.
func (c Cluster) Probe(ctx context.Context, ip string) Reading {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	healthy, reason := c.health(ctx, ip)
	if healthy {
		if id, learner, err := c.ClusterID(ctx, ip); err == nil {
			return Reading{Health: membership.Healthy, ClusterID: id, Learner: learner}
		}
		return Reading{Health: membership.Answering}
	}
	// A member opens its peer port first, and a frozen one accepts connections
	// without ever answering.
	for _, port := range []int{settings.EtcdClientPort, settings.EtcdPeerPort} {
		if accepts(ctx, address(ip, port)) {
			return Reading{Health: membership.Answering, Reason: reason}
		}
	}
	return Reading{Health: membership.Silent}
}

// health asks etcd whether the cluster can serve, and why not. It leaves time of
// ctx for the dials that follow when nothing answers.
func (c Cluster) health(ctx context.Context, ip string) (healthy bool, reason string) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout()/2)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ClientURL(ip)+"/health", nil)
	if err != nil {
		return false, ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, ""
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return true, ""
	}
	var told struct {
		Reason string `json:"reason"`
	}
	_ = json.NewDecoder(response.Body).Decode(&told) // it is for people only
	return false, told.Reason
}

func accepts(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// Outcome is what an error of a membership change means.
type Outcome int

const (
	// Stop: trying again cannot help.
	Stop Outcome = iota
	// Retry: etcd refuses the change for now, or its answer was lost. The
	// members have to be read again before the next try.
	Retry
	// Settled: there is nothing left to change.
	Settled
)

// Classify says what an error of a membership change means. The reasons for
// etcd's refusals are in server/etcdserver (mayAddMember, mayRemoveMember,
// isLearnerReady).
func Classify(err error) Outcome {
	for outcome, errs := range outcomes {
		for _, known := range errs {
			if errors.Is(err, known) {
				return outcome
			}
		}
	}
	if errors.Is(err, context.Canceled) {
		return Stop
	}
	return Retry // a broken connection or a timeout: the change may have happened
}

var outcomes = map[Outcome][]error{
	Settled: {rpctypes.ErrMemberNotFound, rpctypes.ErrMemberNotLearner, rpctypes.ErrPeerURLExist, rpctypes.ErrMemberExist},
	Stop:    {rpctypes.ErrMemberBadURLs, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrClusterIDMismatch},
}

// Refused says that etcd would not make the change because the cluster would
// lose its quorum, or might.
func Refused(err error) bool {
	return errors.Is(err, rpctypes.ErrMemberNotEnoughStarted) || errors.Is(err, rpctypes.ErrUnhealthy)
}
