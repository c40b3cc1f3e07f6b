# SPDX-License-Identifier: Apache-2.0
"""Resize in all its modes.

What TVM's own operators do as ONNX defines it (two axes of an image, by neighbours or linearly) becomes one of them,
which engines know. Everything else is separable: along each axis an element is a sum of some others, whose weights are
known when the model is read; the nearest is looked up, the rest is a product with the matrix of weights.
"""

import numpy as np
from tvm.relay import op as _op

from .table import const, converter, dtype_of, from_front, given, shape_of, static, text


class Axis:
    """How one axis is resized: from ``size`` elements to ``out``, ``scale`` times as many; ``start`` and ``end`` are
    the part of it that is looked at (tf_crop_and_resize).
    """

    def __init__(self, size, out, scale, start=0.0, end=1.0):
        self.size, self.out, self.scale, self.start, self.end = size, out, float(scale), float(start), float(end)

    @property
    def whole(self):
        """Whether nothing is to be done."""
        return self.size == self.out and self.scale == 1.0 and (self.start, self.end) == (0.0, 1.0)

    def positions(self, mode):
        """Where each element of the result stands in the input (ONNX, Resize: coordinate_transformation_mode)."""
        x = np.arange(self.out, dtype="float64")
        exact = self.scale * self.size
        if mode == "align_corners":
            return np.zeros_like(x) if exact == 1 else x * (self.size - 1) / (exact - 1)
        if mode == "asymmetric":
            return x / self.scale
        if mode == "tf_crop_and_resize":
            length = (self.end - self.start) * (self.size - 1)
            at = np.full_like(x, length / 2) if exact == 1 else x * length / (exact - 1)
            return at + self.start * (self.size - 1)
        if mode == "pytorch_half_pixel" and exact == 1:
            return np.full_like(x, -0.5)
        if mode == "half_pixel_symmetric":
            return self.size / 2 * (1 - self.out / exact) + (x + 0.5) / self.scale - 0.5
        if mode in ("half_pixel", "pytorch_half_pixel"):
            return (x + 0.5) / self.scale - 0.5
        raise ValueError(f"the coordinate transformation mode {mode} is not one of ONNX's")

    def weights(self, positions, coefficients, exclude_outside):
        """The matrix (out, size) of what each element of the input gives to each of the result."""
        below = np.where(positions == np.floor(positions), positions - 1, np.floor(positions)).astype(int)
        offsets, factors = coefficients(positions - below, self.scale)
        index = below[:, None] + offsets[None, :]
        if exclude_outside:
            factors = np.where((index < 0) | (index >= self.size), 0.0, factors)
            factors = factors / factors.sum(axis=1, keepdims=True)
        matrix = np.zeros((self.out, self.size))
        rows = np.broadcast_to(np.arange(self.out)[:, None], index.shape)
        np.add.at(matrix, (rows, np.clip(index, 0, self.size - 1)), factors)
        return matrix


# Coefficients: for how far the position is from the element below it, in (0, 1], the offsets from that element and
# the factors, (out, offsets).


def _nearest(mode):
    def coefficients(ratio, scale):
        upper = {
            "round_prefer_floor": ratio > 0.5,
            "round_prefer_ceil": ratio >= 0.5,
            "floor": ratio == 1.0,
            "ceil": np.ones_like(ratio, bool),
        }[mode]
        return np.array([0, 1]), np.stack([~upper, upper], axis=1).astype("float64")

    return coefficients


def _linear(antialias):
    def coefficients(ratio, scale):
        scale = min(scale, 1.0) if antialias else 1.0
        start = int(np.floor(-1 / scale) + 1)
        offsets = np.arange(start, 2 - start)
        factors = np.clip(1 - np.abs((offsets[None, :] - ratio[:, None]) * scale), 0, 1)
        return offsets, factors / factors.sum(axis=1, keepdims=True)

    return coefficients


def _cubic(a, antialias):
    def coefficients(ratio, scale):
        scale = min(scale, 1.0) if antialias else 1.0
        start = int(np.floor(-2 / scale) + 1)
        offsets = np.arange(start, 2 - start)
        x = np.abs((offsets[None, :] - ratio[:, None]) * scale)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        factors = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
        return offsets, factors / factors.sum(axis=1, keepdims=True) if antialias else factors

    return coefficients


def _axes(shape, attrs, scales, sizes, roi):
    """How each axis of the tensor is resized."""
    rank = len(shape)
    chosen = [from_front(axis, rank) for axis in attrs.get("axes", range(rank))]
    starts, ends = [0.0] * rank, [1.0] * rank
    if roi is not None and roi.size == 2 * len(chosen):
        for i, axis in enumerate(chosen):
            starts[axis], ends[axis] = roi[i], roi[len(chosen) + i]
    out, factor = list(shape), [1.0] * rank
    if sizes is not None and sizes.size:
        policy = text(attrs, "keep_aspect_ratio_policy", "stretch")
        ratios = [int(size) / shape[axis] for size, axis in zip(sizes, chosen, strict=True)]
        for i, axis in enumerate(chosen):
            out[axis], factor[axis] = int(sizes[i]), ratios[i]
            if policy != "stretch":
                factor[axis] = min(ratios) if policy == "not_larger" else max(ratios)
                out[axis] = int(factor[axis] * shape[axis] + 0.5)
    elif scales is not None and scales.size:
        for scale, axis in zip(scales, chosen, strict=True):
            out[axis], factor[axis] = int(scale * shape[axis]), float(scale)
    else:
        raise ValueError("neither scales nor sizes are given")
    return [Axis(*one) for one in zip(shape, out, factor, starts, ends, strict=True)]


def _as_image(data, axes, mode, coordinates, nearest):
    """TVM's own operator, which engines know; None where it does something else."""
    if len(axes) != 4 or not (axes[0].whole and axes[1].whole):
        return None
    known = {
        "nearest": {("asymmetric", "floor"): "floor"},
        "linear": dict.fromkeys([("half_pixel", nearest), ("align_corners", nearest), ("asymmetric", nearest)], ""),
    }.get(mode, {})
    if (coordinates, nearest) not in known or any(axis.scale * axis.size != axis.out for axis in axes):
        return None
    return _op.image.resize2d(
        data,
        (axes[2].out, axes[3].out),
        None,
        "NCHW",
        "nearest_neighbor" if mode == "nearest" else "linear",
        coordinates,
        known[coordinates, nearest],
    )


def _along(data, shape, axis, matrix):
    """The tensor with an axis multiplied by a matrix (out, size)."""
    rank = len(shape)
    order = [a for a in range(rank) if a != axis] + [axis]
    moved = _op.reshape(_op.transpose(data, order), (-1, shape[axis]))
    product = _op.nn.dense(moved, const(matrix.astype(dtype_of(data))))
    back = _op.reshape(product, [*(shape[a] for a in order[:-1]), matrix.shape[0]])
    return _op.transpose(back, list(np.argsort(order)))


def _resized(data, attrs, scales, sizes, roi):
    shape, kind = shape_of(data), dtype_of(data)
    axes = _axes(shape, attrs, scales, sizes, roi)
    mode = text(attrs, "mode", "nearest")
    coordinates = text(attrs, "coordinate_transformation_mode", "half_pixel")
    nearest = text(attrs, "nearest_mode", "round_prefer_floor")
    antialias, exclude = bool(attrs.get("antialias", 0)), bool(attrs.get("exclude_outside", 0))
    if all(axis.whole for axis in axes):
        return data
    if not antialias and not exclude:
        image = _as_image(data, axes, mode, coordinates, nearest)
        if image is not None:
            return image
    coefficients = {
        "nearest": lambda: _nearest(nearest),
        "linear": lambda: _linear(antialias),
        "cubic": lambda: _cubic(attrs.get("cubic_coeff_a", -0.75), antialias),
    }[mode]()
    result = data if kind.startswith("float") or mode == "nearest" else _op.cast(data, "float32")
    sizes_now, outside = list(shape), None
    for number, axis in enumerate(axes):
        if axis.whole:
            continue
        positions = axis.positions(coordinates)
        matrix = axis.weights(positions, coefficients, exclude)
        if mode == "nearest":
            result = _op.take(result, const(matrix.argmax(axis=1).astype("int32")), axis=number, mode="clip")
        else:
            result = _along(result, sizes_now, number, matrix)
        sizes_now[number] = axis.out
        if coordinates == "tf_crop_and_resize":
            beyond = (positions < 0) | (positions > axis.size - 1)
            beyond = beyond.reshape([-1 if a == number else 1 for a in range(len(shape))])
            outside = beyond if outside is None else outside | beyond
    if outside is not None and outside.any():
        value = const(attrs.get("extrapolation_value", 0.0), dtype_of(result))
        mask = const(np.broadcast_to(outside, sizes_now).copy())
        result = _op.where(mask, value, result)
    return result if dtype_of(result) == kind else _op.cast(result, kind)


@converter("Resize", since=11)
def _resize(inputs, attrs, params):
    roi, scales, sizes = (static(given(inputs, i), what) for i, what in _INPUTS)
    return _resized(inputs[0], attrs, scales, sizes, roi)


_INPUTS = ((1, "the region of interest of Resize"), (2, "the scales of Resize"), (3, "the sizes of Resize"))


@converter("Resize", since=10)
@converter("Upsample", since=9)
def _upsample(inputs, attrs, params):
    """Both take positions as `asymmetric` does, and the element below."""
    scales = static(given(inputs, 1), "the scales of the operator")
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", **attrs}
    return _resized(inputs[0], modes, scales, None, None)
