package ec2

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

func tagSet(tags map[string]string) []tag {
	set := make([]tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		set = append(set, tag{Key: key, Value: tags[key]})
	}
	return set
}

// tagSpecification is the tags that a creation call gives to what it makes.
type tagSpecification struct {
	ResourceType string `xml:"resourceType"`
	Tags         []tag  `xml:"tagSet>item" query:"Tag"`
}

// tagsFor reads the tags of a creation call.
func tagsFor(kind string, specifications []tagSpecification) (map[string]string, error) {
	tags := map[string]string{}
	for _, each := range specifications {
		if each.ResourceType != kind {
			return nil, clientError("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", each.ResourceType)
		}
		for _, each := range each.Tags {
			if err := checkTag(each); err != nil {
				return nil, err
			}
			if _, twice := tags[each.Key]; twice {
				return nil, clientError("InvalidParameterValue", "Duplicate tag key '%s' specified.", each.Key)
			}
			tags[each.Key] = each.Value
		}
	}
	if len(tags) > mostTags {
		return nil, clientError("TagLimitExceeded", "The tag limit of %d has been reached", mostTags)
	}
	return tags, nil
}

// mostTags is how many tags of their own users can give to a resource.
const mostTags = 50

func checkTag(t tag) error {
	switch {
	case t.Key == "" || len([]rune(t.Key)) > 128:
		return clientError("InvalidParameterValue", "Tag key %q must be of 1 to 128 characters", t.Key)
	case len([]rune(t.Value)) > 256:
		return clientError("InvalidParameterValue", "Tag value of %q exceeds the maximum length of 256 characters", t.Key)
	case strings.HasPrefix(strings.ToLower(t.Key), "aws:"):
		return clientError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
	}
	return nil
}

// resource tells the kind of a resource and the condition keys that it has
// besides its tags; the mutex is held.
func (s *Service) resource(id string) (kind string, context keys, err error) {
	prefix, _, _ := strings.Cut(id, "-")
	found := false
	switch prefix {
	case "i":
		kind = "instance"
		if each := s.instance(id); each != nil {
			found, context = true, s.instanceKeys(each)
		}
	case "vol":
		kind = "volume"
		if each := s.volumes[id]; each != nil {
			found, context = true, each.keys()
		}
	case "snap":
		kind = "snapshot"
		found = s.snapshots[id] != nil
	case "sg":
		kind = "security-group"
		found, context = s.groups[id] != nil, keys{"ec2:SecurityGroupID": id}
	case "sgr":
		kind = "security-group-rule"
		_, _, found = s.findRule(id)
	case "lt":
		kind = "launch-template"
		found = s.templates[id] != nil
	case "subnet":
		kind = "subnet"
		found = s.network.subnet(id) != nil
	case "vpc":
		kind = "vpc"
		found = id == s.network.vpcID
	}
	if !found {
		return "", nil, clientError("InvalidID", "The ID '%s' is not valid", id)
	}
	return kind, context, nil
}

func (s *Service) setTags(id string, tags map[string]string) {
	if len(tags) == 0 {
		return
	}
	if s.tags[id] == nil {
		s.tags[id] = map[string]string{}
	}
	maps.Copy(s.tags[id], tags)
}

type tagsInput struct {
	Resources []string `query:"ResourceId,required"`
	Tags      []struct {
		Key   string
		Value *string
	} `query:"Tag"`
}

func (s *Service) createTags(_ context.Context, c *api.Call, in tagsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags, requested := map[string]string{}, keys{}
	for _, each := range in.Tags {
		value := ""
		if each.Value != nil {
			value = *each.Value
		}
		tags[each.Key], requested["aws:RequestTag/"+each.Key] = value, value
	}
	if err := s.authorizeTagging(c, in.Resources, requested); err != nil {
		return nil, err
	}
	for key, value := range tags {
		if err := checkTag(tag{Key: key, Value: value}); err != nil {
			return nil, err
		}
	}
	for _, id := range in.Resources {
		s.setTags(id, tags)
	}
	return success{Return: true}, nil
}

func (s *Service) deleteTags(_ context.Context, c *api.Call, in tagsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeTagging(c, in.Resources, nil); err != nil {
		return nil, err
	}
	for _, id := range in.Resources {
		if len(in.Tags) == 0 { // all of the user's own
			maps.DeleteFunc(s.tags[id], func(key, _ string) bool { return !strings.HasPrefix(key, "aws:") })
		}
		for _, each := range in.Tags {
			if value, ok := s.tags[id][each.Key]; ok && (each.Value == nil || *each.Value == value) {
				delete(s.tags[id], each.Key)
			}
		}
	}
	return success{Return: true}, nil
}

func (s *Service) authorizeTagging(c *api.Call, ids []string, requested keys) error {
	var missing error
	for _, id := range ids {
		kind, context, err := s.resource(id)
		if err != nil {
			missing = err
			continue
		}
		access := s.on(c, kind, id, context)
		maps.Copy(access.Context, requested)
		if err := c.Authorize(access); err != nil {
			return err
		}
	}
	return missing
}

// success is the result of calls that have none but that they succeeded.
type success struct {
	Return bool `xml:"return"`
}

type describeTagsInput struct {
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type tagDescription struct {
	ResourceID   string `xml:"resourceId"`
	ResourceType string `xml:"resourceType"`
	Key          string `xml:"key"`
	Value        string `xml:"value"`
}

type describeTagsOutput struct {
	Tags      []tagDescription `xml:"tagSet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func (s *Service) describeTags(_ context.Context, c *api.Call, in describeTagsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	var all []tagDescription
	for _, id := range slices.Sorted(maps.Keys(s.tags)) {
		kind, _, err := s.resource(id)
		if err != nil {
			continue // the tags of what is gone
		}
		for _, each := range tagSet(s.tags[id]) {
			all = append(all, tagDescription{ResourceID: id, ResourceType: kind, Key: each.Key, Value: each.Value})
		}
	}
	id := func(t tagDescription) string { return t.ResourceID + " " + t.Key }
	selected, err := chosen(all, nil, in.Filters, id, func(t tagDescription) attributes {
		return attributes{
			"key": {t.Key}, "value": {t.Value}, "resource-id": {t.ResourceID},
			"resource-type": {t.ResourceType}, "tag:" + t.Key: {t.Value}, "tag-key": {t.Key},
		}
	}, nil)
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection(in), 5, selected, id)
	return describeTagsOutput{Tags: cut, NextToken: next}, err
}
