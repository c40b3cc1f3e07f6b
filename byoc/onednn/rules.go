// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"sync"
)

// ours are the patterns of oneDNN's operators that our own runtime knows, most specific first; Rules are those that
// TVM's knows, too.
var (
	ours = sync.OnceValue(func() []*Rule {
		return slices.Concat(LayerNormRules(), ConvolutionRules(), DenseRules(), BatchMatmulRules(), BatchNormRules(),
			ActivationRules(),
			PoolRules(), SoftmaxRules(), ElementwiseRules(), BinaryRules())
	})
	Rules = sync.OnceValue(func() []*Rule {
		return slices.DeleteFunc(slices.Clone(ours()), func(r *Rule) bool { return r.Ours })
	})
)

// Index finds rules by name.
type Index struct {
	composites, operators map[string]*Rule
}

// NewIndex makes an index of rules, whose names must be different; it panics where two are not.
func NewIndex(rules []*Rule) *Index {
	x := &Index{map[string]*Rule{}, map[string]*Rule{}}
	for _, r := range rules {
		names := x.composites
		if r.Bare {
			names = x.operators
		}
		if names[r.Composite] != nil {
			panic(fmt.Sprintf("onednn: two rules named %s", r.Composite))
		}
		names[r.Composite] = r
	}
	return x
}

// Composite is the rule of a Composite function's name, Operator that of an operator that stands in a region by itself;
// nil where there is none.
func (x *Index) Composite(name string) *Rule { return x.composites[name] }

// Operator: see Composite.
func (x *Index) Operator(name string) *Rule { return x.operators[name] }
