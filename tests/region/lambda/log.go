package lambda

import (
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/logs"
)

// logWriter writes an environment's output, line by line, to its log stream,
// as far as the function's role allows it.
type logWriter struct {
	logs          *logs.Logs
	authorizer    api.Authorizer
	principal     api.Principal
	group, stream string

	mu      sync.Mutex
	partial string
	opened  bool
}

func (f *Functions) newLogWriter(s settings, stream string) *logWriter {
	return &logWriter{
		logs: f.config.Logs, authorizer: f.config.Authorizer, group: logGroup(s.Name), stream: stream,
		principal: f.principal(s),
	}
}

// principal is who a function is.
func (f *Functions) principal(s settings) api.Principal {
	return api.Principal{
		ARN:  "arn:aws:sts::" + f.config.Account + ":assumed-role/" + s.role() + "/" + s.Name,
		Role: s.role(), Session: s.Name,
	}
}

// Write never fails: a function does not notice that its log is lost.
func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial += string(p)
	for {
		line, rest, complete := strings.Cut(w.partial, "\n")
		if !complete {
			return len(p), nil
		}
		w.partial = rest
		w.append(line)
	}
}

// flush writes a line that has not ended.
func (w *logWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.partial != "" {
		w.append(w.partial)
		w.partial = ""
	}
}

// platform writes one of Lambda's own lines.
func (w *logWriter) platform(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.append(line)
}

func (w *logWriter) append(line string) {
	resource := w.logs.StreamARN(w.group, w.stream)
	if !w.opened {
		// A group that the stack did not make is made, where the role allows it.
		if w.may("logs:CreateLogGroup", w.logs.StreamARN(w.group, "")) {
			_ = w.logs.CreateGroup(w.group) // it may be there
		}
		w.opened = w.may("logs:CreateLogStream", resource) && w.logs.CreateStream(w.group, w.stream) == nil
	}
	if w.opened && w.may("logs:PutLogEvents", resource) {
		_ = w.logs.Append(w.group, w.stream, logs.Entry{Time: time.Now(), Message: line}) // the group may have been deleted
	}
}

func (w *logWriter) may(action, resource string) bool {
	return w.authorizer.Authorize(w.principal, api.Access{Action: action, Resource: resource}) == nil
}
