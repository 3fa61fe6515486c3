package release

import (
	"net/http"
	"time"
)

// fault is what goes wrong with one file.
type fault struct {
	// times is how many more downloads it hits, negative without end.
	times   int
	status  int    // answered instead of the file
	content []byte // served instead of the file
	cut     bool   // break off the connection after so many bytes
	after   int64
}

// take returns the fault for one request and counts it; the zero fault when
// there is none. Only downloads count.
func (f *fault) take(method string) fault {
	if f == nil || f.times == 0 || method != http.MethodGet {
		return fault{}
	}
	f.times--
	return *f
}

func (s *Server) fault(file string, f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[file] = &f
}

// CutOff breaks the connection of the next downloads of a file after so many
// bytes each.
func (s *Server) CutOff(file string, after int64, times int) {
	s.fault(file, fault{times: times, cut: true, after: after})
}

// Fail answers the next downloads of a file with a status.
func (s *Server) Fail(file string, status, times int) {
	s.fault(file, fault{times: times, status: status})
}

// Replace serves something else under a file's name from now on; its published
// sum stays.
func (s *Server) Replace(file string, content []byte) {
	s.fault(file, fault{times: -1, content: content})
}

// Heal ends what is wrong with a file.
func (s *Server) Heal(file string) { s.fault(file, fault{}) }

// Throttle limits each download to so many bytes a second; zero lifts the
// limit.
func (s *Server) Throttle(bytesPerSecond int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate = bytesPerSecond
}

// limited is a connection that is slow, or breaks.
type limited struct {
	http.ResponseWriter
	request *http.Request
	rate    int64
	cut     bool
	left    int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.rate > 0 {
		select {
		case <-time.After(time.Duration(len(p)) * time.Second / time.Duration(l.rate)):
		case <-l.request.Context().Done():
			return 0, l.request.Context().Err()
		}
	}
	if !l.cut {
		return l.ResponseWriter.Write(p)
	}
	p = p[:min(int64(len(p)), l.left)]
	n, err := l.ResponseWriter.Write(p)
	if l.left -= int64(n); l.left == 0 && err == nil {
		_ = http.NewResponseController(l.ResponseWriter).Flush() // what was sent before the break arrives
		panic(http.ErrAbortHandler)                              // net/http closes the connection, quietly
	}
	return n, err
}
