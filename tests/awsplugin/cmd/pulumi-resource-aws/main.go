// Command pulumi-resource-aws is the stand-in for the AWS resource plugin: see
// package awsplugin.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/etcfs/pulumi-etcfs/tests/awsplugin"
)

func main() {
	if err := awsplugin.New().Run(context.Background(), "aws", awsplugin.Version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
