package bootstrap

import (
	"context"
	"fmt"
	"slices"

	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
)

// sequence is the boot of a node, in order. The phases of one line do not wait
// for one another. A node that boots again goes through the same list and finds
// most of it done.
func (b *Bootstrap) sequence() []phase.Stage {
	return []phase.Stage{
		{b.identify(), b.resume()},
		{b.installEtcd(), b.installEtcFS(), b.attach(), b.elect()},
		{b.member()},
		{b.configure()},
		{b.start()},
		{b.mount()},
		{b.ready()},
	}
}

// Names of the phases.
const (
	PhaseIdentify     = "identify"
	PhaseResume       = "resume"
	PhaseInstallEtcd  = "install-etcd"
	PhaseInstallEtcFS = "install-etcfs"
	PhaseAttach       = "attach"
	PhaseElect        = "elect"
	PhaseMember       = "member"
	PhaseConfigure    = "configure"
	PhaseStart        = "start"
	PhaseMount        = "mount"
	PhaseReady        = "ready"
)

// Phases lists the names of the phases in order.
func Phases() []string {
	var names []string
	for _, stage := range new(Bootstrap).sequence() {
		for _, p := range stage {
			names = append(names, p.Name)
		}
	}
	return names
}

// Run boots the node. It may be called again at any point: after a crash, after
// a reboot, or by hand on a node that works. The *[phase.Error] of a failure
// is in its error's chain.
func (b *Bootstrap) Run(ctx context.Context) error {
	if err := (phase.Runner{Logger: b.Logger}).Run(ctx, b.sequence()...); err != nil {
		return b.failed(ctx, err)
	}
	return nil
}

// RunPhase runs one phase by name, after identify, which every other phase
// relies on.
func (b *Bootstrap) RunPhase(ctx context.Context, name string) error {
	stages := []phase.Stage{{b.identify()}}
	if name != PhaseIdentify {
		wanted, err := b.phase(name)
		if err != nil {
			return err
		}
		stages = append(stages, phase.Stage{wanted})
	}
	return phase.Runner{Logger: b.Logger}.Run(ctx, stages...)
}

func (b *Bootstrap) phase(name string) (phase.Phase, error) {
	for _, stage := range b.sequence() {
		i := slices.IndexFunc(stage, func(p phase.Phase) bool { return p.Name == name })
		if i >= 0 {
			return stage[i], nil
		}
	}
	return phase.Phase{}, fmt.Errorf("there is no phase %q; the phases are %v", name, Phases())
}
