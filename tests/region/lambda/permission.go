package lambda

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// statement is a statement of a function's resource policy.
type statement struct {
	ID        string                       `json:"Sid"`
	Effect    string                       `json:"Effect"`
	Principal map[string]string            `json:"Principal"`
	Action    string                       `json:"Action"`
	Resource  string                       `json:"Resource"`
	Condition map[string]map[string]string `json:"Condition,omitempty"`
}

const (
	sourceARN     = "AWS:SourceArn"
	sourceAccount = "AWS:SourceAccount"
)

// allows says whether the statement lets a service invoke the function for one
// of an account's resources.
func (s statement) allows(service, resource, account string) bool {
	if s.Principal["Service"] != service || s.Action != "lambda:InvokeFunction" && s.Action != "lambda:*" {
		return false
	}
	if pattern, ok := s.Condition["ArnLike"][sourceARN]; ok && !like(pattern, resource) {
		return false
	}
	wanted, ok := s.Condition["StringEquals"][sourceAccount]
	return !ok || wanted == account
}

// like compares with IAM's wildcards.
func like(pattern, text string) bool {
	quoted := regexp.QuoteMeta(pattern)
	quoted = strings.ReplaceAll(strings.ReplaceAll(quoted, `\*`, ".*"), `\?`, ".")
	return regexp.MustCompile("^" + quoted + "$").MatchString(text)
}

var statementPattern = regexp.MustCompile(`^[a-zA-Z0-9-_]{1,100}$`)

func (f *Functions) addPermission(c *api.Call, name, _ string) (any, error) {
	var in struct {
		StatementID   string `json:"StatementId"`
		Action        string
		Principal     string
		SourceArn     string
		SourceAccount string
		RevisionID    string `json:"RevisionId"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if !statementPattern.MatchString(in.StatementID) {
		return nil, api.Errorf(http.StatusBadRequest, "ValidationException", "statementId %q must be 1 to 100 of a-z, A-Z, 0-9, '-' and '_'", in.StatementID)
	}
	if !strings.HasSuffix(in.Principal, ".amazonaws.com") {
		return nil, invalid("this region's functions can be opened to services only, not to %q", in.Principal)
	}
	made := statement{
		ID: in.StatementID, Effect: "Allow", Principal: map[string]string{"Service": in.Principal}, Action: in.Action, Resource: f.ARN(name),
	}
	if in.SourceArn != "" || in.SourceAccount != "" {
		made.Condition = map[string]map[string]string{}
	}
	if in.SourceArn != "" {
		made.Condition["ArnLike"] = map[string]string{sourceARN: in.SourceArn}
	}
	if in.SourceAccount != "" {
		made.Condition["StringEquals"] = map[string]string{sourceAccount: in.SourceAccount}
	}
	text, err := json.Marshal(made)
	if err != nil {
		return nil, err
	}
	if err := f.on(c, name, func(fn *function) error {
		if slices.ContainsFunc(fn.statements, func(s statement) bool { return s.ID == made.ID }) {
			return api.Errorf(http.StatusConflict, "ResourceConflictException",
				"The statement id (%s) provided already exists. Please provide a new statement id, or remove the existing statement.", made.ID)
		}
		if err := fn.checkRevision(in.RevisionID); err != nil {
			return err
		}
		fn.statements = append(fn.statements, made)
		return nil
	}); err != nil {
		return nil, err
	}
	return created(struct{ Statement string }{string(text)})
}

func (f *Functions) getPolicy(c *api.Call, name, _ string) (any, error) {
	var out struct {
		Policy     string
		RevisionID string `json:"RevisionId"`
	}
	err := f.on(c, name, func(fn *function) error {
		if len(fn.statements) == 0 {
			return api.Errorf(http.StatusNotFound, "ResourceNotFoundException", "The resource you requested does not exist.")
		}
		text, err := json.Marshal(struct {
			Version   string
			ID        string `json:"Id"`
			Statement []statement
		}{"2012-10-17", "default", fn.statements})
		out.Policy, out.RevisionID = string(text), fn.revision
		return err
	})
	return out, err
}

func (f *Functions) removePermission(c *api.Call, name, id string) (any, error) {
	err := f.on(c, name, func(fn *function) error {
		before := len(fn.statements)
		fn.statements = slices.DeleteFunc(fn.statements, func(s statement) bool { return s.ID == id })
		if len(fn.statements) == before {
			return api.Errorf(http.StatusNotFound, "ResourceNotFoundException", "Statement %s is not found in resource policy.", id)
		}
		return nil
	})
	return &api.Raw{Status: http.StatusNoContent}, err
}

// created is an answer with status 201.
func created(result any) (any, error) {
	body, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	return &api.Raw{Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
}
