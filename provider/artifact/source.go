//go:build !release

package artifact

import "io/fs"

// embedded is nil in a build that carries no programs.
var embedded fs.FS
