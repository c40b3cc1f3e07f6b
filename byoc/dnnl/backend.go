// SPDX-License-Identifier: Apache-2.0

// Package dnnl is oneDNN (once named DNNL) as a backend, with a runtime of its own (byoc/runtime/dnnl_*).
//
// What comes in: for the placement, graphs in which its patterns are looked for; from TVM, region functions through
// relay.ext.collage_dnnl. What goes out: the patterns with their limits, and for each region a program in JSON: tensors,
// and operators on them with what is done to their results on the way out. libcollage_dnnl.so chooses oneDNN's
// primitives and layouts for it when the region is first used.
//
// A pattern is a rule: those of byoc/onednn, and those of pointwise.go, shape.go and standardise.go here. lower.go turns the layers of
// a region into operations, attention.go, fuse.go and merge.go join them (strided.go says what is a view of what), program.go
// writes them down.
package dnnl

import (
	"fmt"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/region"
)

// Name is what users write in --backends; Compiler is the Compiler attribute of the regions, which is not TVM's own
// "dnnl"; Engine is the name of the runtime's engine and of its plug-in.
const (
	Name     = "dnnl"
	Compiler = "collage_dnnl"
	Engine   = "dnnl"
)

type backend struct{}

// New gives the backend. It needs neither TVM nor oneDNN; Probe says whether oneDNN is there.
func New() byoc.Backend { return backend{} }

// rules are all patterns, most specific first.
var rules = sync.OnceValue(func() []*onednn.Rule {
	return slices.Concat(
		onednn.LayerNormRules(), standardiseRules(), onednn.ConvolutionRules(), onednn.WinogradRules(),
		onednn.UpsampledConvolutionRules(), onednn.DenseRules(),
		onednn.BatchMatmulRules(), onednn.BatchNormRules(), onednn.GeluRules(), onednn.PoolRules(), onednn.SoftmaxRules(),
		onednn.ElementwiseRules(), binaryRules(), shapeRules(), reduceRules(), resizeRules())
})

// index finds the rules of composites and operators.
var index = sync.OnceValue(func() *onednn.Index { return onednn.NewIndex(rules()) })

var patterns = sync.OnceValue(func() []byoc.Pattern {
	all := make([]byoc.Pattern, len(rules()))
	for i, r := range rules() {
		all[i] = r.Pattern
	}
	return all
})

func (backend) Name() string { return Name }
func (backend) Description() string {
	return "oneDNN 2.6, Intel's kernels for x86 CPUs, in their own layouts within a region"
}
func (backend) Level() byoc.Level        { return byoc.OperatorLevel }
func (backend) Compiler() string         { return Compiler }
func (backend) Patterns() []byoc.Pattern { return patterns() }
func (backend) TakesAnything() bool      { return false }

// runtimeRevision is raised whenever kernels of the runtime change: what was measured with others is measured anew.
const runtimeRevision = 2

// Probe is oneDNN's, with the runtime's own revision in the version, which is part of the key of costs.
func (backend) Probe() byoc.Probe {
	p := onednn.Probe(Engine)
	if p.Usable {
		p.Version = fmt.Sprintf("%s+collage.%d", p.Version, runtimeRevision)
	}
	return p
}

// MergesRegions is true: within a region values stay in blocked layouts, in memory that is reused, and what follows an
// operator is fused with it, whichever candidates both belonged to.
func (backend) MergesRegions() bool { return true }

// Install makes relay.ext.collage_dnnl and the runtime available in this process.
func (backend) Install() error {
	if err := region.Register(Compiler, Engine, Engine, emit); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return nil
}
