# SPDX-License-Identifier: Apache-2.0
"""Resize along an axis of which a size, or by how much it grows, is known only when the network runs.

Where each element of the result stands in the input is computed then, in float32 as ONNX Runtime does; what lies
around it is looked up and weighed. Nothing but operators whose sizes collage follows is written, so that what comes
behind is placed by the same names of sizes as what comes before (relay/symbolic).
"""

import numpy as np
from tvm.relay import op as _op

from .table import const, counted, dtype_of, rank_of


def number(value, kind="int64"):
    """A number of a type as an expression of the shape (1,): of a Python number, or of an expression of that shape."""
    if isinstance(value, (int, float, np.number)):
        return const([value], kind)
    return value if dtype_of(value) == kind else _op.cast(value, kind)


class OpenAxis:
    """How one axis is resized: from ``size`` elements to ``out``, ``scale`` times as many; each is a number or an
    expression of the shape (1,), and one of ``out`` and ``scale`` may be None. (TVM cannot run all that it makes of
    numbers without an axis.)
    """

    whole = False

    def __init__(self, size, out=None, scale=None):
        self._size = number(size, "float32")
        self._scale = _op.divide(number(out, "float32"), self._size) if scale is None else number(scale, "float32")
        self.out = number(_grown(size, scale) if out is None else out)
        # How many elements there are of it before that is rounded: what places are told by where ends meet.
        self._exact = number(out, "float32") if scale is None else _op.multiply(self._scale, self._size)

    def _positions(self, mode):
        """Where each element of the result stands in the input (ONNX, Resize: coordinate_transformation_mode)."""
        one, half = const(1.0, "float32"), const(0.5, "float32")
        x = _op.cast(counted(self.out), "float32")
        single = _op.equal(self._exact, one)
        if mode == "align_corners":
            return _op.divide(x * (self._size - one), _op.where(single, one, self._exact - one))
        if mode == "asymmetric":
            return _op.divide(x, self._scale)
        centred = _op.divide(x + half, self._scale) - half
        if mode == "half_pixel":
            return centred
        if mode == "pytorch_half_pixel":
            return _op.where(single, _op.negative(half), centred)
        if mode == "half_pixel_symmetric":
            share = _op.divide(number(self.out, "float32"), self._exact)
            return self._size * half * (one - share) + centred
        raise ValueError(f"{mode} is supported only for sizes that are known when the network is read")

    def resized(self, data, axis, how):
        """The tensor with this axis resized, as ``how`` (a How of resize.py) says."""
        if how.antialias or how.exclude_outside:
            which = "antialias" if how.antialias else "exclude_outside"
            raise ValueError(f"{which} is supported only for sizes that are known when the network is read")
        positions = self._positions(how.coordinates)
        if how.mode == "nearest":
            return _at(data, axis, _nearest(positions, how.nearest))
        below = _op.floor(positions)
        ratio = positions - below
        total = None
        for offset, weight in _taps(ratio, how):
            weight = _op.expand_dims(_op.cast(weight, dtype_of(data)), 1, rank_of(data) - 1 - axis)
            part = _at(data, axis, below + const(offset, "float32")) * weight
            total = part if total is None else total + part
        return total


def _grown(size, scale):
    """How many elements an axis has that is ``scale`` times as long, rounded down: by whole numbers where it may be."""
    known = float(scale) if isinstance(scale, (int, float, np.number)) else None
    if known and known == int(known):
        return number(size) * number(int(known))
    if known and known < 1 and np.float32(1 / round(1 / known)) == np.float32(known):
        return _op.floor_divide(number(size), number(round(1 / known)))
    return _op.floor(number(size, "float32") * number(scale, "float32"))


def _at(data, axis, places):
    """What stands at places along an axis, in the shape of the places; the first or last for what is beyond."""
    return _op.take(data, _op.cast(places, "int32"), axis=axis, mode="clip")


def _nearest(positions, mode):
    half = const(0.5, "float32")
    return {
        "round_prefer_floor": lambda: _op.ceil(positions - half),
        "round_prefer_ceil": lambda: _op.floor(positions + half),
        "floor": lambda: _op.floor(positions),
        "ceil": lambda: _op.ceil(positions),
    }[mode]()


def _taps(ratio, how):
    """(offset from the element below, its weight) of what is summed up, for how far from that element a place is."""
    one = const(1.0, "float32")
    if how.mode == "linear":
        return [(0, one - ratio), (1, ratio)]
    a = const(how.cubic_a, "float32")

    def near(x):
        return ((a + const(2.0, "float32")) * x - (a + const(3.0, "float32"))) * x * x + one

    def far(x):
        return ((a * x - a * const(5.0, "float32")) * x + a * const(8.0, "float32")) * x - a * const(4.0, "float32")

    rest = one - ratio
    return [(-1, far(ratio + one)), (0, near(ratio)), (1, near(rest)), (2, far(rest + one))]
