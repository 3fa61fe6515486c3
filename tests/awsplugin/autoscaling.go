package awsplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

type group struct {
	ARN                           string                  `pulumi:"arn" aws:"output"`
	AvailabilityZones             []string                `pulumi:"availabilityZones" aws:"computed,set"`
	CapacityRebalance             bool                    `pulumi:"capacityRebalance"`
	DefaultCooldown               int                     `pulumi:"defaultCooldown" aws:"computed"`
	DefaultInstanceWarmup         int                     `pulumi:"defaultInstanceWarmup"`
	DesiredCapacity               int                     `pulumi:"desiredCapacity" aws:"computed"`
	ForceDelete                   bool                    `pulumi:"forceDelete" aws:"default=false"`
	ForceDeleteWarmPool           bool                    `pulumi:"forceDeleteWarmPool" aws:"default=false"`
	HealthCheckGracePeriod        int                     `pulumi:"healthCheckGracePeriod" aws:"default=300"`
	HealthCheckType               string                  `pulumi:"healthCheckType" aws:"computed"`
	IgnoreFailedScalingActivities bool                    `pulumi:"ignoreFailedScalingActivities" aws:"default=false"`
	InitialLifecycleHooks         []groupLifecycleHook    `pulumi:"initialLifecycleHooks" aws:"set,replace"`
	InstanceMaintenancePolicy     *groupMaintenancePolicy `pulumi:"instanceMaintenancePolicy"`
	InstanceRefresh               *groupInstanceRefresh   `pulumi:"instanceRefresh"`
	LaunchTemplate                *groupLaunchTemplate    `pulumi:"launchTemplate"`
	MaxInstanceLifetime           int                     `pulumi:"maxInstanceLifetime"`
	MaxSize                       int                     `pulumi:"maxSize" aws:"required"`
	MetricsGranularity            string                  `pulumi:"metricsGranularity" aws:"default=1Minute"`
	MinSize                       int                     `pulumi:"minSize" aws:"required"`
	Name                          string                  `pulumi:"name" aws:"computed,replace"`
	NamePrefix                    string                  `pulumi:"namePrefix" aws:"computed,replace"`
	ProtectFromScaleIn            bool                    `pulumi:"protectFromScaleIn" aws:"default=false"`
	ServiceLinkedRoleARN          string                  `pulumi:"serviceLinkedRoleArn" aws:"computed"`
	SuspendedProcesses            []string                `pulumi:"suspendedProcesses" aws:"set"`
	Tags                          []groupTag              `pulumi:"tags" aws:"set"`
	TerminationPolicies           []string                `pulumi:"terminationPolicies"`
	VPCZoneIdentifiers            []string                `pulumi:"vpcZoneIdentifiers" aws:"computed,set"`
	WaitForCapacityTimeout        string                  `pulumi:"waitForCapacityTimeout" aws:"default=10m"`
}

type groupLaunchTemplate struct {
	ID      string `pulumi:"id" aws:"computed"`
	Name    string `pulumi:"name" aws:"computed"`
	Version string `pulumi:"version" aws:"default=$Default"`
}

func (t *groupLaunchTemplate) specification() *types.LaunchTemplateSpecification {
	if t == nil {
		return nil
	}
	s := &types.LaunchTemplateSpecification{LaunchTemplateId: optional(t.ID), Version: optional(t.Version)}
	if t.ID == "" { // both at once are refused
		s.LaunchTemplateName = optional(t.Name)
	}
	return s
}

type groupTag struct {
	Key               string `pulumi:"key" aws:"required"`
	PropagateAtLaunch bool   `pulumi:"propagateAtLaunch" aws:"required"`
	Value             string `pulumi:"value" aws:"required"`
}

type groupMaintenancePolicy struct {
	MaxHealthyPercentage int `pulumi:"maxHealthyPercentage" aws:"required"`
	MinHealthyPercentage int `pulumi:"minHealthyPercentage" aws:"required"`
}

type groupInstanceRefresh struct {
	Preferences *groupRefreshPreferences `pulumi:"preferences"`
	Strategy    string                   `pulumi:"strategy" aws:"required"`
	Triggers    []string                 `pulumi:"triggers" aws:"set"`
}

type groupRefreshPreferences struct {
	AutoRollback              bool   `pulumi:"autoRollback" aws:"default=false"`
	InstanceWarmup            string `pulumi:"instanceWarmup"`
	MaxHealthyPercentage      int    `pulumi:"maxHealthyPercentage" aws:"default=100"`
	MinHealthyPercentage      int    `pulumi:"minHealthyPercentage" aws:"default=90"`
	ScaleInProtectedInstances string `pulumi:"scaleInProtectedInstances" aws:"default=Ignore"`
	SkipMatching              bool   `pulumi:"skipMatching" aws:"default=false"`
	StandbyInstances          string `pulumi:"standbyInstances" aws:"default=Ignore"`
}

type groupLifecycleHook struct {
	DefaultResult         string `pulumi:"defaultResult"`
	HeartbeatTimeout      int    `pulumi:"heartbeatTimeout"`
	LifecycleTransition   string `pulumi:"lifecycleTransition" aws:"required"`
	Name                  string `pulumi:"name" aws:"required"`
	NotificationMetadata  string `pulumi:"notificationMetadata"`
	NotificationTargetARN string `pulumi:"notificationTargetArn"`
	RoleARN               string `pulumi:"roleArn"`
}

const (
	groupDeleteTimeout = 10 * time.Minute
	// A group is refused as long as AWS does not know its instance profile
	// everywhere.
	groupPropagation = time.Minute
)

var groupHandler = handler[group]{
	naming: naming{property: "name", max: 255},
	create: createGroup,
	read: func(ctx context.Context, c *cloud, id string, g *group) error {
		found, err := findGroup(ctx, c, id)
		if err != nil {
			return err
		}
		g.ARN = aws.ToString(found.AutoScalingGroupARN)
		g.AvailabilityZones = found.AvailabilityZones
		g.CapacityRebalance = aws.ToBool(found.CapacityRebalance)
		g.DefaultCooldown = int(aws.ToInt32(found.DefaultCooldown))
		g.DefaultInstanceWarmup = int(aws.ToInt32(found.DefaultInstanceWarmup))
		g.DesiredCapacity = int(aws.ToInt32(found.DesiredCapacity))
		g.HealthCheckGracePeriod = int(aws.ToInt32(found.HealthCheckGracePeriod))
		g.HealthCheckType = aws.ToString(found.HealthCheckType)
		g.InstanceMaintenancePolicy = nil
		if p := found.InstanceMaintenancePolicy; p != nil {
			g.InstanceMaintenancePolicy = &groupMaintenancePolicy{
				MaxHealthyPercentage: int(aws.ToInt32(p.MaxHealthyPercentage)), MinHealthyPercentage: int(aws.ToInt32(p.MinHealthyPercentage)),
			}
		}
		g.LaunchTemplate = nil
		if t := found.LaunchTemplate; t != nil {
			g.LaunchTemplate = &groupLaunchTemplate{
				ID: aws.ToString(t.LaunchTemplateId), Name: aws.ToString(t.LaunchTemplateName), Version: aws.ToString(t.Version),
			}
		}
		g.MaxInstanceLifetime = int(aws.ToInt32(found.MaxInstanceLifetime))
		g.MaxSize = int(aws.ToInt32(found.MaxSize))
		g.MinSize = int(aws.ToInt32(found.MinSize))
		g.Name = aws.ToString(found.AutoScalingGroupName)
		g.ProtectFromScaleIn = aws.ToBool(found.NewInstancesProtectedFromScaleIn)
		g.ServiceLinkedRoleARN = aws.ToString(found.ServiceLinkedRoleARN)
		g.SuspendedProcesses = nil
		for _, p := range found.SuspendedProcesses {
			g.SuspendedProcesses = append(g.SuspendedProcesses, aws.ToString(p.ProcessName))
		}
		g.Tags = nil
		for _, t := range found.Tags {
			g.Tags = append(g.Tags, groupTag{Key: aws.ToString(t.Key), Value: aws.ToString(t.Value), PropagateAtLaunch: aws.ToBool(t.PropagateAtLaunch)})
		}
		g.TerminationPolicies = nil
		if !slices.Equal(found.TerminationPolicies, []string{"Default"}) {
			g.TerminationPolicies = found.TerminationPolicies
		}
		g.VPCZoneIdentifiers = nil
		if zones := aws.ToString(found.VPCZoneIdentifier); zones != "" {
			g.VPCZoneIdentifiers = strings.Split(zones, ",")
		}
		return nil
	},
	update: updateGroup,
	delete: deleteGroup,
}

func findGroup(ctx context.Context, c *cloud, name string) (types.AutoScalingGroup, error) {
	described, err := c.autoscaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
	if err != nil {
		return types.AutoScalingGroup{}, err
	}
	if len(described.AutoScalingGroups) == 0 {
		return types.AutoScalingGroup{}, errNotFound
	}
	return described.AutoScalingGroups[0], nil
}

// createGroup makes the group and waits for its instances. Initial hooks must
// see the first launches, so the group is then made empty and filled after.
func createGroup(ctx context.Context, c *cloud, g *group) (string, error) {
	timeout, err := g.capacityTimeout()
	if err != nil {
		return "", err
	}
	desired := pointer(optional(g.DesiredCapacity))
	input := &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName:             aws.String(g.Name),
		AvailabilityZones:                g.AvailabilityZones,
		CapacityRebalance:                optional(g.CapacityRebalance),
		DefaultCooldown:                  pointer(optional(g.DefaultCooldown)),
		DefaultInstanceWarmup:            pointer(optional(g.DefaultInstanceWarmup)),
		DesiredCapacity:                  desired,
		HealthCheckGracePeriod:           aws.Int32(int32(g.HealthCheckGracePeriod)),
		HealthCheckType:                  optional(g.HealthCheckType),
		InstanceMaintenancePolicy:        g.maintenancePolicy(),
		LaunchTemplate:                   g.LaunchTemplate.specification(),
		MaxInstanceLifetime:              pointer(optional(g.MaxInstanceLifetime)),
		MaxSize:                          aws.Int32(int32(g.MaxSize)),
		MinSize:                          aws.Int32(int32(g.MinSize)),
		NewInstancesProtectedFromScaleIn: aws.Bool(g.ProtectFromScaleIn),
		ServiceLinkedRoleARN:             optional(g.ServiceLinkedRoleARN),
		Tags:                             g.tags(g.Tags),
		TerminationPolicies:              g.TerminationPolicies,
		VPCZoneIdentifier:                optional(strings.Join(g.VPCZoneIdentifiers, ",")),
	}
	hooks := len(g.InitialLifecycleHooks) > 0
	if hooks {
		input.DesiredCapacity, input.MinSize, input.MaxSize = nil, aws.Int32(0), aws.Int32(0)
	}
	start := time.Now()
	err = retryMessage(ctx, groupPropagation, func(ctx context.Context) error {
		_, err := c.autoscaling.CreateAutoScalingGroup(ctx, input)
		return err
	}, "ValidationError", "Invalid IAM Instance Profile", "You must use a valid fully-formed launch template")
	if err != nil {
		return "", fmt.Errorf("creating Auto Scaling Group (%s): %w", g.Name, err)
	}
	if hooks {
		for _, h := range g.InitialLifecycleHooks {
			if err := putHook(ctx, c, g.Name, h); err != nil {
				return g.Name, fmt.Errorf("creating Auto Scaling Group (%s): %w", g.Name, err)
			}
		}
		_, err := c.autoscaling.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(g.Name), DesiredCapacity: desired,
			MinSize: aws.Int32(int32(g.MinSize)), MaxSize: aws.Int32(int32(g.MaxSize)),
		})
		if err != nil {
			return g.Name, fmt.Errorf("setting Auto Scaling Group (%s) initial capacity: %w", g.Name, err)
		}
	}
	want := max(g.MinSize, g.DesiredCapacity)
	if err := waitCapacity(ctx, c, g, timeout, start, func(have int) bool { return have >= want }, want); err != nil {
		return g.Name, fmt.Errorf("waiting for Auto Scaling Group (%s) capacity satisfied: %w", g.Name, err)
	}
	return g.Name, updateSuspended(ctx, c, g.Name, nil, g.SuspendedProcesses)
}

func (g *group) capacityTimeout() (time.Duration, error) {
	timeout, err := time.ParseDuration(g.WaitForCapacityTimeout)
	if err != nil {
		return 0, fmt.Errorf("parse waitForCapacityTimeout: %w", err)
	}
	return timeout, nil
}

func (g *group) maintenancePolicy() *types.InstanceMaintenancePolicy {
	if g.InstanceMaintenancePolicy == nil {
		return nil
	}
	return &types.InstanceMaintenancePolicy{
		MaxHealthyPercentage: aws.Int32(int32(g.InstanceMaintenancePolicy.MaxHealthyPercentage)),
		MinHealthyPercentage: aws.Int32(int32(g.InstanceMaintenancePolicy.MinHealthyPercentage)),
	}
}

func (g *group) tags(list []groupTag) []types.Tag {
	var tags []types.Tag
	for _, t := range list {
		tags = append(tags, types.Tag{
			Key: aws.String(t.Key), Value: aws.String(t.Value), PropagateAtLaunch: aws.Bool(t.PropagateAtLaunch),
			ResourceId: aws.String(g.Name), ResourceType: aws.String("auto-scaling-group"),
		})
	}
	return tags
}

// waitCapacity waits until enough instances are healthy and in service. A
// scaling activity that failed since the start ends the wait.
func waitCapacity(ctx context.Context, c *cloud, g *group, timeout time.Duration, start time.Time, enough func(have int) bool, want int) error {
	if timeout == 0 {
		return nil
	}
	what := fmt.Sprintf("%d healthy instance(s) in Auto Scaling Group", want)
	return poll(ctx, timeout, what, func(ctx context.Context) (bool, string, error) {
		found, err := findGroup(ctx, c, g.Name)
		if err != nil {
			return false, "", err
		}
		have := 0
		for _, instance := range found.Instances {
			if strings.EqualFold(aws.ToString(instance.HealthStatus), "Healthy") && instance.LifecycleState == types.LifecycleStateInService {
				have++
			}
		}
		if enough(have) {
			return true, "", nil
		}
		if !g.IgnoreFailedScalingActivities {
			if err := failedActivity(ctx, c, g.Name, start); err != nil {
				return false, "", err
			}
		}
		return false, fmt.Sprintf("have %d, want %d", have, want), nil
	})
}

func failedActivity(ctx context.Context, c *cloud, name string, since time.Time) error {
	described, err := c.autoscaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String(name)})
	if err != nil {
		return err
	}
	var failures []error
	for _, activity := range described.Activities {
		if activity.StatusCode == types.ScalingActivityStatusCodeFailed && !aws.ToTime(activity.StartTime).Before(since.Truncate(time.Second)) {
			failures = append(failures, fmt.Errorf("scaling activity (%s): %s: %s",
				aws.ToString(activity.ActivityId), activity.StatusCode, aws.ToString(activity.StatusMessage)))
		}
	}
	return errors.Join(failures...)
}

// updateGroup sends what changed and nothing else: the capacity above all may
// have been changed by somebody who is not the program.
func updateGroup(ctx context.Context, c *cloud, id string, old, g *group, changed set) error {
	timeout, err := g.capacityTimeout()
	if err != nil {
		return err
	}
	start := time.Now()
	input := &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName:             aws.String(id),
		NewInstancesProtectedFromScaleIn: aws.Bool(g.ProtectFromScaleIn),
	}
	if changed["availabilityZones"] {
		input.AvailabilityZones = g.AvailabilityZones
	}
	if changed["capacityRebalance"] {
		input.CapacityRebalance = aws.Bool(g.CapacityRebalance)
	}
	if changed["defaultCooldown"] {
		input.DefaultCooldown = aws.Int32(int32(g.DefaultCooldown))
	}
	if changed["defaultInstanceWarmup"] {
		input.DefaultInstanceWarmup = aws.Int32(int32(g.DefaultInstanceWarmup))
	}
	if changed["desiredCapacity"] {
		input.DesiredCapacity = aws.Int32(int32(g.DesiredCapacity))
	}
	if changed["healthCheckGracePeriod"] {
		input.HealthCheckGracePeriod = aws.Int32(int32(g.HealthCheckGracePeriod))
	}
	if changed["healthCheckType"] {
		input.HealthCheckGracePeriod = aws.Int32(int32(g.HealthCheckGracePeriod))
		input.HealthCheckType = aws.String(g.HealthCheckType)
	}
	if changed["instanceMaintenancePolicy"] {
		input.InstanceMaintenancePolicy = g.maintenancePolicy()
		if input.InstanceMaintenancePolicy == nil { // -1 takes the policy away
			input.InstanceMaintenancePolicy = &types.InstanceMaintenancePolicy{MinHealthyPercentage: aws.Int32(-1), MaxHealthyPercentage: aws.Int32(-1)}
		}
	}
	if changed["launchTemplate"] {
		input.LaunchTemplate = g.LaunchTemplate.specification()
	}
	if changed["maxInstanceLifetime"] {
		input.MaxInstanceLifetime = aws.Int32(int32(g.MaxInstanceLifetime))
	}
	if changed["maxSize"] {
		input.MaxSize = aws.Int32(int32(g.MaxSize))
	}
	if changed["minSize"] {
		input.MinSize = aws.Int32(int32(g.MinSize))
	}
	if changed["serviceLinkedRoleArn"] {
		input.ServiceLinkedRoleARN = optional(g.ServiceLinkedRoleARN)
	}
	if changed["terminationPolicies"] {
		input.TerminationPolicies = g.TerminationPolicies
		if len(g.TerminationPolicies) == 0 {
			input.TerminationPolicies = []string{"Default"}
		}
	}
	if changed["vpcZoneIdentifiers"] {
		input.VPCZoneIdentifier = aws.String(strings.Join(g.VPCZoneIdentifiers, ","))
	}
	if _, err := c.autoscaling.UpdateAutoScalingGroup(ctx, input); err != nil {
		return fmt.Errorf("updating Auto Scaling Group (%s): %w", id, err)
	}
	if changed["tags"] {
		if err := updateGroupTags(ctx, c, old, g); err != nil {
			return err
		}
	}
	if changed["suspendedProcesses"] {
		if err := updateSuspended(ctx, c, id, old.SuspendedProcesses, g.SuspendedProcesses); err != nil {
			return err
		}
	}
	if r := g.InstanceRefresh; r != nil && (changed["launchTemplate"] || slices.ContainsFunc(r.Triggers, func(t string) bool { return changed[camelCase(t)] })) {
		if err := startRefresh(ctx, c, id, r); err != nil {
			return err
		}
	}
	if !changed.any("desiredCapacity", "minSize", "maxSize") {
		return nil
	}
	want := max(g.MinSize, g.DesiredCapacity)
	if err := waitCapacity(ctx, c, g, timeout, start, func(have int) bool { return have == want }, want); err != nil {
		return fmt.Errorf("waiting for Auto Scaling Group (%s) capacity satisfied: %w", id, err)
	}
	return nil
}

// camelCase turns a name of the Terraform provider, which triggers are given
// in, into the property's.
func camelCase(name string) string {
	first, rest, _ := strings.Cut(name, "_")
	for word := range strings.SplitSeq(rest, "_") {
		if word != "" {
			first += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	if first == "tag" {
		return "tags"
	}
	return first
}

func updateGroupTags(ctx context.Context, c *cloud, old, g *group) error {
	var remove []types.Tag
	for _, tag := range old.tags(old.Tags) {
		if !slices.ContainsFunc(g.Tags, func(t groupTag) bool { return t.Key == aws.ToString(tag.Key) }) {
			remove = append(remove, tag)
		}
	}
	if len(remove) > 0 {
		if _, err := c.autoscaling.DeleteTags(ctx, &autoscaling.DeleteTagsInput{Tags: remove}); err != nil {
			return fmt.Errorf("untagging Auto Scaling Group (%s): %w", g.Name, err)
		}
	}
	if len(g.Tags) > 0 {
		if _, err := c.autoscaling.CreateOrUpdateTags(ctx, &autoscaling.CreateOrUpdateTagsInput{Tags: g.tags(g.Tags)}); err != nil {
			return fmt.Errorf("tagging Auto Scaling Group (%s): %w", g.Name, err)
		}
	}
	return nil
}

func updateSuspended(ctx context.Context, c *cloud, name string, old, processes []string) error {
	suspend, resume := stringChanges(old, processes)
	if len(resume) > 0 {
		_, err := c.autoscaling.ResumeProcesses(ctx, &autoscaling.ResumeProcessesInput{AutoScalingGroupName: aws.String(name), ScalingProcesses: resume})
		if err != nil {
			return fmt.Errorf("resuming Auto Scaling Group (%s) scaling processes: %w", name, err)
		}
	}
	if len(suspend) > 0 {
		_, err := c.autoscaling.SuspendProcesses(ctx, &autoscaling.SuspendProcessesInput{AutoScalingGroupName: aws.String(name), ScalingProcesses: suspend})
		if err != nil {
			return fmt.Errorf("suspending Auto Scaling Group (%s) scaling processes: %w", name, err)
		}
	}
	return nil
}

// startRefresh starts an instance refresh, in place of one that is under way,
// and does not wait for it.
func startRefresh(ctx context.Context, c *cloud, name string, r *groupInstanceRefresh) error {
	input := &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String(name), Strategy: types.RefreshStrategy(r.Strategy)}
	if p := r.Preferences; p != nil {
		input.Preferences = &types.RefreshPreferences{
			AutoRollback:              aws.Bool(p.AutoRollback),
			MaxHealthyPercentage:      aws.Int32(int32(p.MaxHealthyPercentage)),
			MinHealthyPercentage:      aws.Int32(int32(p.MinHealthyPercentage)),
			ScaleInProtectedInstances: types.ScaleInProtectedInstances(p.ScaleInProtectedInstances),
			SkipMatching:              aws.Bool(p.SkipMatching),
			StandbyInstances:          types.StandbyInstances(p.StandbyInstances),
		}
		if p.InstanceWarmup != "" {
			seconds, err := strconv.Atoi(p.InstanceWarmup)
			if err != nil {
				return fmt.Errorf("parse instanceWarmup: %w", err)
			}
			input.Preferences.InstanceWarmup = aws.Int32(int32(seconds))
		}
	}
	_, err := c.autoscaling.StartInstanceRefresh(ctx, input)
	if hasCode(err, "InstanceRefreshInProgress") {
		_, err = c.autoscaling.CancelInstanceRefresh(ctx, &autoscaling.CancelInstanceRefreshInput{AutoScalingGroupName: aws.String(name)})
		if err = ifPresent(err, "ActiveInstanceRefreshNotFound"); err != nil {
			return fmt.Errorf("cancelling Auto Scaling Group (%s) instance refresh: %w", name, err)
		}
		err = retry(ctx, groupDeleteTimeout, func(ctx context.Context) error {
			_, err := c.autoscaling.StartInstanceRefresh(ctx, input)
			return err
		}, "InstanceRefreshInProgress")
	}
	if err != nil {
		return fmt.Errorf("starting Auto Scaling Group (%s) instance refresh: %w", name, err)
	}
	return nil
}

// deleteGroup scales the group to zero and waits for its instances to leave,
// through their lifecycle hooks; forceDelete spares both.
func deleteGroup(ctx context.Context, c *cloud, id string, g *group) error {
	if _, err := findGroup(ctx, c, id); errors.Is(err, errNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading Auto Scaling Group (%s): %w", id, err)
	}
	if !g.ForceDelete {
		_, err := c.autoscaling.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(id), DesiredCapacity: aws.Int32(0), MinSize: aws.Int32(0), MaxSize: aws.Int32(0),
		})
		if err != nil {
			return fmt.Errorf("setting Auto Scaling Group (%s) capacity to 0: %w", id, err)
		}
		err = poll(ctx, groupDeleteTimeout, "the group to have no instances", func(ctx context.Context) (bool, string, error) {
			found, err := findGroup(ctx, c, id)
			if errors.Is(err, errNotFound) {
				return true, "", nil
			}
			return len(found.Instances) == 0, fmt.Sprintf("%d instance(s)", len(found.Instances)), err
		})
		if err != nil {
			return fmt.Errorf("waiting for Auto Scaling Group (%s) drain: %w", id, err)
		}
	}
	err := retry(ctx, groupDeleteTimeout, func(ctx context.Context) error {
		_, err := c.autoscaling.DeleteAutoScalingGroup(ctx, &autoscaling.DeleteAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(id), ForceDelete: aws.Bool(g.ForceDelete),
		})
		return err
	}, "ResourceInUse", "ScalingActivityInProgress")
	if err != nil && !strings.Contains(err.Error(), "not found") {
		return fmt.Errorf("deleting Auto Scaling Group (%s): %w", id, err)
	}
	err = waitGone(ctx, groupDeleteTimeout, func(ctx context.Context) error {
		_, err := findGroup(ctx, c, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for Auto Scaling Group (%s) delete: %w", id, err)
	}
	return nil
}

type lifecycleHook struct {
	AutoscalingGroupName  string `pulumi:"autoscalingGroupName" aws:"required,replace"`
	DefaultResult         string `pulumi:"defaultResult" aws:"computed"`
	HeartbeatTimeout      int    `pulumi:"heartbeatTimeout"`
	LifecycleTransition   string `pulumi:"lifecycleTransition" aws:"required"`
	Name                  string `pulumi:"name" aws:"computed,replace"`
	NotificationMetadata  string `pulumi:"notificationMetadata"`
	NotificationTargetARN string `pulumi:"notificationTargetArn"`
	RoleARN               string `pulumi:"roleArn"`
}

var lifecycleHookHandler = handler[lifecycleHook]{
	naming: naming{property: "name", max: 255},
	create: func(ctx context.Context, c *cloud, h *lifecycleHook) (string, error) {
		if err := putHook(ctx, c, h.AutoscalingGroupName, h.hook()); err != nil {
			return "", err
		}
		return h.Name, nil
	},
	read: func(ctx context.Context, c *cloud, id string, h *lifecycleHook) error {
		described, err := c.autoscaling.DescribeLifecycleHooks(ctx, &autoscaling.DescribeLifecycleHooksInput{
			AutoScalingGroupName: aws.String(h.AutoscalingGroupName), LifecycleHookNames: []string{id},
		})
		if hasCode(err, "ValidationError") && strings.Contains(err.Error(), "not found") {
			return errNotFound
		}
		if err != nil {
			return err
		}
		if len(described.LifecycleHooks) == 0 {
			return errNotFound
		}
		found := described.LifecycleHooks[0]
		h.DefaultResult = aws.ToString(found.DefaultResult)
		h.HeartbeatTimeout = int(aws.ToInt32(found.HeartbeatTimeout))
		h.LifecycleTransition = aws.ToString(found.LifecycleTransition)
		h.Name = aws.ToString(found.LifecycleHookName)
		h.NotificationMetadata = aws.ToString(found.NotificationMetadata)
		h.NotificationTargetARN = aws.ToString(found.NotificationTargetARN)
		h.RoleARN = aws.ToString(found.RoleARN)
		return nil
	},
	update: func(ctx context.Context, c *cloud, _ string, _, h *lifecycleHook, _ set) error {
		return putHook(ctx, c, h.AutoscalingGroupName, h.hook())
	},
	delete: func(ctx context.Context, c *cloud, id string, h *lifecycleHook) error {
		_, err := c.autoscaling.DeleteLifecycleHook(ctx, &autoscaling.DeleteLifecycleHookInput{
			AutoScalingGroupName: aws.String(h.AutoscalingGroupName), LifecycleHookName: aws.String(id),
		})
		if hasCode(err, "ValidationError") && (strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "No Lifecycle Hook found")) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("deleting Auto Scaling Lifecycle Hook (%s): %w", id, err)
		}
		return nil
	},
}

func (h *lifecycleHook) hook() groupLifecycleHook {
	return groupLifecycleHook{
		DefaultResult: h.DefaultResult, HeartbeatTimeout: h.HeartbeatTimeout, LifecycleTransition: h.LifecycleTransition, Name: h.Name,
		NotificationMetadata: h.NotificationMetadata, NotificationTargetARN: h.NotificationTargetARN, RoleARN: h.RoleARN,
	}
}

func putHook(ctx context.Context, c *cloud, group string, h groupLifecycleHook) error {
	err := retryMessage(ctx, 5*time.Minute, func(ctx context.Context) error {
		_, err := c.autoscaling.PutLifecycleHook(ctx, &autoscaling.PutLifecycleHookInput{
			AutoScalingGroupName:  aws.String(group),
			DefaultResult:         optional(h.DefaultResult),
			HeartbeatTimeout:      pointer(optional(h.HeartbeatTimeout)),
			LifecycleHookName:     aws.String(h.Name),
			LifecycleTransition:   aws.String(h.LifecycleTransition),
			NotificationMetadata:  optional(h.NotificationMetadata),
			NotificationTargetARN: optional(h.NotificationTargetARN),
			RoleARN:               optional(h.RoleARN),
		})
		return err
	}, "ValidationError", "Unable to publish test message to notification target")
	if err != nil {
		return fmt.Errorf("putting Auto Scaling Lifecycle Hook (%s): %w", h.Name, err)
	}
	return nil
}
