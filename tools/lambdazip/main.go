// Lambdazip packs a binary as a Lambda function's deployment package: a zip
// with the one executable file "bootstrap" in its root. The same binary gives
// the same bytes, whenever and wherever it is packed.
//
//	lambdazip -o function.zip binary
package main

import (
	"archive/zip"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/renameio/v2"
)

func main() {
	output := flag.String("o", "function.zip", "the zip to write")
	flag.Parse()
	if err := pack(flag.Arg(0), *output); err != nil {
		fmt.Fprintln(os.Stderr, "lambdazip:", err)
		os.Exit(1)
	}
}

// epoch is the earliest time that a zip can hold.
var epoch = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

func pack(binary, output string) error {
	in, err := os.Open(binary)
	if err != nil {
		return fmt.Errorf("open the binary: %w", err)
	}
	defer in.Close()
	out, err := renameio.NewPendingFile(output, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("create the zip: %w", err)
	}
	defer out.Cleanup()

	archive := zip.NewWriter(out)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: epoch}
	header.SetMode(0o755)
	entry, err := archive.CreateHeader(header)
	if err != nil {
		return fmt.Errorf("add the binary: %w", err)
	}
	if _, err := io.Copy(entry, in); err != nil {
		return fmt.Errorf("add the binary: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("finish the zip: %w", err)
	}
	return out.CloseAtomicallyReplace()
}
