// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/inbytes"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Networks that come quantised round values to bytes and back between their layers. OpenVINO's own form of that is what
// its ONNX front end writes: FakeQuantize to the numbers from 0 to 255, a conversion, and back; where it finds that
// before a convolution or product, and the same before its weights, it multiplies bytes. A clip that follows it puts
// into the bounds of the FakeQuantize, so that all steps between them move, by up to half a step: only what has an
// error limit is written so. Otherwise the arithmetic is spelled out.

// leastByte is the least of each type that is quantised to.
var leastByte = map[string]float64{"uint8": 0, "int8": -128}

func quantisations() map[string]*operator {
	const limits = "uint8 or int8, static shapes, one scale and zero for all, constants"
	return map[string]*operator{
		"qnn.quantize":   {func(c *call) error { return checkSteps(c, c.in[0], c.out[0]) }, writeQuantize, limits},
		"qnn.dequantize": {func(c *call) error { return checkSteps(c, c.out[0], c.in[0]) }, writeDequantize, limits},
	}
}

// checkSteps checks a call that leads from float32 to steps, or back.
func checkSteps(c *call, wide, steps *relay.Type) error {
	if err := c.tensor(wide, "what is or was quantised", []string{"float32"}); err != nil {
		return err
	}
	if err := c.tensor(steps, "steps", []string{"uint8", "int8"}); err != nil {
		return err
	}
	least := leastByte[steps.DType]
	scale, zero := c.numberOf(1), c.numberOf(2)
	switch {
	case math.IsNaN(scale) || math.IsNaN(zero):
		return c.refuse("has a scale or a zero that is not one constant number for all elements")
	case scale < 0x1p-126 || scale > math.MaxFloat32/256:
		return c.refuse("has the scale %g, which is no length of a step", scale)
	case zero < least || zero > least+255:
		return c.refuse("has the zero %g, which is no %s", zero, steps.DType)
	}
	return nil
}

// numberOf is an argument that is one constant number; not a number for any other.
func (c *call) numberOf(argument int) float64 {
	if constant := c.constants[argument]; constant != nil {
		return constant.Scalar
	}
	return math.NaN()
}

func writeQuantize(w *writer, c *call, in []port) []port {
	least := leastByte[c.out[0].DType]
	scale, zero := c.numberOf(1), c.numberOf(2)
	number := func(v float64) port { return w.scalar("float32", v) }
	t := tensor("float32", c.out[0].Shape...)
	var steps port
	if w.precision != byoc.F32 {
		steps = w.one("FakeQuantize", "opset1", t, append([]xml.Attr{attr("levels", "256")}, numpyBroadcast...), in[0],
			number((least-zero)*scale), number((least+255-zero)*scale), number(least), number(least+255))
	} else {
		steps = w.binary("Divide", t, in[0], number(scale))
		steps = w.one("Round", "opset5", t, halfAwayFromZero, steps)
		steps = w.binary("Add", t, steps, number(zero))
		steps = w.clamp(steps, least, least+255)
	}
	return []port{w.convert(steps, c.out[0].DType)}
}

func writeDequantize(w *writer, c *call, in []port) []port {
	return []port{w.scaled(w.convert(in[0], "float32"), w.scalar("float32", c.numberOf(2)),
		w.scalar("float32", c.numberOf(1)))}
}

// scaled is (p - zero) * scale.
func (w *writer) scaled(p, zero, scale port) port {
	return w.binary("Multiply", p.typ, w.binary("Subtract", p.typ, p, zero), scale)
}

// inBytes is the backend that multiplies bytes.
type inBytes struct {
	narrow
	graphs *inbytes.Quantised
}

// Rounded implements byoc.Rounding: what is multiplied by constants, unless the network comes quantised.
func (b inBytes) Rounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	var values []relay.NodeID
	for _, v := range b.graphs.Products(g, nodes) {
		values = append(values, g.Nodes[v].Inputs[0])
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// WeightsRounded implements byoc.RoundsWeights.
func (b inBytes) WeightsRounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	return b.graphs.Products(g, nodes)
}

// roundedWeights gives the weights of a region, by value, that only multiply what comes from bytes: they are to be
// bytes themselves.
func roundedWeights(p *region.Program, precisions []byoc.Precision) map[region.ValueID]bool {
	list := map[region.ValueID]bool{}
	others := map[region.ValueID]bool{}
	for i := range p.Ops {
		op := &p.Ops[i]
		fits := precisions[i] == byoc.INT8 && inbytes.Multiplies(op.Name) && len(op.Args) > 1 &&
			p.IsConstant(op.Args[1]) && fromBytes(p, op.Args[0])
		for k, v := range op.Args {
			if k == 1 && fits {
				list[v] = true
			} else {
				others[v] = true
			}
		}
	}
	for _, v := range p.Outputs {
		others[v] = true
	}
	for v := range others {
		delete(list, v)
	}
	return list
}

// fromBytes says that a value came from bytes: some region's operator made it so, and what stands between moves it
// only.
func fromBytes(p *region.Program, v region.ValueID) bool {
	for {
		maker := p.Values[v].Producer
		if maker < 0 {
			return false
		}
		switch op := &p.Ops[maker]; op.Name {
		case "qnn.dequantize":
			return true
		case "reshape", "transpose", "nn.batch_flatten", "nn.max_pool2d":
			v = op.Args[0]
		default:
			return false
		}
	}
}

// weightOfBytes adds a weight as bytes with a scale for each channel of the result, which become what they stand for;
// ok says that all of it is finite: else nothing is added. elements are the weight's.
func (w *writer) weightOfBytes(p *region.Program, v region.ValueID, elements []byte, constants *[]region.ValueID) (port,
	bool) {
	t := p.Values[v].Type
	bytes, scales, ok := inbytes.Weight(t.Shape, elements)
	if !ok {
		return port{}, false
	}
	perChannel := slices.Repeat([]int64{1}, len(t.Shape))
	perChannel[0] = t.Shape[0]
	add := func(typ *relay.Type, data []byte) port {
		made := w.weight(typ, w.base)
		*constants = append(*constants, p.AddConstant(typ, data))
		w.base += aligned(int64(len(data)))
		return made
	}
	wide := w.convert(add(tensor("int8", t.Shape...), bytes), "float32")
	return w.binary("Multiply", t, wide, add(tensor("float32", perChannel...), scales)), true
}
