// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// block is what numbers of channels of a Winograd convolution must be multiples of (byoc/runtime/native/winograd.h).
const block = 16

// mostNarrow is the greatest number of output channels of the narrow kernel (byoc/runtime/native/narrow.h).
const mostNarrow = 6

var (
	images  = [][2]string{{"NCHW", "OIHW"}, {"NHWC", "HWIO"}}
	volumes = [][2]string{{"NCDHW", "OIDHW"}, {"NDHWC", "DHWIO"}}
)

// weights are the sizes that a convolution's weight says, all groups together but for in.
type weights struct {
	in, out  int64
	kernel   []int64 // spatial
	constant bool
}

func weightsOf(g *relay.Graph, l *onednn.Convolution) weights {
	shape := g.Nodes[l.Weight].Type.Shape
	w := weights{constant: isConstant(g, l.Weight)}
	for axis, letter := range l.KernelLayout {
		switch letter {
		case 'O':
			w.out = shape[axis]
		case 'I':
			w.in = shape[axis]
		default:
			w.kernel = append(w.kernel, shape[axis])
		}
	}
	return w
}

func isConstant(g *relay.Graph, id relay.NodeID) bool { return g.Nodes[id].Kind == relay.KindConstant }

// isConstantOrAbsent is isConstant for a value that an epilogue may do without.
func isConstantOrAbsent(g *relay.Graph, id relay.NodeID) bool {
	return id == relay.NoNode || isConstant(g, id)
}

func all(list []int64, value int64) bool {
	return !slices.ContainsFunc(list, func(v int64) bool { return v != value })
}

// convolutionLimits makes limits of those that see a convolution and its weight. Each kernel packs the weight when a
// region is loaded, so that it must be a constant, and has no groups.
func convolutionLimits(kernel string, check func(l *onednn.Convolution, w weights) error) func(*relay.Graph,
	*relay.Match, onednn.Layer) error {
	return func(g *relay.Graph, _ *relay.Match, layer onednn.Layer) error {
		l := layer.(*onednn.Convolution)
		w := weightsOf(g, l)
		if l.Groups != 1 {
			return fmt.Errorf("the kernel %s knows no groups, this convolution has %d", kernel, l.Groups)
		}
		if !w.constant {
			return fmt.Errorf("the kernel %s needs a weight that is a constant", kernel)
		}
		return check(l, w)
	}
}

// winogradRules offers Winograd's algorithm for 3x3 kernels (byoc/runtime/native/winograd.h); along the depth anything.
// It is less exact than a direct sum: whoever measures compares the results with TVM's.
func winogradRules() []*onednn.Rule {
	form := func(composite string) onednn.Form {
		return onednn.Form{
			Composite: composite, Kernel: "winograd", Reassociates: true,
			Limits: convolutionLimits("winograd", checkWinograd),
			LimitsText: "rows and columns with a kernel of 3x3, stride and dilation 1, one group, constant weights, " +
				"multiples of 16 channels",
		}
	}
	return slices.Concat(
		form("native.winograd_conv2d").Convolutions("nn.conv2d", 2, false, images...),
		form("native.winograd_conv3d").Convolutions("nn.conv3d", 3, false, volumes...))
}

func checkWinograd(l *onednn.Convolution, w weights) error {
	if !all(w.kernel[l.Dims-2:], 3) {
		return fmt.Errorf("a Winograd convolution has kernels of 3x3 in rows and columns, this one has %s",
			relay.IntsText(w.kernel))
	}
	for _, one := range []struct {
		name string
		list []int64
	}{{"strides", l.Strides}, {"dilation", l.Dilation}} {
		// What goes on along the depth is a sum over slices.
		if !all(one.list[l.Dims-2:], 1) {
			return fmt.Errorf("a Winograd convolution has %s of 1 along rows and columns, this one has %s", one.name,
				relay.IntsText(one.list))
		}
	}
	if w.in%block != 0 || w.out%block != 0 {
		return fmt.Errorf("a Winograd convolution works on blocks of %d channels, this one makes %d of %d", block,
			w.out, w.in)
	}
	return nil
}

// narrowRules offers convolutions with few output channels (byoc/runtime/native/narrow.h).
func narrowRules() []*onednn.Rule {
	form := onednn.Form{
		Composite: "native.narrow_conv2d", Kernel: "narrow",
		Limits: convolutionLimits("narrow", func(_ *onednn.Convolution, w weights) error {
			if w.out > mostNarrow {
				return fmt.Errorf("a narrow convolution has at most %d output channels, this one has %d", mostNarrow,
					w.out)
			}
			return nil
		}),
		LimitsText: fmt.Sprintf("at most %d output channels, one group, constant weights", mostNarrow),
	}
	return form.Convolutions("nn.conv2d", 2, false, images...)
}

// upsampledRules offers upsampling by nearest neighbours followed by a convolution as one operator. The kernel
// multiplies by the small tensor: as many multiplications as the convolution would need there, scale^2 times fewer than
// on the upsampled tensor, which is never made. The taps that meet one pixel are summed beforehand.
func upsampledRules() []*onednn.Rule {
	form := onednn.Form{
		Composite: "native.upsampled_conv2d", Kernel: "upsampled", Reassociates: true,
		LimitsText: "nearest neighbours by whole factors, strides and dilation of 1, one group",
	}
	return form.Convolutions("nn.conv2d", 2, true, images...)
}
