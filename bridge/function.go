// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"unsafe"
)

// Function is a packed function: something of TVM's that can be called by name, a function of a module, a
// Python callable, or a Go closure.
type Function struct {
	handle
	name string
}

func newFunction(p unsafe.Pointer, name string) *Function {
	fn := &Function{name: name}
	fn.own(liveFunction, p, freeFunctionHandle)
	return fn
}

// Release gives the reference back to TVM now; see Object.Release.
func (fn *Function) Release() {
	if fn != nil {
		fn.release(freeFunctionHandle)
	}
}

// Name is the name that the function was looked up by; "" where it had none.
func (fn *Function) Name() string { return fn.name }

// String is for messages and debugging.
func (fn *Function) String() string {
	if fn == nil {
		return "nil"
	}
	if fn.name == "" {
		return fmt.Sprintf("packed function (%#x)", uintptr(fn.ptr))
	}
	return fn.name
}

// Invoke calls the function on the current thread. Arguments may be nil, booleans, integers, floats, strings,
// []byte, DataType, Device, *Object, *Module, *Function, *NDArray, Value, slices of these (they become a
// runtime.Array), map[string]any (a runtime.Map) and func([]Value) (any, error) (a packed function). TVM
// borrows them for the length of the call and takes references of its own to what it keeps. The result owns
// what it refers to. An error is an *Error where it comes from TVM or Python.
func (fn *Function) Invoke(args ...any) (Value, error) {
	if fn == nil {
		return Value{}, fmt.Errorf("call of a nil function")
	}
	f := getFrame()
	if err := fn.call(f, args); err != nil {
		f.put()
		return Value{}, err
	}
	v := f.result()
	f.put()
	return v, nil
}

// call encodes args, calls, and leaves the raw result in the frame.
func (fn *Function) call(f *frame, args []any) error {
	p, err := fn.pointer()
	if err != nil {
		return err
	}
	if err := f.setArgs(args); err != nil {
		if fn.name != "" {
			return fmt.Errorf("%s: %w", fn.name, err)
		}
		return err
	}
	rc := C.collage_call(p, f.c, C.int(len(args)))
	runtime.KeepAlive(args)
	runtime.KeepAlive(fn)
	if rc != C.COLLAGE_OK {
		return f.err()
	}
	return nil
}

// noFunction is the error for a global function that does not exist.
func noFunction(name string) error {
	if !Loaded() {
		return ErrNotLoaded
	}
	hint := ""
	if !hasCompiler {
		hint = " (this is libtvm_runtime, which has no compiler)"
	}
	return fmt.Errorf("no global function %s in TVM from %s%s", name, libraryPath, hint)
}

// LookupGlobalFunction finds a global function by name; false where there is none. The caller owns it.
func LookupGlobalFunction(name string) (*Function, bool) {
	if !loaded.Load() || strings.IndexByte(name, 0) >= 0 {
		return nil, false
	}
	f := getFrame()
	defer f.put()
	if C.collage_get_global((*C.char)(f.cstring(name)), f.c) != C.COLLAGE_OK {
		return nil, false
	}
	return newFunction(f.handle(), name), true
}

// GetGlobalFunction finds a global function by name. The caller owns it.
func GetGlobalFunction(name string) (*Function, error) {
	if fn, ok := LookupGlobalFunction(name); ok {
		return fn, nil
	}
	return nil, noFunction(name)
}

// ListGlobalFunctionNames are the names of all global functions, sorted.
func ListGlobalFunctionNames() ([]string, error) {
	if !loaded.Load() {
		return nil, ErrNotLoaded
	}
	f := getFrame()
	defer f.put()
	if C.collage_list_globals(f.c) != C.COLLAGE_OK {
		return nil, f.err()
	}
	names := strings.Split(f.text(), "\x00")
	names = names[:len(names)-1]
	sort.Strings(names)
	return names, nil
}

// globals caches what Global has looked up, for the life of the process.
var globals sync.Map // string -> *Function

// cachedGlobal looks a function up once. Names under "collage." are looked up each time: hosts and tests
// register them anew.
func cachedGlobal(name string) (*Function, error) {
	if fn, ok := globals.Load(name); ok {
		return fn.(*Function), nil
	}
	fn, err := GetGlobalFunction(name)
	if err != nil || strings.HasPrefix(name, "collage.") {
		return fn, err
	}
	if have, raced := globals.LoadOrStore(strings.Clone(name), fn); raced {
		fn.Release()
		return have.(*Function), nil
	}
	live[liveFunction].Add(-1) // kept on purpose; Counts leaves it out
	return fn, nil
}

// forgetGlobal drops a cached function whose name now stands for something else.
func forgetGlobal(name string) {
	if fn, ok := globals.LoadAndDelete(name); ok {
		live[liveFunction].Add(1)
		fn.(*Function).Release()
	}
}

// Global calls a global function by name. It looks a name up once, so after the first call a function that
// Python registers anew under the same name is not seen (but for names that begin with "collage.");
// GetGlobalFunction always looks.
func Global(name string, args ...any) (Value, error) {
	fn, err := cachedGlobal(name)
	if err != nil {
		return Value{}, err
	}
	return fn.Invoke(args...)
}
