package provider

import pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

// WithAliases puts the server of aliases before another.
func WithAliases(behind pulumirpc.ResourceProviderServer) pulumirpc.ResourceProviderServer {
	return aliasServer{behind}
}
