// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sparseTar is an archive whose mod.so is a gigabyte of holes, as GNU tar writes it: a few blocks on disk.
func sparseTar() []byte {
	block := func(name, size string, kind byte) []byte {
		b := make([]byte, 512)
		copy(b, name)
		copy(b[100:], "0000644\x000000000\x000000000\x00"+size+"\x0000000000000\x00")
		b[156] = kind
		copy(b[257:], "ustar\x0000")
		sum := 8 * int(' ')
		for i, c := range b {
			if i < 148 || i >= 156 {
				sum += int(c)
			}
		}
		copy(b[148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7),
			byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
		return b
	}
	records := ""
	for _, record := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=mod.so",
		"GNU.sparse.realsize=1073741824"} {
		length := len(record) + 4 // two digits, a blank, a line break
		records += string([]byte{byte('0' + length/10), byte('0' + length%10), ' '}) + record + "\n"
	}
	padded := make([]byte, 512)
	copy(padded, records)
	size := []byte("00000000000")
	for i, n := len(size)-1, len(records); n > 0; i, n = i-1, n/8 {
		size[i] = byte('0' + n%8)
	}
	data := make([]byte, 512)
	copy(data, "0\n") // no piece of data at all
	return slices.Concat(block("PaxHeaders.0/mod.so", string(size), 'x'), padded,
		block("GNUSparseFile.0/mod.so", "00000001000", '0'),
		data, make([]byte, 1024))
}

func TestATarOfHolesDoesNotFillTheDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.tar")
	require.NoError(t, os.WriteFile(path, sparseTar(), 0o600))
	folder := t.TempDir()
	_, err := Open(path, folder)
	require.ErrorContains(t, err, "mod.so")
	assert.ErrorContains(t, err, "1073741824 bytes")
	if info, err := os.Stat(filepath.Join(folder, "mod.so")); err == nil {
		assert.Zero(t, info.Size())
	}
}

// library is the least that debug/elf takes for a shared library which needs others.
func library(machine elf.Machine, needed ...string) []byte {
	return libraryWith(machine, nil, needed...)
}

// noteOf is an ELF note with a text.
func noteOf(owner, text string) []byte {
	var note []byte
	for _, n := range []int{len(owner), len(text), 1} {
		note = binary.LittleEndian.AppendUint32(note, uint32(n))
	}
	return slices.Concat(note, []byte(owner), []byte(text))
}

// libraryWith has a section .note.collage, too.
func libraryWith(machine elf.Machine, note []byte, needed ...string) []byte {
	const header, section, sections = 64, 64, 5
	names := "\x00.dynstr\x00.dynamic\x00.shstrtab\x00.note.collage\x00"
	strs := "\x00"
	var dynamic []elf.Dyn64
	for _, name := range needed {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(strs))})
		strs += name + "\x00"
	}
	dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	at := uint64(header + sections*section)
	stringsAt, dynamicAt := at, at+uint64(len(strs))
	namesAt := dynamicAt + uint64(16*len(dynamic))
	head := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Shoff: header, Ehsize: header,
		Phentsize: 56, Shentsize: section, Shnum: sections, Shstrndx: 3}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64),
		byte(elf.ELFDATA2LSB), 1
	var file bytes.Buffer
	for _, part := range []any{head, []elf.Section64{{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: stringsAt, Size: uint64(len(strs))},
		{Name: 9, Type: uint32(elf.SHT_DYNAMIC), Off: dynamicAt, Size: uint64(16 * len(dynamic)), Link: 1, Entsize: 16},
		{Name: 18, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
		{Name: 28, Type: uint32(elf.SHT_NOTE), Off: namesAt + uint64(len(names)), Size: uint64(len(note))}},
		[]byte(strs), dynamic, []byte(names), note} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return file.Bytes()
}

func TestNeededOfALibrary(t *testing.T) {
	here := hostMachine(t)
	path := filepath.Join(t.TempDir(), "mod.so")
	text := "collage-needs 1\nfeature avx2\n"
	file := libraryWith(here, noteOf(noteOwner, text), "libcollage_runtime.so", "libc.so.6")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	demands, err := Needed(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"libcollage_runtime.so", "libc.so.6"}, demands.Libraries)
	assert.Equal(t, text, demands.Note)

	require.NoError(t, os.WriteFile(path, library(elf.EM_MIPS, "libc.so.6"), 0o600))
	_, err = Needed(path)
	assert.ErrorContains(t, err, "for another machine (EM_MIPS")
}

func TestDamagedNotes(t *testing.T) {
	whole := noteOf(noteOwner, "collage-needs 1\n")
	tooLong := slices.Clone(whole)
	tooLong[4]++
	for _, note := range [][]byte{{}, whole[:11], whole[:19], whole[:30], tooLong,
		noteOf("Somebody", "collage-needs 1\n")} {
		_, err := needed(bytes.NewReader(libraryWith(hostMachine(t), note)))
		assert.ErrorContains(t, err, "what it says of itself is damaged", note)
	}
}

func hostMachine(t testing.TB) elf.Machine {
	t.Helper()
	here, known := machines[goarch]
	if !known {
		t.Skip("no ELF machine type is known for " + goarch)
	}
	return here
}

// FuzzOpen unpacks archives: whatever they say, three files come out of one, of what stands in it, and none beside
// them.
func FuzzOpen(f *testing.F) {
	archive := func(members ...member) []byte {
		content, err := os.ReadFile(writeTar(f, members...))
		require.NoError(f, err)
		return content
	}
	f.Add(archive(whole()...))
	f.Add(archive(append(whole(), member{name: "../escaped", content: "x"}, member{name: "d", kind: tar.TypeDir})...))
	f.Add(archive(member{name: "mod.so", content: "/etc/passwd", kind: tar.TypeSymlink}))
	f.Add(archive(member{name: "./metadata.json", content: "{}"}))
	f.Add(sparseTar())
	f.Add([]byte("\x7fELF"))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		parent := t.TempDir()
		folder := filepath.Join(parent, "folder")
		require.NoError(t, os.Mkdir(folder, 0o755))
		path := filepath.Join(parent, "model")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		files, err := Open(path, folder)
		entries, readErr := os.ReadDir(parent)
		require.NoError(t, readErr)
		require.Len(t, entries, 2)
		entries, readErr = os.ReadDir(folder)
		require.NoError(t, readErr)
		total := int64(0)
		for _, entry := range entries {
			require.Contains(t, members, entry.Name())
			info, err := entry.Info()
			require.NoError(t, err)
			require.True(t, info.Mode().IsRegular())
			total += info.Size()
		}
		require.LessOrEqual(t, total, int64(len(content)))
		if err != nil {
			require.True(t, strings.Contains(err.Error(), path), err.Error())
			return
		}
		require.EqualValues(t, len(content), files.Size)
		if files.Graph != "" {
			require.Len(t, entries, 3)
		}
	})
}

// FuzzNeeded reads the headers of libraries.
func FuzzNeeded(f *testing.F) {
	f.Add(library(hostMachine(f), "libcollage_runtime.so", "libc.so.6"))
	f.Add(library(elf.EM_MIPS))
	f.Add(libraryWith(hostMachine(f), noteOf(noteOwner, "collage-needs 1\n")))
	f.Add(library(hostMachine(f))[:200])
	f.Fuzz(func(t *testing.T, content []byte) {
		demands, err := needed(bytes.NewReader(content))
		if err != nil {
			require.Nil(t, demands)
			return
		}
		for _, name := range append(demands.Libraries, demands.Note) {
			require.True(t, bytes.Contains(content, []byte(name)))
		}
	})
}

// FuzzParseGraph reads the executor's graph.
func FuzzParseGraph(f *testing.F) {
	f.Add([]byte(`{"nodes":[{"op":"null","name":"data","inputs":[]},{"op":"tvm_op","name":"f"}],"arg_nodes":[0]}`))
	f.Add([]byte(`{"nodes":[],"arg_nodes":[-1]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		names, err := parseGraph(text)
		require.True(t, err == nil || names == nil)
	})
}
