package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// initLimit is how long a function may take until it asks for its first event.
// https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html
const initLimit = 10 * time.Second

// environment is an execution environment: a process of the function, and the
// runtime API that it gets its events from.
// https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
type environment struct {
	function   settings
	generation int
	arn        string
	process    *exec.Cmd
	api        *http.Server
	log        *logWriter
	next       chan *invocation // to the process
	exited     chan struct{}
	exit       error // once exited is closed

	mu      sync.Mutex
	current *invocation
	// initError is what the process said about why it cannot start.
	initError json.RawMessage
}

type invocation struct {
	id       string
	payload  []byte
	deadline time.Time
	result   chan result
}

// result is the answer of a function, or the description of its failure.
type result struct {
	payload []byte
	failed  bool
}

func failure(kind, format string, args ...any) result {
	payload, err := json.Marshal(map[string]string{"errorType": kind, "errorMessage": fmt.Sprintf(format, args...)})
	if err != nil {
		panic(err) // strings can be marshalled
	}
	return result{payload, true}
}

// start makes an environment for the function as it is now; the caller holds
// the lock.
func (f *Functions) start(fn *function) (*environment, error) {
	credentials, err := f.config.Roles.Assume(fn.role(), fn.Name)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(f.ctx, "tcp", net.JoinHostPort(f.config.Address, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the runtime API: %w", err)
	}
	stream := time.Now().UTC().Format("2006/01/02/") + "[$LATEST]" + fmt.Sprintf("%x", [16]byte(uuid.New()))
	e := &environment{
		function: fn.settings, generation: fn.generation, arn: f.ARN(fn.Name),
		log:  f.newLogWriter(fn.settings, stream),
		next: make(chan *invocation), exited: make(chan struct{}),
	}
	e.process = exec.Command(filepath.Join(fn.code.directory, "bootstrap")) //nolint:noctx // it ends with its environment, by its group
	e.process.Dir = fn.code.directory
	e.process.Stdout, e.process.Stderr = e.log, e.log
	e.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	e.process.WaitDelay = time.Second // a grandchild that left the group may hold the output
	e.process.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + listener.Addr().String(),
		"AWS_REGION=" + f.config.Region, "AWS_DEFAULT_REGION=" + f.config.Region, "AWS_ENDPOINT_URL=" + f.config.Endpoint,
		"AWS_ACCESS_KEY_ID=" + credentials.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + credentials.SecretAccessKey, "AWS_SESSION_TOKEN=" + credentials.Token,
		"AWS_LAMBDA_FUNCTION_NAME=" + fn.Name, "AWS_LAMBDA_FUNCTION_VERSION=$LATEST", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=" + strconv.Itoa(fn.Memory),
		"AWS_LAMBDA_LOG_GROUP_NAME=" + logGroup(fn.Name), "AWS_LAMBDA_LOG_STREAM_NAME=" + stream, "AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"_HANDLER=" + fn.Handler, "LAMBDA_TASK_ROOT=" + fn.code.directory, "LAMBDA_RUNTIME_DIR=/var/runtime",
		"PATH=/usr/local/bin:/usr/bin:/bin:/opt/bin", "LANG=en_US.UTF-8", "TZ=:UTC",
	}
	for key, value := range fn.Variables {
		e.process.Env = append(e.process.Env, key+"="+value)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", e.serveNext)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", e.serveResult(false))
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", e.serveResult(true))
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", e.serveInitError)
	e.api = &http.Server{Handler: mux, ReadHeaderTimeout: initLimit}
	f.wait.Go(func() {
		if err := e.api.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			f.config.Logger.Error("runtime API ended", "function", fn.Name, "error", err)
		}
	})
	e.boot(&f.wait)
	return e, nil
}

// boot starts the process. A bootstrap that is not there or cannot be executed
// is the function's fault: it is told with the first invocation.
func (e *environment) boot(wait *sync.WaitGroup) {
	if e.exit = e.process.Start(); e.exit != nil {
		close(e.exited)
		return
	}
	wait.Go(func() {
		e.exit = e.process.Wait()
		e.kill() // what it left behind
		e.log.flush()
		close(e.exited)
	})
}

// ended says whether the process no longer runs.
func (e *environment) ended() bool {
	select {
	case <-e.exited:
		return true
	default:
		return false
	}
}

// kill kills the processes of the environment, of which there may be none.
func (e *environment) kill() { _ = syscall.Kill(-e.process.Process.Pid, syscall.SIGKILL) }

// stop kills the process with its children and returns when it has ended.
func (e *environment) stop() {
	if !e.ended() {
		e.kill()
	}
	<-e.exited
	_ = e.api.Close() // connections of a process that is gone
}

// invoke runs one event through the process.
func (e *environment) invoke(ctx context.Context, requestID string, payload []byte) result {
	i := &invocation{id: requestID, payload: payload, result: make(chan result, 1)}
	limit := time.Duration(e.function.Timeout) * time.Second
	begun := time.Now()
	initialized := time.NewTimer(initLimit)
	defer initialized.Stop()
	select {
	case e.next <- i: // taken by serveNext, which starts the clock
	case <-e.exited:
		return e.exitFailure(requestID)
	case <-ctx.Done():
		return failure("Sandbox.Interrupted", "RequestId: %s Error: %v", requestID, ctx.Err())
	case <-initialized.C:
		e.stop()
		return failure("Sandbox.Timedout", "RequestId: %s Error: Init phase timed out after %.2f seconds", requestID, initLimit.Seconds())
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	defer func() {
		e.log.flush()
		e.log.platform("END RequestId: " + requestID)
		elapsed := time.Since(begun).Milliseconds()
		e.log.platform(fmt.Sprintf("REPORT RequestId: %s\tDuration: %d.00 ms\tBilled Duration: %d ms\tMemory Size: %d MB", requestID, elapsed, elapsed+1, e.function.Memory))
	}()
	select {
	case r := <-i.result:
		return r
	case <-e.exited:
		return e.exitFailure(requestID)
	case <-deadline.C:
		e.stop()
		return failure("Sandbox.Timedout", "RequestId: %s Error: Task timed out after %.2f seconds", requestID, limit.Seconds())
	}
}

// exitFailure describes a process that ended without an answer.
func (e *environment) exitFailure(requestID string) result {
	e.mu.Lock()
	defer e.mu.Unlock()
	var status *exec.ExitError
	switch {
	case e.initError != nil:
		return result{e.initError, true}
	case e.process.Process == nil:
		return failure("Runtime.InvalidEntrypoint", "RequestId: %s Error: %v", requestID, e.exit)
	case errors.As(e.exit, &status):
		return failure("Runtime.ExitError", "RequestId: %s Error: Runtime exited with error: %v", requestID, status)
	}
	return failure("Runtime.ExitError", "RequestId: %s Error: Runtime exited without providing a reason", requestID)
}

func (e *environment) serveNext(w http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case i := <-e.next:
		i.deadline = time.Now().Add(time.Duration(e.function.Timeout) * time.Second)
		e.mu.Lock()
		e.current = i
		e.mu.Unlock()
		e.log.platform("START RequestId: " + i.id + " Version: $LATEST")
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Lambda-Runtime-Aws-Request-Id", i.id)
		header.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(i.deadline.UnixMilli(), 10))
		header.Set("Lambda-Runtime-Invoked-Function-Arn", e.arn)
		_, _ = w.Write(i.payload) // a process that is gone is noticed by its exit
	}
}

func (e *environment) serveResult(failed bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		payload, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
		if err != nil {
			return // it hung up
		}
		e.mu.Lock()
		i := e.current
		if i == nil || i.id != r.PathValue("id") {
			e.mu.Unlock()
			runtimeError(w, http.StatusBadRequest, "InvalidRequestID", "Invalid request ID")
			return
		}
		e.current = nil
		e.mu.Unlock()
		if len(payload) > maxPayload {
			i.result <- failure("Function.ResponseSizeTooLarge", "Response payload size exceeded maximum allowed payload size (%d bytes).", maxPayload)
			runtimeError(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "response is too large")
			return
		}
		i.result <- result{payload, failed}
		w.WriteHeader(http.StatusAccepted)
	}
}

func (e *environment) serveInitError(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(io.LimitReader(r.Body, maxPayload))
	if err != nil {
		return // it hung up
	}
	e.mu.Lock()
	e.initError = payload
	e.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

func runtimeError(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"errorType": kind, "errorMessage": message}) // to a process that may be gone
}
