package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

// step is a line of the bootstrap's log.
type step struct {
	Time    time.Time     `json:"time"`
	Message string        `json:"msg"`
	Phase   string        `json:"phase"`
	Took    time.Duration `json:"took"`
}

// userDataFile is where cloud-init puts an instance's user data that is a
// script, in its first stage with a network.
func userDataFile(instanceID string) string {
	return "var/lib/cloud/instances/" + instanceID + "/scripts/part-001"
}

// tellBoot tells how long a node took from its launch to its mount: the machine
// until it has its user data, the user data until it runs the bootstrap, then
// each phase as the bootstrap's own log has it.
func (s *story) tellBoot(n scenario.Node) error {
	disk := s.machines.Machine(n.InstanceID).Disk()
	userData, err := fs.Stat(disk, userDataFile(n.InstanceID))
	if err != nil {
		return fmt.Errorf("look at the user data of %s: %w", n.InstanceID, err)
	}
	file, err := disk.Open(strings.TrimPrefix(settings.LogFile, "/"))
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", n.InstanceID, err)
	}
	defer file.Close()
	var parts []string
	told := map[string]bool{} // units run phases again later
	var first, last time.Time
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line step
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // the stub's own lines are no JSON
		}
		if first.IsZero() {
			first = line.Time
		}
		last = line.Time
		if line.Message == "done" && !told[line.Phase] {
			told[line.Phase] = true
			parts = append(parts, fmt.Sprintf("%s %.1f", line.Phase, line.Took.Seconds()))
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the log of %s: %w", n.InstanceID, err)
	}
	s.say("%s mounted %.1f s after its launch: machine %.1f, user data %.1f, %s", n.InstanceID, last.Sub(n.Launched).Seconds(),
		userData.ModTime().Sub(n.Launched).Seconds(), first.Sub(userData.ModTime()).Seconds(), strings.Join(parts, ", "))
	return nil
}
