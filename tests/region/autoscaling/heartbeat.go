package autoscaling

// EndHeartbeats lets the time be over at once of everything in a group that
// waits for a lifecycle action: the shortest heartbeat takes half a minute,
// which a story that is about its end need not wait for.
func (s *Service) EndHeartbeats(groupName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[groupName]
	if g == nil {
		return
	}
	for _, m := range g.members {
		for _, each := range m.actions {
			each.timer.Reset(0)
		}
	}
}
