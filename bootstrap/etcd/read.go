package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/version"
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

// ClusterVersion asks for the version that the cluster works at, such as
// "3.6.0": that of its oldest member, once all have been replaced. etcd of an
// earlier series than that cannot join.
func (c Cluster) ClusterVersion(ctx context.Context, endpoints []string) (string, error) {
	var failures []error
	for _, endpoint := range endpoints {
		version, err := c.clusterVersion(ctx, endpoint)
		if err == nil {
			return version, nil
		}
		failures = append(failures, err)
	}
	return "", fmt.Errorf("ask etcd for the version of its cluster: %w", errors.Join(failures...))
}

func (c Cluster) clusterVersion(ctx context.Context, endpoint string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var told version.Versions
	if err := json.NewDecoder(response.Body).Decode(&told); err != nil {
		return "", fmt.Errorf("read what %s says of its version: %w", endpoint, err)
	}
	return told.Cluster, nil
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
