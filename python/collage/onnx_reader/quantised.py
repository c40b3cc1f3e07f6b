# SPDX-License-Identifier: Apache-2.0
"""Products of quantised matrices, computed in whole numbers as ONNX defines them."""

import numpy as np
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .elementwise import cast
from .table import converter, dtype_of, shape_of


def _along_rows(value, rank, column):
    """A scale or a zero point beside a matrix of ``rank`` axes: one number, or a list for its rows or columns."""
    size = int(np.prod(shape_of(value)))
    if size == 1:
        return _op.reshape(value, ())
    if len(shape_of(value)) > 1:
        return value
    return _op.reshape(value, [1] * (rank - 2) + ([1, size] if column else [size, 1]))


@converter("QLinearMatMul", since=10)
def _product(inputs, attrs, params):
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    sides = []
    for side, zero, column in ((a, a_zero, False), (b, b_zero, True)):
        rank = len(shape_of(side))
        sides.append(_op.cast(side, "int32") - _along_rows(_op.cast(zero, "int32"), rank, column))
    total = importer.matmul_out_dtype(sides, "int32")
    rank = len(shape_of(total))
    scales = [_along_rows(cast(s, "float32"), rank, column) for s, column in ((a_scale, False), (b_scale, True))]
    factor = scales[0] * scales[1] / _along_rows(cast(y_scale, "float32"), rank, False)
    rounded = importer.Round.get_converter(11)([_op.cast(total, "float32") * factor], {}, params)
    kind = np.iinfo(dtype_of(y_zero))
    shifted = rounded + _along_rows(_op.cast(y_zero, "float32"), rank, False)
    return _op.cast(_op.clip(shifted, kind.min, kind.max), kind.dtype.name)
