package awsplugin

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// optional is a parameter of a call that is left out when it is empty.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// pointer converts an optional number to the type that a call takes.
func pointer(value *int) *int32 {
	if value == nil {
		return nil
	}
	return aws.Int32(int32(*value))
}

// number is the reverse of pointer.
func number(value *int32) *int {
	if value == nil {
		return nil
	}
	return aws.Int(int(*value))
}

func timestamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// tagChanges says which tags to set and which to remove.
func tagChanges(before, after map[string]string) (set map[string]string, remove []string) {
	set = map[string]string{}
	for key, value := range after {
		if old, ok := before[key]; !ok || old != value {
			set[key] = value
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			remove = append(remove, key)
		}
	}
	slices.Sort(remove)
	return set, remove
}

// tagList makes the list of tags that a service's calls take.
func tagList[T any](tags map[string]string, tag func(key, value string) T) []T {
	var list []T
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, tag(key, tags[key]))
	}
	return list
}

// tagMap is the reverse of tagList.
func tagMap[T any](list []T, split func(T) (key, value *string)) map[string]string {
	var tags map[string]string
	for _, tag := range list {
		if tags == nil {
			tags = map[string]string{}
		}
		key, value := split(tag)
		tags[aws.ToString(key)] = aws.ToString(value)
	}
	return tags
}

func ec2Tag(key, value string) types.Tag {
	return types.Tag{Key: aws.String(key), Value: aws.String(value)}
}

func ec2Tags(list []types.Tag) map[string]string {
	return tagMap(list, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
}

func ec2TagSpecification(of types.ResourceType, tags map[string]string) []types.TagSpecification {
	if len(tags) == 0 {
		return nil
	}
	return []types.TagSpecification{{ResourceType: of, Tags: tagList(tags, ec2Tag)}}
}

func ec2UpdateTags(ctx context.Context, c *cloud, id string, before, after map[string]string) error {
	set, remove := tagChanges(before, after)
	if len(remove) > 0 {
		input := &ec2.DeleteTagsInput{Resources: []string{id}}
		for _, key := range remove {
			input.Tags = append(input.Tags, types.Tag{Key: aws.String(key)})
		}
		if _, err := c.ec2.DeleteTags(ctx, input); err != nil {
			return fmt.Errorf("untagging resource (%s): %w", id, err)
		}
	}
	if len(set) > 0 {
		if _, err := c.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tagList(set, ec2Tag)}); err != nil {
			return fmt.Errorf("tagging resource (%s): %w", id, err)
		}
	}
	return nil
}

// stringChanges says which strings are new and which are no longer there.
func stringChanges(before, after []string) (added, removed []string) {
	for _, s := range after {
		if !slices.Contains(before, s) {
			added = append(added, s)
		}
	}
	for _, s := range before {
		if !slices.Contains(after, s) {
			removed = append(removed, s)
		}
	}
	return added, removed
}

// queryTags are tags as S3's upload takes them.
func queryTags(tags map[string]string) string {
	values := url.Values{}
	for key, value := range tags {
		values.Set(key, value)
	}
	return values.Encode()
}
