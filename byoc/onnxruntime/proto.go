// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/collage-tvm/collage/relay"
)

// What is written of ONNX's messages (onnx.proto of IR version 9), by field number.
const (
	modelIRVersion, modelProducer, modelProducerVersion, modelGraph, modelOpset = 1, 2, 3, 7, 8

	opsetDomain, opsetVersion = 1, 2

	graphNode, graphName, graphInitializer, graphInput, graphOutput = 1, 2, 5, 11, 12

	nodeInput, nodeOutput, nodeName, nodeOp, nodeAttribute, nodeDomain = 1, 2, 3, 4, 5, 7

	attributeName, attributeFloat, attributeInt, attributeString, attributeInts, attributeType = 1, 2, 3, 4, 8, 20
	attributeStrings                                                                           = 9

	tensorDims, tensorType, tensorName, tensorRaw, tensorExternal, tensorLocation = 1, 2, 8, 9, 13, 14

	entryKey, entryValue = 1, 2

	valueName, valueType = 1, 2

	typeTensor, tensorElement, tensorShape, shapeDim, dimValue = 1, 1, 2, 1, 1
)

// The kinds of attributes that are written, and where a tensor's data may be.
const (
	kindFloat, kindInt, kindString, kindInts, kindStrings = 1, 2, 3, 7, 8

	locationExternal = 1
)

// elementTypes are ONNX's numbers for TVM's dtypes.
var elementTypes = map[string]uint64{
	"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
	"float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}

// message is a protobuf message under construction.
type message []byte

func (m *message) number(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *message) float(field protowire.Number, v float32) {
	*m = protowire.AppendFixed32(protowire.AppendTag(*m, field, protowire.Fixed32Type), math.Float32bits(v))
}

func (m *message) text(field protowire.Number, s string) {
	*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
}

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

// attribute is one attribute of an operator; value is a float32, int64, string, []int64 or []string.
type attribute struct {
	name  string
	value any
}

func (a attribute) encode() []byte {
	var m message
	m.text(attributeName, a.name)
	switch v := a.value.(type) {
	case float32:
		m.float(attributeFloat, v)
		m.number(attributeType, kindFloat)
	case int64:
		m.number(attributeInt, uint64(v))
		m.number(attributeType, kindInt)
	case string:
		m.text(attributeString, v)
		m.number(attributeType, kindString)
	case []int64:
		// ONNX's schema is proto2, whose repeated numbers are not packed.
		for _, x := range v {
			m.number(attributeInts, uint64(x))
		}
		m.number(attributeType, kindInts)
	case []string:
		for _, x := range v {
			m.text(attributeStrings, x)
		}
		m.number(attributeType, kindStrings)
	}
	return m
}

// encodeNode writes one operator. Names of inputs and outputs may be "" (left out).
func encodeNode(name, op string, inputs, outputs []string, attributes []attribute) []byte {
	var m message
	for _, in := range inputs {
		m.text(nodeInput, in)
	}
	for _, out := range outputs {
		m.text(nodeOutput, out)
	}
	m.text(nodeName, name)
	m.text(nodeOp, op)
	for _, a := range attributes {
		m.bytes(nodeAttribute, a.encode())
	}
	return m
}

// encodeValue writes the name and type of a graph's input or output.
func encodeValue(name, dtype string, shape []int64) []byte {
	var dims message
	for _, d := range shape {
		var dim message
		if d != relay.AnyDim { // an open one is told nothing of
			dim.number(dimValue, uint64(d))
		}
		dims.bytes(shapeDim, dim)
	}
	var tensor, typ, m message
	tensor.number(tensorElement, elementTypes[dtype])
	tensor.bytes(tensorShape, dims)
	typ.bytes(typeTensor, tensor)
	m.text(valueName, name)
	m.bytes(valueType, typ)
	return m
}

// encodeTensor writes an initialiser with its data: little-endian, compact.
func encodeTensor(name, dtype string, shape []int64, data []byte) []byte {
	m := tensorHead(name, dtype, shape)
	m.bytes(tensorRaw, data)
	return m
}

// encodeExternalTensor writes an initialiser whose data is handed over when the model is loaded.
func encodeExternalTensor(name, dtype string, shape []int64) []byte {
	m := tensorHead(name, dtype, shape)
	var where message
	where.text(entryKey, "location")
	where.text(entryValue, name)
	m.bytes(tensorExternal, where)
	m.number(tensorLocation, locationExternal)
	return m
}

func tensorHead(name, dtype string, shape []int64) message {
	var m message
	for _, d := range shape {
		m.number(tensorDims, uint64(d))
	}
	m.number(tensorType, elementTypes[dtype])
	m.text(tensorName, name)
	return m
}

// encodeModel writes a model around a graph.
func encodeModel(graph []byte) []byte {
	var opset, m message
	opset.text(opsetDomain, "")
	opset.number(opsetVersion, opsetUsed)
	m.number(modelIRVersion, irVersion)
	m.text(modelProducer, "collage")
	m.bytes(modelGraph, graph)
	m.bytes(modelOpset, opset)
	return m
}

// Operator set 20 and the IR version that goes with it: ONNX Runtime reads them since 1.17.
const (
	irVersion = 9
	opsetUsed = 20
)
