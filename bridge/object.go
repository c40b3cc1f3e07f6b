// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// Object is a reference to a TVM object (an expression, a type, attributes, an IRModule, a container). Two
// Objects may refer to one TVM object; Same tells. It is safe for concurrent use as far as the TVM object
// is: IR is immutable, so reading is.
type Object struct {
	handle
	typeIndex uint32
}

func newObject(p unsafe.Pointer, typeIndex uint32) *Object {
	o := &Object{typeIndex: typeIndex}
	o.own(liveObject, p, freeObjectHandle)
	return o
}

// Release gives the reference back to TVM now. Using the Object afterwards gives ErrReleased; a second
// Release does nothing. Calling it is optional: Go's collector does the same later.
func (o *Object) Release() {
	if o != nil {
		o.release(freeObjectHandle)
	}
}

// Retain gives a further reference to the same TVM object, with a life of its own.
func (o *Object) Retain() (*Object, error) {
	p, err := o.pointer()
	if err != nil {
		return nil, err
	}
	C.collage_retain(p)
	again := newObject(p, o.typeIndex)
	runtime.KeepAlive(o)
	return again, nil
}

// Pointer is the address of the TVM object: its identity for as long as somebody holds a reference. It must
// not be used to reach the object.
func (o *Object) Pointer() uintptr {
	if o == nil {
		return 0
	}
	return uintptr(o.ptr)
}

// Same says whether both refer to the same TVM object.
func (o *Object) Same(other *Object) bool { return o.Pointer() == other.Pointer() }

var typeKeys sync.Map // uint32 -> string

// typeIndex gives the index of a type key in this process.
func typeIndex(key string) (uint32, bool) {
	var index C.uint
	if C.collage_type_index(internC(key), &index) != C.COLLAGE_OK {
		return ^uint32(0), false
	}
	return uint32(index), true
}

// TypeKey is TVM's name of the object's type ("relay.Call", "Array", "TupleType").
func (o *Object) TypeKey() string {
	if o == nil {
		return ""
	}
	if key, ok := typeKeys.Load(o.typeIndex); ok {
		return key.(string)
	}
	f := getFrame()
	defer f.put()
	if C.collage_type_key(C.uint(o.typeIndex), f.c) != C.COLLAGE_OK {
		return ""
	}
	key := f.text()
	typeKeys.Store(o.typeIndex, key)
	return key
}

// TypeIndex is a small number that stands for TypeKey within this process: a fast switch over types can keep
// a table of it.
func (o *Object) TypeIndex() uint32 { return o.typeIndex }

// IsInstance says whether the object is of the type with this key or of one derived from it.
func (o *Object) IsInstance(typeKey string) bool {
	if o == nil {
		return false
	}
	parent, ok := typeIndex(typeKey)
	return ok && (parent == o.typeIndex || C.collage_derived_from(C.uint(o.typeIndex), C.uint(parent)) != 0)
}

// Attr reads a field of a node ("op" of a relay.Call), or an entry of a DictAttrs. "AttributeError" where
// there is none of that name. Names are kept for ever, so they should come from code, not from data.
func (o *Object) Attr(name string) (Value, error) {
	if o == nil {
		return Value{}, fmt.Errorf("attribute %s of a nil object", name)
	}
	p, err := o.pointer()
	if err != nil {
		return Value{}, err
	}
	if nodeGetAttr == nil {
		return Value{}, noFunction("node.NodeGetAttr")
	}
	f := getFrame()
	if C.collage_attr(nodeGetAttr, p, internC(name), f.c) != C.COLLAGE_OK {
		err := f.err()
		f.put()
		return Value{}, err
	}
	v := f.result()
	f.put()
	runtime.KeepAlive(o)
	return v, nil
}

// AttrObject is Attr for a field that holds an object; nil where it holds null.
func (o *Object) AttrObject(name string) (*Object, error) {
	v, err := o.Attr(name)
	if err != nil || v.IsNil() {
		return nil, err
	}
	obj, err := v.Object()
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", name, o.TypeKey(), err)
	}
	return obj, nil
}

// AttrString is Attr for a field that holds a string; "" where it holds null.
func (o *Object) AttrString(name string) (string, error) {
	v, err := o.Attr(name)
	if err != nil || v.IsNil() {
		return "", err
	}
	s, err := v.Str()
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", name, o.TypeKey(), err)
	}
	return s, nil
}

// AttrInt is Attr for a field that holds an integer.
func (o *Object) AttrInt(name string) (int64, error) {
	v, err := o.Attr(name)
	if err != nil {
		return 0, err
	}
	n, err := v.Int()
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", name, o.TypeKey(), err)
	}
	return n, nil
}

// AttrNames are the names that Attr knows, in the order of the node's declaration (of the dictionary for
// DictAttrs).
func (o *Object) AttrNames() ([]string, error) {
	v, err := Global("node.NodeListAttrNames", o)
	if err != nil {
		return nil, err
	}
	list, err := v.Function()
	if err != nil {
		return nil, err
	}
	defer list.Release()
	v, err = list.Invoke(-1)
	if err != nil {
		return nil, err
	}
	n, err := v.Int()
	if err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		if v, err = list.Invoke(i); err != nil {
			return nil, err
		}
		if names[i], err = v.Str(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// intValue reads an ir.IntImm (and what is derived from it).
func (o *Object) intValue() (int64, bool) {
	p, err := o.pointer()
	if err != nil {
		return 0, false
	}
	var n C.int64_t
	ok := C.collage_int_value(p, &n) == C.COLLAGE_OK
	runtime.KeepAlive(o)
	if ok {
		return int64(n), true
	}
	if o.TypeKey() == "IntImm" {
		if v, err := o.Attr("value"); err == nil && v.kind == KindInt {
			return v.bits, true
		}
	}
	return 0, false
}

// floatValue reads an ir.FloatImm.
func (o *Object) floatValue() (float64, bool) {
	p, err := o.pointer()
	if err != nil {
		return 0, false
	}
	var x C.double
	ok := C.collage_float_value(p, &x) == C.COLLAGE_OK
	runtime.KeepAlive(o)
	if ok {
		return float64(x), true
	}
	if o.TypeKey() == "FloatImm" {
		if v, err := o.Attr("value"); err == nil && v.kind == KindFloat {
			x, err := v.Float()
			return x, err == nil
		}
	}
	return 0, false
}

// Text is TVM's own text for the object (what Python's repr shows); the type key where TVM cannot say, as in
// libtvm_runtime.
func (o *Object) Text() string {
	v, err := Global("node.AsRepr", o)
	if err == nil {
		if s, err := v.Str(); err == nil {
			return strings.TrimRight(s, "\n")
		}
	}
	return o.TypeKey()
}

// String is for messages and debugging: the type and the address.
func (o *Object) String() string {
	if o == nil {
		return "nil"
	}
	return fmt.Sprintf("%s(%#x)", o.TypeKey(), o.Pointer())
}
