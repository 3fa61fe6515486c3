package asg

import (
	"context"
	"fmt"
)

// What the tests outside the package look into.
var (
	UserData = userData
	Quote    = quote
	Stub     = stub
)

// UserDataSize is the size of the user data as preview measures it.
func UserDataSize(ctx context.Context, args *ClusterArgs) (int, error) {
	v, err := newValues(ctx, args, nil)
	if err != nil {
		return 0, err
	}
	data, err := userData(v.settings(), longestBucketName, longestSHA256)
	return len(data), err
}

// Warnings judges inputs that AWS is not asked about, and returns what is
// accepted with a warning: "property: reason".
func Warnings(ctx context.Context, args *ClusterArgs) ([]string, error) {
	v, err := newValues(ctx, args, nil)
	if err != nil {
		return nil, err
	}
	var list []string
	_, warnings := validate(v)
	for _, warning := range warnings {
		list = append(list, fmt.Sprintf("%s: %s", warning.PropertyPath, warning.Reason))
	}
	return list, nil
}
