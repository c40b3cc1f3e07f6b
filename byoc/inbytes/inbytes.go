// SPDX-License-Identifier: Apache-2.0

// Package inbytes is what backends share that hand whole regions to an engine and have it multiply bytes.
//
// What comes in: graphs that are placed, and constants of regions that are written. What goes out: which values such a
// backend has rounded (byoc.Rounding), and weights as bytes.
package inbytes

import (
	"slices"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/relay"
)

// Multiplies are the operators whose weights may be bytes: of these the first axis is that of the result's channels.
func Multiplies(op string) bool {
	return slices.Contains([]string{"nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense"}, op)
}

// Data is what an operator of a graph multiplies by constants, if it is a tensor of float32 of a fixed shape: what is to
// be rounded. ok is false for all other operators.
func Data(g *relay.Graph, id relay.NodeID) (data relay.NodeID, ok bool) {
	n := &g.Nodes[id]
	if n.Kind != relay.KindCall || !Multiplies(n.Op) || len(n.Inputs) < 2 || g.Nodes[n.Inputs[1]].Constant == nil {
		return 0, false
	}
	of := &g.Nodes[n.Inputs[0]]
	if of.Constant != nil || !of.Type.IsTensor("float32") {
		return 0, false
	}
	_, static := of.Type.NumElements()
	return n.Inputs[0], static
}

// Quantised says of graphs whether they come quantised; it remembers the last one.
type Quantised struct {
	lock sync.Mutex
	last *relay.Graph
	is   bool
}

// Has says that a graph has operators of TVM's quantisation dialect.
func (q *Quantised) Has(g *relay.Graph) bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.last != g {
		q.last, q.is = g, slices.ContainsFunc(g.Nodes, func(n relay.Node) bool {
			return n.Kind == relay.KindCall && strings.HasPrefix(n.Op, "qnn.")
		})
	}
	return q.is
}

// Products are those operators among nodes that multiply data by constants that may be bytes (Data), ascending; none of
// networks that come quantised, whose weights are on steps of their own.
func (q *Quantised) Products(g *relay.Graph, nodes []relay.NodeID) (products []relay.NodeID) {
	if q.Has(g) {
		return nil
	}
	for _, v := range nodes {
		if _, ok := Data(g, v); ok {
			products = append(products, v)
		}
	}
	slices.Sort(products)
	return products
}

// Weight rounds a weight of this shape, whose elements are float32, compact and little-endian, to bytes with a scale for
// each of its first axis (rounding.Channels). ok is false where not all of it is finite.
func Weight(shape []int64, elements []byte) (bytes, scales []byte, ok bool) {
	steps := make([]int64, len(shape))
	for i, step := len(steps)-1, int64(1); i >= 0; i-- {
		steps[i] = step
		step *= shape[i]
	}
	bytes, scales, finite, err := rounding.Channels(elements, rounding.View{Dims: shape, Steps: steps})
	return bytes, scales, err == nil && finite
}
