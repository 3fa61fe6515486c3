package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// journal tells what happens: in lines for a reader, and in full in a folder
// that is kept when something was wrong.
type journal struct {
	folder string
	file   *os.File
	logger *slog.Logger
	began  time.Time

	mu sync.Mutex
}

func openJournal(seed uint64) (*journal, error) {
	folder, err := os.MkdirTemp("", fmt.Sprintf("etcfs-chaos-%d-", seed))
	if err != nil {
		return nil, fmt.Errorf("create the folder of the event log: %w", err)
	}
	file, err := os.Create(filepath.Join(folder, "events.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("create the event log: %w", err)
	}
	logger := slog.New(slog.NewJSONHandler(file, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return &journal{folder: folder, file: file, logger: logger, began: time.Now()}, nil
}

func (j *journal) path(name string) string { return filepath.Join(j.folder, name) }

// tell writes a line, with the time since the beginning.
func (j *journal) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Printf("  %6.1f s  %s\n", time.Since(j.began).Seconds(), text)
	j.logger.Info("told", "text", text)
}

// close keeps the folder if there is an error, and adds where it is.
func (j *journal) close(err error) error {
	_ = j.file.Close() // what could not be written is missing from it
	if err == nil {
		return os.RemoveAll(j.folder)
	}
	return fmt.Errorf("%w\nevent log: %s", err, j.path("events.jsonl"))
}
