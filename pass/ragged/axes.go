// SPDX-License-Identifier: Apache-2.0

package ragged

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// meaning is what a factor of an axis counts.
type meaning int8

const (
	other    meaning = iota
	sequence         // of the batch
	place            // in a sequence
)

// factor is a part of an axis, as a reshape may make one axis of several.
type factor struct {
	extent int64
	of     meaning
}

// axes are those of a tensor, each the product of its factors, the outermost first; nil where nothing is known.
type axes [][]factor

// plainAxes are the axes of a shape of which no axis is known to mean anything.
func plainAxes(shape []int64) axes {
	a := make(axes, len(shape))
	for i, d := range shape {
		a[i] = []factor{{d, other}}
	}
	return a
}

// is says that an axis is just that.
func (a axes) is(axis int, of meaning) bool {
	return axis < len(a) && len(a[axis]) == 1 && a[axis][0].of == of
}

// finder works out what the axes of each value are.
type finder struct {
	g             *relay.Graph
	batch, length int64
	of            []axes
}

// findAxes gives what is known of each node's axes, where some are those of sequences and of places in them: the first
// two of each input that begins as the mask does, and what comes of them.
func findAxes(g *relay.Graph, mask relay.NodeID) *finder {
	shape := g.Nodes[mask].Type.Shape
	f := &finder{g: g, batch: shape[0], length: shape[1], of: make([]axes, len(g.Nodes))}
	for id := range g.Nodes {
		n := &g.Nodes[id]
		if n.Type == nil || n.Type.Kind != relay.TypeTensor || slices.Contains(n.Type.Shape, relay.AnyDim) {
			continue
		}
		f.of[id] = f.axesOf(relay.NodeID(id), n)
		if f.of[id] == nil {
			f.of[id] = plainAxes(n.Type.Shape)
		}
	}
	return f
}

// rows says that a value has a row for each place of each sequence: its first two axes.
func (f *finder) rows(id relay.NodeID) bool {
	a := f.of[id]
	if len(a) < 2 || !a.is(1, place) {
		return false
	}
	return a.is(0, sequence) || f.batch == 1 && f.g.Nodes[id].Type.Shape[0] == 1
}

func (f *finder) axesOf(id relay.NodeID, n *relay.Node) axes {
	shape := n.Type.Shape
	switch n.Kind {
	case relay.KindVar:
		if len(shape) >= 2 && shape[0] == f.batch && shape[1] == f.length && slices.Contains(f.g.Params, id) {
			a := plainAxes(shape)
			a[1][0].of = place
			if f.batch > 1 {
				a[0][0].of = sequence
			}
			return a
		}
	case relay.KindTupleGetItem:
		from := &f.g.Nodes[n.Inputs[0]]
		if from.Kind == relay.KindTuple {
			return f.of[from.Inputs[n.Index]]
		}
		if from.Kind == relay.KindCall && from.Op == "split" {
			return kept(f.of[from.Inputs[0]], f.g.Nodes[from.Inputs[0]].Type, shape)
		}
	case relay.KindCall:
		if n.Op != "" && len(n.Inputs) > 0 {
			return f.made(n, shape)
		}
	}
	return nil
}

// made are the axes of what an operator makes.
func (f *finder) made(n *relay.Node, shape []int64) axes {
	first := f.of[n.Inputs[0]]
	switch n.Op {
	case "reshape", "squeeze", "expand_dims", "nn.batch_flatten":
		return regrouped(first, shape)
	case "transpose":
		return f.transposed(n, first)
	case "nn.dense":
		if len(first) != len(shape) {
			return nil
		}
		return append(slices.Clone(first[:len(shape)-1]), plainAxes(shape[len(shape)-1:])...)
	case "nn.batch_matmul":
		return f.products(n, shape)
	case "take":
		return f.taken(n, shape)
	case "concatenate":
		if tuple := &f.g.Nodes[n.Inputs[0]]; tuple.Kind == relay.KindTuple && len(tuple.Inputs) > 0 {
			return kept(f.of[tuple.Inputs[0]], f.g.Nodes[tuple.Inputs[0]].Type, shape)
		}
		return nil
	case "strided_slice":
		if steps, _ := n.Attrs.Ints("strides"); slices.ContainsFunc(steps, func(step int64) bool { return step < 0 }) {
			return nil
		}
		return kept(first, f.g.Nodes[n.Inputs[0]].Type, shape)
	case "reverse", "reverse_sequence", "sort", "argsort", "gather", "gather_nd", "scatter_elements", "scatter_nd":
		return nil // what stood at one place may stand at another
	case "mean", "sum", "max", "min", "variance", "prod", "argmax", "argmin", "all", "any":
		return f.reduced(n, first, shape)
	}
	return f.broadcast(n, shape)
}

// kept are axes of which those stay that have the extent they had.
func kept(a axes, t *relay.Type, shape []int64) axes {
	if a == nil || len(t.Shape) != len(shape) {
		return nil
	}
	out := plainAxes(shape)
	for i := range shape {
		if t.Shape[i] == shape[i] {
			out[i] = a[i]
		}
	}
	return out
}

// broadcast are the axes of what is computed number by number, or along axes that stay: of each axis what an argument
// that has it says.
func (f *finder) broadcast(n *relay.Node, shape []int64) axes {
	out := plainAxes(shape)
	for _, in := range n.Inputs {
		a, t := f.of[in], f.g.Nodes[in].Type
		if a == nil || t.Kind != relay.TypeTensor || len(t.Shape) > len(shape) {
			continue
		}
		for i := range a {
			at := i + len(shape) - len(a)
			if t.Shape[i] == shape[at] && meansNothing(out[at]) {
				out[at] = a[i]
			}
		}
	}
	return out
}

func meansNothing(axis []factor) bool {
	return !slices.ContainsFunc(axis, func(f factor) bool { return f.of != other })
}

func (f *finder) transposed(n *relay.Node, a axes) axes {
	if a == nil {
		return nil
	}
	order, ok := n.Attrs.Ints("axes")
	out := make(axes, len(a))
	for i := range out {
		from := len(a) - 1 - i
		if ok && len(order) == len(a) {
			if from = int(order[i]); from < 0 {
				from += len(a)
			}
		}
		out[i] = a[from]
	}
	return out
}

// products are the axes of nn.batch_matmul: batch, rows of the left side, columns of the right one.
func (f *finder) products(n *relay.Node, shape []int64) axes {
	left, right := f.of[n.Inputs[0]], f.of[n.Inputs[1]]
	if len(left) != 3 || len(right) != 3 || len(shape) != 3 {
		return nil
	}
	rows, columns := 1, 2
	if t, _ := n.Attrs.Bool("transpose_a"); t {
		rows = 2
	}
	if t, _ := n.Attrs.Bool("transpose_b"); t {
		columns = 1
	}
	batch := left[0]
	if meansNothing(batch) {
		batch = right[0]
	}
	return axes{batch, left[rows], right[columns]}
}

// taken are the axes of take: those of the data with those of the indices in the place of the axis.
func (f *finder) taken(n *relay.Node, shape []int64) axes {
	if len(n.Inputs) < 2 {
		return nil
	}
	data, indices := f.of[n.Inputs[0]], f.of[n.Inputs[1]]
	axis, ok := n.Attrs.Int("axis")
	if !ok || data == nil || indices == nil {
		return nil
	}
	if axis < 0 {
		axis += int64(len(data))
	}
	out := slices.Concat(data[:axis], indices, data[axis+1:])
	if len(out) != len(shape) {
		return nil
	}
	return out
}

func (f *finder) reduced(n *relay.Node, a axes, shape []int64) axes {
	list, _ := n.Attrs.Ints("axis")
	if one, ok := n.Attrs.Int("axis"); ok {
		list = []int64{one}
	}
	if exclude, _ := n.Attrs.Bool("exclude"); exclude || list == nil || a == nil {
		return nil
	}
	keep, _ := n.Attrs.Bool("keepdims")
	var out axes
	for i := range a {
		gone := slices.ContainsFunc(list, func(axis int64) bool { return axis == int64(i) || axis+int64(len(a)) == int64(i) })
		switch {
		case !gone:
			out = append(out, a[i])
		case keep:
			out = append(out, []factor{{1, other}})
		}
	}
	if len(out) != len(shape) {
		return nil
	}
	return out
}

// regrouped are the axes of the same numbers in another shape; nil where an axis that means something is cut.
func regrouped(a axes, shape []int64) axes {
	if a == nil {
		return nil
	}
	var left []factor
	for _, axis := range a {
		for _, one := range axis {
			if one.extent != 1 {
				left = append(left, one)
			}
		}
	}
	out := make(axes, len(shape))
	for i, d := range shape {
		for rest := d; rest > 1; {
			if len(left) == 0 {
				return nil
			}
			one := left[0]
			switch {
			case rest%one.extent == 0:
				left = left[1:]
			case one.of == other && one.extent%rest == 0:
				left[0].extent /= rest
				one.extent = rest
			default:
				return nil
			}
			rest /= one.extent
			if last := len(out[i]) - 1; last >= 0 && one.of == other && out[i][last].of == other {
				out[i][last].extent *= one.extent
			} else {
				out[i] = append(out[i], one)
			}
		}
		if len(out[i]) == 0 {
			out[i] = []factor{{1, other}}
		}
	}
	return out
}
