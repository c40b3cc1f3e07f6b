// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
)

// ofBackends is a network of which it is known which backends its placements have.
type ofBackends struct {
	module
	of map[string][]string
}

func (b *ofBackends) BackendsOf(p *genome.Placement) []string { return b.of[p.Key] }

// Of networks of the same backends that are about as fast, the one is placed with open sizes that leaves the least to
// TVM.
func TestWhatLeavesTheLeastToTVMIsPlacedAlike(t *testing.T) {
	t.Parallel()
	n := &ofBackends{module{left: map[string]int{"best": 9, "near": 4, "nearest": 4, "far": 0, "other": 1}},
		map[string][]string{"best": {"a", "b"}, "near": {"a", "b"}, "nearest": {"a", "b"}, "far": {"a", "b"}, "other": {"a"}}}
	result := &graphlevel.Result{}
	for key, score := range map[string]float64{"best": 1, "near": 1.09, "nearest": 1.05, "far": 1.2, "other": 1.01} {
		result.Trials = append(result.Trials, graphlevel.Trial{Placement: &genome.Placement{Key: key}, Score: score,
			Cost: cost.Cost{Samples: []float64{score}, Origin: cost.Measured}})
	}
	c := &decision{graph: &graph{network: n, result: result}}
	least := func(key string) string {
		for i := range result.Trials {
			if result.Trials[i].Placement.Key == key {
				return c.leastLeft(&result.Trials[i]).Placement.Key
			}
		}
		return ""
	}
	assert.Equal(t, "nearest", least("best"), "the fastest of those")
	assert.Equal(t, "other", least("other"), "no others have its backends")
	n.left["best"] = 3
	assert.Equal(t, "best", least("best"), "it leaves less by itself")
	assert.Equal(t, "best", least("near"), "which is as fast, too")
}
