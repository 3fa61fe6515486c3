package awsplugin

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

type role struct {
	ARN                 string            `pulumi:"arn" aws:"output"`
	AssumeRolePolicy    string            `pulumi:"assumeRolePolicy" aws:"required,json"`
	CreateDate          string            `pulumi:"createDate" aws:"output"`
	Description         string            `pulumi:"description"`
	ForceDetachPolicies bool              `pulumi:"forceDetachPolicies" aws:"default=false"`
	InlinePolicies      []inlinePolicy    `pulumi:"inlinePolicies" aws:"computed,set"`
	ManagedPolicyARNs   []string          `pulumi:"managedPolicyArns" aws:"computed,set"`
	MaxSessionDuration  int               `pulumi:"maxSessionDuration" aws:"default=3600"`
	Name                string            `pulumi:"name" aws:"computed,replace"`
	NamePrefix          string            `pulumi:"namePrefix" aws:"computed,replace"`
	Path                string            `pulumi:"path" aws:"default=/,replace"`
	PermissionsBoundary string            `pulumi:"permissionsBoundary"`
	Tags                map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll             map[string]string `pulumi:"tagsAll" aws:"output"`
	UniqueID            string            `pulumi:"uniqueId" aws:"output"`
}

type inlinePolicy struct {
	Name   string `pulumi:"name"`
	Policy string `pulumi:"policy" aws:"json"`
}

const (
	noSuchEntity = "NoSuchEntity"
	// IAM takes a while to know everywhere what was created; AWS then refuses
	// what refers to it.
	iamPropagation = 2 * time.Minute
)

var roleHandler = handler[role]{
	naming: naming{property: "name", max: 64},
	create: func(ctx context.Context, c *cloud, r *role) (string, error) {
		_, err := c.iam.CreateRole(ctx, &iam.CreateRoleInput{
			AssumeRolePolicyDocument: aws.String(r.AssumeRolePolicy),
			Description:              optional(r.Description),
			MaxSessionDuration:       optional(int32(r.MaxSessionDuration)),
			Path:                     aws.String(r.Path),
			PermissionsBoundary:      optional(r.PermissionsBoundary),
			RoleName:                 aws.String(r.Name),
			Tags:                     tagList(r.TagsAll, iamTag),
		})
		if err != nil {
			return "", fmt.Errorf("creating IAM Role (%s): %w", r.Name, err)
		}
		return r.Name, updateRolePolicies(ctx, c, r.Name, &role{}, r)
	},
	read: func(ctx context.Context, c *cloud, id string, r *role) error {
		got, err := c.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String(id)})
		if err != nil {
			return missing(err, noSuchEntity)
		}
		found := got.Role
		r.ARN = aws.ToString(found.Arn)
		r.AssumeRolePolicy = document(found.AssumeRolePolicyDocument)
		r.CreateDate = timestamp(found.CreateDate)
		r.Description = aws.ToString(found.Description)
		r.MaxSessionDuration = int(aws.ToInt32(found.MaxSessionDuration))
		r.Name = aws.ToString(found.RoleName)
		r.Path = aws.ToString(found.Path)
		r.PermissionsBoundary = ""
		if found.PermissionsBoundary != nil {
			r.PermissionsBoundary = aws.ToString(found.PermissionsBoundary.PermissionsBoundaryArn)
		}
		r.UniqueID = aws.ToString(found.RoleId)
		r.TagsAll = tagMap(found.Tags, splitIAMTag)
		r.Tags = c.ownTags(r.TagsAll, r.Tags)
		return readRolePolicies(ctx, c, id, r)
	},
	update: func(ctx context.Context, c *cloud, id string, old, r *role, changed set) error {
		if changed["assumeRolePolicy"] {
			_, err := c.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{
				RoleName: aws.String(id), PolicyDocument: aws.String(r.AssumeRolePolicy),
			})
			if err != nil {
				return fmt.Errorf("updating IAM Role (%s) assume role policy: %w", id, err)
			}
		}
		if changed.any("description", "maxSessionDuration") {
			_, err := c.iam.UpdateRole(ctx, &iam.UpdateRoleInput{
				RoleName: aws.String(id), Description: aws.String(r.Description), MaxSessionDuration: optional(int32(r.MaxSessionDuration)),
			})
			if err != nil {
				return fmt.Errorf("updating IAM Role (%s): %w", id, err)
			}
		}
		if changed["permissionsBoundary"] {
			if err := updatePermissionsBoundary(ctx, c, id, r.PermissionsBoundary); err != nil {
				return err
			}
		}
		if changed.any("inlinePolicies", "managedPolicyArns") {
			if err := updateRolePolicies(ctx, c, id, old, r); err != nil {
				return err
			}
		}
		set, remove := tagChanges(old.TagsAll, r.TagsAll)
		if len(remove) > 0 {
			if _, err := c.iam.UntagRole(ctx, &iam.UntagRoleInput{RoleName: aws.String(id), TagKeys: remove}); err != nil {
				return fmt.Errorf("untagging IAM Role (%s): %w", id, err)
			}
		}
		if len(set) > 0 {
			if _, err := c.iam.TagRole(ctx, &iam.TagRoleInput{RoleName: aws.String(id), Tags: tagList(set, iamTag)}); err != nil {
				return fmt.Errorf("tagging IAM Role (%s): %w", id, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, r *role) error {
		if err := deleteRole(ctx, c, id, r); err != nil {
			return fmt.Errorf("deleting IAM Role (%s): %w", id, err)
		}
		return nil
	},
}

func updatePermissionsBoundary(ctx context.Context, c *cloud, id, boundary string) error {
	var err error
	if boundary != "" {
		_, err = c.iam.PutRolePermissionsBoundary(ctx, &iam.PutRolePermissionsBoundaryInput{
			RoleName: aws.String(id), PermissionsBoundary: aws.String(boundary),
		})
	} else {
		_, err = c.iam.DeleteRolePermissionsBoundary(ctx, &iam.DeleteRolePermissionsBoundaryInput{RoleName: aws.String(id)})
	}
	if err != nil {
		return fmt.Errorf("updating IAM Role (%s) permissions boundary: %w", id, err)
	}
	return nil
}

// updateRolePolicies makes the policies that a role declares itself what the
// new declaration says.
func updateRolePolicies(ctx context.Context, c *cloud, id string, old, r *role) error {
	wanted := map[string]string{}
	for _, p := range r.InlinePolicies {
		if p.Name == "" {
			continue
		}
		wanted[p.Name] = p.Policy
		_, err := c.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{
			RoleName: aws.String(id), PolicyName: aws.String(p.Name), PolicyDocument: aws.String(p.Policy),
		})
		if err != nil {
			return fmt.Errorf("adding inline policy to IAM Role (%s): %w", id, err)
		}
	}
	for _, p := range old.InlinePolicies {
		if _, keep := wanted[p.Name]; keep || p.Name == "" {
			continue
		}
		_, err := c.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: aws.String(id), PolicyName: aws.String(p.Name)})
		if err = ifPresent(err, noSuchEntity); err != nil {
			return fmt.Errorf("removing inline policy from IAM Role (%s): %w", id, err)
		}
	}
	attach, detach := stringChanges(old.ManagedPolicyARNs, r.ManagedPolicyARNs)
	for _, arn := range attach {
		if err := attachRolePolicy(ctx, c, id, arn); err != nil {
			return err
		}
	}
	for _, arn := range detach {
		if err := detachRolePolicy(ctx, c, id, arn); err != nil {
			return err
		}
	}
	return nil
}

func readRolePolicies(ctx context.Context, c *cloud, id string, r *role) error {
	r.InlinePolicies, r.ManagedPolicyARNs = nil, nil
	policies := iam.NewListRolePoliciesPaginator(c.iam, &iam.ListRolePoliciesInput{RoleName: aws.String(id)})
	for policies.HasMorePages() {
		page, err := policies.NextPage(ctx)
		if err != nil {
			return missing(err, noSuchEntity)
		}
		for _, name := range page.PolicyNames {
			got, err := c.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: aws.String(id), PolicyName: aws.String(name)})
			if hasCode(err, noSuchEntity) {
				continue // deleted meanwhile
			}
			if err != nil {
				return err
			}
			r.InlinePolicies = append(r.InlinePolicies, inlinePolicy{Name: name, Policy: document(got.PolicyDocument)})
		}
	}
	attached := iam.NewListAttachedRolePoliciesPaginator(c.iam, &iam.ListAttachedRolePoliciesInput{RoleName: aws.String(id)})
	for attached.HasMorePages() {
		page, err := attached.NextPage(ctx)
		if err != nil {
			return missing(err, noSuchEntity)
		}
		for _, policy := range page.AttachedPolicies {
			r.ManagedPolicyARNs = append(r.ManagedPolicyARNs, aws.ToString(policy.PolicyArn))
		}
	}
	return nil
}

// deleteRole removes the role from its instance profiles first, and with
// forceDetachPolicies all of its policies.
func deleteRole(ctx context.Context, c *cloud, id string, r *role) error {
	profiles, err := c.iam.ListInstanceProfilesForRole(ctx, &iam.ListInstanceProfilesForRoleInput{RoleName: aws.String(id)})
	if err != nil {
		return ifPresent(err, noSuchEntity)
	}
	for _, profile := range profiles.InstanceProfiles {
		_, err := c.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{
			InstanceProfileName: profile.InstanceProfileName, RoleName: aws.String(id),
		})
		if err = ifPresent(err, noSuchEntity); err != nil {
			return err
		}
	}
	// The policies that the role has now, whoever gave them to it.
	if r.ForceDetachPolicies {
		var current role
		if err := readRolePolicies(ctx, c, id, &current); err != nil {
			return ifPresent(err)
		}
		if err := updateRolePolicies(ctx, c, id, &current, &role{}); err != nil {
			return err
		}
	} else if err := updateRolePolicies(ctx, c, id, r, &role{}); err != nil {
		return err
	}
	return retry(ctx, iamPropagation, func(ctx context.Context) error {
		_, err := c.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: aws.String(id)})
		return ifPresent(err, noSuchEntity)
	}, "DeleteConflict")
}

type rolePolicy struct {
	Name       string `pulumi:"name" aws:"computed,replace"`
	NamePrefix string `pulumi:"namePrefix" aws:"computed,replace"`
	Policy     string `pulumi:"policy" aws:"required,json"`
	Role       string `pulumi:"role" aws:"required,replace"`
}

var rolePolicyHandler = handler[rolePolicy]{
	naming: naming{property: "name", max: 128},
	create: func(ctx context.Context, c *cloud, p *rolePolicy) (string, error) {
		if err := putRolePolicy(ctx, c, p); err != nil {
			return "", err
		}
		return p.Role + ":" + p.Name, nil
	},
	read: func(ctx context.Context, c *cloud, id string, p *rolePolicy) error {
		roleName, name, ok := strings.Cut(id, ":")
		if !ok {
			return fmt.Errorf("role_policy id must be of the form <role name>:<role policy name>, got %q", id)
		}
		got, err := c.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: aws.String(roleName), PolicyName: aws.String(name)})
		if err != nil {
			return missing(err, noSuchEntity)
		}
		p.Name, p.Role = name, roleName
		p.Policy = document(got.PolicyDocument)
		return nil
	},
	update: func(ctx context.Context, c *cloud, _ string, _, p *rolePolicy, changed set) error {
		if !changed["policy"] {
			return nil
		}
		return putRolePolicy(ctx, c, p)
	},
	delete: func(ctx context.Context, c *cloud, id string, p *rolePolicy) error {
		_, err := c.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: aws.String(p.Role), PolicyName: aws.String(p.Name)})
		if err = ifPresent(err, noSuchEntity); err != nil {
			return fmt.Errorf("deleting IAM Role Policy (%s): %w", id, err)
		}
		return nil
	},
}

func putRolePolicy(ctx context.Context, c *cloud, p *rolePolicy) error {
	_, err := c.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{
		RoleName: aws.String(p.Role), PolicyName: aws.String(p.Name), PolicyDocument: aws.String(p.Policy),
	})
	if err != nil {
		return fmt.Errorf("putting IAM Role (%s) Policy (%s): %w", p.Role, p.Name, err)
	}
	return nil
}

type rolePolicyAttachment struct {
	PolicyARN string `pulumi:"policyArn" aws:"required,replace"`
	Role      string `pulumi:"role" aws:"required,replace"`
}

var rolePolicyAttachmentHandler = handler[rolePolicyAttachment]{
	deleteFirst: true,
	create: func(ctx context.Context, c *cloud, a *rolePolicyAttachment) (string, error) {
		if err := attachRolePolicy(ctx, c, a.Role, a.PolicyARN); err != nil {
			return "", err
		}
		return uniqueName(a.Role + "-"), nil
	},
	read: func(ctx context.Context, c *cloud, _ string, a *rolePolicyAttachment) error {
		attached := iam.NewListAttachedRolePoliciesPaginator(c.iam, &iam.ListAttachedRolePoliciesInput{RoleName: aws.String(a.Role)})
		for attached.HasMorePages() {
			page, err := attached.NextPage(ctx)
			if err != nil {
				return missing(err, noSuchEntity)
			}
			for _, policy := range page.AttachedPolicies {
				if aws.ToString(policy.PolicyArn) == a.PolicyARN {
					return nil
				}
			}
		}
		return errNotFound
	},
	delete: func(ctx context.Context, c *cloud, _ string, a *rolePolicyAttachment) error {
		return detachRolePolicy(ctx, c, a.Role, a.PolicyARN)
	},
}

func attachRolePolicy(ctx context.Context, c *cloud, roleName, arn string) error {
	_, err := c.iam.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: aws.String(roleName), PolicyArn: aws.String(arn)})
	if err != nil {
		return fmt.Errorf("attaching IAM Policy (%s) to IAM Role (%s): %w", arn, roleName, err)
	}
	return nil
}

func detachRolePolicy(ctx context.Context, c *cloud, roleName, arn string) error {
	_, err := c.iam.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: aws.String(roleName), PolicyArn: aws.String(arn)})
	if err = ifPresent(err, noSuchEntity); err != nil {
		return fmt.Errorf("detaching IAM Policy (%s) from IAM Role (%s): %w", arn, roleName, err)
	}
	return nil
}

type instanceProfile struct {
	ARN        string            `pulumi:"arn" aws:"output"`
	CreateDate string            `pulumi:"createDate" aws:"output"`
	Name       string            `pulumi:"name" aws:"computed,replace"`
	NamePrefix string            `pulumi:"namePrefix" aws:"computed,replace"`
	Path       string            `pulumi:"path" aws:"default=/,replace"`
	Role       string            `pulumi:"role"`
	Tags       map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll    map[string]string `pulumi:"tagsAll" aws:"output"`
	UniqueID   string            `pulumi:"uniqueId" aws:"output"`
}

var instanceProfileHandler = handler[instanceProfile]{
	naming: naming{property: "name", max: 128},
	create: func(ctx context.Context, c *cloud, p *instanceProfile) (string, error) {
		_, err := c.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
			InstanceProfileName: aws.String(p.Name), Path: aws.String(p.Path), Tags: tagList(p.TagsAll, iamTag),
		})
		if err != nil {
			return "", fmt.Errorf("creating IAM Instance Profile (%s): %w", p.Name, err)
		}
		return p.Name, addRoleToProfile(ctx, c, p.Name, p.Role)
	},
	read: func(ctx context.Context, c *cloud, id string, p *instanceProfile) error {
		got, err := c.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(id)})
		if err != nil {
			return missing(err, noSuchEntity)
		}
		found := got.InstanceProfile
		p.ARN = aws.ToString(found.Arn)
		p.CreateDate = timestamp(found.CreateDate)
		p.Name = aws.ToString(found.InstanceProfileName)
		p.Path = aws.ToString(found.Path)
		p.Role = ""
		if len(found.Roles) > 0 {
			p.Role = aws.ToString(found.Roles[0].RoleName)
		}
		p.UniqueID = aws.ToString(found.InstanceProfileId)
		p.TagsAll = tagMap(found.Tags, splitIAMTag)
		p.Tags = c.ownTags(p.TagsAll, p.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, p *instanceProfile, changed set) error {
		if changed["role"] {
			if err := removeRoleFromProfile(ctx, c, id, old.Role); err != nil {
				return err
			}
			if err := addRoleToProfile(ctx, c, id, p.Role); err != nil {
				return err
			}
		}
		set, remove := tagChanges(old.TagsAll, p.TagsAll)
		if len(remove) > 0 {
			if _, err := c.iam.UntagInstanceProfile(ctx, &iam.UntagInstanceProfileInput{InstanceProfileName: aws.String(id), TagKeys: remove}); err != nil {
				return fmt.Errorf("untagging IAM Instance Profile (%s): %w", id, err)
			}
		}
		if len(set) > 0 {
			if _, err := c.iam.TagInstanceProfile(ctx, &iam.TagInstanceProfileInput{InstanceProfileName: aws.String(id), Tags: tagList(set, iamTag)}); err != nil {
				return fmt.Errorf("tagging IAM Instance Profile (%s): %w", id, err)
			}
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, id string, p *instanceProfile) error {
		if err := removeRoleFromProfile(ctx, c, id, p.Role); err != nil {
			return err
		}
		_, err := c.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String(id)})
		if err = ifPresent(err, noSuchEntity); err != nil {
			return fmt.Errorf("deleting IAM Instance Profile (%s): %w", id, err)
		}
		return nil
	},
}

func addRoleToProfile(ctx context.Context, c *cloud, profile, roleName string) error {
	if roleName == "" {
		return nil
	}
	err := retry(ctx, iamPropagation, func(ctx context.Context) error {
		_, err := c.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{
			InstanceProfileName: aws.String(profile), RoleName: aws.String(roleName),
		})
		return err
	}, "InvalidParameterValue")
	if err != nil {
		return fmt.Errorf("adding IAM Role (%s) to IAM Instance Profile (%s): %w", roleName, profile, err)
	}
	return nil
}

func removeRoleFromProfile(ctx context.Context, c *cloud, profile, roleName string) error {
	if roleName == "" {
		return nil
	}
	_, err := c.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{
		InstanceProfileName: aws.String(profile), RoleName: aws.String(roleName),
	})
	if err = ifPresent(err, noSuchEntity); err != nil {
		return fmt.Errorf("removing IAM Role (%s) from IAM Instance Profile (%s): %w", roleName, profile, err)
	}
	return nil
}

// document is a policy as its author wrote it: IAM answers URL-encoded text.
func document(encoded *string) string {
	text, err := url.QueryUnescape(aws.ToString(encoded))
	if err != nil {
		return aws.ToString(encoded)
	}
	return text
}

func iamTag(key, value string) types.Tag {
	return types.Tag{Key: aws.String(key), Value: aws.String(value)}
}

func splitIAMTag(t types.Tag) (*string, *string) { return t.Key, t.Value }
