// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// TVM's type codes of packed-function arguments and results.
const (
	codeInt      = int32(C.kTVMArgInt)
	codeFloat    = int32(C.kTVMArgFloat)
	codeOpaque   = int32(C.kTVMOpaqueHandle)
	codeNil      = int32(C.kTVMNullptr)
	codeDataType = int32(C.kTVMDataType)
	codeDevice   = int32(C.kDLDevice)
	codeDLTensor = int32(C.kTVMDLTensorHandle)
	codeObject   = int32(C.kTVMObjectHandle)
	codeModule   = int32(C.kTVMModuleHandle)
	codeFunction = int32(C.kTVMPackedFuncHandle)
	codeString   = int32(C.kTVMStr)
	codeBytes    = int32(C.kTVMBytes)
	codeNDArray  = int32(C.kTVMNDArrayHandle)
	codeBool     = int32(C.kTVMArgBool)
)

// Kind says what a Value holds.
type Kind uint8

// The kinds of values. A runtime.String and a boxed integer, float or boolean arrive as the plain kinds; an
// ir.IntImm or ir.FloatImm stays an object (it has a dtype), and Value's Int, Float and Bool read it.
const (
	KindNil Kind = iota
	KindInt
	KindFloat
	KindBool
	KindString
	KindBytes
	KindDataType
	KindDevice
	KindPointer
	KindObject
	KindModule
	KindFunction
	KindNDArray
)

var kindNames = [...]string{"nil", "int", "float", "bool", "string", "bytes", "dtype", "device", "pointer",
	"object", "module", "function", "ndarray"}

// String is the kind's name as errors show it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Value is what a packed function took or gave. Plain kinds are copies; for the others the Value shares the
// handle that Object, Module, Function and NDArray give out. The zero Value is nil.
type Value struct {
	kind Kind
	bits int64
	str  string
	ref  any // *Object, *Module, *Function, *NDArray, or uintptr
}

// plainValue makes the Value of a code that owns nothing from its slot.
func plainValue(code int32, slot *int64) Value {
	bits := *slot
	switch code {
	case codeInt:
		return Value{kind: KindInt, bits: bits}
	case codeFloat:
		return Value{kind: KindFloat, bits: bits}
	case codeBool:
		return Value{kind: KindBool, bits: bits & 0xff}
	case codeNil:
		return Value{}
	case codeDataType:
		return Value{kind: KindDataType, bits: bits}
	case codeDevice:
		return Value{kind: KindDevice, bits: bits}
	}
	return Value{kind: KindPointer, ref: uintptr(bits)}
}

// ownedValue makes the Value of a handle whose reference the caller gives up.
func ownedValue(code int32, p unsafe.Pointer, typeIndex uint32) Value {
	if p == nil {
		return Value{}
	}
	switch code {
	case codeModule:
		return Value{kind: KindModule, ref: newModule(p)}
	case codeFunction:
		return Value{kind: KindFunction, ref: newFunction(p, "")}
	case codeNDArray:
		return Value{kind: KindNDArray, ref: newNDArray(p)}
	}
	return Value{kind: KindObject, ref: newObject(p, typeIndex)}
}

// Kind says what the value is.
func (v Value) Kind() Kind { return v.kind }

// IsNil says whether the value is TVM's null (Python's None).
func (v Value) IsNil() bool { return v.kind == KindNil }

func (v Value) wrong(want string) error {
	have := v.kind.String()
	if o, ok := v.ref.(*Object); ok && o != nil {
		have = "a " + o.TypeKey()
	}
	return fmt.Errorf("TypeError: expected %s, got %s", want, have)
}

// Int gives an int, a bool (0 or 1), or the value of an ir.IntImm or a tir.IntImm subclass (Integer, Bool).
func (v Value) Int() (int64, error) {
	switch v.kind {
	case KindInt, KindBool:
		return v.bits, nil
	case KindObject:
		o := v.ref.(*Object)
		if n, ok := o.intValue(); ok {
			return n, nil
		}
	}
	return 0, v.wrong("an integer")
}

// Float gives a float, an ir.FloatImm's value, or any integer that Int gives.
func (v Value) Float() (float64, error) {
	switch v.kind {
	case KindFloat:
		return math.Float64frombits(uint64(v.bits)), nil
	case KindObject:
		if x, ok := v.ref.(*Object).floatValue(); ok {
			return x, nil
		}
	}
	if n, err := v.Int(); err == nil {
		return float64(n), nil
	}
	return 0, v.wrong("a number")
}

// Bool gives a bool, or whether an integer that Int gives is not 0.
func (v Value) Bool() (bool, error) {
	n, err := v.Int()
	if err != nil {
		return false, v.wrong("a boolean")
	}
	return n != 0, nil
}

// Str gives a string, whether TVM held it as a C string or as a runtime.String.
func (v Value) Str() (string, error) {
	switch v.kind {
	case KindString:
		return v.str, nil
	case KindObject:
		if o := v.ref.(*Object); o.TypeKey() == "runtime.String" {
			s, err := Global("runtime.GetFFIString", o)
			if err != nil {
				return "", err
			}
			if s.kind == KindString {
				return s.str, nil
			}
		}
	}
	return "", v.wrong("a string")
}

// Bytes gives a copy of bytes, or of a string.
func (v Value) Bytes() ([]byte, error) {
	if v.kind == KindBytes || v.kind == KindString {
		return []byte(v.str), nil
	}
	return nil, v.wrong("bytes")
}

// DataType gives a dtype. TVM returns most dtypes from functions as strings; these are parsed.
func (v Value) DataType() (DataType, error) {
	switch v.kind {
	case KindDataType:
		return *(*DataType)(unsafe.Pointer(&v.bits)), nil
	case KindString:
		return ParseDataType(v.str)
	}
	return DataType{}, v.wrong("a dtype")
}

// Device gives a device.
func (v Value) Device() (Device, error) {
	if v.kind == KindDevice {
		return *(*Device)(unsafe.Pointer(&v.bits)), nil
	}
	return Device{}, v.wrong("a device")
}

// Object gives an object.
func (v Value) Object() (*Object, error) {
	if v.kind == KindObject {
		return v.ref.(*Object), nil
	}
	return nil, v.wrong("an object")
}

// Module gives a runtime module.
func (v Value) Module() (*Module, error) {
	if v.kind == KindModule {
		return v.ref.(*Module), nil
	}
	return nil, v.wrong("a module")
}

// Function gives a packed function.
func (v Value) Function() (*Function, error) {
	if v.kind == KindFunction {
		return v.ref.(*Function), nil
	}
	return nil, v.wrong("a function")
}

// NDArray gives an NDArray.
func (v Value) NDArray() (*NDArray, error) {
	if v.kind == KindNDArray {
		return v.ref.(*NDArray), nil
	}
	return nil, v.wrong("an NDArray")
}

// Any gives the value as the Go type that stands for its kind: nil, int64, float64, bool, string, []byte,
// DataType, Device, uintptr, *Object, *Module, *Function or *NDArray.
func (v Value) Any() any {
	switch v.kind {
	case KindInt:
		return v.bits
	case KindFloat:
		return math.Float64frombits(uint64(v.bits))
	case KindBool:
		return v.bits != 0
	case KindString:
		return v.str
	case KindBytes:
		return []byte(v.str)
	case KindDataType:
		return *(*DataType)(unsafe.Pointer(&v.bits))
	case KindDevice:
		return *(*Device)(unsafe.Pointer(&v.bits))
	}
	return v.ref
}

// Release gives back the handle that the value holds, at once instead of when Go's collector finds it. It
// does nothing for plain kinds.
func (v Value) Release() {
	if r, ok := v.ref.(interface{ Release() }); ok {
		r.Release()
	}
}

// String is for messages and debugging.
func (v Value) String() string {
	switch v.kind {
	case KindNil:
		return "nil"
	case KindString:
		return fmt.Sprintf("%q", v.str)
	case KindBytes:
		return fmt.Sprintf("%d bytes", len(v.str))
	case KindPointer:
		return fmt.Sprintf("pointer %#x", v.ref)
	}
	return fmt.Sprint(v.Any())
}
