// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/inbytes"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// INT8Name is what users write in --backends for the kernel that multiplies bytes; BytesKernel is that kernel
// (byoc/runtime/native/bytes.h).
const (
	INT8Name    = Name + "_int8"
	BytesKernel = "bytes"
)

// MostTerms is of how many products a sum of bytes may be (byoc/runtime/native/bytes.h).
const MostTerms = 65536

// ByteRules are those of convolutions and dense layers whose data and weights are rounded to bytes: weights with a
// scale for each output channel, data with one for each image, or each row of a dense layer, that is found when they
// are there (dynamic quantisation), so that no calibration can have missed what they are.
var ByteRules = sync.OnceValue(func() []*onednn.Rule {
	convolutions := onednn.Form{
		Composite: INT8Name + ".conv2d", Kernel: BytesKernel,
		Limits: convolutionLimits(BytesKernel, func(_ *onednn.Convolution, w weights) error {
			terms := roundUp(w.in, 4)
			for _, k := range w.kernel {
				terms *= k
			}
			return CheckTerms(BytesKernel, terms)
		}),
		LimitsText: fmt.Sprintf("one group, constant weights, sums of at most %d products", MostTerms),
	}
	dense := onednn.Form{
		Composite: INT8Name + ".dense", Kernel: BytesKernel,
		Limits: func(g *relay.Graph, m *relay.Match, layer onednn.Layer) error {
			if err := checkProduct(g, m, layer); err != nil {
				return err
			}
			shape := g.Nodes[layer.(*onednn.Product).Left].Type.Shape
			return CheckTerms(BytesKernel, roundUp(shape[len(shape)-1], 4))
		},
		LimitsText: fmt.Sprintf("constant weights and bias, sums of at most %d products", MostTerms),
	}
	return slices.Concat(convolutions.Convolutions("nn.conv2d", 2, false, images...), dense.Dense())
})

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// CheckTerms says that a kernel that multiplies bytes cannot add so many products up, where that is so.
func CheckTerms(kernel string, terms int64) error {
	if terms > MostTerms {
		return fmt.Errorf("the kernel %s adds up at most %d products of bytes, these are %d", kernel, MostTerms, terms)
	}
	return nil
}

var bytePatterns = sync.OnceValue(func() []byoc.Pattern { return onednn.Patterns(ByteRules()) })

// narrow is the backend that computes convolutions and dense layers in bytes.
type narrow struct {
	backend
	graphs *inbytes.Quantised
}

// NewINT8 gives it. Its candidates stand in regions with those of native and dnnl; what crosses from one operator to
// the next is float32. install is as in New.
func NewINT8(install func() error) byoc.Backend {
	return narrow{backend{install}, &inbytes.Quantised{}}
}

func (narrow) Name() string              { return INT8Name }
func (narrow) Patterns() []byoc.Pattern  { return bytePatterns() }
func (narrow) ProposedKernels() []string { return nil }
func (narrow) Description() string {
	return "Collage's own kernel for products of bytes: convolutions and dense layers, rounded as they come"
}

// Propose has no attention: it proposes nothing.
func (narrow) Propose(*relay.Graph, []byoc.Learnt) []byoc.Proposal { return nil }

// TakesSized implements byoc.SizedTaker: nothing narrow has open dimensions.
func (narrow) TakesSized() bool { return false }

// Precision and Wide implement byoc.Narrow.
func (narrow) Precision() byoc.Precision { return byoc.INT8 }
func (narrow) Wide() string              { return Name }

// WeightsRounded implements byoc.RoundsWeights.
func (n narrow) WeightsRounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	return n.graphs.Products(g, nodes)
}

// Probe is that of native, on a processor with instructions for products of bytes.
func (narrow) Probe() byoc.Probe { return ProbeBytes(probeFor(allowedInstructionSet()), Name) }

// ProbeBytes is the probe of a backend that multiplies bytes in the regions of another one, wide, whose probe is p: it
// can be used on a processor with AVX-512 VNNI.
func ProbeBytes(p byoc.Probe, wide string) byoc.Probe {
	if p.Usable && allowedInstructionSet() < avx512VNNI {
		p.Usable, p.Remedy = false, "use "+wide
		p.Reason = "this processor has no avx512_vnni, or the environment forbids it: products of bytes would be no faster " +
			"than those of float32"
	}
	return p
}
