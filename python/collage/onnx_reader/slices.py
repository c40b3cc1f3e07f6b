# SPDX-License-Identifier: Apache-2.0
"""Slices, and sizes taken out of shapes, of which as much is known when the model is read as can be.

TVM's converter of Slice gives up all sizes of what it cuts as soon as one bound is computed, or one axis open; whatever
wants channels behind it (a convolution's groups) is lost. PyTorch writes the halves of a tensor's channels as slices to
``shape[1] // 2``, also where only other sizes of that shape are open.
"""

import numpy as np
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer
from tvm.relay.op.dyn import _make as dyn

from .table import const, converter, dtype_of, from_front, given, sizes_of

_END = np.iinfo(np.int64).max
_MOST = np.iinfo(np.int32).max


@converter("Gather")
def _gather(inputs, attrs, params):
    """TVM's; sizes that are known are numbers, whatever others the shape has that they are taken of."""
    sizes, places = known_items(inputs[0]), importer.fold_constant(inputs[1])
    if sizes is not None and isinstance(places, relay.Constant):
        places = places.data.numpy()
        if np.all((-len(sizes) <= places) & (places < len(sizes))):
            taken = [sizes[at] for at in places.reshape(-1)]
            if all(isinstance(size, int) for size in taken):
                return const(np.reshape(taken, places.shape), dtype_of(inputs[0]))
    return importer.Gather.get_converter(1)(inputs, attrs, params)


@converter("Slice", since=10)
def _slice(inputs, attrs, params):
    data = inputs[0]
    sizes = sizes_of(data)
    bounds = [None if given(inputs, i) is None else importer.fold_constant(inputs[i]) for i in range(1, 5)]
    axes, steps = (one.data.numpy().tolist() if isinstance(one, relay.Constant) else one for one in bounds[2:])
    count = sizes_of(bounds[0])[0]
    axes = list(range(count)) if axes is None and count is not None else axes
    steps = [1] * count if steps is None and count is not None else steps
    if (
        count is None
        or (None not in sizes and all(isinstance(one, relay.Constant) for one in bounds[:2]))
        or not isinstance(axes, list)
        or not isinstance(steps, list)
        or min(steps, default=1) < 1
    ):
        return importer.Slice.get_converter(10)(inputs, attrs, params)
    axes = [from_front(axis, len(sizes)) for axis in axes]
    starts, ends = (_one_by_one(one, count) for one in bounds[:2])
    numbers, computed = {}, {}
    for axis, *cut in zip(axes, starts, ends, steps, strict=True):
        fixed = all(isinstance(one, int) for one in cut)
        (numbers if fixed else computed)[axis] = cut
    if numbers:
        whole = [numbers.get(axis, [0, _END, 1]) for axis in range(len(sizes))]
        data = _op.strided_slice(data, *([cut[i] for cut in whole] for i in range(3)))
    return _computed(data, computed) if computed else data


def _one_by_one(bounds, count):
    """The bounds of a slice: a number each that is known, else an expression of the shape (1,), int64."""
    return [
        item if isinstance(item, int) else _op.cast(_op.strided_slice(bounds, [i], [i + 1]), "int64")
        for i, item in enumerate(known_items(bounds) or [None] * count)
    ]


def _computed(data, cuts):
    """The slice of some axes by bounds that the network computes, {axis: (start, end, step)}; sizes of others stay."""
    sizes = sizes_of(data)
    own = _op.shape_of(data, "int64")
    begin, end, by = [], [], []
    for axis in range(len(sizes)):
        size = _op.strided_slice(own, [axis], [axis + 1])
        low, high, step = cuts.get(axis, (0, size, 1))
        # TVM's DynamicToStatic has 32 bits for a bound, and PyTorch writes 2**63 - 1 for the end.
        low = 0 if isinstance(low, int) and low < -_MOST else low
        high = size if isinstance(high, int) and high > _MOST else high
        begin.append(const([low], "int64") if isinstance(low, int) else low)
        end.append(const([high], "int64") if isinstance(high, int) else high)
        by.append(step)
    begin, end = (importer.fold_constant(_op.concatenate(bound, axis=0)) for bound in (begin, end))
    # relay.strided_slice would count a start that is in front of the data from the end twice.
    cut = dyn.strided_slice(data, begin, end, const(by, "int64"), "end")
    known = [0 if axis in cuts or size is None else size for axis, size in enumerate(sizes)]
    return _op.reshape(cut, known) if any(known) else cut


def known_items(value):
    """The items of a vector of sizes: a number each that is known, (a tensor, one of its axes) for an open size, None
    for what is computed otherwise. None for what is no such vector.
    """
    if isinstance(value, relay.Constant):
        items = value.data.numpy()
        return [int(item) for item in items] if items.ndim == 1 and items.dtype.kind == "i" else None
    if not isinstance(value, relay.Call) or not hasattr(value.op, "name") or value.op.name not in _ITEMS:
        return None
    return _ITEMS[value.op.name](value)


def _of_shape(call):
    tensor = call.args[0]
    return [(tensor, axis) if size is None else size for axis, size in enumerate(sizes_of(tensor))]


def _of_slice(call):
    items = known_items(call.args[0])
    if items is None or call.attrs.slice_mode != "end":
        return None
    begin, end, by = (int(one[0]) for one in (call.attrs.begin, call.attrs.end, call.attrs.strides))
    return items[begin:end:by]


def _of_take(call):
    """Of one item, which makes no vector."""
    items, place = known_items(call.args[0]), call.args[1]
    if items is None or not isinstance(place, relay.Constant):
        return None
    places = place.data.numpy().reshape(-1)
    return [items[at] for at in places] if np.all((-len(items) <= places) & (places < len(items))) else None


def _of_concatenation(call):
    whole = []
    for part in call.args[0].fields if isinstance(call.args[0], relay.Tuple) else ():
        length = sizes_of(part)
        if len(length) != 1 or length[0] is None:
            return None
        whole += known_items(part) or [None] * length[0]
    return whole or None


def _of_same(call):
    return known_items(call.args[0])


_ITEMS = {
    "shape_of": _of_shape, "strided_slice": _of_slice, "take": _of_take, "concatenate": _of_concatenation,
    "cast": _of_same, "expand_dims": _of_same,
}  # fmt: skip
