// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// packed is a value that may have the rows of tokens alone.
type packed struct {
	// axes is how many of its axes, the first ones, are its rows: as it stands, one for each place of each sequence.
	axes int
	// turned says that these rows go place by place, as PyTorch's attention has them, and not sequence by sequence.
	turned bool
}

// packing is which operations of a region on padded batches of sequences may do without the padding: those that work
// row by row, and attention under a mask of padding, if nobody sees their padding.
type packing struct {
	l     *lowering
	valid region.ValueID
	// rows is batch times length.
	batch, length, rows int64
	ops                 map[*operation]byRow
	// wanted has for each value how its rows go as those see them who read rows of tokens (packed.turned), each time.
	wanted map[region.ValueID][]bool
}

// row is a value of which an operation reads rows.
type row struct {
	value  region.ValueID
	turned bool
}

// byRow is what an operation that works row by row reads rows of, and how those of its results go.
type byRow struct {
	turned bool
	rows   []row
}

// pack finds what the runtime may compute for tokens alone where a region ends in native.RaggedKernel, has the tokens
// gathered before it, and notes the values that then have rows of tokens (byoc/runtime/dnnl_ragged.h). It changes
// nothing of what is computed. It runs last, as it follows what others have joined.
func (l *lowering) pack() {
	p := &packing{l: l, valid: noValue, ops: map[*operation]byRow{}, wanted: map[region.ValueID][]bool{}}
	for _, o := range l.ops {
		if o.kind == "clear_padding" && slices.Contains(l.p.Inputs, o.in[1]) {
			p.valid = o.in[1]
			break
		}
	}
	if p.valid == noValue {
		return
	}
	shape := l.types[p.valid].Shape
	p.batch, p.length, p.rows = shape[0], shape[1], shape[0]*shape[1]
	// Whether nobody sees the padding of a result is known when all that stands behind it is.
	gains := false
	for _, o := range slices.Backward(l.ops) {
		if o.kind == "clear_padding" {
			if o.in[1] == p.valid && p.axes(o.in[0]) > 0 {
				p.wanted[o.in[0]] = append(p.wanted[o.in[0]], false)
			}
			continue
		}
		turned, ok := p.unseen(o)
		if !ok {
			continue
		}
		rows, ok := p.rowByRow(o, turned)
		if !ok {
			continue
		}
		p.ops[o] = byRow{turned, rows}
		// Tokens are moved for what gains by it, which is no function of single numbers.
		gains = gains || o.kind == "matmul" || o.kind == "attention"
		for _, r := range rows {
			p.wanted[r.value] = append(p.wanted[r.value], r.turned)
		}
	}
	if gains {
		p.gather()
	}
}

// axes is how many of a value's axes, the first ones, are its rows; 0 where it has not a row for each token.
func (p *packing) axes(v region.ValueID) int {
	count := int64(1)
	for i, d := range p.l.types[v].Shape {
		if count *= d; count == p.rows {
			return i + 1
		}
	}
	return 0
}

// outs are all results of an operation.
func (o *operation) outs() []region.ValueID { return append([]region.ValueID{o.out}, o.more...) }

// unseen says that those who read an operation's results read rows of tokens alone, and how these go.
func (p *packing) unseen(o *operation) (turned, ok bool) {
	var all []bool
	for _, v := range o.outs() {
		if slices.Contains(p.l.p.Outputs, v) {
			return false, false
		}
		times := len(p.wanted[v])
		for _, reader := range p.l.ops {
			times -= reader.reads(v)
		}
		if times != 0 {
			return false, false
		}
		all = append(all, p.wanted[v]...)
	}
	if len(all) == 0 || slices.Contains(all, !all[0]) {
		return false, false
	}
	return all[0], true
}

// rowByRow says that each row of an operation's results follows from those rows of the values that it gives, of other
// values that have no rows, and, in attention, of all tokens of the row's sequence. turned is how the results' rows go.
func (p *packing) rowByRow(o *operation, turned bool) (rows []row, ok bool) {
	n := p.axes(o.out)
	if n == 0 || native.OnStrips(o.kernel) || slices.ContainsFunc(o.more, func(v region.ValueID) bool {
		return p.axes(v) == 0
	}) {
		return nil, false
	}
	within := func(axes []int64) bool { return !slices.ContainsFunc(axes, func(a int64) bool { return a < int64(n) }) }
	data, from := o.in[:1], turned
	switch o.kind {
	case "matmul":
		if o.transposeA || p.axes(o.in[0]) != n || n == len(p.l.types[o.in[0]].Shape) || !p.sameRanks(o) ||
			slices.ContainsFunc(o.in[1:], func(v region.ValueID) bool { return !p.isWeight(v) }) {
			return nil, false
		}
	case "eltwise", "reshape":
	case "binary":
		data = o.in
	case "layer_norm", "rms_norm", "standardise":
		if n == len(p.l.types[o.out].Shape) || !within(o.axes) {
			return nil, false
		}
		data = o.in
	case "softmax", "concat":
		if !within(o.axes) {
			return nil, false
		}
		data = o.in
	case "transpose":
		if p.turns(o, n) {
			from = !turned
			break
		}
		for i, axis := range o.perm[:n] {
			if axis != int64(i) {
				return nil, false
			}
		}
	case "attention":
		return p.bySequence(o, turned)
	default:
		return nil, false
	}
	for _, v := range data {
		switch has, fits := p.readsRows(o, n, v); {
		case !fits:
			return nil, false
		case has:
			rows = append(rows, row{v, from})
		}
	}
	for _, v := range o.operands() {
		switch has, fits := p.readsRows(o, n, v); {
		case !fits:
			return nil, false
		case has:
			rows = append(rows, row{v, turned})
		}
	}
	return rows, true
}

// turns says that a transpose exchanges sequences and places, and nothing else: the same tokens.
func (p *packing) turns(o *operation, n int) bool {
	if n != 2 || p.axes(o.in[0]) != 2 || o.perm[0] != 1 || o.perm[1] != 0 {
		return false
	}
	for i, axis := range o.perm[2:] {
		if axis != int64(i+2) {
			return false
		}
	}
	return true
}

// sameRanks says that a product's results are of the rank of its left side.
func (p *packing) sameRanks(o *operation) bool {
	return !slices.ContainsFunc(o.outs(), func(v region.ValueID) bool {
		return len(p.l.types[v].Shape) != len(p.l.types[o.in[0]].Shape)
	})
}

// isWeight says that a value is a constant that is one matrix, or less, for all rows.
func (p *packing) isWeight(v region.ValueID) bool {
	shape := p.l.types[v].Shape
	return p.l.isConstant(v) && relay.Elements(shape[:max(0, len(shape)-2)]) == 1
}

// readsRows says whether an operation, whose result has its rows in n axes, reads those of a value, and whether it is
// known how it reads the value: rows are read where the result has them, and what has no rows is broadcast to all.
func (p *packing) readsRows(o *operation, n int, v region.ValueID) (has, fits bool) {
	shape, out := p.l.types[v].Shape, p.l.types[o.out].Shape
	switch {
	case o.kind == "reshape":
		return true, p.axes(v) > 0
	case o.kind == "transpose":
		return true, p.axes(v) == n
	case (o.kind == "matmul" || o.kind == "concat") && slices.Contains(o.in, v):
		return true, p.axes(v) == n
	case len(shape) == len(out) && slices.Equal(shape[:n], out[:n]):
		return true, true
	}
	// Numpy's rules: shapes are held against each other from behind.
	for i, d := range shape {
		if at := i + len(out) - len(shape); at < n && d != 1 {
			return false, false
		}
	}
	return false, true
}

// bySequence says that an attention sees query, key and value row by row, and that of what it sees a mask may hide
// padding: whether it does is looked at when it runs.
func (p *packing) bySequence(o *operation, turned bool) (rows []row, ok bool) {
	hides := false
	for i, mask := range o.attention.Masks {
		if !mask.Triangle {
			hides = true
		} else if mask.Sees != 1 || o.views[4+i].steps[0] != 0 {
			return nil, false
		}
	}
	if !hides || len(o.post) > 0 {
		return nil, false
	}
	for i, v := range []region.ValueID{o.in[0], o.in[1], o.in[2], o.out} {
		turns, ok := p.order(o.views[i], v)
		if !ok || i == 3 && turns != turned && p.batch > 1 && p.length > 1 {
			return nil, false
		}
		if i < 3 {
			rows = append(rows, row{v, turns})
		}
	}
	return rows, true
}

// order says how attention sees a value's rows: each within a row of the value, which go sequence by sequence, or place
// by place.
func (p *packing) order(view strides, v region.ValueID) (turned, ok bool) {
	width := relay.Elements(p.l.types[v].Shape) / p.rows
	last := view.offset
	for _, axis := range []int{1, 2, 4} {
		last += (view.dims[axis] - 1) * view.steps[axis]
	}
	if p.axes(v) == 0 || view.dims[0] != p.batch || view.dims[3] != p.length || last >= width {
		return false, false
	}
	goes := func(sequence, place int64) bool {
		return (p.batch == 1 || view.steps[0] == sequence) && (p.length == 1 || view.steps[3] == place)
	}
	if goes(width*p.length, width) {
		return false, true
	}
	return true, goes(width, width*p.batch)
}

// gather puts operations before those that may be packed which gather the tokens of values that are not.
func (p *packing) gather() {
	l := p.l
	l.packed, l.tokensOf = map[region.ValueID]packed{}, p.valid
	for o, by := range p.ops {
		for _, v := range o.outs() {
			l.packed[v] = packed{p.axes(v), by.turned}
		}
	}
	gathered := map[row]region.ValueID{}
	var ops []*operation
	for _, o := range l.ops {
		for _, r := range p.ops[o].rows {
			if l.packed[r.value].axes > 0 {
				continue
			}
			to, there := gathered[r]
			if !there {
				to = l.value(l.types[r.value].DType, l.types[r.value].Shape...)
				gathered[r] = to
				ops = append(ops, &operation{kind: "gather_tokens", kernel: native.RaggedKernel,
					in: []region.ValueID{r.value}, out: to, of: o.of})
				l.packed[to] = packed{p.axes(r.value), r.turned}
			}
			o.readInstead(r.value, to)
		}
		ops = append(ops, o)
	}
	l.ops = ops
}

// readInstead has an operation read another value.
func (o *operation) readInstead(v, other region.ValueID) {
	for i := range o.in {
		if o.in[i] == v {
			o.in[i] = other
		}
	}
	for i := range o.post {
		if o.post[i].operand == v {
			o.post[i].operand = other
		}
	}
}
