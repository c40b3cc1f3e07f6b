# SPDX-License-Identifier: Apache-2.0
"""Inputs and results of an ONNX model that are no tensors, as tensors.

A sequence x is as many inputs x.0, x.1, ... as it has tensors; an optional x that is there is one input x.0. How many
there are the model does not say: a shape of one number for x does, the length of a sequence, 1 or 0 for an optional.
Both may hold one another: x.0.0 is the first tensor of a sequence that is optional. Results that are sequences are as
many results as they have tensors, an optional one is one or none. TVM is not imported.
"""

import re

from . import errors


def tensor_type(kind):
    """The type of the tensors that a TypeProto is of; None where there is none (maps, sparse tensors)."""
    while kind.HasField("sequence_type") or kind.HasField("optional_type"):
        kind = (kind.sequence_type if kind.HasField("sequence_type") else kind.optional_type).elem_type
    return kind.tensor_type if kind.HasField("tensor_type") else None


def is_composite(value):
    """Whether a declared value is a sequence or an optional."""
    return value.type.WhichOneof("value") in ("sequence_type", "optional_type")


def as_tensors(graph, shapes, values):
    """Put tensors in the place of a graph's inputs that are none, and operators that make those of them. Gives what is
    left of ``shapes``, {name: shape}: the shapes of tensors. ``values``, {name: array}, say of which shape they are,
    too. Raises ValueError where nobody says of which shape a tensor is, or how many there are.
    """
    import onnx

    if not any(map(is_composite, graph.input)):
        return shapes
    left, inputs, nodes = dict(shapes), [], []

    def tensors_of(name, kind):
        if kind.HasField("tensor_type"):
            value = onnx.ValueInfoProto(name=name, type=kind)
            if not kind.tensor_type.HasField("shape"):
                sizes = values[name].shape if name in values else left.get(name)
                if sizes is None:
                    raise errors.ModelError(
                        f"it does not say of which shape the tensor {name} is: give that with input_shapes (on the "
                        f"command line --input-shape {name}:1,...)"
                    )
                kind = onnx.helper.make_tensor_type_proto(kind.tensor_type.elem_type, sizes)
                value.type.CopyFrom(kind)
            inputs.append(value)
            return
        optional = kind.HasField("optional_type")
        inner = (kind.optional_type if optional else kind.sequence_type).elem_type
        count = _count(name, left, values, optional)
        parts = [f"{name}.{i}" for i in range(count)]
        for part in parts:
            tensors_of(part, inner)
        if optional:
            nodes.append(onnx.helper.make_node("Optional", parts, [name]))
        elif parts:
            nodes.append(onnx.helper.make_node("SequenceConstruct", parts, [name]))
        else:
            nodes.append(onnx.helper.make_node("SequenceEmpty", [], [name], dtype=inner.tensor_type.elem_type))

    for value in graph.input:
        tensors_of(value.name, value.type)
    kept = list(map(_copied, graph.node))
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes + kept)
    return left


def _copied(node):
    return type(node).FromString(node.SerializeToString())


def _count(name, left, values, optional):
    """How many tensors an input is, which is taken out of ``left``."""
    if (count := left.pop(name, None)) is None:
        told = [int(one[1]) for key in (*left, *values) if (one := re.match(re.escape(name) + r"\.(\d+)(\.|$)", key))]
        if not told:
            kind, how = ("an optional", "whether it is there") if optional else ("a sequence", "of how many tensors")
            raise errors.ModelError(
                f"its input {name} is {kind}: say {how} with input_shapes (on the command line --input-shape {name}:1)"
            )
        count = [max(told) + 1]
    if len(count) != 1 or not 0 <= count[0] <= (1 if optional else count[0]):
        wanted = "1 where it is there, 0 where not" if optional else "one number, how many tensors it has"
        kind = "optional" if optional else "a sequence"
        shown = ",".join(map(str, count))
        raise errors.ModelError(f"its input {name} is {kind}: --input-shape {name}:{shown} does not fit ({wanted})")
    return int(count[0])


def gathered(name, kind, arrays):
    """The value of an input of those of its tensors, {name: array}."""
    if kind.HasField("tensor_type"):
        return arrays[name]
    there = [key for key in arrays if key.startswith(f"{name}.")]
    if kind.HasField("optional_type"):
        return gathered(f"{name}.0", kind.optional_type.elem_type, arrays) if there else None
    count = 1 + max((int(key[len(name) + 1 :].split(".")[0]) for key in there), default=-1)
    return [gathered(f"{name}.{i}", kind.sequence_type.elem_type, arrays) for i in range(count)]


def flat(values):
    """The tensors of results, one by one; what is not there is left out."""
    return [
        one
        for value in values
        if value is not None
        for one in (flat(value) if isinstance(value, (list, tuple)) else [value])
    ]
