# SPDX-License-Identifier: Apache-2.0
"""Pools: with a rounded-up number of windows, dilations, automatic padding, and the places of the greatest. What pads
convolutions by itself, too.
"""

import itertools

import numpy as np
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, outputs, rank_of, shape_of, sizes_at, sizes_of, text
from .tensors import padded_by

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class Windows:
    """The windows of a pool over the last axes of a tensor of ``shape``, as ONNX's attributes say."""

    def __init__(self, shape, attrs):
        self.sizes = list(shape[2:])
        self.rank = len(self.sizes)
        self.kernel = list(attrs["kernel_shape"])
        self.strides = list(attrs.get("strides", [1] * self.rank))
        self.dilations = list(attrs.get("dilations", [1] * self.rank))
        self.ceil = bool(attrs.get("ceil_mode", 0))
        pads = list(attrs.get("pads", [0] * 2 * self.rank))
        self.begin, self.end = pads[: self.rank], pads[self.rank :]
        self._automatic(text(attrs, "auto_pad", "NOTSET"))
        if self.ceil and any(size is None and self._may_begin_behind(axis) for axis, size in enumerate(self.sizes)):
            raise ValueError("whether its last window begins behind the input is known only when the network runs")
        self.counts = [self._count(axis) for axis in range(self.rank)]

    def reach(self, axis):
        """How many elements a window goes over."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def _may_begin_behind(self, axis):
        """Whether, for some sizes, a window would begin behind the input where their number is rounded up."""
        return self.end[axis] + self.strides[axis] > self.reach(axis)

    def _automatic(self, mode):
        if mode not in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            return
        self.ceil = False
        for axis, size in enumerate(self.sizes):
            if mode == "VALID":
                missing = 0
            elif self.strides[axis] == 1:
                missing = self.reach(axis) - 1
            else:
                windows = -(-size // self.strides[axis])
                missing = max(0, (windows - 1) * self.strides[axis] + self.reach(axis) - size)
            less = missing // 2
            self.begin[axis], self.end[axis] = (
                (less, missing - less) if mode == "SAME_UPPER" else (missing - less, less)
            )

    def _count(self, axis):
        """How many windows there are; one that would begin behind the input and its padding in front is none.
        None where that is known only when the network runs.
        """
        if self.sizes[axis] is None:
            return None
        room = self.sizes[axis] + self.begin[axis] + self.end[axis] - self.reach(axis)
        count = (-(-room // self.strides[axis]) if self.ceil else room // self.strides[axis]) + 1
        if self.ceil and (count - 1) * self.strides[axis] >= self.sizes[axis] + self.begin[axis]:
            count -= 1
        return count

    def beyond(self, axis):
        """How far the last window goes beyond the padding; where that is not known, how far it may: with so much more
        as many windows fit as there are where their number is rounded up.
        """
        if not self.ceil:
            return 0
        if self.sizes[axis] is None:
            return self.strides[axis] - 1
        last = (self.counts[axis] - 1) * self.strides[axis] + self.reach(axis)
        return max(0, last - self.sizes[axis] - self.begin[axis] - self.end[axis])

    def padded(self, data, value, further=False):
        """The tensor with the padding, and what windows go beyond it, filled with a value."""
        widths = [(0, 0), (0, 0)]
        for axis in range(self.rank):
            widths.append((self.begin[axis], self.end[axis] + (self.beyond(axis) if further else 0)))
        return _op.nn.pad(data, widths, value) if any(any(one) for one in widths) else data

    def pool(self, function, data, begin, end, **options):
        """One of TVM's pools with a padding of begin and end, no window left out."""
        layout = _LAYOUTS[self.rank]
        return function(
            data, tuple(self.kernel), tuple(self.strides), tuple(self.dilations), (*begin, *end), layout, **options
        )


def _pads_itself(shape, attrs):
    """Whether paddings go by sizes that are known only when the network runs (auto_pad, in steps)."""
    strides = attrs.get("strides", [1] * (len(shape) - 2))
    return text(attrs, "auto_pad", "NOTSET").startswith("SAME") and any(
        size is None and step > 1 for size, step in zip(shape[2:], strides, strict=True)
    )


def _with_its_padding(data, attrs, value):
    """What _pads_itself, with the padding of auto_pad, of ``value``; attributes tell of none any more."""
    rank = rank_of(data)
    steps, kernel = attrs.get("strides", [1] * (rank - 2)), attrs["kernel_shape"]
    dilations = attrs.get("dilations", [1] * (rank - 2))
    pairs = [const([[0, 0]] * 2, "int64")]
    lower = text(attrs, "auto_pad", "") == "SAME_LOWER"
    for i, (step, size, apart) in enumerate(zip(steps, kernel, dilations, strict=True)):
        length = sizes_at(data, 2 + i, 3 + i, "int64")
        length = length if isinstance(length, relay.Expr) else const(list(length), "int64")
        one, by, reach = const([1], "int64"), const([step], "int64"), const([(size - 1) * apart + 1], "int64")
        last = (_op.floor_divide(length + by - one, by) - one) * by  # where the last window begins
        missing = _op.maximum(last + reach - length, const([0], "int64"))
        less = _op.floor_divide(missing, const([2], "int64"))
        pair = [less, missing - less]
        pairs.append(_op.reshape(_op.concatenate(pair[::-1] if lower else pair, axis=0), (1, 2)))
    attrs.pop("auto_pad")
    attrs.pop("ceil_mode", None)
    attrs["pads"] = [0] * 2 * (rank - 2)
    return padded_by(data, _op.concatenate(pairs, axis=0), const(value, dtype_of(data)), list(range(2, rank)))


def _known(inputs, attrs, filled=0):
    """The windows of a pool. What it pads by sizes that are not known is padded, with ``filled``."""
    shape = sizes_of(inputs[0])
    if not 3 <= len(shape) <= 5:
        raise ValueError(f"a pool over {len(shape) - 2} axes is not supported")
    if _pads_itself(shape, attrs):
        inputs[0] = _with_its_padding(inputs[0], attrs, filled)
    return Windows(sizes_of(inputs[0]), attrs)


@converter("Conv")
def convolution(inputs, attrs, params):
    """TVM's computes what auto_pad says while the network runs, wherever a size is open, the batch's alone, too."""
    shape = sizes_of(inputs[0])
    if text(attrs, "auto_pad", "NOTSET").startswith("SAME") and None in shape:
        attrs.setdefault("kernel_shape", shape_of(inputs[1])[2:])
        if _pads_itself(shape, attrs):
            inputs[0] = _with_its_padding(inputs[0], attrs, 0)
        else:
            windows = Windows(shape, attrs)
            attrs.pop("auto_pad")
            attrs["pads"] = [*windows.begin, *windows.end]
    return importer.Conv.get_converter(1)(inputs, attrs, params)


@converter("AveragePool")
def _average(inputs, attrs, params):
    inside = not attrs.get("count_include_pad", 0)
    if inside and _pads_itself(sizes_of(inputs[0]), attrs):
        # How many of a window's elements are inside: of as many ones, padded by zeros.
        first = _op.strided_slice(inputs[0], [0, 0], [1, 1], strides=[1, 1], axes=[0, 1])
        counted = dict(attrs, count_include_pad=1)
        return _average(inputs, dict(counted), params) / _average([_op.ones_like(first)], counted, params)
    windows = _known(inputs, attrs)
    function = {1: _op.nn.avg_pool1d, 2: _op.nn.avg_pool2d, 3: _op.nn.avg_pool3d}[windows.rank]
    beyond = [windows.beyond(axis) for axis in range(windows.rank)]
    if inside:
        end = [a + b for a, b in zip(windows.end, beyond, strict=True)]
        return windows.pool(function, inputs[0], windows.begin, end, count_include_pad=False)
    if not any(beyond):
        return windows.pool(function, inputs[0], windows.begin, windows.end, count_include_pad=True)
    # What is padded counts, what lies beyond does not: TVM's operator tells no such difference.
    zeros = [0] * windows.rank
    return windows.pool(function, windows.padded(inputs[0], 0.0), zeros, beyond, count_include_pad=False)


@converter("LpPool")
def _lp(inputs, attrs, params):
    windows = _known(inputs, attrs)
    function = {1: _op.nn.avg_pool1d, 2: _op.nn.avg_pool2d, 3: _op.nn.avg_pool3d}[windows.rank]
    kind, power = dtype_of(inputs[0]), float(attrs.get("p", 2))
    zeros = [0] * windows.rank
    powers = _op.power(_op.abs(windows.padded(inputs[0], 0.0, further=True)), const(power, kind))
    mean = windows.pool(function, powers, zeros, zeros, count_include_pad=True)
    return _op.power(mean * const(float(np.prod(windows.kernel)), kind), const(1.0 / power, kind))


@converter("GlobalLpPool")
def _global_lp(inputs, attrs, params):
    kind, power = dtype_of(inputs[0]), float(attrs.get("p", 2))
    axes = list(range(2, rank_of(inputs[0])))
    total = _op.sum(_op.power(_op.abs(inputs[0]), const(power, kind)), axes, keepdims=True)
    return _op.power(total, const(1.0 / power, kind))


@converter("MaxPool")
def _max(inputs, attrs, params):
    windows = _known(inputs, attrs, _least(dtype_of(inputs[0])))
    if outputs(attrs) > 1:
        return relay.TupleWrapper(relay.Tuple(_with_places(inputs[0], windows, attrs.get("storage_order", 0))), 2)
    function = {1: _op.nn.max_pool1d, 2: _op.nn.max_pool2d, 3: _op.nn.max_pool3d}[windows.rank]
    end = [windows.end[axis] + windows.beyond(axis) for axis in range(windows.rank)]
    return windows.pool(function, inputs[0], windows.begin, end)


def _least(kind):
    """The least number of a type."""
    return np.finfo(kind).min if kind.startswith("float") else np.iinfo(kind).min


def _with_places(data, windows, column_major):
    """The greatest of each window, and where it stands in the tensor: element by element of the windows."""
    shape, kind = shape_of(data), dtype_of(data)
    values = windows.padded(data, float(_least(kind)), further=True)
    sizes = shape[2:]
    order = "F" if column_major else "C"
    within = np.arange(int(np.prod(sizes)), dtype="int64").reshape(sizes, order=order)
    planes = np.arange(shape[0] * shape[1], dtype="int64").reshape(shape[0], shape[1], *[1] * windows.rank)
    widths = [(b, e + windows.beyond(a)) for a, (b, e) in enumerate(zip(windows.begin, windows.end, strict=True))]
    places = np.pad(planes * int(np.prod(sizes)) + within, [(0, 0), (0, 0), *widths])
    best = at = None
    for offsets in itertools.product(*(range(k) for k in windows.kernel)):
        begin = [o * d for o, d in zip(offsets, windows.dilations, strict=True)]
        end = [b + (c - 1) * s + 1 for b, c, s in zip(begin, windows.counts, windows.strides, strict=True)]
        axes = list(range(2, len(shape)))
        value = _op.strided_slice(values, begin, end, windows.strides, axes=axes)
        cut = tuple(slice(b, e, s) for b, e, s in zip(begin, end, windows.strides, strict=True))
        place = const(np.ascontiguousarray(places[(slice(None), slice(None), *cut)]))
        if best is None:
            best, at = value, place
            continue
        greater = _op.greater(value, best)
        best, at = _op.where(greater, value, best), _op.where(greater, place, at)
    return [best, at]
