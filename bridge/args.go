// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"sort"
	"unsafe"
)

// setArgs encodes arguments. The caller keeps args alive until the call is over.
func (f *frame) setArgs(args []any) error {
	f.room(len(args))
	for i, arg := range args {
		if err := f.set(i, arg); err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return nil
}

// set encodes one argument or result into slot i.
func (f *frame) set(i int, arg any) error {
	switch a := arg.(type) {
	case nil:
		f.setInt(i, codeNil, 0)
	case *Object:
		if a == nil {
			f.setInt(i, codeNil, 0)
			return nil
		}
		return f.setHandle(i, codeObject, &a.handle)
	case Value:
		return f.setValue(i, a)
	case string:
		f.setPointer(i, codeString, f.cstring(a))
	case int:
		f.setInt(i, codeInt, int64(a))
	case int64:
		f.setInt(i, codeInt, a)
	case bool:
		f.setBool(i, a)
	case float64:
		f.setFloat(i, a)
	case *Function:
		if a == nil {
			f.setInt(i, codeNil, 0)
			return nil
		}
		return f.setHandle(i, codeFunction, &a.handle)
	case *NDArray:
		if a == nil {
			f.setInt(i, codeNil, 0)
			return nil
		}
		if a.view {
			return f.setHandle(i, codeDLTensor, &a.handle)
		}
		return f.setHandle(i, codeNDArray, &a.handle)
	case *Module:
		if a == nil {
			f.setInt(i, codeNil, 0)
			return nil
		}
		return f.setHandle(i, codeModule, &a.handle)
	case []byte:
		f.setBytes(i, a)
	case DataType:
		var bits int64
		*(*DataType)(unsafe.Pointer(&bits)) = a
		f.setInt(i, codeDataType, bits)
	case Device:
		var bits int64
		*(*Device)(unsafe.Pointer(&bits)) = a
		f.setInt(i, codeDevice, bits)
	default:
		return f.setOther(i, arg)
	}
	return nil
}

// setOther encodes the less common types.
func (f *frame) setOther(i int, arg any) error {
	switch a := arg.(type) {
	case int8:
		f.setInt(i, codeInt, int64(a))
	case int16:
		f.setInt(i, codeInt, int64(a))
	case int32:
		f.setInt(i, codeInt, int64(a))
	case uint8:
		f.setInt(i, codeInt, int64(a))
	case uint16:
		f.setInt(i, codeInt, int64(a))
	case uint32:
		f.setInt(i, codeInt, int64(a))
	case uint:
		return f.setUnsigned(i, uint64(a))
	case uint64:
		return f.setUnsigned(i, a)
	case uintptr:
		f.setInt(i, codeOpaque, int64(a))
	case float32:
		f.setFloat(i, float64(a))
	case []any:
		return f.setArray(i, a)
	case []string:
		return f.setArray(i, anySlice(a))
	case []int64:
		return f.setArray(i, anySlice(a))
	case []int:
		return f.setArray(i, anySlice(a))
	case []float64:
		return f.setArray(i, anySlice(a))
	case []*Object:
		return f.setArray(i, anySlice(a))
	case []*NDArray:
		return f.setArray(i, anySlice(a))
	case []*Module:
		return f.setArray(i, anySlice(a))
	case []Value:
		return f.setArray(i, anySlice(a))
	case map[string]any:
		return f.setMap(i, a)
	case map[string]string:
		m := make(map[string]any, len(a))
		for k, v := range a {
			m[k] = v
		}
		return f.setMap(i, m)
	case func([]Value) (any, error):
		p, err := newClosure("", a)
		if err != nil {
			return err
		}
		f.setPointer(i, codeFunction, p)
		f.temps = append(f.temps, temp{p, codeFunction})
	default:
		return fmt.Errorf("TypeError: a %T cannot be given to TVM", arg)
	}
	return nil
}

func anySlice[T any](s []T) []any {
	out := make([]any, len(s))
	for i := range s {
		out[i] = s[i]
	}
	return out
}

func (f *frame) setUnsigned(i int, n uint64) error {
	if n > math.MaxInt64 {
		return fmt.Errorf("OverflowError: %d does not fit TVM's 64-bit signed integer", n)
	}
	f.setInt(i, codeInt, int64(n))
	return nil
}

// setBool sends a boolean; a TVM before 0.18 knows only integers.
func (f *frame) setBool(i int, b bool) {
	var n int64
	if b {
		n = 1
	}
	if C.collage_tvm.has_bool != 0 {
		f.setInt(i, codeBool, n)
	} else {
		f.setInt(i, codeInt, n)
	}
}

func (f *frame) setHandle(i int, code int32, h *handle) error {
	p, err := h.pointer()
	if err != nil {
		return err
	}
	f.setPointer(i, code, p)
	return nil
}

func (f *frame) setValue(i int, v Value) error {
	switch v.kind {
	case KindInt:
		f.setInt(i, codeInt, v.bits)
	case KindFloat:
		f.setInt(i, codeFloat, v.bits)
	case KindBool:
		f.setBool(i, v.bits != 0)
	case KindString:
		f.setPointer(i, codeString, f.cstring(v.str))
	case KindBytes:
		f.setBytes(i, []byte(v.str))
	case KindDataType:
		f.setInt(i, codeDataType, v.bits)
	case KindDevice:
		f.setInt(i, codeDevice, v.bits)
	default:
		return f.set(i, v.ref) // nil, a handle, or a uintptr
	}
	return nil
}

// setArray makes a runtime.Array for the length of the call.
func (f *frame) setArray(i int, items []any) error {
	return f.setMade(i, "runtime.Array", items)
}

// setMap makes a runtime.Map for the length of the call. Keys go in by name, so that what TVM builds from
// equal maps is equal.
func (f *frame) setMap(i int, m map[string]any) error {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	args := make([]any, 0, 2*len(m))
	for _, k := range keys {
		args = append(args, k, m[k])
	}
	return f.setMade(i, "runtime.Map", args)
}

// setMade calls a constructor and puts what it makes into slot i; the frame releases it.
func (f *frame) setMade(i int, constructor string, args []any) error {
	fn, err := cachedGlobal(constructor)
	if err != nil {
		return err
	}
	inner := getFrame()
	defer inner.put()
	if C.collage_tvm.has_bool == 0 {
		if args, err = boxIntegers(args); err != nil {
			return err
		}
	}
	if err := fn.call(inner, args); err != nil {
		return err
	}
	p := inner.handle()
	f.setPointer(i, codeObject, p)
	f.temps = append(f.temps, temp{p, codeObject})
	return nil
}

// boxIntegers is for a TVM before 0.18, whose containers hold objects only: integers become ir.IntImm, as
// Python's convert makes them.
func boxIntegers(args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg
		var n int64
		switch a := arg.(type) {
		case int:
			n = int64(a)
		case int64:
			n = a
		case bool:
			v, err := Global("ir.IntImm", "bool", a, nil)
			if err != nil {
				return nil, err
			}
			out[i] = v
			continue
		default:
			continue
		}
		dtype := "int32"
		if n != int64(int32(n)) {
			dtype = "int64"
		}
		v, err := Global("ir.IntImm", dtype, n, nil)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}
