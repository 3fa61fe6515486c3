package fault

import (
	"slices"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
)

// All is the catalogue.
func All() []Fault {
	all := []Fault{
		ThrottledEC2, ThrottledDynamoDB, ThrottledAutoScaling, ThrottledRunCommand,
		LostPutItem, LostAttachVolume, LostSendCommand, LostCompleteLifecycleAction, LostSetInstanceHealth,
		BrokenConnections, SlowAnswers, InternalErrors, CutOffFromAWS, PermissionsNotThereYet, StaleReads,
		EmptyInstanceList, ListWithoutCaller, ListWithoutNewest, ListWithoutOne,
		SlowFunction, FunctionCutOff, RunCommandDown, LostEvents, DuplicateEvents, LateEvents,
		KillNode, FreezeNode, CutOffEtcd, RebootNode, PowerCycleNode, KillEtcd, KillMeta, KillFuse,
		KillBootstrapAfterAdd, KillBootstrapAtConfigure, PowerCycleAtMember,
		BrokenDownloads, FailingDownloads, WrongArtifact, SlowDownloads,
		ClockAhead, ClockBehind,
	}
	for _, phase := range bootstrap.Phases() {
		all = append(all, KillAt(phase))
	}
	return all
}

// Named returns a fault of the catalogue.
func Named(name string) (Fault, bool) {
	all := All()
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, false
	}
	return all[i], true
}
