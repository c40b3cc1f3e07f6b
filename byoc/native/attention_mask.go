// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// mostMasks is how many the kernel does.
const mostMasks = 2

// Mask is something that is done to the scores: float32 values are added, or a tensor of truths says which of them are
// kept and which become Fill.
type Mask struct {
	Side
	Chooses, Keeps bool
	Fill           float64
	// Triangle says that it is known to leave to query i the keys 0 to i + Sees - 1, and to add Beyond to all others,
	// or to replace them by it: a decoder's mask, whose upper half need not be computed.
	Triangle bool
	Sees     int64
	Beyond   float64
}

// maskAt is one way to read an operator as a mask of its argument scores.
type maskAt struct {
	Mask
	scores  relay.NodeID
	nothing bool // it changes nothing
}

// leastBeyond is what a triangle must add at least for that it pays to see whether what is beyond it may be left out.
const leastBeyond = -1000

// masksAt are the ways to read an operator on scores of a shape as a mask of one of its arguments.
func (f *attentionFinder) masksAt(n *relay.Node, shape []int64) []maskAt {
	var found []maskAt
	whole := func(id relay.NodeID) bool {
		own, ok := f.shape(id)
		return ok && slices.Equal(own, shape)
	}
	switch n.Op {
	case "add":
		for i, scores := range n.Inputs {
			of := n.Inputs[1-i]
			added, ok := f.shape(of)
			if !whole(scores) || !ok || len(added) > len(shape) {
				continue
			}
			mask := maskAt{Mask: Mask{Side: Side{Of: of}}, scores: scores}
			if values := f.constants.floats(of); values != nil {
				mask.nothing = !slices.ContainsFunc(values, func(v float32) bool { return v != 0 })
				mask.triangle(added, shape, len(values), func(at int) (float64, bool) {
					return float64(values[at]), values[at] == 0
				})
			}
			if !mask.nothing && f.isNumber(of) {
				continue // a sum that the softmax does not see
			}
			found = append(found, mask)
		}
	case "where":
		if len(n.Inputs) != 3 {
			return nil
		}
		of := n.Inputs[0]
		t := f.g.Nodes[of].Type
		if !seeable(t) || t.DType != "bool" || len(t.Shape) > len(shape) {
			return nil
		}
		for i := 1; i <= 2; i++ {
			scores, other := n.Inputs[i], n.Inputs[3-i]
			fill, ok := f.constants.uniform(other)
			if !ok || math.IsNaN(fill) || !whole(scores) {
				continue
			}
			mask := maskAt{Mask: Mask{Side: Side{Of: of}, Chooses: true, Keeps: i == 1, Fill: fill}, scores: scores}
			if truths := f.constants.truths(of); truths != nil {
				mask.triangle(t.Shape, shape, len(truths), func(at int) (float64, bool) {
					return fill, (truths[at] != 0) == mask.Keeps
				})
			}
			found = append(found, mask)
		}
	}
	return found
}

func (f *attentionFinder) isNumber(id relay.NodeID) bool {
	_, ok := f.constants.number(id)
	return ok
}

// triangle looks whether a constant mask of scores is a triangle, the same for all heads. at gives what is done to an
// element, and whether that is nothing.
func (m *maskAt) triangle(own, scores []int64, elements int, at func(int) (beyond float64, kept bool)) {
	rank := len(scores)
	if rank < 2 || len(own) < 2 || !slices.Equal(own[len(own)-2:], scores[rank-2:]) ||
		int64(elements) != scores[rank-2]*scores[rank-1] {
		return
	}
	queries, keys := int(scores[rank-2]), int(scores[rank-1])
	kept := func(row int) int { // so many from the first one on
		for i := range keys {
			if _, stays := at(row*keys + i); !stays {
				return i
			}
		}
		return keys
	}
	sees, known := 0, false
	for row := 0; row < queries && !known; row++ {
		if count := kept(row); count > 0 {
			sees, known = count-row, true
		}
	}
	if !known || sees >= keys {
		return
	}
	beyond := math.NaN()
	for row := range queries {
		for i := range keys {
			value, stays := at(row*keys + i)
			if stays != (i < row+sees) {
				return
			}
			if !stays && math.IsNaN(beyond) {
				beyond = value
			}
			if !stays && value != beyond {
				return
			}
		}
	}
	if beyond <= leastBeyond {
		m.Triangle, m.Sees, m.Beyond = true, int64(sees), beyond
	}
}

// constants is what is known of a graph's constants.
type constants struct {
	g *relay.Graph
	// node is the constant that a node stands for, NoNode for none; data its elements.
	node func(relay.NodeID) relay.NodeID
	data func(relay.NodeID) ([]byte, error)
}

// constantsOf reads those that stand in a graph as such.
func constantsOf(g *relay.Graph) constants {
	return constants{
		g: g,
		node: func(id relay.NodeID) relay.NodeID {
			if g.Nodes[id].Kind == relay.KindConstant {
				return id
			}
			return relay.NoNode
		},
		data: func(id relay.NodeID) ([]byte, error) {
			tensor, err := g.Tensor(id)
			if err != nil {
				return nil, err
			}
			defer tensor.Release()
			return tensor.Bytes()
		},
	}
}

// at is the constant that a node stands for; nil for none.
func (c constants) at(id relay.NodeID) (relay.NodeID, *relay.Constant) {
	if id = c.node(id); id == relay.NoNode {
		return id, nil
	}
	return id, c.g.Nodes[id].Constant
}

// number is the value of a constant of one element, which is a number or infinite.
func (c constants) number(id relay.NodeID) (float64, bool) {
	_, constant := c.at(id)
	if constant == nil || constant.DType != "float32" || math.IsNaN(constant.Scalar) {
		return 0, false
	}
	return constant.Scalar, true
}

// uniform is the value of all elements of a constant, which are float32.
func (c constants) uniform(id relay.NodeID) (float64, bool) {
	if number, ok := c.number(id); ok {
		return number, true
	}
	values := c.floats(id)
	if len(values) == 0 || slices.ContainsFunc(values, func(v float32) bool { return v != values[0] }) {
		return 0, false
	}
	return float64(values[0]), true
}

// mostElements is how large a constant may be that is looked at: a mask of 8192 queries and keys.
const mostElements = 1 << 26

func (c constants) elements(id relay.NodeID, dtype string) []byte {
	id, constant := c.at(id)
	if constant == nil || constant.DType != dtype || relay.Elements(constant.Shape) > mostElements {
		return nil
	}
	data, err := c.data(id)
	if err != nil {
		return nil
	}
	return data
}

// floats are the elements of a float32 constant; nil for anything else.
func (c constants) floats(id relay.NodeID) []float32 {
	data := c.elements(id, "float32")
	if data == nil {
		return nil
	}
	values := make([]float32, len(data)/4)
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, values); err != nil {
		return nil
	}
	return values
}

// truths are the elements of a constant of bool, a byte each; nil for anything else.
func (c constants) truths(id relay.NodeID) []byte { return c.elements(id, "bool") }
