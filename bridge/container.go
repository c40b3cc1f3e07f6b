// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"slices"
)

// Entry is a key and a value of a runtime.Map.
type Entry struct {
	Key   Value
	Value Value
}

// Len is the number of items of an Array, a Map, an ADT or a ShapeTuple; an error for any other object.
func (o *Object) Len() (int, error) {
	p, err := o.pointer()
	if err != nil {
		return 0, err
	}
	var n C.int64_t
	quick := C.collage_array_size(p, &n) == C.COLLAGE_OK
	runtime.KeepAlive(o)
	if quick {
		return int(n), nil
	}
	sizes := map[string]string{"Array": "runtime.ArraySize", "Map": "runtime.MapSize",
		"runtime.ADT": "runtime.GetADTSize", "runtime.ShapeTuple": "runtime.GetShapeTupleSize"}
	name, ok := sizes[o.TypeKey()]
	if !ok {
		return 0, fmt.Errorf("TypeError: %s has no length", o.TypeKey())
	}
	v, err := Global(name, o)
	if err != nil {
		return 0, err
	}
	size, err := v.Int()
	return int(size), err
}

// At is item i of an Array, an ADT or a ShapeTuple, counted from 0.
func (o *Object) At(i int) (Value, error) {
	p, err := o.pointer()
	if err != nil {
		return Value{}, err
	}
	var n C.int64_t
	if C.collage_array_size(p, &n) == C.COLLAGE_OK {
		defer runtime.KeepAlive(o)
		if i < 0 || i >= int(n) {
			return Value{}, fmt.Errorf("IndexError: item %d of an Array of %d", i, int64(n))
		}
		f := getFrame()
		defer f.put()
		if C.collage_array_at(p, C.int64_t(i), f.c) != C.COLLAGE_OK {
			return Value{}, f.err()
		}
		return f.result(), nil
	}
	getters := map[string]string{"Array": "runtime.ArrayGetItem", "runtime.ADT": "runtime.GetADTFields",
		"runtime.ShapeTuple": "runtime.GetShapeTupleElem"}
	name, ok := getters[o.TypeKey()]
	if !ok {
		return Value{}, fmt.Errorf("TypeError: %s has no items", o.TypeKey())
	}
	return Global(name, o, i)
}

// ObjectAt is At for an item that is an object; nil where it is null.
func (o *Object) ObjectAt(i int) (*Object, error) {
	v, err := o.At(i)
	if err != nil || v.IsNil() {
		return nil, err
	}
	return v.Object()
}

// Items are all items of an Array, an ADT or a ShapeTuple.
func (o *Object) Items() ([]Value, error) {
	n, err := o.Len()
	if err != nil {
		return nil, err
	}
	items := make([]Value, n)
	for i := range items {
		if items[i], err = o.At(i); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// Objects are all items of an Array or an ADT of objects; nil where an item is null.
func (o *Object) Objects() ([]*Object, error) {
	n, err := o.Len()
	if err != nil {
		return nil, err
	}
	items := make([]*Object, n)
	for i := range items {
		if items[i], err = o.ObjectAt(i); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return items, nil
}

// Strings are all items of an Array of strings.
func (o *Object) Strings() ([]string, error) {
	values, err := o.Items()
	if err != nil {
		return nil, err
	}
	items := make([]string, len(values))
	for i, v := range values {
		if items[i], err = v.Str(); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return items, nil
}

// Ints are all items of an Array of integers (ir.IntImm or boxed), read in one step. An item that is no
// integer constant (a symbolic dimension, Any) becomes otherwise, and the second result counts such items.
func (o *Object) Ints(otherwise int64) ([]int64, int, error) {
	p, err := o.pointer()
	if err != nil {
		return nil, 0, err
	}
	f := getFrame()
	defer f.put()
	n := C.collage_array_ints(p, C.int64_t(otherwise), f.c)
	if n > C.int64_t(f.c.cap) {
		f.room(int(n))
		n = C.collage_array_ints(p, C.int64_t(otherwise), f.c)
	}
	runtime.KeepAlive(o)
	if n < 0 {
		return o.intsSlowly(otherwise)
	}
	return slices.Clone(f.values[:n]), int(f.c.ret_type), nil
}

// intsSlowly is Ints item by item, for ShapeTuples and for a TVM whose arrays cannot be read in place.
func (o *Object) intsSlowly(otherwise int64) ([]int64, int, error) {
	values, err := o.Items()
	if err != nil {
		return nil, 0, err
	}
	items := make([]int64, len(values))
	others := 0
	for i, v := range values {
		if items[i], err = v.Int(); err != nil {
			items[i] = otherwise
			others++
		}
	}
	return items, others, nil
}

// Entries are the keys and values of a Map, in the map's own order.
func (o *Object) Entries() ([]Entry, error) {
	v, err := Global("runtime.MapItems", o)
	if err != nil {
		return nil, err
	}
	list, err := v.Object()
	if err != nil {
		return nil, err
	}
	defer list.Release()
	items, err := list.Items()
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(items)/2)
	for i := range entries {
		entries[i] = Entry{Key: items[2*i], Value: items[2*i+1]}
	}
	return entries, nil
}

// Get looks a key up in a Map. The second result is false where the map has no such key.
func (o *Object) Get(key any) (Value, bool, error) {
	n, err := Global("runtime.MapCount", o, key)
	if err != nil {
		return Value{}, false, err
	}
	if count, err := n.Int(); err != nil || count == 0 {
		return Value{}, false, err
	}
	v, err := Global("runtime.MapGetItem", o, key)
	return v, err == nil, err
}

// Tag is the constructor's number of an ADT.
func (o *Object) Tag() (int64, error) {
	v, err := Global("runtime.GetADTTag", o)
	if err != nil {
		return 0, err
	}
	return v.Int()
}

// NewArray makes a runtime.Array of the items.
func NewArray(items ...any) (*Object, error) {
	v, err := Global("runtime.Array", items...)
	if err != nil {
		return nil, err
	}
	return v.Object()
}

// NewMap makes a runtime.Map from keys and values in turn.
func NewMap(keysAndValues ...any) (*Object, error) {
	if len(keysAndValues)%2 != 0 {
		return nil, fmt.Errorf("ValueError: NewMap wants keys and values in turn, got %d of them", len(keysAndValues))
	}
	v, err := Global("runtime.Map", keysAndValues...)
	if err != nil {
		return nil, err
	}
	return v.Object()
}
