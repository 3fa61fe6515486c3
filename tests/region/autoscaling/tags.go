package autoscaling

import (
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// groupTag is a tag of a group; Propagate gives it to new instances, too.
type groupTag struct {
	Key          string
	Value        string
	Propagate    bool   `query:"PropagateAtLaunch"`
	ResourceID   string `query:"ResourceId"`
	ResourceType string
}

func (t groupTag) check() error {
	switch {
	case t.Key == "" || len([]rune(t.Key)) > 128:
		return invalid("The key of a tag must be of 1 to 128 characters: %q", t.Key)
	case len([]rune(t.Value)) > 256:
		return invalid("The value of the tag %q exceeds 256 characters", t.Key)
	case strings.HasPrefix(strings.ToLower(t.Key), "aws:"):
		return invalid("Tag keys starting with 'aws:' are reserved for internal use: %q", t.Key)
	case t.ResourceType != "" && t.ResourceType != tagResourceType:
		return invalid("ResourceType is %q, it must be %s", t.ResourceType, tagResourceType)
	}
	return nil
}

const tagResourceType = "auto-scaling-group"

func (g *group) setTag(t groupTag) {
	g.removeTag(t.Key)
	g.tags = append(g.tags, t)
	slices.SortFunc(g.tags, func(a, b groupTag) int { return strings.Compare(a.Key, b.Key) })
}

func (g *group) removeTag(key string) {
	g.tags = slices.DeleteFunc(slices.Clone(g.tags), func(each groupTag) bool { return each.Key == key })
}

type tagXML struct {
	ResourceID   string `xml:"ResourceId"`
	ResourceType string
	Key          string
	Value        string
	Propagate    bool `xml:"PropagateAtLaunch"`
}

func (g *group) tagsXML() []tagXML {
	var all []tagXML
	for _, each := range g.tags {
		all = append(all, tagXML{ResourceID: g.name, ResourceType: tagResourceType, Key: each.Key, Value: each.Value, Propagate: each.Propagate})
	}
	return all
}

type filter struct {
	Name   string
	Values []string
}

// fits says whether a group passes all filters.
func (g *group) fits(filters []filter) (bool, error) {
	fits := true
	for _, each := range filters {
		key, byValue := strings.CutPrefix(each.Name, "tag:")
		if !byValue && each.Name != "tag-key" && each.Name != "tag-value" {
			return false, invalid("Filter type %s is not correct. Allowed Filter types are: tag-key, tag-value, tag:<key>", each.Name)
		}
		fits = fits && slices.ContainsFunc(g.tags, func(t groupTag) bool {
			switch {
			case byValue:
				return t.Key == key && slices.Contains(each.Values, t.Value)
			case each.Name == "tag-key":
				return slices.Contains(each.Values, t.Key)
			default:
				return slices.Contains(each.Values, t.Value)
			}
		})
	}
	return fits, nil
}

type tagsInput struct {
	Tags []groupTag
}

// authorizedTags finds the groups that the tags of a call are for.
func (s *Service) authorizedTags(c *api.Call, tags []groupTag) ([]*group, error) {
	var groups []*group
	for _, each := range tags {
		g, err := s.authorizedGroup(c, each.ResourceID)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, c.Authorize()
}

func (s *Service) createOrUpdateTags(c *api.Call, in tagsInput) (any, error) {
	groups, err := s.authorizedTags(c, in.Tags)
	if err != nil {
		return nil, err
	}
	for _, each := range in.Tags {
		if err := each.check(); err != nil {
			return nil, err
		}
	}
	for i, each := range in.Tags {
		groups[i].setTag(each)
	}
	return nil, nil
}

func (s *Service) deleteTags(c *api.Call, in tagsInput) (any, error) {
	groups, err := s.authorizedTags(c, in.Tags)
	if err != nil {
		return nil, err
	}
	for i, each := range in.Tags {
		groups[i].removeTag(each.Key)
	}
	return nil, nil
}

type describeTagsInput struct {
	Filters    []filter
	MaxRecords int
	NextToken  string
}

type describeTagsOutput struct {
	Tags      []tagXML `xml:"Tags>member"`
	NextToken string   `xml:",omitempty"`
}

func (s *Service) describeTags(c *api.Call, in describeTagsInput) (any, error) {
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	var selected []tagXML
	for _, g := range sorted(s.groups) {
		for _, each := range g.tagsXML() {
			fits := true
			for _, filter := range in.Filters {
				value, known := map[string]string{tagResourceType: each.ResourceID, "key": each.Key, "value": each.Value}[filter.Name]
				if !known {
					return nil, invalid("Filter type %s is not correct. Allowed Filter types are: auto-scaling-group, key, value", filter.Name)
				}
				fits = fits && slices.Contains(filter.Values, value)
			}
			if fits {
				selected = append(selected, each)
			}
		}
	}
	cut, next, err := page(selected, func(t tagXML) string { return t.ResourceID + " " + t.Key }, in.MaxRecords, in.NextToken)
	return describeTagsOutput{Tags: cut, NextToken: next}, err
}
