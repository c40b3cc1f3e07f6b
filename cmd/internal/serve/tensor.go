// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

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
	BinaryDataSize *int64 `json:"binary_data_size,omitzero"`
	// BinaryData asks for an output in that way.
	BinaryData *bool `json:"binary_data,omitzero"`
}

// tensor is one input or output as JSON has it.
type tensor struct {
	Name       string         `json:"name"`
	Shape      []int64        `json:"shape"`
	Datatype   string         `json:"datatype"`
	Parameters *parameters    `json:"parameters,omitzero"`
	Data       jsontext.Value `json:"data,omitzero"`
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
func numbers(text jsontext.Value, dtype string, count int64) ([]byte, error) {
	if dtype == "float16" {
		return nil, errors.New("JSON has no FP16: send it as bytes (binary_data_size)")
	}
	if len(text) == 0 {
		return nil, errors.New("it has no data")
	}
	size, _ := npz.ItemSize(dtype)
	bitsOf := reader(dtype, size)
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
			end := at + 1
			for !endsNumber(text[end]) { // something does: the JSON was valid
				end++
			}
			bits, err := bitsOf(text[at:end])
			if err != nil {
				return nil, fmt.Errorf("%.40q is no %s", text[at:end], datatypes[dtype])
			}
			var little [8]byte
			binary.LittleEndian.PutUint64(little[:], bits)
			data = append(data, little[:size]...)
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

func endsNumber(c byte) bool {
	return c == ',' || c == ']' || c == ' ' || c == '\n' || c == '\t' || c == '\r'
}

var errNoTruth = errors.New("no truth value")

// reader gives what reads one element of a type of some bytes, as its bits. That is a function for each type, since
// requests have hundreds of thousands of them.
func reader(dtype string, size int) func(text []byte) (uint64, error) {
	switch {
	case dtype == "bool":
		return func(text []byte) (uint64, error) {
			switch string(text) {
			case "true":
				return 1, nil
			case "false":
				return 0, nil
			}
			return 0, errNoTruth
		}
	case dtype == "float32":
		return func(text []byte) (uint64, error) {
			number, err := strconv.ParseFloat(string(text), 32)
			return uint64(math.Float32bits(float32(number))), err
		}
	case dtype == "float64":
		return func(text []byte) (uint64, error) {
			number, err := strconv.ParseFloat(string(text), 64)
			return math.Float64bits(number), err
		}
	case dtype[0] == 'u':
		return func(text []byte) (uint64, error) { return strconv.ParseUint(string(text), 10, 8*size) }
	}
	return func(text []byte) (uint64, error) {
		number, err := strconv.ParseInt(string(text), 10, 8*size)
		return uint64(number), err
	}
}

// errNoNumber says that JSON cannot tell what an output holds.
var errNoNumber = errors.New("it holds NaN or infinity, for which JSON has no numbers: ask for it as bytes (binary_data)")

// text gives an output's elements as a JSON array.
func text(a *npz.Array) (jsontext.Value, error) {
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
