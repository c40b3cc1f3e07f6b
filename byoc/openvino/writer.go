// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// port is a tensor of the IR: a result of a layer.
type port struct {
	layer, index int
	typ          *relay.Type
}

// writer appends layers to an IR. Its methods do not fail: what they are given has been checked.
type writer struct {
	net netXML
	// base is the size in bytes of the region's constants, own the data of those that the writer adds by itself behind
	// them: shapes, axes, scalars.
	base int64
	own  []byte
	// constants are those that the writer has added, by type and content.
	constants map[string]port
	// prefix names the layers of the operator that is being written.
	prefix string
	// hint is what OpenVINO computes the whole in but for what is said otherwise of a layer: float32, or bfloat16, where
	// some of it is to be.
	hint byoc.Precision
	// precision is what the operator that is being written is to be computed in.
	precision byoc.Precision
	// padded says of each layer whether its results may be a padded tensor for OpenVINO: a Pad's, behind layers that it
	// may find to do nothing.
	padded []bool
}

func newWriter(name string) *writer {
	return &writer{net: netXML{Name: plainName(name), Version: 11}, constants: map[string]port{}, hint: byoc.F32,
		precision: byoc.F32}
}

// tensor is a type with the dtype of another one.
func tensor(dtype string, shape ...int64) *relay.Type { return relay.Tensor(dtype, shape...) }

// layer adds a layer and gives its results.
func (w *writer) layer(kind, opset string, attrs []xml.Attr, in []port, out ...*relay.Type) []port {
	id := len(w.net.Layers)
	l := layerXML{ID: id, Name: fmt.Sprintf("%s%d", w.prefix, id), Type: kind, Version: opset}
	if len(attrs) > 0 {
		l.Data = &dataXML{attrs}
	}
	if w.precision == byoc.F32 && w.hint != byoc.F32 {
		l.Info = precise
	}
	for i, p := range in {
		l.Inputs = l.Inputs.add(i, p.typ)
		w.net.Edges = append(w.net.Edges, edgeXML{p.layer, p.index, id, i})
	}
	results := make([]port, len(out))
	for i, t := range out {
		at := len(in) + i
		l.Outputs = l.Outputs.add(at, t)
		results[i] = port{id, at, t}
	}
	w.net.Layers = append(w.net.Layers, l)
	w.padded = append(w.padded, kind == "Pad" || w.keepsPadding(kind, in, out))
	return results
}

// keepsPadding says whether OpenVINO may take a layer for one that does nothing to a padded tensor: whether it does
// nothing is not looked at.
func (w *writer) keepsPadding(kind string, in []port, out []*relay.Type) bool {
	if len(out) != 1 || slices.Contains(weighing, kind) {
		return false
	}
	after, known := out[0].NumElements()
	if !known {
		return slices.ContainsFunc(in, func(p port) bool { return w.padded[p.layer] })
	}
	return slices.ContainsFunc(in, func(p port) bool {
		before, _ := p.typ.NumElements()
		return w.padded[p.layer] && before == after
	})
}

// weighing are layers that never do nothing, and never leave a padding where it was.
var weighing = []string{"Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData",
	"MatMul"}

// one adds a layer with one result.
func (w *writer) one(kind, opset string, out *relay.Type, attrs []xml.Attr, in ...port) port {
	return w.layer(kind, opset, attrs, in, out)[0]
}

// parameter adds an input of the model.
func (w *writer) parameter(t *relay.Type) port {
	return w.one("Parameter", "opset1", t, []xml.Attr{attr("shape", strings.ReplaceAll(join(t.Shape, ","), "-1", "?")),
		attr("element_type", elements[t.DType].attribute)})
}

// result adds an output of the model.
func (w *writer) result(p port) { w.layer("Result", "opset1", nil, []port{p}) }

// weight adds a constant whose data stands at that offset of the weights.
func (w *writer) weight(t *relay.Type, offset int64) port {
	return w.one("Const", "opset1", t, constantAttrs(t, offset))
}

func constantAttrs(t *relay.Type, offset int64) []xml.Attr {
	size := elements[t.DType].bytes
	for _, d := range t.Shape {
		size *= d
	}
	return []xml.Attr{attr("element_type", elements[t.DType].attribute), attrInts("shape", t.Shape...),
		attrInts("offset", offset), attrInts("size", size)}
}

// constant adds a constant of the writer's own; an equal one is added once.
func (w *writer) constant(t *relay.Type, data []byte) port {
	key := t.String() + string(data)
	if p, ok := w.constants[key]; ok {
		return p
	}
	for len(w.own)%8 != 0 {
		w.own = append(w.own, 0)
	}
	p := w.weight(t, w.base+int64(len(w.own)))
	if len(data) == 0 {
		data = make([]byte, 8) // the shape of a scalar: OpenVINO wants weights where there is a constant, if it has no bytes
	}
	w.own = append(w.own, data...)
	w.constants[key] = p
	return p
}

// ints adds a list of int64.
func (w *writer) ints(list ...int64) port {
	var data []byte
	for _, v := range list {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return w.constant(tensor("int64", int64(len(list))), data)
}

// scalar adds a number without dimensions.
func (w *writer) scalar(dtype string, v float64) port { return w.number(tensor(dtype), v) }

// number adds a constant all of whose elements are v.
func (w *writer) number(t *relay.Type, v float64) port {
	var one []byte
	switch t.DType {
	case "float32":
		one = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
	case "int32":
		one = binary.LittleEndian.AppendUint32(nil, uint32(int32(v)))
	case "int64":
		one = binary.LittleEndian.AppendUint64(nil, uint64(int64(v)))
	case "bool":
		one = []byte{0}
		if v != 0 {
			one[0] = 1
		}
	default:
		one = []byte{byte(int64(v))}
	}
	n := 1
	for _, d := range t.Shape {
		n *= int(d)
	}
	return w.constant(t, slices.Repeat(one, n))
}

// reshape gives a tensor another shape of as many elements.
func (w *writer) reshape(p port, shape ...int64) port {
	if slices.Equal(p.typ.Shape, shape) {
		return p
	}
	return w.one("Reshape", "opset1", tensor(p.typ.DType, shape...), []xml.Attr{attrBool("special_zero", false)}, p,
		w.ints(shape...))
}

// convert gives a tensor another dtype.
func (w *writer) convert(p port, dtype string) port {
	if p.typ.DType == dtype {
		return p
	}
	return w.one("Convert", "opset1", tensor(dtype, p.typ.Shape...),
		[]xml.Attr{attr("destination_type", elements[dtype].attribute)}, p)
}

// along reshapes a vector so that it is broadcast along one axis of a tensor of that rank.
func (w *writer) along(p port, axis, rank int) port {
	shape := slices.Repeat([]int64{1}, rank)
	shape[axis] = p.typ.Shape[len(p.typ.Shape)-1]
	return w.reshape(p, shape...)
}

var numpyBroadcast = []xml.Attr{attr("auto_broadcast", "numpy")}

// binary adds an elementwise layer of two tensors.
func (w *writer) binary(kind string, out *relay.Type, a, b port) port {
	return w.one(kind, "opset1", out, numpyBroadcast, a, b)
}

// number32 writes a float32 so that reading it gives it back.
func number32(v float64) string { return strconv.FormatFloat(float64(float32(v)), 'g', -1, 32) }
