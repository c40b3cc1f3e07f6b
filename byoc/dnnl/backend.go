// SPDX-License-Identifier: Apache-2.0

// Package dnnl is oneDNN (once named DNNL) as a backend, with a runtime of its own (byoc/runtime/dnnl_*), and the code
// generator of that runtime, which writes the regions of the backend native, too.
//
// What comes in: for the placement, graphs in which its patterns are looked for; from TVM, region functions through
// relay.ext.collage_dnnl. What goes out: the patterns with their limits, and for each region a program in JSON:
// tensors, and operators on them with what is done to their results on the way out. libcollage_dnnl.so chooses oneDNN's
// primitives and layouts for it when the region is first used.
//
// A pattern is a rule: those of byoc/onednn, and those of pointwise.go and shape.go here. lower.go turns the layers of
// a region into operations, each with the kernel that is to do it; fuse.go joins them, and norm.go, attention.go,
// merge.go and strips.go make one step of several of native's (strided.go says what is a view of what); program.go
// writes them down.
package dnnl

import (
	"fmt"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/region"
)

// Name is what users write in --backends; Compiler is the Compiler attribute of the regions.
const (
	Name     = "dnnl"
	Compiler = onednn.Compiler
)

type backend struct{}

// New gives the backend. It needs neither TVM nor oneDNN; Probe says whether oneDNN is there.
func New() byoc.Backend { return backend{} }

// rules are all patterns, most specific first.
var rules = sync.OnceValue(func() []*onednn.Rule {
	return slices.Concat(
		onednn.LayerNormRules(), onednn.ConvolutionRules(), onednn.DenseRules(),
		onednn.BatchMatmulRules(), onednn.BatchNormRules(), onednn.ActivationRules(), onednn.PoolRules(),
		onednn.SoftmaxRules(),
		onednn.ElementwiseRules(), binaryRules(), shapeRules(), reduceRules(), resizeRules())
})

// index finds the rules of composites and operators, native's among them, whose regions are the same.
var index = sync.OnceValue(func() *onednn.Index { return onednn.NewIndex(slices.Concat(rules(), native.Rules())) })

var patterns = sync.OnceValue(func() []byoc.Pattern { return onednn.Patterns(rules()) })

func (backend) Name() string { return Name }
func (backend) Description() string {
	return "oneDNN 2.6, Intel's kernels for x86 CPUs, in their own layouts within a region"
}
func (backend) Level() byoc.Level        { return byoc.OperatorLevel }
func (backend) Compiler() string         { return Compiler }
func (backend) Patterns() []byoc.Pattern { return patterns() }
func (backend) TakesAnything() bool      { return false }

// runtimeRevision is raised whenever kernels of the runtime change: what was measured with others is measured anew.
const runtimeRevision = 3

// Probe is oneDNN's, with the runtime's own revision in the version, which is part of the key of costs.
func (backend) Probe() byoc.Probe {
	p := onednn.Probe(onednn.Engine)
	if p.Usable {
		p.Version = fmt.Sprintf("%s+collage.%d", p.Version, runtimeRevision)
	}
	return p
}

// MergesRegions is true: within a region values stay in blocked layouts, in memory that is reused, and what follows an
// operator is fused with it, whichever candidates both belonged to.
func (backend) MergesRegions() bool { return true }

// SharesCompiler is true: candidates of native stand in the same regions.
func (backend) SharesCompiler() bool { return true }

// Install makes relay.ext.collage_dnnl and the runtime available in this process.
func (backend) Install() error { return Install() }

// Install is that of the backend; native has the same.
func Install() error {
	if err := region.Register(Compiler, onednn.Engine, onednn.Engine, emit); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return nil
}
