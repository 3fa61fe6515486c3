package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
)

var instancePattern = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

func (p *program) removeMemberCommand() *cobra.Command {
	var instanceID, address string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "remove-member --instance-id ID",
		Short: "Remove the etcd member of another instance, as scale-in does",
		Long: "Removes the etcd member of another instance through this node's etcd, and prints\n" +
			"what became of it as one line of JSON. etcd refuses a removal that would cost the\n" +
			"cluster its quorum. An instance without a member is a success.\n\n" + exitHelp,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if instanceID == "" {
				return &usageError{errors.New("--instance-id is missing")}
			}
			// A mistyped one would have no member either: a false success.
			if !instancePattern.MatchString(instanceID) {
				return &usageError{fmt.Errorf("--instance-id takes an instance ID such as i-0123456789abcdef0, not %q", instanceID)}
			}
			if address != "" {
				if _, err := netip.ParseAddr(address); err != nil {
					return &usageError{err}
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			cfg, err := awsConfig(ctx, "") // no call here is to a Region
			if err != nil {
				return err
			}
			self, err := thisNode(ctx, cfg)
			if err != nil {
				return err
			}
			removal, err := bootstrap.RemoveMember(ctx, etcd.Cluster{}, self, instanceID, address)
			if err != nil {
				return err
			}
			if err := json.NewEncoder(p.stdout).Encode(removal); err != nil {
				return err
			}
			if removal.Result == bootstrap.Refused {
				return statusError(exitRefused)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&instanceID, "instance-id", "", "the instance whose member leaves (required)")
	cmd.Flags().StringVar(&address, "address", "", "its private address, to find a member that has never started")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to try")
	return cmd
}
