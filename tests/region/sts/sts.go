// Package sts is the region's Security Token Service, which tells callers who
// they are. Services assume roles through package iam; sts:AssumeRole for
// callers is not modelled.
package sts

import (
	"context"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Identities tells a principal's unique ID.
type Identities interface {
	UserID(principal api.Principal) string
}

// New makes the service of an account.
func New(account string, identities Identities) *api.Service {
	return &api.Service{
		Name:      "sts",
		Protocol:  api.Query,
		Namespace: "https://sts.amazonaws.com/doc/2011-06-15/",
		Operations: map[string]api.Operation{
			"GetCallerIdentity": func(_ context.Context, c *api.Call) (any, error) {
				if err := c.Authorize(); err != nil { // anybody may ask for itself
					return nil, err
				}
				return identity{ARN: c.Principal.ARN, UserID: identities.UserID(c.Principal), Account: account}, nil
			},
		},
	}
}

type identity struct {
	ARN     string `xml:"Arn"`
	UserID  string `xml:"UserId"`
	Account string
}
