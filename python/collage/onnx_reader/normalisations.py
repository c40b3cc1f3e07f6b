# SPDX-License-Identifier: Apache-2.0
"""Normalisations, with the outputs and the modes that TVM's importer leaves out."""

import math

import numpy as np
from tvm import relay
from tvm.relay import op as _op

from .table import const, converter, dtype_of, from_front, given, outputs, rank_of, shape_of, shaped_as, sizes_of


def _in_float32(value):
    """The value in float32, in which ONNX has statistics computed (stash_type), and the way back."""
    kind = dtype_of(value)
    if kind == "float32" or kind == "float64":
        return value, lambda result: result
    return _op.cast(value, "float32"), lambda result: _op.cast(result, kind)


def _last_axes(data, attrs):
    """The axes from the attribute ``axis`` on."""
    rank, axis = rank_of(data), attrs.get("axis", -1)
    return list(range(from_front(axis, rank), rank))


@converter("LayerNormalization", since=17)
def _layer(inputs, attrs, params):
    data, back = _in_float32(inputs[0])
    kind, axes = dtype_of(data), _last_axes(data, attrs)
    scale, bias = inputs[1], given(inputs, 2)
    epsilon = attrs.get("epsilon", 1e-5)
    last = sizes_of(data)[-1:]
    if (
        outputs(attrs) == 1
        and len(axes) == 1
        and dtype_of(inputs[0]) == kind
        and None not in last
        and sizes_of(scale) == last
    ):
        bias = const(np.zeros(last), kind) if bias is None else bias
        if sizes_of(bias) == last:  # what engines know
            return _op.nn.layer_norm(data, scale, bias, axis=-1, epsilon=epsilon)
    mean = _op.mean(data, axes, keepdims=True)
    centred = data - mean
    variance = _op.mean(centred * centred, axes, keepdims=True)
    deviation = _op.sqrt(variance + const(epsilon, kind))
    result = back(_op.divide(centred, deviation)) * scale
    if bias is not None:
        result = result + bias
    if outputs(attrs) == 1:
        return result
    each = [result, mean, _op.divide(const(1.0, kind), deviation)]
    return relay.TupleWrapper(relay.Tuple(each[: outputs(attrs)]), outputs(attrs))


@converter("RMSNormalization", since=23)
def _root_mean_square(inputs, attrs, params):
    data, back = _in_float32(inputs[0])
    square = _op.mean(data * data, _last_axes(data, attrs), keepdims=True)
    root = _op.sqrt(square + const(attrs.get("epsilon", 1e-5), dtype_of(data)))
    return back(_op.divide(data, root)) * inputs[1]


@converter("GroupNormalization", since=18)
def _group(inputs, attrs, params):
    data, scale, bias = inputs
    sizes, groups, epsilon = sizes_of(data), attrs["num_groups"], attrs.get("epsilon", 1e-5)
    channels = sizes[1]
    if channels is None:
        raise ValueError("how many channels it has is known only when the network runs")
    if shape_of(scale)[0] != channels:  # one for each group, before opset 21
        scale, bias = (_op.repeat(one, channels // groups, axis=0) for one in (scale, bias))
    if None not in sizes:
        return _op.nn.group_norm(data, scale, bias, groups, axis=1, epsilon=epsilon)
    # TVM writes its operator out, and ends the process where a size is open.
    each = -1 if None in sizes[2:] else channels // groups * math.prod(sizes[2:])
    parts = _op.reshape(data, [0, groups, each])
    apart = parts - _op.mean(parts, -1, keepdims=True)
    spread = _op.mean(apart * apart, -1, keepdims=True)
    normal = shaped_as(apart / _op.sqrt(spread + const(epsilon, dtype_of(data))), data)
    return normal * _apart(scale, len(sizes)) + _apart(bias, len(sizes))


@converter("LpNormalization")
def _lp(inputs, attrs, params):
    data, axis, power = inputs[0], attrs.get("axis", -1), attrs.get("p", 2)
    if power == 1:
        return data / _op.sum(_op.abs(data), axis, keepdims=True)
    return data / _op.sqrt(_op.sum(data * data, axis, keepdims=True))


def _apart(value, rank):
    """A list along the channels, axis 1, of a tensor of ``rank`` axes."""
    return _op.reshape(value, [-1] + [1] * (rank - 2))


@converter("BatchNormalization", since=14)
def _batch(inputs, attrs, params):
    data, scale, bias, mean, variance = inputs
    epsilon, rank = attrs.get("epsilon", 1e-5), rank_of(data)
    if not attrs.get("training_mode", 0):
        return _op.nn.batch_norm(data, scale, bias, mean, variance, epsilon=epsilon)[0]
    axes = [axis for axis in range(rank) if axis != 1]
    kind = dtype_of(data)
    now = _op.mean(data, axes)
    spread = _op.variance(data, axes)
    deviation = _op.sqrt(spread + const(epsilon, kind))
    result = (data - _apart(now, rank)) / _apart(deviation, rank) * _apart(scale, rank) + _apart(bias, rank)
    kept = attrs.get("momentum", 0.9)
    old, new = (const(share, dtype_of(mean)) for share in (kept, 1 - kept))
    each = [result, mean * old + _op.cast(now, dtype_of(mean)) * new]
    each.append(variance * old + _op.cast(spread, dtype_of(variance)) * new)
    count = outputs(attrs)
    return result if count == 1 else relay.TupleWrapper(relay.Tuple(each[:count]), count)
