// SPDX-License-Identifier: Apache-2.0

package npz

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// archiveOf is the bytes of an archive that Write writes.
func archiveOf(t testing.TB, arrays ...Array) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.npz")
	require.NoError(t, Write(path, arrays))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

// deflated is an archive as numpy.savez_compressed writes it.
func deflated(t testing.TB, name string, content []byte) []byte {
	t.Helper()
	var text bytes.Buffer
	archive := zip.NewWriter(&text)
	w, err := archive.Create(name)
	require.NoError(t, err)
	_, err = w.Write(content)
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	return text.Bytes()
}

// requireSound says that an array is what its header says, and comes back when it is written and read.
func requireSound(t *testing.T, a Array) {
	size, known := ItemSize(a.DType)
	require.True(t, known)
	require.EqualValues(t, a.Elements()*int64(size), len(a.Data))
	var file bytes.Buffer
	require.NoError(t, writeArray(&file, &a))
	again, err := readArray(bytes.NewReader(file.Bytes()), a.Name, uint64(file.Len()))
	require.NoError(t, err)
	require.Equal(t, a, again)
}

// FuzzReadArray reads one .npy file.
func FuzzReadArray(f *testing.F) {
	f.Add(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", make([]byte, 24)), uint64(0))
	f.Add(npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", int16s(1, 2, 3, 4, 5, 6)), uint64(0))
	f.Add(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (), }\n", []byte{1}), uint64(0))
	f.Add(npy("{'descr': '<f8', 'fortran_order': True, 'shape': (0, 9223372036854775807, 7), }\n", nil), uint64(0))
	f.Add(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776,), }\n", []byte{1}), uint64(1<<40-1))
	f.Fuzz(func(t *testing.T, file []byte, more uint64) {
		// An archive may promise more than it has.
		a, err := readArray(bytes.NewReader(file), "x", uint64(len(file))+more)
		if err == nil {
			require.Zero(t, more)
			requireSound(t, a)
		}
	})
}

// FuzzReadArchive reads whole archives.
func FuzzReadArchive(f *testing.F) {
	f.Add(archiveOf(f))
	f.Add(archiveOf(f, Array{Name: "data", DType: "int16", Shape: []int64{2, 1, 3}, Data: int16s(1, 2, 3, 4, 5, -6)},
		Array{Name: "scalar", DType: "bool", Data: []byte{1}}))
	f.Add(deflated(f, "x.npy", npy("{'descr': '<f2', 'fortran_order': False, 'shape': (64,), }\n", make([]byte, 128))))
	f.Add(deflated(f, "readme.txt", nil))
	f.Fuzz(func(t *testing.T, content []byte) {
		archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return
		}
		arrays, err := readAll(archive)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, a := range arrays {
			require.False(t, names[a.Name], "the array %q comes twice", a.Name)
			names[a.Name] = true
			requireSound(t, a)
		}
	})
}
