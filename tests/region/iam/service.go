package iam

import (
	"crypto/rand"
	"encoding/base32"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// The administrator's keys are fixed, so that a shell can be pointed at a
// region by hand. They open nothing but a region on this machine.
const (
	AdministratorAccessKeyID     = "AKIAREGIONINABOX0000"
	AdministratorSecretAccessKey = "region-in-a-box"
)

// Service is the IAM of one account.
type Service struct {
	account string
	region  string

	mu       sync.Mutex
	roles    map[string]*role // by lower-case name: names differ by more than case
	profiles map[string]*profile
	sessions map[string]session // by access key
	ledger   ledger
}

// New makes the IAM of an account. The region is the value of
// aws:RequestedRegion in conditions.
func New(account, region string) *Service {
	return &Service{
		account:  account,
		region:   region,
		roles:    map[string]*role{},
		profiles: map[string]*profile{},
		sessions: map[string]session{},
		ledger:   ledger{grants: map[grantKey]*Grant{}},
	}
}

// API is the service's table of operations.
func (s *Service) API() *api.Service {
	return &api.Service{
		Name:      "iam",
		Protocol:  api.Query,
		Namespace: "https://iam.amazonaws.com/doc/2010-05-08/",
		Operations: map[string]api.Operation{
			"CreateRole":             s.createRole,
			"GetRole":                s.getRole,
			"ListRoles":              s.listRoles,
			"UpdateRole":             s.updateRole,
			"UpdateAssumeRolePolicy": s.updateAssumeRolePolicy,
			"DeleteRole":             s.deleteRole,
			"TagRole":                s.tagRole,
			"UntagRole":              s.untagRole,
			"ListRoleTags":           s.listRoleTags,

			"PutRolePolicy":            s.putRolePolicy,
			"GetRolePolicy":            s.getRolePolicy,
			"DeleteRolePolicy":         s.deleteRolePolicy,
			"ListRolePolicies":         s.listRolePolicies,
			"AttachRolePolicy":         s.attachRolePolicy,
			"DetachRolePolicy":         s.detachRolePolicy,
			"ListAttachedRolePolicies": s.listAttachedRolePolicies,
			"GetPolicy":                s.getPolicy,
			"GetPolicyVersion":         s.getPolicyVersion,

			"CreateInstanceProfile":         s.createInstanceProfile,
			"GetInstanceProfile":            s.getInstanceProfile,
			"DeleteInstanceProfile":         s.deleteInstanceProfile,
			"AddRoleToInstanceProfile":      s.addRoleToInstanceProfile,
			"RemoveRoleFromInstanceProfile": s.removeRoleFromInstanceProfile,
			"ListInstanceProfilesForRole":   s.listInstanceProfilesForRole,
			"TagInstanceProfile":            s.tagInstanceProfile,
			"UntagInstanceProfile":          s.untagInstanceProfile,
			"ListInstanceProfileTags":       s.listInstanceProfileTags,
		},
	}
}

func (s *Service) arn(kind, path, name string) string {
	return "arn:aws:iam::" + s.account + ":" + kind + path + name
}

// IAM's errors, by its own codes.

func noSuchEntity(format string, args ...any) error {
	return api.Errorf(http.StatusNotFound, "NoSuchEntity", format, args...)
}

func alreadyExists(format string, args ...any) error {
	return api.Errorf(http.StatusConflict, "EntityAlreadyExists", format, args...)
}

func deleteConflict(format string, args ...any) error {
	return api.Errorf(http.StatusConflict, "DeleteConflict", format, args...)
}

func limitExceeded(format string, args ...any) error {
	return api.Errorf(http.StatusConflict, "LimitExceeded", format, args...)
}

func invalid(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "ValidationError", format, args...)
}

func malformed(format string, args ...any) error {
	return api.Errorf(http.StatusBadRequest, "MalformedPolicyDocument", format, args...)
}

// checkName checks a name by the rule that roles, profiles and policies share.
func checkName(parameter, name string, longest int) error {
	valid := name != "" && len(name) <= longest
	for _, r := range name {
		valid = valid && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_+=,.@-", r))
	}
	if !valid {
		return invalid("The specified value for %s is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_- and be of 1 to %d characters.", parameter, longest)
	}
	return nil
}

// checkPath returns an entity's path, "/" when none was asked for.
func checkPath(path string) (string, error) {
	if path == "" {
		return "/", nil
	}
	if !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/") || len(path) > 512 {
		return "", invalid("The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.")
	}
	return path, nil
}

// uniqueID makes an ID as IAM makes them: a prefix that tells the kind, and
// random letters and digits, 21 characters in all.
func uniqueID(prefix string) string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return prefix + base32.StdEncoding.EncodeToString(random[:])[:21-len(prefix)]
}

// Tags are the tags of a role or profile.
type tags []tag

type tag struct {
	Key   string
	Value string
}

// tagPattern is what IAM takes in a tag, fewer characters than EC2 does:
// https://docs.aws.amazon.com/IAM/latest/APIReference/API_Tag.html
var tagPattern = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

// readTags reads a call's tags, whose keys may not differ by their case only.
func readTags(params api.Params) (tags, error) {
	var read tags
	for i, each := range params.Structs("Tags") {
		t := tag{Key: each.Get("Key"), Value: each.Get("Value")}
		for what, text := range map[string]string{"key": t.Key, "value": t.Value} {
			if !tagPattern.MatchString(text) {
				return nil, api.Errorf(http.StatusBadRequest, "ValidationError",
					"1 validation error detected: Value '%s' at 'tags.%d.member.%s' failed to satisfy constraint: Member must satisfy regular expression pattern: %s",
					text, i+1, what, tagPattern)
			}
		}
		if slices.ContainsFunc(read, func(other tag) bool { return strings.EqualFold(other.Key, t.Key) }) {
			return nil, api.Errorf(http.StatusBadRequest, "InvalidInput",
				"Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		read = append(read, t)
	}
	return read, nil
}

// with returns the tags with others added or changed.
func (t tags) with(others tags) tags {
	keys := make([]string, len(others))
	for i, each := range others {
		keys[i] = each.Key
	}
	return append(t.without(keys), others...)
}

// without returns the tags less those of some keys.
func (t tags) without(keys []string) tags {
	kept := tags{}
	for _, each := range t {
		gone := false
		for _, key := range keys {
			gone = gone || key == each.Key
		}
		if !gone {
			kept = append(kept, each)
		}
	}
	return kept
}

// context is what the tags are in conditions, under a key's prefix.
func (t tags) context(prefix string) map[string]string {
	context := map[string]string{}
	for _, each := range t {
		context[prefix+each.Key] = each.Value
	}
	return context
}

type tagsXML struct {
	Members []tag `xml:"member"`
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func number(text string, fallback int) (int, error) {
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, invalid("%q is not a number", text)
	}
	return n, nil
}

// authorize asks for the call's own action on a resource with its tags.
func (s *Service) authorize(c *api.Call, resource string, resourceTags tags) error {
	context := resourceTags.context("aws:ResourceTag/")
	maps.Copy(context, resourceTags.context("iam:ResourceTag/"))
	return s.authorizeAccess(c, api.Access{Action: c.IAMAction(), Resource: resource, Context: context})
}

// authorizeAccess is Call.Authorize for this service's own operations, which
// hold the mutex that the judge needs.
func (s *Service) authorizeAccess(c *api.Call, access api.Access) error {
	if err := c.Authorize(); err != nil {
		return err
	}
	if c.Principal.Role == "" {
		return nil
	}
	return s.judge(c.Principal, access)
}
