// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"strconv"
	"strings"
)

// DataType is a scalar or vector type, as DLPack has it (the layout is C's DLDataType).
type DataType struct {
	Code  uint8 // 0 int, 1 uint, 2 float, 3 handle, 4 bfloat
	Bits  uint8
	Lanes uint16
}

// The types that are met most.
var (
	Bool    = DataType{1, 1, 1}
	Int8    = DataType{0, 8, 1}
	Int32   = DataType{0, 32, 1}
	Int64   = DataType{0, 64, 1}
	Uint8   = DataType{1, 8, 1}
	Float16 = DataType{2, 16, 1}
	Float32 = DataType{2, 32, 1}
	Float64 = DataType{2, 64, 1}
)

var typeCodes = [...]string{"int", "uint", "float", "handle", "bfloat"}

// ParseDataType reads TVM's text of a type: "float32", "int8x4", "bool", "handle".
func ParseDataType(s string) (DataType, error) {
	switch s {
	case "bool":
		return Bool, nil
	case "handle":
		return DataType{3, 64, 1}, nil
	case "":
		return DataType{3, 0, 0}, nil // void
	}
	name := strings.TrimRight(s, "0123456789x")
	bits, lanes, vector := strings.Cut(s[len(name):], "x")
	for code, known := range typeCodes {
		if name != known {
			continue
		}
		b, err := strconv.ParseUint(bits, 10, 8)
		if err != nil {
			break
		}
		t := DataType{Code: uint8(code), Bits: uint8(b), Lanes: 1}
		if vector {
			n, err := strconv.ParseUint(lanes, 10, 16)
			if err != nil {
				break
			}
			t.Lanes = uint16(n)
		}
		return t, nil
	}
	return DataType{}, fmt.Errorf("ValueError: %q is not a data type", s)
}

// String is TVM's text of the type.
func (t DataType) String() string {
	switch t {
	case Bool:
		return "bool"
	case DataType{3, 0, 0}:
		return "void"
	case DataType{3, 64, 1}:
		return "handle"
	}
	name := fmt.Sprintf("custom[%d]", t.Code)
	if int(t.Code) < len(typeCodes) {
		name = typeCodes[t.Code]
	}
	if t.Lanes == 1 {
		return fmt.Sprintf("%s%d", name, t.Bits)
	}
	return fmt.Sprintf("%s%dx%d", name, t.Bits, t.Lanes)
}

// Bytes is the size of one item; types smaller than a byte fill one.
func (t DataType) Bytes() int { return (int(t.Bits)*int(t.Lanes) + 7) / 8 }

// Device says where a tensor lies (the layout is C's DLDevice).
type Device struct {
	Type int32 // DLPack's number: 1 CPU, 2 CUDA, 4 OpenCL, ...
	ID   int32
}

// CPU is the host's memory.
func CPU() Device { return Device{Type: 1} }

// CUDA is the memory of an NVIDIA GPU.
func CUDA(id int) Device { return Device{Type: 2, ID: int32(id)} }

// String is the device as TVM shows it.
func (d Device) String() string {
	names := map[int32]string{1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm",
		16: "hexagon"}
	name, ok := names[d.Type]
	if !ok {
		name = fmt.Sprintf("device%d", d.Type)
	}
	return fmt.Sprintf("%s(%d)", name, d.ID)
}
