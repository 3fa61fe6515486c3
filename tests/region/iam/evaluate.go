package iam

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Authorize says whether a principal may do something: the administrator may
// do everything, a role what its policies allow and do not deny. It implements
// api.Authorizer.
func (s *Service) Authorize(principal api.Principal, access api.Access) error {
	if principal.Role == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge(principal, access)
}

func (s *Service) judge(principal api.Principal, access api.Access) error {
	context := s.requestContext(principal, access)
	allowed, denied := false, false
	s.eachPolicy(principal.Role, func(name string, policy *document) {
		for i, each := range policy.statements {
			granted, applies := each.applies(access, context)
			switch {
			case !applies:
			case each.deny:
				denied = true
			default:
				allowed = true
				s.ledger.used(principal.Role, name, i, each.sid, granted)
			}
		}
	})
	if allowed && !denied {
		return nil
	}
	reason := fmt.Sprintf("no identity-based policy allows the %s action", access.Action)
	if denied {
		reason = "an explicit deny in an identity-based policy"
	}
	s.ledger.refused(principal, access)
	return refusal(access.Action, fmt.Sprintf("User: %s is not authorized to perform: %s on resource: %s because %s",
		principal.ARN, access.Action, access.Resource, reason))
}

// eachPolicy visits the policies of a role.
func (s *Service) eachPolicy(roleName string, visit func(name string, policy *document)) {
	r := s.roles[strings.ToLower(roleName)]
	if r == nil {
		return // a role that is gone allows nothing
	}
	for name, policy := range r.inline {
		visit(name, policy)
	}
	for _, arn := range r.attached {
		visit(arn, managed(arn))
	}
}

// requestContext is the access's condition keys and those of every request.
// ec2:SourceInstanceARN is in requests made with an instance's own
// credentials.
func (s *Service) requestContext(principal api.Principal, access api.Access) requestContext {
	context := requestContext{
		"aws:principalarn":     s.arn("role", "/", principal.Role),
		"aws:principalaccount": s.account,
		"aws:principaltype":    "AssumedRole",
		"aws:requestedregion":  s.region,
	}
	if r := s.roles[strings.ToLower(principal.Role)]; r != nil {
		context["aws:principalarn"] = r.arn
		context["aws:userid"] = r.id + ":" + principal.Session
		for key, value := range r.tags.context("aws:principaltag/") {
			context[strings.ToLower(key)] = value
		}
	}
	if strings.HasPrefix(principal.Session, "i-") {
		context["ec2:sourceinstancearn"] = "arn:aws:ec2:" + s.region + ":" + s.account + ":instance/" + principal.Session
	}
	for key, value := range access.Context {
		context[strings.ToLower(key)] = value
	}
	return context
}

// applies says whether the statement speaks of the access, and in which of its
// action patterns it does so.
func (s statement) applies(access api.Access, context requestContext) (action string, applies bool) {
	if len(s.notActions) > 0 {
		if _, matched := matchAction(s.notActions, access.Action); matched {
			return "", false
		}
		action = "NotAction " + strings.Join(s.notActions, " ")
	} else {
		var matched bool
		if action, matched = matchAction(s.actions, access.Action); !matched {
			return "", false
		}
	}
	if len(s.notResources) > 0 {
		if context.matchAny(s.notResources, access.Resource) {
			return "", false
		}
	} else if !context.matchAny(s.resources, access.Resource) {
		return "", false
	}
	for _, condition := range s.conditions {
		if !condition.holds(context) {
			return "", false
		}
	}
	return action, true
}

// matchAction finds the pattern that an action fits; actions do not differ by
// case and have no variables.
func matchAction(patterns []string, action string) (string, bool) {
	for _, text := range patterns {
		wanted, ok := requestContext{}.expand(strings.ToLower(text))
		if ok && wanted.match(strings.ToLower(action)) {
			return text, true
		}
	}
	return "", false
}

func (context requestContext) matchAny(patterns []string, resource string) bool {
	for _, text := range patterns {
		if wanted, ok := context.expand(text); ok && wanted.match(resource) {
			return true
		}
	}
	return false
}

// refusal is the error that the action's service answers with.
func refusal(action, sentence string) error {
	service, _, _ := strings.Cut(action, ":")
	switch service {
	case "ec2":
		return api.Errorf(http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation. %s", sentence)
	case "iam", "sts", "autoscaling", "s3":
		return api.Errorf(http.StatusForbidden, "AccessDenied", "%s", sentence)
	default:
		return api.Errorf(http.StatusForbidden, "AccessDeniedException", "%s", sentence)
	}
}
