package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
)

// buildVersion says which binary this is: by its checksum, which is the name
// that the cluster's bucket keeps it under.
func buildVersion() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this binary: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read this binary: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read this binary: %w", err)
	}
	return fmt.Sprintf("sha256:%x %s", hash.Sum(nil), runtime.Version()), nil
}
