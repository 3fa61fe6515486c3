package asg

import (
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/dynamodb"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ebs"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// storage is what outlives every node: the data volume, and the table in which
// the nodes agree on who forms the cluster.
type storage struct {
	volume *ebs.Volume
	table  *dynamodb.Table
}

func (b *builder) storage(at place) (storage, error) {
	options := []pulumi.ResourceOption{
		b.parent(),
		// Under another name, and in a VPC where no running node is reached, a
		// cluster starts with a new etcd, which must never meet a volume with data.
		// And a volume goes with its nodes, so they are gone before it is replaced.
		pulumi.ReplacementTrigger(pulumi.Sprintf("%s in %s", b.in.clusterName, at.vpcID)), pulumi.DeleteBeforeReplace(true),
	}
	if b.in.retainVolume {
		// Not said otherwise: false would stand against retainOnDelete of the
		// cluster, which its children inherit.
		options = append(options, pulumi.RetainOnDelete(true))
	}
	volume, err := ebs.NewVolume(b.ctx, b.child("data"), &ebs.VolumeArgs{
		AvailabilityZone:   at.zone,
		Type:               pulumi.String("io2"),
		MultiAttachEnabled: pulumi.Bool(true),
		Size:               b.in.volumeSize,
		Iops:               b.in.volumeIOPS,
		Encrypted:          pulumi.Bool(true),
		FinalSnapshot:      pulumi.Bool(b.in.finalSnapshot),
		Tags:               b.namedTags("data"),
	}, options...)
	if err != nil {
		return storage{}, fmt.Errorf("declare the data volume: %w", err)
	}

	// The node's key attribute is fixed: the shell bootstrap uses the same item.
	const key = "cluster_name"
	table, err := dynamodb.NewTable(b.ctx, b.child("seed"), &dynamodb.TableArgs{
		Name:        b.in.clusterName.ApplyT(settings.SeedTableName).(pulumi.StringOutput),
		BillingMode: pulumi.String("PAY_PER_REQUEST"),
		HashKey:     pulumi.String(key),
		Attributes:  dynamodb.TableAttributeArray{dynamodb.TableAttributeArgs{Name: pulumi.String(key), Type: pulumi.String("S")}},
		Tags:        b.tags(),
	}, b.parent(),
		// It says that etcd was formed, for the volume of that etcd.
		pulumi.ReplaceWith([]pulumi.Resource{volume}), pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return storage{}, fmt.Errorf("declare the seed table: %w", err)
	}
	return storage{volume, table}, nil
}
