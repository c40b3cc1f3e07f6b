// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// dropIdentities has the readers of what gives its argument again read the argument: casts to the type that there is,
// products with 1 and quotients by it, reshapes to the shape that there is. Exporters write a cast in front of each
// normalisation, in case the model comes in another precision, and a factor of attention that is 1. Left where they are,
// each of them ends a region and hides a pattern.
func dropIdentities(mod *bridge.Object) (*bridge.Object, error) {
	return rewriteCalls(mod, func(g *relay.Graph, r *relay.Rewriter) error {
		for i := range g.Nodes {
			id := relay.NodeID(i)
			if same := identityOf(g, id); same != relay.NoNode {
				r.Replace(id, []relay.NodeID{same}, func(deps []*bridge.Object) (*bridge.Object, error) { return deps[0], nil })
			}
		}
		return nil
	})
}

// identityOf is the value that a node gives again; NoNode for none. It is no input and no constant: a function whose
// result one of these is has something to do still.
func identityOf(g *relay.Graph, id relay.NodeID) relay.NodeID {
	n := &g.Nodes[id]
	if n.Kind != relay.KindCall || n.Callee != relay.NoNode || n.Type == nil || n.Type.Kind != relay.TypeTensor {
		return relay.NoNode
	}
	same := relay.NoNode
	switch n.Op {
	case "cast":
		same = n.Inputs[0]
	case "reshape":
		if !slices.Contains(n.Type.Shape, relay.AnyDim) {
			same = n.Inputs[0]
		}
	case "multiply", "divide":
		if isOne(g, n.Inputs[1]) {
			same = n.Inputs[0]
		} else if n.Op == "multiply" && isOne(g, n.Inputs[0]) {
			same = n.Inputs[1]
		}
	}
	if same == relay.NoNode {
		return relay.NoNode
	}
	// Of products with one number open dimensions are those of the other factor.
	from := &g.Nodes[same]
	if from.Kind != relay.KindCall && from.Kind != relay.KindTupleGetItem || from.Type == nil ||
		from.Type.Kind != relay.TypeTensor || from.Type.DType != n.Type.DType ||
		!slices.Equal(from.Type.Shape, n.Type.Shape) {
		return relay.NoNode
	}
	return same
}

// isOne says that a value is a constant of one element, which is 1, in as many dimensions as a number has.
func isOne(g *relay.Graph, id relay.NodeID) bool {
	c := g.Nodes[id].Constant
	return c != nil && len(c.Shape) == 0 && c.Scalar == 1
}
