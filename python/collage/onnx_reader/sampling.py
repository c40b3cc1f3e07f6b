# SPDX-License-Identifier: Apache-2.0
"""Operators that look between the elements of an image: grids, regions of interest, deformed convolutions."""

import math

import numpy as np
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, given, known_sizes, rank_of, shape_of, static, text

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
        sizes, scale = (attrs.get("output_height", 1), attrs.get("output_width", 1)), attrs.get("spatial_scale", 1.0)
        if samples > 0:
            return _sampled_regions(inputs, sizes, samples, scale, aside, mode == "max")
        if mode == "max":
            raise ValueError(
                "it takes the greatest of samples of which there are as many as the regions' sizes say (sampling_ratio "
                "is 0), which is not supported"
            )
        return _regions_by_their_sizes(inputs, sizes, scale)

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
    channels, *extents = known_sizes(x, 1)
    kind = dtype_of(x)
    ends = regions * const(scale, kind)
    ends = ends - const(0.5, kind) if aside else ends
    axes = []
    for column, size, extent in ((1, sizes[0], extents[0]), (0, sizes[1], extents[1])):
        first, last = (_op.strided_slice(ends, [c], [c + 1], axes=[1]) for c in (column, column + 2))
        length = last - first if aside else _op.maximum(last - first, const(1, kind))
        steps = const((np.arange(size * samples) + 0.5)[None] / (size * samples), kind)
        axes.append(_neighbours(first + length * steps, extent))
    flat = _op.reshape(_op.transpose(x, (0, 2, 3, 1)), (-1, channels))
    image = _op.reshape(_op.cast(images, "int64"), (-1, 1, 1)) * const(math.prod(extents), "int64")
    (rows, row_shares), (columns, column_shares) = axes
    total, join = None, _op.maximum if most else _op.add
    for row, row_share in zip(rows, row_shares, strict=True):
        for column, column_share in zip(columns, column_shares, strict=True):
            places = image + _op.expand_dims(row, 2) * const(extents[1], "int64") + _op.expand_dims(column, 1)
            share = _op.expand_dims(_op.expand_dims(row_share, 2) * _op.expand_dims(column_share, 1), 3)
            part = _op.take(flat, places, axis=0) * share
            total = part if total is None else join(total, part)
    bins = _op.reshape(total, (-1, sizes[0], samples, sizes[1], samples, channels))
    return _op.transpose((_op.max if most else _op.mean)(bins, axis=[2, 4]), (0, 3, 1, 2))


# How many numbers of a tensor may be written out for regions that say themselves how many samples they take.
_MOST = 1 << 28


def _regions_by_their_sizes(inputs, sizes, scale):
    """The means of the samples in each of ``sizes`` bins, half a pixel aside, a sample for each begun element of a
    bin's height and width. A sample's share in an element is that of its row times that of its column, so all of it is
    two products with matrices: what each row of bins takes of each row of the image, and so the columns.
    """
    x, regions, images = inputs
    batch, channels, *extents = shape_of(x)
    count, kind = shape_of(regions)[0], dtype_of(x)
    between = channels * extents[0] * count * (sizes[1] if batch == 1 else max(sizes[1], extents[1]))
    most = max([between] + [count * n * extent * (extent + 4) for n, extent in zip(sizes, extents, strict=True)])
    if most > _MOST:
        raise ValueError(
            "how many samples it takes depends on the regions' sizes (sampling_ratio is 0): written out for "
            f"{count} regions of {channels} channels of {extents[0]} x {extents[1]} there would be {most} numbers, "
            f"more than {_MOST}"
        )
    ends = regions * const(scale, kind) - const(0.5, kind)
    shares, steps = [], []
    for column, size, extent in ((1, sizes[0], extents[0]), (0, sizes[1], extents[1])):
        first, last = (_op.strided_slice(ends, [c], [c + 1], axes=[1]) for c in (column, column + 2))
        share, taken = _shares_of_rows(first, (last - first) / const(size, kind), size, extent)
        shares.append(share)
        steps.append(taken)
    rows, columns = shares
    if batch == 1:
        across = _op.nn.dense(
            _op.reshape(x, (channels * extents[0], extents[1])), _op.reshape(columns, (count * sizes[1], extents[1]))
        )
        across = _op.transpose(_op.reshape(across, (channels, extents[0], count, sizes[1])), (2, 1, 0, 3))
    else:
        each = _op.reshape(_op.take(x, _op.cast(images, "int64"), axis=0), (count, channels * extents[0], extents[1]))
        across = _op.nn.batch_matmul(each, columns, transpose_a=False, transpose_b=True)
        across = _op.transpose(_op.reshape(across, (count, channels, extents[0], sizes[1])), (0, 2, 1, 3))
    across = _op.reshape(across, (count, extents[0], channels * sizes[1]))
    total = _op.nn.batch_matmul(rows, across, transpose_a=False, transpose_b=False)
    total = _op.transpose(_op.reshape(total, (count, sizes[0], channels, sizes[1])), (0, 2, 1, 3))
    return total / _op.reshape(_op.maximum(steps[0] * steps[1], const(1, kind)), (count, 1, 1, 1))


def _shares_of_rows(first, height, size, extent):
    """What the samples of each bin take of each row together, [regions, size, extent], and how many samples a bin has,
    [regions, 1]: as many as its ``height`` [regions, 1] has begun rows. ``first`` [regions, 1] is where the first bin
    begins. Samples outside the image by more than one row take nothing, and no bin has more than extent + 3 others:
    where it has two or more, they are more than half a row apart.
    """
    kind = dtype_of(first)
    one, nothing = const(1, kind), const(0, kind)
    steps = _op.maximum(_op.ceil(height), nothing)
    apart = height / _op.maximum(steps, one)
    apart = _op.where(_op.greater(apart, nothing), apart, one)
    begins = _op.expand_dims(first + height * const(np.arange(size)[None], kind), 2)
    apart = _op.expand_dims(apart, 2)
    skipped = _op.floor((const(-1, kind) - begins) / apart - const(0.5, kind))
    sample = _op.maximum(skipped, nothing) + const(np.arange(extent + 4).reshape(1, 1, -1), kind)
    places = begins + (sample + const(0.5, kind)) * apart
    there = _op.logical_and(_op.greater_equal(places, const(-1, kind)), _op.less_equal(places, const(extent, kind)))
    there = _op.cast(_op.logical_and(there, _op.less(sample, _op.expand_dims(steps, 2))), kind)
    held = _op.expand_dims(_op.clip(places, 0.0, float(extent - 1)), 3)
    near = one - _op.abs(held - const(np.arange(extent).reshape(1, 1, 1, -1), kind))
    return _op.sum(_op.maximum(near, nothing) * _op.expand_dims(there, 3), axis=2), steps


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
    if rank_of(x) != 4:
        raise ValueError(f"over {rank_of(x) - 2} axes it is not supported, over 2 it is")
    channels, *extents = known_sizes(x, 1)
    kernel, counts, kind = shape_of(weight)[2:], known_sizes(offset, 2), dtype_of(x)
    groups, parts = attrs.get("group", 1), attrs.get("offset_group", 1)
    strides, dilations = (list(attrs.get(name, [1, 1])) for name in ("strides", "dilations"))
    pads = list(attrs.get("pads", [0] * 4))
    taps, windows = math.prod(kernel), math.prod(counts)
    moved = _op.reshape(offset, (-1, taps, 2, *counts))
    sides = []
    for axis in (1, 0):  # a grid's places are (x, y), from -1 to 1
        at = [1, *kernel, *counts]
        along_kernel = np.arange(kernel[axis]).reshape([-1 if i == 1 + axis else 1 for i in range(5)]) * dilations[axis]
        along_window = np.arange(counts[axis]).reshape([-1 if i == 3 + axis else 1 for i in range(5)]) * strides[axis]
        start = np.broadcast_to(along_kernel + along_window - pads[axis], at).reshape(1, taps, *counts)
        place = _op.squeeze(_op.strided_slice(moved, [axis], [axis + 1], axes=[2]), [2]) + const(start, kind)
        sides.append((place * const(2, kind) + const(1, kind)) / const(extents[axis], kind) - const(1, kind))
    grid = _op.stack([_op.reshape(side, (-1, taps, windows)) for side in sides], 1)
    image = _op.reshape(x, (-1, channels // parts, *extents))
    sampled = _op.image.grid_sample(image, grid, "bilinear", "NCHW", "zeros", False)
    if mask is not None:
        sampled = sampled * _op.reshape(mask, (-1, 1, taps, windows))
    columns = _op.reshape(sampled, (-1, channels * taps, *counts))
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
