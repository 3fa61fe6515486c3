package iam

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type profile struct {
	name, path, arn, id string
	created             time.Time
	tags                tags
	role                *role
}

const longestProfileName = 128

// Profile is an instance profile as EC2 sees it.
type Profile struct {
	Name, ARN, ID string
	// Role is the name of its role, "" when it has none.
	Role string
}

// Profile finds an instance profile by name or by ARN.
func (s *Service) Profile(nameOrARN string) (Profile, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.profiles {
		if p.name == nameOrARN || p.arn == nameOrARN {
			found := Profile{Name: p.name, ARN: p.arn, ID: p.id}
			if p.role != nil {
				found.Role = p.role.name
			}
			return found, true
		}
	}
	return Profile{}, false
}

func (s *Service) profilesOf(r *role) []*profile {
	var profiles []*profile
	for _, key := range slices.Sorted(maps.Keys(s.profiles)) {
		if p := s.profiles[key]; p.role == r {
			profiles = append(profiles, p)
		}
	}
	return profiles
}

type profileXML struct {
	Path                string
	InstanceProfileName string
	InstanceProfileID   string `xml:"InstanceProfileId"`
	ARN                 string `xml:"Arn"`
	CreateDate          string
	Roles               struct {
		Members []roleXML `xml:"member"`
	}
	Tags tagsXML
}

func (p *profile) xml() profileXML {
	x := profileXML{
		Path: p.path, InstanceProfileName: p.name, InstanceProfileID: p.id, ARN: p.arn,
		CreateDate: timestamp(p.created), Tags: tagsXML{p.tags},
	}
	if p.role != nil {
		x.Roles.Members = []roleXML{p.role.xml()}
	}
	return x
}

type profileResult struct{ InstanceProfile profileXML }

func (s *Service) createInstanceProfile(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := c.Params.Get("InstanceProfileName")
	requested, err := readTags(c.Params)
	if err != nil {
		return nil, err
	}
	if err := s.authorizeAccess(c, api.Access{
		Action: c.IAMAction(), Resource: s.arn("instance-profile", "/", name), Context: requested.context("aws:RequestTag/"),
	}); err != nil {
		return nil, err
	}
	if err := checkName("instanceProfileName", name, longestProfileName); err != nil {
		return nil, err
	}
	path, err := checkPath(c.Params.Get("Path"))
	if err != nil {
		return nil, err
	}
	if s.profiles[strings.ToLower(name)] != nil {
		return nil, alreadyExists("Instance Profile %s already exists.", name)
	}
	p := &profile{
		name: name, path: path, arn: s.arn("instance-profile", path, name), id: uniqueID("AIPA"),
		created: time.Now(), tags: requested,
	}
	s.profiles[strings.ToLower(name)] = p
	return profileResult{p.xml()}, nil
}

// authorizedProfile finds the profile that a call names and asks whether the
// caller may; the mutex is held.
func (s *Service) authorizedProfile(c *api.Call) (*profile, error) {
	name := c.Params.Get("InstanceProfileName")
	p := s.profiles[strings.ToLower(name)]
	if p == nil {
		if err := s.authorize(c, s.arn("instance-profile", "/", name), nil); err != nil {
			return nil, err
		}
		return nil, noSuchEntity("Instance Profile %s cannot be found.", name)
	}
	return p, s.authorize(c, p.arn, p.tags)
}

func (s *Service) getInstanceProfile(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.authorizedProfile(c)
	if err != nil {
		return nil, err
	}
	return profileResult{p.xml()}, nil
}

func (s *Service) deleteInstanceProfile(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.authorizedProfile(c)
	if err != nil {
		return nil, err
	}
	if p.role != nil {
		return nil, deleteConflict("Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(s.profiles, strings.ToLower(p.name))
	return nil, nil
}

func (s *Service) addRoleToInstanceProfile(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.authorizedProfile(c)
	if err != nil {
		return nil, err
	}
	name := c.Params.Get("RoleName")
	r := s.roles[strings.ToLower(name)]
	if r == nil {
		return nil, noSuchEntity("The role with name %s cannot be found.", name)
	}
	if err := s.authorizeAccess(c, api.Access{
		Action: "iam:PassRole", Resource: r.arn, Context: map[string]string{"iam:PassedToService": "ec2.amazonaws.com"},
	}); err != nil {
		return nil, err
	}
	if p.role != nil {
		return nil, limitExceeded("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	p.role = r
	return nil, nil
}

func (s *Service) removeRoleFromInstanceProfile(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.authorizedProfile(c)
	if err != nil {
		return nil, err
	}
	name := c.Params.Get("RoleName")
	if p.role == nil || !strings.EqualFold(p.role.name, name) {
		return nil, noSuchEntity("The role with name %s cannot be found.", name)
	}
	p.role = nil
	return nil, nil
}

type profilesResult struct {
	InstanceProfiles struct {
		Members []profileXML `xml:"member"`
	}
	IsTruncated bool
}

func (s *Service) listInstanceProfilesForRole(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.authorizedRole(c)
	if err != nil {
		return nil, err
	}
	var result profilesResult
	for _, p := range s.profilesOf(r) {
		result.InstanceProfiles.Members = append(result.InstanceProfiles.Members, p.xml())
	}
	return result, nil
}

func (s *Service) tagInstanceProfile(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.authorizedProfile(c)
	if err != nil {
		return nil, err
	}
	more, err := readTags(c.Params)
	if err != nil {
		return nil, err
	}
	p.tags = p.tags.with(more)
	return nil, nil
}

func (s *Service) untagInstanceProfile(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.authorizedProfile(c)
	if err != nil {
		return nil, err
	}
	p.tags = p.tags.without(c.Params.List("TagKeys"))
	return nil, nil
}

func (s *Service) listInstanceProfileTags(_ context.Context, c *api.Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.authorizedProfile(c)
	if err != nil {
		return nil, err
	}
	return tagsResult{Tags: tagsXML{p.tags}}, nil
}
