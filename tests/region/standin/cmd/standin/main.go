// Standin is the multi-call program of process machines; see package standin.
package main

import (
	"os"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin"
)

func main() { os.Exit(standin.Main(os.Args)) }
