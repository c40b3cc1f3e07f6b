// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Tolerance is how far a candidate's result may be from TVM's on the same inputs: an element by rtol of itself, and by
// atol of the greatest element (sums of both signs cancel, so small elements have no digits of their own).
//
// Both sides round at each step; over a sum of K terms in another order the difference grows like the root of K. The
// narrowest floating point type on the way decides. Integers must be equal, but for one unit where a real number was
// rounded to one.
func Tolerance(g *relay.Graph, c *candidate.Candidate) (rtol, atol float64) {
	epsilon, rounds := 0.0, false
	terms := 1.0
	note := func(t *relay.Type) {
		if t != nil && t.Kind == relay.TypeTensor {
			epsilon = max(epsilon, epsilons[t.DType])
		}
	}
	for _, v := range c.Inputs {
		note(g.Nodes[v].Type)
	}
	for _, v := range c.Nodes {
		n := &g.Nodes[v]
		note(n.Type)
		if candidate.IsOperator(n) {
			// Of sums behind one another the errors add up; the root of the sum of the lengths does it justice.
			terms += reduced(g, n)
			rounds = rounds || strings.Contains(n.Op, "quantize") || n.Op == "round" || n.Op == "cast" ||
				n.Op == "fixed_point_multiply"
		}
	}
	isInteger := func(v relay.NodeID) bool {
		t := g.Nodes[v].Type
		return t != nil && t.Kind == relay.TypeTensor && !isFloat(t.DType)
	}
	// Of several results the one that is compared most loosely decides.
	if t := g.Nodes[c.Root].Type; !slices.ContainsFunc(c.Results(),
		func(v relay.NodeID) bool { return !isInteger(v) }) {
		if rounds && epsilon > 0 || strings.Contains(g.Nodes[c.Root].Op, "quantize") {
			return exact, 1.01 / greatest(t.DType)
		}
		return exact, exact
	}
	if epsilon == 0 {
		return exact, exact
	}
	// The floors are for approximations of exp, log and the like, which libraries make to some 1e-5; the factors are
	// for several roundings in one step and for fast algorithms of convolution.
	rtol = epsilon * max(1000, 64*math.Sqrt(terms))
	atol = epsilon * max(100, 16*math.Sqrt(terms))
	return min(rtol, 5e-3+2*epsilon), min(atol, 2e-3+epsilon)
}

// exact stands for 0, which would leave the choice to the worker.
const exact = 1e-12

var epsilons = map[string]float64{"float64": 0x1p-52, "float32": 0x1p-23, "float16": 0x1p-10, "bfloat16": 0x1p-7}

func isFloat(dtype string) bool { return epsilons[dtype] > 0 }

// greatest is about what values of a narrow integer type reach.
func greatest(dtype string) float64 {
	switch dtype {
	case "uint8":
		return 255
	case "int8":
		return 127
	}
	return 32767
}

// reduced is the length of the sums that an operator makes; 1 where it makes none.
func reduced(g *relay.Graph, n *relay.Node) float64 {
	if len(n.Inputs) == 0 || n.Type == nil || n.Type.Kind != relay.TypeTensor {
		return 1
	}
	data := g.Nodes[n.Inputs[0]].Type
	if data == nil || data.Kind != relay.TypeTensor {
		return 1
	}
	switch {
	case isConvolution(n.Op) && len(n.Inputs) > 1:
		weight := g.Nodes[n.Inputs[1]].Type
		if weight == nil || weight.Kind != relay.TypeTensor {
			return 1
		}
		// Each output sums over the weight but for its own channel.
		channels, _ := n.Attrs.Int("channels")
		return max(1, elements(weight.Shape)/float64(max(1, channels)))
	case contracted(n, data) > 0:
		return float64(contracted(n, data))
	case isPooling(n.Op):
		size, _ := n.Attrs.Ints("pool_size")
		return max(1, elements(size))
	case normalises[n.Op]:
		return max(1, elements(data.Shape))
	case wholly[n.Op] && elements(n.Type.Shape) > 0:
		return max(1, elements(data.Shape)/elements(n.Type.Shape))
	}
	return 1
}

// normalises are operators that sum over an axis and have a result of the data's size.
var normalises = set(`nn.softmax nn.log_softmax nn.layer_norm nn.instance_norm nn.group_norm nn.l2_normalize nn.lrn`)
