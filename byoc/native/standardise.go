// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// Standardise is the normalisation in which epsilon is added to the standard deviation, over the last axis:
// gain * (x - mean) / (deviation + epsilon) + shift. oneDNN has only the one in which it is added to the variance.
type Standardise struct {
	Data, Gain, Shift relay.NodeID
	Epsilon           float64
	// Unbiased says that the variance is divided by one less than the number of elements.
	Unbiased bool
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
				Composite:  "native.standardise",
				Kernel:     "rows",
				Shape:      relay.Op("add", scaled, relay.Named("shift", relay.Wildcard())),
				Limits:     checkStandardise,
				LimitsText: standardiseLimits + ", with scale and shift",
			},
			Read: func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
				unbiased, _ := g.Nodes[m.Named["variance"]].Attrs.Bool("unbiased")
				return &Standardise{
					Data: m.Named["data"], Gain: m.Named["gain"], Shift: m.Named["shift"],
					Epsilon: g.Nodes[m.Named["epsilon"]].Constant.Scalar, Unbiased: unbiased,
				}, nil
			},
		},
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
