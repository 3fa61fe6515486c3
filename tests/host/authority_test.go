package host

import (
	"crypto/x509"
	"testing"
)

func TestAuthority(t *testing.T) {
	t.Parallel()
	a, err := newAuthority("*.eu-west-1.amazonaws.com", "*.s3.eu-west-1.amazonaws.com")
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(a.certificate) {
		t.Fatal("the authority's certificate cannot be read")
	}
	leaf, err := x509.ParseCertificate(a.config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"ec2.eu-west-1.amazonaws.com":       true,
		"bucket.s3.eu-west-1.amazonaws.com": true,
		"ec2.us-east-1.amazonaws.com":       false,
		"github.com":                        false,
	} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: trusted}); (err == nil) != want {
			t.Errorf("%s: got %v, want it trusted: %t", name, err, want)
		}
	}
}
