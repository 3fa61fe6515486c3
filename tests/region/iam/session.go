package iam

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Credentials are keys that the region's services accept.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	Token           string
	Expiration      time.Time
}

type session struct {
	role    *role
	name    string
	expires time.Time
}

// sessionLength is how long an instance's or a function's credentials last.
const sessionLength = 6 * time.Hour

// Assume makes temporary credentials of a role, in a session of the given
// name. The services that assume a role check with Trusts whether they may.
func (s *Service) Assume(roleName, sessionName string) (Credentials, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[strings.ToLower(roleName)]
	if r == nil {
		return Credentials{}, fmt.Errorf("assume role: %w", noSuchEntity("The role with name %s cannot be found.", roleName))
	}
	made := Credentials{
		AccessKeyID:     uniqueID("ASIA")[:20],
		SecretAccessKey: uniqueID("") + uniqueID(""),
		Token:           uniqueID("") + uniqueID(""),
		Expiration:      time.Now().Add(sessionLength).Truncate(time.Second),
	}
	s.sessions[made.AccessKeyID] = session{role: r, name: sessionName, expires: made.Expiration}
	return made, nil
}

// Trusts says whether a role's trust policy lets a service, such as
// ec2.amazonaws.com, assume it.
func (s *Service) Trusts(roleName, servicePrincipal string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[strings.ToLower(roleName)]
	if r == nil {
		return false
	}
	trusted := false
	for _, each := range r.trust.statements {
		if _, matched := matchAction(each.actions, "sts:AssumeRole"); !matched || !slices.Contains(each.principals, servicePrincipal) {
			continue
		}
		if each.deny {
			return false
		}
		trusted = true
	}
	return trusted
}

// Role finds a role's name by its name or ARN.
func (s *Service) Role(nameOrARN string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.roles {
		if r.name == nameOrARN || r.arn == nameOrARN {
			return r.name, true
		}
	}
	return "", false
}

// Identify tells who an access key belongs to. Keys of a role that has been
// deleted, and keys that have expired, belong to nobody.
func (s *Service) Identify(accessKeyID string) (api.Principal, bool) {
	if accessKeyID == AdministratorAccessKeyID {
		return api.Principal{ARN: s.arn("user", "/", "administrator")}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.sessions[accessKeyID]
	if !ok || s.roles[strings.ToLower(found.role.name)] != found.role || time.Now().After(found.expires) {
		return api.Principal{}, false
	}
	return api.Principal{
		ARN:     "arn:aws:sts::" + s.account + ":assumed-role/" + found.role.name + "/" + found.name,
		Role:    found.role.name,
		Session: found.name,
	}, true
}

// UserID is a principal's unique ID, as sts:GetCallerIdentity tells it.
func (s *Service) UserID(principal api.Principal) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.roles[strings.ToLower(principal.Role)]; r != nil {
		return r.id + ":" + principal.Session
	}
	return "AIDAADMINISTRATOR0000"
}
