// SPDX-License-Identifier: Apache-2.0

package native

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// roundTrip is a tensor that is quantised to a type and comes back by a scale and a zero of its own.
type roundTrip struct {
	from, through         string
	scale, zero           float64
	scaleBack, zeroBack   float64
	scales                []int64 // the shape of the scales; nil for one number
	scaleThatIsNoConstant bool
}

func (c roundTrip) graph() *relay.Graph {
	m := relay.NewGraph("main")
	number := func(value float64, dtype string) relay.NodeID {
		if c.scales != nil && dtype == f32 {
			return m.Const(c.scales, dtype)
		}
		return m.Scalar(value, dtype)
	}
	var scale relay.NodeID
	if c.scaleThatIsNoConstant {
		scale = m.Var(nil, f32)
	} else {
		scale = number(c.scale, f32)
	}
	steps := m.Call("qnn.quantize", relay.Tensor(c.through, 2, 3), nil, m.Var([]int64{2, 3}, c.from), scale,
		number(c.zero, "int32"))
	return m.Finish(m.Call("qnn.dequantize", f(2, 3), nil, steps, number(c.scaleBack, f32), number(c.zeroBack, "int32")))
}

func TestGridLimits(t *testing.T) {
	plain := roundTrip{from: f32, through: "uint8", scale: 0.5, scaleBack: 0.5, zero: 7, zeroBack: 7}
	for name, c := range map[string]struct {
		change  func(*roundTrip)
		refusal string
	}{
		"unsigned": {func(*roundTrip) {}, ""},
		"signed":   {func(c *roundTrip) { c.through, c.zero, c.zeroBack = "int8", -128, -128 }, ""},
		"to words": {func(c *roundTrip) { c.through = "int16" }, "the kernel grid rounds to uint8 or int8, not to int16"},
		"of integers": {func(c *roundTrip) { c.from = "int32" },
			"the argument of qnn.quantize is int32; only float32 is supported"},
		"by channel": {func(c *roundTrip) { c.scales = []int64{3} },
			"the kernel grid has one scale and one zero for all elements"},
		"back by another scale": {func(c *roundTrip) { c.scaleBack = 0.25 },
			"what is quantised by the scale 0.5 and the zero 7 comes back by others, 0.25 and 7"},
		"back by another zero": {func(c *roundTrip) { c.zeroBack = 0 },
			"what is quantised by the scale 0.5 and the zero 7 comes back by others, 0.5 and 0"},
		"by nothing": {func(c *roundTrip) { c.scale, c.scaleBack = 0, 0 },
			"the scale of qnn.quantize is 0, which is no length of a step"},
		"by less": {func(c *roundTrip) { c.scale, c.scaleBack = -1, -1 },
			"the scale of qnn.quantize is -1, which is no length of a step"},
		"a zero beyond": {func(c *roundTrip) { c.zero, c.zeroBack = 256, 256 },
			"the zero of qnn.quantize is 256, which is no uint8"},
		"a scale from outside": {func(c *roundTrip) { c.scaleThatIsNoConstant = true }, "it is no match"},
	} {
		trip := plain
		c.change(&trip)
		require.Equal(t, c.refusal, verdict(t, trip.graph(), "native.grid"), name)
	}
}

func TestGridHasTheLeastStep(t *testing.T) {
	for _, c := range []struct {
		through     string
		zero, least float64
	}{{"uint8", 0, 0}, {"uint8", 255, -255}, {"int8", 0, -128}, {"int8", -128, 0}, {"int8", 127, -255}} {
		trip := roundTrip{from: f32, through: c.through, scale: 0.5, scaleBack: 0.5, zero: c.zero, zeroBack: c.zero}
		g := trip.graph()
		rule := GridRules("native.grid")[0]
		matches := g.Match(rule.Shape, g.Root())
		require.Len(t, matches, 1)
		layer, err := rule.Read(g, matches[0])
		require.NoError(t, err)
		data := matches[0].Named[gridData]
		require.Equal(t, &onednn.Elementwise{Function: GridKernel, Alpha: 0.5, Beta: c.least, Data: data}, layer)
	}
}
