package bootstrap

import "context"

// Health reports on this instance to its Auto Scaling Group.
type Health interface {
	ReportUnhealthy(ctx context.Context, instanceID string) error
}
