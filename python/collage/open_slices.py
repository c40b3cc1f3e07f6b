# SPDX-License-Identifier: Apache-2.0
"""Slices along open dimensions: how large they are, and their kernels.

TVM's shape functions let a slice begin in front of what it cuts (the last three of two) and end in front of where it
begins, so that a wrong size is allocated, and its kernels read there. Bounds are pulled into the dimension here, as
numpy and ONNX have it. In: nothing. Out: TVM's registry with them.
"""

import tvm
from tvm import target, te, topi
from tvm.relay.op.op import OpStrategy, get, register_shape_func, register_strategy
from tvm.relay.op.strategy import generic
from tvm.te.hybrid import script

# What a size is called that only the caller of a kernel knows.
SIZE = "size_of_a_slice"
# A bound from here on is the end of a dimension.
_FAR = 2**31 - 1


def register(level):
    """Put them in the place of TVM's, which are registered with a lower ``level``."""
    for name, kernel, shape, of_data in (
        ("strided_slice", _cut, _cut_shape, False),
        ("dyn.strided_slice", _cut_anywhere, _cut_anywhere_shape, [False, True, True, True]),
    ):
        register_shape_func(name, of_data, shape, level)
        registered = f"collage_{name.replace('.', '_')}_strategy"
        register_strategy(name, target.override_native_generic_func(registered)(_strategy(kernel, name)), level)


def _strategy(kernel, name):
    def strategy(_attrs, _inputs, _type, _target):
        chosen = OpStrategy()
        chosen.add_implementation(kernel, generic.schedule_injective, name=f"{name}.collage")
        return chosen

    return strategy


@script
def _extents(shape, axes, begin, end, strides, by_size):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    for i in const_range(shape.shape[0]):  # noqa: F821
        out[i] = int64(shape[i])  # noqa: F821
    for i in const_range(len(axes)):  # noqa: F821
        size = int64(shape[axes[i]])  # noqa: F821
        first = int64(begin[i])  # noqa: F821
        last = int64(end[i])  # noqa: F821
        step = int64(strides[i])  # noqa: F821
        if first < int64(0):  # noqa: F821
            first += size
        if first < int64(0):  # noqa: F821
            first = int64(0)  # noqa: F821
            if step < int64(0):  # noqa: F821
                first = int64(-1)  # noqa: F821
        if by_size != 0:
            step = int64(1)  # noqa: F821
            if last < int64(0):  # noqa: F821
                last = size
            else:
                last += first
        else:
            if last < int64(0):  # noqa: F821
                last += size
            if last < int64(0):  # noqa: F821
                last = int64(-1)  # noqa: F821
        count = int64(0)  # noqa: F821
        if step < int64(0):  # noqa: F821
            if first > size - int64(1):  # noqa: F821
                first = size - int64(1)  # noqa: F821
            if first > last:
                count = (first - last - step - int64(1)) // (int64(0) - step)  # noqa: F821
        else:
            if last > size:
                last = size
            if last > first:
                count = (last - first + step - int64(1)) // step  # noqa: F821
        out[axes[i]] = count
    return out


def _cut_shape(attrs, inputs, _ranks):
    axes, begin, end, strides = _bounds(attrs, int(inputs[0].shape[0]))
    by_size = int(attrs.slice_mode == "size")
    return [_extents(inputs[0], *map(tvm.runtime.convert, (axes, begin, end, strides, by_size)))]


def _cut_anywhere_shape(attrs, inputs, _ranks):
    shape, begin, end, strides = inputs
    axes = list(range(int(begin.shape[0])))
    strides = topi.full((len(axes),), "int64", 1) if int(strides.shape[0]) < len(axes) else strides
    by_size = int(attrs.slice_mode == "size")
    return [_extents(shape, tvm.runtime.convert(axes), begin, end, strides, tvm.runtime.convert(by_size))]


def _bounds(attrs, rank):
    """The axes that a slice with fixed bounds cuts, from the front, and where each begins, ends, and its step."""
    begin, end, strides = ([int(n) for n in given or ()] for given in (attrs.begin, attrs.end, attrs.strides))
    axes = range(len(begin)) if attrs.axes is None else [int(axis) for axis in attrs.axes]
    strides = (strides or [1]) * len(begin) if len(strides) < 2 else strides
    return [axis % rank for axis in axes], begin, end, strides


def _cut(attrs, inputs, kind):
    """A slice with fixed bounds. TVM's own has a variable for the size of what it cuts along an open dimension, which
    is nobody's where a reshape is computed with it: no such kernel can be built. The size follows from the data's.
    Where it has a bound, too, such kernels cannot be vectorised; it is a variable there.
    """
    (data,) = inputs
    axes, begin, end, strides = _bounds(attrs, len(data.shape))
    extents = [int(size) if isinstance(size, tvm.tir.IntImm) else size for size in data.shape]
    if all(isinstance(extents[axis], int) for axis in axes) or any(stride < 1 for stride in strides):
        return get("strided_slice").get_attr("FTVMCompute")(attrs, inputs, kind)
    if attrs.slice_mode == "size":
        strides = [1] * len(axes)
        end = [_FAR if size < 0 else low + size for low, size in zip(begin, end, strict=True)]
    shape, first, step = list(extents), [0] * len(extents), [1] * len(extents)
    for axis, low, high, stride in zip(axes, begin, end, strides, strict=True):
        first[axis], step[axis] = _bound(low, extents[axis]), stride
        if isinstance(extents[axis], int) or (low >= 0 and not 0 <= high < _FAR):
            shape[axis] = _greater((_bound(high, extents[axis]) - first[axis] + (stride - 1)) // stride, 0)
        else:
            shape[axis] = te.size_var(SIZE, extents[axis].dtype)
    return [_taken(data, shape, first, step)]


def _cut_anywhere(_attrs, inputs, _type):
    """A slice by bounds that are computed."""
    data, begin, _end, strides = inputs
    shape, first, step = list(data.shape), [0] * len(data.shape), [1] * len(data.shape)
    for axis in range(int(begin.shape[0])):
        size = data.shape[axis]
        shape[axis] = te.size_var(SIZE, begin.dtype)
        low = begin[axis] + tvm.tir.if_then_else(begin[axis] < 0, size, 0)
        first[axis] = tvm.tir.max(tvm.tir.min(low, size - 1), 0)
        step[axis] = strides[axis] if axis < int(strides.shape[0]) else 1
    return [_taken(data, shape, first, step)]


def _taken(data, shape, first, step):
    def at(*index):
        return data(*(start + i * by for start, i, by in zip(first, index, step, strict=True)))

    return te.compute(shape, at, name="strided_slice", tag=topi.tag.INJECTIVE)


def _bound(place, extent):
    """A bound within an extent; from its end where it is negative."""
    if place < 0:
        return _greater(extent + place, 0)
    if place >= _FAR:
        return extent
    return min(place, extent) if isinstance(extent, int) else tvm.tir.min(place, extent)


def _greater(size, least):
    return max(size, least) if isinstance(size, int) else tvm.tir.max(size, least)
