// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mattn/go-pointer"
)

// closure is a Go function that TVM can call. TVM's resource handle is a go-pointer key to it; the one place
// that frees the key is collageBridgeDrop, when TVM drops the packed function.
type closure struct {
	name string
	f    atomic.Pointer[func([]Value) (any, error)]
}

// drop lets the function go, once.
func (c *closure) drop() {
	if c.f.Swap(nil) != nil {
		live[liveClosure].Add(-1)
	}
}

// newClosure makes a packed function of f and gives its handle, which the caller owns. name is for messages.
func newClosure(name string, f func([]Value) (any, error)) (unsafe.Pointer, error) {
	p, _, err := makeClosure(name, f)
	return p, err
}

func makeClosure(name string, f func([]Value) (any, error)) (unsafe.Pointer, *closure, error) {
	if f == nil {
		return nil, nil, fmt.Errorf("TypeError: a nil function cannot be given to TVM")
	}
	if !loaded.Load() {
		return nil, nil, ErrNotLoaded
	}
	c := &closure{name: name}
	c.f.Store(&f)
	key := pointer.Save(c)
	fr := getFrame()
	defer fr.put()
	live[liveClosure].Add(1)
	if C.collage_new_function(key, fr.c) != C.COLLAGE_OK {
		// TVM made nothing, so its finalizer will not come.
		c.drop()
		pointer.Unref(key)
		return nil, nil, fr.err()
	}
	return fr.handle(), c, nil
}

// NewFunction makes a packed function of f. TVM may call it from any thread, several times at once. The
// arguments are f's to keep. A panic becomes an error; an error that begins with the name of a Python
// exception ("ValueError: ...") becomes that exception in Python, an *Error that carries a Python exception
// becomes that very exception. f stays alive until Go and TVM have both dropped the function.
func NewFunction(f func(args []Value) (any, error)) (*Function, error) {
	p, err := newClosure("", f)
	if err != nil {
		return nil, err
	}
	return newFunction(p, ""), nil
}

// registered are the closures that stand in TVM's registry. TVM's registry never frees an entry, so a closure
// that leaves it is dropped from here.
var (
	registeredMutex sync.Mutex
	registered      = map[string]*closure{}
)

// RegisterFunction makes f a global function; see NewFunction for f. With override false, a name that is
// taken is an error.
func RegisterFunction(name string, override bool, f func(args []Value) (any, error)) error {
	registeredMutex.Lock()
	defer registeredMutex.Unlock()
	if !override {
		if have, ok := LookupGlobalFunction(name); ok {
			have.Release()
			return fmt.Errorf("cannot register %s: there is a global function of that name already", name)
		}
	}
	p, c, err := makeClosure(name, f)
	if err != nil {
		return fmt.Errorf("cannot register %s: %w", name, err)
	}
	defer C.collage_free_object(p) // the registry has its own reference
	fr := getFrame()
	defer fr.put()
	var flag C.int
	if override {
		flag = 1
	}
	if C.collage_register_global((*C.char)(fr.cstring(name)), p, flag, fr.c) != C.COLLAGE_OK {
		return fmt.Errorf("cannot register %s: %w", name, fr.err())
	}
	forgetGlobal(name)
	if old := registered[name]; old != nil {
		old.drop()
	}
	registered[name] = c
	return nil
}

// RemoveGlobalFunction takes a name out of TVM's registry; nothing happens where it is not there. A Go
// function that was registered under it can no longer be called, also by those who looked it up before.
func RemoveGlobalFunction(name string) error {
	if !loaded.Load() {
		return ErrNotLoaded
	}
	registeredMutex.Lock()
	defer registeredMutex.Unlock()
	fr := getFrame()
	defer fr.put()
	if C.collage_remove_global((*C.char)(fr.cstring(name)), fr.c) != C.COLLAGE_OK {
		return fr.err()
	}
	forgetGlobal(name)
	if c := registered[name]; c != nil {
		c.drop()
		delete(registered, name)
	}
	return nil
}

// collageBridgeInvoke is what a packed function of ours runs: it turns the arguments, whose references it
// takes over, into Values, calls the closure and hands the result or the error to TVM.
//
//export collageBridgeInvoke
func collageBridgeInvoke(key unsafe.Pointer, values *C.TVMValue, codes *C.int, types *C.uint, n C.int,
	ret unsafe.Pointer) C.int {
	args := decodeArgs(values, codes, types, int(n))
	defer expireViews(args)
	c, _ := pointer.Restore(key).(*closure)
	result, err := c.run(args)
	if err == nil {
		err = setResult(ret, result)
	}
	if err != nil {
		setError(err)
		return -1
	}
	return 0
}

// run calls the closure; a panic becomes an error.
func (c *closure) run(args []Value) (result any, err error) {
	if c == nil {
		return nil, fmt.Errorf("InternalError: TVM called a Go function that does not exist")
	}
	f := c.f.Load()
	if f == nil {
		return nil, fmt.Errorf("RuntimeError: the Go function %s was removed", c.name)
	}
	defer func() {
		if r := recover(); r != nil {
			name := c.name
			if name == "" {
				name = "a Go function"
			}
			result, err = nil, fmt.Errorf("InternalError: panic in %s: %v\n%s", name, r, debug.Stack())
		}
	}()
	return (*f)(args)
}

// setResult gives a callback's result to TVM.
func setResult(ret unsafe.Pointer, result any) error {
	if result == nil {
		return nil // TVM's default is null
	}
	fr := getFrame()
	defer fr.put()
	if err := fr.set(0, result); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if fr.codes[0] == codeDLTensor {
		return fmt.Errorf("TypeError: a view of an NDArray cannot be returned to TVM; return a copy")
	}
	rc := C.collage_set_return(ret, fr.c)
	keepAlive(result)
	if rc != C.COLLAGE_OK {
		return fr.err()
	}
	return nil
}

// decodeArgs makes Values of callback arguments. Strings and bytes are copied; handles are already ours.
func decodeArgs(values *C.TVMValue, codes *C.int, types *C.uint, n int) []Value {
	if n == 0 {
		return nil
	}
	slots := unsafe.Slice((*int64)(unsafe.Pointer(values)), n)
	cs := unsafe.Slice((*int32)(unsafe.Pointer(codes)), n)
	ts := unsafe.Slice((*uint32)(unsafe.Pointer(types)), n)
	args := make([]Value, n)
	for i := range args {
		p := *(*unsafe.Pointer)(unsafe.Pointer(&slots[i]))
		switch cs[i] {
		case codeString:
			args[i] = Value{kind: KindString, str: C.GoString((*C.char)(p))}
		case codeBytes:
			b := (*C.TVMByteArray)(p)
			args[i] = Value{kind: KindBytes, str: copyString(unsafe.Pointer(b.data), uint64(b.size))}
		case codeObject:
			args[i] = decodeObject(p, ts[i])
		case codeModule, codeFunction, codeNDArray:
			args[i] = ownedValue(cs[i], p, 0)
		case codeDLTensor:
			if p != nil {
				args[i] = Value{kind: KindNDArray, ref: borrowTensor(p)}
			}
		default:
			args[i] = plainValue(cs[i], &slots[i])
		}
	}
	return args
}

// decodeObject makes a Value of an object that is ours; a runtime.String becomes a string.
func decodeObject(p unsafe.Pointer, typeIndex uint32) Value {
	if typeIndex == uint32(C.collage_tvm.string_type) {
		f := getFrame()
		defer f.put()
		store(unsafe.Pointer(&f.c.ret), p)
		f.c.ret_type = C.uint(typeIndex)
		if C.collage_unbox_string(f.c) == C.COLLAGE_OK {
			return Value{kind: KindString, str: f.text()}
		}
	}
	return ownedValue(codeObject, p, typeIndex)
}

// expireViews ends the life of tensors that TVM lent for the length of the call.
func expireViews(args []Value) {
	for _, v := range args {
		if a, ok := v.ref.(*NDArray); ok && a.borrowed {
			a.released.Store(true)
		}
	}
}

// collageBridgeDrop is TVM's notice that the last reference to a packed function of ours is gone.
//
//export collageBridgeDrop
func collageBridgeDrop(key unsafe.Pointer) {
	if c, ok := pointer.Restore(key).(*closure); ok {
		c.drop()
	}
	pointer.Unref(key)
}
