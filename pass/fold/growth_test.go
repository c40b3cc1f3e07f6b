// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/growth"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/relay"
)

// layersOf is a network of as many layers, each of which reads a constant that is computed of the one before.
func layersOf(t *testing.T, layers int) *bridge.Object {
	var b strings.Builder
	b.WriteString("def @main(%x: Tensor[(2, 3), float32]) {\n  %0 = add(1f, 1f);\n  %1 = add(%x, %0);\n")
	for i := range layers - 1 {
		fmt.Fprintf(&b, "  %%%d = multiply(%%%d, 1f);\n  %%%d = add(%%%d, %%%d);\n", 2*i+2, 2*i, 2*i+3, 2*i+1, 2*i+2)
	}
	fmt.Fprintf(&b, "  %%%d\n}", 2*layers-1)
	return tvmtest.Parse(t, b.String())
}

// Each constant is computed once, however many there are before it.
func TestTimeOfFoldingAModule(t *testing.T) {
	growth.Linear(t, 100, func(layers int) func() {
		mod := layersOf(t, layers)
		return func() {
			out, report, err := Module(mod)
			require.NoError(t, err)
			require.Equal(t, layers, report.Folded)
			out.Release()
		}
	})
}

// A front end has each of its expressions folded, of which all but the last operator were there before.
func TestTimeOfFoldingExpressions(t *testing.T) {
	growth.Linear(t, 100, func(layers int) func() {
		m, err := relay.Read(layersOf(t, layers))
		require.NoError(t, err)
		g := m.Function("main")
		var steps []*bridge.Object
		for id := range g.Nodes {
			if g.Nodes[id].Kind == relay.KindCall {
				steps = append(steps, g.Handle(relay.NodeID(id)))
			}
		}
		require.Len(t, steps, 2*layers)
		return func() {
			e := NewExpressions()
			defer e.Release()
			for _, expr := range steps {
				_, left, err := e.Fold(expr)
				require.NoError(t, err)
				require.False(t, left)
			}
		}
	})
}
