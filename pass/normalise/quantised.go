// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

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
