// SPDX-License-Identifier: Apache-2.0

// Package deployment makes a folder of a model that runs on a machine without compilers, Python or this installation.
//
// What comes in: a model's files, and the libraries that were in the process when it had run. What goes out: a folder
// with the model, the program collage, those libraries, small programs that load the model, a container file, and
// manifest.json, which says what is in it and what it asks of the machine.
package deployment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
)

// ManifestName is the file of a package that says what it is.
const ManifestName = "manifest.json"

const (
	format       = "collage-package 1"
	mostManifest = 16 << 20
)

// Manifest says what is in a package. Paths are relative to it.
type Manifest struct {
	// Format is the form of this file.
	Format string `json:"format"`
	// Collage is the version that made it, Machine what it runs on ("linux/amd64"), GLIBC the oldest version that its
	// libraries run with.
	Collage string `json:"collage"`
	Machine string `json:"machine"`
	GLIBC   string `json:"glibc"`
	// Library, Graph and Params are the model's files; the last two are "" where the library has them inside.
	Library string `json:"library"`
	Graph   string `json:"graph,omitempty"`
	Params  string `json:"params,omitempty"`
	// VirtualMachine says that TVM's virtual machine runs it.
	VirtualMachine bool `json:"virtual_machine,omitempty"`

	Inputs  []runmodel.TensorInfo `json:"inputs"`
	Outputs []runmodel.TensorInfo `json:"outputs"`
	// Processor are the features that the model needs of a processor, Versions the libraries and programs ("dnnl 2.6
	// oneDNN") that were there when it was compiled: docs/deploy.md.
	Processor []string `json:"processor"`
	Versions  []string `json:"versions"`
	// Plugins are the runtime plug-ins that the model names, System the libraries that the machine must have.
	Plugins []string `json:"plugins"`
	System  []string `json:"system"`
	Files   []File   `json:"files"`
}

// File is one file of a package, but for the manifest.
type File struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Read reads the manifest of the package in a folder. The error says that the folder is none, or what is wrong.
func Read(folder string) (*Manifest, error) {
	path := filepath.Join(folder, ManifestName)
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is a folder without a %s, so collage package did not write it", folder, ManifestName)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostManifest))
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.Format != format {
		return nil, fmt.Errorf("%s: its format is %q, this collage reads %q", path, m.Format, format)
	}
	for _, part := range []string{m.Library, m.Graph, m.Params} {
		if part != "" && !filepath.IsLocal(part) {
			return nil, fmt.Errorf("%s: %q is no path inside the package", path, part)
		}
	}
	if m.Library == "" {
		return nil, fmt.Errorf("%s names no library", path)
	}
	return m, nil
}

// Open gives the files of the model of the package in a folder.
func Open(folder string) (*runmodel.Files, error) {
	m, err := Read(folder)
	if err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	files := &runmodel.Files{}
	for _, part := range []struct {
		to   *string
		name string
	}{{&files.Library, m.Library}, {&files.Graph, m.Graph}, {&files.Params, m.Params}} {
		if part.name == "" {
			continue
		}
		*part.to = filepath.Join(absolute, part.name)
		info, err := os.Stat(*part.to)
		if err != nil {
			return nil, fmt.Errorf("the package %s is not whole: %w", folder, err)
		}
		files.Size += info.Size()
	}
	return files, nil
}

// LibraryFolder is where a package has its libraries.
func LibraryFolder(folder string) string { return filepath.Join(folder, libraryFolder) }
