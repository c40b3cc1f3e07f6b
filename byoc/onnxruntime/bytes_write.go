// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/inbytes"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// inBytesOp is an operator of a region that multiplies bytes.
type inBytesOp struct {
	// scale is that of its data, weights and scales its weights as bytes with those of its channels; elements are the
	// weights' in float32.
	scale                     float32
	elements, weights, scales []byte
	// bias are the elements of its bias, nil for none, and tail are the operators behind it that it does, too, in
	// order.
	bias []byte
	tail []int
}

// findInBytes finds the operators that are to multiply bytes: their data come from bytes, and what is made in a
// convolution becomes bytes. Weights and biases that are not finite stay as they are.
func (w *writer) findInBytes() error {
	precisions, err := w.p.Precisions()
	if err != nil {
		return err
	}
	w.inBytes = map[int]*inBytesOp{}
	for i := range w.p.Ops {
		op := &w.p.Ops[i]
		if precisions[i] != byoc.INT8 || !inbytes.Multiplies(op.Name) || len(op.Args) != 2 || !w.p.IsConstant(op.Args[1]) {
			continue
		}
		maker := w.p.Values[op.Args[0]].Producer
		if maker < 0 || w.p.Ops[maker].Name != "qnn.dequantize" {
			continue
		}
		scale, _ := w.steps(&w.p.Ops[maker])
		of := &inBytesOp{scale: float32(scale)}
		if err := w.findBias(i, of); err != nil {
			return err
		}
		if convolves(op.Name) && !w.becomesBytes(i, of) || !of.biasFits() {
			continue
		}
		if of.elements, err = w.elements(op.Args[1]); err != nil {
			return err
		}
		finite := false
		of.weights, of.scales, finite = inbytes.Weight(w.p.Values[op.Args[1]].Type.Shape, of.elements)
		if finite {
			w.inBytes[i] = of
		}
	}
	return nil
}

// reader is the operator that alone reads what operator i makes, and its place; one without a name for none.
func (w *writer) reader(i int) (op *region.Op, at int) {
	if at = w.onlyReader(i); at < 0 {
		return &region.Op{}, at
	}
	return &w.p.Ops[at], at
}

// findBias finds the bias behind an operator, a constant for each of its channels.
func (w *writer) findBias(i int, of *inBytesOp) (err error) {
	next, k := w.reader(i)
	if k < 0 {
		return nil
	}
	if at := callOfOp(w.p, next).biasOf(callOfOp(w.p, &w.p.Ops[i])); at >= 0 {
		of.bias, err = w.elements(next.Args[at])
		of.tail = append(of.tail, k)
	}
	return err
}

// becomesBytes finds what stands between a convolution, with its bias, and the rounding of its result. false where that
// is not rounded, or otherwise than ONNX Runtime would: what rounds saturates, and an activation that does no more goes
// with it.
func (w *writer) becomesBytes(i int, of *inBytesOp) bool {
	last := i
	if len(of.tail) > 0 {
		last = of.tail[0]
	}
	next, k := w.reader(last)
	least, most := math.Inf(-1), math.Inf(1)
	switch next.Name {
	case "nn.relu":
		least = 0
	case "clip":
		c := callOfOp(w.p, next)
		least, most = c.float("a_min", least), c.float("a_max", most)
	}
	if next.Name == "nn.relu" || next.Name == "clip" {
		of.tail = append(of.tail, k)
		next, _ = w.reader(k)
	}
	if next.Name != "qnn.quantize" {
		return false
	}
	scale, zero := w.steps(next)
	bounds := byteBounds[w.p.Values[next.Results[0]].Type.DType]
	return math.Round(least/scale)+zero <= bounds[0] && math.Round(most/scale)+zero >= bounds[1]
}

// byteBounds are the least and the greatest of the types that are rounded to.
var byteBounds = map[string][2]float64{"uint8": {0, 255}, "int8": {-128, 127}}

// steps are the scale and the zero of what rounds, or leads back.
func (w *writer) steps(op *region.Op) (scale, zero float64) {
	number := func(v region.ValueID) float64 {
		if !w.p.IsConstant(v) {
			return math.NaN()
		}
		return w.p.Graph.Nodes[w.p.Values[v].Constant].Constant.Scalar
	}
	return number(op.Args[1]), number(op.Args[2])
}

// rounding writes what rounds to bytes, or leads back from them.
func (w *writer) rounding(op *region.Op) error {
	kind, bytes := "QuantizeLinear", op.Results[0]
	if op.Name == "qnn.dequantize" {
		kind, bytes = "DequantizeLinear", op.Args[0]
	}
	dtype := w.p.Values[bytes].Type.DType
	scale, zero := w.steps(op)
	bounds, known := byteBounds[dtype]
	if !known || !(scale >= 0x1p-126) || math.IsInf(scale, 0) || !(zero >= bounds[0] && zero <= bounds[1]) {
		return fmt.Errorf("%s (%%%d) rounds to %s by the scale %v and the zero %v, which is not one of each for all elements",
			op.Name, op.Node, dtype, scale, zero)
	}
	w.emit(kind, []string{w.name(op.Args[0]), w.filled("float32", nil, scale), w.filled(dtype, nil, zero)},
		[]string{w.name(op.Results[0])})
	return nil
}

// multiplyBytes writes an operator of w.inBytes with what stands behind it.
func (w *writer) multiplyBytes(i int) error {
	op, of := &w.p.Ops[i], w.inBytes[i]
	c := callOfOp(w.p, op)
	if _, err := supported(c); err != nil {
		return fmt.Errorf("%s (%%%d): %w", op.Name, op.Node, err)
	}
	last := i
	for _, k := range w.inBytes[i].tail {
		w.take(k)
		last = k
	}
	data, result := w.name(op.Args[0]), w.name(w.p.Ops[last].Results[0])
	in := append([]string{data}, w.weightsOfBytes(of, c.args[1].Shape)...)
	if convolves(op.Name) {
		win, err := c.convolution(len(c.result().Shape) - 2)
		if err != nil {
			return err
		}
		w.emit("Conv", in, []string{result}, append(win.attributes(), attribute{"group", c.int("groups", 1)})...)
		return nil
	}
	// A Gemm of bytes has a bias. What ONNX Runtime makes of MatMul and Add is one of float32.
	rows := c.args[1].Shape
	turned := attribute{"transB", int64(1)}
	if len(c.args[0].Shape) == 2 {
		w.emit("Gemm", in, []string{result}, turned)
		return nil
	}
	in[0] = w.reshaped(data, relay.Elements(c.args[0].Shape)/rows[1], rows[1])
	w.emit("Reshape", []string{w.value("Gemm", in, turned), w.ints(c.result().Shape...)}, []string{result})
	return nil
}

// weightsOfBytes writes an operator's weights, and its bias if it has one, as bytes and steps that lead back to float32.
func (w *writer) weightsOfBytes(of *inBytesOp, shape []int64) []string {
	each := []int64{shape[0]}
	steps, scales := of.biasSteps()
	back := func(dtype string, shape []int64, data, scales []byte) string {
		return w.value("DequantizeLinear", []string{w.constant(dtype, shape, data), w.constant("float32", each, scales),
			w.zeros(dtype, shape[0])}, attribute{"axis", int64(0)})
	}
	made := []string{back("int8", shape, of.weights, of.scales)}
	if of.bias != nil {
		made = append(made, back("int32", each, steps, scales))
	}
	return made
}

// biasRoom is how far a bias may reach in steps of what is summed up: half of an int32, so that the products have the
// other half.
const biasRoom = 1 << 30

// biasSteps is a bias in steps of its own, an int32 for each channel: those of the data times those of the weights. Where
// a channel's would be too many its weights get longer steps, which are still short against the bias; where its weights
// are all 0, such as the bias needs.
func (of *inBytesOp) biasSteps() (steps, scales []byte) {
	channels := len(of.scales) / 4
	for channel := range channels {
		scale, b := floatAt(of.scales, channel), float32(0)
		if of.bias != nil {
			b = floatAt(of.bias, channel)
		}
		if longer := max(scale, of.leastScale(b), 0x1p-126/min(of.scale, 1)); longer != scale {
			binary.LittleEndian.PutUint32(of.scales[4*channel:], math.Float32bits(longer))
			size := len(of.weights) / channels
			for k := channel * size; k < (channel+1)*size; k++ {
				of.weights[k] = byte(int8(math.Round(float64(floatAt(of.elements, k) / longer))))
			}
			scale = longer
		}
		by := of.scale * scale
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(by))
		steps = binary.LittleEndian.AppendUint32(steps, uint32(int32(math.Round(float64(b)/float64(by)))))
	}
	return steps, scales
}

// leastScale is the least scale of a channel's weights with which its bias is not too many steps.
func (of *inBytesOp) leastScale(bias float32) float32 {
	return float32(math.Abs(float64(bias)) / float64(of.scale) / biasRoom)
}

// biasFits says that each channel's bias can be steps.
func (of *inBytesOp) biasFits() bool {
	for i := range len(of.bias) / 4 {
		if least := of.leastScale(floatAt(of.bias, i)); !(least*of.scale <= math.MaxFloat32) {
			return false
		}
	}
	return true
}

func floatAt(data []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
}

// constant adds a constant of the writer's own to those that the engine is given, and gives its name.
func (w *writer) constant(dtype string, shape []int64, data []byte) string {
	v := w.p.AddConstant(relay.Tensor(dtype, shape...), data)
	for len(w.names) <= int(v) {
		w.names = append(w.names, "")
	}
	w.made[v] = data
	w.names[v] = fmt.Sprintf("c%d", len(w.constants))
	w.constants = append(w.constants, v)
	return w.names[v]
}

// zeros are as many zeros, the zero of each channel.
func (w *writer) zeros(dtype string, count int64) string { return w.filled(dtype, []int64{count}, 0) }

// elements are those of a constant, compact and little-endian.
func (w *writer) elements(v region.ValueID) ([]byte, error) {
	if data, ok := w.made[v]; ok {
		return data, nil
	}
	return w.data(v)
}
