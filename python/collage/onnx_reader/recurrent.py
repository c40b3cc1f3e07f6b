# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers as TVM's converters do not know them: tensors that begin with the batch (layout 1), and one
direction that is the backward one. What those converters would leave out without a word is refused.
"""

from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import converter, given, outputs, static, text, type_of


def _written_out(name):
    """The converter of a recurrent layer: TVM's, which writes it out step by step, with what it lacks around it.

    byoc/recurrent (Go) knows these steps again, for engines that have the layer as one operator.
    """
    theirs = getattr(importer, name).get_converter(14)

    @converter(name, since=7)
    def convert(inputs, attrs, params):
        by_batch = bool(attrs.pop("layout", 0))
        if by_batch:  # The sequence and the states begin with the batch.
            for i in (0, 5, 6):
                if given(inputs, i) is not None:
                    inputs[i] = _op.transpose(inputs[i], (1, 0, 2))
        reverse = text(attrs, "direction", "forward") == "reverse"
        _refuse_what_is_left_out(name, inputs, attrs, reverse)
        if reverse:
            inputs[0] = _op.reverse(inputs[0], 0)
        # The fields themselves: a projection of the tuple for each would have all of the layer written out for each.
        results = list(theirs(inputs, attrs, params).astuple().fields)[: outputs(attrs)]
        if reverse:
            results[0] = _op.reverse(results[0], 0)
        if by_batch:
            orders = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
            results = [_op.transpose(one, order) for one, order in zip(results, orders, strict=False)]
        return results[0] if len(results) == 1 else relay.TupleWrapper(relay.Tuple(results), len(results))


def _refuse_what_is_left_out(name, inputs, attrs, reverse):
    """Raise ValueError where TVM's converter would read something else than what is written."""
    if attrs.get("clip"):
        raise ValueError(f"it clips at {attrs['clip']:g} what goes into its activations, which is not supported")
    if attrs.get("input_forget"):
        raise ValueError("it has one gate for input and forgetting (input_forget), which is not supported")
    if given(inputs, 4) is None:
        return
    steps = int(type_of(inputs[0]).shape[0])
    if name == "GRU" and not reverse:  # the one converter that knows lengths
        return
    lengths = static(inputs[4], "how long its sequences are (sequence_lens)")
    if (lengths != steps).any():
        raise ValueError(
            f"its sequences end after {', '.join(str(n) for n in lengths.flatten())} of {steps} steps (sequence_lens), "
            "which is not supported"
        )
    inputs[4] = None


for each in ("RNN", "GRU", "LSTM"):
    _written_out(each)
