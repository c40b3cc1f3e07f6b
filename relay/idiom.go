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

// The functions of one number that front ends write with several operators. Each gives the pattern of what they write
// of what p matches; every backend that looks for one looks for these.

// Swish is x * sigmoid(x), SiLU by its other name.
func Swish(p Pattern) Pattern { return Op("multiply", p, Op("sigmoid", p)) }

// Mish is x * tanh(log(e^x + 1)).
func Mish(p Pattern) Pattern {
	soft := Op("log", Op("add", Op("exp", p), Scalar(1)))
	return Op("multiply", p, Op("tanh", soft))
}

// Gelu is x/2 * (1 + erf(x/√2)).
func Gelu(p Pattern) Pattern {
	erf := Op("erf", Or(Op("divide", p, Scalar(math.Sqrt2)), Op("multiply", p, Scalar(math.Sqrt2/2))))
	return halfTimesOnePlus(p, erf)
}

// GeluTanh is x/2 * (1 + tanh(√(2/π) (x + 0.044715 x³))).
func GeluTanh(p Pattern) Pattern {
	const third = 0.044715
	first := math.Sqrt(2 / math.Pi)
	cube := Or(Op("power", p, Scalar(3)), Op("multiply", p, Op("multiply", p, p)))
	inner := Or(
		Op("multiply", Op("add", p, Op("multiply", cube, Scalar(third))), Scalar(first)),
		// ONNX's FastGelu
		Op("add", Op("multiply", p, Scalar(first)), Op("multiply", cube, Scalar(third*first))),
		// x √(2/π) (1 + 0.044715 x x)
		Op("multiply", Op("multiply", p, Scalar(first)), Op("add", Scalar(1), Or(
			Op("multiply", Op("multiply", p, Scalar(third)), p),
			Op("multiply", Op("multiply", p, p), Scalar(third))))),
	)
	return halfTimesOnePlus(p, Op("tanh", inner))
}

// halfTimesOnePlus is x/2 * (1 + y).
func halfTimesOnePlus(x, y Pattern) Pattern {
	onePlus := Op("add", y, Scalar(1))
	return Or(
		Op("multiply", Op("multiply", x, onePlus), Scalar(0.5)),
		Op("multiply", Op("multiply", x, Scalar(0.5)), onePlus),
		Op("multiply", x, Op("multiply", onePlus, Scalar(0.5))),
		// PyTorch: x * (0.5 + y * 0.5)
		Op("multiply", x, Op("add", Op("multiply", y, Scalar(0.5)), Scalar(0.5))),
	)
}

// The names under which HardSigmoid enters its constants, where they are not 1/6 and 1/2.
const (
	hardSlope   = "hard_sigmoid.slope"
	hardDivisor = "hard_sigmoid.divisor"
	hardOffset  = "hard_sigmoid.offset"
)

// HardSigmoid is clip(alpha x + beta, 0, 1); HardSigmoidOf says of a match what alpha and beta are.
func HardSigmoid(p Pattern) Pattern {
	sloped := Or(
		Op("multiply", p, Named(hardSlope, IsConstant())),
		Op("divide", p, Named(hardDivisor, IsConstant())),
	)
	return Or(
		sixth(reluSix(p)),
		clipped(Op("add", sloped, Named(hardOffset, IsConstant())), 0, 1),
	)
}

// HardSigmoidOf gives the numbers of a match of HardSigmoid: not a number where a constant is no single one.
func HardSigmoidOf(g *Graph, m *Match) (alpha, beta float64) {
	number := func(name string, otherwise float64) float64 {
		id, ok := m.Named[name]
		switch {
		case !ok:
			return otherwise
		case g.Nodes[id].Constant == nil:
			return math.NaN()
		}
		return g.Nodes[id].Constant.Scalar
	}
	return number(hardSlope, 1/number(hardDivisor, 6)), number(hardOffset, 0.5)
}

// HardSwish is x * clip(x/6 + 1/2, 0, 1).
func HardSwish(p Pattern) Pattern {
	return Or(
		// PyTorch, and ONNX's HardSwish
		Op("multiply", p, Or(sixth(reluSix(p)), clipped(Op("add", sixth(p), Scalar(0.5)), 0, 1))),
		// TensorFlow Lite, and what PyTorch exports
		sixth(Op("multiply", p, reluSix(p))),
		Op("multiply", sixth(p), reluSix(p)),
	)
}

// reluSix is clip(x + 3, 0, 6).
func reluSix(p Pattern) Pattern { return clipped(Op("add", p, Scalar(3)), 0, 6) }

func sixth(p Pattern) Pattern {
	return Or(Op("divide", p, Scalar(6)), Op("multiply", p, Scalar(1.0/6)))
}

// clipped is clip with those bounds.
func clipped(p Pattern, low, high float64) Pattern {
	return Where(Op("clip", p), func(g *Graph, id NodeID) bool {
		least, ok := g.Nodes[id].Attrs.Float("a_min")
		most, there := g.Nodes[id].Attrs.Float("a_max")
		return ok && there && least == low && most == high
	})
}
