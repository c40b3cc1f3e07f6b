// SPDX-License-Identifier: Apache-2.0

// Package recurrent finds recurrent layers (LSTM, GRU, RNN) that a front end has written out step by step, so that an
// engine which has them as one operator is given that operator.
//
// What comes in: a region as a list of operators (region.Program), or a graph to be placed. What goes out: the layers,
// with what they read and what is read of them (Find); an order in which a region's operators and layers can be written
// (Schedule); and each layer as a candidate (Propose).
//
// TVM's front ends write a layer of T steps as T times the same ten to twenty operators, with the same weights, each
// reading the states that the step before has made. cell.go knows one such step, find.go puts steps together to chains
// and chains to layers. What is not exactly such a layer is left as it is: other activations, peepholes, projections,
// lengths of sequences, states that somebody reads in the middle.
package recurrent

import (
	"github.com/collage-tvm/collage/byoc/region"
)

// Kind says which layer it is.
type Kind uint8

// The kinds of layers.
const (
	LSTM Kind = iota
	GRU
	RNN
)

// String is the kind's name, as ONNX has it.
func (k Kind) String() string { return [...]string{"LSTM", "GRU", "RNN"}[k] }

// Gates is how many matrices a layer's weights are made of.
func (k Kind) Gates() int { return [...]int{4, 3, 1}[k] }

// The gates in the order of Chain.W, R, WB and RB.
const (
	LSTMInput, LSTMForget, LSTMCell, LSTMOutput = 0, 1, 2, 3
	GRUReset, GRUUpdate, GRUNew                 = 0, 1, 2
)

// None is the absent value.
const None region.ValueID = -1

// Part is a block of a constant: rows of a matrix or numbers of a vector, and columns, from the first to before the
// last; a vector's Columns are zero. Value None stands for zeros.
type Part struct {
	Value         region.ValueID
	Rows, Columns [2]int64
}

// Step is one step of a chain: what it reads of the sequence, and the states that it makes; C is None but for LSTM.
type Step struct {
	X, H, C region.ValueID
}

// Chain is one direction of a layer. All tensors are float32.
type Chain struct {
	Kind                 Kind
	Batch, Input, Hidden int64
	// Backward says that the first step reads the last of the sequence.
	Backward bool
	// H0 and C0 are the states before the first step, [Batch, Hidden]; C0 is None but for LSTM.
	H0, C0 region.ValueID
	// W are the gates' weights for what is read, [Hidden, Input] each, R those for the state, [Hidden, Hidden]; WB and
	// RB the biases that are added with them, [Hidden] each.
	W, R, WB, RB []Part
	// ResetAfter says of a GRU that the state is multiplied by the reset gate behind the product with its weights
	// (ONNX: linear_before_reset).
	ResetAfter bool
	// Activation is an RNN's: "tanh" or "relu".
	Activation string
	Steps      []Step

	ops []int
}

// at gives the time of a step.
func (c *Chain) at(step int) int {
	if c.Backward {
		return len(c.Steps) - 1 - step
	}
	return step
}

// What says what of a layer an output is.
type What uint8

// The outputs: the state at one time, the cell's state behind the last step, the states of all times of one chain
// [T, Batch, Hidden], and those of a forward and a backward chain, apart [T, 2, Batch, Hidden] or side by side
// [T, Batch, 2 Hidden].
const (
	Hidden What = iota
	Cell
	Sequence
	Pairs
	Joined
)

// Output is a value that others read.
type Output struct {
	Value region.ValueID
	What  What
	// Chain is which of the layer's; of two the forward one, the other is Second.
	Chain, Second int
	// Time is that of Hidden.
	Time int
}

// Layer is one or more chains that read one sequence: a layer, or both directions of one.
type Layer struct {
	Chains []Chain
	// X is the whole sequence, [T, Batch, Input]; None where it comes as Xs, each [Batch, Input], in order of time.
	X       region.ValueID
	Xs      []region.ValueID
	Outputs []Output
	// Ops are the operators of the program that the layer stands for, ascending.
	Ops []int
}

// Steps is the length of the sequence.
func (l *Layer) Steps() int { return len(l.Chains[0].Steps) }

// reads are the values that are no constants and that the layer reads.
func (l *Layer) reads(p *region.Program) []region.ValueID {
	all := l.Xs
	if l.X != None {
		all = []region.ValueID{l.X}
	}
	for i := range l.Chains {
		all = append(all[:len(all):len(all)], l.Chains[i].H0, l.Chains[i].C0)
	}
	var out []region.ValueID
	for _, v := range all {
		if v != None && !p.IsConstant(v) {
			out = append(out, v)
		}
	}
	return out
}

// Operators says which chains an engine's operator can do together: a forward and a backward one of equal form, and
// others by themselves.
func (l *Layer) Operators() [][]int {
	var all [][]int
	paired := make([]bool, len(l.Chains))
	for i := range l.Chains {
		if paired[i] {
			continue
		}
		op := []int{i}
		for k := i + 1; k < len(l.Chains) && len(op) == 1; k++ {
			if !paired[k] && l.Chains[i].Backward != l.Chains[k].Backward && l.Chains[i].alike(&l.Chains[k]) {
				paired[k] = true
				if op = append(op, k); l.Chains[i].Backward {
					op[0], op[1] = k, i
				}
			}
		}
		all = append(all, op)
	}
	return all
}

// Direction is what ONNX and OpenVINO call the way in which an operator does some chains (Operators).
func (l *Layer) Direction(chains []int) string {
	switch {
	case len(chains) == 2:
		return "bidirectional"
	case l.Chains[chains[0]].Backward:
		return "reverse"
	}
	return "forward"
}

// Prefixes begin the names of what an engine's model has for a layer: long names each group of its operators once,
// short the last one's. groups are those of the program's operators.
func (l *Layer) Prefixes(groups []int) (long, short string) {
	named := map[int]bool{}
	for _, op := range l.Ops {
		if g := groups[op]; !named[g] {
			named[g] = true
			long += region.LayerPrefix(g)
		}
	}
	return long, region.LayerPrefix(groups[l.Ops[len(l.Ops)-1]])
}

// alike says that two chains differ in their direction and weights only.
func (c *Chain) alike(d *Chain) bool {
	return c.Kind == d.Kind && c.Hidden == d.Hidden && c.Input == d.Input && c.ResetAfter == d.ResetAfter &&
		c.Activation == d.Activation
}

// Last is the time of a chain's last step.
func (c *Chain) Last() int { return c.at(len(c.Steps) - 1) }
