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
	"unsafe"
)

// NDArray is a tensor: one that TVM counts references to, a view on the memory of such a one, or a tensor that
// TVM lent to a callback.
type NDArray struct {
	handle
	view     bool     // a bare DLTensor: goes to TVM as such, and cannot be kept by it
	borrowed bool     // TVM's; ends with the callback
	base     *NDArray // what a view's memory belongs to
}

// deviceTypes is the size of TVM's table of devices, which TVM itself does not check: a number beyond it ends
// the process.
const deviceTypes = 36

// newNDArray takes over a reference to an NDArray.
func newNDArray(p unsafe.Pointer) *NDArray {
	a := &NDArray{}
	a.own(liveNDArray, p, freeNDArrayHandle)
	return a
}

// borrowTensor wraps a tensor that TVM lends for the length of a callback. It owns nothing and is not counted.
func borrowTensor(p unsafe.Pointer) *NDArray {
	return &NDArray{handle: handle{ptr: p}, view: true, borrowed: true}
}

// Empty makes an NDArray whose content is not set. shape is in items, outermost dimension first; no shape
// means a scalar.
func Empty(shape []int64, dtype DataType, device Device) (*NDArray, error) {
	if !loaded.Load() {
		return nil, ErrNotLoaded
	}
	for _, n := range shape {
		if n < 0 {
			return nil, fmt.Errorf("ValueError: shape %v has a negative dimension", shape)
		}
	}
	if device.Type < 1 || device.Type >= deviceTypes {
		return nil, fmt.Errorf("ValueError: there is no device type %d", device.Type)
	}
	f := getFrame()
	defer f.put()
	dims := append([]int64{}, shape...)
	dims = append(dims, 0) // so that a scalar's has an address
	rc := C.collage_array_alloc((*C.int64_t)(unsafe.Pointer(&dims[0])), C.int(len(shape)),
		*(*C.DLDataType)(unsafe.Pointer(&dtype)),
		*(*C.DLDevice)(unsafe.Pointer(&device)), f.c)
	if rc != C.COLLAGE_OK {
		return nil, f.err()
	}
	return newNDArray(f.handle()), nil
}

// Release gives the reference back to TVM now; see Object.Release.
func (a *NDArray) Release() {
	if a == nil || a.borrowed {
		return
	}
	if a.base != nil {
		a.release(freeViewHandle)
	} else {
		a.release(freeNDArrayHandle)
	}
}

// tensor gives the DLTensor; the caller keeps a alive.
func (a *NDArray) tensor() (*C.DLTensor, error) {
	if a == nil {
		return nil, fmt.Errorf("nil NDArray")
	}
	p, err := a.pointer()
	if err != nil {
		if a.borrowed {
			return nil, fmt.Errorf("%w: TVM lent the tensor for the length of a call; copy what you keep", err)
		}
		return nil, err
	}
	return (*C.DLTensor)(p), nil
}

// Shape is the extent of each dimension, in items, outermost first. nil after Release.
func (a *NDArray) Shape() []int64 {
	t, err := a.tensor()
	if err != nil {
		return nil
	}
	defer runtime.KeepAlive(a)
	return slices.Clone(unsafe.Slice((*int64)(unsafe.Pointer(t.shape)), int(t.ndim)))
}

// Strides are the distances between neighbours in each dimension, in items. nil after Release.
func (a *NDArray) Strides() []int64 {
	t, err := a.tensor()
	if err != nil {
		return nil
	}
	defer runtime.KeepAlive(a)
	if t.strides != nil {
		return slices.Clone(unsafe.Slice((*int64)(unsafe.Pointer(t.strides)), int(t.ndim)))
	}
	return compactStrides(unsafe.Slice((*int64)(unsafe.Pointer(t.shape)), int(t.ndim)))
}

func compactStrides(shape []int64) []int64 {
	strides := make([]int64, len(shape))
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = step
		step *= shape[d]
	}
	return strides
}

// ByteOffset is where the first item lies, in bytes from the start of the memory.
func (a *NDArray) ByteOffset() uint64 {
	t, err := a.tensor()
	if err != nil {
		return 0
	}
	defer runtime.KeepAlive(a)
	return uint64(t.byte_offset)
}

// DType is the type of the items.
func (a *NDArray) DType() DataType {
	t, err := a.tensor()
	if err != nil {
		return DataType{}
	}
	defer runtime.KeepAlive(a)
	return *(*DataType)(unsafe.Pointer(&t.dtype))
}

// Device says where the memory is.
func (a *NDArray) Device() Device {
	t, err := a.tensor()
	if err != nil {
		return Device{}
	}
	defer runtime.KeepAlive(a)
	return *(*Device)(unsafe.Pointer(&t.device))
}

// Size is the size of the items in bytes, without gaps.
func (a *NDArray) Size() int64 {
	t, err := a.tensor()
	if err != nil {
		return 0
	}
	defer runtime.KeepAlive(a)
	return int64(C.collage_tensor_bytes(t))
}

// Contiguous says whether the items lie in memory in order and without gaps.
func (a *NDArray) Contiguous() bool {
	t, err := a.tensor()
	if err != nil {
		return false
	}
	defer runtime.KeepAlive(a)
	return C.collage_tensor_is_compact(t) != 0
}

// Bytes copies the items out, in order and without gaps whatever the strides, from any device.
func (a *NDArray) Bytes() ([]byte, error) {
	out := make([]byte, a.Size())
	if err := a.CopyToBytes(out); err != nil {
		return nil, err
	}
	return out, nil
}

// Memory gives the items of a contiguous tensor in the host's memory in place, in order. The bytes are TVM's: they
// are there for as long as somebody holds a reference to the tensor, and who writes into them changes it.
func (a *NDArray) Memory() ([]byte, error) {
	t, err := a.tensor()
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(a)
	if device := a.Device(); device.Type != CPU().Type || !a.Contiguous() {
		return nil, fmt.Errorf("ValueError: the items of %s do not lie in the host's memory without gaps", a)
	}
	size := int64(C.collage_tensor_bytes(t))
	if size == 0 {
		return nil, nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(t.data, t.byte_offset)), size), nil
}

// CopyToBytes copies the items into out, which must have exactly Size bytes.
func (a *NDArray) CopyToBytes(out []byte) error {
	return a.transfer(out, func(t *C.DLTensor, p unsafe.Pointer, f *frame) C.int {
		return C.collage_tensor_read(t, p, f.c)
	})
}

// CopyFromBytes fills the items from in, which must have exactly Size bytes, in order and without gaps.
func (a *NDArray) CopyFromBytes(in []byte) error {
	return a.transfer(in, func(t *C.DLTensor, p unsafe.Pointer, f *frame) C.int {
		return C.collage_tensor_write(t, p, f.c)
	})
}

func (a *NDArray) transfer(b []byte, copyItems func(*C.DLTensor, unsafe.Pointer, *frame) C.int) error {
	t, err := a.tensor()
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(a)
	if size := int64(C.collage_tensor_bytes(t)); int64(len(b)) != size {
		return fmt.Errorf("ValueError: %d bytes for a tensor of %v %s, which has %d", len(b), a.Shape(), a.DType(),
			size)
	}
	if len(b) == 0 {
		return nil
	}
	f := getFrame()
	defer f.put()
	if copyItems(t, unsafe.Pointer(&b[0]), f) != C.COLLAGE_OK {
		return f.err()
	}
	return nil
}

// CopyTo copies the items to another tensor of the same size in bytes, between devices where need be. Both
// must be contiguous.
func (a *NDArray) CopyTo(to *NDArray) error {
	from, err := a.tensor()
	if err != nil {
		return err
	}
	dst, err := to.tensor()
	if err != nil {
		return err
	}
	if !a.Contiguous() || !to.Contiguous() {
		return fmt.Errorf("ValueError: CopyTo wants contiguous tensors; use Bytes and CopyFromBytes")
	}
	f := getFrame()
	defer f.put()
	rc := C.collage_tensor_copy(unsafe.Pointer(from), unsafe.Pointer(dst), f.c)
	runtime.KeepAlive(a)
	runtime.KeepAlive(to)
	if rc != C.COLLAGE_OK {
		return f.err()
	}
	return nil
}

// View gives a tensor on the same memory with another shape, strides in items (nil: compact) and a byte
// offset from a's first item. TVM can read and write it in a call but not keep it: where TVM wants an NDArray
// of its own (a container, a result), copy. The view keeps a alive.
func (a *NDArray) View(shape, strides []int64, byteOffset uint64) (*NDArray, error) {
	t, err := a.tensor()
	if err != nil {
		return nil, err
	}
	if a.borrowed {
		return nil, fmt.Errorf("ValueError: TVM lent this tensor for the length of a call; view a copy")
	}
	if strides == nil {
		strides = compactStrides(shape)
	}
	if len(strides) != len(shape) {
		return nil, fmt.Errorf("ValueError: %d strides for %d dimensions", len(strides), len(shape))
	}
	if err := a.checkView(shape, strides, byteOffset); err != nil {
		return nil, err
	}
	dims := append(append([]int64{}, shape...), strides...)
	dims = append(dims, 0)
	p := C.collage_tensor_view(t, C.int(len(shape)), (*C.int64_t)(unsafe.Pointer(&dims[0])),
		(*C.int64_t)(unsafe.Pointer(&dims[len(shape)])), C.uint64_t(byteOffset))
	if p == nil {
		return nil, fmt.Errorf("MemoryError: out of memory for a view")
	}
	v := &NDArray{view: true, base: a}
	v.own(liveNDArray, unsafe.Pointer(p), freeViewHandle)
	return v, nil
}

// checkView makes sure that a view stays inside of a's own items.
func (a *NDArray) checkView(shape, strides []int64, byteOffset uint64) error {
	if !a.Contiguous() {
		return fmt.Errorf("ValueError: only a contiguous tensor can be viewed")
	}
	first, last := int64(0), int64(0)
	for d, n := range shape {
		switch {
		case n < 0:
			return fmt.Errorf("ValueError: shape %v has a negative dimension", shape)
		case n == 0:
			return nil
		case strides[d] < 0:
			first += (n - 1) * strides[d]
		default:
			last += (n - 1) * strides[d]
		}
	}
	item := int64(a.DType().Bytes())
	if int64(byteOffset)+first*item < 0 || int64(byteOffset)+(last+1)*item > a.Size() {
		return fmt.Errorf("ValueError: a view of shape %v, strides %v, byte offset %d leaves the tensor's %d bytes",
			shape, strides, byteOffset, a.Size())
	}
	return nil
}

// freeViewHandle frees a view's own description; its memory is the base's.
func freeViewHandle(p unsafe.Pointer) {
	live[liveNDArray].Add(-1)
	C.collage_tensor_view_free((*C.DLTensor)(p))
}

// String is for messages and debugging.
func (a *NDArray) String() string {
	if a == nil {
		return "nil"
	}
	return fmt.Sprintf("NDArray(%v, %s, %s)", a.Shape(), a.DType(), a.Device())
}
