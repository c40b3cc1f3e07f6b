// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/byoc/rounding"
)

// roundWeights gives the operations that multiply bytes, by native's kernel or oneDNN's, their weights as bytes, in
// the same order, and behind their other arguments the scale of each output channel: so they stand in the artefact, a
// quarter as large. An operation whose weights are not all finite is left to oneDNN, in float32. data gives the
// elements of a constant (region.Program.ConstantBytes).
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
		if !o.multipliesBytes() {
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
		working.Go(func() {
			r.bytes, r.scales, r.finite, r.err = rounding.Channels(elements, rounding.View{Dims: view.dims, Steps: view.steps,
				Offset: view.offset})
		})
	}
	working.Wait()
	for _, o := range l.ops {
		if !o.multipliesBytes() {
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

// channelsOf is how an operation sees its weight: the output channels first, those of all groups as one axis, since
// they follow one another.
func (l *lowering) channelsOf(o *operation) strides {
	if o.kind != "matmul" {
		dims, steps := o.weightDims, o.weightStrides
		if len(dims) > l.types[o.in[0]].Rank() {
			dims, steps = slices.Clone(dims[1:]), steps[1:]
			dims[0] *= o.weightDims[0]
		}
		return strides{dims, steps, o.weightOffset}
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
