// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/recurrent"
)

// gateOrder are ONNX's gates as those of recurrent: i o f c, z r h.
var gateOrder = map[recurrent.Kind][]int{
	recurrent.LSTM: {recurrent.LSTMInput, recurrent.LSTMOutput, recurrent.LSTMForget, recurrent.LSTMCell},
	recurrent.GRU:  {recurrent.GRUUpdate, recurrent.GRUReset, recurrent.GRUNew},
	recurrent.RNN:  {0},
}

// recurrentResult is what one operator gives: the states of all times [T, directions, batch, hidden], and the last ones
// [directions, batch, hidden]; "" for what nobody wants.
type recurrentResult struct {
	all, last, cell string
	chains          []int
}

// recurrentLayer writes a layer that the region has step by step as ONNX's LSTM, GRU or RNN.
func (w *writer) recurrentLayer(l *recurrent.Layer) {
	long, short := l.Prefixes(w.groups)
	w.prefix = long
	first := &l.Chains[0]
	x := ""
	if l.X != recurrent.None {
		x = w.name(l.X)
	} else {
		var steps []string
		for _, v := range l.Xs {
			steps = append(steps, w.name(v))
		}
		x = w.reshaped(w.value("Concat", steps, attribute{"axis", int64(0)}), int64(l.Steps()), first.Batch,
			first.Input)
	}
	var results []recurrentResult
	for _, chains := range l.Operators() {
		results = append(results, w.recurrentOperator(l, chains, x))
	}
	// What goes with the operator is small; its names are not to be as long.
	w.prefix = short
	for _, o := range l.Outputs {
		w.recurrentOutput(l, o, results)
	}
}

// recurrentOperator writes one operator, for one direction or both.
func (w *writer) recurrentOperator(l *recurrent.Layer, chains []int, x string) recurrentResult {
	c := &l.Chains[chains[0]]
	long, short := l.Prefixes(w.groups)
	w.prefix = short
	gates := gateOrder[c.Kind]
	one := func(name string) string { return w.value("Unsqueeze", []string{name, w.ints(0)}) }
	var weights, states, biases, before, cells []string
	for _, k := range chains {
		c := &l.Chains[k]
		weights = append(weights, one(w.parts(c.W, gates, c.Hidden)))
		states = append(states, one(w.parts(c.R, gates, c.Hidden)))
		bias := w.value("Concat", []string{w.parts(c.WB, gates, c.Hidden), w.parts(c.RB, gates, c.Hidden)},
			attribute{"axis", int64(0)})
		biases = append(biases, one(bias))
		if c.H0 == recurrent.None {
			before = append(before, w.filled("float32", []int64{1, c.Batch, c.Hidden}, 0))
		} else {
			before = append(before, w.reshaped(w.name(c.H0), 1, c.Batch, c.Hidden))
		}
		if c.C0 != recurrent.None {
			cells = append(cells, w.reshaped(w.name(c.C0), 1, c.Batch, c.Hidden))
		}
	}
	in := []string{x, w.stacked(weights), w.stacked(states), w.stacked(biases), "", w.stacked(before)}
	attributes := []attribute{{"hidden_size", c.Hidden}, {"direction", l.Direction(chains)}}
	switch c.Kind {
	case recurrent.LSTM:
		in = append(in, w.stacked(cells))
	case recurrent.GRU:
		attributes = append(attributes, attribute{"linear_before_reset", bit(c.ResetAfter)})
	case recurrent.RNN:
		name := map[string]string{"tanh": "Tanh", "relu": "Relu"}[c.Activation]
		attributes = append(attributes, attribute{"activations", slices.Repeat([]string{name}, len(chains))})
	}
	w.prefix = long
	r := recurrentResult{chains: chains}
	out := make([]string, 3)
	for _, o := range l.Outputs {
		switch mine := slices.Contains(chains, o.Chain); {
		case o.What == recurrent.Cell && mine:
			out[2] = w.freshName()
		case o.What == recurrent.Hidden && mine && o.Time == l.Chains[o.Chain].Last():
			out[1] = w.freshName()
		case o.What != recurrent.Cell && (mine || o.What != recurrent.Sequence && o.What != recurrent.Hidden):
			out[0] = w.freshName()
		}
	}
	r.all, r.last, r.cell = out[0], out[1], out[2]
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	w.emit(c.Kind.String(), in, out, attributes...)
	return r
}

// recurrentOutput writes what others read of a layer.
func (w *writer) recurrentOutput(l *recurrent.Layer, o recurrent.Output, results []recurrentResult) {
	find := func(chain int) (recurrentResult, int) {
		for _, r := range results {
			if d := slices.Index(r.chains, chain); d >= 0 {
				return r, d
			}
		}
		panic("onnxruntime: a chain that no operator does")
	}
	c := &l.Chains[o.Chain]
	steps := int64(l.Steps())
	r, d := find(o.Chain)
	name := w.name(o.Value)
	// part takes one place of an axis.
	part := func(of string, axis, at, extent int64) string {
		if extent == 1 {
			return of
		}
		return w.value("Slice", []string{of, w.ints(at), w.ints(at + 1), w.ints(axis)})
	}
	both := func() string {
		if second, e := find(o.Second); second.all != r.all || d != 0 || e != 1 {
			return w.value("Concat", []string{part(r.all, 1, int64(d), int64(len(r.chains))),
				part(second.all, 1, int64(e), int64(len(second.chains)))}, attribute{"axis", int64(1)})
		}
		return r.all
	}
	reshape := func(of string, shape ...int64) { w.emit("Reshape", []string{of, w.ints(shape...)}, []string{name}) }
	switch o.What {
	case recurrent.Cell:
		reshape(part(r.cell, 0, int64(d), int64(len(r.chains))), c.Batch, c.Hidden)
	case recurrent.Hidden:
		if o.Time == c.Last() {
			reshape(part(r.last, 0, int64(d), int64(len(r.chains))), c.Batch, c.Hidden)
			return
		}
		at := part(r.all, 0, int64(o.Time), steps)
		reshape(part(at, 1, int64(d), int64(len(r.chains))), c.Batch, c.Hidden)
	case recurrent.Sequence:
		reshape(part(r.all, 1, int64(d), int64(len(r.chains))), steps, c.Batch, c.Hidden)
	case recurrent.Pairs:
		w.emit("Identity", []string{both()}, []string{name})
	case recurrent.Joined:
		turned := w.value("Transpose", []string{both()}, attribute{"perm", []int64{0, 2, 1, 3}})
		reshape(turned, steps, c.Batch, 2*c.Hidden)
	}
}

// freshName is one that no tensor has.
func (w *writer) freshName() string {
	w.fresh++
	prefix := w.prefix
	if end := strings.IndexByte(prefix, '/'); end >= 0 {
		prefix = prefix[:end+1]
	}
	return fmt.Sprintf("%st%d", prefix, w.fresh)
}

// stacked joins tensors along their first dimension.
func (w *writer) stacked(of []string) string {
	if len(of) == 1 {
		return of[0]
	}
	return w.value("Concat", of, attribute{"axis", int64(0)})
}

// parts joins blocks of constants along their rows, in the order of gates; ONNX Runtime does it once, when it opens the
// model. No parts stand for a bias of zeros.
func (w *writer) parts(parts []recurrent.Part, gates []int, hidden int64) string {
	var blocks []string
	for _, g := range gates {
		if len(parts) == 0 || parts[g].Value == recurrent.None {
			blocks = append(blocks, w.filled("float32", []int64{hidden}, 0))
			continue
		}
		p := parts[g]
		shape := w.p.Values[p.Value].Type.Shape
		name := w.name(p.Value)
		if p.Columns == [2]int64{} {
			if len(shape) == 2 {
				name = w.reshaped(name, shape[1])
			}
			blocks = append(blocks, w.value("Slice", []string{name, w.ints(p.Rows[0]), w.ints(p.Rows[1]), w.ints(0)}))
			continue
		}
		blocks = append(blocks, w.value("Slice", []string{name, w.ints(p.Rows[0], p.Columns[0]),
			w.ints(p.Rows[1], p.Columns[1]), w.ints(0, 1)}))
	}
	return w.stacked(blocks)
}
