package awsplugin

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

type securityGroup struct {
	ARN                 string              `pulumi:"arn" aws:"output"`
	Description         string              `pulumi:"description" aws:"replace,default=Managed by Pulumi"`
	Egress              []securityGroupPart `pulumi:"egress" aws:"computed,set"`
	Ingress             []securityGroupPart `pulumi:"ingress" aws:"computed,set"`
	Name                string              `pulumi:"name" aws:"computed,replace"`
	NamePrefix          string              `pulumi:"namePrefix" aws:"computed,replace"`
	OwnerID             string              `pulumi:"ownerId" aws:"output"`
	RevokeRulesOnDelete bool                `pulumi:"revokeRulesOnDelete" aws:"default=false"`
	Tags                map[string]string   `pulumi:"tags" aws:"tags"`
	TagsAll             map[string]string   `pulumi:"tagsAll" aws:"output"`
	VPCID               string              `pulumi:"vpcId" aws:"computed,replace"`
}

// securityGroupPart is a rule inside of the group's own declaration.
type securityGroupPart struct {
	CIDRBlocks     []string `pulumi:"cidrBlocks"`
	Description    string   `pulumi:"description"`
	FromPort       int      `pulumi:"fromPort" aws:"required"`
	IPv6CIDRBlocks []string `pulumi:"ipv6CidrBlocks"`
	PrefixListIDs  []string `pulumi:"prefixListIds"`
	Protocol       string   `pulumi:"protocol" aws:"required"`
	SecurityGroups []string `pulumi:"securityGroups" aws:"set"`
	Self           bool     `pulumi:"self" aws:"default=false"`
	ToPort         int      `pulumi:"toPort" aws:"required"`
}

const securityGroupDeleteTimeout = 15 * time.Minute

var securityGroupHandler = handler[securityGroup]{
	naming: naming{property: "name", max: 255},
	create: func(ctx context.Context, c *cloud, g *securityGroup) (string, error) {
		created, err := c.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
			Description:       aws.String(g.Description),
			GroupName:         aws.String(g.Name),
			TagSpecifications: ec2TagSpecification(types.ResourceTypeSecurityGroup, g.TagsAll),
			VpcId:             optional(g.VPCID),
		})
		if err != nil {
			return "", fmt.Errorf("creating Security Group (%s): %w", g.Name, err)
		}
		id := aws.ToString(created.GroupId)
		// AWS allows all traffic out of a new group. The real plugin takes that
		// away: a program says what it wants.
		_, err = c.ec2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{
			GroupId: aws.String(id),
			IpPermissions: []types.IpPermission{{
				IpProtocol: aws.String("-1"),
				IpRanges:   []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}},
			}},
		})
		if err != nil && !hasCode(err, "InvalidPermission.NotFound") {
			return id, fmt.Errorf("revoking default IPv4 egress rule for Security Group (%s): %w", id, err)
		}
		return id, updateSecurityGroupParts(ctx, c, id, &securityGroup{}, g)
	},
	read: func(ctx context.Context, c *cloud, id string, g *securityGroup) error {
		found, err := findSecurityGroup(ctx, c, id)
		if err != nil {
			return err
		}
		g.ARN = c.ec2ARN("security-group/" + id)
		g.Description = aws.ToString(found.Description)
		g.Name = aws.ToString(found.GroupName)
		g.OwnerID = aws.ToString(found.OwnerId)
		g.VPCID = aws.ToString(found.VpcId)
		g.Egress = securityGroupParts(id, found.IpPermissionsEgress)
		g.Ingress = securityGroupParts(id, found.IpPermissions)
		g.TagsAll = ec2Tags(found.Tags)
		g.Tags = c.ownTags(g.TagsAll, g.Tags)
		return nil
	},
	update: func(ctx context.Context, c *cloud, id string, old, g *securityGroup, changed set) error {
		if changed.any("ingress", "egress") {
			if err := updateSecurityGroupParts(ctx, c, id, old, g); err != nil {
				return err
			}
		}
		return ec2UpdateTags(ctx, c, id, old.TagsAll, g.TagsAll)
	},
	delete: func(ctx context.Context, c *cloud, id string, g *securityGroup) error {
		if g.RevokeRulesOnDelete {
			if err := updateSecurityGroupParts(ctx, c, id, g, &securityGroup{}); err != nil {
				return err
			}
		}
		err := retry(ctx, securityGroupDeleteTimeout, func(ctx context.Context) error {
			_, err := c.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: aws.String(id)})
			return err
		}, "DependencyViolation", "InvalidGroup.InUse")
		if err = ifPresent(err, "InvalidGroup.NotFound", "InvalidGroupId.Malformed"); err != nil {
			return fmt.Errorf("deleting Security Group (%s): %w", id, err)
		}
		return nil
	},
}

func findSecurityGroup(ctx context.Context, c *cloud, id string) (types.SecurityGroup, error) {
	described, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{id}})
	if err != nil {
		return types.SecurityGroup{}, missing(err, "InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound")
	}
	if len(described.SecurityGroups) == 0 {
		return types.SecurityGroup{}, errNotFound
	}
	return described.SecurityGroups[0], nil
}

// updateSecurityGroupParts revokes the rules that are not wanted any more and
// then authorizes the new ones.
func updateSecurityGroupParts(ctx context.Context, c *cloud, id string, old, g *securityGroup) error {
	revoke := difference(old.Ingress, g.Ingress)
	if len(revoke) > 0 {
		_, err := c.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
			GroupId: aws.String(id), IpPermissions: permissions(id, revoke),
		})
		if err != nil {
			return fmt.Errorf("revoking Security Group (%s) ingress rules: %w", id, err)
		}
	}
	if revoke = difference(old.Egress, g.Egress); len(revoke) > 0 {
		_, err := c.ec2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{
			GroupId: aws.String(id), IpPermissions: permissions(id, revoke),
		})
		if err != nil {
			return fmt.Errorf("revoking Security Group (%s) egress rules: %w", id, err)
		}
	}
	authorize := difference(g.Ingress, old.Ingress)
	if len(authorize) > 0 {
		_, err := c.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
			GroupId: aws.String(id), IpPermissions: permissions(id, authorize),
		})
		if err != nil {
			return fmt.Errorf("authorizing Security Group (%s) ingress rules: %w", id, err)
		}
	}
	if authorize = difference(g.Egress, old.Egress); len(authorize) > 0 {
		_, err := c.ec2.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{
			GroupId: aws.String(id), IpPermissions: permissions(id, authorize),
		})
		if err != nil {
			return fmt.Errorf("authorizing Security Group (%s) egress rules: %w", id, err)
		}
	}
	return nil
}

func difference(parts, without []securityGroupPart) []securityGroupPart {
	var rest []securityGroupPart
	for _, part := range parts {
		if !slices.ContainsFunc(without, func(other securityGroupPart) bool { return fmt.Sprint(part) == fmt.Sprint(other) }) {
			rest = append(rest, part)
		}
	}
	return rest
}

func permissions(group string, parts []securityGroupPart) []types.IpPermission {
	var list []types.IpPermission
	for _, part := range parts {
		description := optional(part.Description)
		p := types.IpPermission{IpProtocol: aws.String(part.Protocol)}
		if part.Protocol != "-1" {
			p.FromPort, p.ToPort = aws.Int32(int32(part.FromPort)), aws.Int32(int32(part.ToPort))
		}
		for _, cidr := range part.CIDRBlocks {
			p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: aws.String(cidr), Description: description})
		}
		for _, cidr := range part.IPv6CIDRBlocks {
			p.Ipv6Ranges = append(p.Ipv6Ranges, types.Ipv6Range{CidrIpv6: aws.String(cidr), Description: description})
		}
		for _, prefix := range part.PrefixListIDs {
			p.PrefixListIds = append(p.PrefixListIds, types.PrefixListId{PrefixListId: aws.String(prefix), Description: description})
		}
		groups := part.SecurityGroups
		if part.Self {
			groups = append(slices.Clone(groups), group)
		}
		for _, other := range groups {
			p.UserIdGroupPairs = append(p.UserIdGroupPairs, types.UserIdGroupPair{GroupId: aws.String(other), Description: description})
		}
		list = append(list, p)
	}
	return list
}

// securityGroupParts is the reverse of permissions: one part for the sources
// that share protocol, ports and description.
func securityGroupParts(group string, list []types.IpPermission) []securityGroupPart {
	var parts []securityGroupPart
	for _, p := range list {
		byDescription := map[string]*securityGroupPart{}
		var order []string
		part := func(description *string) *securityGroupPart {
			text := aws.ToString(description)
			if byDescription[text] == nil {
				byDescription[text] = &securityGroupPart{
					Description: text,
					FromPort:    int(aws.ToInt32(p.FromPort)),
					ToPort:      int(aws.ToInt32(p.ToPort)),
					Protocol:    aws.ToString(p.IpProtocol),
				}
				order = append(order, text)
			}
			return byDescription[text]
		}
		for _, r := range p.IpRanges {
			to := part(r.Description)
			to.CIDRBlocks = append(to.CIDRBlocks, aws.ToString(r.CidrIp))
		}
		for _, r := range p.Ipv6Ranges {
			to := part(r.Description)
			to.IPv6CIDRBlocks = append(to.IPv6CIDRBlocks, aws.ToString(r.CidrIpv6))
		}
		for _, r := range p.PrefixListIds {
			to := part(r.Description)
			to.PrefixListIDs = append(to.PrefixListIDs, aws.ToString(r.PrefixListId))
		}
		for _, r := range p.UserIdGroupPairs {
			to := part(r.Description)
			if aws.ToString(r.GroupId) == group {
				to.Self = true
			} else {
				to.SecurityGroups = append(to.SecurityGroups, aws.ToString(r.GroupId))
			}
		}
		for _, text := range order {
			parts = append(parts, *byDescription[text])
		}
	}
	return parts
}

// vpcRule is one rule of a group, with one source or destination.
type vpcRule struct {
	ARN                       string            `pulumi:"arn" aws:"output"`
	CIDRIPv4                  *string           `pulumi:"cidrIpv4"`
	CIDRIPv6                  *string           `pulumi:"cidrIpv6"`
	Description               *string           `pulumi:"description"`
	FromPort                  *int              `pulumi:"fromPort"`
	IPProtocol                string            `pulumi:"ipProtocol" aws:"required"`
	PrefixListID              *string           `pulumi:"prefixListId"`
	ReferencedSecurityGroupID *string           `pulumi:"referencedSecurityGroupId"`
	SecurityGroupID           string            `pulumi:"securityGroupId" aws:"required,replace"`
	SecurityGroupRuleID       string            `pulumi:"securityGroupRuleId" aws:"output"`
	Tags                      map[string]string `pulumi:"tags" aws:"tags"`
	TagsAll                   map[string]string `pulumi:"tagsAll" aws:"output"`
	ToPort                    *int              `pulumi:"toPort"`
}

var (
	securityGroupIngressRuleHandler = vpcRuleHandler(
		func(ctx context.Context, c *cloud, r *vpcRule) ([]types.SecurityGroupRule, error) {
			authorized, err := c.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
				GroupId:           aws.String(r.SecurityGroupID),
				IpPermissions:     []types.IpPermission{r.permission()},
				TagSpecifications: ec2TagSpecification(types.ResourceTypeSecurityGroupRule, r.TagsAll),
			})
			if err != nil {
				return nil, fmt.Errorf("creating VPC Security Group Ingress Rule: %w", err)
			}
			return authorized.SecurityGroupRules, nil
		},
		revokeIngressRule,
	)
	securityGroupEgressRuleHandler = vpcRuleHandler(
		func(ctx context.Context, c *cloud, r *vpcRule) ([]types.SecurityGroupRule, error) {
			authorized, err := c.ec2.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{
				GroupId:           aws.String(r.SecurityGroupID),
				IpPermissions:     []types.IpPermission{r.permission()},
				TagSpecifications: ec2TagSpecification(types.ResourceTypeSecurityGroupRule, r.TagsAll),
			})
			if err != nil {
				return nil, fmt.Errorf("creating VPC Security Group Egress Rule: %w", err)
			}
			return authorized.SecurityGroupRules, nil
		},
		revokeEgressRule,
	)
)

func vpcRuleHandler(
	authorize func(context.Context, *cloud, *vpcRule) ([]types.SecurityGroupRule, error),
	revoke func(ctx context.Context, c *cloud, group, rule string) error,
) handler[vpcRule] {
	return handler[vpcRule]{
		create: func(ctx context.Context, c *cloud, r *vpcRule) (string, error) {
			rules, err := authorize(ctx, c, r)
			if err != nil {
				return "", err
			}
			if len(rules) != 1 {
				return "", fmt.Errorf("creating VPC Security Group Rule: AWS made %d rules of one", len(rules))
			}
			return aws.ToString(rules[0].SecurityGroupRuleId), nil
		},
		read: func(ctx context.Context, c *cloud, id string, r *vpcRule) error {
			found, err := findSecurityGroupRule(ctx, c, id)
			if err != nil {
				return err
			}
			r.ARN = c.ec2ARN("security-group-rule/" + id)
			r.CIDRIPv4, r.CIDRIPv6 = found.CidrIpv4, found.CidrIpv6
			r.Description = found.Description
			r.IPProtocol = aws.ToString(found.IpProtocol)
			r.PrefixListID = found.PrefixListId
			r.ReferencedSecurityGroupID = nil
			if found.ReferencedGroupInfo != nil {
				r.ReferencedSecurityGroupID = found.ReferencedGroupInfo.GroupId
			}
			r.SecurityGroupID = aws.ToString(found.GroupId)
			r.SecurityGroupRuleID = id
			if r.IPProtocol == "-1" {
				// AWS answers -1 for both ports, which nobody set.
				r.FromPort, r.ToPort = nil, nil
			} else {
				r.FromPort, r.ToPort = number(found.FromPort), number(found.ToPort)
			}
			r.TagsAll = ec2Tags(found.Tags)
			r.Tags = c.ownTags(r.TagsAll, r.Tags)
			return nil
		},
		update: func(ctx context.Context, c *cloud, id string, old, r *vpcRule, changed set) error {
			if changed.any("cidrIpv4", "cidrIpv6", "description", "fromPort", "ipProtocol", "prefixListId", "referencedSecurityGroupId", "toPort") {
				_, err := c.ec2.ModifySecurityGroupRules(ctx, &ec2.ModifySecurityGroupRulesInput{
					GroupId: aws.String(r.SecurityGroupID),
					SecurityGroupRules: []types.SecurityGroupRuleUpdate{{
						SecurityGroupRuleId: aws.String(id),
						SecurityGroupRule: &types.SecurityGroupRuleRequest{
							CidrIpv4: r.CIDRIPv4, CidrIpv6: r.CIDRIPv6, Description: r.Description,
							FromPort: pointer(r.FromPort), ToPort: pointer(r.ToPort), IpProtocol: aws.String(r.IPProtocol),
							PrefixListId: r.PrefixListID, ReferencedGroupId: r.ReferencedSecurityGroupID,
						},
					}},
				})
				if err != nil {
					return fmt.Errorf("updating VPC Security Group Rule (%s): %w", id, err)
				}
			}
			return ec2UpdateTags(ctx, c, id, old.TagsAll, r.TagsAll)
		},
		delete: func(ctx context.Context, c *cloud, id string, r *vpcRule) error {
			return revoke(ctx, c, r.SecurityGroupID, id)
		},
	}
}

func (r *vpcRule) permission() types.IpPermission {
	p := types.IpPermission{IpProtocol: aws.String(r.IPProtocol), FromPort: pointer(r.FromPort), ToPort: pointer(r.ToPort)}
	if r.CIDRIPv4 != nil {
		p.IpRanges = []types.IpRange{{CidrIp: r.CIDRIPv4, Description: r.Description}}
	}
	if r.CIDRIPv6 != nil {
		p.Ipv6Ranges = []types.Ipv6Range{{CidrIpv6: r.CIDRIPv6, Description: r.Description}}
	}
	if r.PrefixListID != nil {
		p.PrefixListIds = []types.PrefixListId{{PrefixListId: r.PrefixListID, Description: r.Description}}
	}
	if r.ReferencedSecurityGroupID != nil {
		p.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: r.ReferencedSecurityGroupID, Description: r.Description}}
	}
	return p
}

func findSecurityGroupRule(ctx context.Context, c *cloud, id string) (types.SecurityGroupRule, error) {
	described, err := c.ec2.DescribeSecurityGroupRules(ctx, &ec2.DescribeSecurityGroupRulesInput{SecurityGroupRuleIds: []string{id}})
	if err != nil {
		return types.SecurityGroupRule{}, missing(err, "InvalidSecurityGroupRuleId.NotFound")
	}
	if len(described.SecurityGroupRules) == 0 {
		return types.SecurityGroupRule{}, errNotFound
	}
	return described.SecurityGroupRules[0], nil
}

func revokeIngressRule(ctx context.Context, c *cloud, group, rule string) error {
	_, err := c.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
		GroupId: aws.String(group), SecurityGroupRuleIds: []string{rule},
	})
	if err = ifPresent(err, "InvalidSecurityGroupRuleId.NotFound", "InvalidGroup.NotFound"); err != nil {
		return fmt.Errorf("deleting VPC Security Group Rule (%s): %w", rule, err)
	}
	return nil
}

func revokeEgressRule(ctx context.Context, c *cloud, group, rule string) error {
	_, err := c.ec2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{
		GroupId: aws.String(group), SecurityGroupRuleIds: []string{rule},
	})
	if err = ifPresent(err, "InvalidSecurityGroupRuleId.NotFound", "InvalidGroup.NotFound"); err != nil {
		return fmt.Errorf("deleting VPC Security Group Rule (%s): %w", rule, err)
	}
	return nil
}

// securityGroupRule is the older declaration of rules: several sources at once.
type securityGroupRule struct {
	CIDRBlocks            []string `pulumi:"cidrBlocks" aws:"replace"`
	Description           string   `pulumi:"description" aws:"replace"`
	FromPort              int      `pulumi:"fromPort" aws:"required,replace"`
	IPv6CIDRBlocks        []string `pulumi:"ipv6CidrBlocks" aws:"replace"`
	PrefixListIDs         []string `pulumi:"prefixListIds" aws:"replace"`
	Protocol              string   `pulumi:"protocol" aws:"required,replace"`
	SecurityGroupID       string   `pulumi:"securityGroupId" aws:"required,replace"`
	SecurityGroupRuleID   string   `pulumi:"securityGroupRuleId" aws:"output"`
	Self                  bool     `pulumi:"self" aws:"default=false,replace"`
	SourceSecurityGroupID string   `pulumi:"sourceSecurityGroupId" aws:"computed,replace"`
	ToPort                int      `pulumi:"toPort" aws:"required,replace"`
	Type                  string   `pulumi:"type" aws:"required,replace"`
}

func (r *securityGroupRule) part() securityGroupPart {
	part := securityGroupPart{
		CIDRBlocks: r.CIDRBlocks, Description: r.Description, FromPort: r.FromPort, IPv6CIDRBlocks: r.IPv6CIDRBlocks,
		PrefixListIDs: r.PrefixListIDs, Protocol: r.Protocol, Self: r.Self, ToPort: r.ToPort,
	}
	if r.SourceSecurityGroupID != "" {
		part.SecurityGroups = []string{r.SourceSecurityGroupID}
	}
	return part
}

var securityGroupRuleHandler = handler[securityGroupRule]{
	create: func(ctx context.Context, c *cloud, r *securityGroupRule) (string, error) {
		wanted := permissions(r.SecurityGroupID, []securityGroupPart{r.part()})
		var rules []types.SecurityGroupRule
		switch r.Type {
		case "ingress":
			authorized, err := c.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
				GroupId: aws.String(r.SecurityGroupID), IpPermissions: wanted,
			})
			if err != nil {
				return "", fmt.Errorf("authorizing Security Group (%s) Rule: %w", r.SecurityGroupID, err)
			}
			rules = authorized.SecurityGroupRules
		case "egress":
			authorized, err := c.ec2.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{
				GroupId: aws.String(r.SecurityGroupID), IpPermissions: wanted,
			})
			if err != nil {
				return "", fmt.Errorf("authorizing Security Group (%s) Rule: %w", r.SecurityGroupID, err)
			}
			rules = authorized.SecurityGroupRules
		default:
			return "", fmt.Errorf("expected type to be one of [\"egress\" \"ingress\"], got %s", r.Type)
		}
		if len(rules) == 1 {
			r.SecurityGroupRuleID = aws.ToString(rules[0].SecurityGroupRuleId)
		}
		hash := crc32.ChecksumIEEE([]byte(strings.Join([]string{r.SecurityGroupID, r.Type, fmt.Sprint(r.part())}, "-")))
		return fmt.Sprintf("sgrule-%d", hash), nil
	},
	read: func(ctx context.Context, c *cloud, _ string, r *securityGroupRule) error {
		rules, err := securityGroupRuleIDs(ctx, c, r)
		if err != nil {
			return err
		}
		r.SecurityGroupRuleID = ""
		if len(rules) == 1 {
			r.SecurityGroupRuleID = rules[0]
		}
		return nil
	},
	delete: func(ctx context.Context, c *cloud, _ string, r *securityGroupRule) error {
		rules, err := securityGroupRuleIDs(ctx, c, r)
		if err = ifPresent(err); err != nil {
			return err
		}
		for _, rule := range rules {
			if r.Type == "ingress" {
				err = revokeIngressRule(ctx, c, r.SecurityGroupID, rule)
			} else {
				err = revokeEgressRule(ctx, c, r.SecurityGroupID, rule)
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// securityGroupRuleIDs finds the group's rules that the declaration made, all
// of them or errNotFound.
func securityGroupRuleIDs(ctx context.Context, c *cloud, r *securityGroupRule) ([]string, error) {
	described, err := c.ec2.DescribeSecurityGroupRules(ctx, &ec2.DescribeSecurityGroupRulesInput{
		Filters: []types.Filter{{Name: aws.String("group-id"), Values: []string{r.SecurityGroupID}}},
	})
	if err != nil {
		return nil, missing(err, "InvalidGroup.NotFound")
	}
	wanted := slices.Concat(r.CIDRBlocks, r.IPv6CIDRBlocks, r.PrefixListIDs)
	if r.SourceSecurityGroupID != "" {
		wanted = append(wanted, r.SourceSecurityGroupID)
	}
	if r.Self {
		wanted = append(wanted, r.SecurityGroupID)
	}
	var ids []string
	for _, rule := range described.SecurityGroupRules {
		other := aws.ToString(rule.CidrIpv4) + aws.ToString(rule.CidrIpv6) + aws.ToString(rule.PrefixListId)
		if rule.ReferencedGroupInfo != nil {
			other += aws.ToString(rule.ReferencedGroupInfo.GroupId)
		}
		ports := r.Protocol == "-1" || int(aws.ToInt32(rule.FromPort)) == r.FromPort && int(aws.ToInt32(rule.ToPort)) == r.ToPort
		if aws.ToBool(rule.IsEgress) == (r.Type == "egress") && aws.ToString(rule.IpProtocol) == r.Protocol && ports && slices.Contains(wanted, other) {
			ids = append(ids, aws.ToString(rule.SecurityGroupRuleId))
		}
	}
	if len(ids) < len(wanted) {
		return nil, errNotFound
	}
	return ids, nil
}
