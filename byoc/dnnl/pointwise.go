// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// binaryRules offers the operators on two tensors, broadcast in any way.
func binaryRules() []*onednn.Rule {
	var all []*onednn.Rule
	for _, op := range []string{"add", "subtract", "multiply", "divide", "maximum", "minimum"} {
		all = append(all, onednn.Bare(op, nil, checkBinary, "float32, static shapes, at most 6 dimensions",
			func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
				in := g.Nodes[m.Root].Inputs
				return &onednn.Binary{Function: op, Left: in[0], Right: in[1]}, nil
			}))
	}
	return append(all, onednn.Bare("nn.bias_add", nil, checkBiasAdd, "float32, static shapes, at most 6 dimensions",
		func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
			n := &g.Nodes[m.Root]
			return &biasAdd{data: n.Inputs[0], bias: n.Inputs[1], axis: biasAxis(n)}, nil
		}))
}

// biasAdd adds one value for each index of an axis.
type biasAdd struct {
	data, bias relay.NodeID
	axis       int64
}

func checkBinary(g *relay.Graph, m *relay.Match) error {
	n := &g.Nodes[m.Root]
	if len(n.Inputs) != 2 {
		return fmt.Errorf("%s has %d arguments", n.Op, len(n.Inputs))
	}
	_, err := onednn.CheckedCall(g, m.Root, "left side", "right side")
	return err
}

func checkBiasAdd(g *relay.Graph, m *relay.Match) error {
	if err := checkBinary(g, m); err != nil {
		return err
	}
	n := &g.Nodes[m.Root]
	data, bias := g.Nodes[n.Inputs[0]].Type, g.Nodes[n.Inputs[1]].Type
	axis := biasAxis(n)
	if axis < 0 {
		axis += int64(data.Rank())
	}
	if axis < 0 || axis >= int64(data.Rank()) || bias.Rank() != 1 || bias.Shape[0] != data.Shape[axis] {
		return fmt.Errorf("nn.bias_add adds %s to %s along axis %d", relay.ShapeText(bias.Shape),
			relay.ShapeText(data.Shape), axis)
	}
	return nil
}

func biasAxis(n *relay.Node) int64 {
	if axis, ok := n.Attrs.Int("axis"); ok {
		return axis
	}
	return 1
}
