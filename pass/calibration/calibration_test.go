// SPDX-License-Identifier: Apache-2.0

package calibration

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/npz"
	"github.com/collage-tvm/collage/pass/measure"
)

// floats is an array of float32 with the numbers from 0 on.
func floats(name string, shape ...int64) npz.Array {
	a := npz.Array{Name: name, DType: "float32", Shape: shape}
	for i := range a.Elements() {
		a.Data = binary.LittleEndian.AppendUint32(a.Data, math.Float32bits(float32(i)))
	}
	return a
}

func archived(t *testing.T, folder, name string, arrays ...npz.Array) string {
	t.Helper()
	path := filepath.Join(folder, name)
	require.NoError(t, npz.Write(path, arrays))
	return path
}

var image = []parameter{{"x", "float32", []int64{1, 2, 3}}}

func TestCalibrationDataIsTakenApart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	two := append(image, parameter{"mask", "float32", []int64{4}})
	for name, c := range map[string]struct {
		arrays []npz.Array
		wanted []parameter
		count  int
	}{
		"stacked":    {[]npz.Array{floats("x", 5, 1, 2, 3)}, image, 5},
		"one behind": {[]npz.Array{floats("x", 6, 2, 3)}, image, 6},
		"both":       {[]npz.Array{floats("x", 3, 1, 2, 3), floats("mask", 3, 4)}, two, 3},
	} {
		path := archived(t, folder, name+".npz", c.arrays...)
		taken, err := samplesOf(path, c.wanted)
		require.NoError(t, err, name)
		assert.Equal(t, c.count, len(taken.Searched)+len(taken.HeldOut), name)
		assert.Equal(t, measure.Input{File: path}, taken.Searched[0])
		assert.Equal(t, measure.Input{File: path, Sample: 1}, taken.HeldOut[0])
		assert.Len(t, taken.Digest, 12)
	}

	// Of a folder all files, in the order of their names; of many samples some from everywhere.
	many := t.TempDir()
	for i := range 40 {
		archived(t, many, fmt.Sprintf("%02d.npz", i), floats("x", 1, 2, 3))
	}
	taken, err := samplesOf(many, image)
	require.NoError(t, err)
	assert.Len(t, taken.Searched, 4)
	assert.Len(t, taken.HeldOut, 12)
	assert.Len(t, taken.Scales, 18)
	assert.Len(t, taken.Compared, 6, "a quarter of all others compares methods, and the rest is for scales")
	assert.Equal(t, filepath.Join(many, "37.npz"), taken.HeldOut[11].File)
	seen := map[measure.Input]bool{}
	for _, s := range slices.Concat(taken.Searched, taken.HeldOut, taken.Scales, taken.Compared) {
		assert.False(t, seen[s], "%v", s)
		seen[s] = true
	}
	other := t.TempDir()
	archived(t, other, "a.npz", floats("x", 2, 1, 2, 3))
	different, err := samplesOf(other, image)
	require.NoError(t, err)
	assert.NotEqual(t, taken.Digest, different.Digest)
	assert.Equal(t, different.Searched, different.Compared, "there are no others")
}

// Errors are taken on the same samples of the same files, and data are told by these, however many more files scales
// are found on; what is known of scales is of all of them.
func TestMoreFilesForScalesChangeNoErrors(t *testing.T) {
	t.Parallel()
	const inAll = 40
	all, few := t.TempDir(), t.TempDir()
	for i := range inAll {
		x := floats("x", 3, 1, 2, 3)
		x.Data[0] = byte(i)
		name := fmt.Sprintf("%02d.npz", i)
		archived(t, all, name, x)
		for k := range mostInputs {
			if i == k*inAll/mostInputs {
				archived(t, few, name, x)
			}
		}
	}
	of, err := samplesOf(all, image)
	require.NoError(t, err)
	ofFew, err := samplesOf(few, image)
	require.NoError(t, err)
	assert.Equal(t, ofFew.Digest, of.Digest)
	assert.NotEqual(t, ofFew.ScalesDigest, of.ScalesDigest)
	named := func(list []measure.Input) (names []string) {
		for _, one := range list {
			names = append(names, fmt.Sprint(filepath.Base(one.File), one.Sample))
		}
		return names
	}
	assert.Equal(t, named(ofFew.Searched), named(of.Searched))
	assert.Equal(t, named(ofFew.HeldOut), named(of.HeldOut))
	assert.Len(t, of.Scales, 3*inAll-mostInputs-mostCompared)
	assert.Len(t, ofFew.Scales, 2*mostInputs-mostCompared)
}

func TestBadCalibrationData(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	nan := floats("x", 2, 1, 2, 3)
	binary.LittleEndian.PutUint32(nan.Data[4*7:], math.Float32bits(float32(math.NaN())))
	infinite := floats("x", 2, 1, 2, 3)
	binary.LittleEndian.PutUint32(infinite.Data, math.Float32bits(float32(math.Inf(-1))))
	double := npz.Array{Name: "x", DType: "float64", Shape: []int64{2, 1, 2, 3}, Data: make([]byte, 8*12)}
	flat := npz.Array{Name: "x", DType: "float32", Shape: []int64{2, 1, 2, 3}, Data: make([]byte, 4*12)}
	for name, c := range map[string]struct {
		arrays []npz.Array
		says   string
	}{
		"shape":   {[]npz.Array{floats("x", 2, 1, 3, 2)}, "the array x has the shape [2 1 3 2], the input [1 2 3]"},
		"type":    {[]npz.Array{double}, "the array x is float64, the input is float32"},
		"nan":     {[]npz.Array{nan}, "the array x has NaN or an infinity, first as its element 7"},
		"inf":     {[]npz.Array{infinite}, "first as its element 0"},
		"flat":    {[]npz.Array{flat}, "all elements of each array are the same"},
		"one":     {[]npz.Array{floats("x", 1, 2, 3)}, "has one sample"},
		"none":    {[]npz.Array{floats("x", 0, 1, 2, 3)}, "the array x has the shape [0 1 2 3]"},
		"missing": {nil, "the input x is missing"},
		"name":    {[]npz.Array{floats("y", 2, 1, 2, 3)}, "the network has no input y"},
	} {
		_, err := samplesOf(archived(t, folder, name+".npz", c.arrays...), image)
		require.ErrorContains(t, err, c.says, name)
		require.ErrorContains(t, err, name+".npz", "which file it is")
	}
	uneven := append(image, parameter{"mask", "float32", []int64{4}})
	_, err := samplesOf(archived(t, folder, "uneven.npz", floats("x", 2, 1, 2, 3), floats("mask", 3, 4)), uneven)
	require.ErrorContains(t, err, "the array mask has 3 samples, another one 2")

	_, err = samplesOf(filepath.Join(folder, "nowhere"), image)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = samplesOf(t.TempDir(), image)
	require.ErrorContains(t, err, "has no .npz files")
	text := filepath.Join(folder, "text.npz")
	require.NoError(t, os.WriteFile(text, []byte("no archive"), 0o600))
	_, err = samplesOf(text, image)
	require.ErrorContains(t, err, "is not an .npz file")
}
