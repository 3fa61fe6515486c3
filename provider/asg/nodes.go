package asg

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/autoscaling"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ec2"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// nodes is what makes instances.
type nodes struct {
	template *ec2.LaunchTemplate
	group    *autoscaling.Group
}

// rootDevice is the root device of Amazon Linux 2023.
const rootDevice = "/dev/xvda"

func (b *builder) nodes(at place, s storage, n network, a artifacts, id identity, leave scaleIn) (nodes, error) {
	template, err := ec2.NewLaunchTemplate(b.ctx, b.child("node"), &ec2.LaunchTemplateArgs{
		NamePrefix:          pulumi.Sprintf("%s-", b.in.clusterName),
		Description:         pulumi.String("Nodes of an EtcFS cluster"),
		ImageId:             b.in.image,
		InstanceType:        b.in.instanceType,
		KeyName:             b.in.keyName,
		VpcSecurityGroupIds: pulumi.StringArray{n.group.ID().ToStringOutput()},
		IamInstanceProfile:  ec2.LaunchTemplateIamInstanceProfileArgs{Name: id.profileName},
		UserData:            b.userData(at, s, a),
		MetadataOptions: ec2.LaunchTemplateMetadataOptionsArgs{
			HttpEndpoint: pulumi.String("enabled"),
			HttpTokens:   pulumi.String("required"), // IMDSv2 only
			// The bootstrap is on the instance itself; a container, one hop away,
			// cannot take the node's role.
			HttpPutResponseHopLimit: pulumi.Int(1),
		},
		BlockDeviceMappings: ec2.LaunchTemplateBlockDeviceMappingArray{ec2.LaunchTemplateBlockDeviceMappingArgs{
			DeviceName: pulumi.String(rootDevice),
			Ebs: ec2.LaunchTemplateBlockDeviceMappingEbsArgs{
				VolumeType:          pulumi.String("gp3"),
				VolumeSize:          b.in.rootVolumeSize,
				Encrypted:           pulumi.String("true"),
				DeleteOnTermination: pulumi.String("true"),
			},
		}},
		TagSpecifications: ec2.LaunchTemplateTagSpecificationArray{
			ec2.LaunchTemplateTagSpecificationArgs{ResourceType: pulumi.String("instance"), Tags: b.nodeTags()},
			ec2.LaunchTemplateTagSpecificationArgs{ResourceType: pulumi.String("volume"), Tags: b.nodeTags()},
		},
		Tags: b.tags(),
	}, b.parent())
	if err != nil {
		return nodes{}, fmt.Errorf("declare the launch template: %w", err)
	}

	// What the first instance meets must be there before it.
	before := slices.Concat([]pulumi.Resource{s.volume, s.table, a.object}, n.rules, id.grants, leave.path)
	var hooks autoscaling.GroupInitialLifecycleHookArrayInput
	timeout := "0"
	if b.in.waitForReady {
		hooks = autoscaling.GroupInitialLifecycleHookArray{autoscaling.GroupInitialLifecycleHookArgs{
			Name:                b.in.clusterName.ApplyT(readyHook).(pulumi.StringOutput),
			LifecycleTransition: pulumi.String(transitionLaunching),
			DefaultResult:       pulumi.String("ABANDON"),
			HeartbeatTimeout:    pulumi.Int(int(readyHeartbeat.Seconds())),
		}}
		timeout = readyTimeout.String()
	}
	var refresh autoscaling.GroupInstanceRefreshPtrInput
	if b.in.instanceRefresh {
		refresh = rollOneByOne
	}
	group, err := autoscaling.NewGroup(b.ctx, b.child("nodes"), &autoscaling.GroupArgs{
		Name:    b.groupName(),
		MinSize: b.in.minSize,
		MaxSize: b.in.maxSize,
		// Left out unless the user gave it: AWS then starts with the minimum, and
		// Pulumi does not compare what others set afterwards.
		DesiredCapacity:    b.in.desiredCapacity,
		VpcZoneIdentifiers: pulumi.StringArray{at.subnetID},
		LaunchTemplate: autoscaling.GroupLaunchTemplateArgs{
			Id: template.ID().ToStringOutput(),
			// The number, as "$Latest" never shows in a preview.
			Version: template.LatestVersion.ApplyT(strconv.Itoa).(pulumi.StringOutput),
		},
		HealthCheckType: pulumi.String("EC2"),
		// Without the hook, waiting here would tell that instances run, not that
		// they mounted.
		WaitForCapacityTimeout: pulumi.String(timeout),
		InitialLifecycleHooks:  hooks,
		InstanceRefresh:        refresh,
		Tags:                   b.groupTags(),
	}, b.parent(), pulumi.DependsOn(before),
		// They are for the group's first instances only, and a change would
		// replace it; ready declares the hook once more, for the time after that.
		pulumi.IgnoreChanges([]string{"initialLifecycleHooks"}),
		// The nodes hold the metadata of the volume, and are attached to it.
		pulumi.ReplaceWith([]pulumi.Resource{s.volume}), pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nodes{}, fmt.Errorf("declare the Auto Scaling Group: %w", err)
	}
	return nodes{template, group}, nil
}

// The hook that lets a launch wait until the node has mounted.
const (
	transitionLaunching = "autoscaling:EC2_INSTANCE_LAUNCHING"
	// readyHeartbeat is how long a node may take to mount before its launch is
	// abandoned: several times what a boot takes when all downloads are slow.
	readyHeartbeat = 15 * time.Minute
	// readyTimeout is how long pulumi up waits: for one node that hangs and for
	// its replacement.
	readyTimeout = 20 * time.Minute
)

func readyHook(clusterName string) string { return clusterName + "-ready" }

// rollOneByOne replaces the group's instances after a change of the template.
// At full health at least, and at most one instance more, whatever the group's
// size is, up to a hundred: EC2 Auto Scaling rounds up.
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_RefreshPreferences.html
var rollOneByOne = autoscaling.GroupInstanceRefreshArgs{
	Strategy: pulumi.String("Rolling"),
	Preferences: autoscaling.GroupInstanceRefreshPreferencesArgs{
		MinHealthyPercentage: pulumi.Int(100),
		MaxHealthyPercentage: pulumi.Int(101),
		// An instance in service has mounted; etcd then takes some seconds to
		// make a voter of its learner.
		InstanceWarmup: pulumi.String("30"),
		// What has the new template already stays.
		SkipMatching: pulumi.Bool(true),
	},
}

// withGroup makes a hook anew with its group, whose name stays the same: AWS
// deletes the hooks of a group with it.
func withGroup(n nodes) pulumi.ResourceOption {
	return pulumi.Composite(pulumi.ReplaceWith([]pulumi.Resource{n.group}), pulumi.DeleteBeforeReplace(true))
}

// ready keeps the launching hook in step with the input, below the group: on
// destroy it goes first, so that no launch is waited for.
func (b *builder) ready(n nodes) error {
	if !b.in.waitForReady {
		return nil
	}
	_, err := autoscaling.NewLifecycleHook(b.ctx, b.child("ready"), &autoscaling.LifecycleHookArgs{
		Name:                 b.in.clusterName.ApplyT(readyHook).(pulumi.StringOutput),
		AutoscalingGroupName: n.group.Name,
		LifecycleTransition:  pulumi.String(transitionLaunching),
		DefaultResult:        pulumi.String("ABANDON"),
		HeartbeatTimeout:     pulumi.Int(int(readyHeartbeat.Seconds())),
	}, b.parent(), withGroup(n))
	if err != nil {
		return fmt.Errorf("declare the launching hook: %w", err)
	}
	return nil
}

// userData renders the user data once AWS has told what is in it.
func (b *builder) userData(at place, s storage, a artifacts) pulumi.StringOutput {
	in := b.in
	return pulumi.All(
		in.clusterName, at.region, s.volume.ID(), s.table.Name,
		in.etcfsVersion, in.etcdVersion, in.leaseTTL, in.githubRepo, in.releasesURL, in.onBootstrapFailure, in.recovery,
		a.bucket.Bucket,
	).ApplyT(func(of []any) (string, error) {
		ttl, err := time.ParseDuration(of[6].(string))
		if err != nil {
			return "", fmt.Errorf("read the lease's time to live: %w", err)
		}
		script, err := userData(settings.Settings{
			ClusterName:        of[0].(string),
			Region:             of[1].(string),
			VolumeID:           string(of[2].(pulumi.ID)),
			SeedTable:          of[3].(string),
			Version:            of[4].(string),
			EtcdVersion:        of[5].(string),
			LeaseTTL:           ttl,
			Repository:         of[7].(string),
			ReleasesURL:        of[8].(string),
			OnBootstrapFailure: settings.FailurePolicy(of[9].(string)),
			Recovery:           settings.Recovery(of[10].(string)),
			LaunchHook:         b.launchHook(of[0].(string)),
		}, of[11].(string), a.programs.Bootstrap.SHA256)
		if err != nil {
			return "", err
		}
		// Known values were measured at preview; this is for the others.
		if len(script) > maxUserData {
			return "", fmt.Errorf("render the user data: %d bytes, of which EC2 takes %d: use shorter values for releasesUrl and githubRepo", len(script), maxUserData)
		}
		return base64.StdEncoding.EncodeToString([]byte(script)), nil
	}).(pulumi.StringOutput)
}

// launchHook is what the nodes are told of the hook that they complete.
func (b *builder) launchHook(clusterName string) string {
	if !b.in.waitForReady {
		return ""
	}
	return readyHook(clusterName)
}

// groupTags are the nodes' tags, which the group gives to its instances.
func (b *builder) groupTags() autoscaling.GroupTagArrayOutput {
	return b.nodeTags().ApplyT(func(tags map[string]string) []autoscaling.GroupTag {
		var list []autoscaling.GroupTag
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			list = append(list, autoscaling.GroupTag{Key: key, Value: tags[key], PropagateAtLaunch: true})
		}
		return list
	}).(autoscaling.GroupTagArrayOutput)
}
