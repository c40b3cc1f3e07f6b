// SPDX-License-Identifier: Apache-2.0

// Package calibration takes the inputs on which errors are taken, and scales found, from a user's data: Take.
package calibration

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/internal/npz"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// Taken is on which inputs errors are taken.
type Taken struct {
	*measure.Inputs
	// Digest tells calibration data from others: the first digits of the SHA-256 of the files that errors are taken on;
	// "" for random inputs. ScalesDigest is that of all files that are read: scales are found on all.
	Digest, ScalesDigest string
}

// How many inputs errors are taken on: of calibration data mostInputs at most, a quarter of them by the search. Scales
// may be found on mostScales of all that are not held out: an error is known well by a few, and what values reach is
// not.
const (
	searchedInputs = 2
	heldOutInputs  = 6
	mostInputs     = 16
	searchedShare  = 4
	mostScales     = 256
	// mostCompared is on how many of those methods are compared of making scales, as far as there is time, and
	// comparedShare the share of them that is left out of what scales are found on.
	mostCompared  = 8
	comparedShare = 4
)

// Take gives the inputs on which errors are taken of a normalised module: samples of the calibration data, or random
// ones; nil where errors are not taken. Errors: an *OptionError that says what is wrong with the data, and where, or
// that it serves nothing.
func Take(p *settings.Precision, mod *bridge.Object) (*Taken, error) {
	if p.Limit() == (cost.Limit{}) {
		if p.Calibration != "" {
			return nil, &settings.OptionError{Option: "calibration", Reason: settings.NoBudget}
		}
		return nil, nil
	}
	own, err := p.OwnMeasure()
	if err != nil {
		return nil, &settings.OptionError{Option: "error_measure", Reason: err.Error()}
	}
	if p.Calibration == "" {
		return &Taken{Inputs: &measure.Inputs{Searched: measure.RandomInputs(1, searchedInputs),
			HeldOut:  measure.RandomInputs(1+searchedInputs, heldOutInputs),
			Compared: measure.RandomInputs(1+searchedInputs+heldOutInputs, mostCompared), Measure: own}}, nil
	}
	m, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	var wanted []parameter
	for _, g := range m.Functions {
		if g.Name != "main" {
			continue
		}
		for _, v := range g.Params {
			n := &g.Nodes[v]
			if n.Type == nil || n.Type.Kind != relay.TypeTensor || slices.Min(append([]int64{0}, n.Type.Shape...)) < 0 {
				return nil, &settings.OptionError{Option: "calibration",
					Reason: "cannot be held against the input " + n.Name + ", which is no tensor " +
						"of a fixed shape"}
			}
			wanted = append(wanted, parameter{n.Name, n.Type.DType, n.Type.Shape})
		}
	}
	taken, err := samplesOf(p.Calibration, wanted)
	if err != nil {
		return nil, &settings.OptionError{Option: "calibration", Reason: "cannot be used: " + err.Error()}
	}
	taken.Measure = own
	return taken, nil
}

// parameter is an input of a network.
type parameter struct {
	name, dtype string
	shape       []int64
}

// samplesOf reads calibration data: an .npz file or a folder of them, each with an array for each of the network's
// inputs, by name; of one sample, or of several one behind the other along the first axis or along one before it.
func samplesOf(path string, wanted []parameter) (*Taken, error) {
	files := []string{path}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.npz")); err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s has no .npz files", path)
		}
		slices.Sort(files)
		files = evenly(files, mostInputs+mostScales) // each holds a sample at least: no more of them are needed, nor read
	}
	first := evenly(files, mostInputs) // errors are taken on these: how many more are read must not change them
	var all, candidates []measure.Input
	digest, scalesDigest, varied := sha256.New(), sha256.New(), false
	for _, name := range files {
		file, of := name, io.Writer(scalesDigest)
		forErrors := slices.Contains(first, name)
		if forErrors {
			of = io.MultiWriter(digest, scalesDigest)
		}
		file, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		arrays, err := npz.Read(file)
		if err != nil {
			return nil, err
		}
		count, err := countSamples(arrays, wanted)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for i := range arrays {
			fmt.Fprintln(of, arrays[i].Name, arrays[i].DType, arrays[i].Shape)
			of.Write(arrays[i].Data)
			varied = varied || !constant(&arrays[i])
		}
		for i := range count {
			sample := measure.Input{File: file, Sample: i}
			if all = append(all, sample); forErrors {
				candidates = append(candidates, sample)
			}
		}
	}
	switch {
	case len(all) < 2:
		return nil, fmt.Errorf("%s has one sample: the search needs one, and what may be kept is decided by others", path)
	case !varied:
		return nil, fmt.Errorf("%s says nothing: all elements of each array are the same", path)
	}
	taken := &Taken{Inputs: &measure.Inputs{}, Digest: hex.EncodeToString(digest.Sum(nil))[:12],
		ScalesDigest: hex.EncodeToString(scalesDigest.Sum(nil))[:12]}
	for i, sample := range evenly(candidates, mostInputs) {
		if i%searchedShare == 0 {
			taken.Searched = append(taken.Searched, sample)
		} else {
			taken.HeldOut = append(taken.HeldOut, sample)
		}
	}
	errors := slices.Concat(taken.Searched, taken.HeldOut)
	all = without(all, errors)
	taken.Compared = evenly(all, min(mostCompared, len(all)/comparedShare))
	taken.Scales = evenly(without(all, taken.Compared), mostScales)
	if len(taken.Compared) == 0 {
		taken.Compared = taken.Searched
	}
	return taken, nil
}

// without are those of a list that are not among others.
func without(list, others []measure.Input) []measure.Input {
	return slices.DeleteFunc(slices.Clone(list), func(one measure.Input) bool { return slices.Contains(others, one) })
}

// evenly gives so many of a list at most, from everywhere in it: data is often sorted.
func evenly[T any](list []T, most int) []T {
	some := make([]T, min(len(list), most))
	for i := range some {
		some[i] = list[i*len(list)/len(some)]
	}
	return some
}

// countSamples says how many samples a file holds. The error says which array is not what the network takes.
func countSamples(arrays []npz.Array, wanted []parameter) (int, error) {
	var names []string
	for _, w := range wanted {
		names = append(names, w.name)
	}
	for i := range arrays {
		if name := arrays[i].Name; !slices.Contains(names, name) {
			hint := "its inputs are " + strings.Join(names, ", ")
			if near := nearest.Word(name, names); near != "" {
				hint = "did you mean " + near + "?"
			}
			return 0, fmt.Errorf("the network has no input %s: %s", name, hint)
		}
	}
	count := -1
	for _, w := range wanted {
		i := slices.IndexFunc(arrays, func(a npz.Array) bool { return a.Name == w.name })
		if i < 0 {
			return 0, fmt.Errorf("the input %s is missing", w.name)
		}
		a := &arrays[i]
		if a.DType != w.dtype {
			return 0, fmt.Errorf("the array %s is %s, the input is %s", a.Name, a.DType, w.dtype)
		}
		n := samplesIn(a.Shape, w.shape)
		if n == 0 {
			return 0, fmt.Errorf("the array %s has the shape %v, the input %v: give it as it is, with another axis before "+
				"it, or so many of them along the first axis", a.Name, a.Shape, w.shape)
		}
		if count >= 0 && n != count {
			return 0, fmt.Errorf("the array %s has %d samples, another one %d", a.Name, n, count)
		}
		count = n
		if at := firstNotFinite(a); at >= 0 {
			return 0, fmt.Errorf("the array %s has NaN or an infinity, first as its element %d", a.Name, at)
		}
	}
	return max(0, count), nil
}

// samplesIn is how many samples of a shape an array has; 0 where it has another shape.
func samplesIn(shape, sample []int64) int {
	switch {
	case slices.Equal(shape, sample):
		return 1
	case len(shape) == len(sample)+1 && slices.Equal(shape[1:], sample):
		return int(shape[0])
	case len(shape) == len(sample) && len(shape) > 0 && slices.Equal(shape[1:], sample[1:]) && sample[0] > 0 &&
		shape[0]%sample[0] == 0:
		return int(shape[0] / sample[0])
	}
	return 0
}

// firstNotFinite is the index of the first element that is no number; -1 for none.
func firstNotFinite(a *npz.Array) int {
	size, exponent := 0, uint64(0)
	switch a.DType {
	case "float16":
		size, exponent = 2, 0x7c00
	case "float32":
		size, exponent = 4, 0x7f800000
	case "float64":
		size, exponent = 8, 0x7ff0000000000000
	default:
		return -1
	}
	for i := 0; i+size <= len(a.Data); i += size {
		var word [8]byte
		copy(word[:], a.Data[i:i+size])
		if binary.LittleEndian.Uint64(word[:])&exponent == exponent {
			return i / size
		}
	}
	return -1
}

// constant says that all elements are the same.
func constant(a *npz.Array) bool {
	n := int(a.Elements())
	if n == 0 || n > math.MaxInt32 {
		return n == 0
	}
	size := len(a.Data) / n
	for i := size; i < len(a.Data); i += size {
		if !bytes.Equal(a.Data[i:i+size], a.Data[:size]) {
			return false
		}
	}
	return true
}
