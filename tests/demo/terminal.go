package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/scenario"
)

// terminal prints what happens. On a real terminal the last line shows at any
// time what is waited for; elsewhere such a line is written only now and then.
type terminal struct {
	out    io.Writer
	broken func(error)
	mu     sync.Mutex
	live   bool
	status bool // the cursor stands on a status line
	last   time.Time
}

// newTerminal prints to a file, and calls broken when that fails.
func newTerminal(out *os.File, broken func(error)) *terminal {
	info, err := out.Stat()
	return &terminal{out: out, broken: broken, live: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// write writes; the mutex is held.
func (t *terminal) write(text string) {
	if _, err := io.WriteString(t.out, text); err != nil {
		t.broken(err)
	}
}

const clearLine = "\r\x1b[K"

// Printf prints lines.
func (t *terminal) Printf(format string, arguments ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status {
		t.write(clearLine)
		t.status = false
	}
	t.write(fmt.Sprintf(format, arguments...))
	t.last = time.Now()
}

// Heading starts a step.
func (t *terminal) Heading(title string) { t.Printf("\n== %s\n", title) }

const (
	// quiet is how long nothing may be heard where there is no status line.
	quiet = 10 * time.Second
	// statusWidth fits into the narrowest usual terminal, as a status line that
	// wraps cannot be taken back.
	statusWidth = 78
)

// Status says what is waited for.
func (t *terminal) Status(text string) {
	if !t.live {
		if t.silence() >= quiet {
			t.Printf("   %s\n", text)
		}
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if runes := []rune(text); len(runes) > statusWidth-3 {
		text = string(runes[:statusWidth-4]) + "…"
	}
	t.write(clearLine + "   " + text)
	t.status = true
}

func (t *terminal) silence() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.last)
}

// Indented is a writer of whole lines that are not the demo's own.
func (t *terminal) Indented() io.Writer {
	return &lines{print: func(line string) { t.Printf("   | %s\n", line) }}
}

// lines calls print for each complete line written.
type lines struct {
	print   func(string)
	pending bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.pending.Write(p)
	for {
		line, rest, found := bytes.Cut(l.pending.Bytes(), []byte("\n"))
		if !found {
			return len(p), nil
		}
		text := string(line)
		l.pending.Next(l.pending.Len() - len(rest))
		l.print(text)
	}
}

// Nodes prints a cluster as a table.
func (t *terminal) Nodes(v scenario.View) {
	rows := [][]string{{"INSTANCE", "ADDRESS", "ETCD MEMBER", "LEADER", "MOUNT", "GROUP STATE"}}
	for _, n := range v.Nodes {
		member := n.Member.String()
		if n.Member.ID != 0 {
			member = fmt.Sprintf("%x %s", n.Member.ID, member)
		}
		state := n.GroupState
		if !n.Healthy {
			state += ", unhealthy"
		}
		rows = append(rows, []string{n.InstanceID, n.Address, member, mark(n.Member.Leader, "leader"), mark(n.Mounted, "mounted"), state})
	}
	for _, name := range v.Strays {
		rows = append(rows, []string{"none", "", "stray " + name, "", "", ""})
	}
	t.table(rows)
}

func mark(is bool, word string) string {
	if is {
		return word
	}
	return "-"
}

// Leaves prints what the graceful-leave function did.
func (t *terminal) Leaves(leaves []scenario.Leave) {
	rows := [][]string{{"LEFT", "MEMBER", "OUTCOME", "THROUGH", "ACTION", "FUNCTION TOOK"}}
	for _, l := range leaves {
		rows = append(rows, []string{l.Instance, l.Member, l.Outcome, l.Survivor, l.Completion, fmt.Sprintf("%d ms", l.DurationMS)})
	}
	t.table(rows)
}

// Durations prints how long the steps took.
func (t *terminal) Durations(durations []duration) {
	t.Printf("\n")
	var rows [][]string
	for _, d := range durations {
		row := []string{d.what, fmt.Sprintf("%5.1f s", d.took.Seconds())}
		if d.target > 0 {
			verdict := "met"
			if d.took >= d.target {
				verdict = "missed"
			}
			row = append(row, fmt.Sprintf("target: under %s, %s", d.target, verdict))
		}
		rows = append(rows, row)
	}
	t.table(rows)
}

func (t *terminal) table(rows [][]string) {
	var text strings.Builder
	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(writer, "   "+strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	writer.Flush()
	for line := range strings.Lines(text.String()) {
		t.Printf("%s\n", strings.TrimRight(line, " \n"))
	}
}
