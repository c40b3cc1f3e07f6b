# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers whose tensors begin with the batch (layout 1): TVM's converters know the other layout only."""

from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import converter, outputs


def _in_any_layout(name):
    theirs = getattr(importer, name).get_converter(14)

    @converter(name, since=14)
    def convert(inputs, attrs, params):
        if not attrs.pop("layout", 0):
            return theirs(inputs, attrs, params)
        # The sequence and the states begin with the batch.
        swapped = {0: (1, 0, 2), 5: (1, 0, 2), 6: (1, 0, 2)}
        for i, order in swapped.items():
            if i < len(inputs) and inputs[i] is not None:
                inputs[i] = _op.transpose(inputs[i], order)
        count = outputs(attrs)
        results = theirs(inputs, attrs, params)
        results = [results[i] for i in range(count)] if isinstance(results, relay.TupleWrapper) else [results]
        orders = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
        moved = [_op.transpose(one, order) for one, order in zip(results, orders, strict=False)]
        return moved[0] if len(moved) == 1 else relay.TupleWrapper(relay.Tuple(moved), len(moved))


for each in ("RNN", "GRU", "LSTM"):
    _in_any_layout(each)
