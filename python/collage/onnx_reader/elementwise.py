# SPDX-License-Identifier: Apache-2.0
"""Operators on each element by itself."""

import numpy as np
import tvm
from onnx import helper
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, given, outputs, rank_of, sizes_of, static, type_of


@converter("Gelu", since=20)
def _gelu(inputs, attrs, params):
    x = inputs[0]
    kind = dtype_of(x)
    half, one = const(0.5, kind), const(1.0, kind)
    if attrs.get("approximate", b"none") == b"tanh":
        cubic = x + const(0.044715, kind) * x * x * x
        return half * x * (one + _op.tanh(const(np.sqrt(2 / np.pi), kind) * cubic))
    return half * x * (one + _op.erf(x * const(np.sqrt(0.5), kind)))


@converter("Cast", since=6)
def _cast(inputs, attrs, params):
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(attrs["to"])).name
    return cast(inputs[0], kind)


@converter("CastLike", since=15)
def _cast_like(inputs, attrs, params):
    return cast(inputs[0], dtype_of(inputs[1]))


def cast(value, kind):
    """The value in another type. TVM's own way from float64 to float16 gives garbage: it goes over float32."""
    if dtype_of(value) == "float64" and kind == "float16":
        value = _op.cast(value, "float32")
    return _op.cast(value, kind)


@converter("Binarizer")
def _binarizer(inputs, attrs, params):
    kind = dtype_of(inputs[0])
    return _op.cast(_op.greater(inputs[0], const(attrs.get("threshold", 0.0), kind)), kind)


@converter("Dropout")
def _dropout(inputs, attrs, params):
    training = static(given(inputs, 2), "whether Dropout trains")
    ratio = static(given(inputs, 1), "the ratio of Dropout")
    if training is not None and bool(training) and (ratio is None or float(ratio) > 0):
        raise ValueError("it drops values by chance, as in training")
    if outputs(attrs) == 1:
        return inputs[0]
    mask = _op.cast(_op.ones_like(inputs[0]), "bool")
    return relay.TupleWrapper(relay.Tuple([inputs[0], mask]), 2)


@converter("Mod", since=10)
def _modulo(inputs, attrs, params):
    """By the sign of the dividend with fmod, else of the divisor."""
    x, y = inputs
    rest = _op.mod(x, y)
    if attrs.get("fmod", 0) or dtype_of(x).startswith("uint"):
        return rest
    zero = const(0, dtype_of(x))
    other = _op.not_equal(_op.less(rest, zero), _op.less(y, zero))
    return _op.where(_op.logical_and(_op.not_equal(rest, zero), other), rest + y, rest)


@converter("PRelu")
def _parametric_relu(inputs, attrs, params):
    x, slope = inputs
    channels = sizes_of(x)[1:2]
    if sizes_of(slope) == channels and channels != sizes_of(x)[-1:]:  # a list for the channels, before opset 7
        slope = _op.reshape(slope, [-1] + [1] * (rank_of(x) - 2))
    zero = const(0, dtype_of(x))
    if None not in channels and rank_of(x) >= 2 and _one_for_each_channel(sizes_of(x), sizes_of(slope)):
        return _op.nn.prelu(x, _op.broadcast_to(_op.reshape(slope, [-1]), channels), axis=1)
    return _op.where(_op.less(x, zero), x * slope, x)


def _one_for_each_channel(shape, slope):
    """Whether the slope goes along axis 1, as ONNX broadcasts (from the last axis)."""
    aligned = (1,) * (len(shape) - len(slope)) + tuple(slope)
    return len(slope) <= len(shape) and all(size == 1 for axis, size in enumerate(aligned) if axis != 1)


# Further than any axis is long.
_END = np.iinfo("int32").max


def _of_two(name, since):
    """TVM's, which refuses two sizes that are open and written otherwise, as nn.upsampling's are: x2 of one image and
    x4 of another (HRNet).
    """
    theirs = getattr(importer, name).get_converter(since)

    @converter(name, since=since)
    def convert(inputs, attrs, params):
        written = [_written_sizes(value) for value in inputs]
        if sum(map(bool, written)) > 1:
            inputs = [_with_marks(value, axes) for value, axes in zip(inputs, written, strict=True)]
        return theirs(inputs, attrs, params)


def _written_sizes(value):
    """The axes whose sizes TVM writes as expressions of question marks."""
    shape = type_of(value).shape
    return [i for i, size in enumerate(shape) if not isinstance(size, (int, tvm.tir.IntImm, tvm.tir.Any))]


def _with_marks(value, axes):
    """The same with question marks for the sizes of these axes."""
    if not axes:
        return value
    every = [1] * len(axes)
    return _op.strided_slice(value, [0] * len(axes), [_END] * len(axes), strides=every, axes=axes)


for each in ("Add", "Sub", "Mul", "Div"):
    _of_two(each, 7)
