// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// gateOrder are OpenVINO's gates as those of recurrent: f i c o, z r h.
var gateOrder = map[recurrent.Kind][]int{
	recurrent.LSTM: {recurrent.LSTMForget, recurrent.LSTMInput, recurrent.LSTMCell, recurrent.LSTMOutput},
	recurrent.GRU:  {recurrent.GRUUpdate, recurrent.GRUReset, recurrent.GRUNew},
	recurrent.RNN:  {0},
}

// sequence is what one layer of OpenVINO gives: the states of all times [T, directions, batch, hidden], and the last
// ones [batch, directions, hidden].
type sequence struct {
	all, last, cell port
	chains          []int
}

// recurrentWriter writes one recurrent layer that the region has step by step.
type recurrentWriter struct {
	*writer
	l     *recurrent.Layer
	ports []port
	done  []sequence
	// name begins the layer that does the work: it names all groups; short is for what goes with it.
	name, short string
}

// recurrent writes a layer as LSTMSequence, GRUSequence or RNNSequence, and sets the ports of what others read of it.
func (w *writer) recurrent(l *recurrent.Layer, ports []port, group []int) {
	r := &recurrentWriter{writer: w, l: l, ports: ports}
	kind := strings.ToLower(l.Chains[0].Kind.String()) + "_"
	long, short := l.Prefixes(group)
	r.name, r.short = long+kind, short+kind
	w.prefix = r.short
	x := r.input()
	for _, chains := range l.Operators() {
		r.done = append(r.done, r.operator(chains, x))
	}
	for _, o := range l.Outputs {
		ports[o.Value] = r.output(o)
	}
}

// input is the sequence as [batch, T, input].
func (r *recurrentWriter) input() port {
	c, steps := &r.l.Chains[0], int64(r.l.Steps())
	var x port
	if r.l.X != recurrent.None {
		x = r.ports[r.l.X]
	} else {
		var slices []port
		for _, v := range r.l.Xs {
			slices = append(slices, r.ports[v])
		}
		x = r.reshape(r.joined(0, slices...), steps, c.Batch, c.Input)
	}
	return r.transposed(x, 1, 0, 2)
}

func (r *recurrentWriter) transposed(p port, order ...int64) port {
	shape := make([]int64, len(order))
	for i, axis := range order {
		shape[i] = p.typ.Shape[axis]
	}
	return r.one("Transpose", "opset1", tensor(p.typ.DType, shape...), nil, p, r.ints(order...))
}

// joined joins tensors along an axis.
func (r *recurrentWriter) joined(axis int, of ...port) port {
	if len(of) == 1 {
		return of[0]
	}
	shape := slices.Clone(of[0].typ.Shape)
	for _, p := range of[1:] {
		shape[axis] += p.typ.Shape[axis]
	}
	return r.one("Concat", "opset1", tensor(of[0].typ.DType, shape...), []xml.Attr{attrInts("axis", int64(axis))}, of...)
}

// cut takes from begin to before end of one axis.
func (r *recurrentWriter) cut(p port, axis int, begin, end int64) port {
	if begin == 0 && end == p.typ.Shape[axis] {
		return p
	}
	shape := slices.Clone(p.typ.Shape)
	shape[axis] = end - begin
	return r.one("Slice", "opset8", tensor(p.typ.DType, shape...), nil, p, r.ints(begin), r.ints(end), r.ints(1),
		r.ints(int64(axis)))
}

// parts joins blocks of constants along their rows, in the order of gates; OpenVINO does it when it compiles the model.
func (r *recurrentWriter) parts(parts []recurrent.Part, gates []int, hidden int64) port {
	var blocks []port
	for _, g := range gates {
		if len(parts) == 0 || parts[g].Value == recurrent.None {
			blocks = append(blocks, r.number(tensor("float32", hidden), 0))
			continue
		}
		part := parts[g]
		p := r.ports[part.Value]
		if part.Columns == [2]int64{} {
			length, _ := p.typ.NumElements()
			p = r.reshape(p, length)
		} else {
			p = r.cut(p, 1, part.Columns[0], part.Columns[1])
		}
		blocks = append(blocks, r.cut(p, 0, part.Rows[0], part.Rows[1]))
	}
	return r.joined(0, blocks...)
}

// biases are those of one direction: sums, but for the new gate of a GRU that resets after the product, which has both.
func (r *recurrentWriter) biases(c *recurrent.Chain) port {
	gates := gateOrder[c.Kind]
	length := int64(len(gates)) * c.Hidden
	read, state := r.parts(c.WB, gates, c.Hidden), r.parts(c.RB, gates, c.Hidden)
	sum := r.binary("Add", tensor("float32", length), read, state)
	if c.Kind != recurrent.GRU || !c.ResetAfter {
		return sum
	}
	return r.joined(0, r.cut(sum, 0, 0, 2*c.Hidden), r.cut(read, 0, 2*c.Hidden, length),
		r.cut(state, 0, 2*c.Hidden, length))
}

// operator writes one of OpenVINO's layers, for one direction or both.
func (r *recurrentWriter) operator(chains []int, x port) sequence {
	c := &r.l.Chains[chains[0]]
	directions, steps, gates := int64(len(chains)), int64(r.l.Steps()), gateOrder[c.Kind]
	lift := func(p port) port { return r.reshape(p, append([]int64{1}, p.typ.Shape...)...) }
	state := func(v region.ValueID) port {
		if v == recurrent.None {
			return r.number(tensor("float32", c.Batch, 1, c.Hidden), 0)
		}
		return r.reshape(r.ports[v], c.Batch, 1, c.Hidden)
	}
	var weights, products, biases, before, cells []port
	for _, k := range chains {
		c := &r.l.Chains[k]
		weights = append(weights, lift(r.parts(c.W, gates, c.Hidden)))
		products = append(products, lift(r.parts(c.R, gates, c.Hidden)))
		biases = append(biases, lift(r.biases(c)))
		before = append(before, state(c.H0))
		if c.Kind == recurrent.LSTM {
			cells = append(cells, state(c.C0))
		}
	}
	attrs := []xml.Attr{attr("hidden_size", strconv.FormatInt(c.Hidden, 10)), attr("direction", r.l.Direction(chains))}
	states := tensor("float32", c.Batch, directions, c.Hidden)
	in, out := []port{x, r.joined(1, before...)}, []*relay.Type{tensor("float32", c.Batch, directions, steps, c.Hidden),
		states}
	switch c.Kind {
	case recurrent.LSTM:
		in, out = append(in, r.joined(1, cells...)), append(out, states)
		attrs = append(attrs, attr("activations", "sigmoid,tanh,tanh"))
	case recurrent.GRU:
		attrs = append(attrs, attr("activations", "sigmoid,tanh"), attrBool("linear_before_reset", c.ResetAfter))
	case recurrent.RNN:
		attrs = append(attrs, attr("activations", c.Activation))
	}
	lengths := r.number(tensor("int32", c.Batch), float64(steps))
	in = append(in, lengths, r.joined(0, weights...), r.joined(0, products...), r.joined(0, biases...))
	r.prefix = r.name
	results := r.layer(c.Kind.String()+"Sequence", "opset5", attrs, in, out...)
	r.prefix = r.short
	s := sequence{chains: chains, all: r.transposed(results[0], 2, 1, 0, 3), last: results[1]}
	if c.Kind == recurrent.LSTM {
		s.cell = results[2]
	}
	return s
}

// output is what others read of the layer.
func (r *recurrentWriter) output(o recurrent.Output) port {
	find := func(chain int) (sequence, int64) {
		for _, s := range r.done {
			if d := slices.Index(s.chains, chain); d >= 0 {
				return s, int64(d)
			}
		}
		panic("openvino: a chain that no layer does")
	}
	c, steps := &r.l.Chains[o.Chain], int64(r.l.Steps())
	s, d := find(o.Chain)
	both := func() port {
		second, e := find(o.Second)
		if len(s.chains) == 2 && second.all.layer == s.all.layer {
			return s.all
		}
		return r.joined(1, r.cut(s.all, 1, d, d+1), r.cut(second.all, 1, e, e+1))
	}
	switch o.What {
	case recurrent.Cell:
		return r.reshape(r.cut(s.cell, 1, d, d+1), c.Batch, c.Hidden)
	case recurrent.Hidden:
		if o.Time == c.Last() {
			return r.reshape(r.cut(s.last, 1, d, d+1), c.Batch, c.Hidden)
		}
		at := int64(o.Time)
		return r.reshape(r.cut(r.cut(s.all, 0, at, at+1), 1, d, d+1), c.Batch, c.Hidden)
	case recurrent.Sequence:
		return r.reshape(r.cut(s.all, 1, d, d+1), steps, c.Batch, c.Hidden)
	case recurrent.Joined:
		return r.reshape(r.transposed(both(), 0, 2, 1, 3), steps, c.Batch, 2*c.Hidden)
	default: // recurrent.Pairs
		return both()
	}
}
