package iam

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

func (s *Service) putRolePolicy(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	name := c.Params.Get("PolicyName")
	if err := checkName("policyName", name, longestPolicyName); err != nil {
		return nil, err
	}
	policy, err := parseIdentityPolicy(c.Params.Get("PolicyDocument"))
	if err != nil {
		return nil, err
	}
	size := policy.size()
	for other, existing := range r.inline {
		if other != name {
			size += existing.size()
		}
	}
	if size > longestInlinePolicy {
		return nil, limitExceeded("Maximum policy size of %d bytes exceeded for role %s", longestInlinePolicy, r.name)
	}
	r.inline[name] = policy
	s.ledger.granted(r.name, name, policy)
	return nil, nil
}

// rolePolicy is the inline policy that a call names.
func (r *role) rolePolicy(c *api.Call) (string, *document, error) {
	name := c.Params.Get("PolicyName")
	policy := r.inline[name]
	if policy == nil {
		return "", nil, noSuchEntity("The role policy with name %s cannot be found.", name)
	}
	return name, policy, nil
}

type rolePolicyResult struct {
	RoleName       string
	PolicyName     string
	PolicyDocument string
}

func (s *Service) getRolePolicy(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	name, policy, err := r.rolePolicy(c)
	if err != nil {
		return nil, err
	}
	return rolePolicyResult{RoleName: r.name, PolicyName: name, PolicyDocument: url.QueryEscape(policy.text)}, nil
}

func (s *Service) deleteRolePolicy(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	name, _, err := r.rolePolicy(c)
	if err != nil {
		return nil, err
	}
	delete(r.inline, name)
	return nil, nil
}

type rolePoliciesResult struct {
	PolicyNames struct {
		Members []string `xml:"member"`
	}
	IsTruncated bool
}

func (s *Service) listRolePolicies(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	var result rolePoliciesResult
	result.PolicyNames.Members = slices.Sorted(maps.Keys(r.inline))
	return result, nil
}

func (s *Service) attachRolePolicy(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	arn := c.Params.Get("PolicyArn")
	policy := managed(arn)
	if policy == nil {
		return nil, noSuchEntity("Policy %s does not exist or is not attachable.", arn)
	}
	if slices.Contains(r.attached, arn) {
		return nil, nil
	}
	if len(r.attached) == mostAttached {
		return nil, limitExceeded("Cannot exceed quota for PoliciesPerRole: %d", mostAttached)
	}
	r.attached = append(r.attached, arn)
	s.ledger.granted(r.name, arn, policy)
	return nil, nil
}

func (s *Service) detachRolePolicy(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	arn := c.Params.Get("PolicyArn")
	i := slices.Index(r.attached, arn)
	if i < 0 {
		return nil, noSuchEntity("Policy %s was not found.", arn)
	}
	r.attached = slices.Delete(r.attached, i, i+1)
	return nil, nil
}

type attachedPoliciesResult struct {
	AttachedPolicies struct {
		Members []attachedPolicyXML `xml:"member"`
	}
	IsTruncated bool
}

type attachedPolicyXML struct {
	PolicyName string
	PolicyARN  string `xml:"PolicyArn"`
}

func (s *Service) listAttachedRolePolicies(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	var result attachedPoliciesResult
	for _, arn := range r.attached {
		result.AttachedPolicies.Members = append(result.AttachedPolicies.Members, attachedPolicyXML{PolicyName: policyName(arn), PolicyARN: arn})
	}
	return result, nil
}

func policyName(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }
