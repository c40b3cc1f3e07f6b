// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// standardise is the normalisation in which epsilon is added to the standard deviation, over the last axis:
// gain * (x - mean) / (deviation + epsilon) + shift. oneDNN has only the one in which it is added to the variance; the
// runtime has a kernel of its own.
type standardise struct {
	data, gain, shift relay.NodeID
	epsilon           float64
	// unbiased says that the variance is divided by one less than the number of elements.
	unbiased bool
}

// variance is the mean square about a mean that is given.
type variance struct {
	data, mean relay.NodeID
	axes       []int64
	unbiased   bool
}

const standardiseLimits = "float32, static shapes, at most 6 dimensions, over the last axis"

func standardiseRules() []*onednn.Rule {
	x := relay.Named("data", relay.Wildcard())
	mean := relay.Op("mean", x)
	centred := relay.Op("subtract", x, mean)
	spread := relay.Named("variance", relay.Or(
		relay.Op("variance", x, mean),
		relay.Op("variance", x, relay.Op("mean", x)))) // computed a second time
	deviation := relay.Op("add", relay.Op("sqrt", spread), relay.Named("epsilon", relay.IsConstant()))
	gain := relay.Named("gain", relay.Wildcard())
	scaled := relay.Or(
		relay.Op("divide", relay.Op("multiply", gain, centred), deviation),
		relay.Op("multiply", gain, relay.Op("divide", centred, deviation)))
	return []*onednn.Rule{
		{
			Pattern: byoc.Pattern{
				Composite:  "dnnl.standardise",
				Shape:      relay.Op("add", scaled, relay.Named("shift", relay.Wildcard())),
				Limits:     checkStandardise,
				LimitsText: standardiseLimits + ", with scale and shift",
			},
			Read: func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
				unbiased, _ := g.Nodes[m.Named["variance"]].Attrs.Bool("unbiased")
				return &standardise{
					data: m.Named["data"], gain: m.Named["gain"], shift: m.Named["shift"],
					epsilon: g.Nodes[m.Named["epsilon"]].Constant.Scalar, unbiased: unbiased,
				}, nil
			},
		},
		onednn.Bare("variance", nil, checkVariance, shapeLimits+", axes that follow one another",
			func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
				n := &g.Nodes[m.Root]
				axes, err := reduceAxes(g, n)
				unbiased, _ := n.Attrs.Bool("unbiased")
				return &variance{data: n.Inputs[0], mean: n.Inputs[1], axes: axes, unbiased: unbiased}, err
			}),
	}
}

func checkStandardise(g *relay.Graph, m *relay.Match) error {
	data, err := onednn.TensorAt(g, m.Named["data"], "the argument")
	if err != nil {
		return err
	}
	if len(data.Shape) == 0 {
		return fmt.Errorf("the argument is a single number")
	}
	length := data.Shape[len(data.Shape)-1]
	for _, role := range []string{"gain", "shift"} {
		t, err := onednn.TensorAt(g, m.Named[role], "the "+role)
		if err != nil {
			return err
		}
		if m.Covers(m.Named[role]) || len(t.Shape) != 1 || t.Shape[0] != length {
			return fmt.Errorf("the %s has the shape %s; it must be [%d], made outside of the pattern", role, relay.ShapeText(t.Shape), length)
		}
	}
	epsilon := g.Nodes[m.Named["epsilon"]].Constant
	if epsilon == nil || !(epsilon.Scalar >= 0) || len(epsilon.Shape) > 1 {
		return fmt.Errorf("the epsilon is not a single number that is not negative")
	}
	for _, id := range m.Nodes {
		n := &g.Nodes[id]
		t, err := onednn.TensorAt(g, id, "a value inside the pattern")
		if err != nil {
			return err
		}
		if len(t.Shape) != len(data.Shape) {
			return fmt.Errorf("a value inside the pattern has the shape %s", relay.ShapeText(t.Shape))
		}
		if n.Op == "mean" || n.Op == "variance" {
			if err := onednn.CheckOverLastAxis(n, len(data.Shape), "the pattern"); err != nil {
				return err
			}
		}
	}
	if unbiased, _ := g.Nodes[m.Named["variance"]].Attrs.Bool("unbiased"); unbiased && length == 1 {
		return fmt.Errorf("the unbiased variance of one element is not a number")
	}
	return nil
}

func checkVariance(g *relay.Graph, m *relay.Match) error {
	c, err := onednn.CheckedCall(g, m.Root, "argument", "mean")
	if err != nil {
		return err
	}
	axes, err := reduceAxes(g, c.Node)
	if err != nil {
		return err
	}
	data, mean := c.In[0].Shape, c.In[1].Shape
	length := int64(1)
	for i, d := range data {
		reduced := int64(i) >= axes[0] && int64(i) <= axes[len(axes)-1]
		if reduced {
			length *= d
			d = 1
		}
		if len(mean) != len(data) || mean[i] != d {
			return fmt.Errorf("variance is about a mean of the shape %s for %s", relay.ShapeText(mean), relay.ShapeText(data))
		}
	}
	if unbiased, _ := c.Node.Attrs.Bool("unbiased"); unbiased && length == 1 {
		return fmt.Errorf("the unbiased variance of one element is not a number")
	}
	return nil
}
