// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/npz"
)

type member struct {
	name, content string
	kind          byte
}

func writeTar(t testing.TB, members ...member) string {
	t.Helper()
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, m := range members {
		kind := m.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		header := &tar.Header{Name: m.name, Typeflag: kind, Mode: 0o644}
		if kind == tar.TypeReg {
			header.Size = int64(len(m.content))
		} else {
			header.Linkname = m.content
		}
		require.NoError(t, archive.WriteHeader(header))
		if kind == tar.TypeReg {
			_, err := archive.Write([]byte(m.content))
			require.NoError(t, err)
		}
	}
	require.NoError(t, archive.Close())
	path := filepath.Join(t.TempDir(), "model.tar")
	require.NoError(t, os.WriteFile(path, buffer.Bytes(), 0o600))
	return path
}

func whole() []member {
	return []member{{name: "./mod.so", content: "so"}, {name: "mod.json", content: "{}"},
		{name: "mod.params", content: "p"}}
}

func TestOpenTar(t *testing.T) {
	folder := t.TempDir()
	files, err := Open(writeTar(t, whole()...), folder)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(folder, "mod.so"), files.Library)
	content, err := os.ReadFile(files.Graph)
	require.NoError(t, err)
	assert.Equal(t, "{}", string(content))
	assert.FileExists(t, files.Params)
}

// An archive from somewhere else must not write anywhere but into the folder that it was given.
func TestOpenTarThatWantsOut(t *testing.T) {
	parent := t.TempDir()
	folder := filepath.Join(parent, "a", "b")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	target := filepath.Join(parent, "target")
	path := writeTar(t, append([]member{
		{name: "../../escaped", content: "x"}, {name: parent + "/absolute", content: "x"},
		{name: "../mod.so", content: "x"},
		{name: "a/mod.json", content: "x"},
	}, whole()...)...)
	_, err := Open(path, folder)
	require.NoError(t, err)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, entries, 3)
	entries, err = os.ReadDir(parent)
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	for _, kind := range []byte{tar.TypeSymlink, tar.TypeLink} {
		_, err = Open(writeTar(t, append([]member{{name: "mod.so", content: target, kind: kind}}, whole()...)...),
			t.TempDir())
		assert.ErrorContains(t, err, "mod.so in it is not a plain file")
		assert.NoFileExists(t, target)
	}
}

func TestOpenWhatIsNoModel(t *testing.T) {
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	truncated := func() string {
		path := writeTar(t, whole()...)
		require.NoError(t, os.Truncate(path, 513))
		return path
	}
	tests := map[string]struct{ path, want string }{
		"absent":    {"absent.tar", "cannot read the model absent.tar: no such file or directory"},
		"folder":    {t.TempDir(), "is a folder"},
		"empty":     {write(""), "neither a .tar nor a .so"},
		"text":      {write("hello"), "neither a .tar nor a .so"},
		"gzip":      {write("\x1f\x8b..."), "compressed with gzip"},
		"no params": {writeTar(t, whole()[:2]...), "mod.params is missing in it"},
		"twice":     {writeTar(t, append(whole(), whole()...)...), "holds mod.so twice"},
		"MLF":       {writeTar(t, member{name: "./metadata.json", content: "{}"}), "Model Library Format"},
		"truncated": {truncated(), "unpacking mod.so: unexpected EOF"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Open(test.path, t.TempDir())
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestNeededOfWhatIsNoLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mod.so")
	require.NoError(t, os.WriteFile(path, []byte("so"), 0o600))
	_, err := Needed(path)
	assert.ErrorContains(t, err, "the model's library cannot be read")
}

func TestTimings(t *testing.T) {
	var samples []time.Duration
	for i := 10; i >= 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	got := newTimings(samples, 3)
	assert.Equal(t, 5.0, got.Median)
	assert.InDelta(t, 1.0, got.Low, 1e-12)
	assert.InDelta(t, 9.0, got.High, 1e-12)
	assert.Equal(t, 0.0, got.Min)
	assert.Equal(t, 10.0, got.Max)
	assert.InDelta(t, 5.0, got.Mean, 1e-12)
	assert.Equal(t, 10.0, got.Samples[0])
	assert.Zero(t, newTimings(nil, 0).Median)
	assert.Equal(t, 7.0, newTimings([]time.Duration{7 * time.Millisecond}, 0).High)
}

var twoInputs = []TensorInfo{{Name: "data", Shape: []int64{1, 3}, DType: "float32"},
	{Name: "mask", Shape: []int64{4}, DType: "bool"}}

func TestRandomInputs(t *testing.T) {
	a, err := RandomInputs(twoInputs, 7)
	require.NoError(t, err)
	require.NoError(t, CheckInputs(twoInputs, a))
	b, err := RandomInputs(twoInputs[:1], 7)
	require.NoError(t, err)
	assert.Equal(t, a[0], b[0])
	c, err := RandomInputs(twoInputs, 8)
	require.NoError(t, err)
	assert.NotEqual(t, a[0].Data, c[0].Data)

	for _, dtype := range []string{"bool", "int8", "int64", "uint16", "float16", "float64"} {
		arrays, err := RandomInputs([]TensorInfo{{Name: "x", Shape: []int64{64}, DType: dtype}}, 0)
		require.NoError(t, err)
		size, _ := npz.ItemSize(dtype)
		assert.Len(t, arrays[0].Data, 64*size)
	}
	integers, _ := RandomInputs([]TensorInfo{{Name: "x", Shape: []int64{1000}, DType: "int32"}}, 0)
	for i := range 1000 {
		assert.Less(t, binary.LittleEndian.Uint32(integers[0].Data[4*i:]), uint32(10))
	}
	_, err = RandomInputs([]TensorInfo{{Name: "x", DType: "bfloat16"}}, 0)
	assert.ErrorContains(t, err, "no random values")
}

func TestSixteenth(t *testing.T) {
	for k := range 16 {
		bits := sixteenth(k)
		value := 0.0
		if bits != 0 {
			value = math.Ldexp(1+float64(bits&0x3ff)/1024, int(bits>>10)-15)
		}
		assert.Equal(t, float64(k)/16, value)
	}
}

func TestCheckInputs(t *testing.T) {
	good, err := RandomInputs(twoInputs, 0)
	require.NoError(t, err)
	change := func(f func(a []npz.Array) []npz.Array) []npz.Array { return f(append([]npz.Array(nil), good...)) }
	tests := map[string]struct {
		arrays []npz.Array
		want   string
	}{
		"missing": {good[:1], `the input "mask" is missing (the model takes: data float32 [1, 3]; mask bool [4])`},
		"misspelt": {change(func(a []npz.Array) []npz.Array { a[0].Name = "date"; return a }),
			`the model has no input "date": did you mean "data"?`},
		"unknown": {change(func(a []npz.Array) []npz.Array { a[0].Name = "zzzz"; return a }),
			`the model has no input "zzzz" (it takes: data float32 [1, 3]; mask bool [4])`},
		"dtype": {change(func(a []npz.Array) []npz.Array { a[0].DType = "float64"; return a }),
			`the input "data" is float64, the model takes float32 (convert it with .astype("float32"))`},
		"shape": {change(func(a []npz.Array) []npz.Array { a[0].Shape = []int64{3}; return a }),
			`the input "data" has the shape [3], the model takes [1, 3]`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { assert.EqualError(t, CheckInputs(twoInputs, test.arrays), test.want) })
	}
}

func TestParseGraph(t *testing.T) {
	names, err := parseGraph([]byte(`{"nodes":[{"op":"null","name":"data","inputs":[]},{"op":"tvm_op","name":"f"},
		{"op":"null","name":"p0"}],"arg_nodes":[0,2],"heads":[[1,0,0]]}`))
	require.NoError(t, err)
	assert.Equal(t, []string{"data", "p0"}, names)
	_, err = parseGraph([]byte("x"))
	assert.ErrorContains(t, err, "not the JSON")
	_, err = parseGraph([]byte(`{"nodes":[],"arg_nodes":[0]}`))
	assert.ErrorContains(t, err, "names a node 0 and has 0")
}

func TestInputsOfAnySize(t *testing.T) {
	open := []TensorInfo{{Name: "x", Shape: []int64{-1, 8}, DType: "float32", Tried: []int64{3, 8}}}
	random, err := RandomInputs(open, 1)
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 8}, random[0].Shape)
	require.NoError(t, CheckInputs(open, random))
	random[0].Shape = []int64{3, 7}
	assert.ErrorContains(t, CheckInputs(open, random), `has the shape [3, 7], the model takes [?, 8]`)
	random[0].Shape = []int64{3, 8, 1}
	assert.Error(t, CheckInputs(open, random))
}
