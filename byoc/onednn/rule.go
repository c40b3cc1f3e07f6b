// SPDX-License-Identifier: Apache-2.0

// Package onednn is what the two backends on oneDNN share: which parts of a graph the library can compute, said as
// rules, and whether the library is there.
//
// What comes in: graphs, and matches of a rule's pattern in them. What goes out: patterns with limits for the
// placement, and for a match its Layer: what the library is to compute, with all attributes read and checked.
// byoc/dnnl writes layers for the runtime of our own, byoc/dnnltvm for TVM's.
package onednn

import (
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Compiler is the Compiler attribute of the regions of dnnl and native, which is not TVM's own "dnnl"; Engine is the
// name of the runtime's engine for them and of its plug-in.
const (
	Compiler = "collage_dnnl"
	Engine   = "dnnl"
)

// Rule is one pattern with what it computes. The partitioner and the code generators use the same rule, so that what
// one accepts the others can write.
type Rule struct {
	byoc.Pattern
	// Read gives the layer of a match that has passed the limits.
	Read func(g *relay.Graph, m *relay.Match) (Layer, error)
	// Correct are those of the limits without which the result would be wrong or an error; nil where all are such. The
	// rest keeps slow kernels out of placements, but code generators write them: somebody else may have partitioned the
	// module.
	Correct func(g *relay.Graph, m *relay.Match) error
	// BF16 says that the data and the weights are rounded to bfloat16 before they are multiplied.
	BF16 bool
	// Own says that the code generator of a TVM that was built with oneDNN cannot write the pattern; Ours that TVM's
	// runtime for oneDNN cannot run it, either.
	Own, Ours bool
}

// Bare makes the rule of one operator without a Composite function. Its arguments are named by roles; without
// roles they may be anything.
func Bare(op string, roles []string, limits func(g *relay.Graph, m *relay.Match) error, text string,
	read func(g *relay.Graph, m *relay.Match) (Layer, error)) *Rule {
	args := make([]relay.Pattern, len(roles))
	for i, role := range roles {
		args[i] = relay.Named(role, relay.Wildcard())
	}
	return &Rule{
		Pattern: byoc.Pattern{
			Composite:  op,
			Shape:      relay.Named(roleAnchor, relay.Op(op, args...)),
			Limits:     limits,
			LimitsText: text,
			Bare:       true,
		},
		Read: read,
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
