// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// StripsKernel is the kernel of operators on images that run strip by strip (byoc/runtime/dnnl_strips.cc): the code
// generator makes groups of those that stand in one region (byoc/dnnl/strips.go), each of which is one step. An
// operator by itself is a group of one.
const StripsKernel = "strips"

// ExpansionKernel is the kernel of 1x1 convolutions that run ahead in the group of the windows that read them: for each
// strip the rows that these see, so that their result, of inverted residuals the widest, is nowhere as a whole. Where
// that cannot be they run as StripsKernel's do.
const ExpansionKernel = "expansion"

// OnStrips says that a kernel's operators run strip by strip.
func OnStrips(kernel string) bool { return kernel == StripsKernel || kernel == ExpansionKernel }

const stripLimits = "NCHW or NHWC"

// notOnStrips are the activations that strips do not do on the way out.
var notOnStrips = []string{"tanh", "mish"}

// stripRules offers depthwise and 1x1 convolutions, pools, and what stands between them.
func stripRules() []*onednn.Rule {
	layouts := append(slices.Clone(images), [2]string{"NHWC", "HWOI"})
	depthwise := onednn.Form{
		Composite: "native.strip_depthwise_conv2d", Kernel: StripsKernel, Grouped: true, Without: notOnStrips,
		Limits:     stripConvolution(checkDepthwise),
		LimitsText: stripLimits + ", one channel a group, constant weights and bias",
	}
	pointwise := onednn.Form{
		Composite: "native.strip_conv2d", Kernel: StripsKernel, Grouped: true, Without: notOnStrips,
		Limits: stripConvolution(checkPointwise),
		LimitsText: stripLimits + ", a kernel of one element, strides of 1, no padding, one group, constant weights " +
			"and bias",
	}
	expansion := onednn.Form{
		Composite: "native.expansion_conv2d", Kernel: ExpansionKernel, Grouped: true, Without: notOnStrips,
		Limits:     stripConvolution(checkExpansion),
		LimitsText: pointwise.LimitsText + ", read by depthwise convolutions and pools alone",
	}
	rules := slices.Concat(depthwise.Convolutions("nn.conv2d", 2, false, layouts...),
		pointwise.Convolutions("nn.conv2d", 2, false, layouts...),
		expansion.Convolutions("nn.conv2d", 2, false, layouts...))
	for _, one := range []struct {
		from           []*onednn.Rule
		operator, name string
		limits         func(onednn.Layer) error
		text           string
	}{
		{onednn.PoolRules(), "nn.max_pool2d", "max_pool2d", checkStripPool, ""},
		{onednn.PoolRules(), "nn.avg_pool2d", "avg_pool2d", checkStripPool, ""},
		{onednn.BinaryRules(), "add", "add", nil, ""},
		{[]*onednn.Rule{stripProductRule()}, "multiply", "multiply", nil, ""},
		{onednn.ElementwiseRules(), "nn.relu", "relu", nil, ""},
		{onednn.ElementwiseRules(), "clip", "clip", nil, ""},
		{onednn.ElementwiseRules(), "sigmoid", "sigmoid", nil, ""},
		{onednn.ActivationRules(), "dnnl.hardswish", "hardswish", nil, ""},
		{onednn.ActivationRules(), "dnnl.hardsigmoid", "hardsigmoid", nil, ""},
		{[]*onednn.Rule{onednn.ConcatenateRule()}, "concatenate", "concatenate", checkStripConcatenation,
			", along the channels"},
	} {
		form := onednn.Form{
			Composite: "native.strip_" + one.name, Kernel: StripsKernel, Grouped: true, LimitsText: stripLimits +
				one.text,
			Limits: func(g *relay.Graph, m *relay.Match, l onednn.Layer) error {
				if one.limits != nil {
					if err := one.limits(l); err != nil {
						return err
					}
				}
				return checkStripResult(g, m)
			},
		}
		at := slices.IndexFunc(one.from, func(r *onednn.Rule) bool { return r.Composite == one.operator })
		rules = append(rules, form.Of(one.from[at]))
	}
	return rules
}

// checkStripResult wants a batch of images.
func checkStripResult(g *relay.Graph, m *relay.Match) error {
	if rank := g.Nodes[m.Root].Type.Rank(); rank != 4 {
		return fmt.Errorf("strips are of images, with 4 dimensions, this tensor has %d", rank)
	}
	return nil
}

// stripProductRule offers multiply of equal shapes, and of images with one factor for each channel: what
// squeeze-and-excitation ends with.
func stripProductRule() *onednn.Rule {
	return onednn.Bare("multiply", nil, checkStripProduct,
		"float32, static shapes, equal ones or a factor for each channel",
		func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
			in := g.Nodes[m.Root].Inputs
			return &onednn.Binary{Function: "multiply", Left: in[0], Right: in[1]}, nil
		})
}

func checkStripProduct(g *relay.Graph, m *relay.Match) error {
	c, err := onednn.CheckedCall(g, m.Root, "left side", "right side")
	if err != nil {
		return err
	}
	if len(c.In) != 2 {
		return fmt.Errorf("multiply has %d arguments", len(c.In))
	}
	left, right, out := c.In[0].Shape, c.In[1].Shape, c.Out.Shape
	whole := slices.Equal(left, out)
	if whole && (slices.Equal(right, out) || isFactors(right, out)) || slices.Equal(right, out) &&
		isFactors(left, out) {
		return nil
	}
	return fmt.Errorf("the kernel strips multiplies by a tensor of the same shape or by one factor for each channel, "+
		"not %s by %s",
		relay.ShapeText(left), relay.ShapeText(right))
}

// isFactors says that a tensor holds one number for each channel, which is the second axis or the last one, of all
// images or of each of them.
func isFactors(shape, images []int64) bool {
	if len(shape) != 4 || len(images) != 4 || shape[0] != 1 && shape[0] != images[0] || shape[2] != 1 {
		return false
	}
	return shape[1] == images[1] && shape[3] == 1 || shape[1] == 1 && shape[3] == images[3]
}

func stripConvolution(check func(g *relay.Graph, m *relay.Match, l *onednn.Convolution, w weights) error) func(
	*relay.Graph, *relay.Match, onednn.Layer) error {
	return func(g *relay.Graph, m *relay.Match, layer onednn.Layer) error {
		l := layer.(*onednn.Convolution)
		w := weightsOf(g, l)
		if !w.constant || !isConstantOrAbsent(g, l.Epilogue.Bias) {
			return fmt.Errorf("the kernel strips needs a weight and a bias that are constants")
		}
		if err := check(g, m, l, w); err != nil {
			return err
		}
		return checkStripResult(g, m)
	}
}

func checkPointwise(_ *relay.Graph, _ *relay.Match, l *onednn.Convolution, w weights) error {
	if l.Groups != 1 {
		return fmt.Errorf("the kernel strips has no grouped 1x1 convolutions")
	}
	return checkUnit(l, w)
}

// checkExpansion wants a 1x1 convolution whose result is read by windows alone: what else reads it would need all of
// it.
func checkExpansion(g *relay.Graph, m *relay.Match, l *onednn.Convolution, w weights) error {
	if err := checkPointwise(g, m, l, w); err != nil {
		return err
	}
	readers := g.Consumers(m.Root)
	if len(readers) == 0 || g.ScopeRoot(m.Root) {
		return fmt.Errorf("the kernel expansion works ahead of what reads its result, and nothing does")
	}
	for _, reader := range readers {
		if n := &g.Nodes[reader]; len(n.Inputs) == 0 || n.Inputs[0] != m.Root || !isWindow(g, n) {
			return fmt.Errorf("the kernel expansion works ahead of depthwise convolutions and pools, and %s reads its "+
				"result", n.Op)
		}
	}
	return nil
}

// isWindow says that a call is a pool or a depthwise convolution with one channel in and out of each group.
func isWindow(g *relay.Graph, n *relay.Node) bool {
	switch n.Op {
	case "nn.max_pool2d", "nn.avg_pool2d":
		return true
	case "nn.conv2d":
		groups, _ := n.Attrs.Int("groups")
		layout, _ := n.Attrs.String("data_layout")
		at := strings.IndexByte(layout, 'C')
		data := g.Nodes[n.Inputs[0]].Type.Shape
		return groups > 1 && at >= 0 && at < min(len(data), n.Type.Rank()) && data[at] == groups &&
			n.Type.Shape[at] == groups
	}
	return false
}

func checkDepthwise(g *relay.Graph, _ *relay.Match, l *onednn.Convolution, w weights) error {
	channels := g.Nodes[l.Data].Type.Shape[strings.IndexByte(l.DataLayout, 'C')]
	if l.Groups == 1 || l.Groups != channels || w.out != channels {
		return fmt.Errorf("the kernel strips has depthwise convolutions with one channel in and out of each group; "+
			"this one makes %d of %d in %d groups",
			w.out, channels, l.Groups)
	}
	return nil
}

func checkStripPool(layer onednn.Layer) error {
	p := layer.(*onednn.Pool)
	if p.Layout != "NCHW" && p.Layout != "NHWC" {
		return fmt.Errorf("the kernel strips has data in NCHW or NHWC, this pool has it in %s", p.Layout)
	}
	return nil
}

func checkStripConcatenation(layer onednn.Layer) error {
	if axis := layer.(*onednn.Concatenation).Axis; axis != 1 && axis != 3 {
		return fmt.Errorf("the kernel strips concatenates channels, which are axis 1 or 3, not %d", axis)
	}
	return nil
}

// checkUnit wants a kernel that sees one pixel.
func checkUnit(l *onednn.Convolution, w weights) error {
	if !all(w.kernel, 1) || !all(l.Strides, 1) || !all(l.Padding, 0) {
		return fmt.Errorf("the convolution has a kernel %s, strides %s and padding %s; wanted is one element, "+
			"strides of 1 and no padding",
			relay.IntsText(w.kernel), relay.IntsText(l.Strides), relay.IntsText(l.Padding))
	}
	return nil
}
