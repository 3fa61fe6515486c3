package ssm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

const (
	document = "AWS-RunShellScript"
	plugin   = "aws:runShellScript"

	// Output beyond these is cut off.
	// https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_GetCommandInvocation.html
	maxOutput, maxErrors = 24000, 8000
	// maxPluginOutput is the limit of ListCommandInvocations.
	maxPluginOutput = 2500

	// stoppedExitCode is what the agent reports for a script that it killed.
	stoppedExitCode = 137
	// noExitCode is reported before a script has ended.
	noExitCode = -1

	maxDelivery, maxExecution = 2592000, 172800 // seconds
	defaultSeconds            = 3600            // of both
)

// invocation is a command on one instance.
type invocation struct {
	command, instance, comment string
	parameters                 map[string][]string
	deliverySeconds            int
	sent                       time.Time
	cancel                     context.CancelFunc

	mu             sync.Mutex
	status, detail string
	started, ended time.Time
	exitCode       int
	stdout, stderr string
}

func (i *invocation) start() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status, i.detail, i.started = "InProgress", "InProgress", time.Now()
}

func (i *invocation) finish(status, detail string, exitCode int, stdout, stderr string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status, i.detail, i.ended = status, detail, time.Now()
	i.exitCode, i.stdout, i.stderr = exitCode, stdout, stderr
}

func (m *Manager) sendCommand(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		DocumentName, DocumentVersion, Comment string
		InstanceIds                            []string
		Parameters                             map[string][]string
		TimeoutSeconds                         *int
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	name := in.DocumentName[strings.LastIndex(in.DocumentName, "/")+1:] // it may be an ARN
	if err := c.AuthorizeOn("arn:aws:ssm:" + m.config.Region + "::document/" + name); err != nil {
		return nil, err
	}
	if len(in.InstanceIds) < 1 || len(in.InstanceIds) > 50 {
		return nil, invalid("InstanceIds must have 1 to 50 members")
	}
	for _, id := range in.InstanceIds {
		if err := m.authorizeInstance(c, id); err != nil {
			return nil, err
		}
	}
	if name != document {
		return nil, refuse("InvalidDocument", "this region has no document %s", in.DocumentName)
	}
	if len(in.Comment) > 100 {
		return nil, invalid("Comment is longer than 100 characters")
	}
	delivery := defaultSeconds
	if in.TimeoutSeconds != nil {
		if delivery = *in.TimeoutSeconds; delivery < 30 || delivery > maxDelivery {
			return nil, invalid("TimeoutSeconds %d is not from 30 to %d", delivery, maxDelivery)
		}
	}
	script, limit, err := readParameters(in.Parameters)
	if err != nil {
		return nil, err
	}
	targets := map[string]ec2.Machine{}
	var unusable []string
	for _, id := range in.InstanceIds {
		instance, _ := m.config.Instances.Instance(id) // one that is not there is not online
		if machine, ok := m.online(instance); ok {
			targets[id] = machine
		} else {
			unusable = append(unusable, id)
		}
	}
	if len(unusable) > 0 {
		return nil, refuse("InvalidInstanceId", "Instances [[%s]] not in a valid state for account %s", strings.Join(unusable, ", "), m.config.Account)
	}

	id, now := uuid.NewString(), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil, fmt.Errorf("send command: %w", m.ctx.Err())
	}
	for _, target := range slices.Sorted(maps.Keys(targets)) {
		ctx, cancel := context.WithCancel(m.ctx)
		i := &invocation{
			command: id, instance: target, comment: in.Comment, parameters: in.Parameters, deliverySeconds: delivery,
			sent: now, cancel: cancel, status: "Pending", detail: "Pending", exitCode: noExitCode,
		}
		m.invocations = append(m.invocations, i)
		m.wait.Go(func() {
			defer cancel()
			i.run(ctx, targets[target], script, limit)
		})
	}
	type command struct {
		CommandID         string `json:"CommandId"`
		DocumentName      string
		Comment           string
		InstanceIds       []string
		Parameters        map[string][]string
		RequestedDateTime float64
		ExpiresAfter      float64
		Status            string
		StatusDetails     string
		TargetCount       int
		TimeoutSeconds    int
	}
	return struct{ Command command }{command{
		CommandID: id, DocumentName: document, Comment: in.Comment, InstanceIds: in.InstanceIds, Parameters: in.Parameters,
		RequestedDateTime: seconds(now), ExpiresAfter: seconds(now.Add(time.Duration(delivery)*time.Second + limit)),
		Status: "Pending", StatusDetails: "Pending", TargetCount: len(targets), TimeoutSeconds: delivery,
	}}, nil
}

// authorizeInstance refuses a caller that may not send commands to an
// instance. Both families of tag keys are there: AWS's guide uses
// ssm:resourceTag.
func (m *Manager) authorizeInstance(c *api.Call, id string) error {
	context := map[string]string{}
	if instance, ok := m.config.Instances.Instance(id); ok {
		for key, value := range instance.Tags {
			context["ssm:resourceTag/"+key] = value
			context["aws:ResourceTag/"+key] = value
		}
	}
	return c.Authorize(api.Access{
		Action: "ssm:SendCommand", Resource: "arn:aws:ec2:" + m.config.Region + ":" + m.config.Account + ":instance/" + id, Context: context,
	})
}

// readParameters returns the script that AWS-RunShellScript makes of its
// parameters, and how long it may run.
// https://docs.aws.amazon.com/systems-manager/latest/userguide/documents-command-ssm-plugin-reference.html
func readParameters(parameters map[string][]string) (script string, limit time.Duration, err error) {
	limitSeconds := defaultSeconds
	for name, values := range parameters {
		switch name {
		case "commands":
			script = strings.Join(values, "\n") + "\n"
		case "workingDirectory":
			continue // below, before the commands
		case "executionTimeout":
			limitSeconds, err = strconv.Atoi(strings.Join(values, ""))
			if err != nil || limitSeconds < 1 || limitSeconds > maxExecution {
				return "", 0, refuse("InvalidParameters", "executionTimeout %q is not from 1 to %d", values, maxExecution)
			}
		default:
			return "", 0, refuse("InvalidParameters", "%s has no parameter %q", document, name)
		}
	}
	if strings.TrimSpace(script) == "" {
		return "", 0, refuse("InvalidParameters", "the parameter commands is required")
	}
	if directory := strings.Join(parameters["workingDirectory"], ""); directory != "" {
		script = "cd '" + strings.ReplaceAll(directory, "'", `'\''`) + "' || exit 1\n" + script
	}
	return script, time.Duration(limitSeconds) * time.Second, nil
}

// run runs the script on the machine and records how it went.
func (i *invocation) run(ctx context.Context, machine ec2.Machine, script string, limit time.Duration) {
	if ctx.Err() != nil {
		i.finish("Cancelled", "Cancelled", noExitCode, "", "")
		return
	}
	i.start()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := machine.Execute(limited, script)
	stdout, stderr := cut(result.Stdout, maxOutput), result.Stderr
	switch {
	case ctx.Err() != nil:
		i.finish("Cancelled", "Cancelled", stoppedExitCode, stdout, cut(stderr, maxErrors))
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		i.finish("TimedOut", "ExecutionTimedOut", stoppedExitCode, stdout, cut(stderr, maxErrors))
	case err != nil:
		// The agent died with its machine: nobody reports, and the command looks
		// as if it ran until its time is over.
		select {
		case <-ctx.Done():
			i.finish("Cancelled", "Cancelled", noExitCode, "", "")
		case <-time.After(limit + time.Duration(i.deliverySeconds)*time.Second):
			i.finish("TimedOut", "DeliveryTimedOut", noExitCode, "", "")
		}
	case result.ExitCode != 0:
		stderr = cut(stderr+fmt.Sprintf("\nfailed to run commands: exit status %d", result.ExitCode), maxErrors)
		i.finish("Failed", "Failed", result.ExitCode, stdout, stderr)
	default:
		i.finish("Success", "Success", 0, stdout, cut(stderr, maxErrors))
	}
}

const truncated = "\n---Output truncated---"

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit-len(truncated)] + truncated
}

// find returns the invocations of a command, on one instance unless it is "",
// that exist by now.
func (m *Manager) find(command, instance string) []*invocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*invocation
	for _, i := range m.invocations {
		if (command == "" || i.command == command) && (instance == "" || i.instance == instance) && time.Since(i.sent) >= m.config.Lag {
			found = append(found, i)
		}
	}
	return found
}

func (m *Manager) getCommandInvocation(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		CommandID  string `json:"CommandId"`
		InstanceID string `json:"InstanceId"`
		PluginName string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	if in.PluginName != "" && in.PluginName != plugin {
		return nil, refuse("InvalidPluginName", "The plugin name %s isn't valid.", in.PluginName)
	}
	if in.CommandID == "" || in.InstanceID == "" {
		return nil, invalid("CommandId and InstanceId are required")
	}
	found := m.find(in.CommandID, in.InstanceID)
	if len(found) == 0 {
		return nil, refuse("InvocationDoesNotExist", "The command ID and managed node ID you specified didn't match any invocations.")
	}
	i := found[0]
	i.mu.Lock()
	defer i.mu.Unlock()
	out := struct {
		CommandID              string `json:"CommandId"`
		InstanceID             string `json:"InstanceId"`
		Comment                string
		DocumentName           string
		PluginName             string
		Status                 string
		StatusDetails          string
		ResponseCode           int
		ExecutionStartDateTime string
		ExecutionElapsedTime   string
		ExecutionEndDateTime   string
		StandardOutputContent  string
		StandardErrorContent   string
	}{
		CommandID: i.command, InstanceID: i.instance, Comment: i.comment, DocumentName: document, PluginName: plugin,
		Status: i.status, StatusDetails: i.detail, ResponseCode: i.exitCode, StandardOutputContent: i.stdout, StandardErrorContent: i.stderr,
	}
	if !i.started.IsZero() {
		out.ExecutionStartDateTime = i.started.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	if !i.started.IsZero() && !i.ended.IsZero() {
		out.ExecutionEndDateTime = i.ended.UTC().Format("2006-01-02T15:04:05.000Z")
		out.ExecutionElapsedTime = fmt.Sprintf("PT%.3fS", i.ended.Sub(i.started).Seconds())
	}
	return out, nil
}

func (m *Manager) listCommandInvocations(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		CommandID  string `json:"CommandId"`
		InstanceID string `json:"InstanceId"`
		Details    bool
		MaxResults *int
		NextToken  string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	start, limit, err := page(in.NextToken, in.MaxResults, 1, 50)
	if err != nil {
		return nil, err
	}
	type commandPlugin struct {
		Name, Status, StatusDetails, Output string
		ResponseCode                        int
	}
	type commandInvocation struct {
		CommandID         string `json:"CommandId"`
		InstanceID        string `json:"InstanceId"`
		Comment           string
		DocumentName      string
		RequestedDateTime float64
		Status            string
		StatusDetails     string
		CommandPlugins    []commandPlugin
	}
	var out struct {
		CommandInvocations []commandInvocation
		NextToken          string `json:",omitempty"`
	}
	out.CommandInvocations = []commandInvocation{}
	found := m.find(in.CommandID, in.InstanceID)
	slices.Reverse(found) // the newest first
	for at := start; at < len(found); at++ {
		if len(out.CommandInvocations) == limit {
			out.NextToken = strconv.Itoa(at)
			break
		}
		i := found[at]
		i.mu.Lock()
		listed := commandInvocation{
			CommandID: i.command, InstanceID: i.instance, Comment: i.comment, DocumentName: document,
			RequestedDateTime: seconds(i.sent), Status: i.status, StatusDetails: i.detail, CommandPlugins: []commandPlugin{},
		}
		if in.Details {
			output := i.stdout
			if i.stderr != "" {
				output += "\n----------ERROR-------\n" + i.stderr
			}
			listed.CommandPlugins = append(listed.CommandPlugins, commandPlugin{plugin, i.status, i.detail, cut(output, maxPluginOutput), i.exitCode})
		}
		i.mu.Unlock()
		out.CommandInvocations = append(out.CommandInvocations, listed)
	}
	return out, nil
}

func (m *Manager) cancelCommand(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		CommandID   string `json:"CommandId"`
		InstanceIds []string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	found := m.find(in.CommandID, "")
	if in.CommandID == "" || len(found) == 0 {
		return nil, refuse("InvalidCommandId", "The specified command ID isn't valid. Verify the ID and try again.")
	}
	for _, i := range found {
		if len(in.InstanceIds) > 0 && !slices.Contains(in.InstanceIds, i.instance) {
			continue
		}
		i.mu.Lock()
		if i.ended.IsZero() {
			i.status, i.detail = "Cancelling", "Cancelling"
		}
		i.mu.Unlock()
		i.cancel()
	}
	return nil, nil
}
