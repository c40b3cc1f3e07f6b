# SPDX-License-Identifier: Apache-2.0
"""Weights of types that TVM has no tensors of (int4, uint4, bfloat16), made weights of wider ones.

That changes nothing where such a weight is only moved, cast to another type, or dequantised. What computes in such a
type rounds to it, and is refused.
"""

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

# Those of four bits came with onnx 1.16.
_WIDE = {
    getattr(TensorProto, narrow): wide
    for narrow, wide in {"INT4": TensorProto.INT8, "UINT4": TensorProto.UINT8, "BFLOAT16": TensorProto.FLOAT}.items()
    if hasattr(TensorProto, narrow)
}

# Operators whose results are elements of their inputs; of all but Concat, of the first.
_MOVING = frozenset(
    {
        "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Split",
        "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip


def widen(proto):
    """Widen the weights of a model in place. Raises ValueError for one that an operator computes with as it is."""
    graphs = list(_graphs(proto.graph))
    weights = {one.name: one for graph in graphs for one in graph.initializer}
    # {name of a value that is to be wider: its type}
    narrow = {name: one.data_type for name, one in weights.items() if one.data_type in _WIDE}
    casts = []
    for graph in graphs:
        for node in graph.node:
            if (kind := _made(node, narrow, weights)) is not None:
                narrow.update(dict.fromkeys(node.output, kind))
                casts.extend([node] if node.op_type == "Cast" else [])
    if not narrow:
        return
    for graph in graphs:
        for node in graph.node:
            for place, name in enumerate(node.input):
                if name in narrow and not _serves(node, place, narrow[name]):
                    raise ValueError(
                        f"its weight {name} is of the type {_called(narrow[name])}, and the operator {node.op_type} "
                        f"that makes {node.output[0]} computes in it, which TVM cannot"
                    )
        for value in graph.output:
            if value.name in narrow:
                raise ValueError(
                    f"its output {value.name} is of the type {_called(narrow[value.name])}, which TVM does not have"
                )
    for graph in graphs:
        for one in graph.initializer:
            _widen_tensor(one)
        for node in graph.node:
            for attribute in node.attribute if node.op_type == "Constant" else ():
                if attribute.type == AttributeProto.TENSOR:
                    _widen_tensor(attribute.t)
        for value in (*graph.value_info, *graph.input):
            if value.name in narrow:
                value.type.tensor_type.elem_type = _WIDE[narrow[value.name]]
    for node in casts:
        next(one for one in node.attribute if one.name == "to").i = _WIDE[narrow[node.output[0]]]


def _graphs(graph):
    """A graph and those inside of it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _made(node, narrow, weights):
    """The narrow type of what a node makes; None where it makes no such weight."""
    if node.domain not in ("", "ai.onnx"):
        return None
    attributes = {one.name: one for one in node.attribute}
    if node.op_type == "Constant" and "value" in attributes:
        kind = attributes["value"].t.data_type
        return kind if kind in _WIDE else None
    if node.op_type == "Cast" and attributes["to"].i in _WIDE:
        kind, source = attributes["to"].i, node.input[0]
        return kind if narrow.get(source) == kind or _holds(kind, weights.get(source)) else None
    return narrow.get(node.input[0]) if node.op_type in _MOVING and node.input else None


def _holds(kind, weight):
    """Whether a narrow type holds all numbers of a weight as they are."""
    if weight is None:
        return False
    values = _values(weight).astype("float64")
    if kind == TensorProto.BFLOAT16:
        single = values.astype("float32")
        return bool((single == values).all() and not (single.view("uint32") & 0xFFFF).any())
    low, high = (-8, 7) if _called(kind) == "int4" else (0, 15)
    return bool(((values >= low) & (values <= high) & (values == np.rint(values))).all())


def _serves(node, place, kind):
    """Whether a node does the same with a weight that is wider."""
    if node.op_type == "Cast":
        return True
    if node.op_type == "DequantizeLinear":
        return place != 1 and kind != TensorProto.BFLOAT16
    return node.op_type in _MOVING and (place == 0 or node.op_type == "Concat")


def _called(kind):
    return TensorProto.DataType.Name(kind).lower()


def _widen_tensor(tensor):
    if tensor.data_type not in _WIDE:
        return
    wide = _values(tensor).astype(helper.tensor_dtype_to_np_dtype(_WIDE[tensor.data_type]))
    tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def _values(tensor):
    """A tensor's numbers. onnx gives those of bfloat16 as float32, or (1.17 on) their bits as whole numbers."""
    values = numpy_helper.to_array(tensor)
    if tensor.data_type == TensorProto.BFLOAT16 and values.dtype != np.float32:
        return (values.astype("uint32") << 16).view("float32")  # the upper halves of floats
    return values
