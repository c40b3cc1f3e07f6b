# SPDX-License-Identifier: Apache-2.0
"""Reductions, whose axes are an attribute or, since opset 13 and 18, an input; of any axes, none among them."""

import numpy as np
from tvm.relay import op as _op

from .table import const, converter, dtype_of, from_front, given, shape_of, sizes_of, static


def _reduction(name, compute, alone=lambda x: x):
    """compute(x, axes, keepdims) reduces; alone(x) is what it comes to over no axes."""

    def convert(inputs, attrs, params):
        data = inputs[0]
        axes = static(given(inputs, 1), f"the axes of {name}")
        axes = attrs.get("axes") if axes is None else [int(axis) for axis in axes.reshape(-1)]
        shape = sizes_of(data)
        rank = len(shape)
        if axes is None or len(axes) == 0:
            if attrs.get("noop_with_empty_axes", 0):
                return alone(data)
            axes = range(rank)
        axes = list(axes)
        places = sorted({from_front(axis, rank) for axis in axes})
        keepdims = bool(attrs.get("keepdims", 1))
        if 0 in shape:
            return _of_nothing(name, data, shape_of(data), places, keepdims)
        return compute(data, axes, keepdims) if axes else alone(data)

    converter(name)(convert)


def _of_nothing(name, data, shape, axes, keepdims):
    """What a reduction over no elements comes to: its neutral element."""
    kind = np.dtype(dtype_of(data))
    number = kind.kind == "f"
    value = {
        "ReduceProd": 1,
        "ReduceMax": -np.inf if number else kind.kind != "b" and np.iinfo(kind).min,
        "ReduceMin": np.inf if number else (1 if kind.kind == "b" else np.iinfo(kind).max),
        "ReduceMean": np.nan if number else 0,
        "ReduceLogSum": -np.inf,
        "ReduceLogSumExp": -np.inf,
    }.get(name, 0)
    sizes = [1 if axis in axes else size for axis, size in enumerate(shape) if keepdims or axis not in axes]
    return const(np.full(sizes, value), kind)


def _log_sum_exp(x, axes, keepdims):
    greatest = _op.max(x, axes, keepdims=True)
    # Where all are -inf the sum is 0, and its logarithm -inf; less -inf it would be no number.
    finite = _op.where(_op.isfinite(greatest), greatest, _op.zeros_like(greatest))
    total = _op.log(_op.sum(_op.exp(x - finite), axes, keepdims=True)) + finite
    return total if keepdims else _op.squeeze(total, axes)


def _mean(x, axes, keepdims):
    kind = dtype_of(x)
    if kind.startswith("float"):
        return _op.mean(x, axes, keepdims)
    return _op.cast(_op.mean(_op.cast(x, "float64"), axes, keepdims), kind)


_reduction("ReduceSum", _op.sum)
_reduction("ReduceMean", _mean)
_reduction("ReduceProd", _op.prod)


def _of_numbers(compute):
    """A reduction that TVM has for numbers only."""

    def reduced(x, axes, keepdims):
        if dtype_of(x) != "bool":
            return compute(x, axes, keepdims)
        return _op.cast(compute(_op.cast(x, "int8"), axes, keepdims), "bool")

    return reduced


_reduction("ReduceMax", _of_numbers(_op.max))
_reduction("ReduceMin", _of_numbers(_op.min))
_reduction("ReduceL1", lambda x, axes, keep: _op.sum(_op.abs(x), axes, keep), _op.abs)
_reduction("ReduceL2", lambda x, axes, keep: _op.sqrt(_op.sum(x * x, axes, keep)), _op.abs)
_reduction("ReduceSumSquare", lambda x, axes, keep: _op.sum(x * x, axes, keep), lambda x: x * x)
_reduction("ReduceLogSum", lambda x, axes, keep: _op.log(_op.sum(x, axes, keep)), _op.log)
_reduction("ReduceLogSumExp", _log_sum_exp)
