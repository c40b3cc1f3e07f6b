// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// GridKernel rounds numbers to the 256 steps of a scale (byoc/runtime/native/post.h, Post::Kind::kGrid): what a network
// that came quantised does between its layers, a quantisation and the way back. It is done on the way out of the layer
// before, and what the kernel bytes reads has its scale then, which need not be found.
const GridKernel = "grid"

// The names that its pattern gives to constants.
const (
	gridScale, gridZero         = "grid.scale", "grid.zero"
	gridScaleBack, gridZeroBack = "grid.scale back", "grid.zero back"
	gridSteps                   = "grid.steps" // the bytes
	gridData                    = "data"
)

// gridLeast is the least step of each type, zero being 0.
var gridLeast = map[string]float64{"uint8": 0, "int8": -128}

// GridRules offers it under a composite's name: native does, and whoever multiplies bytes in the regions of dnnl, so
// that where native is not among the backends a network's own scales are known there, too.
func GridRules(composite string) []*onednn.Rule {
	constant := func(name string) relay.Pattern { return relay.Named(name, relay.IsConstant()) }
	steps := relay.Op("qnn.quantize", relay.Named(gridData, relay.Wildcard()), constant(gridScale), constant(gridZero))
	return []*onednn.Rule{{
		Pattern: byoc.Pattern{
			Composite: composite,
			Kernel:    GridKernel,
			Shape: relay.Op("qnn.dequantize", relay.Named(gridSteps, steps), constant(gridScaleBack),
				constant(gridZeroBack)),
			Limits: func(g *relay.Graph, m *relay.Match) error {
				_, err := readGrid(g, m)
				return err
			},
			LimitsText: "float32, static shapes, at most 6 dimensions, uint8 or int8, one scale and zero for all, the same " +
				"on the way back",
		},
		Read: func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) { return readGrid(g, m) },
		Own:  true,
		Ours: true,
	}}
}

// readGrid gives the function of a match: Alpha is its scale, Beta the least step.
func readGrid(g *relay.Graph, m *relay.Match) (*onednn.Elementwise, error) {
	data := m.Named[gridData]
	if _, err := onednn.TensorAt(g, data, "the argument of qnn.quantize"); err != nil {
		return nil, err
	}
	if _, err := onednn.TensorAt(g, m.Root, "the result of qnn.dequantize"); err != nil {
		return nil, err
	}
	dtype := g.Nodes[m.Named[gridSteps]].Type.DType
	least, ok := gridLeast[dtype]
	if !ok {
		return nil, fmt.Errorf("the kernel %s rounds to uint8 or int8, not to %s", GridKernel, dtype)
	}
	number := func(name string) float64 {
		if c := g.Nodes[m.Named[name]].Constant; c != nil {
			return c.Scalar
		}
		return math.NaN()
	}
	scale, zero := number(gridScale), number(gridZero)
	switch {
	case math.IsNaN(scale) || math.IsNaN(zero):
		return nil, fmt.Errorf("the kernel %s has one scale and one zero for all elements", GridKernel)
	case number(gridScaleBack) != scale || number(gridZeroBack) != zero:
		return nil, fmt.Errorf("what is quantised by the scale %g and the zero %g comes back by others, %g and %g", scale,
			zero, number(gridScaleBack), number(gridZeroBack))
	case scale < 0x1p-126 || scale > math.MaxFloat32:
		return nil, fmt.Errorf("the scale of qnn.quantize is %g, which is no length of a step", scale)
	case zero < least || zero > least+255:
		return nil, fmt.Errorf("the zero of qnn.quantize is %g, which is no %s", zero, dtype)
	}
	return &onednn.Elementwise{Function: GridKernel, Alpha: scale, Beta: least - zero, Data: data}, nil
}
