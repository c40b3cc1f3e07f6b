// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/byoc/region"
)

// What a result of a recurrent operation is, where it is not the state at one time (byoc/runtime/dnnl_program.h).
const (
	allTimes int64 = -2
	cells    int64 = -1
)

// recurrentLayer lowers a layer whose steps the region has one by one as an operation for each direction.
//
// groups are those of its operators.
func (l *lowering) recurrentLayer(layer *recurrent.Layer, groups []int) {
	first := &layer.Chains[0]
	steps, batch, hidden := int64(layer.Steps()), first.Batch, first.Hidden
	x := layer.X
	if x == recurrent.None {
		x = layer.Xs[0]
		if len(layer.Xs) > 1 {
			x = l.value("float32", steps*batch, first.Input)
			l.add(&operation{kind: "concat", axes: []int64{0}, in: slices.Clone(layer.Xs), out: x})
		}
		x = l.reshaped(x, l.value("float32", steps, batch, first.Input))
	}
	// The states of all times of each chain, where they are wanted.
	sequences := map[int]region.ValueID{}
	sequence := func(chain int) region.ValueID {
		if _, ok := sequences[chain]; !ok {
			sequences[chain] = l.value("float32", steps, batch, hidden)
		}
		return sequences[chain]
	}
	for _, o := range layer.Outputs {
		if _, taken := sequences[o.Chain]; o.What == recurrent.Sequence && !taken {
			sequences[o.Chain] = o.Value
		}
	}
	for _, o := range layer.Outputs {
		if o.What == recurrent.Pairs || o.What == recurrent.Joined {
			sequence(o.Chain)
			sequence(o.Second)
		}
	}
	for i := range layer.Chains {
		o := l.chain(&layer.Chains[i], x)
		var made []region.ValueID
		note := func(v region.ValueID, time int64) {
			made, o.times = append(made, v), append(o.times, time)
		}
		if v, ok := sequences[i]; ok {
			note(v, allTimes)
		}
		for _, out := range layer.Outputs {
			switch {
			case out.Chain != i:
			case out.What == recurrent.Hidden:
				note(out.Value, int64(out.Time))
			case out.What == recurrent.Cell:
				note(out.Value, cells)
			}
		}
		if len(made) == 0 {
			continue
		}
		o.out = made[0]
		if len(made) > 1 {
			o.more = made[1:]
		}
		l.add(o)
		o.of = groups
	}
	for _, o := range layer.Outputs {
		switch o.What {
		case recurrent.Sequence:
			if v := sequences[o.Chain]; v != o.Value {
				l.reshaped(v, o.Value)
			}
		case recurrent.Pairs:
			var both []region.ValueID
			for _, chain := range []int{o.Chain, o.Second} {
				both = append(both, l.reshaped(sequences[chain], l.value("float32", steps, 1, batch, hidden)))
			}
			l.add(&operation{kind: "concat", axes: []int64{1}, in: both, out: o.Value})
		case recurrent.Joined:
			both := []region.ValueID{sequences[o.Chain], sequences[o.Second]}
			l.add(&operation{kind: "concat", axes: []int64{2}, in: both, out: o.Value})
		}
	}
}

// reshaped gives the elements of a value the shape of another, which it makes.
func (l *lowering) reshaped(from, to region.ValueID) region.ValueID {
	l.add(&operation{kind: "reshape", in: []region.ValueID{from}, out: to})
	return to
}

// chain is the operation of one direction, without its results.
func (l *lowering) chain(c *recurrent.Chain, x region.ValueID) *operation {
	o := &operation{
		kind: "recurrent", kernel: native.RecurrentKernel, in: []region.ValueID{x}, backward: c.Backward,
	}
	switch {
	case c.Kind == recurrent.LSTM:
		o.algorithm = "lstm"
	case c.Kind == recurrent.GRU && c.ResetAfter:
		o.algorithm = "gru_after"
	case c.Kind == recurrent.GRU:
		o.algorithm = "gru"
	default:
		o.algorithm = c.Activation
	}
	argument := func(v region.ValueID) bool {
		if v == recurrent.None {
			o.parts = append(o.parts, -1)
			return false
		}
		place := slices.Index(o.in, v)
		if place < 1 { // the sequence is no part
			place = len(o.in)
			o.in = append(o.in, v)
		}
		o.parts = append(o.parts, int64(place))
		return true
	}
	argument(c.H0)
	argument(c.C0)
	for _, parts := range [][]recurrent.Part{c.W, c.R, c.WB, c.RB} {
		for gate := range c.Kind.Gates() {
			part := recurrent.Part{Value: recurrent.None}
			if len(parts) > 0 {
				part = parts[gate]
			}
			if argument(part.Value) {
				o.views = append(o.views, l.partOf(part))
			}
		}
	}
	return o
}

// partOf is how a part of a constant is seen: rows of a matrix, or numbers of a vector.
func (l *lowering) partOf(part recurrent.Part) strides {
	rows := part.Rows[1] - part.Rows[0]
	if part.Columns == [2]int64{} {
		return strides{dims: []int64{rows}, steps: []int64{1}, offset: part.Rows[0]}
	}
	shape := l.types[part.Value].Shape
	width := shape[len(shape)-1]
	return strides{
		dims: []int64{rows, part.Columns[1] - part.Columns[0]}, steps: []int64{width, 1},
		offset: part.Rows[0]*width + part.Columns[0],
	}
}
