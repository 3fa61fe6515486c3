package api

import (
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// SetClock says how far the region's clock runs ahead of a caller's own; nil is
// not at all. Processes of one machine share its clock, so a caller whose clock
// is wrong is made by shifting all the times of AWS that it sees: the Date of
// answers, launch times, and the times that it has stored itself. Requests whose
// signature is more than five minutes off are refused, as AWS does.
func (s *Server) SetClock(ahead func(Principal) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
}

func (s *Server) clockOf(p Principal) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead == nil {
		return 0
	}
	return s.ahead(p)
}

// tolerance is how old, or young, a signature may be.
const tolerance = 5 * time.Minute

// skewed are the codes of requests that were signed by a clock that is off.
var skewed = map[Protocol]string{
	EC2Query: "RequestExpired", Query: "SignatureDoesNotMatch", JSON: "InvalidSignatureException", REST: "RequestTimeTooSkewed",
	CBOR: "InvalidSignatureException",
}

// checkClock refuses a request that was signed at another time than now, by
// the clock that the caller should have.
func (c *Call) checkClock() error {
	if c.ahead == 0 {
		return nil
	}
	signed, err := time.Parse("20060102T150405Z", c.Request.Header.Get("X-Amz-Date"))
	if err != nil {
		return Errorf(http.StatusForbidden, "IncompleteSignatureException", "X-Amz-Date: %v", err)
	}
	if off := time.Now().Add(c.ahead).Sub(signed); off.Abs() > tolerance {
		return Errorf(http.StatusForbidden, skewed[c.Service.Protocol], "Signature not current: the request was signed %s from the server's time", off.Round(time.Second))
	}
	return nil
}

var (
	// launchTimes are the only times in answers of EC2 that anybody reads.
	launchTimes = regexp.MustCompile(`<launchTime>([^<]+)</launchTime>`)
	// seconds are numbers of DynamoDB that are seconds since 1970.
	seconds = regexp.MustCompile(`"N":\s*"(\d{10})"`)
)

// shift moves the times in a body.
func shift(body []byte, by time.Duration) []byte {
	if by == 0 {
		return body
	}
	body = launchTimes.ReplaceAllFunc(body, func(found []byte) []byte {
		text := launchTimes.FindSubmatch(found)[1]
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return found
		}
		return []byte("<launchTime>" + at.Add(by).Format("2006-01-02T15:04:05.000Z") + "</launchTime>")
	})
	return seconds.ReplaceAllFunc(body, func(found []byte) []byte {
		at, err := strconv.ParseInt(string(seconds.FindSubmatch(found)[1]), 10, 64)
		if err != nil {
			return found
		}
		return []byte(`"N":"` + strconv.FormatInt(at+int64(by/time.Second), 10) + `"`)
	})
}
