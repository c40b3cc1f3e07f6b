// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

func TestWhatBecomesWholeNumbersStaysWhereItIs(t *testing.T) {
	of := func(op string) byoc.Pattern {
		return byoc.Pattern{Composite: "lib." + op, Shape: relay.Op(op, relay.Wildcard())}
	}
	lib := library{"lib", []byoc.Pattern{of("exp"), of("nn.relu"), of("nn.softmax"),
		{Composite: "lib.multiply", Shape: relay.Op("multiply", relay.Wildcard(), relay.Wildcard())}}}
	for _, to := range []string{"int64", "int32", "bool", "float64", "int8"} {
		for _, size := range []int64{4, relay.AnyDim} {
			m := relay.NewGraph("main")
			of := func(dtype string) *relay.Type { return relay.Tensor(dtype, size, 8) }
			sums := m.Call("nn.softmax", of("float32"), nil, m.Var([]int64{size, 8}, "float32")) // of a whole row
			shared := m.Call("exp", of("float32"), nil, sums)
			scaled := m.Call("multiply", of("float32"), nil, shared, m.Scalar(8, "float32"))
			places := m.Call("cast", of(to), map[string]any{"dtype": to}, scaled)
			relu := m.Call("nn.relu", of("float32"), nil, shared) // which nobody casts
			g := m.Finish(m.Tuple(places, relu))
			p := newProposer(g, []byoc.Backend{tvm, lib}, Options{OpPattern: patterns})
			require.NoError(t, p.classify())
			var cutOff []relay.NodeID
			for v, is := range p.cutOff {
				if is {
					cutOff = append(cutOff, relay.NodeID(v))
				}
			}
			if to == "int64" || to == "int32" {
				assert.Equal(t, []relay.NodeID{shared, scaled}, cutOff, to)
			} else {
				assert.Empty(t, cutOff, to)
			}
			if size == relay.AnyDim {
				continue // which lib does not take
			}
			set := propose(t, g, tvm, lib)
			var taken []string
			for i := range set.Candidates {
				if c := &set.Candidates[i]; c.Backend == "lib" {
					taken = append(taken, c.Composite)
				}
			}
			if len(cutOff) == 0 {
				assert.ElementsMatch(t, []string{"lib.nn.softmax", "lib.exp", "lib.multiply", "lib.nn.relu"}, taken, to)
				continue
			}
			assert.ElementsMatch(t, []string{"lib.nn.softmax", "lib.nn.relu"}, taken, to)
			assert.Contains(t, set.Refusals, Refusal{Node: scaled, Backend: "lib", Composite: "lib.multiply",
				Reason: "multiply becomes whole numbers, which its last digits decide"})
		}
	}
}
