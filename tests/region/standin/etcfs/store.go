package etcfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Keys in etcd. The first is the real one's; the others are this model's.
const (
	// MembershipPrefix precedes a node's ID in the key that it keeps alive.
	MembershipPrefix = "membership:"
	departedPrefix   = "departed:"
	generationPrefix = "generation:"
	claimPrefix      = "fence:"
	filePrefix       = "file:"
	nextKey          = "next"
)

// Member is the value of a membership key.
type Member struct {
	NodeID      string `json:"node_id"`
	ClusterName string `json:"cluster_name"`
	JoinedAt    string `json:"joined_at"`
	InstanceID  string `json:"instance_id"`
}

// extent is the value of a file's key: where on the device it lies.
type extent struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
	Node   string `json:"node"`
}

// store keeps files: data on the device, metadata in etcd.
type store struct {
	etcd     *clientv3.Client
	device   *device // nil: every write fails
	nodeID   string
	readOnly bool
	// generation is this node's when it started; a peer that fences the node
	// raises it, and nothing of this node's is stored any more.
	generation int64
}

// startGeneration reads this node's generation.
func (s *store) startGeneration(ctx context.Context) error {
	response, err := s.etcd.Get(ctx, generationPrefix+s.nodeID)
	if err != nil {
		return fmt.Errorf("initialise fencing generation: %w", err)
	}
	if len(response.Kvs) > 0 {
		s.generation = response.Kvs[0].ModRevision
	}
	return nil
}

func (s *store) guard() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(generationPrefix+s.nodeID), "=", s.generation)
}

// write stores a file: space first, then the data, then the name.
func (s *store) write(ctx context.Context, name string, data []byte) error {
	switch {
	case s.readOnly:
		return syscall.EROFS
	case s.device == nil:
		return fmt.Errorf("no block device: %w", syscall.EIO)
	}
	offset, err := s.allocate(ctx, int64(len(data)))
	if err != nil {
		return err
	}
	if err := s.device.write(data, offset); err != nil {
		return fmt.Errorf("write to the device: %w", err)
	}
	sum := sha256.Sum256(data)
	value, err := json.Marshal(extent{offset, int64(len(data)), hex.EncodeToString(sum[:]), s.nodeID})
	if err != nil {
		return err
	}
	return s.commit(ctx, clientv3.OpPut(filePrefix+name, string(value)))
}

func (s *store) remove(ctx context.Context, name string) error {
	if s.readOnly {
		return syscall.EROFS
	}
	return s.commit(ctx, clientv3.OpDelete(filePrefix+name))
}

// commit changes metadata unless this node was fenced.
func (s *store) commit(ctx context.Context, op clientv3.Op) error {
	response, err := s.etcd.Txn(ctx).If(s.guard()).Then(op).Commit()
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if !response.Succeeded {
		return fmt.Errorf("this node was fenced: %w", syscall.EIO)
	}
	return nil
}

// allocate hands out space on the device.
func (s *store) allocate(ctx context.Context, length int64) (int64, error) {
	size := (length + block - 1) / block * block
	capacity, err := s.device.size()
	if err != nil {
		return 0, fmt.Errorf("size of the device: %w", err)
	}
	for {
		response, err := s.etcd.Get(ctx, nextKey)
		if err != nil {
			return 0, fmt.Errorf("allocate: %w", err)
		}
		var next, revision int64
		if len(response.Kvs) > 0 {
			revision = response.Kvs[0].ModRevision
			if next, err = strconv.ParseInt(string(response.Kvs[0].Value), 10, 64); err != nil {
				return 0, fmt.Errorf("allocate: %w", err)
			}
		}
		if next+size > capacity {
			return 0, syscall.ENOSPC
		}
		taken, err := s.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(nextKey), "=", revision)).
			Then(clientv3.OpPut(nextKey, fmt.Sprint(next+size))).Commit()
		if err != nil {
			return 0, fmt.Errorf("allocate: %w", err)
		}
		if taken.Succeeded {
			return next, nil
		}
	}
}

// read returns a file. Data that is not what was stored is refused.
func (s *store) read(ctx context.Context, name string) ([]byte, error) {
	response, err := s.etcd.Get(ctx, filePrefix+name)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", name, err)
	}
	if len(response.Kvs) == 0 {
		return nil, syscall.ENOENT
	}
	if s.device == nil {
		return nil, fmt.Errorf("no block device: %w", syscall.EIO)
	}
	var e extent
	if err := json.Unmarshal(response.Kvs[0].Value, &e); err != nil {
		return nil, fmt.Errorf("look up %s: %w", name, err)
	}
	data, err := s.device.read(e.Length, e.Offset)
	if err != nil {
		return nil, fmt.Errorf("read from the device: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != e.SHA256 {
		return nil, fmt.Errorf("the device holds other data than was stored for %s: %w", name, syscall.EIO)
	}
	return data, nil
}

// list names every file, and the revision of etcd at which that was so.
func (s *store) list(ctx context.Context) ([]string, int64, error) {
	response, err := s.etcd.Get(ctx, filePrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, 0, fmt.Errorf("list files: %w", err)
	}
	return names(response.Kvs), response.Header.Revision, nil
}

func names(kvs []*mvccpb.KeyValue) []string {
	var list []string
	for _, kv := range kvs {
		list = append(list, strings.TrimPrefix(string(kv.Key), filePrefix))
	}
	return list
}

// errCompacted means that changes were lost and everything is to be listed
// anew.
var errCompacted = errors.New("changes were compacted away")

// changes waits for changes after a revision and names the files.
func (s *store) changes(ctx context.Context, after int64) ([]string, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for response := range s.etcd.Watch(ctx, filePrefix, clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		if response.CompactRevision != 0 {
			return nil, 0, errCompacted
		}
		if err := response.Err(); err != nil {
			return nil, 0, fmt.Errorf("watch files: %w", err)
		}
		if len(response.Events) == 0 {
			continue
		}
		var kvs []*mvccpb.KeyValue
		for _, event := range response.Events {
			kvs = append(kvs, event.Kv)
		}
		return names(kvs), response.Header.Revision, nil
	}
	return nil, 0, ctx.Err()
}
