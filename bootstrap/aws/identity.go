package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// Identity is what an instance learns about itself from its metadata service.
type Identity struct {
	InstanceID       string
	PrivateIP        string
	AvailabilityZone string
	Region           string
	AccountID        string
}

// documentAPI is the call that [Metadata] makes.
type documentAPI interface {
	GetInstanceIdentityDocument(context.Context, *imds.GetInstanceIdentityDocumentInput, ...func(*imds.Options)) (*imds.GetInstanceIdentityDocumentOutput, error)
}

var _ documentAPI = (*imds.Client)(nil)

// Metadata reads the instance metadata service, in version 2 of its protocol
// only.
type Metadata struct {
	API documentAPI
}

// Identity reads this instance's identity document, which is complete in one
// answer.
func (m Metadata) Identity(ctx context.Context) (Identity, error) {
	// The service answers from the same host: a try that takes longer than this
	// came before the network was up.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	document, err := m.API.GetInstanceIdentityDocument(ctx, nil)
	if err != nil {
		return Identity{}, fmt.Errorf("read the instance identity document: %w", err)
	}
	id := Identity{
		InstanceID:       document.InstanceID,
		PrivateIP:        document.PrivateIP,
		AvailabilityZone: document.AvailabilityZone,
		Region:           document.Region,
		AccountID:        document.AccountID,
	}
	if id.InstanceID == "" || id.PrivateIP == "" || id.Region == "" {
		return Identity{}, fmt.Errorf("read the instance identity document: it lacks the instance's ID, address or Region: %+v", id)
	}
	return id, nil
}
