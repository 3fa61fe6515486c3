package bootstrap

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/bootstrap/membership"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// Removal is what became of the etcd member of an instance that leaves. It is
// printed as one line of JSON for the graceful-leave function.
type Removal struct {
	Result RemovalResult `json:"result"`
	// MemberID is the member's ID in hexadecimal, "" when there was none.
	MemberID string `json:"memberId,omitempty"`
	// Reason says why a removal was refused.
	Reason string `json:"reason,omitempty"`
}

// RemovalResult is the outcome of a removal.
type RemovalResult string

// The outcomes of a removal.
const (
	// Removed: the member was there and is no more.
	Removed RemovalResult = "removed"
	// Absent: the instance has no member.
	Absent RemovalResult = "absent"
	// Refused: etcd keeps the member, because the rest would have no quorum.
	Refused RemovalResult = "refused"
)

// RemoveMember removes the etcd member of another instance through this node's
// own etcd: by the instance ID in the member's name, or, while the member has
// never started and has no name, by its exact peer address. It never forces:
// what etcd refuses for the sake of its quorum is reported.
func RemoveMember(ctx context.Context, cluster Etcd, self Node, instanceID, address string) (Removal, error) {
	if instanceID == self.InstanceID {
		return Removal{}, fmt.Errorf("remove the member of %s: this is the instance itself, and a node does not remove itself", instanceID)
	}
	endpoints := []string{etcd.ClientURL(self.PrivateIP)}
	removal := Removal{Result: Absent}
	err := phase.Poll(ctx, phase.Local, func(ctx context.Context) error {
		members, err := cluster.Members(ctx, endpoints)
		if err != nil {
			return err
		}
		member, ok := memberOf(members, instanceID, address)
		if !ok {
			if removal.MemberID != "" {
				removal.Result = Removed
			}
			return nil
		}
		removal.MemberID = fmt.Sprintf("%x", member.ID)
		err = cluster.Remove(ctx, endpoints, member.ID)
		switch {
		case etcd.Refused(err):
			removal.Result, removal.Reason = Refused, err.Error()
			return nil
		case err != nil && etcd.Classify(err) == etcd.Stop:
			return phase.Permanent(err)
		case err != nil:
			return err // the next reading tells whether it happened
		}
		return errors.New("the removal is being read back")
	})
	return removal, err
}

func memberOf(members []membership.Member, instanceID, address string) (membership.Member, bool) {
	for _, member := range members {
		if member.Of(instanceID, address) {
			return member, true
		}
	}
	return membership.Member{}, false
}
