// SPDX-License-Identifier: Apache-2.0

package native

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// Attention is the composite of softmax(scale * query key^T + mask) value, with the reshapes and transposes around it;
// AttentionKernel is the kernel that does it in one step (byoc/runtime/native/attention.h). It is proposed and not matched:
// the same may be written in too many ways. byoc/dnnl/attention.go makes the operation of its operators; where they turn out
// to lie so that the kernel cannot read them, they are oneDNN's.
const (
	Attention       = "native.attention"
	AttentionKernel = "attention"
)

// attentions proposes each softmax between two batched products.
func attentions(g *relay.Graph) []byoc.Proposal {
	var found []byoc.Proposal
	for i := range g.Nodes {
		f := attentionFinder{g: g}
		if g.Nodes[i].Op == "nn.softmax" && f.find(relay.NodeID(i)) {
			slices.Sort(f.nodes)
			found = append(found, byoc.Proposal{Composite: Attention, Kernel: AttentionKernel, Nodes: f.nodes})
		}
	}
	return found
}

// attentionFinder collects the nodes of one attention.
type attentionFinder struct {
	g     *relay.Graph
	nodes []relay.NodeID
	// masked and scaled say what was met between the scores and the softmax, from the latter back.
	masked, scaled bool
}

func (f *attentionFinder) find(softmax relay.NodeID) bool {
	n := &f.g.Nodes[softmax]
	shape, ok := f.shape(softmax)
	axis, _ := n.Attrs.Int("axis")
	if !ok || len(shape) == 0 || axis != -1 && axis != int64(len(shape)-1) {
		return false
	}
	f.nodes = append(f.nodes, softmax)
	scores, ok := f.scores(n.Inputs[0])
	if !ok {
		return false
	}
	mixed, ok := f.mixed(softmax)
	if !ok || !slices.Equal(f.g.Nodes[scores].Type.Shape, f.g.Nodes[f.g.Nodes[mixed].Inputs[0]].Type.Shape) {
		return false
	}
	if !f.columnsFollow(scores) {
		return false
	}
	for _, side := range []relay.NodeID{f.g.Nodes[scores].Inputs[0], f.g.Nodes[scores].Inputs[1], f.g.Nodes[mixed].Inputs[1]} {
		f.movedBefore(side)
	}
	f.movedBehind(mixed)
	return true
}

// shape is that of a float32 tensor.
func (f *attentionFinder) shape(id relay.NodeID) ([]int64, bool) {
	t, err := onednn.TensorAt(f.g, id, "")
	if err != nil {
		return nil, false
	}
	return t.Shape, true
}

// isReshape says that a node only gives a tensor other dimensions; moves, that it is that or a transpose.
func isReshape(n *relay.Node) bool {
	return slices.Contains([]string{"reshape", "nn.batch_flatten", "squeeze", "expand_dims"}, n.Op)
}

func moves(n *relay.Node) bool { return isReshape(n) || n.Op == "transpose" }

// only is the node that alone reads a value, once, where it does not leave the function.
func (f *attentionFinder) only(id relay.NodeID) (relay.NodeID, bool) {
	readers := f.g.Consumers(id)
	if len(readers) != 1 || f.g.ScopeRoot(id) {
		return relay.NoNode, false
	}
	times := 0
	for _, in := range f.g.Nodes[readers[0]].Inputs {
		if in == id {
			times++
		}
	}
	return readers[0], times == 1
}

// scores goes back from what the softmax reads to the product that makes the scores.
func (f *attentionFinder) scores(id relay.NodeID) (product relay.NodeID, ok bool) {
	n := &f.g.Nodes[id]
	shape, ok := f.shape(id)
	if _, alone := f.only(id); !ok || !alone {
		return relay.NoNode, false
	}
	f.nodes = append(f.nodes, id)
	switch {
	case n.Op == "nn.batch_matmul":
		return id, len(shape) == 3
	case isReshape(n):
		return f.scores(n.Inputs[0])
	case n.Op == "divide" && f.isNumber(n.Inputs[1]) && f.g.Nodes[n.Inputs[1]].Constant.Scalar != 0:
		f.scaled = true
		return f.scores(n.Inputs[0])
	case n.Op == "multiply" && (f.isNumber(n.Inputs[0]) || f.isNumber(n.Inputs[1])):
		f.scaled = true
		if f.isNumber(n.Inputs[0]) {
			return f.scores(n.Inputs[1])
		}
		return f.scores(n.Inputs[0])
	case n.Op == "add" && !f.masked && !f.scaled:
		for i, side := range n.Inputs {
			mask := n.Inputs[1-i]
			added, known := f.shape(mask)
			own, whole := f.shape(side)
			if !known || !whole || f.isNumber(mask) || len(added) > len(shape) || !slices.Equal(own, shape) {
				continue
			}
			// Both sides may be products; the scores are the one that leads on.
			tried := attentionFinder{g: f.g, nodes: slices.Clone(f.nodes), masked: true}
			if product, ok := tried.scores(side); ok {
				*f = tried
				return product, true
			}
		}
	}
	return relay.NoNode, false
}

// isNumber says that a node is a constant of one element that is finite.
func (f *attentionFinder) isNumber(id relay.NodeID) bool {
	n := &f.g.Nodes[id]
	return n.Kind == relay.KindConstant && n.Constant != nil && !math.IsNaN(n.Constant.Scalar) && !math.IsInf(n.Constant.Scalar, 0)
}

// mixed goes on from the softmax to the product with the values.
func (f *attentionFinder) mixed(softmax relay.NodeID) (product relay.NodeID, ok bool) {
	for id := softmax; ; {
		next, ok := f.only(id)
		if !ok {
			return relay.NoNode, false
		}
		n := &f.g.Nodes[next]
		f.nodes = append(f.nodes, next)
		if n.Op == "nn.batch_matmul" {
			turned, _ := n.Attrs.Bool("transpose_a")
			shape, ok := f.shape(next)
			return next, ok && n.Inputs[0] == id && !turned && len(shape) == 3
		}
		if !isReshape(n) {
			return relay.NoNode, false
		}
		id = next
	}
}

// columnsFollow says that the columns of a product's left side lie one after the other: it is not transposed by the product,
// or it was transposed right before.
func (f *attentionFinder) columnsFollow(product relay.NodeID) bool {
	n := &f.g.Nodes[product]
	if turned, _ := n.Attrs.Bool("transpose_a"); !turned {
		return true
	}
	from := &f.g.Nodes[n.Inputs[0]]
	axes, _ := from.Attrs.Ints("axes")
	return from.Op == "transpose" && (slices.Equal(axes, []int64{0, 2, 1}) || slices.Equal(axes, []int64{0, -1, 1}))
}

// movedBefore takes along the reshapes and transposes that only make a side.
func (f *attentionFinder) movedBefore(id relay.NodeID) {
	for moves(&f.g.Nodes[id]) {
		if _, ok := f.shape(id); !ok {
			return
		}
		if _, alone := f.only(id); !alone {
			return
		}
		f.nodes = append(f.nodes, id)
		id = f.g.Nodes[id].Inputs[0]
	}
}

// movedBehind takes along those that alone read the result.
func (f *attentionFinder) movedBehind(id relay.NodeID) {
	for {
		next, ok := f.only(id)
		if !ok || !moves(&f.g.Nodes[next]) {
			return
		}
		if _, ok := f.shape(next); !ok {
			return
		}
		f.nodes = append(f.nodes, next)
		id = next
	}
}
