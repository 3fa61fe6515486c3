// Package journal keeps a machine's journal: one JSON line per message in one
// file, written by the machine's init and read by journalctl.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// File is where the journal lies on a machine.
const File = "/var/log/journal/journal.jsonl"

// Entry is one message.
type Entry struct {
	Time       time.Time `json:"time"`
	Boot       string    `json:"boot"`
	Unit       string    `json:"unit"`
	Identifier string    `json:"identifier"`
	PID        int       `json:"pid,omitempty"`
	Message    string    `json:"message"`
}

// Writer appends to a journal.
type Writer struct {
	boot string

	mu   sync.Mutex
	file *os.File
}

// NewWriter opens the journal at path for one boot of the machine.
func NewWriter(path, boot string) (*Writer, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the journal's folder: %w", err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &Writer{boot: boot, file: file}, nil
}

// Write appends one message. A journal that cannot be written (a full disk)
// loses the message, as journald does.
func (w *Writer) Write(unit, identifier string, pid int, message string) {
	line, err := json.Marshal(Entry{time.Now(), w.boot, unit, identifier, pid, message})
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.file.Write(append(line, '\n'))
}

// Copy writes each line of r to the journal, and to also, until r ends.
func (w *Writer) Copy(unit, identifier string, pid int, r io.Reader, also ...func(line string)) {
	reader := bufio.NewReader(r)
	for {
		line, err := reader.ReadBytes('\n')
		if line = bytes.TrimRight(line, "\n"); len(line) > 0 {
			w.Write(unit, identifier, pid, string(line))
			for _, f := range also {
				f(string(line))
			}
		}
		if err != nil {
			return
		}
	}
}

// Query selects entries.
type Query struct {
	// Units are the units to show; all when empty.
	Units []string
	// ThisBoot leaves out earlier boots of the machine.
	ThisBoot bool
	// Last is how many entries to show, counted from the end; all when zero.
	Last int
}

// Read returns the entries of the journal at path that a query selects. No
// journal is an empty one.
func Read(path string, q Query) ([]Entry, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	defer file.Close()
	var entries []Entry
	boot := ""
	decoder := json.NewDecoder(bufio.NewReader(file))
	for {
		var entry Entry
		err := decoder.Decode(&entry)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break // the second: a line that is being written
		}
		if err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		if q.ThisBoot && entry.Boot != boot {
			boot, entries = entry.Boot, nil
		}
		if len(q.Units) == 0 || slices.Contains(q.Units, entry.Unit) {
			entries = append(entries, entry)
		}
	}
	if q.Last > 0 && len(entries) > q.Last {
		entries = entries[len(entries)-q.Last:]
	}
	return entries, nil
}
