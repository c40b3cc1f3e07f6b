// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a message as it stands on the wire.
type field struct {
	number protowire.Number
	// value is a uint64, a float32, or the bytes of a text or message.
	value any
}

// fields takes a message apart.
func fields(t *testing.T, message []byte) []field {
	var all []field
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		require.Positive(t, n)
		message = message[n:]
		var value any
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(message)
			value = math.Float32frombits(bits)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		default:
			require.Failf(t, "unexpected wire type", "%d", kind)
		}
		require.Positive(t, n)
		message = message[n:]
		all = append(all, field{number, value})
	}
	return all
}

// decoded is what a test wants to know of a model.
type decoded struct {
	// nodes are "Op(inputs) -> outputs {attributes}".
	nodes []string
	// inputs and outputs are "name dtype shape"; tensors the initialisers, "name dtype shape" and "external" or the
	// numbers.
	inputs, outputs, tensors []string
	// names are the nodes' names.
	names []string
}

// decode reads what write has written.
func decode(t *testing.T, model []byte) (d decoded) {
	var graph []byte
	for _, f := range fields(t, model) {
		switch f.number {
		case modelIRVersion:
			require.EqualValues(t, irVersion, f.value)
		case modelGraph:
			graph = f.value.([]byte)
		case modelOpset:
			for _, o := range fields(t, f.value.([]byte)) {
				if o.number == opsetVersion {
					require.EqualValues(t, opsetUsed, o.value)
				}
			}
		}
	}
	for _, f := range fields(t, graph) {
		bytes, _ := f.value.([]byte)
		switch f.number {
		case graphNode:
			d.nodes = append(d.nodes, node(t, bytes))
			for _, f := range fields(t, bytes) {
				if f.number == nodeName {
					d.names = append(d.names, string(f.value.([]byte)))
				}
			}
		case graphInitializer:
			d.tensors = append(d.tensors, tensor(t, bytes))
		case graphInput:
			d.inputs = append(d.inputs, value(t, bytes))
		case graphOutput:
			d.outputs = append(d.outputs, value(t, bytes))
		}
	}
	return d
}

func node(t *testing.T, message []byte) string {
	var op string
	var inputs, outputs, attributes []string
	for _, f := range fields(t, message) {
		bytes, _ := f.value.([]byte)
		switch f.number {
		case nodeInput:
			inputs = append(inputs, string(bytes))
		case nodeOutput:
			outputs = append(outputs, string(bytes))
		case nodeOp:
			op = string(bytes)
		case nodeAttribute:
			attributes = append(attributes, decodeAttribute(t, bytes))
		}
	}
	text := fmt.Sprintf("%s(%s) -> %s", op, strings.Join(inputs, ", "), strings.Join(outputs, ", "))
	if len(attributes) > 0 {
		text += " {" + strings.Join(attributes, ", ") + "}"
	}
	return text
}

func decodeAttribute(t *testing.T, message []byte) string {
	var name string
	var values []string
	kind := uint64(0)
	for _, f := range fields(t, message) {
		switch f.number {
		case attributeName:
			name = string(f.value.([]byte))
		case attributeType:
			kind = f.value.(uint64)
		case attributeString:
			values = append(values, string(f.value.([]byte)))
		case attributeInt, attributeInts:
			values = append(values, fmt.Sprint(int64(f.value.(uint64))))
		default:
			values = append(values, fmt.Sprint(f.value))
		}
	}
	if kind == kindInts {
		return name + "=[" + strings.Join(values, " ") + "]"
	}
	require.Len(t, values, 1)
	return name + "=" + values[0]
}

func tensor(t *testing.T, message []byte) string {
	var dims []uint64
	var name, data string
	var element uint64
	for _, f := range fields(t, message) {
		switch f.number {
		case tensorDims:
			dims = append(dims, f.value.(uint64))
		case tensorType:
			element = f.value.(uint64)
		case tensorName:
			name = string(f.value.([]byte))
		case tensorLocation:
			require.EqualValues(t, locationExternal, f.value)
			data = "external"
		case tensorRaw:
			raw := f.value.([]byte)
			var numbers []any
			for ; len(raw) >= 8 && element == elementTypes["int64"]; raw = raw[8:] {
				numbers = append(numbers, int64(binary.LittleEndian.Uint64(raw)))
			}
			for ; len(raw) >= 4 && element == elementTypes["float32"]; raw = raw[4:] {
				numbers = append(numbers, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			}
			data = fmt.Sprint(numbers...)
		}
	}
	return fmt.Sprintf("%s %d%v %s", name, element, dims, data)
}

func value(t *testing.T, message []byte) string {
	var name string
	var element uint64
	var dims []uint64
	for _, f := range fields(t, message) {
		bytes, _ := f.value.([]byte)
		if f.number == valueName {
			name = string(bytes)
			continue
		}
		for _, typ := range fields(t, bytes) {
			for _, part := range fields(t, typ.value.([]byte)) {
				if part.number == tensorElement {
					element = part.value.(uint64)
					continue
				}
				for _, dim := range fields(t, part.value.([]byte)) {
					dims = append(dims, fields(t, dim.value.([]byte))[0].value.(uint64))
				}
			}
		}
	}
	return fmt.Sprintf("%s %d%v", name, element, dims)
}
