// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/inbytes"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// INT8Name is what users write in --backends for oneDNN's kernels of bytes; BytesKernel is what the program calls them
// (byoc/runtime/dnnl_int8.cc).
const (
	INT8Name    = Name + "_int8"
	BytesKernel = "onednn_bytes"
)

// leastGroup is of how many channels a group must be, on both sides: of depthwise convolutions in bytes, and of those
// of few channels, oneDNN's kernels take longer than of such in float32.
const leastGroup = 8

// byteRules are those of convolutions and dense layers whose data and weights are rounded to bytes, as native_int8
// rounds them: so whoever measures compares kernels. What a network that comes quantised rounds to between them stands
// in the region, too: they compute by its scales, and find none of their own.
var byteRules = sync.OnceValue(func() []*onednn.Rule {
	convolutions := onednn.Form{
		Composite: INT8Name + ".conv2d", Kernel: BytesKernel, Limits: checkConvolutionInBytes,
		LimitsText: fmt.Sprintf("groups of at least %d channels, constant weights, sums of at most %d products", leastGroup,
			native.MostTerms),
	}
	dense := onednn.Form{
		Composite: INT8Name + ".dense", Kernel: BytesKernel,
		Limits: func(g *relay.Graph, _ *relay.Match, layer onednn.Layer) error {
			l := layer.(*onednn.Product)
			if !native.ConstantOperands(g, l) {
				return fmt.Errorf("in bytes a dense layer needs a weight and a bias that are constants")
			}
			shape := g.Nodes[l.Left].Type.Shape
			return native.CheckTerms(BytesKernel, shape[len(shape)-1])
		},
		LimitsText: fmt.Sprintf("constant weights and bias, sums of at most %d products", native.MostTerms),
	}
	layouts := [][2]string{{"NCHW", "OIHW"}, {"NHWC", "HWIO"}}
	return slices.Concat(convolutions.Convolutions("nn.conv2d", 2, false, layouts...), dense.Dense(),
		native.GridRules("dnnl_int8.grid"))
})

func checkConvolutionInBytes(g *relay.Graph, _ *relay.Match, layer onednn.Layer) error {
	l := layer.(*onednn.Convolution)
	if g.Nodes[l.Weight].Kind != relay.KindConstant {
		return fmt.Errorf("in bytes a convolution needs a weight that is a constant")
	}
	out, terms := int64(1), int64(1)
	for axis, letter := range l.KernelLayout {
		extent := g.Nodes[l.Weight].Type.Shape[axis]
		if letter == 'O' {
			out = extent / l.Groups
		} else {
			terms *= extent
		}
		if l.Groups > 1 && (letter == 'O' && out < leastGroup || letter == 'I' && extent < leastGroup) {
			return fmt.Errorf("in bytes a convolution's groups are of at least %d channels, of fewer oneDNN's kernels of bytes "+
				"are no faster than those of float32", leastGroup)
		}
	}
	return native.CheckTerms(BytesKernel, terms)
}

var bytePatterns = sync.OnceValue(func() []byoc.Pattern { return onednn.Patterns(byteRules()) })

// inBytes is the backend that computes convolutions and dense layers in bytes.
type inBytes struct {
	backend
	graphs *inbytes.Quantised
}

// NewINT8 gives it. Its candidates stand in regions with those of dnnl and native; what crosses from one operator to
// the next is float32.
func NewINT8() byoc.Backend { return inBytes{graphs: &inbytes.Quantised{}} }

func (inBytes) Name() string             { return INT8Name }
func (inBytes) Patterns() []byoc.Pattern { return bytePatterns() }
func (b inBytes) Description() string {
	return b.backend.Description() + ", convolutions and dense layers in bytes, rounded as they come"
}

// TakesSized implements byoc.SizedTaker: nothing narrow has open dimensions.
func (inBytes) TakesSized() bool { return false }

// Precision and Wide implement byoc.Narrow.
func (inBytes) Precision() byoc.Precision { return byoc.INT8 }
func (inBytes) Wide() string              { return Name }

// WeightsRounded implements byoc.RoundsWeights.
func (b inBytes) WeightsRounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	return b.graphs.Products(g, nodes)
}

// Probe is that of dnnl, on a processor whose products of bytes are quicker and exact: without the instruction oneDNN
// adds two of them up in 16 bits.
func (b inBytes) Probe() byoc.Probe { return native.ProbeBytes(b.backend.Probe(), Name) }

// multipliesBytes says that an operation's weights are to be bytes.
func (o *operation) multipliesBytes() bool {
	return o.kernel == native.BytesKernel || o.kernel == BytesKernel
}
