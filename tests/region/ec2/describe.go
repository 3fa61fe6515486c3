package ec2

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// filter is one filter of a Describe call: any of its values must fit.
type filter struct {
	Name   string   `query:",required"`
	Values []string `query:"Value"`
}

// attributes are what a resource can be filtered by; a filter by a name that
// is not among them is refused.
type attributes map[string][]string

// withTags adds the attributes of the resource's tags.
func (a attributes) withTags(tags map[string]string) attributes {
	a["tag-key"] = nil
	for key, value := range tags {
		a["tag:"+key] = []string{value}
		a["tag-key"] = append(a["tag-key"], key)
	}
	return a
}

// fits says whether a resource passes all filters.
func (a attributes) fits(filters []filter) (bool, error) {
	fits := true
	for _, each := range filters {
		values, known := a[each.Name]
		if _, tagged := a["tag-key"]; !known && (!tagged || !strings.HasPrefix(each.Name, "tag:")) {
			return false, clientError("InvalidParameterValue", "The filter '%s' is invalid", each.Name)
		}
		fits = fits && slices.ContainsFunc(values, func(value string) bool {
			return slices.ContainsFunc(each.Values, func(wanted string) bool { return wildcard(wanted, value) })
		})
	}
	return fits, nil
}

// wildcard compares as filters do: * is any characters, ? is one.
func wildcard(pattern, text string) bool {
	if !strings.ContainsAny(pattern, "*?") {
		return pattern == text
	}
	quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile("(?s)^" + quoted + "$").MatchString(text)
}

// selection is the parameters that Describe calls share.
type selection struct {
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

// chosen returns the resources that were asked for by ID, or all of them when
// none was, as far as they pass the filters.
func chosen[T any](all []T, ids []string, filters []filter, id func(T) string, describe func(T) attributes, notFound func(id string) error) ([]T, error) {
	for _, wanted := range ids {
		if !slices.ContainsFunc(all, func(each T) bool { return id(each) == wanted }) {
			return nil, notFound(wanted)
		}
	}
	selected := []T{}
	for _, each := range all {
		if len(ids) > 0 && !slices.Contains(ids, id(each)) {
			continue
		}
		fits, err := describe(each).fits(filters)
		if err != nil {
			return nil, err
		}
		if fits {
			selected = append(selected, each)
		}
	}
	return selected, nil
}

// page cuts one page out of resources that are in order of ID. The token names
// the last ID of the page before, so that a page neither repeats nor loses what
// was there all the time, whatever comes and goes between two calls.
func page[T any](in selection, least int, selected []T, id func(T) string) (cut []T, next string, err error) {
	if in.NextToken != "" {
		last, err := base64.RawURLEncoding.DecodeString(in.NextToken)
		if err != nil {
			return nil, "", clientError("InvalidParameterValue", "The token '%s' is invalid", in.NextToken)
		}
		selected = slices.DeleteFunc(slices.Clone(selected), func(each T) bool { return id(each) <= string(last) })
	}
	if in.MaxResults == 0 {
		return selected, "", nil
	}
	if in.MaxResults < least || in.MaxResults > 1000 {
		return nil, "", clientError("InvalidParameterValue",
			"Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and 1000.", in.MaxResults, least)
	}
	if len(selected) > in.MaxResults {
		selected = selected[:in.MaxResults]
		next = base64.RawURLEncoding.EncodeToString([]byte(id(selected[len(selected)-1])))
	}
	return selected, next, nil
}

// noPagingByID refuses paging together with IDs, as EC2 does.
func noPagingByID(in selection, parameter string, ids []string) error {
	if in.MaxResults != 0 && len(ids) > 0 {
		return clientError("InvalidParameterCombination", "The parameter %s cannot be used with the parameter maxResults", parameter)
	}
	return nil
}
