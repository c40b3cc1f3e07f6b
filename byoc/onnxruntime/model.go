// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// operation is an operator of a region with the names of its tensors in the model.
type operation struct {
	*call
	in, out []string
	// last is the last of the operators that are written as one (rule.merge); the call itself without such.
	last *call
}

// writer writes a region as an ONNX graph.
type writer struct {
	p       *region.Program
	readers []int
	// names are the tensors' names; "" where there is none yet.
	names []string
	// done marks operators that are written together with an earlier one, or as a part of a recurrent layer.
	done []bool
	// constants are the region's constants that were named so far, used what nodes read. Only what is read may be an
	// initialiser: ONNX Runtime drops others, and then knows no tensor of that name.
	constants []region.ValueID
	used      map[string]bool
	// literals are the names of small constants that rules made, by their content.
	literals map[string]string
	fresh    int

	// data gives constants' elements; made has those of constants that the writer made.
	data func(region.ValueID) ([]byte, error)
	made map[region.ValueID][]byte
	// inBytes are the operators that multiply bytes.
	inBytes map[int]*inBytesOp

	nodes, initializers []byte
	count               int
	// groups has the group of each operator; prefix begins the names of the nodes that are being written: the groups of
	// the operators that they do (region.LayerPrefix).
	groups []int
	prefix string
}

// written is a region as an ONNX model.
type written struct {
	model []byte
	// constants are the tensors that the engine is given beside the model, and names those of their initialisers.
	constants []region.ValueID
	names     []string
	// made are the elements of those of constants that the writer made.
	made map[region.ValueID][]byte
	// outputs are the names of the model's outputs.
	outputs []string
}

// write turns a region into an ONNX model. Its inputs are named i0, i1, ..., its outputs o0, o1, ..., in the order of
// the region's, each behind the group that makes it, as all tensors that are made inside: ONNX Runtime names nodes of
// its own after the tensors that they make. data gives constants' elements; its constants are initialisers without
// data unless they are to be written into the model, for it to be whole.
func write(p *region.Program, data func(region.ValueID) ([]byte, error), whole bool) (*written, error) {
	w := &writer{p: p, readers: p.Readers(), names: make([]string, len(p.Values)), done: make([]bool, len(p.Ops)),
		literals: map[string]string{}, used: map[string]bool{}, data: data, made: map[region.ValueID][]byte{}}
	if err := w.findInBytes(); err != nil {
		return nil, err
	}
	_, w.groups = p.Groups()
	var inputs, outputs message
	for i, v := range p.Inputs {
		w.names[v] = fmt.Sprintf("i%d", i)
		t := p.Values[v].Type
		if elementTypes[t.DType] == 0 {
			return nil, fmt.Errorf("the input %d is %s, which ONNX has no type for", i, t.DType)
		}
		inputs.bytes(graphInput, encodeValue(w.names[v], t.DType, t.Shape))
	}
	// A tensor that is made inside and given back once has the output's name.
	copies := map[int]region.ValueID{}
	var names []string
	for i, v := range p.Outputs {
		name := w.group(v) + fmt.Sprintf("o%d", i)
		names = append(names, name)
		if w.names[v] == "" && p.Values[v].Producer >= 0 {
			w.names[v] = name
		} else {
			copies[i] = v
		}
		t := p.Values[v].Type
		outputs.bytes(graphOutput, encodeValue(name, t.DType, t.Shape))
	}
	items := recurrent.Schedule(p)
	for _, item := range items {
		if item.Layer != nil {
			for _, op := range item.Layer.Ops {
				w.done[op] = true
			}
		}
	}
	for _, item := range items {
		if item.Layer != nil {
			w.recurrentLayer(item.Layer)
		} else if err := w.operator(item.Op); err != nil {
			return nil, err
		}
	}
	for i := range p.Outputs {
		if v, ok := copies[i]; ok {
			w.prefix = w.group(v)
			w.emit("Identity", []string{w.name(v)}, []string{names[i]})
		}
	}
	out := &written{outputs: names, made: w.made}
	for _, v := range w.constants {
		t, name := p.Values[v].Type, w.names[v]
		if !w.used[name] {
			continue
		}
		out.constants, out.names = append(out.constants, v), append(out.names, name)
		if !whole {
			w.initializer(encodeExternalTensor(name, t.DType, t.Shape))
			continue
		}
		raw, err := w.elements(v)
		if err != nil {
			return nil, err
		}
		w.initializer(encodeTensor(name, t.DType, t.Shape, raw))
	}
	var graph message
	graph = append(graph, w.nodes...)
	graph.text(graphName, p.Symbol)
	graph = append(graph, w.initializers...)
	graph = append(append(graph, inputs...), outputs...)
	out.model = encodeModel(graph)
	return out, nil
}

// operator writes one operator of the region.
func (w *writer) operator(i int) error {
	if w.done[i] {
		return nil
	}
	op := &w.p.Ops[i]
	w.prefix = region.LayerPrefix(w.groups[i])
	switch {
	case w.inBytes[i] != nil:
		return w.multiplyBytes(i)
	case op.Name == "qnn.quantize" || op.Name == "qnn.dequantize":
		return w.rounding(op)
	}
	c := callOfOp(w.p, op)
	r, err := supported(c)
	if err != nil {
		return fmt.Errorf("%s (%%%d): %w", op.Name, op.Node, err)
	}
	o := &operation{call: c, last: c}
	for _, v := range op.Args {
		o.in = append(o.in, w.name(v))
	}
	if r.merge != nil {
		if last := r.merge(w, o, i); last != i {
			op = &w.p.Ops[last]
			o.last = callOfOp(w.p, op)
		}
	}
	for _, v := range op.Results {
		o.out = append(o.out, w.name(v))
	}
	return r.emit(w, o)
}

// take marks an operator as written together with the one that is being written.
func (w *writer) take(k int) {
	w.done[k] = true
	if prefix := region.LayerPrefix(w.groups[k]); !strings.Contains(w.prefix, prefix) {
		w.prefix += prefix
	}
}

// name gives a tensor's name; a constant becomes one of the model's when it is first asked for.
func (w *writer) name(v region.ValueID) string {
	if w.names[v] == "" {
		if w.p.IsConstant(v) {
			w.names[v] = fmt.Sprintf("c%d", len(w.constants))
			w.constants = append(w.constants, v)
		} else {
			w.names[v] = w.group(v) + fmt.Sprintf("v%d", v)
		}
	}
	return w.names[v]
}

// group is the prefix of a tensor's name; "" for what is not made inside.
func (w *writer) group(v region.ValueID) string {
	if producer := w.p.Values[v].Producer; producer >= 0 {
		return region.LayerPrefix(w.groups[producer])
	}
	return ""
}

// emit writes a node.
func (w *writer) emit(op string, in, out []string, attributes ...attribute) {
	for _, name := range in {
		w.used[name] = true
	}
	m := message(w.nodes)
	m.bytes(graphNode, encodeNode(fmt.Sprintf("%sn%d", w.prefix, w.count), op, in, out, attributes))
	w.nodes = m
	w.count++
}

// value writes a node and gives its one result a name of its own.
func (w *writer) value(op string, in []string, attributes ...attribute) string {
	name := w.another()
	w.emit(op, in, []string{name}, attributes...)
	return name
}

// another is a name that no tensor has.
func (w *writer) another() string {
	w.fresh++
	return fmt.Sprintf("%st%d", w.prefix, w.fresh)
}

func (w *writer) initializer(encoded []byte) {
	m := message(w.initializers)
	m.bytes(graphInitializer, encoded)
	w.initializers = m
}

// literal makes a small constant, once for each content.
func (w *writer) literal(dtype string, shape []int64, data []byte) string {
	key := fmt.Sprint(dtype, shape, data)
	if name, ok := w.literals[key]; ok {
		return name
	}
	name := fmt.Sprintf("k%d", len(w.literals))
	w.literals[key] = name
	w.initializer(encodeTensor(name, dtype, shape, data))
	return name
}

// ints makes a list of int64, what ONNX wants shapes and axes as.
func (w *writer) ints(values ...int64) string {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return w.literal("int64", []int64{int64(len(values))}, data)
}

// filled makes a tensor of one repeated number, of float32, float64, int32, int64 or another integer type.
func (w *writer) filled(dtype string, shape []int64, value float64) string {
	var one []byte
	switch dtype {
	case "float32":
		one = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(value)))
	case "float64":
		one = binary.LittleEndian.AppendUint64(nil, math.Float64bits(value))
	default:
		one = binary.LittleEndian.AppendUint64(nil, uint64(int64(value)))[:relay.DTypeBits(dtype)/8]
	}
	var data []byte
	for range relay.Elements(shape) {
		data = append(data, one...)
	}
	return w.literal(dtype, shape, data)
}

// counted makes a tensor of 0, 1, 2, ... of int32 or int64.
func (w *writer) counted(dtype string, shape []int64) string {
	var data []byte
	for i := range relay.Elements(shape) {
		data = append(data, binary.LittleEndian.AppendUint64(nil, uint64(i))[:relay.DTypeBits(dtype)/8]...)
	}
	return w.literal(dtype, shape, data)
}

// reshaped gives a tensor another shape.
func (w *writer) reshaped(name string, shape ...int64) string {
	return w.value("Reshape", []string{name, w.ints(shape...)})
}

// onlyReader finds the operator that alone reads what operator i makes, if that is one tensor that is no result of the
// region; -1 otherwise.
func (w *writer) onlyReader(i int) int {
	results := w.p.Ops[i].Results
	if len(results) != 1 || w.readers[results[0]] != 1 {
		return -1
	}
	for k := i + 1; k < len(w.p.Ops); k++ {
		for _, v := range w.p.Ops[k].Args {
			if v == results[0] && !w.done[k] {
				return k
			}
		}
	}
	return -1
}
