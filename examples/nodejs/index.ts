// An EtcFS cluster: a filesystem mounted at /mnt/etcfuse on every node of an
// Auto Scaling Group. The name and the zone have defaults in Pulumi.yaml; what
// is optional here has its default in the component.
import * as pulumi from "@pulumi/pulumi";
import { asg } from "@etcfs/pulumi-etcfs";

const settings = new pulumi.Config();

const fs = new asg.Cluster("fs", {
    clusterName: settings.require("clusterName"),
    availabilityZone: settings.require("availabilityZone"),

    minSize: settings.getNumber("minSize"),
    maxSize: settings.getNumber("maxSize"),
    desiredCapacity: settings.getNumber("desiredCapacity"),
    instanceType: settings.get("instanceType"),
    volumeSize: settings.getNumber("volumeSize"),
    volumeIops: settings.getNumber("volumeIops"),

    etcfsVersion: settings.get("etcfsVersion"),
    etcdVersion: settings.get("etcdVersion"),
    leaseTtl: settings.get("leaseTtl"),
    releasesUrl: settings.get("releasesUrl"),
    onBootstrapFailure: settings.get("onBootstrapFailure"),
    recovery: settings.get("recovery"),
});

export const {
    clusterName,
    autoScalingGroupName,
    volumeId,
    seedTableName,
    securityGroupId,
    launchTemplateId,
    launchTemplateVersion,
    gracefulLeaveFunctionName,
    nodeRoleName,
    instanceProfileName,
    bucketName,
    availabilityZone,
    vpcId,
    subnetId,
} = fs;
