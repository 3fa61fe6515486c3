package asg

import (
	"fmt"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// ClusterArgs is what a user says about a cluster. Annotate describes each
// field; the table in validate.go says what is accepted. The fields are spelt as
// in the generated Go SDK (Id, Ttl, Url), so that a program can change from one
// to the other.
type ClusterArgs struct {
	ClusterName      pulumi.StringInput    `pulumi:"clusterName"`
	AvailabilityZone pulumi.StringPtrInput `pulumi:"availabilityZone,optional"`
	SubnetId         pulumi.StringPtrInput `pulumi:"subnetId,optional"`

	MinSize         pulumi.IntPtrInput `pulumi:"minSize,optional"`
	MaxSize         pulumi.IntPtrInput `pulumi:"maxSize,optional"`
	DesiredCapacity pulumi.IntPtrInput `pulumi:"desiredCapacity,optional"`

	InstanceType    pulumi.StringPtrInput `pulumi:"instanceType,optional"`
	AmiId           pulumi.StringPtrInput `pulumi:"amiId,optional"`
	RootVolumeSize  pulumi.IntPtrInput    `pulumi:"rootVolumeSize,optional"`
	KeyName         pulumi.StringPtrInput `pulumi:"keyName,optional"`
	SshIngressCidr  pulumi.StringPtrInput `pulumi:"sshIngressCidr,optional"`
	InstanceProfile pulumi.StringPtrInput `pulumi:"instanceProfile,optional"`

	VolumeSize pulumi.IntPtrInput `pulumi:"volumeSize,optional"`
	VolumeIops pulumi.IntPtrInput `pulumi:"volumeIops,optional"`

	EtcfsVersion       pulumi.StringPtrInput `pulumi:"etcfsVersion,optional"`
	EtcdVersion        pulumi.StringPtrInput `pulumi:"etcdVersion,optional"`
	LeaseTtl           pulumi.StringPtrInput `pulumi:"leaseTtl,optional"`
	GithubRepo         pulumi.StringPtrInput `pulumi:"githubRepo,optional"`
	ReleasesUrl        pulumi.StringPtrInput `pulumi:"releasesUrl,optional"`
	OnBootstrapFailure pulumi.StringPtrInput `pulumi:"onBootstrapFailure,optional"`
	Recovery           pulumi.StringPtrInput `pulumi:"recovery,optional"`

	WaitForReady    *bool `pulumi:"waitForReady,optional"`
	InstanceRefresh *bool `pulumi:"instanceRefresh,optional"`
	RetainVolume    *bool `pulumi:"retainVolume,optional"`
	FinalSnapshot   *bool `pulumi:"finalSnapshot,optional"`

	AlarmActions pulumi.StringArrayInput `pulumi:"alarmActions,optional"`

	Tags pulumi.StringMapInput `pulumi:"tags,optional"`
}

// Defaults that are the component's own; those of a node are in
// [settings.Defaults].
const (
	defaultMinSize        = 3
	defaultMaxSize        = 5
	defaultInstanceType   = "t3.medium"
	defaultRootVolumeSize = 20
	defaultVolumeSize     = 10
	defaultVolumeIOPS     = 100
)

// Limits of AWS and of EtcFS that are not limits of a node's settings.
const (
	// https://docs.aws.amazon.com/ebs/latest/userguide/provisioned-iops.html
	minVolumeSize, maxVolumeSize = 4, 65536
	minVolumeIOPS, maxVolumeIOPS = 100, 256000
	maxIOPSPerGiB                = 1000

	// Amazon Linux 2023's image needs eight; gp3 ends at the other:
	// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html
	minRootVolumeSize, maxRootVolumeSize = 8, 65536

	// The unit of space that a node which writes takes of the volume for itself.
	arenaGiB = 1
)

// Annotate implements [infer.Annotated]: the text that every SDK carries.
func (a *ClusterArgs) Annotate(text infer.Annotator) {
	node := settings.Defaults()
	const plain = " It decides what is declared, so it takes neither a secret nor what is not known at preview."

	text.Describe(&a.ClusterName, "The cluster's name: the `ClusterName` tag of everything that is created and the start of its name. "+
		"3 to 40 lower-case letters, digits and hyphens that start with a letter and do not end with a hyphen, and not `sg-…`. "+
		"One name can be used once per account and Region. Changing it replaces everything, the data volume included.")
	text.Describe(&a.AvailabilityZone, "The availability zone that the cluster lives in, such as `eu-west-1a`; the nodes go into the default VPC's default subnet there. "+
		"Give this or `subnetId`, or both if they agree. There is one zone only, because a Multi-Attach volume can be attached within its own zone only "+
		"(https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html). Changing the zone replaces the data volume.")
	text.Describe(&a.SubnetId, "The subnet that the nodes go into, such as `subnet-0123456789abcdef0`; its zone is the cluster's. Give this or `availabilityZone`, or both if they agree. "+
		"Nodes need a way out to EC2, Auto Scaling, DynamoDB, S3, SSM and to the releases (`releasesUrl`).")

	text.Describe(&a.MinSize, fmt.Sprintf("The fewest nodes of the Auto Scaling Group, from 1 to `maxSize`. "+
		"Default %d, the fewest of which etcd survives the loss of one.", defaultMinSize))
	text.Describe(&a.MaxSize, fmt.Sprintf("The most nodes of the Auto Scaling Group, from `minSize` to %d, the number of instances that can attach one volume "+
		"(https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html). Default %d, the size that etcd recommends.", settings.MaxNodes, defaultMaxSize))
	text.Describe(&a.DesiredCapacity, "The number of nodes, from `minSize` to `maxSize`. Unset by default: the group starts with `minSize` nodes, "+
		"and whoever scales it afterwards (a scaling policy, the console, the CLI) owns the number; no later `pulumi up` undoes it. When set, this program owns it.")

	text.Describe(&a.InstanceType, fmt.Sprintf("The EC2 instance type of the nodes. It must be x86_64, for which EtcFS is released, and of the Nitro system, which Multi-Attach needs. Default `%s`.", defaultInstanceType))
	text.Describe(&a.AmiId, "The machine image of the nodes, such as `ami-0123456789abcdef0`: Amazon Linux 2023 for x86_64 or an image made from it, with the AWS CLI and the SSM agent. "+
		"Unset by default: each instance starts from the newest Amazon Linux 2023 of its launch time, by AWS's public parameter "+amiParameter+".")
	text.Describe(&a.RootVolumeSize, fmt.Sprintf("The size of each node's own root volume (gp3, encrypted), in GiB, from %d to %d. It holds the operating system and the node's etcd data. Default %d.",
		minRootVolumeSize, maxRootVolumeSize, defaultRootVolumeSize))
	text.Describe(&a.KeyName, "The EC2 key pair that is put on the nodes. None by default: nobody needs to log in, and SSM Session Manager works without.")
	text.Describe(&a.SshIngressCidr, "The IPv4 range, such as `203.0.113.7/32`, from which the nodes accept SSH (tcp 22). Unset by default: no rule is created.")
	text.Describe(&a.InstanceProfile, "The name of an existing instance profile for the nodes, in place of the role and profile that are created by default. "+
		"Its role needs the permissions that the created role is granted, which docs/operations.md lists, and the managed policy `AmazonSSMManagedInstanceCore`.")

	text.Describe(&a.VolumeSize, fmt.Sprintf("The size of the shared data volume (io2 Multi-Attach, encrypted), in GiB, from %d to %d, and at least %d per node of `maxSize`, "+
		"the space that a node which writes takes for itself at a time. It can grow later, never shrink. Default %d.",
		minVolumeSize, maxVolumeSize, arenaGiB, defaultVolumeSize))
	text.Describe(&a.VolumeIops, fmt.Sprintf("The provisioned I/O operations per second of the data volume, from %d to %d and at most %d per GiB "+
		"(https://docs.aws.amazon.com/ebs/latest/userguide/provisioned-iops.html). All nodes share them. Default %d, the least and cheapest.",
		minVolumeIOPS, maxVolumeIOPS, maxIOPSPerGiB, defaultVolumeIOPS))

	text.Describe(&a.EtcfsVersion, fmt.Sprintf("The EtcFS release that nodes install, such as `0.36.0`, without a leading v; or `%s`, the default: the newest release when a node installs. "+
		"Name a release in production, so that all nodes run the same one. Releases up to 0.35.0 do not start on Amazon Linux 2023.", settings.LatestVersion))
	text.Describe(&a.EtcdVersion, fmt.Sprintf("The etcd release that nodes install, of the 3.5 series from 3.5.20 on or of the 3.6 series, with its leading v. A cluster goes over to 3.6 as its nodes are replaced, and does not go back. Default `%s`.", node.EtcdVersion))
	text.Describe(&a.LeaseTtl, fmt.Sprintf("How long a node that cannot reach etcd keeps its membership before it is fenced, as a duration in whole seconds such as `15s`; at least 6s, "+
		"as twice the time must exceed 10s. Shorter means a faster failover, longer means more patience with a slow network. Default `%s`.", node.LeaseTTL))
	text.Describe(&a.GithubRepo, fmt.Sprintf("The GitHub repository, `owner/name`, whose releases hold the EtcFS packages. Default `%s`.", node.Repository))
	text.Describe(&a.ReleasesUrl, fmt.Sprintf("The base URL that nodes fetch the releases of EtcFS and etcd from; a mirror keeps the layout of github.com below it, "+
		"`<owner>/<name>/releases/download/<tag>/<file>`. Every file is checked against its release's published checksums. Default `%s`.", node.ReleasesURL))
	text.Describe(&a.OnBootstrapFailure, fmt.Sprintf("What becomes of an instance whose bootstrap failed: `%s`, the default, reports it unhealthy, and the group terminates and replaces it; "+
		"`%s` leaves it running for study.", settings.FailureReplace, settings.FailureKeep))
	text.Describe(&a.Recovery, fmt.Sprintf("What is accepted after all of the cluster's metadata was lost. Unset, the default: a node that finds a formed cluster of which no member answers refuses to form another, since that overwrites the data. "+
		"`%s`: it forms an empty filesystem, and every file on the volume is lost. Remove it again afterwards.", settings.RecoveryReform))

	text.Describe(&a.WaitForReady, fmt.Sprintf("Whether nodes count as in service only once they have mounted. Then `pulumi up` waits until the group's nodes are, for up to %s, "+
		"and a node that cannot mount is terminated and replaced. A launching lifecycle hook makes the group wait, which the node completes. Default `false`: `pulumi up` is done when the group exists."+plain, readyTimeout))
	text.Describe(&a.InstanceRefresh, "Whether running nodes are replaced when the launch template changes: one at a time, each new one mounted before an old one leaves. "+
		"It needs `waitForReady`, and room for one more attachment of the volume. `pulumi up` starts it and does not wait for its end. "+
		"Default `false`: running nodes keep the old template until they are replaced for another reason."+plain)
	text.Describe(&a.RetainVolume, "Whether the data volume stays in the account when the cluster is destroyed, or the volume is replaced. Nothing manages it afterwards, and it is charged until you delete it. Default `false`."+plain)
	text.Describe(&a.FinalSnapshot, "Whether a snapshot of the data volume is made before the volume is deleted. Nothing manages the snapshot, and it is charged until you delete it. "+
		"Run one `pulumi up` after setting it, and before the destroy that it is for. Default `false`."+plain)

	text.Describe(&a.AlarmActions, "The ARNs of what is told when an event of a terminating node could not be acted on, such as an SNS topic. "+
		"The alarm and the queue with the event exist in any case; by default nobody is told.")

	text.Describe(&a.Tags, "Tags for everything that is created, besides `ClusterName`, `Role` and `Name`, which the component sets itself. At most 40; keys have up to 128 characters and do not start with `aws:`, values up to 256. "+
		"They are no place for secrets: AWS shows them widely, and the state has them in plain text.")
}
