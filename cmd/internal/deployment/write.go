// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
)

const (
	libraryFolder = "lib"
	modelFolder   = "model"
	exampleFolder = "examples"
	program       = "collage"
)

// Content is what a package is made of.
type Content struct {
	// Version is that of this collage.
	Version string
	Model   *runmodel.Files
	// Program is the program collage, a file.
	Program string
	// Libraries are those that were in the process when the model had run (Loaded).
	Libraries []Library
	// Plugins, Inputs, Outputs and VirtualMachine are as in Manifest.
	Plugins         []string
	Inputs, Outputs []runmodel.TensorInfo
	VirtualMachine  bool
}

// CheckFolder says why no package can be written to a folder.
func CheckFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := filepath.Dir(filepath.Clean(folder))
		if info, err := os.Stat(parent); err != nil || !info.IsDir() {
			return fmt.Errorf("cannot write %s: the folder %s does not exist", folder, parent)
		}
		return nil
	case err != nil:
		return fmt.Errorf("cannot write %s: it is no folder", folder)
	case len(entries) > 0:
		return fmt.Errorf("the folder %s is not empty; name one that is, or a new one", folder)
	}
	return nil
}

// Write makes a package in a folder that is empty or not there. It is written beside its place and moved there as a
// whole; on an error nothing stays.
func Write(folder string, c *Content) (m *Manifest, err error) {
	if err := CheckFolder(folder); err != nil {
		return nil, err
	}
	folder = filepath.Clean(folder)
	partial, err := os.MkdirTemp(filepath.Dir(folder), "."+filepath.Base(folder)+".partial-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	if err := os.Chmod(partial, 0o755); err != nil {
		return nil, err
	}
	p := &packer{folder: partial, content: c}
	if err := p.pack(); err != nil {
		return nil, err
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &p.manifest, os.Rename(partial, folder)
}

type packer struct {
	folder   string
	content  *Content
	manifest Manifest
	glibc    []int
}

func (p *packer) pack() error {
	c := p.content
	p.manifest = Manifest{Format: format, Collage: c.Version, Machine: runtime.GOOS + "/" + runtime.GOARCH,
		VirtualMachine: c.VirtualMachine, Inputs: c.Inputs, Outputs: c.Outputs, Plugins: slices.Clone(c.Plugins),
		System: []string{}, Processor: []string{}, Versions: []string{}}
	demands, err := runmodel.Needed(c.Model.Library)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(demands.Note, "\n") {
		switch kind, rest, _ := strings.Cut(line, " "); kind {
		case "feature":
			p.manifest.Processor = append(p.manifest.Processor, rest)
		case "library":
			p.manifest.Versions = append(p.manifest.Versions, rest)
		}
	}
	for _, part := range []struct {
		from, name string
		said       *string
	}{{c.Model.Library, "mod.so", &p.manifest.Library}, {c.Model.Graph, "mod.json", &p.manifest.Graph},
		{c.Model.Params, "mod.params", &p.manifest.Params}} {
		if part.from == "" {
			continue
		}
		*part.said = modelFolder + "/" + part.name
		if err := p.copy(*part.said, part.from, 0o644); err != nil {
			return err
		}
	}
	if err := p.copy(program, c.Program, 0o755); err != nil {
		return err
	}
	for _, library := range c.Libraries {
		if library.System {
			p.manifest.System = append(p.manifest.System, library.Name)
			continue
		}
		if err := p.copyLibrary(library); err != nil {
			return err
		}
	}
	for _, path := range append([]string{c.Program, c.Model.Library}, kept(c.Libraries)...) {
		version, err := glibcOf(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if slices.Compare(version, p.glibc) > 0 {
			p.glibc = version
		}
	}
	p.manifest.GLIBC = versionText(p.glibc)
	if err := p.writeTexts(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(&p.manifest, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.folder, ManifestName), append(text, '\n'), 0o644)
}

func kept(libraries []Library) []string {
	var paths []string
	for _, library := range libraries {
		if !library.System {
			paths = append(paths, library.Path)
		}
	}
	return paths
}

// copyLibrary copies a library by the name that others ask for, with a link by the name of its file where that is
// another one: what is opened by its path beside another library is asked for by that.
func (p *packer) copyLibrary(library Library) error {
	if err := p.copy(libraryFolder+"/"+library.Name, library.Path, 0o755); err != nil {
		return err
	}
	base := filepath.Base(library.Path)
	if base == library.Name {
		return nil
	}
	return os.Symlink(library.Name, filepath.Join(p.folder, libraryFolder, base))
}

// copy copies a file into the package and writes it down.
func (p *packer) copy(name, from string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return p.put(name, mode, source)
}

func (p *packer) put(name string, mode fs.FileMode, content io.Reader) error {
	path := filepath.Join(p.folder, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, sum), content)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.manifest.Files = append(p.manifest.Files, File{name, size, hex.EncodeToString(sum.Sum(nil))})
	return nil
}
