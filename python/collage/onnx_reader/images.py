# SPDX-License-Identifier: Apache-2.0
"""Images and signals: what TVM converts under other names, or only in part."""

import math

import numpy as np
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, from_front, given, shape_of, static, text

_METHODS = {"linear": b"bilinear", "cubic": b"bicubic"}


@converter("GridSample", since=16)
def _grid_sample(inputs, attrs, params):
    mode = text(attrs, "mode", "bilinear")
    attrs["mode"] = _METHODS.get(mode, mode.encode())
    if len(shape_of(inputs[0])) < 5:
        return importer.GridSample.get_converter(16)(inputs, attrs, params)
    grid = _op.transpose(inputs[1], (0, 4, 1, 2, 3))
    padding, corners = text(attrs, "padding_mode", "zeros"), bool(attrs.get("align_corners", 0))
    return _op.image.grid_sample(inputs[0], grid, text(attrs, "mode", ""), "NCDHW", padding, corners)


def _roi_align(default):
    def convert(inputs, attrs, params):
        mode = text(attrs, "mode", "avg")
        if mode != "avg":
            raise ValueError(f"it takes the {mode} of the samples; TVM has it for their mean only")
        if text(attrs, "coordinate_transformation_mode", default) == "half_pixel":
            raise ValueError("it looks for samples half a pixel aside, which TVM does not: use output_half_pixel")
        return importer.RoiAlign.get_converter(16)(inputs, attrs, params)

    return convert


converter("RoiAlign", since=10)(_roi_align("output_half_pixel"))
converter("RoiAlign", since=16)(_roi_align("half_pixel"))


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
    if len(inputs) > 2 and inputs[2] is not None:
        raise ValueError("it is told the shape of its output, which TVM does not take")
    return importer.MaxUnpool.get_converter(11)(inputs, attrs, params)


@converter("DFT", since=20)
def _fourier(inputs, attrs, params):
    """The axis is an input since opset 20, and counts from the end."""
    rank = len(shape_of(inputs[0]))
    axis = static(given(inputs, 2), "the axis of DFT")
    axis = -2 if axis is None else int(axis.reshape(()))
    attrs["axis"] = from_front(axis, rank)
    return importer.DFT.get_converter(17)([inputs[0], given(inputs, 1)], attrs, params)
