# SPDX-License-Identifier: Apache-2.0
"""What is of types that TVM has no tensors of (int4, uint4, bfloat16), made of wider ones.

That changes nothing where a weight of such a type is only moved, cast to another type, or dequantised. What computes in
one of four bits rounds to it, and is refused. What computes in bfloat16 computes in float32 instead: the same, without
the roundings to eight bits in between; inputs and outputs of bfloat16, which numpy has not, are float32.
"""

import numpy as np
from onnx import AttributeProto, FunctionProto, TensorProto, helper, numpy_helper

# They came with onnx 1.16.
_WIDE = {
    getattr(TensorProto, narrow): wide
    for narrow, wide in {"INT4": TensorProto.INT8, "UINT4": TensorProto.UINT8}.items()
    if hasattr(TensorProto, narrow)
}

_FLOATS = {TensorProto.BFLOAT16: TensorProto.FLOAT}

# Attributes that name a type of elements by its number.
_NAMING_TYPES = frozenset({"dtype", "output_datatype", "output_dtype", "softmax_precision", "stash_type", "to"})

# Operators whose results are elements of their inputs; of all but Concat, of the first.
_MOVING = frozenset(
    {
        "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Split",
        "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip


def widen(proto):
    """Widen in place what is narrow in a model, and say whether it computes in bfloat16, which it does no more. Raises
    ValueError for a weight of four bits that an operator computes with as it is.
    """
    computes = _computes_in_bfloat16(proto)
    _without_bfloat16(proto)
    _widen_weights(proto)
    return computes


def has_bfloat16(proto):
    """Whether anything of a model is of bfloat16."""
    return (
        any(one.data_type == TensorProto.BFLOAT16 for one in _initializers(proto))
        or any(elements.elem_type == TensorProto.BFLOAT16 for elements in _declared(proto))
        or any(
            one.t.data_type == TensorProto.BFLOAT16 or (one.name in _NAMING_TYPES and one.i == TensorProto.BFLOAT16)
            for node in _nodes(proto)
            for one in node.attribute
        )
    )


def _parts(proto):
    """The graphs of a model, those inside of branches and loops, too, and its functions."""
    for whole in (proto.graph, *proto.functions):
        yield from _graphs(whole)


def _nodes(proto):
    return (node for part in _parts(proto) for node in part.node)


def _initializers(proto):
    return (one for part in _parts(proto) for one in getattr(part, "initializer", ()))


def _declared(proto):
    """What says of which elements values are, as far as it is said."""
    for part in _parts(proto):
        ends = () if isinstance(part, FunctionProto) else (*part.input, *part.output)  # a function's are names
        yield from (_elements(value.type) for value in (*ends, *part.value_info))


def _elements(kind):
    """What says of which elements a value is, of a sequence or of what may be missing, too."""
    while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    return kind.tensor_type


def _computes_in_bfloat16(proto):
    """Whether weights of bfloat16 are for more than to be moved and cast to another type, or anything else is of it."""
    weights = {one.name: one for one in _initializers(proto)}
    narrow = {name for name, one in weights.items() if one.data_type == TensorProto.BFLOAT16}
    ends = (_elements(value.type) for value in (*proto.graph.input, *proto.graph.output))
    if any(elements.elem_type == TensorProto.BFLOAT16 for elements in ends):
        return True
    for node in _nodes(proto):
        attributes = {one.name: one for one in node.attribute}
        reads = not narrow.isdisjoint(node.input)
        if node.op_type == "Constant" and "value" in attributes:
            if attributes["value"].t.data_type == TensorProto.BFLOAT16:
                narrow.update(node.output)
        elif node.op_type == "Cast" and attributes["to"].i == TensorProto.BFLOAT16:
            if not reads and not _is_bfloat16(weights.get(node.input[0])):
                return True
            narrow.update(node.output)
        elif reads and node.op_type in _MOVING:
            narrow.update(node.output)
        elif reads and node.op_type != "Cast":
            return True
    return False


def _is_bfloat16(weight):
    """Whether bfloat16 holds all numbers of a weight as they are."""
    if weight is None:
        return False
    values = numbers(weight)
    single = values.astype("float32")
    return bool((single == values).all() and not (single.view("uint32") & 0xFFFF).any())


def _without_bfloat16(proto):
    """Make float32 of all that is bfloat16."""
    for one in _initializers(proto):
        _widen_tensor(one, _FLOATS)
    for elements in _declared(proto):
        if elements.elem_type == TensorProto.BFLOAT16:
            elements.elem_type = TensorProto.FLOAT
    for node in _nodes(proto):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t, _FLOATS)
            elif attribute.name in _NAMING_TYPES and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT


def _widen_weights(proto):
    """Widen weights of four bits."""
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
                if name in narrow and not _serves(node, place):
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
            _widen_tensor(one, _WIDE)
        for node in graph.node:
            for attribute in node.attribute if node.op_type == "Constant" else ():
                if attribute.type == AttributeProto.TENSOR:
                    _widen_tensor(attribute.t, _WIDE)
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
    values = numbers(weight).astype("float64")
    low, high = (-8, 7) if _called(kind) == "int4" else (0, 15)
    return bool(((values >= low) & (values <= high) & (values == np.rint(values))).all())


def _serves(node, place):
    """Whether a node does the same with a weight that is wider."""
    if node.op_type == "Cast":
        return True
    if node.op_type == "DequantizeLinear":
        return place != 1
    return node.op_type in _MOVING and (place == 0 or node.op_type == "Concat")


def _called(kind):
    return TensorProto.DataType.Name(kind).lower()


def _widen_tensor(tensor, wider):
    """Make a tensor one of the type that ``wider`` has for its own; where that has none, it stays."""
    if tensor.data_type not in wider:
        return
    wide = numbers(tensor).astype(helper.tensor_dtype_to_np_dtype(wider[tensor.data_type]))
    tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def numbers(tensor):
    """A tensor's numbers. onnx gives those of bfloat16 as float32, (from 1.17 on) their bits as whole numbers, or (from
    1.19 on) in a type of another package's.
    """
    values = numpy_helper.to_array(tensor)
    if values.dtype.name == "bfloat16":
        return values.astype("float32")
    if tensor.data_type == TensorProto.BFLOAT16 and values.dtype != np.float32:
        return (values.astype("uint32") << 16).view("float32")  # the upper halves of floats
    return values
