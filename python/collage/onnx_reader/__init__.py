# SPDX-License-Identifier: Apache-2.0
"""What stands between an ONNX file and TVM's importer.

``form`` brings a model into a form that the importer can read; ``table`` puts converters of our own beside the
importer's, by operator and opset, where it has none or a wrong one; ``weights`` keeps the large ones out of all that.
The others have these converters.
"""

from . import (
    control_flow,
    einsum,
    elementwise,
    form,
    images,
    normalisations,
    orders,
    pooling,
    quantised,
    recurrent,
    reductions,
    resize,
    sampling,
    sequences,
    signals,
    slices,
    table,
    tensors,
    weights,
)

__all__ = [
    "control_flow",
    "einsum",
    "elementwise",
    "form",
    "images",
    "narrow",
    "normalisations",
    "orders",
    "pooling",
    "quantised",
    "recurrent",
    "reductions",
    "resize",
    "sampling",
    "sequences",
    "signals",
    "slices",
    "table",
    "tensors",
    "weights",
]
