package host

import (
	"errors"
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// domain is where the AWS APIs have their names.
const domain = "amazonaws.com"

// serveNames answers questions for names until the connection is closed:
// every name of AWS is at the gateway, and no other name exists.
func serveNames(conn net.PacketConn) {
	buffer := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a machine that has gone
		}
		if answer, err := answerName(buffer[:n]); err == nil {
			_, _ = conn.WriteTo(answer, from) // the machine asks again
		}
	}
}

// answerName answers one question.
func answerName(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable = true, true
	m.Answers, m.Authorities, m.Additionals = nil, nil, nil
	if len(m.Questions) != 1 {
		m.RCode = dnsmessage.RCodeFormatError
		return m.Pack()
	}
	q := m.Questions[0]
	switch name := strings.ToLower(q.Name.String()); {
	case !strings.HasSuffix(name, "."+domain+"."):
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
			Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(gatewayAddress).To4())},
		}}
	}
	return m.Pack()
}
