# SPDX-License-Identifier: Apache-2.0
"""Operators that look between the elements of an image: grids, regions of interest, deformed convolutions."""

import math

import numpy as np
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, given, rank_of, shape_of, static, text

_METHODS = {"linear": b"bilinear", "cubic": b"bicubic"}


@converter("GridSample", since=16)
def _grid_sample(inputs, attrs, params):
    mode = text(attrs, "mode", "bilinear")
    attrs["mode"] = _METHODS.get(mode, mode.encode())
    if rank_of(inputs[0]) < 5:
        return importer.GridSample.get_converter(16)(inputs, attrs, params)
    grid = _op.transpose(inputs[1], (0, 4, 1, 2, 3))
    padding, corners = text(attrs, "padding_mode", "zeros"), bool(attrs.get("align_corners", 0))
    return _op.image.grid_sample(inputs[0], grid, text(attrs, "mode", ""), "NCDHW", padding, corners)


def _roi_align(default):
    def convert(inputs, attrs, params):
        mode, samples = text(attrs, "mode", "avg"), attrs.get("sampling_ratio", 0)
        aside = text(attrs, "coordinate_transformation_mode", default) == "half_pixel"
        if mode == "avg" and not aside:
            return importer.RoiAlign.get_converter(16)(inputs, attrs, params)
        if samples < 1:
            raise ValueError("how many samples it takes depends on the regions' sizes (sampling_ratio is 0)")
        sizes = attrs.get("output_height", 1), attrs.get("output_width", 1)
        return _sampled_regions(inputs, sizes, samples, attrs.get("spatial_scale", 1.0), aside, mode == "max")

    return convert


converter("RoiAlign", since=10)(_roi_align("output_half_pixel"))
converter("RoiAlign", since=16)(_roi_align("half_pixel"))


def _sampled_regions(inputs, sizes, samples, scale, aside, most):
    """The means of ``samples`` x ``samples`` places in each of ``sizes`` bins, half a pixel ``aside`` or not, or the
    greatest (``most``) of the shares of the elements around these places, as the standard has it. TVM's operator makes
    regions below one element as large as one, which is right for those that are not aside only, and takes the greatest
    of the places.
    """
    x, regions, images = inputs
    channels, *extents = shape_of(x)[1:]
    count, kind = shape_of(regions)[0], dtype_of(x)
    ends = regions * const(scale, kind)
    ends = ends - const(0.5, kind) if aside else ends
    axes = []
    for column, size, extent in ((1, sizes[0], extents[0]), (0, sizes[1], extents[1])):
        first, last = (_op.strided_slice(ends, [c], [c + 1], axes=[1]) for c in (column, column + 2))
        length = last - first if aside else _op.maximum(last - first, const(1, kind))
        steps = const((np.arange(size * samples) + 0.5)[None] / (size * samples), kind)
        axes.append(_neighbours(first + length * steps, extent))
    flat = _op.reshape(_op.transpose(x, (0, 2, 3, 1)), (-1, channels))
    image = _op.reshape(_op.cast(images, "int64"), (count, 1, 1)) * const(math.prod(extents), "int64")
    (rows, row_shares), (columns, column_shares) = axes
    total, join = None, _op.maximum if most else _op.add
    for row, row_share in zip(rows, row_shares, strict=True):
        for column, column_share in zip(columns, column_shares, strict=True):
            places = image + _op.expand_dims(row, 2) * const(extents[1], "int64") + _op.expand_dims(column, 1)
            share = _op.expand_dims(_op.expand_dims(row_share, 2) * _op.expand_dims(column_share, 1), 3)
            part = _op.take(flat, places, axis=0) * share
            total = part if total is None else join(total, part)
    bins = _op.reshape(total, (count, sizes[0], samples, sizes[1], samples, channels))
    return _op.transpose((_op.max if most else _op.mean)(bins, axis=[2, 4]), (0, 3, 1, 2))


def _neighbours(places, extent):
    """The elements before and after each place along an axis of that extent, and the share that each has in it; none
    where the place is more than one element outside.
    """
    kind = dtype_of(places)
    within = _op.logical_and(_op.greater_equal(places, const(-1, kind)), _op.less_equal(places, const(extent, kind)))
    held = _op.clip(places, 0.0, float(extent - 1))
    before = _op.floor(held)
    rest = held - before
    there = _op.cast(within, kind)
    after = _op.clip(before + const(1, kind), 0.0, float(extent - 1))
    elements = [_op.cast(one, "int64") for one in (before, after)]
    return elements, [(const(1, kind) - rest) * there, rest * there]


@converter("DeformConv", since=19)
def _deformed_convolution(inputs, attrs, params):
    """TVM's operator has no mask: each place of the kernel is sampled, and what comes out is a convolution of 1 x 1."""
    x, weight, offset = inputs[:3]
    bias, mask = given(inputs, 3), given(inputs, 4)
    if len(shape_of(x)) != 4:
        raise ValueError(f"over {len(shape_of(x)) - 2} axes it is not supported, over 2 it is")
    batch, channels, *extents = shape_of(x)
    kernel, counts, kind = shape_of(weight)[2:], shape_of(offset)[2:], dtype_of(x)
    groups, parts = attrs.get("group", 1), attrs.get("offset_group", 1)
    strides, dilations = (list(attrs.get(name, [1, 1])) for name in ("strides", "dilations"))
    pads = list(attrs.get("pads", [0] * 4))
    taps, windows = math.prod(kernel), math.prod(counts)
    moved = _op.reshape(offset, (batch * parts, taps, 2, *counts))
    sides = []
    for axis in (1, 0):  # a grid's places are (x, y), from -1 to 1
        at = [1, *kernel, *counts]
        along_kernel = np.arange(kernel[axis]).reshape([-1 if i == 1 + axis else 1 for i in range(5)]) * dilations[axis]
        along_window = np.arange(counts[axis]).reshape([-1 if i == 3 + axis else 1 for i in range(5)]) * strides[axis]
        start = np.broadcast_to(along_kernel + along_window - pads[axis], at).reshape(1, taps, *counts)
        place = _op.squeeze(_op.strided_slice(moved, [axis], [axis + 1], axes=[2]), [2]) + const(start, kind)
        sides.append((place * const(2, kind) + const(1, kind)) / const(extents[axis], kind) - const(1, kind))
    grid = _op.stack([_op.reshape(side, (batch * parts, taps, windows)) for side in sides], 1)
    image = _op.reshape(x, (batch * parts, channels // parts, *extents))
    sampled = _op.image.grid_sample(image, grid, "bilinear", "NCHW", "zeros", False)
    if mask is not None:
        sampled = sampled * _op.reshape(mask, (batch * parts, 1, taps, windows))
    columns = _op.reshape(sampled, (batch, channels * taps, *counts))
    ones = _op.reshape(weight, (shape_of(weight)[0], -1, 1, 1))
    result = _op.nn.conv2d(columns, ones, groups=groups, channels=shape_of(weight)[0], kernel_size=(1, 1))
    return result if bias is None else _op.nn.bias_add(result, bias)


@converter("AffineGrid", since=20)
def _affine_grid(inputs, attrs, params):
    """The places of a grid whose sizes are known, times the matrices."""
    theta = inputs[0]
    size = [int(n) for n in static(inputs[1], "the size of AffineGrid")]
    kind, extents = dtype_of(theta), size[2:]
    corners = attrs.get("align_corners", 0)
    axes = [np.linspace(-1, 1, n) if corners else (2 * np.arange(n) + 1) / n - 1 for n in extents]
    places = np.meshgrid(*axes, indexing="ij")
    base = np.stack([*reversed(places), np.ones(extents)], -1).reshape(1, -1, len(extents) + 1)
    moved = _op.nn.batch_matmul(const(base, kind), theta, transpose_a=False, transpose_b=True)
    return _op.reshape(moved, (size[0], *extents, len(extents)))
