// Package region is an AWS region in one process: good enough that the Pulumi
// engine, the bootstrap and the Lambda function of this project, unchanged,
// cannot tell.
//
// It has the services that a cluster needs (see the packages below this one,
// each of which says what it models and what it does not) behind one endpoint,
// which tells them apart by the signature's service name. IAM policies are
// enforced: a call that a role does not allow is denied. Instances are
// processes with a loopback address and a disk of their own, whose user data
// really runs; functions are processes, too; volumes are files. Releases of
// EtcFS and etcd are served over HTTP.
//
// In general not modelled: signatures are not verified, prices and quotas
// beyond those that limit one cluster, eventual consistency unless a fault
// brings it, and whatever a call asks for that its service does not know:
// that is refused by name, never ignored.
//
// Several regions can run at once, in one process and in several: each holds a
// loopback subnet of its own. A region leaves nothing behind: no process, no
// file outside of its work directory.
package region

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/autoscaling"
	"github.com/etcfs/pulumi-etcfs/tests/region/cloudwatch"
	"github.com/etcfs/pulumi-etcfs/tests/region/dynamodb"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
	"github.com/etcfs/pulumi-etcfs/tests/region/events"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
	"github.com/etcfs/pulumi-etcfs/tests/region/lambda"
	"github.com/etcfs/pulumi-etcfs/tests/region/logs"
	"github.com/etcfs/pulumi-etcfs/tests/region/process"
	"github.com/etcfs/pulumi-etcfs/tests/region/release"
	"github.com/etcfs/pulumi-etcfs/tests/region/s3"
	"github.com/etcfs/pulumi-etcfs/tests/region/sqs"
	"github.com/etcfs/pulumi-etcfs/tests/region/ssm"
	"github.com/etcfs/pulumi-etcfs/tests/region/standin/etcfs"
	"github.com/etcfs/pulumi-etcfs/tests/region/sts"
)

// Config is the wish for a region.
type Config struct {
	// WorkDir holds everything that the region writes. It must exist and be
	// empty; the region does not remove it.
	WorkDir string
	// Computers are what instances run on, instead of processes. The region
	// serves at their gateway, and closes them when it ends.
	Computers Computers
	// Standin is the stand-in program (standin/cmd/standin) that processes find
	// in place of the system's own commands.
	Standin string
	// Tools is the folder of the etcd and etcdctl binaries that are released
	// here.
	Tools string

	// Region is the region's name, eu-west-1 when it is empty.
	Region string
	// Account is the account's ID, 123456789012 when it is empty.
	Account string

	// EtcFS is the release of EtcFS that is published, 0.36.0 when its version
	// is empty. More can be published later through Releases.
	EtcFS etcfs.Release
	// EtcdTag is the tag of the etcd release that Tools holds, v3.6.16 when it
	// is empty.
	EtcdTag string

	// AgentDelay is how long after its boot a process's SSM agent registers.
	AgentDelay time.Duration
	// InstanceStore gives every process a local NVMe disk besides its volumes.
	InstanceStore bool
	// InvocationLag is how long the invocation of a command does not exist yet
	// after the command was sent.
	InvocationLag time.Duration
	// RetryIntervals are the waits before the second and the third try of an
	// asynchronous invocation of a function; AWS's own, one and two minutes,
	// when they are zero.
	RetryIntervals [2]time.Duration

	// Logger gets what the region does; nil is silence.
	Logger *slog.Logger
}

// Computers are a kind of machines for a region's instances.
type Computers interface {
	ec2.Machines
	// Gateway is the address that the machines reach their region at. It can be
	// listened on before there is any machine.
	Gateway() string
	// Close ends every machine and refuses new ones.
	Close() error
}

// Region is a region that runs.
type Region struct {
	IAM         *iam.Service
	EC2         *ec2.Service
	AutoScaling *autoscaling.Service
	DynamoDB    *dynamodb.DB
	S3          *s3.Store
	SSM         *ssm.Manager
	Events      *events.Bus
	Lambda      *lambda.Functions
	Logs        *logs.Logs
	SQS         *sqs.Queues
	CloudWatch  *cloudwatch.Alarms
	// Machines are the instances' computers, nil with Config.Computers.
	Machines *process.Machines
	// Releases serves releases of EtcFS and etcd.
	Releases *release.Server

	config   Config
	network  *process.Network // nil with Config.Computers
	gateway  string
	server   *api.Server
	endpoint *http.Server
	mirror   *http.Server
	serving  sync.WaitGroup

	closing sync.Once
	closed  error
}

// New starts a region. Close ends it.
func New(ctx context.Context, config Config) (_ *Region, err error) {
	config.Region = cmp.Or(config.Region, "eu-west-1")
	config.Account = cmp.Or(config.Account, "123456789012")
	config.EtcdTag = cmp.Or(config.EtcdTag, "v3.6.16")
	if config.EtcFS.Version == "" {
		config.EtcFS = etcfs.Release{Version: "0.36.0", Config: true, VolumeID: true}
	}
	if config.RetryIntervals == [2]time.Duration{} {
		config.RetryIntervals = [2]time.Duration{time.Minute, 2 * time.Minute}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Region{config: config}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close(context.WithoutCancel(ctx)))
		}
	}()
	if config.Computers != nil {
		r.gateway = config.Computers.Gateway()
	} else {
		if r.network, err = process.Reserve(); err != nil {
			return nil, fmt.Errorf("reserve a loopback subnet: %w", err)
		}
		r.gateway = r.network.Gateway()
	}
	if err := r.publish(); err != nil {
		return nil, err
	}
	r.IAM = iam.New(config.Account, config.Region)
	r.server = &api.Server{Identify: r.IAM.Identify, Authorizer: r.IAM}
	if r.endpoint, err = r.serve(ctx, r.server); err != nil {
		return nil, fmt.Errorf("serve the AWS endpoint: %w", err)
	}
	if r.mirror, err = r.serve(ctx, r.Releases); err != nil {
		return nil, fmt.Errorf("serve the releases: %w", err)
	}
	if err := r.openServices(); err != nil {
		return nil, err
	}
	config.Logger.Info("region runs", "region", config.Region, "endpoint", r.Endpoint(), "releases", r.ReleasesURL())
	return r, nil
}

// publish makes the releases that the region starts with.
func (r *Region) publish() error {
	r.Releases = &release.Server{}
	if err := r.Releases.PublishEtcFS(r.config.EtcFS); err != nil {
		return fmt.Errorf("publish EtcFS: %w", err)
	}
	archives, err := r.folder("archives")
	if err != nil {
		return err
	}
	etcd, etcdctl := filepath.Join(r.config.Tools, "etcd"), filepath.Join(r.config.Tools, "etcdctl")
	if err := r.Releases.PublishEtcd(r.config.EtcdTag, etcd, etcdctl, archives); err != nil {
		return fmt.Errorf("publish etcd: %w", err)
	}
	return nil
}

// openServices makes the services and puts them behind the endpoint.
func (r *Region) openServices() error {
	account, name, logger := r.config.Account, r.config.Region, r.config.Logger
	volumes, err := r.folder("volumes")
	if err != nil {
		return err
	}
	functions, err := r.folder("functions")
	if err != nil {
		return err
	}
	r.DynamoDB = dynamodb.New(dynamodb.Config{Account: account, Region: name})
	r.S3 = s3.New(s3.Config{Region: name})
	r.Logs = logs.New(logs.Config{Account: account, Region: name})
	r.SQS = sqs.New(sqs.Config{Account: account, Region: name, Authorizer: r.IAM})
	r.CloudWatch = cloudwatch.New(cloudwatch.Config{Account: account, Region: name, Metrics: r.SQS.Metric})
	r.Lambda = lambda.New(lambda.Config{
		Account: account, Region: name, Directory: functions, Address: r.gateway, Endpoint: r.Endpoint(),
		Roles: r.IAM, Authorizer: r.IAM, Logs: r.Logs, Queues: r.SQS, RetryIntervals: r.config.RetryIntervals, Logger: logger,
	})
	r.Events = events.New(events.Config{Account: account, Region: name, Functions: r.Lambda, Queues: r.SQS, Logger: logger})
	machines, err := r.openMachines()
	if err != nil {
		return fmt.Errorf("prepare the machines: %w", err)
	}
	r.EC2, err = ec2.New(ec2.Config{
		Region: name, AccountID: account, Directory: volumes, Machines: machines, IAM: r.IAM, Events: r.Events, Logger: logger,
	})
	if err != nil {
		return fmt.Errorf("open EC2: %w", err)
	}
	r.AutoScaling = autoscaling.New(autoscaling.Config{Region: name, AccountID: account, EC2: r.EC2, Events: r.Events, Logger: logger})
	r.SSM = ssm.New(ssm.Config{
		Account: account, Region: name, Instances: r.EC2, Parameters: r.EC2.PublicParameters(), Lag: r.config.InvocationLag,
	})
	r.server.Register(
		r.IAM.API(), sts.New(account, r.IAM), r.EC2.API(), r.AutoScaling.API(), r.DynamoDB.Service(), r.S3.Service(),
		r.SSM.Service(), r.Events.Service(), r.Lambda.Service(), r.Logs.Service(),
		r.SQS.Service(), r.CloudWatch.Service(),
	)
	return nil
}

// openMachines prepares what instances run on.
func (r *Region) openMachines() (_ ec2.Machines, err error) {
	if r.config.Computers != nil {
		return r.config.Computers, nil
	}
	r.Machines, err = process.New(process.Config{
		Network: r.network, WorkDir: filepath.Join(r.config.WorkDir, "machines"), Standin: r.config.Standin, Endpoint: r.Endpoint(),
		AgentDelay: r.config.AgentDelay, InstanceStore: r.config.InstanceStore, Logger: r.config.Logger,
	})
	return r.Machines, err
}

func (r *Region) folder(name string) (string, error) {
	path := filepath.Join(r.config.WorkDir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("make the work directory: %w", err)
	}
	return path, nil
}

// serve answers HTTP on a port of the region's own address.
func (r *Region) serve(ctx context.Context, handler http.Handler) (*http.Server, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", net.JoinHostPort(r.gateway, "0"))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, Addr: listener.Addr().String(), ReadHeaderTimeout: time.Minute}
	r.serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.config.Logger.Error("serve", "address", server.Addr, "error", err)
		}
	})
	return server, nil
}

// Endpoint is the URL of the AWS endpoint of all services.
func (r *Region) Endpoint() string { return "http://" + r.endpoint.Addr }

// ReleasesURL is the base URL of the releases, in the layout of github.com.
func (r *Region) ReleasesURL() string { return "http://" + r.mirror.Addr }

// Handler answers what Endpoint does, for who serves it under further names.
func (r *Region) Handler() http.Handler { return r.server }

// Environment is what the AWS CLI and Pulumi need in their environment to work
// in the region as its administrator: NAME=value. It keeps them off the user's
// own AWS configuration and off any metadata service.
func (r *Region) Environment() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + r.Endpoint(),
		"AWS_REGION=" + r.config.Region,
		"AWS_DEFAULT_REGION=" + r.config.Region,
		"AWS_ACCESS_KEY_ID=" + iam.AdministratorAccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + iam.AdministratorSecretAccessKey,
		"AWS_SESSION_TOKEN=",
		"AWS_PROFILE=",
		"AWS_CONFIG_FILE=" + os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// AWSConfig configures SDK clients of the administrator.
func (r *Region) AWSConfig() aws.Config {
	return aws.Config{
		Region:       r.config.Region,
		BaseEndpoint: aws.String(r.Endpoint()),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: iam.AdministratorAccessKeyID, SecretAccessKey: iam.AdministratorSecretAccessKey}, nil
		}),
	}
}

// Intercept puts an interceptor around every call from now on, and returns the
// function that takes it away again. Faults of the control plane are made of
// these.
func (r *Region) Intercept(i api.Interceptor) (remove func()) { return r.server.Intercept(i) }

// SetClock says how far the region's clock runs ahead of a caller's; nil is not
// at all. See [api.Server.SetClock].
func (r *Region) SetClock(ahead func(api.Principal) time.Duration) { r.server.SetClock(ahead) }

// Kill ends an instance's machine at once, as a power failure does, and
// without telling anybody: its Auto Scaling Group finds out and replaces it.
func (r *Region) Kill(instanceID string) error { return r.EC2.Crash(instanceID) }

// Close ends every machine and function and whatever else runs, and gives the
// region's address back. Calling it again changes nothing.
func (r *Region) Close(ctx context.Context) error {
	r.closing.Do(func() { r.closed = r.close(ctx) })
	return r.closed
}

// close works at any stage of New.
func (r *Region) close(ctx context.Context) error {
	var problems []error
	if r.AutoScaling != nil {
		r.AutoScaling.Close()
	}
	if r.SSM != nil {
		r.SSM.Close()
	}
	if r.Lambda != nil {
		r.Lambda.Close()
	}
	if r.Machines != nil {
		problems = append(problems, r.Machines.Close())
	}
	if r.config.Computers != nil {
		problems = append(problems, r.config.Computers.Close())
	}
	if r.EC2 != nil {
		problems = append(problems, r.EC2.Close(ctx))
	}
	for _, server := range []*http.Server{r.endpoint, r.mirror} {
		if server != nil {
			problems = append(problems, server.Close())
		}
	}
	r.serving.Wait() // a listener that was about to be served is closed by then, too
	if r.network != nil {
		problems = append(problems, r.network.Close())
	}
	return errors.Join(problems...)
}
