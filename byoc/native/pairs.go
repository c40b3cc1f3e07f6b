// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// BF16Name is what users write in --backends for the kernel that multiplies pairs of bfloat16; PairsKernel is that
// kernel (byoc/runtime/native/pairs.h).
const (
	BF16Name    = Name + "_bf16"
	PairsKernel = "pairs"
)

// PairRules are those of dense layers and products of batches whose data and weights, which are constants, are rounded
// to bfloat16.
var PairRules = sync.OnceValue(func() []*onednn.Rule {
	dense := onednn.Form{
		Composite: BF16Name + ".dense", Kernel: PairsKernel,
		Limits: func(g *relay.Graph, _ *relay.Match, layer onednn.Layer) error {
			if !ConstantOperands(g, layer.(*onednn.Product)) {
				return fmt.Errorf("the kernel %s needs a weight and a bias that are constants", PairsKernel)
			}
			return nil
		},
		LimitsText: "constant weights and bias",
	}
	batches := onednn.Form{
		Composite: BF16Name + ".batch_matmul", Kernel: PairsKernel,
		Limits: func(g *relay.Graph, _ *relay.Match, layer onednn.Layer) error {
			l := layer.(*onednn.Product)
			switch {
			case l.TransposeA:
				return fmt.Errorf("the kernel %s reads the rows of its left side as they lie, this one is transposed",
					PairsKernel)
			case !isConstant(g, l.Right):
				return fmt.Errorf("the kernel %s needs a right side that is a constant", PairsKernel)
			}
			return nil
		},
		LimitsText: "the left side not transposed, the right one a constant",
	}
	all := append(dense.Dense(), batches.Of(onednn.BatchMatmulRules()[0]))
	for _, r := range all {
		r.BF16 = true
	}
	return all
})

var pairPatterns = sync.OnceValue(func() []byoc.Pattern { return onednn.Patterns(PairRules()) })

// inPairs is the backend that computes products in bfloat16.
type inPairs struct{ backend }

// NewBF16 gives it. Its candidates stand in regions with those of native and dnnl; a value that only they and those of
// dnnl_bf16 read is bfloat16 where it lies. install is as in New.
func NewBF16(install func() error) byoc.Backend { return inPairs{backend{install}} }

func (inPairs) Name() string              { return BF16Name }
func (inPairs) Patterns() []byoc.Pattern  { return pairPatterns() }
func (inPairs) ProposedKernels() []string { return nil }
func (inPairs) Description() string {
	return "Collage's own kernel for products of bfloat16: dense layers and batches of products"
}

// Propose has no attention: it proposes nothing.
func (inPairs) Propose(*relay.Graph, []byoc.Learnt) []byoc.Proposal { return nil }

// TakesSized implements byoc.SizedTaker: nothing narrow has open dimensions.
func (inPairs) TakesSized() bool { return false }

// Precision and Wide implement byoc.Narrow.
func (inPairs) Precision() byoc.Precision { return byoc.BF16 }
func (inPairs) Wide() string              { return Name }

// Probe is that of native, on a processor with AVX-512's instructions for products of bfloat16.
func (inPairs) Probe() byoc.Probe {
	p := probeFor(allowedInstructionSet())
	if p.Usable && allowedInstructionSet() < avx512BF16 {
		p.Usable, p.Remedy = false, "use "+Name
		p.Reason = "this processor has no avx512_bf16, or the environment forbids it: products of bfloat16 would be no " +
			"faster than those of float32"
	}
	return p
}
