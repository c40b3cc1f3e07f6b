// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// QuantisedMaxError is how far the outputs of a network that came quantised may be off where nobody says more: twice
// what the most sensitive of four networks does to its own outputs under plain TVM where its inputs change by a hundred
// thousandth (RATIONALE.md).
const QuantisedMaxError = 0.1

// Quantised says that a module came quantised: it rounds values to whole numbers on its way, by operators of TVM's
// quantisation dialect. What is off by nothing worth mentioning before is off by a whole step where it is rounded the
// other way, so that of two right computations one's outputs are not within float32's tolerance of the other's.
func Quantised(mod *bridge.Object) (bool, error) {
	m, err := relay.Read(mod)
	if err != nil {
		return false, err
	}
	defer m.Release()
	return slices.ContainsFunc(m.Functions, CameQuantised), nil
}

// CameQuantised is Quantised of one function.
func CameQuantised(g *relay.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n relay.Node) bool {
		return n.Kind == relay.KindCall && strings.HasPrefix(n.Op, "qnn.") && n.Op != "qnn.dequantize"
	})
}
