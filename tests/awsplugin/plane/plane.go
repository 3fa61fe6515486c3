// Package plane is the control plane of a region: all of its services, on
// machines in memory that boot at once and do nothing. It is for tests of what
// provisions resources; what runs on them is tested in a whole region.
package plane

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/autoscaling"
	"github.com/etcfs/pulumi-etcfs/tests/region/cloudwatch"
	"github.com/etcfs/pulumi-etcfs/tests/region/dynamodb"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
	"github.com/etcfs/pulumi-etcfs/tests/region/lambda"
	"github.com/etcfs/pulumi-etcfs/tests/region/logs"
	"github.com/etcfs/pulumi-etcfs/tests/region/s3"
	"github.com/etcfs/pulumi-etcfs/tests/region/sqs"
	"github.com/etcfs/pulumi-etcfs/tests/region/ssm"
	"github.com/etcfs/pulumi-etcfs/tests/region/sts"
)

// Account is the account that everything belongs to.
const Account = fake.Account

// Plane is a control plane that runs.
type Plane struct {
	// Region is its name.
	Region string
	// URL is the endpoint of all services.
	URL string
	// Machines are the instances' computers.
	Machines *fake.Machines

	server *api.Server
	mu     sync.Mutex
	calls  []string
}

// New serves a region's services until the test ends.
func New(t testing.TB, region string) *Plane {
	t.Helper()
	p := &Plane{Region: region, Machines: &fake.Machines{}}
	logger := slog.New(slog.DiscardHandler)
	identities := iam.New(Account, region)
	p.server = &api.Server{Identify: identities.Identify, Authorizer: identities}
	p.server.Intercept(p.record)
	listener := httptest.NewServer(p.server)
	p.URL = listener.URL

	logging := logs.New(logs.Config{Account: Account, Region: region})
	queues := sqs.New(sqs.Config{Account: Account, Region: region, Authorizer: identities})
	alarms := cloudwatch.New(cloudwatch.Config{Account: Account, Region: region, Metrics: queues.Metric})
	functions := lambda.New(lambda.Config{
		Account: Account, Region: region, Directory: t.TempDir(), Address: "127.0.0.1", Endpoint: p.URL,
		Roles: identities, Authorizer: identities, Logs: logging, Queues: queues, Logger: logger,
		RetryIntervals: [2]time.Duration{time.Minute, 2 * time.Minute},
	})
	bus := events.New(events.Config{Account: Account, Region: region, Functions: functions, Queues: queues, Logger: logger})
	compute, err := ec2.New(ec2.Config{
		Region: region, AccountID: Account, Directory: t.TempDir(), Machines: p.Machines, IAM: identities, Events: bus, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	groups := autoscaling.New(autoscaling.Config{Region: region, AccountID: Account, EC2: compute, Events: bus, Logger: logger})
	commands := ssm.New(ssm.Config{Account: Account, Region: region, Instances: compute, Parameters: compute.PublicParameters()})
	p.server.Register(
		identities.API(), sts.New(Account, identities), compute.API(), groups.API(), bus.Service(), functions.Service(), commands.Service(),
		logging.Service(), queues.Service(), alarms.Service(), dynamodb.New(dynamodb.Config{Account: Account, Region: region}).Service(), s3.New(s3.Config{Region: region}).Service(),
	)
	t.Cleanup(func() {
		groups.Close()
		commands.Close()
		functions.Close()
		if err := compute.Close(context.Background()); err != nil {
			t.Error(err)
		}
		listener.Close()
	})
	return p
}

// Environment is what the AWS CLI and Pulumi need in their environment to work
// here as the administrator: name to value.
func (p *Plane) Environment() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL":            p.URL,
		"AWS_REGION":                  p.Region,
		"AWS_ACCESS_KEY_ID":           iam.AdministratorAccessKeyID,
		"AWS_SECRET_ACCESS_KEY":       iam.AdministratorSecretAccessKey,
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED":   "true",
	}
}

// Config configures SDK clients of the administrator.
func (p *Plane) Config() aws.Config {
	return aws.Config{
		Region:       p.Region,
		BaseEndpoint: aws.String(p.URL),
		Credentials:  credentials.NewStaticCredentialsProvider(iam.AdministratorAccessKeyID, iam.AdministratorSecretAccessKey, ""),
	}
}

// Refuse makes an operation fail until remove is called.
func (p *Plane) Refuse(operation string, with error) (remove func()) {
	return p.Intercept(func(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
		if c.Action == operation {
			return nil, with
		}
		return next(ctx)
	})
}

// Intercept puts an interceptor around every call from now on.
func (p *Plane) Intercept(i api.Interceptor) (remove func()) { return p.server.Intercept(i) }

func (p *Plane) record(ctx context.Context, c *api.Call, next func(context.Context) (any, error)) (any, error) {
	p.mu.Lock()
	p.calls = append(p.calls, c.Action)
	p.mu.Unlock()
	return next(ctx)
}

// Changes are the operations called so far that are more than a look, in order.
func (p *Plane) Changes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var changes []string
next:
	for _, call := range p.calls {
		for _, look := range []string{"Describe", "Get", "Head", "List"} {
			if strings.HasPrefix(call, look) {
				continue next
			}
		}
		changes = append(changes, call)
	}
	return changes
}
