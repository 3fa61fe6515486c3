package host

import (
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		question string
		kind     dnsmessage.Type
		code     dnsmessage.RCode
		answers  int
	}{
		"an API":            {"dynamodb.eu-west-1.amazonaws.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		"a bucket":          {"Bucket.s3.eu-west-1.amazonaws.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		"no IPv6":           {"ec2.eu-west-1.amazonaws.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		"elsewhere":         {"github.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		"only looks like":   {"notamazonaws.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		"metadata, by name": {"instance-data.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			question := dnsmessage.Message{
				Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
				Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(c.question), Type: c.kind, Class: dnsmessage.ClassINET}},
			}
			packed, err := question.Pack()
			if err != nil {
				t.Fatal(err)
			}
			packed, err = answerName(packed)
			if err != nil {
				t.Fatal(err)
			}
			var got dnsmessage.Message
			if err := got.Unpack(packed); err != nil {
				t.Fatal(err)
			}
			if got.ID != 7 || !got.Response || got.RCode != c.code || len(got.Answers) != c.answers {
				t.Errorf("got %+v, want an answer to question 7 with code %s and %d answers", got, c.code, c.answers)
			}
			for _, answer := range got.Answers {
				if got, want := answer.Body.(*dnsmessage.AResource).A, [4]byte{10, 77, 0, 1}; got != want {
					t.Errorf("got %v, want the gateway, %v", got, want)
				}
			}
		})
	}
	if _, err := answerName([]byte("no question")); err == nil {
		t.Error("garbage is answered")
	}
}
