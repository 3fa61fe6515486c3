// Package provider is the Pulumi provider "etcfs": what it is called, which
// components it has, and how each SDK presents it.
package provider

import (
	"context"
	"fmt"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	component "github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"github.com/etcfs/pulumi-etcfs/provider/artifact"
	"github.com/etcfs/pulumi-etcfs/provider/asg"
)

// Name is the provider's package name.
const Name = "etcfs"

// Version is the provider's version, without a leading v. It is a constant, not
// a link-time value, because the Go language host builds the plugin with flags
// of its own; a test keeps it equal to the tag of the commit.
const Version = "0.1.0"

const repository = "https://github.com/etcfs/pulumi-etcfs"

// New makes the provider. Its components use the given programs.
func New(programs artifact.Bundle) (p.Provider, error) {
	return infer.NewProviderBuilder().
		WithDisplayName("EtcFS").
		WithDescription("EtcFS clusters on AWS: a POSIX filesystem on a shared volume, with its metadata in etcd.").
		WithPublisher("EtcFS").
		WithNamespace("etcfs").
		WithHomepage(repository).
		WithRepository(repository).
		WithPluginDownloadURL("github://api.github.com/etcfs/pulumi-etcfs").
		WithKeywords("category/infrastructure", "kind/component", "etcfs", "aws").
		WithLanguageMap(languages).
		WithComponents(asg.Component(programs)).
		Build()
}

// languages says how the SDKs are called.
var languages = map[string]any{
	"go": map[string]any{
		"importBasePath":                 "github.com/etcfs/pulumi-etcfs/sdk/go/etcfs",
		"generateResourceContainerTypes": true,
		"respectSchemaVersion":           true,
	},
	"nodejs": map[string]any{
		"packageName":          "@etcfs/pulumi-etcfs",
		"respectSchemaVersion": true,
	},
	"python": map[string]any{
		"packageName":          "pulumi_etcfs",
		"respectSchemaVersion": true,
		"pyproject":            map[string]any{"enabled": true},
	},
	"csharp": map[string]any{
		"rootNamespace":        "Etcfs",
		"respectSchemaVersion": true,
	},
	"java": map[string]any{
		"basePackage": "com.etcfs",
	},
}

// Serve runs the provider as a plugin until the engine ends it.
func Serve(ctx context.Context, programs artifact.Bundle) error {
	provider, err := New(programs)
	if err != nil {
		return fmt.Errorf("assemble the provider: %w", err)
	}
	serve := p.RawServer(Name, Version, provider)
	return component.MainContext(ctx, Name, func(engine *component.HostClient) (pulumirpc.ResourceProviderServer, error) {
		server, err := serve(engine)
		return aliasServer{server}, err
	})
}
