// SPDX-License-Identifier: Apache-2.0

// Package runmodel runs exported models: it opens the file, loads it on TVM's runtime, checks and sets inputs,
// takes times, and gets outputs.
//
// What comes in: a .tar as `collage compile` and `tvmc compile` write it, or a .so with the graph executor's
// factory or what TVM's virtual machine runs in it; arrays. What goes out: arrays and Timings. Only TVM's runtime
// library and the runtime plug-ins that the model names are loaded; this package needs neither Python nor TVM's
// compiler.
package runmodel

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Files are the parts of an exported model on disk.
type Files struct {
	// Library is the shared library with the compiled functions.
	Library string
	// Graph and Params are the executor's graph and the weights; "" for a library that has both inside.
	Graph, Params string
	// Size is the size of what the user named, in bytes.
	Size int64
}

// members are the files of the .tar that tvmc writes and reads.
var members = []string{"mod.so", "mod.json", "mod.params"}

// Open finds out by its content what kind of model the file at path is, and unpacks a .tar into folder,
// which is the caller's to remove.
func Open(path, folder string) (*Files, error) {
	file, err := os.Open(path)
	if err != nil {
		var pathError *os.PathError
		if errors.As(err, &pathError) {
			return nil, fmt.Errorf("cannot read the model %s: %w", path, pathError.Err)
		}
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("the model %s is a folder; give the .tar or .so that collage compile wrote", path)
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("cannot read the model %s: %w", path, err)
	}
	head = head[:n]
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}

	switch {
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		return &Files{Library: absolute, Size: info.Size()}, nil
	case len(head) == 512 && string(head[257:262]) == "ustar":
		files, err := unpack(file, folder, info.Size())
		if err != nil {
			return nil, fmt.Errorf("the model %s: %w", path, err)
		}
		files.Size = info.Size()
		return files, nil
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return nil, fmt.Errorf("the model %s is compressed with gzip; unpack it first (gunzip)", path)
	}
	return nil, fmt.Errorf("%s is neither a .tar nor a .so that collage compile or tvmc wrote", path)
}

// machineMember is the one file of a .tar for TVM's virtual machine.
const machineMember = "lib.so"

// unpack takes the three members, or the one, out of the archive of size bytes. Nothing else of it is written, whatever
// its names.
func unpack(r io.Reader, folder string, size int64) (*Files, error) {
	found := map[string]string{}
	var others []string
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, fmt.Errorf("not a whole .tar file: %w", err)
		}
		name := strings.TrimPrefix(header.Name, "./")
		if !isMember(name) {
			if header.Typeflag != tar.TypeDir {
				others = append(others, name)
			}
			continue
		}
		if header.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s in it is not a plain file", name)
		}
		if found[name] != "" {
			return nil, fmt.Errorf("it holds %s twice", name)
		}
		if header.Size > size {
			// A sparse file: a few blocks that stand for any number of zeros.
			return nil, fmt.Errorf("%s in it claims %d bytes, the archive has %d", name, header.Size, size)
		}
		found[name] = filepath.Join(folder, name)
		if err := copyMember(found[name], archive, header.Size); err != nil {
			return nil, fmt.Errorf("unpacking %s: %w", name, err)
		}
	}
	if library := found[machineMember]; library != "" {
		return &Files{Library: library}, nil
	}
	for _, name := range members {
		if found[name] != "" {
			continue
		}
		for _, other := range others {
			if other == "metadata.json" || other == "metadata" {
				return nil, errors.New("it is in TVM's Model Library Format for microcontrollers, which has no " +
					"library to load")
			}
		}
		return nil, fmt.Errorf("%s is missing in it; a model that collage compile or tvmc wrote has %s", name,
			strings.Join(members, ", "))
	}
	return &Files{Library: found["mod.so"], Graph: found["mod.json"], Params: found["mod.params"]}, nil
}

func isMember(name string) bool {
	return name == machineMember || slices.Contains(members, name)
}

func copyMember(path string, r io.Reader, size int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, r)
	if err == nil && n != size {
		err = fmt.Errorf("it is cut short (%d of %d bytes)", n, size)
	}
	return errors.Join(err, file.Close())
}

// machines are the ELF machine types that a Go architecture can load.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "386": elf.EM_386, "arm": elf.EM_ARM, "riscv64": elf.EM_RISCV,
	"ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390,
}

// Demands are what a model's library says of itself before it is loaded.
type Demands struct {
	// Libraries are the shared libraries that it names (DT_NEEDED).
	Libraries []string
	// Note is what it says of the processor, of libraries and plug-ins, for collage.runtime.CheckNeeds
	// (byoc/runtime/needs.h); "" for a model that says nothing.
	Note string
	// Signature is what a model for TVM's virtual machine says of its inputs and outputs, as JSON; "" for others.
	Signature string
}

// Needed reads what a model's library demands. It is an error if the library is for another kind of machine.
func Needed(library string) (*Demands, error) {
	file, err := os.Open(library)
	if err != nil {
		return nil, fmt.Errorf("the model's library cannot be read: %w", err)
	}
	defer file.Close()
	return needed(file)
}

// goarch is what this program was compiled for.
const goarch = runtime.GOARCH

func needed(content io.ReaderAt) (*Demands, error) {
	file, err := elf.NewFile(content)
	if err != nil {
		return nil, fmt.Errorf("the model's library cannot be read: %w", err)
	}
	if want, known := machines[goarch]; known && file.Machine != want {
		return nil, fmt.Errorf("the model was compiled for another machine (%s, this one is %s): compile it for this "+
			"one, "+
			"or give collage compile its --target", machineName(file.Machine), goarch)
	}
	if file.Type != elf.ET_DYN {
		return nil, errors.New("the model's library is not a shared library")
	}
	var d Demands
	if d.Libraries, err = file.ImportedLibraries(); err != nil {
		return nil, fmt.Errorf("the model's library cannot be read: %w", err)
	}
	for name, text := range map[string]*string{noteSection: &d.Note, signatureSection: &d.Signature} {
		if section := file.Section(name); section != nil {
			if *text, err = noteText(section); err != nil {
				return nil, fmt.Errorf("the model's library cannot be read: %w", err)
			}
		}
	}
	return &d, nil
}

// noteSection is where python/collage/needs.py puts the note, signatureSection where virtual_machine.py puts its own,
// and noteOwner whose they say they are.
const (
	noteSection      = ".note.collage"
	signatureSection = ".note.collage.signature"
	noteOwner        = "Collage\x00"
	mostNote         = 1 << 20
)

// noteText is the text of an ELF note: the sizes of owner and text, a type, then both.
func noteText(section *elf.Section) (string, error) {
	damaged := errors.New("what it says of itself is damaged")
	const head = 12
	if section.Type == elf.SHT_NOBITS || section.Flags&elf.SHF_COMPRESSED != 0 || section.Size > mostNote ||
		section.FileSize < head+uint64(len(noteOwner)) {
		return "", damaged
	}
	data, err := section.Data()
	if err != nil || len(data) < head+len(noteOwner) {
		return "", damaged
	}
	owner, size := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
	text := data[head+len(noteOwner):]
	if owner != uint32(len(noteOwner)) || string(data[head:head+len(noteOwner)]) != noteOwner ||
		uint64(size) > uint64(len(text)) {
		return "", damaged
	}
	return string(text[:size]), nil
}

func machineName(m elf.Machine) string {
	for arch, machine := range machines {
		if machine == m {
			return arch
		}
	}
	return m.String()
}
