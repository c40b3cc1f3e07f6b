// SPDX-License-Identifier: Apache-2.0

package relay

import "math"

// Scalar matches a constant of one element with that value, to the precision of its type (float64's where it is that,
// else float32's).
func Scalar(value float64) Pattern {
	return Where(IsConstant(), func(g *Graph, id NodeID) bool {
		c := g.Nodes[id].Constant
		if c == nil {
			return false
		}
		precision := 1e-6
		if c.DType == "float64" {
			precision = 1e-14
		}
		return math.Abs(c.Scalar-value) <= precision*math.Abs(value)
	})
}

// Gelu is x/2 * (1 + erf(x/√2)) of what p matches, in the forms in which front ends write it.
func Gelu(p Pattern) Pattern {
	erf := Op("erf", Or(Op("divide", p, Scalar(math.Sqrt2)), Op("multiply", p, Scalar(math.Sqrt2/2))))
	onePlus := Op("add", erf, Scalar(1))
	return Or(
		Op("multiply", Op("multiply", p, onePlus), Scalar(0.5)),
		Op("multiply", Op("multiply", p, Scalar(0.5)), onePlus),
		Op("multiply", p, Op("multiply", onePlus, Scalar(0.5))),
		// PyTorch: x * (0.5 + erf(x * √½) * 0.5)
		Op("multiply", p, Op("add", Op("multiply", erf, Scalar(0.5)), Scalar(0.5))),
	)
}
