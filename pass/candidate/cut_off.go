// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// numberByNumber are operators each element of whose result is computed of elements of the same places, or is one that
// stands elsewhere in an argument.
var numberByNumber = []string{
	"abs", "add", "broadcast_to", "ceil", "clip", "divide", "erf", "exp", "expand_dims", "fast_exp", "floor", "log", "log10",
	"log2", "maximum", "minimum", "multiply", "negative", "nn.relu", "power", "reshape", "round", "rsqrt", "sigmoid", "sqrt",
	"squeeze", "subtract", "tanh", "transpose", "trunc", "where",
}

// findCutOff finds what is cast to whole numbers of 32 or 64 bits (the places of a table, as T5 has its distances in
// buckets), and what that is computed of number by number: log(16 / 8) / log(16) * 8 is 2 by one library's logarithm, and
// by another's just less, which becomes 1. No kernel is wrong, and the networks' results have nothing in common.
func (p *proposer) findCutOff() {
	p.cutOff = make([]bool, len(p.g.Nodes))
	isOf := func(v relay.NodeID, dtypes ...string) bool {
		t := p.g.Nodes[v].Type
		return t != nil && t.Kind == relay.TypeTensor && slices.Contains(dtypes, t.DType)
	}
	decides := make([]bool, len(p.g.Nodes))
	for v, n := range slices.Backward(p.g.Nodes) {
		if n.Kind != relay.KindCall {
			continue
		}
		isCast := n.Op == "cast" && isOf(relay.NodeID(v), "int32", "int64")
		p.cutOff[v] = decides[v] && slices.Contains(numberByNumber, n.Op)
		if !isCast && !p.cutOff[v] {
			continue
		}
		for _, in := range n.Inputs {
			decides[in] = decides[in] || isOf(in, "float16", "float32", "float64")
		}
	}
}
