# SPDX-License-Identifier: Apache-2.0
"""Operators on signals: Fourier transforms, and what goes with them."""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import const, converter, dtype_of, from_front, given, known_sizes, rank_of, shape_of, sizes_of, static


@converter("DFT", since=20)
def _fourier(inputs, attrs, params):
    """The axis is an input since opset 20, and counts from the end."""
    rank = rank_of(inputs[0])
    axis = static(given(inputs, 2), "the axis of DFT")
    axis = -2 if axis is None else int(axis.reshape(()))
    attrs["axis"] = from_front(axis, rank)
    return importer.DFT.get_converter(17)([inputs[0], given(inputs, 1)], attrs, params)


@converter("STFT", since=17)
def _short_time_fourier(inputs, attrs, params):
    """Frames by a matrix of cosines and one of sines, which engines take as products."""
    signal, window = inputs[0], given(inputs, 2)
    batch, length, parts = (*sizes_of(signal)[:1], *known_sizes(signal, 1), 1)[:3]
    batch = -1 if batch is None else batch
    step = int(static(inputs[1], "the step of STFT").reshape(()))
    size = static(given(inputs, 3), "the length of a frame of STFT")
    if size is None and window is None:
        raise ValueError("it says neither how long a frame is nor what its window is")
    size = shape_of(window)[0] if size is None else int(size.reshape(()))
    if parts == 2 and attrs.get("onesided", 1):
        raise ValueError("it is onesided, which ONNX has for real signals only, and its signal is complex")
    frames, kind = (length - size) // step + 1, dtype_of(signal)
    places = np.arange(frames)[:, None] * step + np.arange(size)[None]
    bins = size // 2 + 1 if attrs.get("onesided", 1) else size
    # Turns are counted modulo one before the cosine: angles of thousands lose their last digits.
    turns = 2 * np.pi * (np.arange(size)[:, None] * np.arange(bins)[None] % size) / size
    real, imaginary = const(np.cos(turns), kind), const(-np.sin(turns), kind)

    def transformed(part, matrix):
        cut = _op.take(part, const(places, "int64"), axis=1)
        cut = cut if window is None else cut * window
        product = _op.nn.matmul(_op.reshape(cut, (-1, size)), matrix)
        return _op.reshape(product, (batch, frames, bins))

    sides = [
        _op.reshape(one, (batch, length)) for one in _op.split(_op.reshape(signal, (batch, length, parts)), parts, 2)
    ]
    outcome = [transformed(sides[0], matrix) for matrix in (real, imaginary)]
    if parts == 2:
        other = [transformed(sides[1], matrix) for matrix in (real, imaginary)]
        outcome = [outcome[0] - other[1], outcome[1] + other[0]]
    return _op.stack(outcome, 3)


@converter("MelWeightMatrix", since=17)
def _mel_weights(inputs, attrs, params):
    """A constant, by onnx's reference implementation."""
    what = ("bins", "transform's length", "sample rate", "lower edge", "upper edge")
    values = [static(one, f"the {name} of MelWeightMatrix") for one, name in zip(inputs, what, strict=True)]
    names = list("abcde")
    node = onnx.helper.make_node(
        "MelWeightMatrix", names, ["y"], output_datatype=attrs.get("output_datatype", onnx.TensorProto.FLOAT)
    )
    (matrix,) = ReferenceEvaluator(node).run(None, dict(zip(names, values, strict=True)))
    return const(matrix, matrix.dtype.name)
