// Package generate makes the provider's schema, its SDKs and its reference. It
// is for the build only: the plugin does not contain the generators.
package generate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	p "github.com/pulumi/pulumi-go-provider"
	golang "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"

	"github.com/etcfs/pulumi-etcfs/provider"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
)

// Folders hold nothing but generated files, relative to the module's root.
var Folders = []string{"sdk/go/etcfs", "sdk/nodejs", "sdk/python"}

// schemaFile is the schema's place, relative to the module's root.
const schemaFile = "provider/schema.json"

// Files returns the content of every generated file by its path, relative to
// the module's root.
func Files() (map[string][]byte, error) {
	spec, text, err := packageSchema()
	if err != nil {
		return nil, err
	}
	page, err := reference(spec)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{schemaFile: text, referenceFile: page}

	// Each generator binds the schema for itself: it writes its language's view
	// into the bound package.
	const tool = "pulumi-etcfs"
	for _, language := range []struct {
		folder   string
		generate func(*schema.Package) (map[string][]byte, error)
	}{
		// The Go generator's paths begin with the package's name.
		{"sdk/go", func(pkg *schema.Package) (map[string][]byte, error) {
			return golang.GeneratePackage(tool, pkg, nil)
		}},
		{"sdk/nodejs", func(pkg *schema.Package) (map[string][]byte, error) {
			return nodejs.GeneratePackage(tool, pkg, nil, nil, true, nil)
		}},
		{"sdk/python", func(pkg *schema.Package) (map[string][]byte, error) {
			return python.GeneratePackage(tool, pkg, nil, nil)
		}},
	} {
		pkg, err := schema.ImportSpec(spec, nil, schema.NewNullLoader(), schema.ValidationOptions{})
		if err != nil {
			return nil, fmt.Errorf("bind the schema for %s: %w", language.folder, err)
		}
		generated, err := language.generate(pkg)
		if err != nil {
			return nil, fmt.Errorf("generate %s: %w", language.folder, err)
		}
		for name, content := range generated {
			files[filepath.Join(language.folder, name)] = content
		}
	}
	return files, nil
}

// Write replaces the generated files below root.
func Write(root string) error {
	files, err := Files()
	if err != nil {
		return err
	}
	for _, folder := range Folders {
		if err := os.RemoveAll(filepath.Join(root, folder)); err != nil {
			return fmt.Errorf("clear %s: %w", folder, err)
		}
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("create the folder of %s: %w", name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// packageSchema asks the provider for its schema, as the engine does.
func packageSchema() (schema.PackageSpec, []byte, error) {
	served, err := provider.New(artifact.Bundle{})
	if err != nil {
		return schema.PackageSpec{}, nil, fmt.Errorf("assemble the provider: %w", err)
	}
	spec, err := p.GetSchema(context.Background(), provider.Name, provider.Version, served)
	if err != nil {
		return schema.PackageSpec{}, nil, fmt.Errorf("ask the provider for its schema: %w", err)
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return schema.PackageSpec{}, nil, fmt.Errorf("encode the schema: %w", err)
	}
	return spec, append(text, '\n'), nil
}
