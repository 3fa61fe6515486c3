package iam

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Grant is one action that a policy of a role allows, and how often it was what
// let a call through. It stays known after the policy and the role are gone.
type Grant struct {
	Role string
	// Policy is the inline policy's name, or the managed policy's ARN.
	Policy string
	// Statement is the statement's ID, or else its number in the policy, from 0.
	Statement string
	// Action is the action as the policy spells it, wildcards included.
	Action string
	Uses   int
}

// Managed says whether the grant comes from one of AWS's own policies.
func (g Grant) Managed() bool { return strings.HasPrefix(g.Policy, "arn:") }

// Refusal is a call that was denied.
type Refusal struct {
	Principal api.Principal
	Access    api.Access
}

// ledger is what was granted, used and refused in the life of the account.
type ledger struct {
	grants   map[grantKey]*Grant
	refusals []Refusal
}

type grantKey struct{ role, policy, statement, action string }

// Grants returns every grant that a role has had, in order of role, policy,
// statement and action. What was granted and never used is too much.
func (s *Service) Grants() []Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Grant, 0, len(s.ledger.grants))
	for _, grant := range s.ledger.grants {
		all = append(all, *grant)
	}
	slices.SortFunc(all, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Statement, b.Statement), cmp.Compare(a.Action, b.Action))
	})
	return all
}

// Refusals returns every access that was denied, in order.
func (s *Service) Refusals() []Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ledger.refusals)
}

func (l *ledger) granted(role, policy string, content *document) {
	for i, each := range content.statements {
		if each.deny {
			continue
		}
		for _, action := range each.actions {
			l.entry(role, policy, i, each.sid, action)
		}
	}
}

func (l *ledger) used(role, policy string, index int, sid, action string) {
	l.entry(role, policy, index, sid, action).Uses++
}

func (l *ledger) refused(principal api.Principal, access api.Access) {
	l.refusals = append(l.refusals, Refusal{Principal: principal, Access: access})
}

func (l *ledger) entry(role, policy string, index int, sid, action string) *Grant {
	statement := cmp.Or(sid, strconv.Itoa(index))
	key := grantKey{role, policy, statement, action}
	if l.grants[key] == nil {
		l.grants[key] = &Grant{Role: role, Policy: policy, Statement: statement, Action: action}
	}
	return l.grants[key]
}
