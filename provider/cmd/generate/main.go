// Generate writes the provider's schema and the SDKs made from it. Run it in
// the root of the module, by `make sdk`; a test fails when the committed files
// differ from what it would write.
package main

import (
	"fmt"
	"os"

	"github.com/etcfs/pulumi-etcfs/provider/generate"
)

func main() {
	if err := generate.Write("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
