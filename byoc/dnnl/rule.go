// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// rule is one pattern with what the code generator writes for it. The partitioner and the code generator use
// the same rule, so that what one accepts the other can write.
type rule struct {
	byoc.Pattern
	// emit writes a match that has passed the limits as one kernel of TVM's oneDNN runtime.
	emit func(g *relay.Graph, m *relay.Match) (*kernel, error)
	// correct are those of the limits without which the kernel would fail or answer wrongly; nil where all are
	// such. The rest keeps slow kernels out of placements, but the code generator writes them: somebody else may
	// have partitioned the module.
	correct func(g *relay.Graph, m *relay.Match) error
	// own says that only the code generator of this package can write the pattern, not the one of a TVM that
	// was built with oneDNN.
	own bool
}

// kernel is one node of the graph JSON that computes something.
type kernel struct {
	// name is what the runtime chooses the primitive and its post-ops by.
	name string
	// inputs are the values that it reads, in the order the runtime wants.
	inputs []operand
	attrs  []attribute
	// sum is the index in inputs of the value that the primitive accumulates into; -1 without one. The runtime
	// may write the result over it.
	sum int
}

// operand is one input of a kernel: a value of the graph, or a number that the code generator adds as a
// constant of its own.
type operand struct {
	value relay.NodeID
	// shape, where it is not nil, is how the runtime is to see the tensor (a reshaping of the same bytes).
	shape []int64
	// number is the constant where value is NoNode.
	number float32
}

func constantOperand(v float64) operand { return operand{value: relay.NoNode, number: float32(v)} }

// attribute is one attribute of a kernel; the runtime reads lists of texts.
type attribute struct {
	name   string
	values []string
}

// rules are all patterns, most specific first.
var rules = sync.OnceValue(func() []*rule {
	var all []*rule
	for _, some := range [][]*rule{
		layerNormRules(), convolutionRules(), denseRules(), batchMatmulRules(), batchNormRules(), geluRules(),
		poolRules(), softmaxRules(), elementwiseRules(), binaryRules(),
	} {
		all = append(all, some...)
	}
	return all
})

// ruleByComposite finds the rule of a Composite function's name.
var ruleByComposite = sync.OnceValue(func() map[string]*rule {
	byName := map[string]*rule{}
	for _, r := range rules() {
		if r.Bare {
			continue
		}
		if _, twice := byName[r.Composite]; twice {
			panic(fmt.Sprintf("dnnl: two rules named %s", r.Composite))
		}
		byName[r.Composite] = r
	}
	return byName
})

// rulesByOperator finds the rules of operators that stand in a region by themselves.
var rulesByOperator = sync.OnceValue(func() map[string]*rule {
	byName := map[string]*rule{}
	for _, r := range rules() {
		if r.Bare {
			byName[r.Composite] = r
		}
	}
	return byName
})

// bare makes the rule of one operator without a Composite function. Its arguments are named by roles; without
// roles they may be anything.
func bare(op string, roles []string, limits func(g *relay.Graph, m *relay.Match) error, text string,
	emit func(g *relay.Graph, m *relay.Match) (*kernel, error)) *rule {
	args := make([]relay.Pattern, len(roles))
	for i, role := range roles {
		args[i] = relay.Named(role, relay.Wildcard())
	}
	return &rule{
		Pattern: byoc.Pattern{
			Composite:  op,
			Shape:      relay.Named(roleAnchor, relay.Op(op, args...)),
			Limits:     limits,
			LimitsText: text,
			Bare:       true,
		},
		emit: emit,
	}
}

// The names that patterns give to the nodes they match.
const (
	roleAnchor = "anchor" // the call that decides which primitive runs
	roleData   = "data"
	roleWeight = "weight"
	roleBias   = "bias"
	roleBiased = "biased" // the call that adds the bias
	roleSum    = "sum"    // the residual value
	roleSummed = "summed" // the call that adds it
	roleGamma  = "gamma"
	roleBeta   = "beta"
)
