package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcfs/pulumi-etcfs/bootstrap"
	"github.com/etcfs/pulumi-etcfs/bootstrap/phase"
	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
)

// Exit statuses. Scripts rely on them.
const (
	exitOK       = 0
	exitFailure  = 1
	exitSettings = 2
	exitRefused  = 3
	exitDegraded = 4
	exitUnseen   = 5
)

// exitPhases are the exit statuses of the phases that can fail.
var exitPhases = map[string]int{
	bootstrap.PhaseIdentify:     10,
	bootstrap.PhaseInstallEtcd:  11,
	bootstrap.PhaseInstallEtcFS: 11,
	bootstrap.PhaseAttach:       12,
	bootstrap.PhaseElect:        13,
	bootstrap.PhaseMember:       14,
	bootstrap.PhaseConfigure:    15,
	bootstrap.PhaseStart:        16,
	bootstrap.PhaseMount:        17,
	bootstrap.PhaseResume:       18,
	bootstrap.PhaseReady:        19,
}

// exitHelp lists the exit statuses.
var exitHelp = func() string {
	lines := []string{
		"Exit status:",
		fmt.Sprintf("  %-3d success", exitOK),
		fmt.Sprintf("  %-3d any failure that is not listed here", exitFailure),
		fmt.Sprintf("  %-3d the command line or the settings are wrong; nothing was done", exitSettings),
		fmt.Sprintf("  %-3d remove-member: etcd refused the removal", exitRefused),
		fmt.Sprintf("  %-3d status: the cluster is not healthy", exitDegraded),
		fmt.Sprintf("  %-3d status: not everything could be read", exitUnseen),
	}
	byStatus := map[int][]string{}
	for _, name := range bootstrap.Phases() {
		byStatus[exitPhases[name]] = append(byStatus[exitPhases[name]], name)
	}
	var failures []string
	for status, names := range byStatus {
		failures = append(failures, fmt.Sprintf("  %-3d phase %s failed", status, strings.Join(names, " or ")))
	}
	slices.Sort(failures)
	return strings.Join(append(lines, failures...), "\n")
}()

// usageError is a wrong command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() + " (see --help)" }

func (e *usageError) Unwrap() error { return e.err }

// usage marks the errors of an argument check.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

// statusError is an exit status of a command that has said everything itself.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func isSilent(err error) bool {
	_, ok := errors.AsType[statusError](err)
	return ok
}

func exitStatus(err error) int {
	if err == nil {
		return exitOK
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitSettings
	}
	if _, ok := errors.AsType[*settings.InvalidError](err); ok {
		return exitSettings
	}
	if failed, ok := errors.AsType[*phase.Error](err); ok {
		if status := exitPhases[failed.Phase]; status != 0 {
			return status
		}
	}
	return exitFailure
}
