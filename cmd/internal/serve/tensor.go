// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/collage-tvm/collage/internal/npz"
)

// datatypes are the protocol's names of TVM's element types.
var datatypes = map[string]string{
	"bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
	"int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
}

// dtypeOf is TVM's name of one of the protocol's types.
func dtypeOf(datatype string) (string, bool) {
	for dtype, name := range datatypes {
		if name == datatype {
			return dtype, true
		}
	}
	return "", false
}

// parameters are those of a tensor that this server knows.
type parameters struct {
	// BinaryDataSize says that so many bytes behind the JSON are the data.
	BinaryDataSize *int64 `json:"binary_data_size,omitempty"`
	// BinaryData asks for an output in that way.
	BinaryData *bool `json:"binary_data,omitempty"`
}

// tensor is one input or output as JSON has it.
type tensor struct {
	Name       string          `json:"name"`
	Shape      []int64         `json:"shape"`
	Datatype   string          `json:"datatype"`
	Parameters *parameters     `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// array makes an input's array, of its JSON or of what stands behind it; rest is what is left of that.
func (t *tensor) array(behind []byte) (a npz.Array, rest []byte, err error) {
	dtype, known := dtypeOf(t.Datatype)
	if !known {
		return a, nil, fmt.Errorf("the input %q has the datatype %q, which models here do not take", t.Name, t.Datatype)
	}
	a = npz.Array{Name: t.Name, DType: dtype, Shape: t.Shape}
	size, _ := npz.ItemSize(dtype)
	bytes := int64(size)
	for _, extent := range t.Shape {
		if extent < 0 || extent > 0 && bytes > math.MaxInt64/extent {
			return a, nil, fmt.Errorf("the input %q has the shape %v", t.Name, t.Shape)
		}
		bytes *= extent
	}
	if t.Parameters == nil || t.Parameters.BinaryDataSize == nil {
		if a.Data, err = numbers(t.Data, dtype, bytes/int64(size)); err != nil {
			return a, nil, fmt.Errorf("the input %q: %w", t.Name, err)
		}
		return a, behind, nil
	}
	switch given := *t.Parameters.BinaryDataSize; {
	case len(t.Data) > 0:
		return a, nil, fmt.Errorf("the input %q has data twice, as JSON and as bytes", t.Name)
	case given != bytes:
		return a, nil, fmt.Errorf("the input %q has %d bytes, %s of the shape %v has %d", t.Name, given, t.Datatype, t.Shape,
			bytes)
	case given > int64(len(behind)):
		return a, nil, fmt.Errorf("the input %q has %d bytes, of which %d came", t.Name, given, len(behind))
	}
	a.Data = behind[:bytes:bytes]
	return a, behind[bytes:], nil
}

// numbers reads count elements of a type from a JSON array, which may be nested: in row-major order, little-endian.
func numbers(text json.RawMessage, dtype string, count int64) ([]byte, error) {
	if dtype == "float16" {
		return nil, errors.New("JSON has no FP16: send it as bytes (binary_data_size)")
	}
	if len(text) == 0 {
		return nil, errors.New("it has no data")
	}
	size, _ := npz.ItemSize(dtype)
	// No more than the text can hold: a shape may promise anything.
	data := make([]byte, 0, min(count*int64(size), int64(len(text))*int64(size)))
	found, depth := int64(0), 0
	for at := 0; at < len(text); {
		switch c := text[at]; {
		case c == '[':
			depth++
			at++
		case c == ']':
			depth--
			at++
		case c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r':
			at++
		case depth == 0:
			return nil, errors.New("its data are no array")
		default:
			end := at + bytes.IndexAny(text[at:], ",] \n\t\r") // there is one: the JSON was valid
			var err error
			if data, err = appendNumber(data, dtype, string(text[at:end])); err != nil {
				return nil, err
			}
			found++
			at = end
		}
		if found > count {
			break
		}
	}
	if found != count {
		return nil, fmt.Errorf("its shape has %d elements, its data %s", count, atLeast(found, count))
	}
	return data, nil
}

func atLeast(found, count int64) string {
	if found > count {
		return "more"
	}
	return strconv.FormatInt(found, 10)
}

// appendNumber appends one element of a type.
func appendNumber(data []byte, dtype, text string) ([]byte, error) {
	size, _ := npz.ItemSize(dtype)
	var bits uint64
	var err error
	switch {
	case dtype == "bool":
		switch text {
		case "true":
			bits = 1
		case "false":
		default:
			err = errors.New("no truth value")
		}
	case dtype == "float32":
		var number float64
		number, err = strconv.ParseFloat(text, 32)
		bits = uint64(math.Float32bits(float32(number)))
	case dtype == "float64":
		var number float64
		number, err = strconv.ParseFloat(text, 64)
		bits = math.Float64bits(number)
	case dtype[0] == 'u':
		bits, err = strconv.ParseUint(text, 10, 8*size)
	default:
		var number int64
		number, err = strconv.ParseInt(text, 10, 8*size)
		bits = uint64(number)
	}
	if err != nil {
		return nil, fmt.Errorf("%.40q is no %s", text, datatypes[dtype])
	}
	var little [8]byte
	binary.LittleEndian.PutUint64(little[:], bits)
	return append(data, little[:size]...), nil
}

// errNoNumber says that JSON cannot tell what an output holds.
var errNoNumber = errors.New("it holds NaN or infinity, for which JSON has no numbers: ask for it as bytes (binary_data)")

// text gives an output's elements as a JSON array.
func text(a *npz.Array) (json.RawMessage, error) {
	if a.DType == "float16" {
		return nil, errors.New("JSON has no FP16: ask for it as bytes (binary_data)")
	}
	size, known := npz.ItemSize(a.DType)
	if !known {
		return nil, fmt.Errorf("it is %s, which the protocol does not have", a.DType)
	}
	out := []byte{'['}
	for chunk := range slices.Chunk(a.Data, size) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		var little [8]byte
		copy(little[:], chunk)
		bits := binary.LittleEndian.Uint64(little[:])
		switch {
		case a.DType == "bool":
			out = strconv.AppendBool(out, bits != 0)
		case a.DType == "float32" || a.DType == "float64":
			number, width := math.Float64frombits(bits), 64
			if size == 4 {
				number, width = float64(math.Float32frombits(uint32(bits))), 32
			}
			if math.IsNaN(number) || math.IsInf(number, 0) {
				return nil, errNoNumber
			}
			out = strconv.AppendFloat(out, number, 'g', -1, width)
		case a.DType[0] == 'u':
			out = strconv.AppendUint(out, bits, 10)
		default:
			shift := 64 - 8*size
			out = strconv.AppendInt(out, int64(bits<<shift)>>shift, 10)
		}
	}
	return append(out, ']'), nil
}
