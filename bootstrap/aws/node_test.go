package aws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
)

const (
	volumeID = "vol-0123456789abcdef0"
	self     = "i-00000000000000001"
	other    = "i-00000000000000002"
	zone     = "eu-west-1a"
)

// endpoint serves the Query protocol: each call is answered by a function from
// its form to a status and a body.
func endpoint(t *testing.T, answer func(form map[string]string) (int, string)) sdk.Config {
	t.Helper()
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		form := map[string]string{}
		for name := range r.Form {
			form[name] = r.Form.Get(name)
		}
		status, body := answer(form)
		if status == 0 {
			panic(http.ErrAbortHandler) // the answer is lost
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return sdk.Config{
		Region:       "eu-west-1",
		BaseEndpoint: sdk.String(server.URL),
		Credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "secret"}, nil
		}),
		Retryer: func() sdk.Retryer { return sdk.NopRetryer{} },
	}
}

// ec2Error is an error as EC2 sends it.
func ec2Error(code, message string) string {
	return fmt.Sprintf("<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>1</RequestID></Response>", code, message)
}

// cloud is one volume in EC2.
type cloud struct {
	state       string
	multiAttach bool
	zone        string
	attachments [][3]string // instance, state, device
	others      [][3]string // on another volume
	refusals    [][2]string // code and message of the next AttachVolume calls
	lost        bool        // whether the answer of the next one is lost
	devices     []string    // of all AttachVolume calls
}

func newCloud() *cloud { return &cloud{state: "available", multiAttach: true, zone: zone} }

func (c *cloud) answer(form map[string]string) (int, string) {
	switch form["Action"] {
	case "DescribeVolumes":
		volumes := ""
		if form["VolumeId.1"] == volumeID || form["Filter.1.Value.1"] == self {
			volumes += c.volume(volumeID, c.attachments)
		}
		if form["Filter.1.Value.1"] == self {
			volumes += c.volume("vol-other", c.others)
		}
		return 200, "<DescribeVolumesResponse><volumeSet>" + volumes + "</volumeSet></DescribeVolumesResponse>"
	case "AttachVolume":
		c.devices = append(c.devices, form["Device"])
		if len(c.refusals) > 0 {
			refusal := c.refusals[0]
			c.refusals = c.refusals[1:]
			return 400, ec2Error(refusal[0], refusal[1])
		}
		c.state = "in-use"
		c.attachments = append(c.attachments, [3]string{form["InstanceId"], "attaching", form["Device"]})
		if c.lost {
			return 0, ""
		}
		return 200, "<AttachVolumeResponse><status>attaching</status></AttachVolumeResponse>"
	}
	return 400, ec2Error("InvalidAction", form["Action"])
}

func (c *cloud) volume(id string, attachments [][3]string) string {
	items := ""
	for _, a := range attachments {
		items += fmt.Sprintf("<item><volumeId>%s</volumeId><instanceId>%s</instanceId><status>%s</status><device>%s</device></item>", id, a[0], a[1], a[2])
	}
	return fmt.Sprintf("<item><volumeId>%s</volumeId><availabilityZone>%s</availabilityZone><status>%s</status><multiAttachEnabled>%t</multiAttachEnabled><attachmentSet>%s</attachmentSet></item>",
		id, c.zone, c.state, c.multiAttach, items)
}

func newVolume(t *testing.T, answer func(map[string]string) (int, string)) *aws.Volume {
	return &aws.Volume{API: ec2.NewFromConfig(endpoint(t, answer)), ID: volumeID, Logger: slog.New(slog.DiscardHandler)}
}

func TestAttachStepByStep(t *testing.T) {
	t.Parallel()
	c := newCloud()
	c.attachments = [][3]string{{other, "attached", "/dev/sdf"}}
	c.others = [][3]string{{self, "attached", "/dev/sdf"}, {other, "attached", "/dev/sdg"}}
	v := newVolume(t, c.answer)
	attach := func() error { return v.Attach(t.Context(), self, zone) }
	attached := func(want bool) {
		t.Helper()
		if got, err := v.Attached(t.Context(), self); err != nil || got != want {
			t.Errorf("attached: got %t, %v, want %t", got, err, want)
		}
	}

	attached(false) // although the volume is in use
	if err := attach(); !errors.Is(err, aws.ErrAttaching) {
		t.Errorf("the first step: got %v, want %v", err, aws.ErrAttaching)
	}
	attached(false)
	if err := attach(); !errors.Is(err, aws.ErrAttaching) {
		t.Errorf("while attaching: got %v, want %v", err, aws.ErrAttaching)
	}
	c.attachments[1][1] = "attached"
	attached(true)
	if err := attach(); err != nil {
		t.Errorf("once attached: %v", err)
	}
	if got, want := strings.Join(c.devices, " "), "/dev/sdg"; got != want {
		t.Errorf("asked for the devices %s, want %s once: sdf is this instance's, sdg another's", got, want)
	}
	list, err := v.Attachments(t.Context())
	if err != nil || len(list) != 2 || list[1] != (aws.Attachment{InstanceID: self, State: "attached"}) {
		t.Errorf("got attachments %v, %v", list, err)
	}
}

func TestAttachWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	c := newCloud()
	c.lost = true
	v := newVolume(t, c.answer)
	err := v.Attach(t.Context(), self, zone)
	if _, refused := errors.AsType[*aws.RefusedError](err); err == nil || refused {
		t.Fatalf("got %v, want an error that another look settles", err)
	}
	c.attachments[0][1] = "attached"
	if err := v.Attach(t.Context(), self, zone); err != nil || len(c.devices) != 1 {
		t.Errorf("got %v after %d calls, want success without a second one", err, len(c.devices))
	}
}

func TestAttachRefusals(t *testing.T) {
	t.Parallel()
	sixteen := make([][3]string, 16)
	for i := range sixteen {
		sixteen[i] = [3]string{fmt.Sprintf("i-%017x", i+16), "attached", "/dev/sdf"}
	}
	var full [][3]string
	for letter := 'f'; letter <= 'p'; letter++ {
		full = append(full, [3]string{self, "attached", "/dev/sd" + string(letter)})
	}
	for name, test := range map[string]struct {
		code, message string
		prepare       func(*cloud)
		retry         bool
		want          string
	}{
		"instance still pending":  {code: "IncorrectState", message: "Instance 'i-1' is not 'running'.", retry: true, want: "IncorrectState"},
		"volume still creating":   {prepare: func(c *cloud) { c.state = "creating" }, retry: true, want: "still being created"},
		"throttled":               {code: "RequestLimitExceeded", message: "slow down", retry: true, want: "RequestLimitExceeded"},
		"volume not visible yet":  {code: "InvalidVolume.NotFound", message: "no", retry: true, want: "NotFound"},
		"policy not visible yet":  {code: "UnauthorizedOperation", message: "no", retry: true, want: "UnauthorizedOperation"},
		"in use, perhaps by self": {code: "VolumeInUse", message: "vol is already attached to an instance", retry: true, want: "VolumeInUse"},
		"sixteen have it":         {prepare: func(c *cloud) { c.attachments = sixteen }, retry: true, want: "all 16 attachments"},
		"detaching":               {prepare: func(c *cloud) { c.attachments = [][3]string{{self, "detaching", "/dev/sdf"}} }, retry: true, want: "detaching"},
		"service unavailable":     {code: "Unavailable", message: "try later", retry: true, want: "Unavailable"},

		"instance type is full": {code: "AttachmentLimitExceeded", message: "too many", want: "no room for another volume"},
		"another zone":          {prepare: func(c *cloud) { c.zone = "eu-west-1b" }, want: "is in eu-west-1b and this instance in eu-west-1a"},
		"another zone, by code": {code: "InvalidVolume.ZoneMismatch", message: "zone", want: "ZoneMismatch"},
		"wrong parameter":       {code: "InvalidParameterValue", message: "device is invalid", want: "device is invalid"},
		"not a Nitro instance":  {code: "UnsupportedOperation", message: "Nitro only", want: "Nitro only"},
		"no Multi-Attach": {
			prepare: func(c *cloud) { c.multiAttach, c.attachments = false, [][3]string{{other, "attached", "/dev/sdf"}} },
			want:    "does not have Multi-Attach enabled",
		},
		"deleted":         {prepare: func(c *cloud) { c.state = "deleting" }, want: "is in state deleting"},
		"no device names": {prepare: func(c *cloud) { c.others = full }, want: "from /dev/sdf to /dev/sdp is in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud()
			if test.prepare != nil {
				test.prepare(c)
			}
			if test.code != "" {
				c.refusals = [][2]string{{test.code, test.message}}
			}
			err := newVolume(t, c.answer).Attach(t.Context(), self, zone)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got error %v, want one with %q", err, test.want)
			}
			if _, refused := errors.AsType[*aws.RefusedError](err); refused == test.retry {
				t.Errorf("got %v: to be tried again is %t, want %t", err, !refused, test.retry)
			}
		})
	}
}

func TestAttachTriesTheNextDeviceName(t *testing.T) {
	t.Parallel()
	c := newCloud()
	taken := [2]string{"InvalidParameterValue", "Attachment point /dev/sdf is already in use"}
	c.refusals = [][2]string{taken, taken}
	if err := newVolume(t, c.answer).Attach(t.Context(), self, zone); !errors.Is(err, aws.ErrAttaching) {
		t.Fatal(err)
	}
	if got, want := strings.Join(c.devices, " "), "/dev/sdf /dev/sdg /dev/sdh"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	c := newCloud()
	denied := [2]string{"UnauthorizedOperation", "You are not authorized to perform this operation."}
	c.refusals = [][2]string{denied, denied}
	v := newVolume(t, c.answer)
	err := v.Attach(t.Context(), self, zone)
	if _, refused := errors.AsType[*aws.RefusedError](err); refused || err == nil {
		t.Errorf("the first time: got %v, want an error to be tried again", err)
	}
	v.Patience.Settle = time.Nanosecond
	err = v.Attach(t.Context(), self, zone)
	if _, refused := errors.AsType[*aws.RefusedError](err); !refused || !strings.Contains(err.Error(), "not authorized") {
		t.Errorf("when it persists: got %v, want a refusal with AWS's words", err)
	}
}

// metadata is an instance metadata service that speaks version 2 only.
func metadata(t *testing.T, document any) *imds.Client {
	t.Helper()
	const token = "token"
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		_, _ = io.WriteString(w, token)
	})
	mux.HandleFunc("GET /latest/dynamic/instance-identity/document", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Aws-Ec2-Metadata-Token") != token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := json.NewEncoder(w).Encode(document); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return imds.New(imds.Options{Endpoint: server.URL, Retryer: sdk.NopRetryer{}})
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	got, err := aws.Metadata{API: metadata(t, map[string]string{
		"instanceId": self, "privateIp": "10.0.0.5", "availabilityZone": zone, "region": "eu-west-1", "accountId": "123456789012",
	})}.Identity(t.Context())
	want := aws.Identity{InstanceID: self, PrivateIP: "10.0.0.5", AvailabilityZone: zone, Region: "eu-west-1", AccountID: "123456789012"}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := (aws.Metadata{API: metadata(t, map[string]string{"instanceId": self})}).Identity(t.Context()); err == nil {
		t.Error("a document without an address was accepted")
	}
}

func TestReportUnhealthy(t *testing.T) {
	t.Parallel()
	var forms []map[string]string
	report := func(answers ...string) error {
		forms = nil
		api := autoscaling.NewFromConfig(endpoint(t, func(form map[string]string) (int, string) {
			forms = append(forms, form)
			if n := len(forms) - 1; n < len(answers) {
				return 400, fmt.Sprintf("<ErrorResponse><Error><Code>%s</Code><Message>m</Message></Error></ErrorResponse>", answers[n])
			}
			return 200, "<SetInstanceHealthResponse></SetInstanceHealthResponse>"
		}))
		return aws.Health{API: api}.ReportUnhealthy(t.Context(), self)
	}
	if err := report("ResourceContention"); err != nil || len(forms) != 2 {
		t.Errorf("got %v after %d calls, want success in the second", err, len(forms))
	}
	for name, want := range map[string]string{"InstanceId": self, "HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": "false"} {
		if got := forms[0][name]; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if err := report("ValidationError"); err == nil || len(forms) != 1 {
		t.Errorf("got %v after %d calls, want an error after 1", err, len(forms))
	}
}

func TestLifecycleStates(t *testing.T) {
	t.Parallel()
	api := autoscaling.NewFromConfig(endpoint(t, func(form map[string]string) (int, string) {
		id, next := form["InstanceIds.member.1"], "<NextToken>more</NextToken>"
		if form["NextToken"] != "" {
			id, next = form["InstanceIds.member.2"], ""
		}
		return 200, "<DescribeAutoScalingInstancesResponse><DescribeAutoScalingInstancesResult>" + next +
			"<AutoScalingInstances><member><InstanceId>" + id + "</InstanceId><LifecycleState>InService</LifecycleState><HealthStatus>HEALTHY</HealthStatus></member></AutoScalingInstances>" +
			"</DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>"
	}))
	got, err := aws.Lifecycle{API: api}.States(t.Context(), []string{self, other})
	want := aws.GroupState{Lifecycle: "InService", Health: "HEALTHY"}
	if err != nil || len(got) != 2 || got[self] != want || got[other] != want {
		t.Errorf("got %v, %v, want both instances of both pages", got, err)
	}
}
