package asg

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// inputs is ClusterArgs with the defaults filled in, for resources to use: the
// outputs keep what they depend on and whether they are secret. The fields of
// which the absence means something are nil when they are not given.
type inputs struct {
	clusterName pulumi.StringOutput

	minSize         pulumi.IntOutput
	maxSize         pulumi.IntOutput
	desiredCapacity pulumi.IntPtrInput // or nil

	instanceType    pulumi.StringOutput
	image           pulumi.StringOutput
	rootVolumeSize  pulumi.IntOutput
	keyName         pulumi.StringPtrInput // or nil
	sshIngressCIDR  pulumi.StringPtrInput // or nil
	instanceProfile pulumi.StringPtrInput // or nil

	volumeSize pulumi.IntOutput
	volumeIOPS pulumi.IntOutput

	etcfsVersion       pulumi.StringOutput
	etcdVersion        pulumi.StringOutput
	leaseTTL           pulumi.StringOutput
	githubRepo         pulumi.StringOutput
	releasesURL        pulumi.StringOutput
	onBootstrapFailure pulumi.StringOutput
	recovery           pulumi.StringOutput

	waitForReady    bool
	instanceRefresh bool
	retainVolume    bool
	finalSnapshot   bool

	alarmActions pulumi.StringArrayOutput

	tags pulumi.StringMapOutput
}

// amiParameter is AWS's public parameter for the newest Amazon Linux 2023; EC2
// resolves it at each launch:
// https://docs.aws.amazon.com/linux/al2023/ug/ec2.html
const amiParameter = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"

// newInputs fills in the defaults. Whether a field was given is taken from the
// values, in which an input that turned out to be null counts as not given.
func newInputs(args *ClusterArgs, v *values) *inputs {
	node := settings.Defaults()
	in := &inputs{
		clusterName:        args.ClusterName.ToStringOutput(),
		minSize:            intOr(args.MinSize, defaultMinSize),
		maxSize:            intOr(args.MaxSize, defaultMaxSize),
		instanceType:       stringOr(args.InstanceType, defaultInstanceType),
		image:              stringOr(args.AmiId, "resolve:ssm:"+amiParameter),
		rootVolumeSize:     intOr(args.RootVolumeSize, defaultRootVolumeSize),
		volumeSize:         intOr(args.VolumeSize, defaultVolumeSize),
		volumeIOPS:         intOr(args.VolumeIops, defaultVolumeIOPS),
		etcfsVersion:       stringOr(args.EtcfsVersion, node.Version),
		etcdVersion:        stringOr(args.EtcdVersion, node.EtcdVersion),
		leaseTTL:           stringOr(args.LeaseTtl, node.LeaseTTL.String()),
		githubRepo:         stringOr(args.GithubRepo, node.Repository),
		releasesURL:        stringOr(args.ReleasesUrl, node.ReleasesURL),
		onBootstrapFailure: stringOr(args.OnBootstrapFailure, string(node.OnBootstrapFailure)),
		recovery:           stringOr(args.Recovery, string(node.Recovery)),
		waitForReady:       v.waitForReady.v,
		instanceRefresh:    v.instanceRefresh.v,
		retainVolume:       v.retainVolume.v,
		finalSnapshot:      v.finalSnapshot.v,
		alarmActions:       pulumi.StringArray{}.ToStringArrayOutput(),
		tags:               pulumi.StringMap{}.ToStringMapOutput(),
	}
	if v.desiredCapacity.given {
		in.desiredCapacity = args.DesiredCapacity
	}
	if v.keyName.given {
		in.keyName = args.KeyName
	}
	if v.sshIngressCIDR.given {
		in.sshIngressCIDR = args.SshIngressCidr
	}
	if v.instanceProfile.given {
		in.instanceProfile = args.InstanceProfile
	}
	if args.AlarmActions != nil {
		in.alarmActions = args.AlarmActions.ToStringArrayOutput()
	}
	if args.Tags != nil {
		in.tags = args.Tags.ToStringMapOutput()
	}
	return in
}

func stringOr(in pulumi.StringPtrInput, fallback string) pulumi.StringOutput {
	if in == nil {
		return pulumi.String(fallback).ToStringOutput()
	}
	return in.ToStringPtrOutput().ApplyT(func(value *string) string {
		if value == nil {
			return fallback
		}
		return *value
	}).(pulumi.StringOutput)
}

func intOr(in pulumi.IntPtrInput, fallback int) pulumi.IntOutput {
	if in == nil {
		return pulumi.Int(fallback).ToIntOutput()
	}
	return in.ToIntPtrOutput().ApplyT(func(value *int) int {
		if value == nil {
			return fallback
		}
		return *value
	}).(pulumi.IntOutput)
}

// values is ClusterArgs as far as it is known now, for the rules to judge.
type values struct {
	clusterName      value[string]
	availabilityZone value[string]
	subnetID         value[string]

	minSize         value[int]
	maxSize         value[int]
	desiredCapacity value[int]

	instanceType    value[string]
	amiID           value[string]
	rootVolumeSize  value[int]
	keyName         value[string]
	sshIngressCIDR  value[string]
	instanceProfile value[string]

	volumeSize value[int]
	volumeIOPS value[int]

	etcfsVersion       value[string]
	etcdVersion        value[string]
	leaseTTL           value[string]
	githubRepo         value[string]
	releasesURL        value[string]
	onBootstrapFailure value[string]
	recovery           value[string]

	waitForReady    value[bool]
	instanceRefresh value[bool]
	retainVolume    value[bool]
	finalSnapshot   value[bool]

	alarmActions value[[]value[string]]

	tags value[map[string]value[string]]

	// mistyped says by their paths what is wrong with the types of inputs. Their
	// values are not known.
	mistyped map[string]string

	// secret are the paths of all inputs and entries that are secret, or have
	// an entry that is.
	secret map[string]bool

	// aws is what AWS told about them; nothing before it was asked.
	aws facts
}

// facts is what AWS knows about inputs.
type facts struct {
	subnet       fact[string]   // its zone
	zones        fact[[]string] // of the Region
	instanceType fact[instanceType]
	offered      fact[bool] // the instance type, in the zone
}

// fact is one answer of AWS, as far as it is known now.
type fact[T any] struct {
	value[T]
	err error
}

// instanceType is what an instance type is like.
type instanceType struct {
	nitro         bool
	architectures []string
}

// zone is the cluster's zone.
func (v *values) zone() value[string] {
	if v.availabilityZone.given {
		return v.availabilityZone
	}
	return v.aws.subnet.value
}

// value is one input as far as it is known now.
type value[T any] struct {
	// given is whether the user said anything; an output that is not known yet
	// counts as said.
	given bool
	// known is whether v is what will be used; a default is known.
	known bool
	// secret is whether nobody may see v.
	secret bool
	v      T
}

// or fills in the default of an input that was not given.
func (v value[T]) or(fallback T) value[T] {
	if !v.given {
		v.known, v.v = true, fallback
	}
	return v
}

// with is what follows from the value, and is as secret as that.
func (v value[T]) with(made T) value[T] {
	v.v = made
	return v
}

// Format implements [fmt.Formatter]: a value is shown as what it holds, in words
// of the Pulumi CLI if nobody may see that.
func (v value[T]) Format(state fmt.State, verb rune) {
	if v.secret {
		fmt.Fprint(state, "[secret]")
		return
	}
	fmt.Fprintf(state, fmt.FormatString(state, verb), v.v)
}

// newValues waits for the inputs, of which those with mistakes are not known. A
// program that uses the library can make mistakes of its own.
func newValues(ctx context.Context, args *ClusterArgs, mistakes map[string]mistake) (*values, error) {
	node := settings.Defaults()
	r := &reader{ctx: ctx, mistakes: map[string]mistake{}, secret: map[string]bool{}}
	maps.Copy(r.mistakes, mistakes)
	v := &values{
		availabilityZone: r.text("availabilityZone", args.AvailabilityZone),
		subnetID:         r.text("subnetId", args.SubnetId),

		minSize:         r.number("minSize", args.MinSize).or(defaultMinSize),
		maxSize:         r.number("maxSize", args.MaxSize).or(defaultMaxSize),
		desiredCapacity: r.number("desiredCapacity", args.DesiredCapacity),

		instanceType:    r.text("instanceType", args.InstanceType).or(defaultInstanceType),
		amiID:           r.text("amiId", args.AmiId),
		rootVolumeSize:  r.number("rootVolumeSize", args.RootVolumeSize).or(defaultRootVolumeSize),
		keyName:         r.text("keyName", args.KeyName),
		sshIngressCIDR:  r.text("sshIngressCidr", args.SshIngressCidr),
		instanceProfile: r.text("instanceProfile", args.InstanceProfile),

		volumeSize: r.number("volumeSize", args.VolumeSize).or(defaultVolumeSize),
		volumeIOPS: r.number("volumeIops", args.VolumeIops).or(defaultVolumeIOPS),

		etcfsVersion:       r.text("etcfsVersion", args.EtcfsVersion).or(node.Version),
		etcdVersion:        r.text("etcdVersion", args.EtcdVersion).or(node.EtcdVersion),
		leaseTTL:           r.text("leaseTtl", args.LeaseTtl).or(node.LeaseTTL.String()),
		githubRepo:         r.text("githubRepo", args.GithubRepo).or(node.Repository),
		releasesURL:        r.text("releasesUrl", args.ReleasesUrl).or(node.ReleasesURL),
		onBootstrapFailure: r.text("onBootstrapFailure", args.OnBootstrapFailure).or(string(node.OnBootstrapFailure)),
		recovery:           r.text("recovery", args.Recovery).or(string(node.Recovery)),

		waitForReady:    r.flag("waitForReady", args.WaitForReady).or(false),
		instanceRefresh: r.flag("instanceRefresh", args.InstanceRefresh).or(false),
		retainVolume:    r.flag("retainVolume", args.RetainVolume).or(false),
		finalSnapshot:   r.flag("finalSnapshot", args.FinalSnapshot).or(false),

		alarmActions: r.list("alarmActions", args.AlarmActions),
		tags:         r.dictionary("tags", args.Tags),

		mistyped: map[string]string{},
		secret:   r.secret,
	}
	if args.ClusterName != nil {
		v.clusterName = r.text("clusterName", args.ClusterName.ToStringOutput().ToStringPtrOutput())
	}
	for path, mistake := range r.mistakes {
		v.mistyped[path] = mistake.reason
		v.secret[path] = mistake.secret
	}
	return v, r.err
}

// reader waits for inputs, and collects those that failed.
type reader struct {
	ctx      context.Context //nolint:containedctx // lives for one newValues
	mistakes map[string]mistake
	secret   map[string]bool
	err      error
}

func (r *reader) text(path string, in pulumi.StringPtrInput) value[string] {
	if in == nil {
		return value[string]{}
	}
	return read[string](r, path, in.ToStringPtrOutput())
}

func (r *reader) number(path string, in pulumi.IntPtrInput) value[int] {
	if in == nil {
		return value[int]{}
	}
	return read[int](r, path, in.ToIntPtrOutput())
}

func (r *reader) flag(path string, in *bool) value[bool] {
	_, mistyped := r.mistakes[path]
	switch {
	case mistyped:
		return value[bool]{given: true}
	case in == nil:
		return value[bool]{}
	}
	return value[bool]{given: true, known: true, v: *in}
}

// list reads entry by entry as far as it is given so: one that is not known yet
// must not hide the others.
func (r *reader) list(path string, in pulumi.StringArrayInput) value[[]value[string]] {
	if in == nil {
		return value[[]value[string]]{}
	}
	if array, ok := in.(pulumi.StringArray); ok {
		list := value[[]value[string]]{given: true, known: true}
		for i, entry := range array {
			list.v = append(list.v, r.entry(path, fmt.Sprintf("[%d]", i), entry))
		}
		return list
	}
	whole := read[[]string](r, path, in.ToStringArrayOutput())
	list := value[[]value[string]]{given: whole.given, known: whole.known, secret: whole.secret}
	for i, entry := range whole.v {
		of := fmt.Sprintf("%s[%d]", path, i)
		_, mistyped := r.mistakes[of]
		list.v = append(list.v, value[string]{true, !mistyped, whole.secret, entry})
		r.secret[of] = whole.secret
	}
	return list
}

// dictionary is list for a map.
func (r *reader) dictionary(path string, in pulumi.StringMapInput) value[map[string]value[string]] {
	if in == nil {
		return value[map[string]value[string]]{}
	}
	entries := map[string]value[string]{}
	if given, ok := in.(pulumi.StringMap); ok {
		for key, entry := range given {
			entries[key] = r.entry(path, fmt.Sprintf("[%q]", key), entry)
		}
		return value[map[string]value[string]]{given: true, known: true, v: entries}
	}
	whole := read[map[string]string](r, path, in.ToStringMapOutput())
	for key, entry := range whole.v {
		of := fmt.Sprintf("%s[%q]", path, key)
		_, mistyped := r.mistakes[of]
		entries[key] = value[string]{true, !mistyped, whole.secret, entry}
		r.secret[of] = whole.secret
	}
	return value[map[string]value[string]]{whole.given, whole.known, whole.secret, entries}
}

func (r *reader) entry(path, index string, in pulumi.StringInput) value[string] {
	if in == nil {
		r.mistakes[path+index] = mistake{reason: isNot(null, aString)}
		return value[string]{given: true}
	}
	entry := r.text(path+index, in.ToStringOutput().ToStringPtrOutput())
	if entry.secret || r.mistakes[path+index].secret {
		r.secret[path] = true
	}
	return entry
}

func read[T any](r *reader, path string, out pulumi.Output) value[T] {
	if _, mistyped := r.mistakes[path]; mistyped {
		return value[T]{given: true}
	}
	result, err := internals.UnsafeAwaitOutput(r.ctx, out)
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("wait for %s: %w", path, err))
	}
	if result.Secret {
		r.secret[path] = true
	}
	if !result.Known {
		return value[T]{given: true, secret: result.Secret}
	}
	switch v := result.Value.(type) {
	case T:
		return value[T]{true, true, result.Secret, v}
	case *T:
		if v != nil {
			return value[T]{true, true, result.Secret, *v}
		}
	}
	return value[T]{}
}
