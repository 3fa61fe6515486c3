package iam

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type role struct {
	name, path, arn, id, description string
	created                          time.Time
	maxSession                       int
	trust                            *document
	tags                             tags
	inline                           map[string]*document
	attached                         []string // ARNs of managed policies, in the order of attachment
}

// Limits of IAM: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const (
	longestRoleName     = 64
	longestPolicyName   = 128
	longestTrustPolicy  = 2048
	longestInlinePolicy = 10240
	mostAttached        = 10
)

type roleXML struct {
	Path                     string
	RoleName                 string
	RoleID                   string `xml:"RoleId"`
	ARN                      string `xml:"Arn"`
	CreateDate               string
	AssumeRolePolicyDocument string
	Description              string `xml:",omitempty"`
	MaxSessionDuration       int
	Tags                     tagsXML
}

func (r *role) xml() roleXML {
	return roleXML{
		Path: r.path, RoleName: r.name, RoleID: r.id, ARN: r.arn, CreateDate: timestamp(r.created),
		AssumeRolePolicyDocument: url.QueryEscape(r.trust.text), Description: r.description,
		MaxSessionDuration: r.maxSession, Tags: tagsXML{r.tags},
	}
}

type roleResult struct{ Role roleXML }

func (s *Service) createRole(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := c.Params.Get("RoleName")
	requested, err := readTags(c.Params)
	if err != nil {
		return nil, err
	}
	if err := s.authorizeAccess(c, api.Access{
		Action: c.IAMAction(), Resource: s.arn("role", "/", name), Context: requested.context("aws:RequestTag/"),
	}); err != nil {
		return nil, err
	}
	if err := checkName("roleName", name, longestRoleName); err != nil {
		return nil, err
	}
	path, err := checkPath(c.Params.Get("Path"))
	if err != nil {
		return nil, err
	}
	duration, err := number(c.Params.Get("MaxSessionDuration"), 3600)
	if err != nil {
		return nil, err
	}
	if duration < 3600 || duration > 43200 {
		return nil, invalid("MaxSessionDuration is %d, it must be between 3600 and 43200 seconds", duration)
	}
	if c.Params.Has("PermissionsBoundary") {
		return nil, invalid("this region's roles have no permissions boundary")
	}
	trust, err := parseTrustPolicy(c.Params.Get("AssumeRolePolicyDocument"))
	if err != nil {
		return nil, err
	}
	if s.roles[strings.ToLower(name)] != nil {
		return nil, alreadyExists("Role with name %s already exists.", name)
	}
	r := &role{
		name: name, path: path, arn: s.arn("role", path, name), id: uniqueID("AROA"), description: c.Params.Get("Description"),
		created: time.Now(), maxSession: duration, trust: trust, tags: requested, inline: map[string]*document{},
	}
	s.roles[strings.ToLower(name)] = r
	return roleResult{r.xml()}, nil
}

// authorizedRole finds the role that a call names and asks whether the caller
// may; the mutex is held.
func (s *Service) authorizedRole(c *api.Call) (*role, error) {
	name := c.Params.Get("RoleName")
	r := s.roles[strings.ToLower(name)]
	if r == nil {
		if err := s.authorize(c, s.arn("role", "/", name), nil); err != nil {
			return nil, err
		}
		return nil, noSuchEntity("The role with name %s cannot be found.", name)
	}
	return r, s.authorize(c, r.arn, r.tags)
}

func (s *Service) getRole(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	return roleResult{r.xml()}, nil
}

type rolesResult struct {
	Roles struct {
		Members []roleXML `xml:"member"`
	}
	IsTruncated bool
}

func (s *Service) listRoles(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorize(c, "*", nil); err != nil {
		return nil, err
	}
	var result rolesResult
	for _, key := range slices.Sorted(maps.Keys(s.roles)) {
		if r := s.roles[key]; strings.HasPrefix(r.path, c.Params.Get("PathPrefix")) {
			result.Roles.Members = append(result.Roles.Members, r.xml())
		}
	}
	return result, nil
}

func (s *Service) updateRole(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	duration, err := number(c.Params.Get("MaxSessionDuration"), r.maxSession)
	if err != nil {
		return nil, err
	}
	r.maxSession = duration
	if c.Params.Has("Description") {
		r.description = c.Params.Get("Description")
	}
	return struct{}{}, nil // the SDK looks for a result
}

func (s *Service) updateAssumeRolePolicy(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	trust, err := parseTrustPolicy(c.Params.Get("PolicyDocument"))
	if err != nil {
		return nil, err
	}
	r.trust = trust
	return nil, nil
}

func (s *Service) deleteRole(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	if len(r.inline) > 0 {
		return nil, deleteConflict("Cannot delete entity, must delete policies first.")
	}
	if len(r.attached) > 0 {
		return nil, deleteConflict("Cannot delete entity, must detach all policies first.")
	}
	if len(s.profilesOf(r)) > 0 {
		return nil, deleteConflict("Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(s.roles, strings.ToLower(r.name))
	return nil, nil
}

func (s *Service) tagRole(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	more, err := readTags(c.Params)
	if err != nil {
		return nil, err
	}
	r.tags = r.tags.with(more)
	return nil, nil
}

func (s *Service) untagRole(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	r.tags = r.tags.without(c.Params.List("TagKeys"))
	return nil, nil
}

type tagsResult struct {
	Tags        tagsXML
	IsTruncated bool
}

func (s *Service) listRoleTags(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	return tagsResult{Tags: tagsXML{r.tags}}, nil
}
