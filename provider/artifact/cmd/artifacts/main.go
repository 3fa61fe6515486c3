// Artifacts compiles the programs that a cluster runs on into a folder: the
// node's bootstrap binary and the package of the graceful-leave function.
// Run it in the root of the module:
//
//	go run ./provider/artifact/cmd/artifacts -o FOLDER
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

func main() {
	output := flag.String("o", "bin", "the `folder` to leave the programs in")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compile(ctx, *output); err != nil {
		fmt.Fprintln(os.Stderr, "artifacts:", err)
		os.Exit(1)
	}
}

func compile(ctx context.Context, output string) error {
	if err := os.MkdirAll(output, 0o755); err != nil {
		return fmt.Errorf("create the output folder: %w", err)
	}
	return artifact.Compile(ctx, ".", output)
}
