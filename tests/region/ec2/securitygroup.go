package ec2

import (
	"context"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type securityGroup struct {
	id, name, description string
	isDefault             bool
	rules                 []*rule
}

// addSecurityGroup makes a group of the VPC, which may send anything to
// anybody until its egress rule is revoked.
func (s *Service) addSecurityGroup(name, description string) *securityGroup {
	group := &securityGroup{id: newID("sg"), name: name, description: description}
	group.rules = []*rule{{id: newID("sgr"), egress: true, protocol: anyProtocol, from: -1, to: -1, cidr4: "0.0.0.0/0"}}
	s.groups[group.id] = group
	return group
}

type createSecurityGroupInput struct {
	Name           string             `query:"GroupName,required"`
	Description    string             `query:"GroupDescription,required"`
	VPC            string             `query:"VpcId"`
	Specifications []tagSpecification `query:"TagSpecification"`
}

type createSecurityGroupOutput struct {
	ID   string `xml:"groupId"`
	ARN  string `xml:"securityGroupArn"`
	Tags []tag  `xml:"tagSet>item"`
}

func (s *Service) createSecurityGroup(_ context.Context, c *api.Call, in createSecurityGroupInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags, err := tagsFor("security-group", in.Specifications)
	if err != nil {
		return nil, err
	}
	if err := s.authorizeCreate(c, "security-group", tags, nil); err != nil {
		return nil, err
	}
	if in.VPC != "" && in.VPC != s.network.vpcID {
		return nil, clientError("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", in.VPC)
	}
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._-:/()#,@[]+=&;{}!$*"
	for parameter, value := range map[string]string{"groupName": in.Name, "groupDescription": in.Description} {
		if value == "" || len(value) > 255 || strings.Trim(value, allowed) != "" {
			return nil, clientError("InvalidParameterValue",
				"Value (%s) for parameter %s is invalid. Character sets beyond ASCII are not supported, and it must be of 1 to 255 characters.", value, parameter)
		}
	}
	if strings.HasPrefix(strings.ToLower(in.Name), "sg-") {
		return nil, clientError("InvalidParameterValue", "Group names may not be in the format sg-*: %s", in.Name)
	}
	for _, each := range s.groups {
		if strings.EqualFold(each.name, in.Name) {
			return nil, clientError("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", in.Name, s.network.vpcID)
		}
	}
	group := s.addSecurityGroup(in.Name, in.Description)
	s.setTags(group.id, tags)
	return createSecurityGroupOutput{ID: group.id, ARN: s.arn("security-group", group.id), Tags: tagSet(tags)}, nil
}

func groupNotFound(id string) error {
	return clientError("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
}

// authorizedGroup finds the group that a call is about and asks whether the
// caller may; the mutex is held.
func (s *Service) authorizedGroup(c *api.Call, id, name string) (*securityGroup, error) {
	group := s.groups[id]
	if id == "" {
		for _, each := range s.groups {
			if each.name == name {
				group = each
			}
		}
	}
	if group == nil {
		if err := c.Authorize(s.on(c, "security-group", id, nil)); err != nil {
			return nil, err
		}
		if id == "" && name == "" {
			return nil, clientError("MissingParameter", "The request must contain the parameter groupName or groupId")
		}
		return nil, groupNotFound(id + name)
	}
	return group, c.Authorize(s.on(c, "security-group", group.id, keys{
		"ec2:SecurityGroupID": group.id, "ec2:Vpc": s.arn("vpc", s.network.vpcID),
	}))
}

type deleteSecurityGroupInput struct {
	ID   string `query:"GroupId"`
	Name string `query:"GroupName"`
}

type deleteSecurityGroupOutput struct {
	Return bool   `xml:"return"`
	ID     string `xml:"groupId"`
}

func (s *Service) deleteSecurityGroup(_ context.Context, c *api.Call, in deleteSecurityGroupInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group, err := s.authorizedGroup(c, in.ID, in.Name)
	if err != nil {
		return nil, err
	}
	if group.isDefault {
		return nil, clientError("CannotDelete", "the specified group: \"%s\" name: \"default\" cannot be deleted by a user", group.id)
	}
	if s.groupInUse(group) {
		return nil, clientError("DependencyViolation", "resource %s has a dependent object", group.id)
	}
	delete(s.groups, group.id)
	delete(s.tags, group.id)
	return deleteSecurityGroupOutput{Return: true, ID: group.id}, nil
}

// groupInUse says whether an instance that is not gone, or a rule of another
// group, refers to the group.
func (s *Service) groupInUse(group *securityGroup) bool {
	for _, each := range s.instances {
		for _, used := range each.groups {
			if used == group.id && each.state != StateTerminated {
				return true
			}
		}
	}
	for _, other := range s.groups {
		for _, rule := range other.rules {
			if other != group && rule.group == group.id {
				return true
			}
		}
	}
	return false
}

type describeSecurityGroupsInput struct {
	IDs        []string `query:"GroupId"`
	Names      []string `query:"GroupName"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type securityGroupXML struct {
	ID          string          `xml:"groupId"`
	ARN         string          `xml:"securityGroupArn"`
	Name        string          `xml:"groupName"`
	Description string          `xml:"groupDescription"`
	OwnerID     string          `xml:"ownerId"`
	VPC         string          `xml:"vpcId"`
	Ingress     []permissionXML `xml:"ipPermissions>item"`
	Egress      []permissionXML `xml:"ipPermissionsEgress>item"`
	Tags        []tag           `xml:"tagSet>item"`
}

type describeSecurityGroupsOutput struct {
	Groups    []securityGroupXML `xml:"securityGroupInfo>item"`
	NextToken string             `xml:"nextToken,omitempty"`
}

func (s *Service) describeSecurityGroups(_ context.Context, c *api.Call, in describeSecurityGroupsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	describe := func(g *securityGroup) attributes {
		return attributes{
			"group-id": {g.id}, "group-name": {g.name}, "description": {g.description}, "vpc-id": {s.network.vpcID}, "owner-id": {s.config.AccountID},
		}.withTags(s.tags[g.id])
	}
	id := func(g *securityGroup) string { return g.id }
	selected, err := chosen(sorted(s.groups), in.IDs, nil, id, describe, groupNotFound)
	if err != nil {
		return nil, err
	}
	selected, err = chosen(selected, in.Names, in.Filters, func(g *securityGroup) string { return g.name }, describe, groupNotFound)
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 5, selected, id)
	out := describeSecurityGroupsOutput{NextToken: next}
	for _, each := range cut {
		out.Groups = append(out.Groups, securityGroupXML{
			ID: each.id, ARN: s.arn("security-group", each.id), Name: each.name, Description: each.description,
			OwnerID: s.config.AccountID, VPC: s.network.vpcID, Tags: tagSet(s.tags[each.id]),
			Ingress: s.permissions(each, false), Egress: s.permissions(each, true),
		})
	}
	return out, err
}
