// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// The constants that decide here, each at half, as it is, and at twice.

// tableOf is a table of three candidates of one operator: one with a bound of 1 ms, and two that took 1 ms alone.
func tableOf() *Table {
	m := relay.NewGraph("main")
	v := m.Call("tanh", relay.Tensor("float32", 8), nil, m.Var([]int64{8}, "float32"))
	set := &candidate.Set{Graph: m.Finish(v)}
	for _, backend := range []string{"bounded", "seen", "unseen"} {
		set.Candidates = append(set.Candidates, candidate.Candidate{Backend: backend, Key: "tanh",
			Nodes: []relay.NodeID{v}, Root: v})
	}
	set.Candidates[1].Composite, set.Candidates[2].Backend = "one", "seen"
	return NewTable(set, []float64{1, 1, 1}, []bool{true, false, false}, func(string) Traits { return Traits{} })
}

// Where nothing but a bound is known of a candidate, it is tried before what takes longer than is believed of it.
func TestWhatIsBelievedOfBoundsAtHalfAndTwice(t *testing.T) {
	table := tableOf()
	for _, of := range []struct {
		other             float64
		half, chosen, two bool
		why               string
	}{
		{1.2, false, false, false, "kernels reach no more than that of their bounds"},
		{2, true, false, false, "half of what a processor could do is a good kernel"},
		{4, true, true, false, "four times the bound leaves room"},
		{7, true, true, true, "seven times the bound"},
	} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			ms, seen := table.costWithin(0, mostScale, factor*boundScale)
			assert.False(t, seen)
			got = append(got, ms < of.other)
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, of.why)
	}
}

// A backend whose parts took three times as long in place as alone: so much of that is believed of its other ones.
func TestHowFarFromAloneCostsAreBelievedAtHalfAndTwice(t *testing.T) {
	table := tableOf()
	table.Observe(&Profile{Parts: []Part{{Nodes: table.set.Candidates[1].Nodes, Milliseconds: 3}}}, []int{1}, 1)
	for factor, want := range map[float64]float64{0.5: 1, 1: 2, 2: 3} {
		ms, seen := table.costWithin(2, factor*mostScale, boundScale)
		assert.False(t, seen)
		assert.InDelta(t, want, ms, 1e-12, "times %v", factor)
	}
}

func TestWhichLayersTellTooLittleAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		unnamed           float64
		half, chosen, two bool
	}{{0.04, false, false, false}, {0.08, true, false, false}, {0.15, true, true, false}, {0.3, true, true, true}} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, tellsTooLittle(of.unnamed, 1, factor*mostUnnamed))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "%v", of.unnamed)
	}
}
