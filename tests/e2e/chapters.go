package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/cenkalti/backoff/v5"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

// releases are the kinds of EtcFS: one whose etcfuse-meta reads a
// configuration file and finds the volume by its ID, and one that takes flags
// only and a device.
var releases = []etcfs.Release{
	{Version: "0.36.0", Config: true, VolumeID: true},
	{Version: "0.35.1"},
}

// settleLimit is how long the cluster may take to settle: several times what
// it needs on two slow cores.
const settleLimit = 5 * time.Minute

// deploy has Pulumi make a cluster, and waits until its nodes have mounted.
func (s *story) deploy(ctx context.Context, name string, nodes int, release etcfs.Release) error {
	for key, value := range map[string]string{"clusterName": name, "nodes": fmt.Sprint(nodes), "etcfsVersion": release.Version} {
		if err := s.stack.Set(ctx, key, value); err != nil {
			return err
		}
	}
	if err := s.stack.Up(ctx); err != nil {
		return err
	}
	s.say("pulumi up has ended")
	outputs, err := s.stack.Outputs(ctx)
	if err != nil {
		return err
	}
	s.cluster = scenario.Open(s.region.AWSConfig(), scenario.Names{
		Cluster:  fmt.Sprint(outputs["clusterName"]),
		Group:    fmt.Sprint(outputs["autoScalingGroupName"]),
		LogGroup: "/aws/lambda/" + fmt.Sprint(outputs["gracefulLeaveFunctionName"]),
	})
	s.view, s.chronicle = scenario.View{}, scenario.Chronicle{}
	return s.settle(ctx, scenario.Settled(nodes))
}

func (s *story) up(ctx context.Context) error { return s.deploy(ctx, "e2e", 3, releases[0]) }

// settle waits until the cluster is as expected, and tells how long the nodes
// that are new took.
func (s *story) settle(ctx context.Context, expectation scenario.Expectation) error {
	before := s.view
	view, err := s.cluster.Await(ctx, settleLimit, expectation, s)
	if err != nil {
		return err
	}
	for _, n := range view.Nodes {
		if !has(before, n.InstanceID) {
			if err := s.tellBoot(n); err != nil {
				return err
			}
		}
	}
	s.view = view
	return nil
}

func has(v scenario.View, instanceID string) bool {
	return slices.ContainsFunc(v.Nodes, func(n scenario.Node) bool { return n.InstanceID == instanceID })
}

// Look tells what has changed since the last look.
func (s *story) Look(_ scenario.Expectation, v scenario.View, _ string, _ time.Duration) {
	for _, change := range s.chronicle.Tell(v) {
		s.say("%s", change)
	}
}

// scriptLimit is how long a script may take on a node, where a mount may not
// answer.
const scriptLimit = 30 * time.Second

// execute runs a script on a node, which must succeed.
func (s *story) execute(ctx context.Context, instanceID, script string) (string, error) {
	machine := s.machines.Machine(instanceID)
	if machine == nil {
		return "", fmt.Errorf("%s has no machine", instanceID)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, scriptLimit, fmt.Errorf("%q does not end within %s", script, scriptLimit))
	defer cancel()
	result, err := machine.Execute(ctx, script)
	if err != nil {
		return "", err
	}
	if result.ExitCode != 0 {
		return "", fmt.Errorf("%q on %s exits with %d: %s", script, instanceID, result.ExitCode, strings.TrimSpace(result.Stdout+result.Stderr))
	}
	return result.Stdout, nil
}

// writeFile writes a file on one node, and checks that the given others read
// the same.
func (s *story) writeFile(ctx context.Context, name, writer string, readers ...string) error {
	path := filepath.Join(settings.MountPoint, name)
	sum, err := s.execute(ctx, writer, "head -c 100000 /dev/urandom > /tmp/data && cp /tmp/data "+path+" && sha256sum < /tmp/data")
	if err != nil {
		return err
	}
	for _, reader := range readers {
		got, err := s.execute(ctx, reader, "sha256sum < "+path)
		if err != nil {
			return err
		}
		if got != sum {
			return fmt.Errorf("%s reads %s as %q, and %s wrote %q", reader, name, got, writer, sum)
		}
	}
	s.say("%s: written on %s, read on %s", name, writer, strings.Join(readers, ", "))
	return nil
}

func ids(v scenario.View) []string {
	var list []string
	for _, n := range v.Nodes {
		list = append(list, n.InstanceID)
	}
	return list
}

// share writes a file on each node and reads it on all.
func (s *story) share(ctx context.Context) error {
	all := ids(s.view)
	for i, writer := range all {
		if err := s.writeFile(ctx, fmt.Sprintf("file-%d", i+1), writer, all...); err != nil {
			return err
		}
	}
	return nil
}

func scale(nodes int) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error {
		if err := s.cluster.Scale(ctx, nodes); err != nil {
			return err
		}
		if err := s.settle(ctx, scenario.Settled(nodes)); err != nil {
			return err
		}
		all := ids(s.view)
		return s.writeFile(ctx, fmt.Sprintf("with-%d-nodes", nodes), all[len(all)-1], all...)
	}
}

// scaleIn scales in, and checks that the members went by way of the
// graceful-leave function.
func (s *story) scaleIn(ctx context.Context) error {
	leaving := len(s.view.Nodes) - 3
	if err := scale(3)(s, ctx); err != nil {
		return err
	}
	leaves, err := s.cluster.Leaves(ctx)
	if err != nil {
		return err
	}
	removed := 0
	for _, l := range leaves {
		s.say("graceful leave of %s: %s through %s after %d ms", l.Instance, l.Outcome, l.Survivor, l.DurationMS)
		if l.Outcome == "removed" {
			removed++
		}
	}
	if removed != leaving {
		return fmt.Errorf("the graceful-leave function removed %d members, not %d", removed, leaving)
	}
	return nil
}

// loseNode kills the leader.
func (s *story) loseNode(ctx context.Context) error {
	leader, err := s.view.Leader()
	if err != nil {
		return err
	}
	s.say("power off %s, the leader", leader.InstanceID)
	if err := s.region.Kill(leader.InstanceID); err != nil {
		return err
	}
	if err := s.settle(ctx, scenario.Settled(3).Without(leader.InstanceID)); err != nil {
		return err
	}
	all := ids(s.view)
	return s.writeFile(ctx, "after-power-off", all[0], all...)
}

// cutOff cuts the leader off from the others and from AWS, until it has fenced
// itself and the others have taken the volume from it.
func (s *story) cutOff(ctx context.Context) error {
	leader, err := s.view.Leader()
	if err != nil {
		return err
	}
	machine := s.machines.Machine(leader.InstanceID)
	others := slices.DeleteFunc(ids(s.view), func(id string) bool { return id == leader.InstanceID })
	s.say("cut off %s, the leader", leader.InstanceID)
	if err := machine.Cut(ctx); err != nil {
		return err
	}
	if err := eventually(ctx, "the others go on without it", time.Minute, func(ctx context.Context) error {
		return s.writeFile(ctx, "during-cut", others[0], others...)
	}); err != nil {
		return err
	}
	if err := eventually(ctx, "the node that is cut off unmounts", 2*time.Minute, func(ctx context.Context) error {
		_, err := s.execute(ctx, leader.InstanceID, "! mountpoint "+settings.MountPoint)
		return err
	}); err != nil {
		return err
	}
	s.say("%s has unmounted", leader.InstanceID)
	if err := s.tellFencing(ctx, leader.InstanceID); err != nil {
		return err
	}
	if err := machine.Heal(ctx); err != nil {
		return err
	}
	s.say("healed")
	if err := s.settle(ctx, scenario.Settled(3)); err != nil {
		return err
	}
	return s.writeFile(ctx, "after-cut", leader.InstanceID, ids(s.view)...)
}

// tellFencing checks that a node has fenced itself, and that the others have
// taken the volume from it.
func (s *story) tellFencing(ctx context.Context, instanceID string) error {
	const sign = "SELF-FENCED"
	journal, err := s.execute(ctx, instanceID, "journalctl --no-pager --output=cat --unit=etcfuse-meta.service")
	if err != nil {
		return err
	}
	line := lineWith(journal, sign)
	if line == "" {
		return fmt.Errorf("the journal of etcfuse-meta on %s does not say %s", instanceID, sign)
	}
	s.say("its journal: %s", line)
	volumes, err := ec2.NewFromConfig(s.region.AWSConfig()).DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
		Filters: []types.Filter{{Name: aws.String("attachment.instance-id"), Values: []string{instanceID}}},
	})
	if err != nil {
		return err
	}
	if len(volumes.Volumes) > 0 {
		return fmt.Errorf("%s still has the volume %s", instanceID, aws.ToString(volumes.Volumes[0].VolumeId))
	}
	s.say("the others have detached the volume from it")
	return nil
}

// killDaemon kills etcfuse on a node, which leaves a mount behind that does not
// answer, and waits until the node has mounted again.
func (s *story) killDaemon(ctx context.Context) error {
	node := s.view.Nodes[0].InstanceID
	if _, err := s.execute(ctx, node, "systemctl kill --signal=KILL etcfuse.service"); err != nil {
		return err
	}
	if err := eventually(ctx, "the node mounts again", time.Minute, func(ctx context.Context) error {
		_, err := s.execute(ctx, node, "mountpoint "+settings.MountPoint)
		return err
	}); err != nil {
		return err
	}
	return s.writeFile(ctx, "after-kill", node, ids(s.view)...)
}

// reboot reboots a node, which comes back as the member that it was.
func (s *story) reboot(ctx context.Context) error {
	before := s.view.Nodes[0]
	start := time.Now()
	if err := s.machines.Machine(before.InstanceID).Reboot(ctx); err != nil {
		return err
	}
	s.say("%s boots again", before.InstanceID)
	if err := s.settle(ctx, scenario.Settled(3)); err != nil {
		return err
	}
	s.say("%s has mounted %.1f s after the order to reboot", before.InstanceID, time.Since(start).Seconds())
	i := slices.IndexFunc(s.view.Nodes, func(n scenario.Node) bool { return n.InstanceID == before.InstanceID })
	if i < 0 || s.view.Nodes[i].Member.ID != before.Member.ID {
		return fmt.Errorf("%s is not the member %x any more that it was", before.InstanceID, before.Member.ID)
	}
	all := ids(s.view)
	return s.writeFile(ctx, "after-reboot", before.InstanceID, all...)
}

// neverMounts replaces the command of etcfuse by one that does nothing. It
// comes after the bootstrap's own drop-in.
const (
	neverMountsFile = "etc/systemd/system/etcfuse.service.d/90-never.conf"
	neverMounts     = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo never mounting; exec sleep infinity'\n"
)

// neverMount scales out with a node whose etcfuse runs and does not mount: it
// reports itself unhealthy and is replaced.
func (s *story) neverMount(ctx context.Context) error {
	broken := make(chan string, 1)
	s.machines.PrepareNext(func(instanceID, root string) error {
		broken <- instanceID
		path := filepath.Join(root, neverMountsFile)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(neverMounts), 0o644)
	})
	if err := s.cluster.Scale(ctx, 4); err != nil {
		return err
	}
	var victim string
	select {
	case victim = <-broken:
	case <-ctx.Done():
		return fmt.Errorf("wait for the group to launch a node: %w", context.Cause(ctx))
	}
	s.say("%s will never mount", victim)
	machine := s.machines.Machine(victim)
	if err := s.settle(ctx, scenario.Settled(4).Without(victim)); err != nil {
		return err
	}
	console := machine.Console()
	for _, want := range []string{"never mounting", "reported this instance unhealthy, its group will replace it"} {
		line := lineWith(console, want)
		if line == "" {
			return fmt.Errorf("the console of %s does not say %q", victim, want)
		}
		s.say("its console: %s", line)
	}
	return nil
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func (s *story) destroy(ctx context.Context) error {
	if err := s.stack.Destroy(ctx); err != nil {
		return err
	}
	left, err := s.cluster.Instances(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("instances are left: %v", left)
	}
	return nil
}

// olderRelease makes a cluster of the other kind of release, and destroys it.
func (s *story) olderRelease(ctx context.Context) error {
	if err := s.deploy(ctx, "e2e-older", 2, releases[1]); err != nil {
		return err
	}
	all := ids(s.view)
	if err := s.writeFile(ctx, "older", all[0], all...); err != nil {
		return err
	}
	command, err := s.execute(ctx, all[0], "test ! -e "+settings.MetaConfigFile+" && systemctl show --property=ExecStart etcfuse-meta.service")
	if err != nil {
		return err
	}
	if want := "--block-device=/dev/disk/by-id/nvme-"; !strings.Contains(command, want) {
		return fmt.Errorf("etcfuse-meta is started without %s: %s", want, command)
	}
	s.say("etcfuse-meta takes everything as flags")
	return s.destroy(ctx)
}

// eventually repeats a check until it succeeds. After the limit the error says
// what was waited for, and what the last check said.
func eventually(ctx context.Context, what string, limit time.Duration, check func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	_, err := backoff.Retry(within, func() (struct{}, error) {
		err := check(within)
		if within.Err() == nil || last == nil {
			last = err // one that was cut off by the limit has seen nothing
		}
		return struct{}{}, err
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, MaxInterval: time.Second, Multiplier: 1.5, RandomizationFactor: 0.2,
	}), backoff.WithMaxElapsedTime(0))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("wait until %s: not within %s: %w", what, limit, last)
}
