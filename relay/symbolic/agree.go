// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Agree says that those sizes of a node's arguments are known to be the same that have to be when it runs. Where they are
// not, the network may still be right, but nothing can be asked about it at sizes of one's own choice. Sizes that are
// broadcast are not looked at: they give a size that is not told (Told).
func (a *Analysis) Agree(id relay.NodeID) bool {
	n := &a.g.Nodes[id]
	if n.Kind != relay.KindCall || n.Callee != relay.NoNode {
		return true
	}
	args := a.arguments(n)
	switch n.Op {
	case "concatenate":
		return joined(args, 0)
	case "stack":
		return joined(args, 1)
	case "nn.dense":
		data, ok := args.at(0)
		weight, ok2 := args.at(1)
		if !ok || !ok2 || len(data.Shape) == 0 || len(weight.Shape) != 2 {
			return false
		}
		return data.Shape[len(data.Shape)-1].Equal(weight.Shape[1])
	case "nn.matmul":
		return multiplied(args, 2)
	case "nn.batch_matmul":
		return multiplied(args, 3)
	}
	return true
}

// joined says that parts differ in their sizes along one axis alone; more is how many axes the result has beside theirs.
func joined(args arguments, more int) bool {
	parts, axis, ok := partsOf(args, more)
	if !ok {
		return false
	}
	return !slices.ContainsFunc(parts, func(part Value) bool {
		for d, extent := range part.Shape {
			if (more == 1 || d != axis) && !extent.Equal(parts[0].Shape[d]) {
				return true
			}
		}
		return false
	})
}

// multiplied says that matrices are as wide as the others are high.
func multiplied(args arguments, rank int) bool {
	x, ok := args.at(0)
	y, ok2 := args.at(1)
	if !ok || !ok2 || len(x.Shape) != rank || len(y.Shape) != rank {
		return false
	}
	_, columns := matrixAxes(args, "transpose_a", rank)
	rows, _ := matrixAxes(args, "transpose_b", rank)
	return x.Shape[columns].Equal(y.Shape[rows])
}
