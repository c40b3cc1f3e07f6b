// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"math"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

const (
	frameValues  = 16      // arguments that a new frame has room for
	frameArena   = 4 << 10 // bytes for C copies of strings; longer ones are allocated one by one
	pinThreshold = 4 << 10 // []byte arguments from this size on are pinned instead of copied
	keepText     = 64 << 10
)

// frame carries one call into TVM: arguments encoded in C memory, and the place where C leaves the result or
// the error. A frame belongs to one goroutine from getFrame to put.
type frame struct {
	c      *C.collage_frame
	values []int64 // C memory, c.values
	codes  []int32 // C memory, c.codes

	arena  unsafe.Pointer // C memory
	used   int
	extra  []unsafe.Pointer // C allocations to free after the call
	temps  []temp           // TVM objects made for this call's arguments
	pins   runtime.Pinner
	pinned bool
}

// temp is a reference that the frame owns until the call is over.
type temp struct {
	ptr  unsafe.Pointer
	code int32
}

var (
	framesMutex sync.Mutex
	frames      []*frame
)

// getFrame takes a free frame or makes one. Frames are never freed: there are as many as there ever were
// calls at the same time.
func getFrame() *frame {
	framesMutex.Lock()
	if n := len(frames); n > 0 {
		f := frames[n-1]
		frames = frames[:n-1]
		framesMutex.Unlock()
		return f
	}
	framesMutex.Unlock()
	f := &frame{c: C.collage_frame_new(frameValues), arena: C.malloc(frameArena)}
	if f.c == nil {
		panic("bridge: out of memory")
	}
	f.slices()
	return f
}

// slices makes values and codes show the C arrays.
func (f *frame) slices() {
	n := int(f.c.cap)
	f.values = unsafe.Slice((*int64)(unsafe.Pointer(f.c.values)), n)
	f.codes = unsafe.Slice((*int32)(unsafe.Pointer(f.c.codes)), n)
}

// put gives the frame back, and releases what was made for its arguments.
func (f *frame) put() {
	if len(f.temps) > 0 {
		for _, t := range f.temps {
			freeHandle(t.code, t.ptr)
		}
		f.temps = f.temps[:0]
	}
	if len(f.extra) > 0 {
		for _, p := range f.extra {
			C.free(p)
		}
		f.extra = f.extra[:0]
	}
	if f.pinned {
		f.pins.Unpin()
		f.pinned = false
	}
	if f.c.text_cap > keepText {
		C.collage_frame_trim(f.c, keepText)
	}
	f.used = 0
	framesMutex.Lock()
	frames = append(frames, f)
	framesMutex.Unlock()
}

// room makes place for n arguments. Arguments that are already there stay.
func (f *frame) room(n int) {
	if n <= int(f.c.cap) {
		return
	}
	if C.collage_frame_grow(f.c, C.int(max(n, 2*int(f.c.cap)))) != C.COLLAGE_OK {
		panic("bridge: out of memory")
	}
	f.slices()
}

// alloc gives n bytes of C memory that live until put.
func (f *frame) alloc(n int) unsafe.Pointer {
	if n <= frameArena-f.used {
		p := unsafe.Add(f.arena, f.used)
		f.used += (n + 7) &^ 7
		if f.used > frameArena {
			f.used = frameArena
		}
		return p
	}
	p := C.malloc(C.size_t(n))
	f.extra = append(f.extra, p)
	return p
}

// cstring gives a NUL-terminated copy of s that lives until put.
func (f *frame) cstring(s string) unsafe.Pointer {
	p := f.alloc(len(s) + 1)
	b := unsafe.Slice((*byte)(p), len(s)+1)
	copy(b, s)
	b[len(s)] = 0
	return p
}

func (f *frame) setInt(i int, code int32, v int64) {
	f.values[i], f.codes[i] = v, code
}

func (f *frame) setFloat(i int, v float64) {
	f.values[i], f.codes[i] = int64(math.Float64bits(v)), codeFloat
}

func (f *frame) setPointer(i int, code int32, p unsafe.Pointer) {
	store(unsafe.Pointer(&f.values[i]), p)
	f.codes[i] = code
}

// store writes a pointer into C memory, as a number: while garbage is collected, Go's write barrier would mark what the
// old content points to, which may be any bits, among them the address of Go memory that has been freed since.
func store(at, p unsafe.Pointer) { *(*uintptr)(at) = uintptr(p) }

// setBytes lends b to TVM for the length of the call.
func (f *frame) setBytes(i int, b []byte) {
	var data unsafe.Pointer
	switch {
	case len(b) == 0:
		data = f.alloc(1)
	case len(b) >= pinThreshold:
		f.pins.Pin(&b[0])
		f.pinned = true
		data = unsafe.Pointer(&b[0])
	default:
		data = f.alloc(len(b))
		copy(unsafe.Slice((*byte)(data), len(b)), b)
	}
	array := (*C.TVMByteArray)(f.alloc(int(unsafe.Sizeof(C.TVMByteArray{}))))
	store(unsafe.Pointer(&array.data), data)
	array.size = C.size_t(len(b))
	f.setPointer(i, codeBytes, unsafe.Pointer(array))
}

// handle is the result where it is a pointer.
func (f *frame) handle() unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&f.c.ret))
}

// text copies the string, the bytes or the message that C left.
func (f *frame) text() string {
	return copyString(unsafe.Pointer(f.c.text), uint64(f.c.text_len))
}

// copyString copies n bytes of C memory; n may be beyond what C.GoStringN can count.
func copyString(p unsafe.Pointer, n uint64) string {
	if n == 0 {
		return ""
	}
	return strings.Clone(unsafe.String((*byte)(p), int(n)))
}

// result turns what a call left into a Value, which owns what it refers to.
func (f *frame) result() Value {
	code := int32(f.c.ret_code)
	switch code {
	case codeString:
		return Value{kind: KindString, str: f.text()}
	case codeBytes:
		return Value{kind: KindBytes, str: f.text()}
	case codeObject, codeModule, codeFunction, codeNDArray:
		return ownedValue(code, f.handle(), uint32(f.c.ret_type))
	}
	return plainValue(code, (*int64)(unsafe.Pointer(&f.c.ret)))
}
