package asg

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/etcfs/pulumi-etcfs/bootstrap/settings"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

// maxUserData is how many bytes of user data EC2 takes, before base64:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
const maxUserData = 16384

// stub is what an instance runs at its first boot, below the settings: it
// fetches, checks and starts the bootstrap binary.
//
//go:embed userdata.sh
var stub string

// userData renders what an instance is launched with: the settings, exported
// as the bootstrap binary reads them, where the binary is and what its sha256
// is, and the stub, unchanged. It fails if a setting is missing or malformed.
func userData(s settings.Settings, bucket, sha256 string) (string, error) {
	environment, err := s.Encode()
	if err != nil {
		return "", fmt.Errorf("render the user data: %w", err)
	}
	var script strings.Builder
	fmt.Fprintf(&script, "#!/bin/sh\n# The settings of this cluster, for %s.\n", artifact.BootstrapName)
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		fmt.Fprintf(&script, "export %s=%s\n", name, quote(value))
	}
	fmt.Fprintf(&script, "bootstrap_url=%s\n", quote("s3://"+bucket+"/"+objectKey(sha256)))
	fmt.Fprintf(&script, "bootstrap_sha256=%s\n\n", quote(sha256))
	script.WriteString(stub)
	return script.String(), nil
}

// quote makes one word of a POSIX shell of any text.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
