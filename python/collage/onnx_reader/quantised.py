# SPDX-License-Identifier: Apache-2.0
"""Quantised tensors: scales for blocks, products and convolutions, as ONNX defines them."""

import numpy as np
from onnx import helper
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .elementwise import cast
from .pooling import convolution
from .table import const, converter, dtype_of, from_front, given, rank_of, rows_as_in, shape_of, sizes_of


def _along_rows(value, rank, column):
    """A scale or a zero point beside a matrix of ``rank`` axes: one number, or a list for its rows or columns."""
    size = int(np.prod(shape_of(value)))
    if size == 1:
        return _op.reshape(value, ())
    if rank_of(value) > 1:
        return value
    return _op.reshape(value, [1] * (rank - 2) + ([1, size] if column else [size, 1]))


def _of_blocks(value, shape, attrs):
    """A scale or a zero point of blocks along an axis, once for each element of a tensor of ``shape``."""
    axis = from_front(attrs.get("axis", 1), len(shape))
    whole = _op.repeat(value, attrs["block_size"], axis)  # the last block may reach beyond
    return _op.strided_slice(whole, [0], [shape[axis]], axes=[axis])


def _kind_of(zero, attrs):
    """The type of a quantised tensor."""
    if zero is not None:
        return dtype_of(zero)
    kind = attrs.get("output_dtype", 0)
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name if kind else "uint8"


def _from_opset(opset):
    """TVM's converters want a zero point, and know no blocks."""

    @converter("QuantizeLinear", since=opset)
    def quantise(inputs, attrs, params):
        data, scale, zero = inputs[0], inputs[1], given(inputs, 2)
        kind = _kind_of(zero, attrs)
        zero = const(np.zeros(shape_of(scale)), kind) if zero is None else zero
        if not attrs.get("block_size", 0):
            return importer.QuantizeLinear.get_converter(opset)([data, scale, zero], attrs, params)
        shape = shape_of(data)
        rounded = importer.Round.get_converter(11)([data / _of_blocks(scale, shape, attrs)], {}, params)
        shifted = rounded + _of_blocks(_op.cast(zero, dtype_of(data)), shape, attrs)
        return _op.cast(_op.clip(shifted, np.iinfo(kind).min, np.iinfo(kind).max), kind)

    @converter("DequantizeLinear", since=opset)
    def dequantise(inputs, attrs, params):
        data, scale, zero = inputs[0], inputs[1], given(inputs, 2)
        zero = const(np.zeros(shape_of(scale)), dtype_of(data)) if zero is None else zero
        if not attrs.get("block_size", 0):
            return importer.DequantizeLinear.get_converter(opset)([data, scale, zero], attrs, params)
        shape, kind = shape_of(data), dtype_of(scale)
        shifted = _op.cast(data, "int32") - _of_blocks(_op.cast(zero, "int32"), shape, attrs)
        return _op.cast(shifted, kind) * _of_blocks(scale, shape, attrs)


for each in (10, 13):
    _from_opset(each)


def _is_zero(zero):
    return zero is None or (isinstance(zero, relay.Constant) and not zero.data.numpy().any())


def _one(value):
    """It is one number, or not given, which is 0."""
    return value is None or int(np.prod(shape_of(value))) == 1


@converter("MatMulInteger", since=10)
def _whole_product(inputs, attrs, params):
    """Its sides may be of different types, which TVM's converter refuses. Bytes that are multiplied by constant ones
    around zero, which is what dynamic quantisation writes, stay bytes: processors have instructions for that.
    """
    a, b, a_zero, b_zero = inputs[0], inputs[1], given(inputs, 2), given(inputs, 3)
    constant = isinstance(b, relay.Constant) and rank_of(b) == 2
    if constant and _is_zero(b_zero) and _one(a_zero) and (dtype_of(a), dtype_of(b)) == ("uint8", "int8"):
        length, columns = shape_of(b)
        rows = _op.reshape(a, (-1, length))
        weight = const(b.data.numpy().T, "int8")
        shift = const(0, "int32") if a_zero is None else _op.reshape(_op.cast(a_zero, "int32"), ())
        total = relay.qnn.op.dense(
            rows, weight, shift, const(0, "int32"), const(1, "float32"), const(1, "float32"), columns
        )
        return rows_as_in(total, a, columns)
    sides = []
    for side, zero, column in ((a, a_zero, False), (b, b_zero, True)):
        whole = _op.cast(side, "int32")
        sides.append(whole if zero is None else whole - _along_rows(_op.cast(zero, "int32"), rank_of(side), column))
    return importer.matmul_out_dtype(sides, "int32")


@converter("ConvInteger", since=10)
def _whole_convolution(inputs, attrs, params):
    """TVM's dialect of quantised operators wants all sizes."""
    data, weight, zero, w_zero = inputs[0], inputs[1], given(inputs, 2), given(inputs, 3)
    if None not in sizes_of(data):
        return importer.ConvInteger.get_converter(10)([data, weight, zero, w_zero], attrs, params)
    data, weight = _op.cast(data, "int32"), _op.cast(weight, "int32")
    if zero is not None:
        data = data - _op.reshape(_op.cast(zero, "int32"), ())
    if w_zero is not None:
        each = () if _one(w_zero) else (-1, *[1] * (rank_of(weight) - 1))
        weight = weight - _op.reshape(_op.cast(w_zero, "int32"), each)
    return convolution([data, weight], attrs, params)


@converter("QLinearConv", since=10)
def _quantised_convolution(inputs, attrs, params):
    """As QLinearMatMul, where a size is open: TVM's dialect of quantised operators wants all sizes."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs[:8]
    if None not in sizes_of(a):
        return importer.QLinearConv.get_converter(10)(inputs, attrs, params)
    total = convolution([_meant(a, a_scale, a_zero, 1), _meant(b, b_scale, b_zero, 0)], attrs, params)
    bias = given(inputs, 8)
    if bias is not None:
        total = _op.nn.bias_add(total, _op.cast(bias, "float32") * cast(a_scale, "float32") * cast(b_scale, "float32"))
    by = [_op.reshape(cast(v, t), ()) for v, t in ((y_scale, "float32"), (y_zero, "int32"))]
    return relay.qnn.op.quantize(total, *by, out_dtype=dtype_of(y_zero))


@converter("QLinearMatMul", since=10)
def _product(inputs, attrs, params):
    """What its sides stand for is multiplied in float32, and rounded to the result's scale: kernels for bytes know that
    form, and TVM has none for a product of whole numbers of 32 bits.
    """
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    sides = [_meant_by_rows(a, a_scale, a_zero, False), _meant_by_rows(b, b_scale, b_zero, True)]
    total = importer.matmul_out_dtype(sides, "float32")
    kind = dtype_of(y_zero)
    if _one(y_scale) and _one(y_zero):
        by = [_op.reshape(cast(v, t), ()) for v, t in ((y_scale, "float32"), (y_zero, "int32"))]
        return relay.qnn.op.quantize(total, *by, out_dtype=kind)
    rank, limits = rank_of(total), np.iinfo(kind)
    rounded = importer.Round.get_converter(11)([total / _along_rows(cast(y_scale, "float32"), rank, False)], {}, params)
    shifted = rounded + _along_rows(_op.cast(y_zero, "float32"), rank, False)
    return _op.cast(_op.clip(shifted, limits.min, limits.max), kind)


def _meant_by_rows(side, scale, zero, column):
    """What the whole numbers of a matrix stand for: by one scale, or by those of its rows or columns."""
    rank = rank_of(side)
    if rank_of(scale) <= 1 and rank_of(zero) <= 1:
        return _meant(side, scale, zero, rank - 1 if column else rank - 2)
    shifted = _op.cast(side, "int32") - _along_rows(_op.cast(zero, "int32"), rank, column)
    return _op.cast(shifted, "float32") * _along_rows(cast(scale, "float32"), rank, column)


def _meant(side, scale, zero, axis):
    """What whole numbers stand for: by one scale, or by those along an axis."""
    by = [cast(v, t) for v, t in ((scale, "float32"), (zero, "int32"))]
    return relay.qnn.op.dequantize(side, *[_op.reshape(v, ()) if _one(v) else v for v in by], axis=axis)
