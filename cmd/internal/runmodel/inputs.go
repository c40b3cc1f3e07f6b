// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/internal/npz"
)

// TensorInfo is what a model says about one of its inputs or outputs.
type TensorInfo struct {
	Name string `json:"name"`
	// Shape has -1 for what is known only when the model runs, and Tried then sizes at which it was tried when it was
	// compiled.
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"`
	Tried []int64 `json:"tried_shape,omitempty"`
	// Names are what the model calls its open dimensions ("" for others): those of one name are of one size. Domain is
	// between which sizes they may be, both included (nil for any from 1 up). Both are nil where there are none.
	Names  []string    `json:"names,omitempty"`
	Domain []*[2]int64 `json:"domain,omitempty"`
}

// String is "data float32 [1, 3, 224, 224]".
func (t TensorInfo) String() string { return t.Name + " " + t.DType + " " + shapeText(t.Shape) }

func shapeText(shape []int64) string {
	return strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "-1", "?")
}

// fits says whether an array of a shape can be the input.
func (t TensorInfo) fits(shape []int64) bool {
	return slices.EqualFunc(t.Shape, shape, func(size, given int64) bool { return size < 0 || size == given })
}

// outside says why an input may not be of a shape that fits; "" where it may.
func (t TensorInfo) outside(shape []int64) string {
	for axis, size := range shape {
		if t.Shape[axis] >= 0 {
			continue
		}
		least, most, allowed := int64(1), int64(math.MaxInt64), "at least 1"
		if t.Domain != nil && t.Domain[axis] != nil {
			least, most = t.Domain[axis][0], t.Domain[axis][1]
			allowed = fmt.Sprintf("from %d to %d", least, most)
		}
		if size < least || size > most {
			return fmt.Sprintf("the input %q has the size %d in dimension %d; the model was compiled for %s", t.Name, size, axis,
				allowed)
		}
	}
	return ""
}

// disagreeing says which dimensions of one name have two sizes; "" for none. Inputs that are not given are not looked
// at.
func disagreeing(inputs []TensorInfo, given map[string]*npz.Array) string {
	type place struct {
		where string
		size  int64
	}
	seen := map[string]place{}
	for _, in := range inputs {
		for axis, name := range in.Names {
			if name == "" || given[in.Name] == nil {
				continue
			}
			here := place{fmt.Sprintf("dimension %d of %q", axis, in.Name), given[in.Name].Shape[axis]}
			if before, ok := seen[name]; ok && before.size != here.size {
				return fmt.Sprintf("%s is %d in %s, and %d in %s: it is one size for the model", name, before.size, before.where,
					here.size, here.where)
			}
			seen[name] = here
		}
	}
	return ""
}

// example is a shape that the input may have.
func (t TensorInfo) example() []int64 {
	if len(t.Tried) > 0 {
		return t.Tried
	}
	return t.Shape
}

// CheckInputs says whether the arrays are what the model takes: the same names, shapes and element types.
// Nothing is converted, so that a model never computes on something other than what was given.
func CheckInputs(inputs []TensorInfo, arrays []npz.Array) error {
	given := map[string]*npz.Array{}
	var names []string
	for i := range arrays {
		given[arrays[i].Name] = &arrays[i]
	}
	for _, in := range inputs {
		names = append(names, in.Name)
	}
	for _, a := range arrays {
		if slices.Contains(names, a.Name) {
			continue
		}
		if near := nearest.Word(a.Name, names); near != "" && given[near] == nil {
			return fmt.Errorf("the model has no input %q: did you mean %q?", a.Name, near)
		}
		return fmt.Errorf("the model has no input %q (it takes: %s)", a.Name, list(inputs))
	}
	for _, in := range inputs {
		a := given[in.Name]
		switch {
		case a == nil:
			return fmt.Errorf("the input %q is missing (the model takes: %s)", in.Name, list(inputs))
		case a.DType != in.DType:
			return fmt.Errorf("the input %q is %s, the model takes %s (convert it with .astype(%q))", in.Name, a.DType,
				in.DType,
				in.DType)
		case !in.fits(a.Shape):
			return fmt.Errorf("the input %q has the shape %s, the model takes %s", in.Name, shapeText(a.Shape),
				shapeText(in.Shape))
		}
		if wrong := in.outside(a.Shape); wrong != "" {
			return errors.New(wrong)
		}
	}
	if wrong := disagreeing(inputs, given); wrong != "" {
		return errors.New(wrong)
	}
	return nil
}

func list(tensors []TensorInfo) string {
	texts := make([]string, len(tensors))
	for i, t := range tensors {
		texts[i] = t.String()
	}
	return strings.Join(texts, "; ")
}

// RandomInputs fills every input from a seed; the same seed gives the same values on every machine. Floats
// are uniform in [0, 1), integers in [0, 10) so that they can stand for indices, booleans are either.
func RandomInputs(inputs []TensorInfo, seed uint64) ([]npz.Array, error) {
	arrays := make([]npz.Array, len(inputs))
	for i, in := range inputs {
		size, known := npz.ItemSize(in.DType)
		if !known {
			return nil, fmt.Errorf("the input %q is %s, for which there are no random values: give it in --inputs",
				in.Name,
				in.DType)
		}
		// Each input has a stream of its own: adding one does not change the others.
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		a := npz.Array{Name: in.Name, DType: in.DType, Shape: in.example()}
		elements := a.Elements()
		a.Data = make([]byte, 0, elements*int64(size))
		for range elements {
			a.Data = appendRandom(a.Data, in.DType, size, random)
		}
		arrays[i] = a
	}
	return arrays, nil
}

func appendRandom(data []byte, dtype string, size int, random *rand.Rand) []byte {
	switch dtype {
	case "float32":
		return binary.LittleEndian.AppendUint32(data, math.Float32bits(random.Float32()))
	case "float64":
		return binary.LittleEndian.AppendUint64(data, math.Float64bits(random.Float64()))
	case "float16":
		// Sixteenths are exact in half precision: k/16 for k in [0, 16).
		return binary.LittleEndian.AppendUint16(data, sixteenth(random.IntN(16)))
	}
	value := random.Uint64N(10)
	if dtype == "bool" {
		value = random.Uint64N(2)
	}
	for range size {
		data = append(data, byte(value))
		value >>= 8
	}
	return data
}

// sixteenth gives k/16 in IEEE half precision, for 0 <= k < 16.
func sixteenth(k int) uint16 {
	if k == 0 {
		return 0
	}
	exponent := 0
	for k>>(exponent+1) > 0 {
		exponent++
	}
	mantissa := (k << (10 - exponent)) & 0x3ff
	return uint16((exponent-4+15)<<10 | mantissa)
}
