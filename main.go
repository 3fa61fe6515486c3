// Pulumi-resource-etcfs is the Pulumi plugin of the provider "etcfs".
package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"slices"

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
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-etcfs:", err)
		os.Exit(1)
	}
}

// run prints the version if somebody asks for it, and otherwise serves the
// engine, whose arguments the plugin SDK reads.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	if slices.Contains(args, "--version") {
		_, err := fmt.Fprintln(stdout, provider.Version)
		return err
	}
	return provider.Serve(ctx, artifact.Carried(source))
}
