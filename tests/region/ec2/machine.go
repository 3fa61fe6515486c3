package ec2

import (
	"context"
	"time"
)

// Machines makes the computers that instances run on: processes on loopback
// addresses, or systemd machines in network namespaces.
type Machines interface {
	// Subnet is the CIDR block that the machines' addresses come from.
	Subnet() string
	// Start boots a machine that has not run before. It returns once the
	// machine exists; its user data runs afterwards.
	Start(ctx context.Context, spec MachineSpec) (Machine, error)
}

// MachineSpec is what a machine is given at its first boot.
type MachineSpec struct {
	InstanceID       string
	PrivateIP        string
	AvailabilityZone string
	Region           string
	AccountID        string
	InstanceType     string
	ImageID          string
	// UserData is the decoded user data, run once per instance as cloud-init
	// runs it.
	UserData []byte
	// Tags are the instance's tags, served by its metadata service.
	Tags map[string]string
	// RoleName is the role in the instance profile, "" without one.
	RoleName string
	// Credentials are fresh temporary credentials of that role.
	Credentials func() (Credentials, error)
}

// Credentials are temporary AWS credentials as the metadata service hands them
// out.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	Token           string
	Expiration      time.Time
}

// Machine is a computer that runs.
type Machine interface {
	// Stop shuts the machine down in order, as TerminateInstances does, and
	// returns when nothing of it runs any more.
	Stop(ctx context.Context) error
	// Kill ends every process of the machine at once, as a power failure does.
	Kill() error
	// Reboot stops the machine in order and boots it again on the same disk;
	// user data does not run again.
	Reboot(ctx context.Context) error
	// Exited is closed when the machine no longer runs, for whatever reason.
	Exited() <-chan struct{}
	// Attach makes a volume appear, backed by the file, with its NVMe serial.
	Attach(volumeID, file string) error
	// Detach makes it disappear.
	Detach(volumeID string) error
	// Execute runs a shell script as root, as the SSM agent does, and returns
	// its exit code and output.
	Execute(ctx context.Context, script string) (CommandResult, error)
	// AgentOnline says whether the machine's SSM agent has registered.
	AgentOnline() bool
	// Console is what the machine has written to its console so far.
	Console() string
	// Remove deletes the machine's disk; it must have exited.
	Remove() error
}

// CommandResult is what a script that ran to its end left.
type CommandResult struct {
	ExitCode       int
	Stdout, Stderr string
}
