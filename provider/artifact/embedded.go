//go:build release

package artifact

import (
	"embed"
	"io/fs"
)

// The folder release holds what Compile leaves; `make build` fills it before it
// builds the plugin with this tag. It is not committed.
//
//go:embed release
var release embed.FS

var embedded = sub(release, "release")

func sub(files fs.FS, folder string) fs.FS {
	found, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the name is a constant
	}
	return found
}
