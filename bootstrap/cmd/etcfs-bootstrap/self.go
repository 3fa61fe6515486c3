package main

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	nodeaws "github.com/etcfs/pulumi-etcfs/bootstrap/aws"
)

// thisNode asks the metadata service once which instance this is. The commands
// that do so are typed by people, off a node, too: they are told within seconds.
func thisNode(ctx context.Context, cfg aws.Config) (bootstrap.Node, error) {
	service := imds.NewFromConfig(cfg, func(o *imds.Options) {
		o.EnableFallback = aws.FalseTernary // whoever does not speak version 2 is no instance's
	})
	self, err := nodeaws.Metadata{API: service}.Identity(ctx)
	if err != nil {
		return bootstrap.Node{}, fmt.Errorf("this command works on a node only: this is no EC2 instance, or its metadata service is out of reach: %w", err)
	}
	return bootstrap.Node(self), nil
}
