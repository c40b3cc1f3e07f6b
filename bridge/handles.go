// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// ErrReleased is what using a handle after Release gives.
var ErrReleased = errors.New("handle was released")

// Counts are the references to TVM's and Python's things that Go holds, by kind, and the Go closures that
// TVM holds. What the bridge keeps for the life of the process (functions that Global has looked up) is not
// counted.
type Counts struct {
	Objects   int64 // *Object
	Functions int64 // *Function
	Modules   int64 // *Module
	NDArrays  int64 // *NDArray, views among them
	Closures  int64 // Go functions that TVM can call
	PyErrors  int64 // Python exceptions held by an *Error
}

// Total is the sum over all kinds.
func (c Counts) Total() int64 {
	return c.Objects + c.Functions + c.Modules + c.NDArrays + c.Closures + c.PyErrors
}

// live counts by liveKind.
var live [liveKinds]atomic.Int64

type liveKind uint8

const (
	liveObject liveKind = iota
	liveFunction
	liveModule
	liveNDArray
	liveClosure
	livePyError
	liveKinds
)

// LiveHandles counts what is alive now. Handles that nobody reaches any more count until Go's collector has
// run and their cleanups after it.
func LiveHandles() Counts {
	return Counts{
		Objects:   live[liveObject].Load(),
		Functions: live[liveFunction].Load(),
		Modules:   live[liveModule].Load(),
		NDArrays:  live[liveNDArray].Load(),
		Closures:  live[liveClosure].Load(),
		PyErrors:  live[livePyError].Load(),
	}
}

// handle is one owned reference. It is given back once: by Release, or by a cleanup after the last use.
type handle struct {
	ptr      unsafe.Pointer // C memory
	released atomic.Bool
	kind     liveKind
	cleanup  runtime.Cleanup
}

// own makes h the owner of the reference p; free gives it back. h must lie in a heap object.
func (h *handle) own(kind liveKind, p unsafe.Pointer, free func(unsafe.Pointer)) {
	h.ptr, h.kind = p, kind
	live[kind].Add(1)
	h.cleanup = runtime.AddCleanup(h, free, p)
}

// pointer gives the handle for a call. The caller keeps h alive until the call is over.
func (h *handle) pointer() (unsafe.Pointer, error) {
	if h.released.Load() {
		return nil, ErrReleased
	}
	return h.ptr, nil
}

// release gives the reference back by free, if that has not been done.
func (h *handle) release(free func(unsafe.Pointer)) {
	if h.released.Swap(true) {
		return
	}
	h.cleanup.Stop()
	free(h.ptr)
	runtime.KeepAlive(h)
}

// The functions below are what cleanups run, on a goroutine of the collector's: they give a reference back
// and count it. After StopFinalizers they leak on purpose.

func freeObjectHandle(p unsafe.Pointer)   { freeCounted(liveObject, p) }
func freeFunctionHandle(p unsafe.Pointer) { freeCounted(liveFunction, p) }
func freeModuleHandle(p unsafe.Pointer)   { freeCounted(liveModule, p) }

func freeCounted(kind liveKind, p unsafe.Pointer) {
	live[kind].Add(-1)
	C.collage_release_object(p)
}

func freeNDArrayHandle(p unsafe.Pointer) {
	live[liveNDArray].Add(-1)
	C.collage_release_array(p)
}

func freePyError(p unsafe.Pointer) {
	live[livePyError].Add(-1)
	C.collage_python_decref(p)
}

// freeHandle gives back a reference that has no handle yet.
func freeHandle(code int32, p unsafe.Pointer) {
	if code == codeNDArray {
		C.collage_array_free(p)
	} else {
		C.collage_free_object(p)
	}
}
