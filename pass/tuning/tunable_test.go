// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

func TestTunables(t *testing.T) {
	node := func(index int, operator string) plan.Node {
		return plan.Node{Index: index, Operator: operator, Type: "Tensor"}
	}
	placed := func(backend, key string, ms float64, nodes ...plan.Node) plan.Region {
		return plan.Region{Function: "main", Backend: backend, Milliseconds: ms,
			Candidates: []plan.Candidate{{Key: key, Milliseconds: ms, Nodes: nodes}}}
	}
	rejected := func(key string, ms, slack float64, origin cost.Origin, nodes ...int) plan.Rejected {
		return plan.Rejected{Function: "main", Backend: "tvm", Key: key, Milliseconds: ms, Slack: slack, Origin: origin,
			Nodes: nodes}
	}
	p := &plan.Plan{
		Regions: []plan.Region{
			placed("tvm", "conv", 4, node(2, "nn.conv2d"), node(3, "nn.relu")),
			placed("tvm", "conv", 4, node(5, "nn.conv2d"), node(6, "nn.relu")),
			placed("dnnl", "dense", 1, node(8, "nn.dense")),
			placed("dnnl", "other", 3, node(10, "nn.dense")),
			placed("dnnl", "third", 2, node(12, "nn.dense")),
			placed("tvm", "pool", 9, node(14, "nn.max_pool2d")),
		},
	}
	p.Candidates.Rejected = []plan.Rejected{
		rejected("dense", 2.5, 1.5, cost.Stored, 8),
		// half of 2.5 is more than its price, 1
		rejected("other", 4, 1, cost.Measured, 10),                                         // 2 below 3
		rejected("third", 1.9, 0.1, cost.Bounded, 12),                                      // not known
		rejected("conv alone", 5, 3, cost.Measured, 2),                                     // further from being chosen
		{Function: "main", Backend: "dnnl", Key: "conv", Nodes: []int{2}, Milliseconds: 9}, // not TVM's
	}
	got := Tunables(p)
	require.Len(t, got, 2)
	require.Equal(t, Tunable{Key: "conv", Operators: []string{"nn.conv2d", "nn.relu"}, Operator: "nn.conv2d",
		Type: "Tensor", Count: 2,
		Milliseconds: 4, Price: 4, Placed: true, Gain: 4, Function: "main", Nodes: []int{2, 3}}, got[0])
	require.Equal(t, "other", got[1].Key)
	require.InDelta(t, 1, got[1].Gain, 1e-12)
	require.False(t, got[1].Placed)
	require.Empty(t, Tunables(&plan.Plan{}))
}

// Noise is not kept for a gain: neither a little for certain, nor much in few samples of many.
func TestWhetherTuningHelps(t *testing.T) {
	repeated := func(ms ...float64) (list []float64) {
		for range 5 {
			list = append(list, ms...)
		}
		return list
	}
	for name, of := range map[string]struct {
		byItself, tuned []float64
		helps           bool
	}{
		"faster":                       {repeated(10, 11, 10), repeated(8, 9, 8), true},
		"by less than the margin":      {repeated(10, 11, 10), repeated(9.9, 10.9, 9.9), false},
		"by a little more":             {repeated(10, 11, 10), repeated(9.7, 10.7, 9.7), true},
		"now faster, now slower":       {repeated(10, 10, 10), repeated(9, 11, 9), false},
		"slower":                       {repeated(10, 11, 10), repeated(12, 12, 12), false},
		"nothing was run":              {nil, nil, false},
		"one was run more than others": {repeated(10), repeated(1, 2), false},
	} {
		if got := TuningHelps(of.byItself, of.tuned); got != of.helps {
			t.Errorf("%s: %t", name, got)
		}
	}
}
