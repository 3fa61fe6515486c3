package iam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// document is a policy document: its text as it was put, and what it says.
type document struct {
	text       string
	statements []statement
}

type statement struct {
	sid                     string
	deny                    bool
	actions, notActions     []string
	resources, notResources []string
	conditions              []condition
	// principals are the services that a trust policy lets assume the role.
	principals []string
}

// size is the document's size as IAM counts it, without white space.
func (d *document) size() int {
	n := 0
	for _, r := range d.text {
		if !strings.ContainsRune(" \t\r\n", r) {
			n++
		}
	}
	return n
}

// The grammar: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html

type documentJSON struct {
	Version   string
	ID        string `json:"Id"`
	Statement oneOrMany[statementJSON]
}

type statementJSON struct {
	Sid          string
	Effect       string
	Principal    json.RawMessage
	NotPrincipal json.RawMessage
	Action       oneOrMany[string]
	NotAction    oneOrMany[string]
	Resource     oneOrMany[string]
	NotResource  oneOrMany[string]
	Condition    map[string]map[string]oneOrMany[scalar]
}

// oneOrMany is a value that the grammar lets stand alone or in a list.
type oneOrMany[T any] []T

func (o *oneOrMany[T]) UnmarshalJSON(text []byte) error {
	decode := func(into any) error {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		return decoder.Decode(into)
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		var many []T
		if err := decode(&many); err != nil {
			return err
		}
		*o = many
		return nil
	}
	var one T
	if err := decode(&one); err != nil {
		return err
	}
	*o = []T{one}
	return nil
}

// scalar is a condition's value; the grammar allows a string, a number or a
// boolean and compares their text.
type scalar string

func (s *scalar) UnmarshalJSON(text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	switch value := value.(type) {
	case string:
		*s = scalar(value)
	case bool, float64:
		*s = scalar(text)
	default:
		return fmt.Errorf("condition value %s is neither string, number nor boolean", text)
	}
	return nil
}

func parse(text string) (*document, []statementJSON, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, malformed("Syntax errors in policy: the document is empty")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var raw documentJSON
	if err := decoder.Decode(&raw); err != nil {
		return nil, nil, malformed("Syntax errors in policy: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, malformed("Syntax errors in policy: text after the document")
	}
	switch raw.Version {
	case "2012-10-17":
	case "2008-10-17", "":
		return nil, nil, malformed("this region knows policies of version 2012-10-17 only, whose variables it expands")
	default:
		return nil, nil, malformed("The policy must contain a valid version string")
	}
	if len(raw.Statement) == 0 {
		return nil, nil, malformed("Missing required field Statement")
	}
	document := &document{text: text}
	seen := map[string]bool{}
	for _, each := range raw.Statement {
		parsed, err := each.parse()
		if err != nil {
			return nil, nil, err
		}
		if each.Sid != "" && seen[each.Sid] {
			return nil, nil, malformed("Statement IDs (SID) in a single policy must be unique.")
		}
		seen[each.Sid] = true
		document.statements = append(document.statements, parsed)
	}
	return document, raw.Statement, nil
}

func (s statementJSON) parse() (statement, error) {
	for _, r := range s.Sid {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return statement{}, malformed("Statement IDs (SID) must be alpha-numeric. Check that your input satisfies the regular expression [0-9A-Za-z]*")
		}
	}
	if s.Effect != "Allow" && s.Effect != "Deny" {
		return statement{}, malformed("Syntax errors in policy: Effect is %q, it must be Allow or Deny", s.Effect)
	}
	if (len(s.Action) == 0) == (len(s.NotAction) == 0) {
		return statement{}, malformed("Policy statement must contain actions.")
	}
	for _, action := range append(append([]string{}, s.Action...), s.NotAction...) {
		vendor, name, found := strings.Cut(action, ":")
		if action != "*" && (!found || vendor == "" || name == "" || strings.ContainsAny(vendor, "*? ")) {
			return statement{}, malformed("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.: %q", action)
		}
	}
	conditions, err := parseConditions(s.Condition)
	if err != nil {
		return statement{}, err
	}
	return statement{
		sid: s.Sid, deny: s.Effect == "Deny",
		actions: s.Action, notActions: s.NotAction,
		resources: s.Resource, notResources: s.NotResource,
		conditions: conditions,
	}, nil
}

// parseIdentityPolicy reads a policy that is attached to a role.
func parseIdentityPolicy(text string) (*document, error) {
	document, raw, err := parse(text)
	if err != nil {
		return nil, err
	}
	for _, each := range raw {
		if each.Principal != nil || each.NotPrincipal != nil {
			return nil, malformed("Policy document should not specify a principal.")
		}
		if (len(each.Resource) == 0) == (len(each.NotResource) == 0) {
			return nil, malformed("Policy statement must contain resources.")
		}
		for _, resource := range append(append([]string{}, each.Resource...), each.NotResource...) {
			if resource != "*" && len(strings.SplitN(resource, ":", 6)) < 6 {
				return nil, malformed("Resource %s must be in ARN format or \"*\".", resource)
			}
		}
	}
	return document, nil
}

// parseTrustPolicy reads a role's trust policy.
func parseTrustPolicy(text string) (*document, error) {
	document, raw, err := parse(text)
	if err != nil {
		return nil, err
	}
	if document.size() > longestTrustPolicy {
		return nil, limitExceeded("Cannot exceed quota for ACLSizePerRole: %d", longestTrustPolicy)
	}
	for i, each := range raw {
		if len(each.Resource)+len(each.NotResource) > 0 {
			return nil, malformed("Has prohibited field Resource")
		}
		if each.Principal == nil {
			return nil, malformed("Missing required field Principal")
		}
		var principal map[string]oneOrMany[string]
		if err := json.Unmarshal(each.Principal, &principal); err != nil {
			return nil, malformed("Invalid principal in policy: %s", each.Principal)
		}
		for kind, names := range principal {
			if kind != "Service" && kind != "AWS" && kind != "Federated" {
				return nil, malformed("Invalid principal in policy: %q", kind)
			}
			if kind == "Service" {
				document.statements[i].principals = append(document.statements[i].principals, names...)
			}
		}
		if each.Action == nil || len(each.NotAction) > 0 {
			return nil, malformed("AssumeRole policy may only specify STS AssumeRole actions.")
		}
		for _, action := range each.Action {
			if !strings.HasPrefix(action, "sts:") {
				return nil, malformed("AssumeRole policy may only specify STS AssumeRole actions.")
			}
		}
	}
	return document, nil
}
