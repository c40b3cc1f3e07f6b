// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
)

// roundWeights gives the operations of native's kernel bytes their weights as bytes, in the same order, and behind their
// other arguments the scale of each output channel: so they stand in the artefact, a quarter as large. An operation whose
// weights are not all finite is left to oneDNN. data gives the elements of a constant (region.Program.ConstantBytes).
func (l *lowering) roundWeights(data func(region.ValueID) ([]byte, error)) error {
	type weight struct {
		value region.ValueID
		view  string // how an operation sees it
	}
	type rounded struct {
		bytes, scales []byte
		finite        bool
		err           error
		// values are those that stand for it in the program.
		values []region.ValueID
	}
	all := map[weight]*rounded{}
	of := func(o *operation) (weight, strides) {
		view := l.channelsOf(o)
		return weight{o.in[1], fmt.Sprint(view)}, view
	}
	var working sync.WaitGroup
	for _, o := range l.ops {
		if o.kernel != native.BytesKernel {
			continue
		}
		key, view := of(o)
		if all[key] != nil {
			continue
		}
		r := &rounded{}
		all[key] = r
		elements, err := data(o.in[1])
		if err != nil {
			return err
		}
		working.Go(func() { r.bytes, r.scales, r.finite, r.err = roundedChannels(elements, view) })
	}
	working.Wait()
	for _, o := range l.ops {
		if o.kernel != native.BytesKernel {
			continue
		}
		key, view := of(o)
		r := all[key]
		switch {
		case r.err != nil:
			return r.err
		case !r.finite:
			o.kernel = ""
			continue
		case r.values == nil:
			r.values = []region.ValueID{l.constant("int8", r.bytes, l.types[o.in[1]].Shape...),
				l.constant("float32", r.scales, view.dims[0])}
		}
		o.in = append(append([]region.ValueID{o.in[0], r.values[0]}, o.in[2:]...), r.values[1])
	}
	return nil
}

// channelsOf is how an operation sees its weight: the output channels first.
func (l *lowering) channelsOf(o *operation) strides {
	if o.kind != "matmul" {
		return strides{o.weightDims, o.weightStrides, o.weightOffset}
	}
	shape := l.types[o.in[1]].Shape
	if o.transposeB {
		return strides{shape, []int64{shape[1], 1}, 0}
	}
	return strides{[]int64{shape[1], shape[0]}, []int64{1, shape[1]}, 0}
}

// constant adds a constant of the program's own.
func (l *lowering) constant(dtype string, data []byte, shape ...int64) region.ValueID {
	v := l.value(dtype, shape...)
	l.made[v] = data
	return v
}

// roundedChannels rounds a plain tensor of float32 so that each of its channels, of which the view tells, reaches from
// -127 to 127: value = byte * scale. Elements outside of the view are 0. finite says that all within it are finite.
func roundedChannels(elements []byte, view strides) (rounded, scales []byte, finite bool, err error) {
	count := int64(len(elements) / 4)
	last := view.offset
	for i, n := range view.dims {
		last += (n - 1) * view.steps[i]
	}
	if len(view.dims) == 0 || last >= count || view.offset < 0 {
		return nil, nil, false, fmt.Errorf("a weight of %d elements is seen as %v by steps of %v from %d on", count,
			view.dims, view.steps, view.offset)
	}
	at := func(i int64) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(elements[4*i:])) }
	rounded, scales = make([]byte, count), make([]byte, 4*view.dims[0])
	for channel := range view.dims[0] {
		most := float32(0)
		places := view.of(channel)
		for i := range places {
			x := at(i)
			if x != x || math.IsInf(float64(x), 0) {
				return nil, nil, false, nil
			}
			most = max(most, x, -x)
		}
		scale := most / 127
		if scale < 0x1p-126 {
			continue // denormal, as good as 0
		}
		binary.LittleEndian.PutUint32(scales[4*channel:], math.Float32bits(scale))
		for i := range places {
			byte8 := math.Round(float64(at(i) / scale))
			rounded[i] = byte(int8(max(-127, min(127, byte8))))
		}
	}
	return rounded, scales, true, nil
}

// of gives where the elements of a channel are, the first of the view's dimensions.
func (s strides) of(channel int64) func(func(int64) bool) {
	return func(yield func(int64) bool) {
		at := make([]int64, len(s.dims))
		for place := s.offset + channel*s.steps[0]; ; {
			if !yield(place) {
				return
			}
			i := len(s.dims) - 1
			for ; i > 0; i-- {
				place += s.steps[i]
				if at[i]++; at[i] < s.dims[i] {
					break
				}
				place -= s.dims[i] * s.steps[i]
				at[i] = 0
			}
			if i == 0 {
				return
			}
		}
	}
}
