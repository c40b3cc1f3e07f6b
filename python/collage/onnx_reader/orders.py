# SPDX-License-Identifier: Apache-2.0
"""Operators that put elements in order: the greatest, the different ones."""

import numpy as np
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, known_number, rank_of

_SIGN = np.int64(-(2**63))


@converter("TopK", since=10)
def _greatest(inputs, attrs, params):
    data, kind = inputs[0], dtype_of(inputs[0])
    count = known_number(inputs[1])
    if count is None:
        count = _op.reshape(_op.cast(inputs[1], "int64"), [1])
    if kind == "uint64":  # TVM sorts none; with the first bit turned they are in the order of int64
        data = _op.bitwise_xor(_op.cast(data, "int64"), const(_SIGN))
    ascending = not attrs.get("largest", 1)
    found = _op.topk(data, count, attrs.get("axis", -1), "both", ascending, "int64")
    values, places = found[0], found[1]
    if kind == "uint64":
        values = _op.cast(_op.bitwise_xor(values, const(_SIGN)), kind)
    return relay.TupleWrapper(relay.Tuple([values, places]), 2)


@converter("Unique", since=11)
def _unique(inputs, attrs, params):
    """Of a constant it is one; else its size is known only when the network runs."""
    axis, data = attrs.get("axis"), inputs[0]
    if not isinstance(data, relay.Constant):
        rank = rank_of(data)
        if axis is not None and rank != 1:
            raise ValueError(f"it compares slices along axis {axis} of a tensor of {rank} axes; TVM compares elements")
        return importer.Unique.get_converter(11)(inputs, attrs, params)
    found = np.unique(data.data.numpy(), True, True, True, axis=axis)
    if not attrs.get("sorted", 1):
        first = np.argsort(found[1])
        place = np.argsort(first)
        along = 0 if axis is None else axis
        found = (np.take(found[0], first, along), found[1][first], place[found[2]], found[3][first])
    parts = [const(found[0], dtype_of(data)), *(const(one.reshape(-1), "int64") for one in found[1:])]
    return relay.TupleWrapper(relay.Tuple(parts), 4)
