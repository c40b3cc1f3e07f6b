// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/growth"
	"github.com/collage-tvm/collage/relay"
)

// residualNetwork is shaped like a ResNet of n operators: blocks of a chain with a skip, options for single nodes and
// for the groups of two to six in a row, on two backends.
func residualNetwork(n int) (*Tree, []Option) {
	const block = 8
	r := rand.New(rand.NewPCG(uint64(n), 5))
	tree := chain(n)
	var options []Option
	for v := range n {
		if v%block == block-1 && v+block < n {
			tree.Parent[v] = relay.NodeID(v + block) // used by the block and by the sum at its end
		}
		for range 2 {
			group := nodes(relay.NodeID(v))
			options = append(options, Option{Nodes: nodes(relay.NodeID(v)), Cost: r.Float64()})
			for w := v - 1; w >= 0 && v-w < 6 && tree.Parent[w] == relay.NodeID(w+1); w-- {
				group = append(nodes(relay.NodeID(w)), group...)
				options = append(options, Option{Nodes: group, Cost: r.Float64() * float64(len(group))})
			}
		}
	}
	return tree, options
}

func TestPlacingTakesLinearTime(t *testing.T) {
	growth.Linear(t, 4_000, func(size int) func() {
		tree, options := residualNetwork(size)
		return func() {
			p, err := Solve(options, tree)
			require.NoError(t, err)
			require.NoError(t, Verify(options, tree, p))
		}
	})
}

func BenchmarkSolve(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		tree, options := residualNetwork(n)
		b.Run(fmt.Sprintf("operators=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Solve(options, tree); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/operator")
		})
	}
}
