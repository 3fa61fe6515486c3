// Package etcfs stands in for the programs of EtcFS on a process machine:
// etcfuse-meta, etcfuse and etcfsctl.
//
// They behave like the real ones at every surface that a node's set-up
// touches: flags, environment and configuration file, the refusal of unknown
// keys and of settings that contradict each other, the device found by its
// serial, the membership key with its lease in etcd, self-fencing with its own
// exit status, fencing of peers by detaching the volume, the socket that
// etcfuse does not wait for, metrics, health and readiness.
//
// What they store is a model of EtcFS and not its format: a flat folder of
// files, data on the shared device, metadata in etcd. Space on the device is
// handed out from a counter in etcd, so an etcd that starts anew overwrites
// what is there, as with the real one. Instead of a FUSE mount, which needs
// privilege, etcfuse keeps the folder and the cluster equal: a file that is
// closed after writing, moved in, or removed on one node is soon so on the
// others; a file that could not be stored is taken away again. While it does
// that it holds a lock by which mountpoint and Mounted know.
package etcfs

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// Release is what differs between the releases of EtcFS that nodes meet.
type Release struct {
	Version string
	// Config: etcfuse-meta reads a configuration file. One without does not
	// know the flag, and never opens the file.
	Config bool
	// VolumeID: etcfuse-meta finds the device by the volume's ID.
	VolumeID bool
}

// String is the release as the first argument of the programs carries it, such
// as "0.36.0+config+volume-id".
func (r Release) String() string {
	text := r.Version
	if r.Config {
		text += "+config"
	}
	if r.VolumeID {
		text += "+volume-id"
	}
	return text
}

// ParseRelease is the reverse of String.
func ParseRelease(text string) (Release, error) {
	parts := strings.Split(text, "+")
	r := Release{Version: parts[0], Config: slices.Contains(parts, "config"), VolumeID: slices.Contains(parts, "volume-id")}
	if r.String() != text || r.Version == "" {
		return r, fmt.Errorf("%q is not a release such as 0.36.0+config+volume-id", text)
	}
	return r, nil
}

// lists says whether a release knows a flag.
func (r Release) lists(f *flag.Flag) bool {
	switch f.Name {
	case "config":
		return r.Config
	case "volume-id":
		return r.VolumeID
	}
	return true
}
