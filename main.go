// Pulumi-resource-etcfs is the Pulumi plugin of the provider "etcfs".
package main

import (
	"context"
	"embed"
	"fmt"
	"os"

	"github.com/etcfs/pulumi-etcfs/provider"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

// source is what a plugin that was built from source compiles the node's
// programs from: the Go language host builds it in a temporary folder, with
// paths trimmed, so it could not find its source otherwise.
//
//go:embed go.mod go.sum bootstrap lambda
var source embed.FS

func main() {
	if err := provider.Serve(context.Background(), artifact.Carried(source)); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-etcfs:", err)
		os.Exit(1)
	}
}
