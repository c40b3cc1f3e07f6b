// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"

	"github.com/collage-tvm/collage/relay"
)

// Concatenation puts tensors one behind the other along an axis, which is not negative.
type Concatenation struct{ Axis int64 }

// maxConcat is the greatest number of tensors that are put one behind the other.
const maxConcat = 16

// ConcatenateRule offers concatenate along any axis.
func ConcatenateRule() *Rule {
	r := Bare("concatenate", nil, checkConcat,
		fmt.Sprintf("float32, static shapes, at most 6 dimensions, 2 to %d tensors", maxConcat),
		func(g *relay.Graph, m *relay.Match) (Layer, error) {
			return &Concatenation{concatAxis(&g.Nodes[m.Root])}, nil
		})
	// The tuple belongs to the candidate: outside of it, it would keep the region apart from those that make its
	// fields.
	var tuples []relay.Pattern
	for n := 2; n <= maxConcat; n++ {
		fields := make([]relay.Pattern, n)
		for i := range fields {
			fields[i] = relay.Wildcard()
		}
		tuples = append(tuples, relay.TuplePattern(fields...))
	}
	r.Shape = relay.Op("concatenate", relay.Or(tuples...))
	return r
}

func concatAxis(n *relay.Node) int64 {
	axis, _ := n.Attrs.Int("axis")
	if axis < 0 {
		axis += int64(n.Type.Rank())
	}
	return axis
}

func checkConcat(g *relay.Graph, m *relay.Match) error {
	n := &g.Nodes[m.Root]
	if _, err := TensorAt(g, m.Root, "the result of concatenate"); err != nil {
		return err
	}
	for i, field := range g.Nodes[n.Inputs[0]].Inputs {
		if _, err := TensorAt(g, field, fmt.Sprintf("field %d of concatenate", i)); err != nil {
			return err
		}
	}
	if axis := concatAxis(n); axis < 0 || axis >= int64(n.Type.Rank()) {
		return fmt.Errorf("concatenate works along axis %d of %d dimensions", axis, n.Type.Rank())
	}
	return nil
}
