# SPDX-License-Identifier: Apache-2.0
"""The form in which an ONNX model is given to TVM's importer.

In: a ModelProto as it was loaded. Out: one that computes the same, without functions: those that the model brings with
it, and operators that TVM's importer has no converter for, or none that is right, and that the ONNX standard defines by
other operators. Large weights are no part of it (weights).
"""

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, TensorProto, TypeProto, inliner

from .. import errors, onnx_inputs
from . import weights

# Operators that are expanded though TVM's importer converts them: what it makes of them is wrong or incomplete.
# TVM's Attention is that of com.microsoft; its losses look up the class that is to be ignored, though it may be none,
# and want a target that is an input.
_EXPANDED = frozenset(
    {"Attention", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
)

# What is expanded may hold what must be expanded; the standard's functions are not nested deeper.
_DEPTH = 6


def formed(proto, converted, folder=None):
    """The model in that form, and its large weights, {name: array}, which are inputs of it. ``converted`` are the names
    of the operators that can be converted, ``folder`` is where the files are in which weights were left. The model that
    was given is used up.
    """
    proto, large = weights.taken(proto, folder)
    if proto.functions:
        proto = inliner.inline_local_functions(proto, convert_version=True)
    for _ in range(_DEPTH):
        expander = _Expander(proto, converted)
        if not expander.expand(proto.graph):
            break
        proto = expander.expanded()
    _plain_constants(proto.graph)
    _plain_optionals(proto.graph)
    _complete_loops(proto.graph)
    return proto, large


def require_opset(proto):
    """Raise ValueError for a version of the standard operators that the onnx package here does not know yet."""
    newest = onnx.defs.onnx_opset_version()
    if (opset := opset_of(proto)) > newest:
        raise errors.ModelError(
            f"it uses opset {opset} of ONNX's operators; onnx {onnx.__version__} knows those to {newest}: export it "
            f"for opset {newest}"
        )


def require_types(graph):
    """Raise ValueError for what is not of tensors, and for elements that TVM cannot hold."""
    for what, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            tensors = onnx_inputs.tensor_type(value.type)
            if tensors is None:
                kind = (value.type.WhichOneof("value") or "untyped").replace("_type", "")
                raise errors.ModelError(f"its {what} {value.name} is no tensor but {kind}, which is not supported")
            _require_type(tensors.elem_type, f"its {what} {value.name}")
    for one in graph.initializer:
        _require_type(one.data_type, f"its weight {one.name}")
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                _require_type(attribute.i, f"what the operator Cast that makes {node.output[0]} gives")
            if attribute.type == AttributeProto.TENSOR:
                _require_type(attribute.t.data_type, f"an attribute of the operator {node.op_type}")


def _require_type(kind, what):
    if kind and kind not in weights.TYPES:
        raise errors.ModelError(
            f"{what} is of the type {TensorProto.DataType.Name(kind).lower()}, which TVM does not have"
        )


# Which inputs of quantised operators are scales.
_SCALES = {
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "QLinearConv": (1, 4, 6), "QLinearMatMul": (1, 4, 6),
    "QLinearAdd": (1, 4, 6), "QLinearMul": (1, 4, 6), "QGemm": (1, 4, 7), "QLinearSoftmax": (1, 3),
    "QLinearSigmoid": (1, 3), "QLinearLeakyRelu": (1, 3), "QLinearAveragePool": (1, 3),
    "QLinearGlobalAveragePool": (1, 3),
}  # fmt: skip


def require_scales(graph):
    """Raise ValueError for scales of quantised tensors that are 0 or no finite numbers: nothing can be told from what
    was divided by them.
    """
    weights = {one.name: one for one in graph.initializer}
    for node in graph.node:
        for place in _SCALES.get(node.op_type, ()):
            scale = weights.get(node.input[place]) if place < len(node.input) else None
            if scale is None or onnx.external_data_helper.uses_external_data(scale):
                continue
            values = onnx.numpy_helper.to_array(scale).astype("float64").ravel()
            wrong = np.flatnonzero(~np.isfinite(values) | (values == 0))
            if wrong.size:
                element = f", element {wrong[0]} of {values.size}," if values.size > 1 else ""
                raise errors.ModelError(
                    f"the operator {node.op_type} that makes {node.output[0]}: its scale {scale.name}{element} is "
                    f"{values[wrong[0]]:g}, by which nothing can be divided; quantise the model anew"
                )


def _plain_constants(graph):
    """Give the operators Constant their numbers as a tensor, whatever the attribute was."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _plain_constants(attribute.g)
        if node.op_type != "Constant" or not node.attribute or not node.attribute[0].name.startswith("value_"):
            continue
        attribute = node.attribute[0]
        value = onnx.helper.get_attribute_value(attribute)
        kind = "float32" if attribute.name.startswith("value_float") else "int64"
        tensor = onnx.numpy_helper.from_array(np.array(value, dtype=kind))
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("value", tensor))


def _plain_optionals(graph):
    """Leave out of what an Optional is that is not there: TVM's importer reads no attribute that is a type."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _plain_optionals(attribute.g)
        if node.op_type == "Optional":
            del node.attribute[:]


def _complete_loops(graph):
    """Give each Loop the number of rounds or the condition that it leaves out: TVM's importer fails without."""
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _complete_loops(attribute.g)
        if node.op_type == "Loop":
            for place, value in enumerate((np.array(np.iinfo("int64").max, "int64"), np.array(True))):
                if not node.input[place]:
                    node.input[place] = f"{node.output[0]}.loop{place}"
                    tensor = onnx.numpy_helper.from_array(value)
                    nodes.append(onnx.helper.make_node("Constant", [], [node.input[place]], value=tensor))
        nodes.append(node)
    if len(nodes) > len(graph.node):
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(kept)


def opset_of(proto):
    """The version of the standard operators that the model says it uses; 1 where it says nothing."""
    return next((one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), 1)


class _Expander:
    """Names, in a model, what the standard says of operators as functions of the model, which are then inlined."""

    def __init__(self, proto, converted):
        self.proto = proto
        self.converted = converted
        self.opset = opset_of(proto)
        self.functions = []
        self._types = None

    def expand(self, graph):
        """Replace nodes by calls of functions, in a graph and those inside; says whether there were any."""
        found = False
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    found |= self.expand(attribute.g)
            function = self._function(node)
            if function is not None:
                found = True
                function.name, function.domain = f"{node.op_type}_{len(self.functions)}", "collage.expanded"
                # A function's attributes have no defaults but what its schema says: the call has them.
                schema = onnx.defs.get_schema(node.op_type, self.opset, "")
                node.attribute.extend(one for one in _left_out(node, schema) if one.name in function.attribute)
                # Written for an earlier version, it holds for this one too; the inliner takes equal ones only.
                del function.opset_import[:]
                function.opset_import.add(domain="", version=self.opset)
                node.op_type, node.domain = function.name, function.domain
                self.functions.append(function)
        return found

    def expanded(self):
        """The model with the functions inlined."""
        self.proto.functions.extend(self.functions)
        self.proto.opset_import.add(domain="collage.expanded", version=1)
        whole = inliner.inline_local_functions(self.proto, convert_version=False)
        kept = [one for one in whole.opset_import if one.domain != "collage.expanded"]
        del whole.opset_import[:]
        whole.opset_import.extend(kept)
        return whole

    def _function(self, node):
        """What the standard says the operator is; None where it is converted, or the standard says nothing."""
        if node.domain not in ("", "ai.onnx") or (node.op_type in self.converted and node.op_type not in _EXPANDED):
            return None
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, "")
        except onnx.defs.SchemaError:
            return None
        versions = [v for v in schema.function_opset_versions if v <= self.opset]
        if versions:
            return FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= self.opset]
        if not versions:
            return None
        kinds = [self._type(name).SerializeToString() for name in node.input]
        body = schema.get_context_dependent_function_with_opset_version(max(versions), _defaulted(node, schema), kinds)
        return FunctionProto.FromString(body) if body else None

    def _type(self, name):
        if self._types is None:
            inferred = onnx.shape_inference.infer_shapes(self.proto, data_prop=True)
            self._types = {
                value.name: value.type
                for values in (inferred.graph.input, inferred.graph.value_info, inferred.graph.output)
                for value in values
            }
            for weight in inferred.graph.initializer:
                kind = TypeProto()
                kind.tensor_type.elem_type = weight.data_type
                for size in weight.dims:
                    kind.tensor_type.shape.dim.add(dim_value=size)
                self._types[weight.name] = kind
        return self._types.get(name, TypeProto())


def _left_out(node, schema):
    """The attributes that a node leaves out, as the operator's schema has them."""
    given = {one.name for one in node.attribute}
    return [one.default_value for one in schema.attributes.values() if one.name not in given and one.default_value.name]


def _defaulted(node, schema):
    """The node as bytes, with the attributes that it leaves out."""
    full = onnx.NodeProto()
    full.CopyFrom(node)
    full.attribute.extend(_left_out(node, schema))
    return full.SerializeToString()
