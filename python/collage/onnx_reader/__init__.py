# SPDX-License-Identifier: Apache-2.0
"""What stands between an ONNX file and TVM's importer.

``form`` brings a model into a form that the importer can read; ``table`` puts converters of our own beside the
importer's, by operator and opset, where it has none or a wrong one. The others have these converters.
"""

from . import (
    elementwise,
    form,
    images,
    normalisations,
    pooling,
    quantised,
    recurrent,
    reductions,
    resize,
    table,
    tensors,
)

__all__ = [
    "elementwise",
    "form",
    "images",
    "normalisations",
    "pooling",
    "quantised",
    "recurrent",
    "reductions",
    "resize",
    "table",
    "tensors",
]
