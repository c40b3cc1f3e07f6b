// SPDX-License-Identifier: Apache-2.0

// Package dnnl is oneDNN (once named DNNL) as a backend, with a runtime of its own (byoc/runtime/dnnl_*), and the code
// generator of that runtime, which writes the regions of the backend native, too.
//
// What comes in: for the placement, graphs in which its patterns are looked for; from TVM, region functions through
// relay.ext.collage_dnnl. What goes out: the patterns with their limits, and for each region a program in JSON:
// tensors, and operators on them with what is done to their results on the way out. libcollage_dnnl.so chooses oneDNN's
// primitives and layouts for it when the region is first used.
//
// A pattern is a rule: those of byoc/onednn, and those of pointwise.go and shape.go here. int8.go has those of bytes.
// lower.go turns the layers of a region into operations, each with the kernel that is to do it; fuse.go joins them,
// and norm.go, attention.go, merge.go and strips.go make one step of several of native's (strided.go says what is a
// view of what); program.go writes them down.
package dnnl

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/region"
)

// Name is what users write in --backends, and BF16Name what computes in bfloat16; Compiler is the Compiler attribute of
// the regions of both.
const (
	Name     = "dnnl"
	BF16Name = "dnnl_bf16"
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

// narrowRules are those of convolutions and products, computed in bfloat16: what follows them hangs on them, and
// everything else is no faster for it by itself. All of them are composites, whose names tell them from the others.
var narrowRules = sync.OnceValue(func() []*onednn.Rule {
	var all []*onednn.Rule
	for _, wide := range slices.Concat(onednn.ConvolutionRules(), onednn.DenseRules(), onednn.BatchMatmulRules()) {
		rule := *wide
		name := strings.TrimPrefix(strings.TrimPrefix(rule.Composite, "dnnl."), "nn.")
		rule.Composite, rule.Bare, rule.BF16 = BF16Name+"."+name, false, true
		if !slices.ContainsFunc(all, func(other *onednn.Rule) bool { return other.Composite == rule.Composite }) {
			all = append(all, &rule)
		}
	}
	return all
})

// index finds the rules of composites and operators, those of native and of all that compute narrowly among them: their
// regions are the same.
var index = sync.OnceValue(func() *onednn.Index {
	return onednn.NewIndex(slices.Concat(rules(), narrowRules(), native.Rules(), native.ByteRules(), byteRules(),
		native.PairRules()))
})

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
const runtimeRevision = 5

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

// TakesSized implements byoc.SizedTaker.
func (backend) TakesSized() bool { return true }

// Install makes relay.ext.collage_dnnl and the runtime available in this process.
func (backend) Install() error { return Install() }

// Install is that of the backend; native has the same.
func Install() error {
	if err := region.RegisterSized(Compiler, onednn.Engine, onednn.Engine, emit); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return nil
}

// narrow is the backend that computes convolutions and products in bfloat16.
type narrow struct{ backend }

// NewBF16 gives it. Its candidates stand in regions with those of dnnl and native; a value that only they read is
// bfloat16 where it lies.
func NewBF16() byoc.Backend { return narrow{} }

var narrowPatterns = sync.OnceValue(func() []byoc.Pattern { return onednn.Patterns(narrowRules()) })

func (narrow) Name() string             { return BF16Name }
func (narrow) Patterns() []byoc.Pattern { return narrowPatterns() }
func (n narrow) Description() string {
	return n.backend.Description() + ", convolutions and products in bfloat16"
}

// TakesSized implements byoc.SizedTaker: nothing narrow has open dimensions.
func (narrow) TakesSized() bool { return false }

// Precision and Wide implement byoc.Narrow.
func (narrow) Precision() byoc.Precision { return byoc.BF16 }
func (narrow) Wide() string              { return Name }

// Probe is that of dnnl, on a processor that gains by the type.
func (n narrow) Probe() byoc.Probe {
	return byoc.ProbeBF16(n.backend.Probe(), Name)
}
