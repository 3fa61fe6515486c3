package imds_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/cenkalti/backoff/v5"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	region "github.com/etcfs/pulumi-etcfs/tests/region/imds"
)

func instance() *ec2.MachineSpec {
	return &ec2.MachineSpec{
		InstanceID: "i-0123456789abcdef0", PrivateIP: "10.0.0.7", AvailabilityZone: "eu-west-1a", Region: "eu-west-1",
		AccountID: "123456789012", InstanceType: "t3.medium", ImageID: "ami-1", UserData: []byte("#!/bin/sh\n"),
		Tags: map[string]string{"ClusterName": "demo", "Role": "etcfs-node"}, RoleName: "node",
		Credentials: func() (ec2.Credentials, error) {
			return ec2.Credentials{AccessKeyID: "ASIA1", SecretAccessKey: "secret", Token: "session", Expiration: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
		},
	}
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func do(t *testing.T, method, url string, header map[string]string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func token(t *testing.T, url, ttl string) string {
	t.Helper()
	status, body := do(t, http.MethodPut, url+"/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": ttl})
	if status != http.StatusOK {
		t.Fatalf("token: status %d", status)
	}
	return body
}

func TestPaths(t *testing.T) {
	t.Parallel()
	url := serve(t, region.For(instance()))
	header := map[string]string{"X-aws-ec2-metadata-token": token(t, url, "60")}
	for _, test := range []struct {
		path   string
		status int
		want   string // contained in the body
	}{
		{"meta-data/instance-id", 200, "i-0123456789abcdef0"},
		{"meta-data/local-ipv4", 200, "10.0.0.7"},
		{"meta-data/placement/region", 200, "eu-west-1"},
		{"meta-data/placement/availability-zone", 200, "eu-west-1a"},
		{"meta-data/placement/", 200, "availability-zone\nregion"},
		{"meta-data/", 200, "placement/"},
		{"meta-data/tags/instance", 200, "ClusterName\nRole"},
		{"meta-data/tags/instance/ClusterName", 200, "demo"},
		{"meta-data/iam/info", 200, "instance-profile/node"},
		{"meta-data/iam/security-credentials/", 200, "node"},
		{"meta-data/iam/security-credentials/node", 200, `"SecretAccessKey": "secret"`},
		{"meta-data/iam/security-credentials/other", 404, ""},
		{"dynamic/instance-identity/document", 200, `"accountId": "123456789012"`},
		{"user-data", 200, "#!/bin/sh\n"},
		{"meta-data/spot/instance-action", 404, ""},
	} {
		status, body := do(t, http.MethodGet, url+"/latest/"+test.path, header)
		if status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s: status %d, %q, want %d, %q", test.path, status, body, test.status, test.want)
		}
	}
}

func TestAnInstanceWithoutARoleTagsOrUserData(t *testing.T) {
	t.Parallel()
	url := serve(t, region.For(&ec2.MachineSpec{InstanceID: "i-1"}))
	header := map[string]string{"X-aws-ec2-metadata-token": token(t, url, "60")}
	for _, path := range []string{"user-data", "meta-data/iam/info", "meta-data/iam/security-credentials/", "meta-data/tags/instance"} {
		if status, body := do(t, http.MethodGet, url+"/latest/"+path, header); status != http.StatusNotFound {
			t.Errorf("%s: status %d, %q, want 404", path, status, body)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	url := serve(t, region.For(instance()))
	id := url + "/latest/meta-data/instance-id"
	for _, test := range []struct {
		name, method, url string
		header            map[string]string
		want              int
	}{
		{"no token", "GET", id, nil, 401},
		{"wrong token", "GET", id, map[string]string{"X-aws-ec2-metadata-token": "guess"}, 401},
		{"token by GET", "GET", url + "/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "60"}, 403},
		{"token through a proxy", "PUT", url + "/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "60", "X-Forwarded-For": "10.0.0.9"}, 403},
		{"no TTL", "PUT", url + "/latest/api/token", nil, 400},
		{"TTL of nothing", "PUT", url + "/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "0"}, 400},
		{"the longest TTL", "PUT", url + "/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "21600"}, 200},
		{"a longer TTL", "PUT", url + "/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "21601"}, 400},
		{"a change", "POST", id, map[string]string{"X-aws-ec2-metadata-token": token(t, url, "60")}, 405},
	} {
		if got, _ := do(t, test.method, test.url, test.header); got != test.want {
			t.Errorf("%s: status %d, want %d", test.name, got, test.want)
		}
	}
	short := map[string]string{"X-aws-ec2-metadata-token": token(t, url, "1")}
	if got, _ := do(t, "GET", id, short); got != http.StatusOK {
		t.Errorf("a fresh token: status %d, want 200", got)
	}
	_, err := backoff.Retry(t.Context(), func() (int, error) {
		got, _ := do(t, "GET", id, short)
		if got != http.StatusUnauthorized {
			return got, fmt.Errorf("status %d", got)
		}
		return got, nil
	}, backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxElapsedTime(10*time.Second))
	if err != nil {
		t.Errorf("a token of one second does not expire: %v", err)
	}
}

// One service for several instances tells them apart by source address, and a
// token of one is no good for another.
func TestBySource(t *testing.T) {
	t.Parallel()
	instances := map[netip.Addr]*ec2.MachineSpec{
		netip.MustParseAddr("10.0.0.1"): {InstanceID: "i-1"},
		netip.MustParseAddr("10.0.0.2"): {InstanceID: "i-2"},
	}
	handler := region.BySource(func(source netip.Addr) *ec2.MachineSpec { return instances[source] })
	ask := func(source, method, path string, header map[string]string) (int, string) {
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		request.RemoteAddr = source + ":4000"
		for name, value := range header {
			request.Header.Set(name, value)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Code, recorder.Body.String()
	}
	ttl := map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "60"}
	for _, n := range []string{"1", "2"} {
		_, token := ask("10.0.0."+n, "PUT", "/latest/api/token", ttl)
		header := map[string]string{"X-aws-ec2-metadata-token": token}
		if status, body := ask("10.0.0."+n, "GET", "/latest/meta-data/instance-id", header); status != 200 || body != "i-"+n {
			t.Errorf("instance %s reads %d, %q", n, status, body)
		}
		other := map[string]string{"1": "10.0.0.2", "2": "10.0.0.1"}[n]
		if status, body := ask(other, "GET", "/latest/meta-data/instance-id", header); status != 401 {
			t.Errorf("the other one with the token of %s reads %d, %q, want 401", n, status, body)
		}
	}
	if status, _ := ask("10.0.0.3", "PUT", "/latest/api/token", ttl); status != 404 {
		t.Errorf("a stranger gets %d, want 404", status)
	}
}

func TestTheSDKReadsIt(t *testing.T) {
	t.Parallel()
	client := imds.New(imds.Options{Endpoint: serve(t, region.For(instance()))})
	document, err := client.GetInstanceIdentityDocument(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := document.InstanceID+" "+document.PrivateIP+" "+document.Region, "i-0123456789abcdef0 10.0.0.7 eu-west-1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
