package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leader asks the etcd of one node which member leads the cluster; 0 means
// none that this node knows of.
func (c Cluster) Leader(ctx context.Context, ip string) (uint64, error) {
	endpoint := ClientURL(ip)
	var leader uint64
	err := c.with(ctx, []string{endpoint}, func(ctx context.Context, client *clientv3.Client) error {
		status, err := client.Status(ctx, endpoint)
		if err == nil {
			leader = status.Leader
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ask the etcd at %s who leads: %w", ip, err)
	}
	return leader, nil
}

// Values reads every key that starts with a prefix, and returns the values by
// the rest of their keys.
func (c Cluster) Values(ctx context.Context, endpoints []string, prefix string) (map[string]string, error) {
	values := map[string]string{}
	err := c.with(ctx, endpoints, func(ctx context.Context, client *clientv3.Client) error {
		response, err := client.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range response.Kvs {
			values[string(kv.Key[len(prefix):])] = string(kv.Value)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys below %q through %v: %w", prefix, endpoints, err)
	}
	return values, nil
}
