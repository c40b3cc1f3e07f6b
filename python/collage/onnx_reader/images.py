# SPDX-License-Identifier: Apache-2.0
"""Images and signals: what TVM converts under other names, or only in part."""

from tvm.relay.frontend import onnx as importer

from .resize import text
from .table import converter, given, shape_of, static

_METHODS = {"linear": b"bilinear", "cubic": b"bicubic"}


@converter("GridSample", since=16)
def _grid_sample(inputs, attrs, params):
    mode = text(attrs, "mode", "bilinear")
    attrs["mode"] = _METHODS.get(mode, mode.encode())
    return importer.GridSample.get_converter(16)(inputs, attrs, params)


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
    attrs["axis"] = axis + rank if axis < 0 else axis
    return importer.DFT.get_converter(17)([inputs[0], given(inputs, 1)], attrs, params)
