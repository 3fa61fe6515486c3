package boot_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/supervisor"
)

const bucket, readyHook = "etcfs-demo", "demo-ready"

// object is the object that the stub fetches.
var object = aws.String("etcfs-bootstrap")

// stub is the component's own user data without the settings, less patient.
func (w *world) stub() string {
	w.t.Helper()
	text := string(must(os.ReadFile("../../provider/asg/userdata.sh"))(w.t))
	impatient := strings.Replace(text, "\npatience=300 ", "\npatience=0 ", 1)
	if impatient == text {
		w.t.Fatal("the stub does not say how patient it is")
	}
	sum := sha256.Sum256(must(os.ReadFile(w.binary))(w.t))
	return fmt.Sprintf("bootstrap_url=s3://%s/%s\nbootstrap_sha256=%s\n%s", bucket, *object, hex.EncodeToString(sum[:]), impatient)
}

// publish puts the binary where the stub fetches it.
func (w *world) publish() {
	w.t.Helper()
	file := must(os.Open(w.binary))(w.t)
	defer file.Close()
	must(s3.NewFromConfig(w.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true }).PutObject(w.t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(bucket), Key: object, Body: file,
	}))(w.t)
}

// answers are what instances have told their group of themselves.
type answers struct {
	mu   sync.Mutex
	told []string // the call and its result, in order
}

func (a *answers) call(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
	result, err := next(ctx)
	if c.Service.Name == "autoscaling" && err == nil {
		if said := c.Params.Get("LifecycleActionResult") + c.Params.Get("HealthStatus"); said != "" {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.told = append(a.told, c.Params.Get("InstanceId")+" "+said)
		}
	}
	return result, err
}

func (a *answers) so() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.told)
}

// An instance that cannot fetch the bootstrap is replaced at once, also when
// its launch waits for a hook with hours left; one that is to be kept stays.
// Nodes that find the binary come up.
func TestBinaryCannotBeFetched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hook   string
		policy settings.FailurePolicy
		want   string // what the first instance tells its group
		next   string // what the one tells that comes up
	}{
		"without a hook": {"", settings.FailureReplace, "Unhealthy", ""},
		"with the hook":  {readyHook, settings.FailureReplace, "ABANDON", "CONTINUE"},
		"kept":           {"", settings.FailureKeep, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var told answers
			w.Intercept(told.call)
			must(s3.NewFromConfig(w.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true }).CreateBucket(t.Context(), &s3.CreateBucketInput{
				Bucket: aws.String(bucket), CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: s3types.BucketLocationConstraintEuWest1},
			}))(t)
			w.settings.LaunchHook, w.settings.OnBootstrapFailure = c.hook, c.policy
			var hooks []autoscalingtypes.LifecycleHookSpecification
			if c.hook != "" {
				hooks = append(hooks, autoscalingtypes.LifecycleHookSpecification{
					LifecycleHookName: &c.hook, LifecycleTransition: aws.String("autoscaling:EC2_INSTANCE_LAUNCHING"),
					DefaultResult: aws.String("ABANDON"), HeartbeatTimeout: aws.Int32(7200),
				})
			}
			w.launchWith(1, w.stub(), hooks...)
			first := w.EC2.Instances()[0].ID // the group has launched it at once
			if c.policy == settings.FailureKeep {
				w.kept(first)
				if got := told.so(); len(got) > 0 {
					t.Errorf("the group was told %q, want nothing", got)
				}
				return
			}
			if err := eventually(t.Context(), func() error {
				if len(told.so()) == 0 {
					return errors.New("the group was told nothing")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			w.publish()
			after := w.settle(1)
			if has(after, first) {
				t.Errorf("%s is still there", first)
			}
			got := told.so()
			if want := first + " " + c.want; got[0] != want {
				t.Errorf("the group was told %q, want first %q", got, want)
			}
			if want := after.Nodes[0].InstanceID + " " + c.next; c.next != "" && got[len(got)-1] != want {
				t.Errorf("the group was told %q, want at last %q", got, want)
			}
		})
	}
}

// kept waits until an instance's user data has ended without the binary, and
// checks that the instance runs on.
func (w *world) kept(instanceID string) {
	w.t.Helper()
	err := eventually(w.t.Context(), func() error {
		machine := w.Machines.Machine(instanceID)
		if machine == nil || !strings.Contains(machine.Console(), "gave up on s3://"+bucket) {
			return errors.New("the stub has not given up")
		}
		if _, code := w.run(instanceID, "test -e $ETCFS_ROOT"+supervisor.ResultFile); code != 0 {
			return errors.New("the user data has not ended")
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if instance, _ := w.EC2.Instance(instanceID); instance.State != ec2.StateRunning {
		w.t.Errorf("%s is %s, want it running for study", instanceID, instance.State)
	}
}
