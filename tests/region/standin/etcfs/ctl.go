package etcfs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// status is what etcfsctl tells of a filesystem.
type status struct {
	Members []Member `json:"members"`
	Files   int      `json:"files"`
	Bytes   int64    `json:"bytes"`
}

// Control runs etcfsctl of the release that the first argument names, and
// returns its exit status.
func Control(args []string, stdout, stderr io.Writer) int {
	release, args, err := takeRelease(args)
	if err != nil {
		fmt.Fprintln(stderr, "etcfsctl:", err)
		return 2
	}
	set := pflag.NewFlagSet("etcfsctl", pflag.ContinueOnError)
	set.SetOutput(stderr)
	endpoints := set.String("etcd-endpoints", "http://localhost:2379", "Comma-separated etcd client endpoints")
	timeout := set.Duration("timeout", 10*time.Second, "Bound on the etcd work behind one command")
	asJSON := set.Bool("json", false, "Emit JSON instead of text")
	version := set.Bool("version", false, "Show version and exit")
	if err := set.Parse(args); err != nil {
		return 2
	}
	if *version {
		fmt.Fprintln(stdout, "etcfsctl", release.Version)
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	var s status
	switch set.Arg(0) {
	case "status", "members":
		s, err = inspect(ctx, *endpoints)
	default:
		fmt.Fprintln(stderr, "usage: etcfsctl [flags] <status|members>")
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "etcfsctl:", err)
		return 1
	}
	if *asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(s); err != nil {
			return 1
		}
		return 0
	}
	if set.Arg(0) == "status" {
		fmt.Fprintf(stdout, "files: %d\nbytes: %d\nmembers: %d\n", s.Files, s.Bytes, len(s.Members))
	}
	for _, member := range s.Members {
		fmt.Fprintf(stdout, "%s\tinstance=%s\n", member.NodeID, member.InstanceID)
	}
	return 0
}

func inspect(ctx context.Context, endpoints string) (s status, err error) {
	etcd, err := connect(endpoints)
	if err != nil {
		return s, err
	}
	defer etcd.Close()
	members, err := etcd.Get(ctx, MembershipPrefix, clientv3.WithPrefix())
	if err != nil {
		return s, fmt.Errorf("list members: %w", err)
	}
	for _, kv := range members.Kvs {
		member := Member{NodeID: strings.TrimPrefix(string(kv.Key), MembershipPrefix)}
		if err := json.Unmarshal(kv.Value, &member); err != nil {
			return s, fmt.Errorf("read member %s: %w", member.NodeID, err)
		}
		s.Members = append(s.Members, member)
	}
	files, err := etcd.Get(ctx, filePrefix, clientv3.WithPrefix())
	if err != nil {
		return s, fmt.Errorf("list files: %w", err)
	}
	for _, kv := range files.Kvs {
		var e extent
		if err := json.Unmarshal(kv.Value, &e); err != nil {
			return s, fmt.Errorf("read %s: %w", kv.Key, err)
		}
		s.Files++
		s.Bytes += e.Length
	}
	return s, nil
}
