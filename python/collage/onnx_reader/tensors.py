# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements, or tell of shapes: splits, concatenations, pads, scatters, ranges."""

import math

import numpy as np
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .slices import known_items
from .table import (
    const,
    converter,
    counted,
    dtype_of,
    from_front,
    given,
    indices_from_front,
    outputs,
    places_along,
    rank_of,
    sizes_at,
    sizes_of,
    static,
    text,
    type_of,
)


def _reshaped(opset):
    """TVM's, which does not see how long an axis is that stands for all others where any size is open."""
    theirs = importer.Reshape.get_converter(opset)

    @converter("Reshape", since=opset)
    def convert(inputs, attrs, params):
        wanted = importer.fold_constant(inputs[1])
        sizes = sizes_of(inputs[0])
        if not isinstance(wanted, relay.Constant) and not attrs.get("allowzero", 0):
            few = _with_one_open(inputs[0], known_items(wanted))
            wanted = inputs[1] = wanted if few is None else const(few, "int64")
        if None in sizes and isinstance(wanted, relay.Constant) and not attrs.get("allowzero", 0):
            wanted = [int(one) for one in wanted.data.numpy()]
            copied = [axis for axis, one in enumerate(wanted) if one == 0]
            left = [size for axis, size in enumerate(sizes) if axis not in copied]
            if wanted.count(-1) == 1 and None not in left and max(copied, default=-1) < len(sizes):
                others = math.prod(one for one in wanted if one > 0)
                if math.prod(left) and math.prod(left) % others == 0:
                    wanted[wanted.index(-1)] = math.prod(left) // others
                    inputs[1] = const(wanted, "int64")
        return theirs(inputs, attrs, params)


def _with_one_open(data, items):
    """The sizes that a reshape of ``data`` wants as numbers: 0 for one that stays where it is, -1 for at most one other
    that is open. None where more are. Of a computed vector no size is known to TVM, of numbers all others are.
    """
    wanted = []
    for place, item in enumerate(items or [None]):
        if isinstance(item, tuple):
            tensor, axis = item
            wanted.append(0 if axis == place and data.same_as(tensor) else -1)
        else:
            wanted.append(item)
    return None if None in wanted or wanted.count(-1) > 1 else wanted


_reshaped(5)


@converter("Split", since=2)
def _split(inputs, attrs, params):
    data, axis = inputs[0], attrs.get("axis", 0)
    shape = sizes_of(data)
    axis = from_front(axis, len(shape))
    lengths = static(given(inputs, 1), "the lengths of Split")
    lengths = attrs.get("split") if lengths is None else [int(length) for length in lengths]
    if lengths is None:
        count = attrs.get("num_outputs", outputs(attrs))
        if shape[axis] is None:
            return _parts_of_open(data, axis, count)
        each = -(-shape[axis] // count)
        lengths = [max(0, min(each, shape[axis] - each * i)) for i in range(count)]
    if len(lengths) == 1:
        return data
    ends = [int(end) for end in np.cumsum(lengths)]
    if 0 not in lengths:
        return _op.split(data, ends[:-1], axis)
    parts = []  # TVM splits nothing of no length off
    for length, end in zip(lengths, ends, strict=True):
        if length or None in shape:
            parts.append(_op.strided_slice(data, [end - length], [end], axes=[axis]))
        else:
            parts.append(const(np.zeros([*shape[:axis], length, *shape[axis + 1 :]]), dtype_of(data)))
    return relay.TupleWrapper(relay.Tuple(parts), len(parts))


def _parts_of_open(data, axis, count):
    """Parts of one length, the last of what is left, of an axis whose length is known only when the network runs."""
    length = sizes_at(data, axis, axis + 1, "int64")
    each = _op.floor_divide(length + const([count - 1], "int64"), const([count], "int64"))
    parts = []
    for i in range(count):
        bounds = [each * const([j], "int64") for j in (i, i + 1)]
        if axis:
            others = _op.strided_slice(_op.shape_of(data, "int64"), [0], [axis])
            fronts = const(np.zeros(axis), "int64"), others
            bounds = [_op.concatenate([front, one], axis=0) for front, one in zip(fronts, bounds, strict=True)]
        parts.append(_op.strided_slice(data, *bounds, const(np.ones(axis + 1), "int64")))
    return relay.TupleWrapper(relay.Tuple(parts), count)


@converter("Unsqueeze")
def _unsqueeze(inputs, attrs, params):
    axes = static(given(inputs, 1), "the axes of Unsqueeze")
    axes = attrs["axes"] if axes is None else [int(axis) for axis in axes.reshape(-1)]
    rank = len(type_of(inputs[0]).shape) + len(axes)
    data = inputs[0]
    for axis in sorted(from_front(axis, rank) for axis in axes):
        data = _op.expand_dims(data, axis)
    return data


@converter("ArrayFeatureExtractor")
def _features(inputs, attrs, params):
    return _op.take(inputs[0], _op.reshape(inputs[1], [-1]), axis=-1)


@converter("Concat", since=4)
def _concatenate(inputs, attrs, params):
    kept = [one for one in inputs if 0 not in sizes_of(one)] or list(inputs[:1])
    return kept[0] if len(kept) == 1 else _op.concatenate(kept, axis=attrs["axis"])


@converter("Shape")
def _shape(inputs, attrs, params):
    shape = sizes_of(inputs[0])
    wanted = slice(attrs.get("start", 0), attrs.get("end", len(shape)))
    if None not in shape[wanted]:
        return const(np.array(shape[wanted]), "int64")
    begin, end, _ = wanted.indices(len(shape))
    return _op.strided_slice(_op.shape_of(inputs[0], "int64"), [begin], [end], [1])


@converter("Size")
def _size(inputs, attrs, params):
    shape = sizes_of(inputs[0])
    return const(math.prod(shape), "int64") if None not in shape else _op.cast(_op.ndarray_size(inputs[0]), "int64")


@converter("Range", since=11)
def _range(inputs, attrs, params):
    bounds = [importer.fold_constant(one) for one in inputs]
    if not all(isinstance(one, relay.Constant) for one in bounds):
        return _op.arange(*(_op.reshape(one, ()) for one in bounds), dtype_of(bounds[0]))
    start, limit, delta = (one.data.numpy().reshape(()) for one in bounds)
    return const(np.arange(start, limit, delta), start.dtype)


@converter("Trilu", since=14)
def _triangle(inputs, attrs, params):
    k = static(given(inputs, 1), "the diagonal of Trilu")
    k = 0 if k is None else int(k.reshape(()))
    data, shape, nothing = inputs[0], sizes_of(inputs[0]), const(0, dtype_of(inputs[0]))
    if 0 in shape:
        return data
    if None in shape:
        rows, columns = (places_along(data, len(shape) - back) for back in (2, 1))
        ahead = _op.expand_dims(columns, 0) - _op.expand_dims(rows, 1)
        compare = _op.greater_equal if attrs.get("upper", 1) else _op.less_equal
        return _op.where(compare(ahead, const(k, "int64")), data, nothing)
    kept = np.triu(np.ones(shape[-2:], bool), k) if attrs.get("upper", 1) else np.tril(np.ones(shape[-2:], bool), k)
    return _op.where(const(np.broadcast_to(kept, shape)), data, nothing)


@converter("Pad", since=11)
def _pad(inputs, attrs, params):
    data, mode = inputs[0], text(attrs, "mode", "constant")
    shape = sizes_of(data)
    value, axes = given(inputs, 2), static(given(inputs, 3), "the axes of Pad")
    axes = range(len(shape)) if axes is None else [int(axis) % len(shape) for axis in axes.reshape(-1)]
    filled = const(0, dtype_of(data)) if value is None else _op.reshape(value, ())
    widths = importer.fold_constant(inputs[1])
    if not isinstance(widths, relay.Constant) and mode == "constant":
        return padded_by(data, _pairs(widths, list(axes), len(shape)), filled, list(axes))
    widths = [int(one) for one in static(widths, f"the widths of Pad with the mode {mode}")]
    begin, end = [0] * len(shape), [0] * len(shape)
    for i, axis in enumerate(axes):
        begin[axis], end[axis] = widths[i], widths[len(widths) // 2 + i]
    for axis, size in enumerate(shape):  # less than none is cut off
        if begin[axis] < 0 or end[axis] < 0:
            if size is None:
                raise ValueError("it cuts off of what is known to be how long only when the network runs")
            data = _op.strided_slice(data, [max(0, -begin[axis])], [size - max(0, -end[axis])], axes=[axis])
    pairs = [(max(0, b), max(0, e)) for b, e in zip(begin, end, strict=True)]
    if not any(map(any, pairs)):
        return data
    if mode == "constant":
        return _op.nn.pad(data, pairs, filled)
    if mode in ("reflect", "edge") and all(
        max(pair) == 0 or (size is not None and max(pair) < size) for pair, size in zip(pairs, shape, strict=True)
    ):
        return _op.nn.pad(data, pairs, 0, pad_mode=mode)
    for axis, (b, e) in enumerate(pairs):
        if b or e:
            if shape[axis] is None:
                places = _places_beyond(data, axis, b, e, mode)
            else:
                places = const(np.pad(np.arange(shape[axis]), (b, e), mode=mode), "int32")
            data = _op.take(data, places, axis=axis, mode="clip")
    return data


def padded_by(data, pairs, filled, axes):
    """A tensor with a padding that the network computes, [rank, 2], along ``axes``: others keep their sizes, which
    TVM's operator does not see.
    """
    grown = _op.nn.pad(data, pairs, filled)
    kept = [0 if size is None or axis in axes else size for axis, size in enumerate(sizes_of(data))]
    return _op.reshape(grown, kept) if any(kept) else grown


def _pairs(widths, axes, rank):
    """Widths that the network computes, for some axes in front of each and then behind, as pairs for all axes."""
    none = const([0], "int64")
    pairs = []
    for axis in range(rank):
        at = [axes.index(axis), len(axes) + axes.index(axis)] if axis in axes else []
        pairs += [_op.cast(_op.strided_slice(widths, [i], [i + 1]), "int64") for i in at] or [none, none]
    return _op.reshape(_op.concatenate(pairs, axis=0), (rank, 2))


def _places_beyond(data, axis, before, behind, mode):
    """Which elements of an axis stand before, along and behind it, where its length is known only when it runs."""
    length = sizes_at(data, axis, axis + 1, "int64")
    places = counted(length + const([before + behind], "int64")) - const([before], "int64")
    if mode == "wrap":
        places = _op.where(_op.less(places, const([0], "int64")), places + length, places)
        return _op.where(_op.less(places, length), places, places - length)
    if mode == "reflect":
        last = length - const([1], "int64")
        return last - _op.abs(last - _op.abs(places))
    return places


_MODES = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@converter("ScatterND", since=11)
def _scatter_nd(inputs, attrs, params):
    data, indices, updates = inputs
    of = sizes_of(indices)
    if of[-1] is None:
        raise ValueError("into how many dimensions it scatters is known only when the network runs")
    indices = indices_from_front(indices, sizes_at(data, 0, of[-1], dtype_of(indices)))
    moved = _op.transpose(indices, [len(of) - 1, *range(len(of) - 1)])
    return _op.scatter_nd(data, moved, updates, _MODES[text(attrs, "reduction", "none")])


@converter("GatherND", since=11)
def _gather_nd(inputs, attrs, params):
    data, indices = inputs
    of, batch = sizes_of(indices), attrs.get("batch_dims", 0)
    if of[-1] is None:
        raise ValueError("how many dimensions it gathers from is known only when the network runs")
    indices = indices_from_front(indices, sizes_at(data, batch, batch + of[-1], dtype_of(indices)))
    moved = _op.transpose(indices, [len(of) - 1, *range(len(of) - 1)])
    return _op.gather_nd(data, moved, batch_dims=batch, index_rank=of[-1])


@converter("ScatterElements", since=11)
def _scatter_elements(inputs, attrs, params):
    data, indices, updates = inputs
    axis = from_front(attrs.get("axis", 0), rank_of(data))
    indices = indices_from_front(indices, sizes_at(data, axis, axis + 1, dtype_of(indices)))
    return _op.scatter_elements(data, indices, updates, axis, _MODES[text(attrs, "reduction", "none")])


@converter("OneHot", since=9)
def _one_hot(inputs, attrs, params):
    indices, depth, values = inputs
    depth = int(static(depth, "the depth of OneHot").reshape(()))
    indices = _op.cast(indices, "int64")
    size = const(depth, "int64")
    indices = _op.where(_op.less(indices, const(0, "int64")), indices + size, indices)
    off, on = (_op.take(values, const(i, "int64")) for i in range(2))
    axis = attrs.get("axis", -1)
    axis = axis + rank_of(indices) + 1 if axis < -1 else axis
    return _op.one_hot(indices, on, off, depth, axis, dtype_of(values))
