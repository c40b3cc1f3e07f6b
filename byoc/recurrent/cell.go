// SPDX-License-Identifier: Apache-2.0

package recurrent

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// cell is one step with its weights.
type cell struct {
	Chain        // its Steps and states are empty
	x            region.ValueID
	hPrev, cPrev region.ValueID
	h, c         region.ValueID
	// folded says that products with the state before were constants: those of zeros.
	folded bool
}

// matcher looks for cells in a program.
type matcher struct {
	p *region.Program
	// ops are those that were gone through on the way to a cell.
	ops []int
	// zeros are the constants that were looked at, and whether they hold nothing but zeros.
	zeros map[region.ValueID]bool
}

// made is the operator that makes a value, where it has that name; which is the value's place among its results.
func (m *matcher) made(v region.ValueID, name string) (op *region.Op, which int, ok bool) {
	i := m.p.Values[v].Producer
	if i < 0 || m.p.Ops[i].Name != name {
		return nil, 0, false
	}
	op = &m.p.Ops[i]
	m.ops = append(m.ops, i)
	return op, slices.Index(op.Results, v), true
}

// is says that a value is float32 and of a shape.
func (m *matcher) is(v region.ValueID, shape ...int64) bool {
	t := m.p.Values[v].Type
	return t.DType == "float32" && slices.Equal(t.Shape, shape)
}

// matrix gives the shape of a float32 matrix.
func (m *matcher) matrix(v region.ValueID) (rows, columns int64, ok bool) {
	t := m.p.Values[v].Type
	if t.DType != "float32" || len(t.Shape) != 2 {
		return 0, 0, false
	}
	return t.Shape[0], t.Shape[1], true
}

// attempt tries a match; what a failed one went through is forgotten.
func (m *matcher) attempt(try func() bool) bool {
	n := len(m.ops)
	if try() {
		return true
	}
	m.ops = m.ops[:n]
	return false
}

// either tries a match with the two arguments of an operator that does not care for their order.
func (m *matcher) either(op *region.Op, try func(a, b region.ValueID) bool) bool {
	if len(op.Args) != 2 {
		return false
	}
	a, b := op.Args[0], op.Args[1]
	return m.attempt(func() bool { return try(a, b) }) || m.attempt(func() bool { return try(b, a) })
}

// unary is the argument of an operator of one.
func (m *matcher) unary(v region.ValueID, name string) (region.ValueID, bool) {
	op, _, ok := m.made(v, name)
	if !ok || len(op.Args) != 1 {
		return None, false
	}
	return op.Args[0], true
}

// field says which part of a split along the last axis a value of shape [batch, hidden] is; of is what is split.
func (m *matcher) field(v region.ValueID, parts int) (of region.ValueID, which int, ok bool) {
	op, which, ok := m.made(v, "split")
	if !ok || len(op.Results) != parts {
		return None, 0, false
	}
	axis, _ := op.Attrs.Int("axis")
	batch, columns, isMatrix := m.matrix(op.Args[0])
	if !isMatrix || axis != -1 && axis != 1 || columns%int64(parts) != 0 || !m.is(v, batch, columns/int64(parts)) {
		return None, 0, false
	}
	return op.Args[0], which, true
}

// dense is a product with constant weights.
func (m *matcher) dense(v region.ValueID) (data, weight region.ValueID, ok bool) {
	op, _, ok := m.made(v, "nn.dense")
	if !ok || len(op.Args) != 2 || !m.p.IsConstant(op.Args[1]) {
		return None, None, false
	}
	for _, each := range []region.ValueID{v, op.Args[0], op.Args[1]} {
		if _, _, isMatrix := m.matrix(each); !isMatrix {
			return None, None, false
		}
	}
	return op.Args[0], op.Args[1], true
}

// bias takes off one constant of so many numbers that is added; None where there is none.
func (m *matcher) bias(v region.ValueID, length int64) (of, bias region.ValueID) {
	of, bias = v, None
	m.attempt(func() bool {
		op, _, ok := m.made(v, "add")
		return ok && m.either(op, func(a, b region.ValueID) bool {
			if !m.p.IsConstant(b) || !m.is(b, length) && !m.is(b, 1, length) || m.p.Values[a].Producer < 0 {
				return false
			}
			of, bias = a, b
			return true
		})
	})
	return of, bias
}

// rows is a block of rows of a constant matrix, all columns.
func (m *matcher) rows(v region.ValueID, gate int, hidden int64) Part {
	part := m.numbers(v, gate, hidden)
	part.Columns = [2]int64{0, m.p.Values[v].Type.Shape[1]}
	return part
}

// numbers is a gate's share of a bias; None stands for one of zeros.
func (m *matcher) numbers(v region.ValueID, gate int, hidden int64) Part {
	if v == None {
		return Part{Value: None}
	}
	return Part{Value: v, Rows: [2]int64{int64(gate) * hidden, int64(gate+1) * hidden}}
}

// isZero says that a constant holds nothing but zeros.
func (m *matcher) isZero(v region.ValueID) bool {
	if known, ok := m.zeros[v]; ok {
		return known
	}
	data, err := m.bytes(v)
	zero := err == nil
	for _, b := range data {
		zero = zero && b == 0
	}
	m.zeros[v] = zero
	return zero
}

func (m *matcher) bytes(v region.ValueID) ([]byte, error) { return m.p.ConstantBytes(v) }

// repeats says that each row of a constant [batch, hidden] is that part of a bias; where there is none, zeros.
func (m *matcher) repeats(v region.ValueID, bias Part) bool {
	if bias.Value == None {
		return m.isZero(v)
	}
	rows, err := m.bytes(v)
	whole, errBias := m.bytes(bias.Value)
	if err != nil || errBias != nil || int64(len(whole)) < 4*bias.Rows[1] {
		return false
	}
	row := whole[4*bias.Rows[0] : 4*bias.Rows[1]]
	if len(row) == 0 || len(rows)%len(row) != 0 {
		return false
	}
	for len(rows) > 0 {
		if !slices.Equal(rows[:len(row)], row) {
			return false
		}
		rows = rows[len(row):]
	}
	return true
}

// cellAt is the step whose state an operator makes; nil where it makes none.
func (m *matcher) cellAt(i int) *cell {
	op := &m.p.Ops[i]
	var match func(h region.ValueID) *cell
	switch op.Name {
	case "multiply":
		match = m.lstm
	case "add":
		match = m.gru
	case "tanh", "nn.relu":
		match = m.rnn
	default:
		return nil
	}
	h := op.Results[0]
	batch, hidden, ok := m.matrix(h)
	if !ok {
		return nil
	}
	m.ops = m.ops[:0]
	c := match(h)
	if c == nil || !m.is(c.hPrev, batch, hidden) || c.cPrev != None && !m.is(c.cPrev, batch, hidden) {
		return nil
	}
	c.h, c.Batch, c.Hidden = h, batch, hidden
	_, c.Input, _ = m.matrix(c.x)
	slices.Sort(m.ops)
	c.ops = slices.Compact(slices.Clone(m.ops))
	return c
}

// lstm: gates i, f, c, o = split(concat(x, h) W^T + b); c' = f c + i g; h' = o tanh(c').
func (m *matcher) lstm(h region.ValueID) *cell {
	batch, hidden, _ := m.matrix(h)
	found := &cell{Chain: Chain{Kind: LSTM}}
	gates := None
	gate := func(v region.ValueID, activation string, want int) bool {
		in, ok := m.unary(v, activation)
		if !ok {
			return false
		}
		of, which, ok := m.field(in, 4)
		if !ok || which != want || gates != None && of != gates {
			return false
		}
		gates = of
		return true
	}
	product, _, _ := m.made(h, "multiply")
	if !m.either(product, func(o, t region.ValueID) bool {
		gates = None
		c, ok := m.unary(t, "tanh")
		if !ok || !gate(o, "sigmoid", LSTMOutput) || !m.is(c, batch, hidden) {
			return false
		}
		found.c = c
		sum, _, ok := m.made(c, "add")
		return ok && m.either(sum, func(kept, added region.ValueID) bool {
			old, _, ok := m.made(kept, "multiply")
			fresh, _, also := m.made(added, "multiply")
			return ok && also &&
				m.either(old, func(f, c region.ValueID) bool {
					found.cPrev = c
					return gate(f, "sigmoid", LSTMForget)
				}) &&
				m.either(fresh, func(i, g region.ValueID) bool {
					return gate(i, "sigmoid", LSTMInput) && gate(g, "tanh", LSTMCell)
				})
		})
	}) {
		return nil
	}
	// Biases are added one after the other: the last one is met first.
	inner, second := m.bias(gates, 4*hidden)
	inner, first := m.bias(inner, 4*hidden)
	data, weight, ok := m.dense(inner)
	if !ok {
		return nil
	}
	both, _, ok := m.made(data, "concatenate")
	if !ok || len(both.Args) != 2 {
		return nil
	}
	found.x, found.hPrev = both.Args[0], both.Args[1]
	rows, input, ok := m.matrix(found.x)
	if axis, _ := both.Attrs.Int("axis"); !ok || rows != batch || axis != 1 && axis != -1 ||
		!m.is(weight, 4*hidden, input+hidden) {
		return nil
	}
	for g := range LSTM.Gates() {
		block := m.rows(weight, g, hidden)
		w, r := block, block
		w.Columns, r.Columns = [2]int64{0, input}, [2]int64{input, input + hidden}
		found.W, found.R = append(found.W, w), append(found.R, r)
		found.WB, found.RB = append(found.WB, m.numbers(second, g, hidden)), append(found.RB, m.numbers(first, g, hidden))
	}
	return found
}

// gru: h' = (h - n) z + n, with reset, update and new gates.
func (m *matcher) gru(h region.ValueID) *cell {
	found := &cell{Chain: Chain{Kind: GRU}, c: None}
	found.C0, found.cPrev = None, None
	sum, _, _ := m.made(h, "add")
	var update, fresh region.ValueID
	if !m.either(sum, func(kept, n region.ValueID) bool {
		fresh = n
		product, _, ok := m.made(kept, "multiply")
		return ok && m.either(product, func(less, z region.ValueID) bool {
			d, _, ok := m.made(less, "subtract")
			if !ok || d.Args[1] != n {
				return false
			}
			found.hPrev = d.Args[0]
			update, ok = m.unary(z, "sigmoid")
			return ok
		})
	}) {
		return nil
	}
	inside, ok := m.unary(fresh, "tanh")
	if !ok {
		return nil
	}
	batch, hidden, _ := m.matrix(h)
	if !m.is(found.hPrev, batch, hidden) {
		return nil
	}
	if m.attempt(func() bool { return m.resetAfter(found, inside, update, hidden) }) ||
		m.attempt(func() bool { return m.resetBefore(found, inside, update, hidden) }) {
		return found
	}
	return nil
}

// read is the side of a gate that comes of what is read: part of x W^T + b.
func (m *matcher) read(found *cell, v region.ValueID, gate int, hidden int64, from *region.ValueID) bool {
	of, which, ok := m.field(v, 3)
	if !ok || which != gate || *from != None && *from != of {
		return false
	}
	if *from != None {
		return true
	}
	*from = of
	inner, bias := m.bias(of, 3*hidden)
	data, weight, ok := m.dense(inner)
	if !ok {
		return false
	}
	_, input, _ := m.matrix(data)
	if !m.is(weight, 3*hidden, input) {
		return false
	}
	found.x, found.W, found.WB = data, nil, nil
	for g := range GRU.Gates() {
		found.W = append(found.W, m.rows(weight, g, hidden))
		found.WB = append(found.WB, m.numbers(bias, g, hidden))
	}
	return true
}

// resetAfter: r, z = sigmoid(x_ + h_), n = tanh(x_n + r h_n), where x_ = split(x W^T + b), h_ = split(h R^T + b).
func (m *matcher) resetAfter(found *cell, inside, update region.ValueID, hidden int64) bool {
	found.ResetAfter, found.folded = true, false
	from, state := None, None
	constants := [3]region.ValueID{None, None, None}
	gate := func(v region.ValueID, which int) bool {
		if m.p.IsConstant(v) {
			constants[which] = v
			batch, _, _ := m.matrix(found.hPrev)
			return m.is(v, batch, hidden)
		}
		of, at, ok := m.field(v, 3)
		if !ok || at != which || state != None && state != of {
			return false
		}
		state = of
		return true
	}
	pair := func(v region.ValueID, which int) bool {
		sum, _, ok := m.made(v, "add")
		return ok && m.either(sum, func(x, h region.ValueID) bool {
			return m.read(found, x, which, hidden, &from) && gate(h, which)
		})
	}
	sum, _, ok := m.made(inside, "add")
	if !ok || !m.either(sum, func(x, product region.ValueID) bool {
		p, _, ok := m.made(product, "multiply")
		return ok && m.read(found, x, GRUNew, hidden, &from) && m.either(p, func(r, h region.ValueID) bool {
			reset, ok := m.unary(r, "sigmoid")
			return ok && pair(reset, GRUReset) && gate(h, GRUNew)
		})
	}) || !pair(update, GRUUpdate) {
		return false
	}
	found.R, found.RB = nil, nil
	if state == None {
		// The products of a constant state were computed when the network was read.
		found.folded = true
		for _, c := range constants {
			found.R = append(found.R, Part{Value: c})
		}
		return m.p.IsConstant(found.hPrev) && m.isZero(found.hPrev)
	}
	if constants != [3]region.ValueID{None, None, None} {
		return false
	}
	inner, bias := m.bias(state, 3*hidden)
	data, weight, ok := m.dense(inner)
	if !ok || data != found.hPrev || !m.is(weight, 3*hidden, hidden) {
		return false
	}
	for g := range GRU.Gates() {
		found.R = append(found.R, m.rows(weight, g, hidden))
		found.RB = append(found.RB, m.numbers(bias, g, hidden))
	}
	return true
}

// resetBefore: r, z = sigmoid(x_ + h R_^T + b), n = tanh(x_n + b + (r h) R_n^T + b).
func (m *matcher) resetBefore(found *cell, inside, update region.ValueID, hidden int64) bool {
	found.ResetAfter, found.folded = false, false
	from := None
	batch, _, _ := m.matrix(found.hPrev)
	found.R = []Part{{Value: None}, {Value: None}, {Value: None}}
	found.RB = slices.Clone(found.R)
	input := []Part{{Value: None}, {Value: None}, {Value: None}}
	constant := func(v region.ValueID) bool { return m.p.IsConstant(v) && m.is(v, batch, hidden) && m.isZero(v) }
	gate := func(v region.ValueID, which int) bool {
		inner, bias := m.bias(v, hidden)
		input[which] = m.numbers(bias, 0, hidden)
		sum, _, ok := m.made(inner, "add")
		return ok && m.either(sum, func(x, h region.ValueID) bool {
			if !m.read(found, x, which, hidden, &from) {
				return false
			}
			if constant(h) { // zeros as a state
				found.folded = true
				return m.p.IsConstant(found.hPrev) && m.isZero(found.hPrev)
			}
			data, weight, ok := m.dense(h)
			if !ok || data != found.hPrev || !m.is(weight, hidden, hidden) {
				return false
			}
			found.R[which] = m.rows(weight, 0, hidden)
			return true
		})
	}
	sum, _, ok := m.made(inside, "add")
	if !ok || !m.either(sum, func(x, h region.ValueID) bool {
		inner, bias := m.bias(x, hidden)
		input[GRUNew] = m.numbers(bias, 0, hidden)
		if !m.read(found, inner, GRUNew, hidden, &from) {
			return false
		}
		product, second := m.bias(h, hidden)
		found.RB[GRUNew] = m.numbers(second, 0, hidden)
		data, weight, ok := m.dense(product)
		if !ok || !m.is(weight, hidden, hidden) {
			return false
		}
		found.R[GRUNew] = m.rows(weight, 0, hidden)
		scaled, _, ok := m.made(data, "multiply")
		return ok && m.either(scaled, func(r, state region.ValueID) bool {
			reset, ok := m.unary(r, "sigmoid")
			return ok && state == found.hPrev && gate(reset, GRUReset)
		})
	}) || !gate(update, GRUUpdate) {
		return false
	}
	// The biases of reset and update stand together; what is read has none of its own then.
	if found.WB[0].Value != None {
		return false
	}
	found.WB = input
	return true
}

// rnn: h' = act(x W^T + b + h R^T + b).
func (m *matcher) rnn(h region.ValueID) *cell {
	op := &m.p.Ops[m.p.Values[h].Producer]
	found := &cell{Chain: Chain{Kind: RNN, Activation: "tanh"}, c: None}
	found.C0, found.cPrev = None, None
	if op.Name == "nn.relu" {
		found.Activation = "relu"
	}
	batch, hidden, _ := m.matrix(h)
	inside, ok := m.unary(h, op.Name)
	if !ok {
		return nil
	}
	sum, _, ok := m.made(inside, "add")
	if !ok {
		return nil
	}
	side := func(v region.ValueID) (data, weight, bias region.ValueID, ok bool) {
		inner, bias := m.bias(v, hidden)
		data, weight, ok = m.dense(inner)
		return data, weight, bias, ok
	}
	// Which side is the state's the shapes may leave open: TVM's is the second.
	x, weight, bias, ok := side(sum.Args[0])
	if !ok {
		return nil
	}
	_, input, _ := m.matrix(x)
	if !m.is(weight, hidden, input) {
		return nil
	}
	found.x, found.W, found.WB = x, []Part{m.rows(weight, 0, hidden)}, []Part{m.numbers(bias, 0, hidden)}
	state := sum.Args[1]
	if m.p.IsConstant(state) {
		found.folded, found.R, found.hPrev = true, []Part{{Value: state}}, state
		if !m.is(state, batch, hidden) {
			return nil
		}
		return found
	}
	data, weight, bias, ok := side(state)
	if !ok || !m.is(weight, hidden, hidden) {
		return nil
	}
	found.hPrev, found.R, found.RB = data, []Part{m.rows(weight, 0, hidden)}, []Part{m.numbers(bias, 0, hidden)}
	return found
}

// floats are values that are all float32.
func floats(p *region.Program, values []region.ValueID) bool {
	return !slices.ContainsFunc(values, func(v region.ValueID) bool {
		t := p.Values[v].Type
		return t.Kind != relay.TypeTensor || t.DType != "float32"
	})
}
