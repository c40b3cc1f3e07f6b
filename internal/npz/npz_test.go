// SPDX-License-Identifier: Apache-2.0

package npz

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func int16s(values ...int16) []byte {
	data, _ := binary.Append(nil, binary.LittleEndian, values)
	return data
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npz")
	arrays := []Array{
		{Name: "data", DType: "int16", Shape: []int64{2, 1, 3}, Data: int16s(1, 2, 3, 4, 5, -6)},
		{Name: "scalar", DType: "float64", Data: make([]byte, 8)},
		{Name: "vector", DType: "bool", Shape: []int64{2}, Data: []byte{1, 0}},
		{Name: "empty", DType: "float32", Shape: []int64{0, 4}, Data: []byte{}},
		{Name: "half", DType: "float16", Shape: []int64{1}, Data: []byte{0, 0x3c}},
		{Name: "a/slash.and.dots", DType: "uint64", Shape: []int64{1}, Data: make([]byte, 8)},
	}
	require.NoError(t, Write(path, arrays))
	got, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, arrays, got)
}

func npy(header string, data []byte) []byte {
	file := append([]byte(magic), 1, 0)
	file = binary.LittleEndian.AppendUint16(file, uint16(len(header)))
	return append(append(file, header...), data...)
}

func TestReadOtherLayouts(t *testing.T) {
	bigEndian := npy("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n", []byte{0, 1, 0xff, 0xfe})
	a, err := readArray(bytes.NewReader(bigEndian), "x", uint64(len(bigEndian)))
	require.NoError(t, err)
	assert.Equal(t, int16s(1, -2), a.Data)

	fortran := npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", int16s(1, 4, 2, 5, 3, 6))
	a, err = readArray(bytes.NewReader(fortran), "x", uint64(len(fortran)))
	require.NoError(t, err)
	assert.Equal(t, int16s(1, 2, 3, 4, 5, 6), a.Data)
}

func TestBadArrays(t *testing.T) {
	tests := map[string]struct {
		file []byte
		want string
	}{
		"not npy":      {[]byte("hello"), "not in NumPy's array format"},
		"version":      {append([]byte(magic), 9, 0), "version 9"},
		"short header": {append([]byte(magic), 1, 0, 200, 0, 'x'), "cut short"},
		"objects": {npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", nil),
			"not one that a model can take"},
		"strings": {npy("{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }\n", nil),
			"not one that a model can take"},
		"empty type": {npy("{'descr': '', 'fortran_order': False, 'shape': (1,), }\n", nil),
			"not one that a model can take"},
		"records":    {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", nil), "records"},
		"not a dict": {npy("nonsense\n", nil), "not one of NumPy's"},
		"negative shape": {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n", nil),
			"not one of an array"},
		"short data": {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", []byte{1}),
			"needs 8 bytes, the file has 1"},
		"long data": {npy("{'descr': '|i1', 'fortran_order': False, 'shape': (), }\n", []byte{1, 2}),
			"needs 1 bytes, the file has 2"},
		"overflow": {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }\n", nil),
			"too large"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := readArray(bytes.NewReader(test.file), "x", uint64(len(test.file)))
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestBadArchives(t *testing.T) {
	folder := t.TempDir()
	_, err := Read(filepath.Join(folder, "absent.npz"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Read(folder)
	assert.ErrorContains(t, err, "is a folder")

	text := filepath.Join(folder, "text.npz")
	require.NoError(t, os.WriteFile(text, []byte("hello"), 0o600))
	_, err = Read(text)
	assert.ErrorContains(t, err, "is not an .npz file")

	write := func(members ...string) string {
		path := filepath.Join(folder, "bad.npz")
		file, err := os.Create(path)
		require.NoError(t, err)
		archive := zip.NewWriter(file)
		for _, m := range members {
			w, err := archive.Create(m)
			require.NoError(t, err)
			require.NoError(t, writeArray(w, &Array{DType: "int8", Data: []byte{1}}))
		}
		require.NoError(t, archive.Close())
		require.NoError(t, file.Close())
		return path
	}
	_, err = Read(write("x.txt"))
	assert.ErrorContains(t, err, `holds "x.txt", which is not an array`)
	_, err = Read(write("x.npy", "x.npy"))
	assert.ErrorContains(t, err, `holds the array "x" twice`)

	// A byte that flipped in the data is seen by the archive's checksum.
	path := filepath.Join(folder, "flipped.npz")
	require.NoError(t, Write(path, []Array{{Name: "x", DType: "int8", Shape: []int64{8}, Data: []byte("AAAAAAAA")}}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(content), "AAAA", "ABAA", 1)), 0o600))
	_, err = Read(path)
	assert.ErrorContains(t, err, "checksum")
}

func TestBadWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npz")
	assert.ErrorContains(t, Write(path, []Array{{Name: "x", DType: "bfloat16"}}), "NumPy has no element type bfloat16")
	assert.ErrorContains(t, Write(path, []Array{{Name: "x", DType: "float32", Shape: []int64{2}, Data: []byte{1}}}),
		"needs 8 bytes")
	assert.NoFileExists(t, path)
}
