package ec2

import (
	"context"
	"net/netip"
	"slices"
	"strconv"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// rule is one rule of a security group: one protocol and range of ports from
// or to one peer.
type rule struct {
	id          string
	egress      bool
	protocol    string
	from, to    int
	description string
	// One of these is the peer.
	cidr4, cidr6, group, prefixList string
}

// same says whether two rules allow the same; a group cannot have both.
func (r rule) same(other rule) bool {
	r.id, other.id = "", ""
	r.description, other.description = "", ""
	return r == other
}

const anyProtocol = "-1"

type permission struct {
	Protocol string `query:"IpProtocol"`
	FromPort *int
	ToPort   *int
	Groups   []struct {
		ID          string `query:"GroupId"`
		Name        string `query:"GroupName"`
		UserID      string `query:"UserId"`
		VPC         string `query:"VpcId"`
		Description string
	}
	IPv4 []struct {
		CIDR        string `query:"CidrIp"`
		Description string
	} `query:"IpRanges"`
	IPv6 []struct {
		CIDR        string `query:"CidrIpv6"`
		Description string
	} `query:"Ipv6Ranges"`
	PrefixLists []struct {
		ID          string `query:"PrefixListId"`
		Description string
	} `query:"PrefixListIds"`
}

// permissionParameters are the two ways to say permissions: a list, or a
// single one spread over the request itself.
type permissionParameters struct {
	GroupID        string             `query:"GroupId"`
	GroupName      string             `query:"GroupName"`
	Permissions    []permission       `query:"IpPermissions"`
	RuleIDs        []string           `query:"SecurityGroupRuleId"`
	Specifications []tagSpecification `query:"TagSpecification"`
	Protocol       string             `query:"IpProtocol"`
	FromPort       *int
	ToPort         *int
	CIDR           string `query:"CidrIp"`
}

// rules takes the permissions apart into rules and checks each.
func (s *Service) rules(in permissionParameters, egress bool) ([]rule, error) {
	permissions := in.Permissions
	if in.CIDR != "" {
		single := permission{Protocol: in.Protocol, FromPort: in.FromPort, ToPort: in.ToPort}
		single.IPv4 = append(single.IPv4, struct {
			CIDR        string `query:"CidrIp"`
			Description string
		}{CIDR: in.CIDR})
		permissions = append(permissions, single)
	}
	var rules []rule
	for _, each := range permissions {
		common, err := commonRule(each, egress)
		if err != nil {
			return nil, err
		}
		add := func(description string, set func(*rule)) {
			made := common
			made.description = description
			set(&made)
			rules = append(rules, made)
		}
		for _, peer := range each.IPv4 {
			if err := checkCIDR(peer.CIDR, true); err != nil {
				return nil, err
			}
			add(peer.Description, func(r *rule) { r.cidr4 = peer.CIDR })
		}
		for _, peer := range each.IPv6 {
			if err := checkCIDR(peer.CIDR, false); err != nil {
				return nil, err
			}
			add(peer.Description, func(r *rule) { r.cidr6 = peer.CIDR })
		}
		for _, peer := range each.Groups {
			if s.groups[peer.ID] == nil {
				return nil, groupNotFound(peer.ID + peer.Name)
			}
			add(peer.Description, func(r *rule) { r.group = peer.ID })
		}
		for _, peer := range each.PrefixLists {
			add(peer.Description, func(r *rule) { r.prefixList = peer.ID })
		}
	}
	return rules, nil
}

func commonRule(p permission, egress bool) (rule, error) {
	made := rule{egress: egress, from: -1, to: -1}
	switch p.Protocol {
	case "tcp", "6":
		made.protocol = "tcp"
	case "udp", "17":
		made.protocol = "udp"
	case "icmp", "1":
		made.protocol = "icmp"
	case "icmpv6", "58":
		made.protocol = "icmpv6"
	case anyProtocol, "all":
		made.protocol = anyProtocol
		return made, nil
	default:
		return rule{}, clientError("InvalidParameterValue", "Invalid value '%s' for IP protocol. Unknown protocol.", p.Protocol)
	}
	if p.FromPort == nil || p.ToPort == nil {
		return rule{}, clientError("InvalidParameterValue", "Invalid value 'Must specify both from and to ports with %s.' for portRange.", made.protocol)
	}
	made.from, made.to = *p.FromPort, *p.ToPort
	ports := made.protocol == "tcp" || made.protocol == "udp"
	if ports && (made.from < 0 || made.to > 65535 || made.from > made.to) {
		return rule{}, clientError("InvalidParameterValue", "Invalid TCP/UDP port range (%d:%d)", made.from, made.to)
	}
	return made, nil
}

func checkCIDR(text string, v4 bool) error {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4() != v4 || prefix.Masked() != prefix {
		return clientError("InvalidParameterValue", "CIDR block %s is malformed", text)
	}
	return nil
}

type securityGroupRuleXML struct {
	ID          string           `xml:"securityGroupRuleId"`
	ARN         string           `xml:"securityGroupRuleArn"`
	GroupID     string           `xml:"groupId"`
	OwnerID     string           `xml:"groupOwnerId"`
	Egress      bool             `xml:"isEgress"`
	Protocol    string           `xml:"ipProtocol"`
	From        int              `xml:"fromPort"`
	To          int              `xml:"toPort"`
	CIDR4       string           `xml:"cidrIpv4,omitempty"`
	CIDR6       string           `xml:"cidrIpv6,omitempty"`
	PrefixList  string           `xml:"prefixListId,omitempty"`
	Referenced  *referencedGroup `xml:"referencedGroupInfo"`
	Description string           `xml:"description,omitempty"`
	Tags        []tag            `xml:"tagSet>item"`
}

type referencedGroup struct {
	ID     string `xml:"groupId"`
	UserID string `xml:"userId"`
	VPC    string `xml:"vpcId"`
}

func (s *Service) ruleXML(group *securityGroup, r *rule) securityGroupRuleXML {
	x := securityGroupRuleXML{
		ID: r.id, ARN: s.arn("security-group-rule", r.id), GroupID: group.id, OwnerID: s.config.AccountID, Egress: r.egress,
		Protocol: r.protocol, From: r.from, To: r.to, CIDR4: r.cidr4, CIDR6: r.cidr6, PrefixList: r.prefixList,
		Description: r.description, Tags: tagSet(s.tags[r.id]),
	}
	if r.group != "" {
		x.Referenced = &referencedGroup{ID: r.group, UserID: s.config.AccountID, VPC: s.network.vpcID}
	}
	return x
}

type securityGroupRulesOutput struct {
	Return    bool                   `xml:"return"`
	Rules     []securityGroupRuleXML `xml:"securityGroupRuleSet>item"`
	Revoked   []securityGroupRuleXML `xml:"revokedSecurityGroupRuleSet>item"`
	NextToken string                 `xml:"nextToken,omitempty"`
}

func (s *Service) authorizeSecurityGroupIngress(_ context.Context, c *api.Call, in permissionParameters) (any, error) {
	return s.addRules(c, in, false)
}

func (s *Service) authorizeSecurityGroupEgress(_ context.Context, c *api.Call, in permissionParameters) (any, error) {
	return s.addRules(c, in, true)
}

// mostRules is how many rules a group can have in each direction.
const mostRules = 60

func (s *Service) addRules(c *api.Call, in permissionParameters, egress bool) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group, err := s.authorizedGroup(c, in.GroupID, in.GroupName)
	if err != nil {
		return nil, err
	}
	tags, err := tagsFor("security-group-rule", in.Specifications)
	if err != nil {
		return nil, err
	}
	added, err := s.rules(in, egress)
	if err != nil {
		return nil, err
	}
	if len(added) == 0 {
		return nil, clientError("MissingParameter", "The request must contain the parameter ipPermissions")
	}
	count := 0
	for _, existing := range group.rules {
		if existing.egress == egress {
			count++
		}
		for _, each := range added {
			if each.same(*existing) {
				return nil, clientError("InvalidPermission.Duplicate",
					"the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists",
					each.cidr4+each.cidr6+each.group+each.prefixList, each.protocol, each.from, each.to)
			}
		}
	}
	if count+len(added) > mostRules {
		return nil, clientError("RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.")
	}
	out := securityGroupRulesOutput{Return: true}
	for _, each := range added {
		each.id = newID("sgr")
		group.rules = append(group.rules, &each)
		s.setTags(each.id, tags)
		out.Rules = append(out.Rules, s.ruleXML(group, &each))
	}
	return out, nil
}

func (s *Service) revokeSecurityGroupIngress(_ context.Context, c *api.Call, in permissionParameters) (any, error) {
	return s.removeRules(c, in, false)
}

func (s *Service) revokeSecurityGroupEgress(_ context.Context, c *api.Call, in permissionParameters) (any, error) {
	return s.removeRules(c, in, true)
}

func (s *Service) removeRules(c *api.Call, in permissionParameters, egress bool) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group, err := s.authorizedGroup(c, in.GroupID, in.GroupName)
	if err != nil {
		return nil, err
	}
	unwanted, err := s.rules(in, egress)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, id := range in.RuleIDs {
		i := slices.IndexFunc(group.rules, func(r *rule) bool { return r.id == id && r.egress == egress })
		if i < 0 {
			return nil, clientError("InvalidSecurityGroupRuleId.NotFound", "The security group rule ID '%s' does not exist", id)
		}
		found = append(found, i)
	}
	for _, each := range unwanted {
		i := slices.IndexFunc(group.rules, func(r *rule) bool { return r.same(each) })
		if i < 0 {
			return nil, clientError("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
		}
		found = append(found, i)
	}
	out := securityGroupRulesOutput{Return: true}
	var kept []*rule
	for i, each := range group.rules {
		if !slices.Contains(found, i) {
			kept = append(kept, each)
			continue
		}
		out.Revoked = append(out.Revoked, s.ruleXML(group, each))
		delete(s.tags, each.id)
	}
	group.rules = kept
	return out, nil
}

type modifySecurityGroupRulesInput struct {
	GroupID string `query:"GroupId,required"`
	Rules   []struct {
		ID   string `query:"SecurityGroupRuleId,required"`
		Rule struct {
			Protocol    string `query:"IpProtocol"`
			FromPort    *int
			ToPort      *int
			CIDR4       string `query:"CidrIpv4"`
			CIDR6       string `query:"CidrIpv6"`
			PrefixList  string `query:"PrefixListId"`
			Group       string `query:"ReferencedGroupId"`
			Description string
		} `query:"SecurityGroupRule"`
	} `query:"SecurityGroupRule"`
}

func (s *Service) modifySecurityGroupRules(_ context.Context, c *api.Call, in modifySecurityGroupRulesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group, err := s.authorizedGroup(c, in.GroupID, "")
	if err != nil {
		return nil, err
	}
	changed := map[*rule]rule{}
	for _, each := range in.Rules {
		i := slices.IndexFunc(group.rules, func(r *rule) bool { return r.id == each.ID })
		if i < 0 {
			return nil, clientError("InvalidSecurityGroupRuleId.NotFound", "The security group rule ID '%s' does not exist", each.ID)
		}
		existing := group.rules[i]
		made, err := commonRule(permission{Protocol: each.Rule.Protocol, FromPort: each.Rule.FromPort, ToPort: each.Rule.ToPort}, existing.egress)
		if err != nil {
			return nil, err
		}
		switch {
		case each.Rule.CIDR4 != "":
			err = checkCIDR(each.Rule.CIDR4, true)
		case each.Rule.CIDR6 != "":
			err = checkCIDR(each.Rule.CIDR6, false)
		case each.Rule.Group != "" && s.groups[each.Rule.Group] == nil:
			err = groupNotFound(each.Rule.Group)
		}
		if err != nil {
			return nil, err
		}
		made.id, made.description = existing.id, each.Rule.Description
		made.cidr4, made.cidr6, made.group, made.prefixList = each.Rule.CIDR4, each.Rule.CIDR6, each.Rule.Group, each.Rule.PrefixList
		changed[existing] = made
	}
	for existing, made := range changed {
		*existing = made
	}
	return success{Return: true}, nil
}

// findRule finds a rule by ID.
func (s *Service) findRule(id string) (*securityGroup, *rule, bool) {
	for _, group := range s.groups {
		for _, each := range group.rules {
			if each.id == id {
				return group, each, true
			}
		}
	}
	return nil, nil, false
}

type describeSecurityGroupRulesInput struct {
	IDs        []string `query:"SecurityGroupRuleId"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

func (s *Service) describeSecurityGroupRules(_ context.Context, c *api.Call, in describeSecurityGroupRulesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	all := map[string]securityGroupRuleXML{}
	for _, group := range s.groups {
		for _, each := range group.rules {
			all[each.id] = s.ruleXML(group, each)
		}
	}
	id := func(r securityGroupRuleXML) string { return r.ID }
	selected, err := chosen(sorted(all), in.IDs, in.Filters, id, func(r securityGroupRuleXML) attributes {
		return attributes{"group-id": {r.GroupID}, "security-group-rule-id": {r.ID}}.withTags(s.tags[r.ID])
	}, func(id string) error {
		return clientError("InvalidSecurityGroupRuleId.NotFound", "The security group rule ID '%s' does not exist", id)
	})
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 5, selected, id)
	return securityGroupRulesOutput{Return: true, Rules: cut, NextToken: next}, err
}

// permissionXML is the older view of rules: all peers of one protocol and range
// of ports together.
type permissionXML struct {
	Protocol string          `xml:"ipProtocol"`
	From     string          `xml:"fromPort,omitempty"`
	To       string          `xml:"toPort,omitempty"`
	Groups   []permittedPeer `xml:"groups>item"`
	IPv4     []permittedPeer `xml:"ipRanges>item"`
	IPv6     []permittedPeer `xml:"ipv6Ranges>item"`
	Prefixes []permittedPeer `xml:"prefixListIds>item"`
}

type permittedPeer struct {
	CIDR4       string `xml:"cidrIp,omitempty"`
	CIDR6       string `xml:"cidrIpv6,omitempty"`
	GroupID     string `xml:"groupId,omitempty"`
	UserID      string `xml:"userId,omitempty"`
	PrefixList  string `xml:"prefixListId,omitempty"`
	Description string `xml:"description,omitempty"`
}

func (s *Service) permissions(group *securityGroup, egress bool) []permissionXML {
	var all []permissionXML
	for _, each := range group.rules {
		if each.egress != egress {
			continue
		}
		from, to := "", ""
		if each.protocol != anyProtocol {
			from, to = strconv.Itoa(each.from), strconv.Itoa(each.to)
		}
		i := slices.IndexFunc(all, func(p permissionXML) bool { return p.Protocol == each.protocol && p.From == from && p.To == to })
		if i < 0 {
			i = len(all)
			all = append(all, permissionXML{Protocol: each.protocol, From: from, To: to})
		}
		peer := permittedPeer{CIDR4: each.cidr4, CIDR6: each.cidr6, GroupID: each.group, PrefixList: each.prefixList, Description: each.description}
		switch {
		case each.cidr4 != "":
			all[i].IPv4 = append(all[i].IPv4, peer)
		case each.cidr6 != "":
			all[i].IPv6 = append(all[i].IPv6, peer)
		case each.group != "":
			peer.UserID = s.config.AccountID
			all[i].Groups = append(all[i].Groups, peer)
		default:
			all[i].Prefixes = append(all[i].Prefixes, peer)
		}
	}
	return all
}
