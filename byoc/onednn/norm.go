// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

const layerNormLimits = "float32, static shapes, 2 to 5 dimensions, over the last axis, with scale and shift"

// LayerNormRules offers layer normalisation: the operator, and the arithmetic that TVM's SimplifyInference,
// the ONNX importer and exporters write for it.
func LayerNormRules() []*Rule {
	return []*Rule{
		Bare("nn.layer_norm", []string{roleData, roleGamma, roleBeta}, checkLayerNorm, layerNormLimits,
			func(g *relay.Graph, m *relay.Match) (Layer, error) {
				epsilon, _ := g.Nodes[m.Root].Attrs.Float("epsilon")
				return readLayerNorm(m, epsilon), nil
			}),
		{
			Pattern: byoc.Pattern{
				Composite:  "dnnl.layer_norm",
				Shape:      unfoldedLayerNorm(),
				Limits:     checkUnfoldedLayerNorm,
				LimitsText: layerNormLimits,
			},
			Read: func(g *relay.Graph, m *relay.Match) (Layer, error) {
				return readLayerNorm(m, g.Nodes[m.Named["epsilon"]].Constant.Scalar), nil
			},
			Own: true,
		},
	}
}

// unfoldedLayerNorm is (x - mean(x)) / sqrt(variance(x) + epsilon) * gamma + beta.
func unfoldedLayerNorm() relay.Pattern {
	scaled := relay.Op("multiply", Normalised(relay.Named(roleData, relay.Wildcard())),
		relay.Named(roleGamma, relay.Wildcard()))
	return relay.Op("add", scaled, relay.Named(roleBeta, relay.Wildcard()))
}

// Normalised is (x - mean(x)) / sqrt(variance(x) + epsilon), as TVM and exporters write it; "epsilon" is named.
func Normalised(x relay.Pattern) relay.Pattern {
	mean := relay.Named("mean", relay.Op("mean", x))
	centred := relay.Named("centred", relay.Op("subtract", x, mean))
	variance := relay.Named("variance", relay.Or(
		relay.Op("variance", x, mean),
		relay.Op("variance", x, relay.Op("mean", x)), // computed a second time
		relay.Op("mean", relay.Or(
			relay.Op("power", centred, relay.Scalar(2)),
			relay.Op("multiply", centred, centred)))))
	return DividedByRoot(centred, variance)
}

// DividedByRoot is x / sqrt(square + epsilon), as TVM and exporters write it; "epsilon" is named.
func DividedByRoot(x, square relay.Pattern) relay.Pattern {
	shifted := relay.Op("add", square, relay.Named("epsilon", relay.IsConstant()))
	root := relay.Op("sqrt", shifted)
	return relay.Or(
		relay.Op("divide", x, root),
		relay.Op("multiply", x, relay.Op("divide", relay.Scalar(1), root)),
		relay.Op("multiply", x, relay.Op("rsqrt", shifted)))
}

func readLayerNorm(m *relay.Match, epsilon float64) Layer {
	return &LayerNorm{Data: m.Named[roleData], Gamma: m.Named[roleGamma], Beta: m.Named[roleBeta], Epsilon: epsilon}
}

// checkScaleAndShift checks what both forms of layer normalisation share.
func checkScaleAndShift(g *relay.Graph, m *relay.Match, epsilon float64) error {
	data, err := TensorAt(g, m.Named[roleData], "the argument of layer_norm")
	if err != nil {
		return err
	}
	if len(data.Shape) < 2 || len(data.Shape) > 5 {
		return fmt.Errorf("layer_norm has an argument of %d dimensions; 2 to 5 are supported", len(data.Shape))
	}
	channels := data.Shape[len(data.Shape)-1]
	for _, role := range []string{roleGamma, roleBeta} {
		if m.Covers(m.Named[role]) {
			return fmt.Errorf("the %s of layer_norm is made inside the pattern", role)
		}
		t, err := TensorAt(g, m.Named[role], "the "+role+" of layer_norm")
		if err != nil {
			return err
		}
		if len(t.Shape) != 1 || t.Shape[0] != channels {
			return fmt.Errorf("the %s of layer_norm has the shape %s; it must be [%d]", role, relay.ShapeText(t.Shape),
				channels)
		}
	}
	if epsilon < 0 {
		return fmt.Errorf("the epsilon of layer_norm is %g", epsilon)
	}
	return FitsFloat32("the epsilon of layer_norm", epsilon)
}

func checkLayerNorm(g *relay.Graph, m *relay.Match) error {
	n := &g.Nodes[m.Root]
	if _, err := CheckedCall(g, m.Root, "argument"); err != nil {
		return err
	}
	axis, ok := n.Attrs.Int("axis")
	if !ok {
		return fmt.Errorf("nn.layer_norm has no usable attribute \"axis\"")
	}
	if err := lastAxis(n.Op, axis, g.Nodes[m.Root].Type.Rank()); err != nil {
		return err
	}
	if center, _ := n.Attrs.Bool("center"); !center {
		return fmt.Errorf("nn.layer_norm without its shift (center) is not supported")
	}
	if scale, _ := n.Attrs.Bool("scale"); !scale {
		return fmt.Errorf("nn.layer_norm without its scale is not supported")
	}
	epsilon, ok := n.Attrs.Float("epsilon")
	if !ok {
		return fmt.Errorf("nn.layer_norm has no usable attribute \"epsilon\"")
	}
	return checkScaleAndShift(g, m, epsilon)
}

func checkUnfoldedLayerNorm(g *relay.Graph, m *relay.Match) error {
	epsilon := g.Nodes[m.Named["epsilon"]].Constant
	if epsilon == nil || math.IsNaN(epsilon.Scalar) {
		return fmt.Errorf("the epsilon of layer_norm is not a single number")
	}
	if err := checkScaleAndShift(g, m, epsilon.Scalar); err != nil {
		return err
	}
	data := g.Nodes[m.Named[roleData]].Type
	root, err := TensorAt(g, m.Root, "the result of layer_norm")
	if err != nil {
		return err
	}
	if !slices.Equal(root.Shape, data.Shape) {
		return fmt.Errorf("layer_norm makes %s of %s", relay.ShapeText(root.Shape), relay.ShapeText(data.Shape))
	}
	for _, id := range m.Nodes {
		n := &g.Nodes[id]
		if t, err := TensorAt(g, id, "a value inside layer_norm"); err != nil {
			return err
		} else if len(t.Shape) != len(data.Shape) {
			return fmt.Errorf("a value inside layer_norm has the shape %s", relay.ShapeText(t.Shape))
		}
		if n.Op != "mean" && n.Op != "variance" {
			continue
		}
		if err := CheckOverLastAxis(n, len(data.Shape), "layer_norm"); err != nil {
			return err
		}
		if unbiased, _ := n.Attrs.Bool("unbiased"); unbiased {
			return fmt.Errorf("the variance inside layer_norm is the unbiased one")
		}
	}
	return nil
}

// CheckOverLastAxis checks that a mean or variance, which is part of what, is over the last of rank axes and keeps it.
func CheckOverLastAxis(n *relay.Node, rank int, what string) error {
	axes, err := AttrInts(n, "axis")
	if err != nil || len(axes) != 1 {
		return fmt.Errorf("the %s inside %s is not over one axis", n.Op, what)
	}
	if err := lastAxis("the "+n.Op+" inside "+what, axes[0], rank); err != nil {
		return err
	}
	if keep, _ := n.Attrs.Bool("keepdims"); !keep {
		return fmt.Errorf("the %s inside %s drops its axis", n.Op, what)
	}
	if exclude, _ := n.Attrs.Bool("exclude"); exclude {
		return fmt.Errorf("the %s inside %s is over all axes but one", n.Op, what)
	}
	return nil
}

const batchNormLimits = "float32, static shapes, 2 to 5 dimensions, axis 1, with scale and shift, only the first " +
	"result used"

// BatchNormRules offers nn.batch_norm in inference form. TVM's SimplifyInference usually takes it apart
// before, and FoldScaleAxis folds it into a convolution.
func BatchNormRules() []*Rule {
	roles := []string{roleData, roleGamma, roleBeta, "mean", "variance"}
	args := make([]relay.Pattern, len(roles))
	for i, role := range roles {
		args[i] = relay.Named(role, relay.Wildcard())
	}
	return []*Rule{{
		Pattern: byoc.Pattern{
			Composite:  "dnnl.batch_norm",
			Shape:      relay.TupleGetItem(relay.Named(roleAnchor, relay.Op("nn.batch_norm", args...)), 0),
			Limits:     func(g *relay.Graph, m *relay.Match) error { return checkBatchNorm(g, m, roles) },
			LimitsText: batchNormLimits,
		},
		Read: func(g *relay.Graph, m *relay.Match) (Layer, error) {
			epsilon, _ := g.Nodes[m.Named[roleAnchor]].Attrs.Float("epsilon")
			return &BatchNorm{Data: m.Named[roleData], Gamma: m.Named[roleGamma], Beta: m.Named[roleBeta],
				Mean: m.Named["mean"], Variance: m.Named["variance"], Epsilon: epsilon}, nil
		},
		Own: true,
	}}
}

func checkBatchNorm(g *relay.Graph, m *relay.Match, roles []string) error {
	n := &g.Nodes[m.Named[roleAnchor]]
	data, err := TensorAt(g, m.Named[roleData], "the argument of nn.batch_norm")
	if err != nil {
		return err
	}
	rank := len(data.Shape)
	if rank < 2 || rank > 5 {
		return fmt.Errorf("nn.batch_norm has an argument of %d dimensions; 2 to 5 are supported", rank)
	}
	for _, role := range roles[1:] {
		t, err := TensorAt(g, m.Named[role], "the "+role+" of nn.batch_norm")
		if err != nil {
			return err
		}
		if len(t.Shape) != 1 || t.Shape[0] != data.Shape[1] {
			return fmt.Errorf("the %s of nn.batch_norm has the shape %s; it must be [%d]", role,
				relay.ShapeText(t.Shape), data.Shape[1])
		}
	}
	axis, ok := n.Attrs.Int("axis")
	if !ok || axis != 1 && axis != int64(1-rank) {
		return fmt.Errorf("nn.batch_norm works along axis %d; only axis 1 is supported", axis)
	}
	for _, name := range []string{"center", "scale"} {
		if on, _ := n.Attrs.Bool(name); !on {
			return fmt.Errorf("nn.batch_norm without %s is not supported", name)
		}
	}
	epsilon, ok := n.Attrs.Float("epsilon")
	if !ok || epsilon < 0 {
		return fmt.Errorf("nn.batch_norm has no usable attribute \"epsilon\"")
	}
	return FitsFloat32("the epsilon of nn.batch_norm", epsilon)
}
