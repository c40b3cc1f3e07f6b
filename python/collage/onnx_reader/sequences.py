# SPDX-License-Identifier: Apache-2.0
"""Sequences of tensors, and optional values.

A sequence whose length is known when the network is read is a tuple of its tensors, and nothing of it is left in the
network. One that a loop makes has a length that is known when it runs: its tensors must all be of one shape, and it is
one tensor, stacked, with one more axis in front. ``parts_of`` tells the two apart: ONNX says by its types which values
are sequences, so that a tensor here is a stacked one. An optional value is the value, or NOTHING.
"""

import numpy as np
import tvm
from tvm import relay
from tvm.relay import op as _op

from .table import (
    const,
    converter,
    dtype_of,
    from_front,
    given,
    known_number,
    rank_of,
    shape_of,
    sizes_of,
    static,
    type_of,
)

# What an optional value is that is not there: a tuple as no sequence is.
NOTHING = relay.Tuple([relay.Tuple([])])


def is_nothing(value):
    """Whether an optional value is not there."""
    if value is None:
        return True
    kind = type_of(value)
    return isinstance(kind, tvm.ir.TupleType) and len(kind.fields) == 1 and kind.fields[0] == tvm.ir.TupleType([])


def is_tuple(value):
    """Whether a value is a sequence of a known length, or NOTHING."""
    return isinstance(type_of(value), tvm.ir.TupleType)


def parts_of(sequence):
    """The tensors of a sequence of a known length; None for one that is stacked."""
    if not is_tuple(sequence):
        return None
    if isinstance(sequence, relay.TupleGetItem) and isinstance(sequence.tuple_value, relay.Tuple):
        sequence = sequence.tuple_value.fields[sequence.index]
    if isinstance(sequence, relay.Tuple):
        return list(sequence.fields)
    return [relay.TupleGetItem(sequence, i) for i in range(len(type_of(sequence).fields))]


def stacked(sequence):
    """A sequence as one tensor. Raises ValueError where its tensors differ in their shapes, or there are none."""
    parts = parts_of(sequence)
    if parts is None:
        return sequence
    if not parts:
        raise ValueError("nothing says of which shape the tensors of an empty sequence are")
    shapes = {sizes_of(part) for part in parts}
    if len(shapes) > 1:
        listed = ", ".join(str(list(shape)) for shape in sorted(shapes, key=str))
        raise ValueError(
            f"which tensor of a sequence is meant is known only when the network runs, and they are of the shapes "
            f"{listed}; they must all be of one"
        )
    return _op.stack(parts, 0)


def leaves(value):
    """The tensors of a result: of sequences of a known length one by one, of what is not there none."""
    if is_nothing(value):
        return []
    parts = parts_of(value)
    return [value] if parts is None else [leaf for part in parts for leaf in leaves(part)]


def unstacked(sequence, what):
    """A sequence as its tensors. Raises ValueError, of ``what``, where nobody knows how many there are."""
    parts = parts_of(sequence)
    if parts is None:
        count = sizes_of(sequence)[0]
        if count is None:
            raise ValueError(f"{what} is a sequence whose length is known only when the network runs")
        parts = [_op.take(sequence, const(i, "int64"), axis=0) for i in range(count)]
    return relay.Tuple(parts)


def length_of(sequence):
    """How many tensors a sequence has: a number, or an expression (int64, no axes)."""
    parts = parts_of(sequence)
    if parts is not None:
        return len(parts)
    count = sizes_of(sequence)[0]
    return _op.take(_op.shape_of(sequence, "int64"), const(0, "int64"), axis=0) if count is None else count


def _expression(number):
    return const(number, "int64") if isinstance(number, int) else number


def _place(value, length, what, last=0):
    """A place in a sequence, counted from the front: a number where it and the length are known, else an expression.
    ``last`` is by how much it may be beyond the last tensor's.
    """
    if rank_of(value) != 0:
        value = _op.reshape(value, ())
    number = known_number(value)
    if number is not None and isinstance(length, int):
        place = from_front(number, length)
        if not 0 <= place < length + last:
            raise ValueError(f"{what} is {number}, and the sequence has {length} tensors")
        return place
    if number is not None and number >= 0:
        return number
    value = _op.cast(value, "int64")
    return _op.where(_op.less(value, const(0, "int64")), value + _expression(length), value)


def _picked(stack, places):
    return _op.take(stack, places, axis=0)


def _places(count):
    """0, 1, ... as many as a number or an expression says."""
    if isinstance(count, int):
        return const(np.arange(count), "int64")
    return _op.arange(const(0, "int64"), count, const(1, "int64"), "int64")


@converter("SequenceConstruct", since=11)
def _construct(inputs, attrs, params):
    return relay.Tuple(list(inputs))


@converter("SequenceEmpty", since=11)
def _empty(inputs, attrs, params):
    return relay.Tuple([])


@converter("SequenceLength", since=11)
def _length(inputs, attrs, params):
    return _expression(length_of(inputs[0]))


@converter("SequenceAt", since=11)
def _at(inputs, attrs, params):
    place = _place(inputs[1], length_of(inputs[0]), "the position of SequenceAt")
    parts = parts_of(inputs[0])
    if parts is not None and isinstance(place, int):
        return parts[place]
    return _picked(stacked(inputs[0]), _expression(place))


@converter("SequenceInsert", since=11)
def _insert(inputs, attrs, params):
    sequence, new = inputs[:2]
    length, parts = length_of(sequence), parts_of(sequence)
    at = given(inputs, 2)
    place = length if at is None else _place(at, length, "the position of SequenceInsert", last=1)
    if parts is not None and isinstance(place, int):
        return relay.Tuple([*parts[:place], new, *parts[place:]])
    if parts is not None and not parts:
        return relay.Tuple([new])
    stack = stacked(sequence)
    _require_shape(stack, new)
    both = _op.concatenate([stack, _op.expand_dims(new, 0)], axis=0)
    if at is None:
        return both
    length, place = _expression(length), _expression(place)
    places = _places(length_of(both))
    behind = _op.where(_op.greater(places, place), places - const(1, "int64"), places)
    return _picked(both, _op.where(_op.equal(places, place), length, behind))


def _require_shape(stack, new):
    """Raise ValueError where a tensor is not of the shape of a stacked sequence's."""
    shape, other = sizes_of(stack)[1:], sizes_of(new)
    if None in shape + other or shape != other:
        shown = [[-1 if size is None else size for size in sizes] for sizes in (other, shape)]
        raise ValueError(
            f"a tensor of the shape {shown[0]} is put into a sequence of those of {shown[1]}, whose length is known "
            "only when the network runs; they must be of one shape that is known (-1 is not)"
        )


@converter("SequenceErase", since=11)
def _erase(inputs, attrs, params):
    sequence = inputs[0]
    length, parts = length_of(sequence), parts_of(sequence)
    if given(inputs, 1) is None:
        place = length - (1 if isinstance(length, int) else const(1, "int64"))
    else:
        place = _place(inputs[1], length, "the position of SequenceErase")
    if parts is not None and isinstance(place, int):
        return relay.Tuple(parts[:place] + parts[place + 1 :])
    stack = stacked(sequence)
    left = length - 1 if isinstance(length, int) else length - const(1, "int64")
    places = _places(left)
    behind = _op.cast(_op.greater_equal(places, _expression(place)), "int64")
    return _picked(stack, places + behind)


@converter("ConcatFromSequence", since=11)
def _concatenated(inputs, attrs, params):
    axis, parts = attrs["axis"], parts_of(inputs[0])
    new = attrs.get("new_axis", 0)
    if parts is not None:
        if not parts:
            raise ValueError("it joins the tensors of an empty sequence")
        if new:
            return _op.stack(parts, axis=from_front(axis, rank_of(parts[0]) + 1))
        kept = [one for one in parts if 0 not in sizes_of(one)] or parts[:1]
        return kept[0] if len(kept) == 1 else _op.concatenate(kept, axis=from_front(axis, rank_of(parts[0])))
    stack = inputs[0]
    rank, sizes = rank_of(stack) - 1, sizes_of(stack)[1:]
    axis = from_front(axis, rank + 1 if new else rank)
    moved = _op.transpose(stack, [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]) if axis else stack
    if new:
        return moved
    if None in sizes or 0 in sizes:
        raise ValueError("the shape of what it joins is known only when the network runs, or there is nothing in it")
    return _op.reshape(moved, [*sizes[:axis], -1, *sizes[axis + 1 :]])


@converter("SplitToSequence", since=11)
def _split(inputs, attrs, params):
    """``split`` is the length of each part, or a list of lengths; left out, each is 1 and may lose its axis."""
    data, sizes = inputs[0], sizes_of(inputs[0])
    axis = from_front(attrs.get("axis", 0), len(sizes))
    lengths = static(given(inputs, 1), "the lengths of SplitToSequence")
    kept = lengths is not None or attrs.get("keepdims", 1)
    if sizes[axis] is None and lengths is None:
        stack = _op.transpose(data, [axis, *(i for i in range(len(sizes)) if i != axis)]) if axis else data
        return _op.expand_dims(stack, axis + 1) if kept else stack
    if sizes[axis] is None:
        raise ValueError("how long what it splits is, is known only when the network runs")
    if lengths is None or lengths.ndim == 0:
        each = 1 if lengths is None else int(lengths)
        lengths = [min(each, sizes[axis] - begin) for begin in range(0, sizes[axis], each)]
    ends = [int(end) for end in np.cumsum(lengths)]
    parts = []
    for length, end in zip(map(int, lengths), ends, strict=True):
        if length:
            parts.append(_op.strided_slice(data, [end - length], [end], axes=[axis]))
        else:
            shape = shape_of(data)
            parts.append(const(np.zeros([*shape[:axis], 0, *shape[axis + 1 :]]), dtype_of(data)))
    return relay.Tuple(parts if kept else [_op.squeeze(part, [axis]) for part in parts])


@converter("Identity", since=1)
def _identity(inputs, attrs, params):
    return inputs[0] if is_tuple(inputs[0]) else _op.copy(inputs[0])


@converter("Optional", since=15)
def _optional(inputs, attrs, params):
    return NOTHING if given(inputs, 0) is None else inputs[0]


@converter("OptionalHasElement", since=15)
def _has_element(inputs, attrs, params):
    return const(not is_nothing(given(inputs, 0)), "bool")


@converter("OptionalGetElement", since=15)
def _get_element(inputs, attrs, params):
    if is_nothing(inputs[0]):
        raise ValueError("it takes the value of an optional that is not there")
    return inputs[0]
