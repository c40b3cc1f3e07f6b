# SPDX-License-Identifier: Apache-2.0
"""Images and matrices: what TVM converts under other names, or only in part."""

import math

import numpy as np
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, given, shape_of, sizes_of, static


@converter("Col2Im", since=18)
def _columns_to_image(inputs, attrs, params):
    """Adds up what lies on one place in several windows."""
    columns = inputs[0]
    sizes, window = (
        [int(n) for n in static(inputs[i], what)]
        for i, what in ((1, "the shape of the image of Col2Im"), (2, "the shape of the window of Col2Im"))
    )
    rank = len(sizes)
    strides, dilations = (list(attrs.get(name, [1] * rank)) for name in ("strides", "dilations"))
    pads = list(attrs.get("pads", [0] * 2 * rank))
    padded = [size + pads[i] + pads[rank + i] for i, size in enumerate(sizes)]
    counts = [(padded[i] - (window[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    places = np.zeros((*window, *counts), "int64")
    for axis in range(rank):
        along = np.arange(window[axis])[:, None] * dilations[axis] + np.arange(counts[axis])[None, :] * strides[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = along.shape
        places = places * padded[axis] + along.reshape(shape)
    batch = shape_of(columns)[0]
    channels = shape_of(columns)[1] // math.prod(window)
    where = const(np.broadcast_to(places.reshape(-1), (batch, channels, places.size)), "int64")
    empty = const(np.zeros((batch, channels, math.prod(padded))), dtype_of(columns))
    filled = _op.scatter_elements(empty, where, _op.reshape(columns, (batch, channels, -1)), 2, "add")
    image = _op.reshape(filled, (batch, channels, *padded))
    begin = pads[:rank]
    end = [b + size for b, size in zip(begin, sizes, strict=True)]
    return _op.strided_slice(image, begin, end, [1] * rank, axes=list(range(2, 2 + rank)))


def _transposed_convolution(opset):
    """A dilated kernel is one with zeros between its elements, which TVM's operator does not put there."""

    @converter("ConvTranspose", since=opset)
    def convert(inputs, attrs, params):
        dilations = list(attrs.pop("dilations", []))
        if any(one > 1 for one in dilations):
            kernel = shape_of(inputs[1])[2:]
            inputs[1] = _op.nn.dilate(inputs[1], [1, 1, *dilations])
            attrs["kernel_shape"] = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
        return importer.ConvTranspose.get_converter(opset)(inputs, attrs, params)


for each in (1, 11):
    _transposed_convolution(each)


@converter("MaxUnpool", since=9)
def _max_unpool(inputs, attrs, params):
    """The places are those in the tensor that the windows go over; one that is larger has zeros behind them."""
    values, places = inputs[:2]
    shape, kernel = shape_of(values), attrs["kernel_shape"]
    rank = len(kernel)
    strides, pads = attrs.get("strides", [1] * rank), attrs.get("pads", [0] * 2 * rank)
    sizes = [(shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i] for i in range(rank)]
    whole = [*shape[:2], *sizes]
    empty = const(np.zeros(math.prod(whole)), dtype_of(values))
    filled = _op.scatter_elements(empty, _op.reshape(places, [-1]), _op.reshape(values, [-1]), 0)
    image, asked = _op.reshape(filled, whole), static(given(inputs, 2), "the shape of MaxUnpool's result")
    further = [0] * len(whole) if asked is None else [int(n) - have for n, have in zip(asked, whole, strict=True)]
    if min(further) < 0:
        raise ValueError(
            f"the shape of its result, {[int(n) for n in asked]}, is less than its windows go over: {whole}"
        )
    return _op.nn.pad(image, [(0, n) for n in further], 0) if any(further) else image


@converter("Det", since=11)
def _determinant(inputs, attrs, params):
    """Along the first row, of matrices up to 4 x 4."""
    shape, x = sizes_of(inputs[0]), inputs[0]
    if None in shape[-1:] or shape[:-2].count(None) > 1:
        raise ValueError("how large its matrices are, or how many there are, is known only when the network runs")
    if shape[-1] > 4:
        raise ValueError(f"of a matrix of {shape[-1]} rows it is not supported, up to 4 it is")
    rank = len(shape)

    def element(row, column):
        one = _op.strided_slice(x, [row, column], [row + 1, column + 1], [1, 1], axes=[rank - 2, rank - 1])
        return _op.reshape(one, [-1 if size is None else size for size in shape[:-2]])

    def of(row, columns):
        if len(columns) == 1:
            return element(row, columns[0])
        total = None
        for i, column in enumerate(columns):
            part = element(row, column) * of(row + 1, columns[:i] + columns[i + 1 :])
            total = part if total is None else total - part if i % 2 else total + part
        return total

    return of(0, list(range(shape[-1])))
