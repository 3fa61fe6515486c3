package main

import (
	"bufio"
	"encoding/json"
	"fmt"
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

// tellBoot tells how long a node took from its launch to its mount, as its own
// log has it: the machine with its user data up to the bootstrap, then each
// phase.
func (s *story) tellBoot(n scenario.Node) error {
	file, err := s.machines.Machine(n.InstanceID).Open(settings.LogFile)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", n.InstanceID, err)
	}
	defer file.Close()
	var parts []string
	var last time.Time
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var line step
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // the stub's own lines are no JSON
		}
		switch {
		case last.IsZero():
			parts = append(parts, fmt.Sprintf("boot and user data %.1f s", line.Time.Sub(n.Launched).Seconds()))
		case line.Message == "done":
			parts = append(parts, fmt.Sprintf("%s %.1f s", line.Phase, line.Took.Seconds()))
		}
		last = line.Time
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the log of %s: %w", n.InstanceID, err)
	}
	s.say("%s mounted %.1f s after its launch: %s", n.InstanceID, last.Sub(n.Launched).Seconds(), strings.Join(parts, ", "))
	return nil
}
