package lambda

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Limits of functions.
// https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
const (
	maxZip        = 50 << 20
	maxUnzipped   = 250 << 20
	maxVariables  = 4 << 10
	defaultMemory = 128 // MiB
	maxMemory     = 10240
	defaultLimit  = 3 // seconds
	maxLimit      = 900
)

// function is changed under the service's lock. Execution environments are
// made for one generation of it, which every change of code or configuration
// ends.
type function struct {
	settings
	code       code
	generation int
	modified   time.Time
	revision   string
	tags       map[string]string
	statements []statement
	retries    *invokeConfig
}

type settings struct {
	Name, Role, Handler, Runtime, Description, Architecture string
	Timeout, Memory                                         int
	Variables                                               map[string]string
}

type code struct {
	directory string
	sha256    string // base64
	size      int
}

// settingsInput are the parameters of CreateFunction and
// UpdateFunctionConfiguration that settings are made of. The rest has to have
// the only value that this Lambda knows.
type settingsInput struct {
	Role, Handler, Runtime, Description *string
	Timeout, MemorySize                 *int
	Environment                         *struct{ Variables map[string]string }
	TracingConfig                       *struct{ Mode string }
	EphemeralStorage                    *struct{ Size int }
	LoggingConfig                       *struct{ LogFormat, LogGroup string }
}

func (in settingsInput) apply(to *settings) {
	for _, field := range []struct {
		from *string
		to   *string
	}{{in.Role, &to.Role}, {in.Handler, &to.Handler}, {in.Runtime, &to.Runtime}, {in.Description, &to.Description}} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	if in.Timeout != nil {
		to.Timeout = *in.Timeout
	}
	if in.MemorySize != nil {
		to.Memory = *in.MemorySize
	}
	if in.Environment != nil {
		to.Variables = in.Environment.Variables
	}
}

var (
	namePattern     = regexp.MustCompile(`^[a-zA-Z0-9-_]{1,64}$`)
	handlerPattern  = regexp.MustCompile(`^[^\s]{1,128}$`)
	variablePattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]+$`)
	rolePattern     = regexp.MustCompile(`^arn:aws:iam::\d{12}:role/(?:.*/)?([^/]+)$`)
)

// reserved are the variables that Lambda sets itself.
// https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
var reserved = []string{
	"_HANDLER", "_X_AMZN_TRACE_ID", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_EXECUTION_ENV", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
	"AWS_LAMBDA_FUNCTION_VERSION", "AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME", "AWS_LAMBDA_LOG_STREAM_NAME", "AWS_ACCESS_KEY",
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_LAMBDA_RUNTIME_API", "LAMBDA_TASK_ROOT", "LAMBDA_RUNTIME_DIR",
}

func (in settingsInput) check(name string) error {
	switch {
	case in.TracingConfig != nil && in.TracingConfig.Mode != "PassThrough":
		return invalid("this region does not trace")
	case in.EphemeralStorage != nil && in.EphemeralStorage.Size != 512:
		return invalid("this region's functions have 512 MB of ephemeral storage")
	case in.LoggingConfig != nil && in.LoggingConfig.LogFormat != "" && in.LoggingConfig.LogFormat != "Text":
		return invalid("this region's functions log text")
	case in.LoggingConfig != nil && in.LoggingConfig.LogGroup != "" && in.LoggingConfig.LogGroup != logGroup(name):
		return invalid("this region's functions log to the group of their name")
	}
	return nil
}

func (s settings) check() error {
	switch {
	case !namePattern.MatchString(s.Name):
		return api.Errorf(http.StatusBadRequest, "ValidationException", "functionName %q must be 1 to 64 of a-z, A-Z, 0-9, '-' and '_'", s.Name)
	case !rolePattern.MatchString(s.Role):
		return api.Errorf(http.StatusBadRequest, "ValidationException", "role %q is not a role's ARN", s.Role)
	case s.Runtime != "provided.al2023":
		return invalid("this region runs provided.al2023, not %q", s.Runtime)
	case !handlerPattern.MatchString(s.Handler):
		return invalid("handler %q must be 1 to 128 characters without spaces", s.Handler)
	case s.Architecture != "x86_64" && s.Architecture != "arm64":
		return invalid("architecture %q is not one of x86_64, arm64", s.Architecture)
	case s.Timeout < 1 || s.Timeout > maxLimit:
		return api.Errorf(http.StatusBadRequest, "ValidationException", "timeout %d is not from 1 to %d", s.Timeout, maxLimit)
	case s.Memory < defaultMemory || s.Memory > maxMemory:
		return api.Errorf(http.StatusBadRequest, "ValidationException", "memorySize %d is not from %d to %d", s.Memory, defaultMemory, maxMemory)
	}
	size := 0
	for key, value := range s.Variables {
		if !variablePattern.MatchString(key) {
			return invalid("Lambda was unable to configure your environment variables because the variable name %q is not valid", key)
		}
		if slices.Contains(reserved, key) {
			return invalid("Lambda was unable to configure your environment variables because the environment variables you have provided contains reserved keys that are currently not supported for modification. Reserved keys used in this request: %s", key)
		}
		size += len(key) + len(value)
	}
	if size > maxVariables {
		return invalid("Lambda was unable to configure your environment variables because the environment variables you have provided exceeded the 4KB limit.")
	}
	return nil
}

// role is the name of the function's role.
func (s settings) role() string { return rolePattern.FindStringSubmatch(s.Role)[1] }

// checkRole refuses a role that the caller may not pass or Lambda not assume.
func (f *Functions) checkRole(c *api.Call, s settings) error {
	if err := c.Authorize(api.Access{
		Action: "iam:PassRole", Resource: s.Role, Context: map[string]string{"iam:PassedToService": "lambda.amazonaws.com"},
	}); err != nil {
		return err
	}
	if !f.config.Roles.Trusts(s.role(), "lambda.amazonaws.com") {
		return invalid("The role defined for the function cannot be assumed by Lambda.")
	}
	return nil
}

// unpack writes an archive's files to a new directory.
func (f *Functions) unpack(name string, archive []byte) (unpacked code, err error) {
	if len(archive) > maxZip {
		return code{}, api.Errorf(http.StatusRequestEntityTooLarge, "RequestTooLargeException", "the archive has %d bytes, %d are allowed", len(archive), maxZip)
	}
	reader, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return code{}, invalid("Could not unzip uploaded file. Please check your file, then try to upload again.")
	}
	total := uint64(0)
	for _, file := range reader.File {
		if total += file.UncompressedSize64; total > maxUnzipped {
			return code{}, invalid("Unzipped size must be smaller than %d bytes", maxUnzipped)
		}
	}
	directory, err := os.MkdirTemp(f.config.Directory, name+"-")
	if err != nil {
		return code{}, fmt.Errorf("unpack code: %w", err)
	}
	for _, file := range reader.File {
		if err := extract(file, directory); err != nil {
			return code{}, fmt.Errorf("unpack %s: %w", file.Name, cmp.Or(os.RemoveAll(directory), err))
		}
	}
	sum := sha256.Sum256(archive)
	return code{directory: directory, sha256: base64.StdEncoding.EncodeToString(sum[:]), size: len(archive)}, nil
}

// extract writes one file of an archive with the permissions it has there.
func extract(file *zip.File, directory string) error {
	if !filepath.IsLocal(file.Name) {
		return invalid("the archive has a file outside of itself: %s", file.Name)
	}
	target := filepath.Join(directory, filepath.FromSlash(file.Name))
	if file.FileInfo().IsDir() {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	source, err := file.Open()
	if err != nil {
		return err
	}
	defer source.Close()
	content, err := io.ReadAll(io.LimitReader(source, maxUnzipped))
	if err != nil {
		return err
	}
	return os.WriteFile(target, content, file.Mode().Perm())
}

// configuration is a function as the API shows it.
type configuration struct {
	FunctionName, FunctionArn, Runtime, Role, Handler, Description string
	CodeSha256, Version, LastModified, RevisionID                  string
	CodeSize, Timeout, MemorySize                                  int
	Architectures                                                  []string
	PackageType, State, LastUpdateStatus                           string
	Environment                                                    *variables `json:",omitempty"`
	TracingConfig                                                  tracing
	EphemeralStorage                                               storage
	LoggingConfig                                                  logging
	SnapStart                                                      snapStart
}

type (
	variables struct{ Variables map[string]string }
	tracing   struct{ Mode string }
	storage   struct{ Size int }
	logging   struct{ LogFormat, LogGroup string }
	snapStart struct{ ApplyOn, OptimizationStatus string }
)

func (f *Functions) describe(fn *function, state, update string) configuration {
	described := configuration{
		FunctionName: fn.Name, FunctionArn: f.ARN(fn.Name), Runtime: fn.Runtime, Role: fn.Role, Handler: fn.Handler, Description: fn.Description,
		CodeSha256: fn.code.sha256, Version: "$LATEST", LastModified: fn.modified.UTC().Format("2006-01-02T15:04:05.000+0000"), RevisionID: fn.revision,
		CodeSize: fn.code.size, Timeout: fn.Timeout, MemorySize: fn.Memory, Architectures: []string{fn.Architecture},
		PackageType: "Zip", State: state, LastUpdateStatus: update,
		TracingConfig: tracing{"PassThrough"}, EphemeralStorage: storage{512}, LoggingConfig: logging{"Text", logGroup(fn.Name)},
		SnapStart: snapStart{"None", "Off"},
	}
	if len(fn.Variables) > 0 {
		described.Environment = &variables{fn.Variables}
	}
	return described
}

// changed ends the function's generation: its idle environments go at once,
// its busy ones after their invocation. The caller holds the lock.
func (f *Functions) changed(fn *function) {
	fn.generation++
	fn.modified, fn.revision = time.Now(), uuid.NewString()
	for _, e := range f.idle[fn] {
		f.wait.Go(e.stop)
	}
	delete(f.idle, fn)
}

func (f *Functions) createFunction(c *api.Call, _, _ string) (any, error) {
	var in struct {
		settingsInput
		FunctionName string
		Code         struct {
			ZipFile []byte
		}
		Architectures []string
		PackageType   string
		Publish       bool
		Tags          map[string]string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	made := settings{Name: functionName(in.FunctionName), Timeout: defaultLimit, Memory: defaultMemory, Architecture: "x86_64"}
	in.apply(&made)
	switch {
	case len(in.Architectures) == 1:
		made.Architecture = in.Architectures[0]
	case len(in.Architectures) > 1:
		return nil, invalid("Architectures must have exactly one member")
	case in.PackageType != "" && in.PackageType != "Zip", in.Publish:
		return nil, invalid("this region has unpublished functions from zip archives only")
	}
	if err := f.authorize(c, "lambda:CreateFunction", made.Name); err != nil {
		return nil, err
	}
	if err := cmp.Or(in.check(made.Name), made.check()); err != nil {
		return nil, err
	}
	if err := f.checkRole(c, made); err != nil {
		return nil, err
	}
	unpacked, err := f.unpack(made.Name, in.Code.ZipFile)
	if err != nil {
		return nil, err
	}
	fn := &function{settings: made, code: unpacked, modified: time.Now(), revision: uuid.NewString(), tags: map[string]string{}}
	maps.Copy(fn.tags, in.Tags)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.functions[made.Name] != nil {
		return nil, cmp.Or(os.RemoveAll(unpacked.directory),
			error(api.Errorf(http.StatusConflict, "ResourceConflictException", "Function already exist: %s", made.Name)))
	}
	f.functions[made.Name] = fn
	return created(f.describe(fn, "Pending", "InProgress"))
}

func (f *Functions) listFunctions(c *api.Call, _, _ string) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := struct{ Functions []configuration }{[]configuration{}}
	for _, name := range slices.Sorted(maps.Keys(f.functions)) {
		out.Functions = append(out.Functions, f.describe(f.functions[name], "Active", "Successful"))
	}
	return out, nil
}

func (f *Functions) getFunction(c *api.Call, name, _ string) (any, error) {
	var out struct {
		Configuration configuration
		Code          struct{ RepositoryType string }
		Tags          map[string]string
	}
	err := f.on(c, name, func(fn *function) error {
		out.Configuration = f.describe(fn, "Active", "Successful")
		out.Code.RepositoryType = "S3"
		out.Tags = maps.Clone(fn.tags)
		return nil
	})
	return out, err
}

func (f *Functions) getFunctionConfiguration(c *api.Call, name, _ string) (any, error) {
	var out configuration
	err := f.on(c, name, func(fn *function) error {
		out = f.describe(fn, "Active", "Successful")
		return nil
	})
	return out, err
}

func (f *Functions) updateFunctionConfiguration(c *api.Call, name, _ string) (any, error) {
	var in struct {
		settingsInput
		RevisionID string `json:"RevisionId"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := in.check(name); err != nil {
		return nil, err
	}
	var updated settings
	if err := f.on(c, name, func(fn *function) error {
		updated = fn.settings
		return fn.checkRevision(in.RevisionID)
	}); err != nil {
		return nil, err
	}
	in.apply(&updated)
	if err := updated.check(); err != nil {
		return nil, err
	}
	if in.Role != nil {
		if err := f.checkRole(c, updated); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fn, err := f.find(name)
	if err != nil {
		return nil, err
	}
	fn.settings = updated
	f.changed(fn)
	return f.describe(fn, "Active", "InProgress"), nil
}

func (fn *function) checkRevision(wanted string) error {
	if wanted != "" && wanted != fn.revision {
		return api.Errorf(http.StatusPreconditionFailed, "PreconditionFailedException", "The Revision Id provided does not match the latest Revision Id.")
	}
	return nil
}

func (f *Functions) updateFunctionCode(c *api.Call, name, _ string) (any, error) {
	var in struct {
		ZipFile       []byte
		Architectures []string
		Publish       bool
		DryRun        bool
		RevisionID    string `json:"RevisionId"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if in.Publish || in.DryRun || len(in.Architectures) > 1 {
		return nil, invalid("this region's code updates take effect, are not published and are for one architecture")
	}
	if err := f.on(c, name, func(fn *function) error { return fn.checkRevision(in.RevisionID) }); err != nil {
		return nil, err
	}
	unpacked, err := f.unpack(name, in.ZipFile)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fn, err := f.find(name)
	if err != nil {
		return nil, err
	}
	old := fn.code.directory
	fn.code = unpacked
	if len(in.Architectures) == 1 {
		fn.Architecture = in.Architectures[0]
	}
	f.changed(fn)
	// What runs keeps its open files.
	return f.describe(fn, "Active", "InProgress"), os.RemoveAll(old)
}

func (f *Functions) deleteFunction(c *api.Call, name, _ string) (any, error) {
	err := f.on(c, name, func(fn *function) error {
		delete(f.functions, name)
		f.changed(fn)
		return os.RemoveAll(fn.code.directory)
	})
	return &api.Raw{Status: http.StatusNoContent}, err
}

func (f *Functions) getFunctionCodeSigningConfig(c *api.Call, name, _ string) (any, error) {
	var out struct{ FunctionName string }
	err := f.on(c, name, func(fn *function) error {
		out.FunctionName = fn.Name
		return nil
	})
	return out, err
}

func (f *Functions) tagResource(c *api.Call, name, _ string) (any, error) {
	var in struct{ Tags map[string]string }
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	err := f.on(c, name, func(fn *function) error {
		maps.Copy(fn.tags, in.Tags)
		return nil
	})
	return &api.Raw{Status: http.StatusNoContent}, err
}

func (f *Functions) untagResource(c *api.Call, name, _ string) (any, error) {
	keys := c.Request.URL.Query()["tagKeys"]
	err := f.on(c, name, func(fn *function) error {
		for _, key := range keys {
			delete(fn.tags, key)
		}
		return nil
	})
	return &api.Raw{Status: http.StatusNoContent}, err
}

func (f *Functions) listTags(c *api.Call, name, _ string) (any, error) {
	var out struct{ Tags map[string]string }
	err := f.on(c, name, func(fn *function) error {
		out.Tags = maps.Clone(fn.tags)
		return nil
	})
	return out, err
}

func logGroup(name string) string { return "/aws/lambda/" + strings.TrimPrefix(name, "/") }
