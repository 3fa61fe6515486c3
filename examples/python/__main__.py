"""An EtcFS cluster: a filesystem mounted at /mnt/etcfuse on every node of an
Auto Scaling Group. The name and the zone have defaults in Pulumi.yaml; what is
optional here has its default in the component.
"""

import pulumi
from pulumi_etcfs import asg

settings = pulumi.Config()

fs = asg.Cluster(
    "fs",
    cluster_name=settings.require("clusterName"),
    availability_zone=settings.require("availabilityZone"),
    min_size=settings.get_int("minSize"),
    max_size=settings.get_int("maxSize"),
    desired_capacity=settings.get_int("desiredCapacity"),
    instance_type=settings.get("instanceType"),
    volume_size=settings.get_int("volumeSize"),
    volume_iops=settings.get_int("volumeIops"),
    etcfs_version=settings.get("etcfsVersion"),
    etcd_version=settings.get("etcdVersion"),
    lease_ttl=settings.get("leaseTtl"),
    releases_url=settings.get("releasesUrl"),
    on_bootstrap_failure=settings.get("onBootstrapFailure"),
    recovery=settings.get("recovery"),
)

pulumi.export("clusterName", fs.cluster_name)
pulumi.export("autoScalingGroupName", fs.auto_scaling_group_name)
pulumi.export("volumeId", fs.volume_id)
pulumi.export("seedTableName", fs.seed_table_name)
pulumi.export("securityGroupId", fs.security_group_id)
pulumi.export("launchTemplateId", fs.launch_template_id)
pulumi.export("launchTemplateVersion", fs.launch_template_version)
pulumi.export("gracefulLeaveFunctionName", fs.graceful_leave_function_name)
pulumi.export("nodeRoleName", fs.node_role_name)
pulumi.export("instanceProfileName", fs.instance_profile_name)
pulumi.export("bucketName", fs.bucket_name)
pulumi.export("availabilityZone", fs.availability_zone)
pulumi.export("vpcId", fs.vpc_id)
pulumi.export("subnetId", fs.subnet_id)
