// An EtcFS cluster: a filesystem mounted at /mnt/etcfuse on every node of an
// Auto Scaling Group. The name and the zone have defaults in Pulumi.yaml; what
// is optional here has its default in the component.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"

	"github.com/etcfs/pulumi-etcfs/sdk/go/etcfs/asg"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		settings := config.New(ctx, "")
		fs, err := asg.NewCluster(ctx, "fs", &asg.ClusterArgs{
			ClusterName:      pulumi.String(settings.Require("clusterName")),
			AvailabilityZone: pulumi.String(settings.Require("availabilityZone")),

			MinSize:         optionalInt(settings, "minSize"),
			MaxSize:         optionalInt(settings, "maxSize"),
			DesiredCapacity: optionalInt(settings, "desiredCapacity"),
			InstanceType:    optionalString(settings, "instanceType"),
			VolumeSize:      optionalInt(settings, "volumeSize"),
			VolumeIops:      optionalInt(settings, "volumeIops"),

			EtcfsVersion:       optionalString(settings, "etcfsVersion"),
			EtcdVersion:        optionalString(settings, "etcdVersion"),
			LeaseTtl:           optionalString(settings, "leaseTtl"),
			ReleasesUrl:        optionalString(settings, "releasesUrl"),
			OnBootstrapFailure: optionalString(settings, "onBootstrapFailure"),
			Recovery:           optionalString(settings, "recovery"),
		})
		if err != nil {
			return err
		}

		ctx.Export("clusterName", fs.ClusterName)
		ctx.Export("autoScalingGroupName", fs.AutoScalingGroupName)
		ctx.Export("volumeId", fs.VolumeId)
		ctx.Export("seedTableName", fs.SeedTableName)
		ctx.Export("securityGroupId", fs.SecurityGroupId)
		ctx.Export("launchTemplateId", fs.LaunchTemplateId)
		ctx.Export("launchTemplateVersion", fs.LaunchTemplateVersion)
		ctx.Export("gracefulLeaveFunctionName", fs.GracefulLeaveFunctionName)
		ctx.Export("nodeRoleName", fs.NodeRoleName)
		ctx.Export("instanceProfileName", fs.InstanceProfileName)
		ctx.Export("bucketName", fs.BucketName)
		ctx.Export("availabilityZone", fs.AvailabilityZone)
		ctx.Export("vpcId", fs.VpcId)
		ctx.Export("subnetId", fs.SubnetId)
		return nil
	})
}

// optionalString is nil, and so the component's default, if nothing is
// configured.
func optionalString(settings *config.Config, key string) pulumi.StringPtrInput {
	if value, err := settings.Try(key); err == nil {
		return pulumi.String(value)
	}
	return nil
}

// optionalInt is optionalString for numbers. One that is none stops the program.
func optionalInt(settings *config.Config, key string) pulumi.IntPtrInput {
	if _, err := settings.Try(key); err == nil {
		return pulumi.Int(settings.RequireInt(key))
	}
	return nil
}
