package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// bundle is where Debian keeps the certificates that are trusted.
const bundle = "etc/ssl/certs/ca-certificates.crt"

// makeLayer makes what all machines have on top of the image, because it is of
// this run: who they trust, whom they ask for names and packages, and the
// program that the packages of EtcFS start.
func (m *Machines) makeLayer() error {
	trusted, err := os.ReadFile(filepath.Join(m.config.Image, bundle))
	if err != nil {
		return fmt.Errorf("read the image's certificates: %w", err)
	}
	for path, content := range map[string][]byte{
		bundle:                             bytes.Join([][]byte{trusted, m.front.authority.certificate}, nil),
		"etc/resolv.conf":                  []byte("nameserver " + gatewayAddress + "\n"),
		"etc/yum.repos.d/amazonlinux.repo": []byte(repositoryFile),
	} {
		path = m.folder(layerFolder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the machines' layer: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("make the machines' layer: %w", err)
		}
	}
	return copyProgram(m.folder(layerFolder, "usr/local/bin/standin"), m.config.Program)
}

func copyProgram(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy the stand-in program: %w", err)
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("copy the stand-in program: %w", err)
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("copy the stand-in program: %w", err)
	}
	_, err = io.Copy(target, source)
	if err = errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("copy the stand-in program: %w", err)
	}
	return nil
}
