# SPDX-License-Identifier: Apache-2.0
"""Resize in all its modes.

What TVM's own operators do as ONNX defines it (two axes of an image, by neighbours or linearly) becomes one of them,
which engines know. Everything else is separable: along each axis an element is a sum of some others, whose weights are
known when the model is read; the nearest is looked up, the rest is a product with the matrix of weights. Of an axis
whose sizes are known only when the network runs they are computed then (resize_open.py).
"""

import numpy as np
from tvm.relay import Expr
from tvm.relay import op as _op

from .resize_open import OpenAxis
from .table import const, converter, dtype_of, from_front, given, rank_of, rows_as_in, sizes_at, sizes_of, static, text


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


class How:
    """What a Resize says beside sizes: its attributes, in their words."""

    def __init__(self, attrs):
        self.mode = text(attrs, "mode", "nearest")
        self.coordinates = text(attrs, "coordinate_transformation_mode", "half_pixel")
        self.nearest = text(attrs, "nearest_mode", "round_prefer_floor")
        self.antialias, self.exclude_outside = bool(attrs.get("antialias", 0)), bool(attrs.get("exclude_outside", 0))
        self.cubic_a = attrs.get("cubic_coeff_a", -0.75)
        self.outside = attrs.get("extrapolation_value", 0.0)
        self.axes, self.policy = attrs.get("axes"), text(attrs, "keep_aspect_ratio_policy", "stretch")

    def coefficients(self):
        """The function that gives offsets and factors; see Axis.weights."""
        return {
            "nearest": lambda: _nearest(self.nearest),
            "linear": lambda: _linear(self.antialias),
            "cubic": lambda: _cubic(self.cubic_a, self.antialias),
        }[self.mode]()


def _axes(data, how, scales, sizes, roi):
    """How each axis of the tensor is resized: an Axis, an OpenAxis where that is known only when the network runs, or
    None for one of an open size that stays as it is.

    ``scales`` and ``sizes`` are arrays, expressions that the network computes, or None. Sizes leave the first two axes
    of an image as they are, where they are computed or these are open.
    """
    shape = sizes_of(data)
    rank = len(shape)
    by_size = _is_given(sizes)
    if not by_size and not _is_given(scales):
        raise ValueError("neither scales nor sizes are given")
    given = sizes if by_size else scales
    computed = isinstance(given, Expr)
    chosen = [from_front(axis, rank) for axis in (range(rank) if how.axes is None else how.axes)]
    starts, ends = [0.0] * len(chosen), [1.0] * len(chosen)
    if roi is not None and roi.size == 2 * len(chosen):
        starts, ends = roi[: len(chosen)], roi[len(chosen) :]
    kept = None
    if by_size and how.policy != "stretch":
        if computed or None in [shape[axis] for axis in chosen]:
            raise ValueError(
                "keep_aspect_ratio_policy is supported only for sizes that are known when the network is read"
            )
        ratios = [int(size) / shape[axis] for size, axis in zip(given, chosen, strict=True)]
        kept = min(ratios) if how.policy == "not_larger" else max(ratios)
    axes = [None if size is None else Axis(size, size, 1.0) for size in shape]
    for i, axis in enumerate(chosen):
        size = shape[axis]
        if axis < 2 <= rank - 2 and (computed or (by_size and size is None)):
            continue
        if computed or size is None:
            value = _op.strided_slice(given, [i], [i + 1]) if computed else given[i]
            if computed or by_size or value != 1.0:
                length = sizes_at(data, axis, axis + 1, "int64") if size is None else size
                axes[axis] = OpenAxis(length, **{"out" if by_size else "scale": value})
        elif not by_size:
            axes[axis] = Axis(size, int(given[i] * size), given[i], starts[i], ends[i])
        elif kept is None:
            axes[axis] = Axis(size, int(given[i]), int(given[i]) / size, starts[i], ends[i])
        else:
            axes[axis] = Axis(size, int(kept * size + 0.5), kept, starts[i], ends[i])
    return axes


def _is_given(value):
    """Whether scales, or sizes, are there: an array without elements is none."""
    return value is not None and (isinstance(value, Expr) or value.size > 0)


def _as_image(data, axes, how):
    """TVM's own operator, which engines know; None where it does something else."""
    if len(axes) != 4 or any(axis is not None and not axis.whole for axis in axes[:2]):
        return None
    known = {
        "nearest": {("asymmetric", "floor"): "floor"},
        "linear": dict.fromkeys(
            [("half_pixel", how.nearest), ("align_corners", how.nearest), ("asymmetric", how.nearest)], ""
        ),
    }.get(how.mode, {})
    if (how.coordinates, how.nearest) not in known or not all(isinstance(axis, Axis) for axis in axes[2:]):
        return None
    if any(axis.scale * axis.size != axis.out for axis in axes[2:]):
        return None
    return _op.image.resize2d(
        data,
        (axes[2].out, axes[3].out),
        None,
        "NCHW",
        "nearest_neighbor" if how.mode == "nearest" else "linear",
        how.coordinates,
        known[how.coordinates, how.nearest],
    )


def _repeated(data, how, scales):
    """An image of open sides in which each element is repeated, which engines know; None where it is not that."""
    by = [] if scales is None or isinstance(scales, Expr) else [float(scale) for scale in scales]
    centred = how.coordinates in ("half_pixel", "pytorch_half_pixel") and how.nearest.startswith("round")
    if len(by) != 4 or by[:2] != [1, 1] or how.mode != "nearest":
        return None
    if not centred and (how.coordinates, how.nearest) != ("asymmetric", "floor"):
        return None
    if any(scale != int(scale) or scale < 1 for scale in by):
        return None
    return _op.nn.upsampling(data, int(by[2]), int(by[3]), "NCHW", "nearest_neighbor")


def _along(data, axis, matrix):
    """The tensor with an axis multiplied by a matrix (out, size)."""
    rank = rank_of(data)
    order = [a for a in range(rank) if a != axis] + [axis]
    moved = _op.transpose(data, order)
    product = _op.nn.dense(_op.reshape(moved, (-1, matrix.shape[1])), const(matrix.astype(dtype_of(data))))
    return _op.transpose(rows_as_in(product, moved, matrix.shape[0]), list(np.argsort(order)))


def _resized(data, how, scales, sizes=None, roi=None):
    kind, axes = dtype_of(data), _axes(data, how, scales, sizes, roi)
    if all(axis is None or axis.whole for axis in axes):
        return data
    if not how.antialias and not how.exclude_outside:
        image = _as_image(data, axes, how)
        if image is None and None in sizes_of(data)[2:]:
            image = _repeated(data, how, scales if how.axes is None else None)
        if image is not None:
            return image
    result = data if kind.startswith("float") or how.mode == "nearest" else _op.cast(data, "float32")
    beyond = []
    for number, axis in enumerate(axes):
        if axis is None or axis.whole:
            continue
        if isinstance(axis, OpenAxis):
            result = axis.resized(result, number, how)
            continue
        positions = axis.positions(how.coordinates)
        matrix = axis.weights(positions, how.coefficients(), how.exclude_outside)
        if how.mode == "nearest":
            result = _op.take(result, const(matrix.argmax(axis=1).astype("int32")), axis=number, mode="clip")
        else:
            result = _along(result, number, matrix)
        if how.coordinates == "tf_crop_and_resize":
            outside = (positions < 0) | (positions > axis.size - 1)
            beyond.append(outside.reshape([-1 if a == number else 1 for a in range(len(axes))]))
    for outside in beyond:
        if outside.any():
            result = _op.where(const(outside), const(how.outside, dtype_of(result)), result)
    return result if dtype_of(result) == kind else _op.cast(result, kind)


def _known(value):
    """The numbers of an input where they are known, the expression where the network computes them; None stays."""
    try:
        return static(value, "it")
    except ValueError:
        return value


@converter("Resize", since=11)
def _resize(inputs, attrs, params):
    how, roi = How(attrs), None
    if how.coordinates == "tf_crop_and_resize":
        roi = static(given(inputs, 1), "the region of interest of Resize")
    return _resized(inputs[0], how, _known(given(inputs, 2)), _known(given(inputs, 3)), roi)


@converter("Resize", since=10)
@converter("Upsample", since=9)
def _upsample(inputs, attrs, params):
    """Both take positions as `asymmetric` does, and the element below."""
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", **attrs}
    return _resized(inputs[0], How(modes), _known(given(inputs, 1)))
