package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/olekukonko/tablewriter"
	"github.com/spf13/cobra"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
)

func (p *program) statusCommand() *cobra.Command {
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster as its group, etcd, its volume and EtcFS see it",
		Long: "Shows every node of the cluster in four views side by side: its state in the Auto\n" +
			"Scaling Group, its etcd member, its attachment of the volume and its registration\n" +
			"in EtcFS. Below the table it says where they disagree.\n\n" + exitHelp,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return &usageError{fmt.Errorf("--output takes table or json, not %q", output)}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			status, err := p.status(ctx)
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(p.stdout)
				encoder.SetIndent("", "  ")
				err = encoder.Encode(status)
			} else {
				err = p.print(status)
			}
			switch {
			case err != nil:
				return err
			case len(status.Unseen) > 0:
				return statusError(exitUnseen)
			case len(status.Problems) > 0:
				return statusError(exitDegraded)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to try")
	return cmd
}

func (p *program) status(ctx context.Context) (bootstrap.Status, error) {
	s, err := p.settings()
	if err != nil {
		return bootstrap.Status{}, err
	}
	cfg, err := awsConfig(ctx, s.Region)
	if err != nil {
		return bootstrap.Status{}, err
	}
	self, err := thisNode(ctx, cfg)
	if err != nil {
		return bootstrap.Status{}, err
	}
	compute := ec2.NewFromConfig(cfg)
	return bootstrap.ReadStatus(ctx, s.ClusterName, self, bootstrap.Sources{
		Group:       aws.Group{EC2: compute, Cluster: s.ClusterName},
		Lifecycle:   aws.Lifecycle{API: autoscaling.NewFromConfig(cfg)},
		Etcd:        etcd.Cluster{},
		Attachments: &aws.Volume{API: compute, ID: s.VolumeID, Logger: slog.New(slog.DiscardHandler)},
	}), nil
}

func (p *program) print(status bootstrap.Status) error {
	table := tablewriter.NewWriter(p.stdout)
	table.SetHeader([]string{"instance", "address", "group", "etcd", "volume", "etcfs"})
	table.SetBorder(false)
	table.SetAutoWrapText(false)
	for _, node := range status.Nodes {
		registered := "-"
		if node.EtcFS != "" {
			registered = "registered"
		}
		table.Append([]string{node.Instance, node.Address, dash(node.Group), dash(node.Etcd), dash(node.Volume), registered})
	}
	table.Render()
	for _, problem := range status.Problems {
		if _, err := fmt.Fprintf(p.stdout, "problem: %s\n", problem); err != nil {
			return err
		}
	}
	for _, unseen := range status.Unseen {
		if _, err := fmt.Fprintf(p.stdout, "not seen: %s\n", unseen); err != nil {
			return err
		}
	}
	return nil
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
