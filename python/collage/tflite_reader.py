# SPDX-License-Identifier: Apache-2.0
"""Read a TensorFlow Lite file with TVM's importer, and with converters for operators that it lacks.

In: a ``.tflite`` file of one subgraph, and shapes for what it leaves open. Out: an untyped module whose ``main`` takes
the inputs under the names of their tensors, and its weights. The ``tflite`` package, which is needed, is the schema of
the format alone. What cannot be read raises ImportError or ValueError with a text that names the file, the operator and
the reason.
"""

import functools
from collections import Counter

import tvm
from tvm import relay
from tvm.relay.frontend import tflite as importer
from tvm.relay.frontend.common import infer_shape

from . import errors, folding

IDENTIFIER = b"TFL3"
PACKAGE = "tflite==2.18.0"
# Types of inputs that TVM has tensors of; a text, a complex number or a reference to a variable is none.
_TYPES = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    6: "bool",
    7: "int16",
    9: "int8",
    10: "float64",
}


class RefusedError(errors.ModelError):
    """TVM's importer cannot read an operator; the text names it."""


def is_tflite(start):
    """Whether a file begins as TensorFlow Lite's do: with an offset and the format's identifier."""
    return start[4:8] == IDENTIFIER


def inputs(path, graph):
    """{name: (dimensions, None for an open one; those that the file stands in for it; type)} of a subgraph."""
    found = {}
    for number in graph.InputsAsNumpy():
        tensor = graph.Tensors(number)
        name = importer.get_tensor_name(graph, number)
        if tensor.Type() not in _TYPES:
            raise errors.ModelError(f"{path} cannot be read: its input {name} holds no numbers that TVM has tensors of")
        default = [int(dim) for dim in tensor.ShapeAsNumpy()] if tensor.ShapeLength() else []
        declared = [int(dim) for dim in tensor.ShapeSignatureAsNumpy()] if tensor.ShapeSignatureLength() else default
        found[name] = ([None if dim < 0 else dim for dim in declared], default, _TYPES[tensor.Type()])
    return found


def graph_of(path):
    """(the file's model as the tflite package has it, its one subgraph)."""
    try:
        import tflite
    except ImportError:
        raise errors.MissingPackageError(f"reading {path} needs the tflite package: pip install {PACKAGE}") from None
    content = path.read_bytes()
    if not is_tflite(content):
        raise errors.ModelError(
            f"{path} is not a TensorFlow Lite model: its bytes 4 to 8 are not {IDENTIFIER.decode()}"
        )
    try:
        model = tflite.Model.GetRootAsModel(content, 0)
        count = model.SubgraphsLength()
        graph = model.Subgraphs(0) if count else None
        operators = graph.OperatorsLength() if count else 0
    except Exception as error:
        raise errors.ModelError(f"{path} is not a TensorFlow Lite model: {type(error).__name__}: {error}") from None
    if not operators or graph.InputsLength() == 0:
        raise errors.ModelError(
            f"{path} is not a TensorFlow Lite model that can be read: it holds no graph with inputs"
        )
    if count != 1:
        raise errors.ModelError(
            f"{path} cannot be read: it has {count} subgraphs (branches or loops), which are not supported"
        )
    return model, graph


def module(path, model, shapes):
    """The untyped module of a model and its weights, {name: array}; ``shapes`` is {name: shape} of its inputs.

    Raises RefusedError where an operator cannot be read.
    """
    read, _ = _converted(path, model, shapes)
    return read[0], _used(*read)


def values_inside(path, model, shapes, names):
    """As module, with values inside the network as its results: of the tensors ``names``, those that TVM's importer
    makes. Gives the module, its weights and the names of its results.
    """
    (_, values), table = _converted(path, model, shapes)
    there = [name for name in names if table.has_expr(name)]
    results = relay.Tuple([table.get_expr(name) for name in there])
    inside = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(results), results))
    return inside, _used(inside, values), there


def _converted(path, model, shapes):
    """What TVM's importer gives, and its table of expressions."""
    unread = _lacking(model, model.Subgraphs(0))
    if unread:
        raise RefusedError(
            f"{path} uses operators that TVM's TensorFlow Lite importer lacks: {', '.join(unread)}", operator=unread[0]
        )
    tables = []

    def converter(model, graph, table):
        tables.append(table)
        return Converter(model, graph, table)

    with folding.here("tflite"):
        try:
            return relay.frontend.from_tflite(model, shape_dict=shapes, op_converter=converter), tables[0]
        except RefusedError as error:
            raise RefusedError(f"{path} cannot be read: {error}", **error.fields) from None
        except tvm.error.OpNotImplemented as error:
            said = " ".join(str(error).split()).rsplit("OpNotImplemented: ", 1)[-1]
            raise RefusedError(f"{path} cannot be read: {said}") from None


def _used(read, values):
    """The weights that a module takes: shapes and axes are attributes by now."""
    used = {var.name_hint for var in read["main"].params}
    return {name: value.numpy() for name, value in values.items() if name in used}


def made(model, graph):
    """What a subgraph's operators make, in its order: [(operator, tensor's name), ...], without what is called as
    something else is: by its name nobody could tell which of them is meant.
    """
    called = Counter(importer.get_tensor_name(graph, tensor) for tensor in range(graph.TensorsLength()))
    named = [
        (name, importer.get_tensor_name(graph, tensor))
        for number, name in enumerate(_operators(model, graph))
        for tensor in graph.Operators(number).OutputsAsNumpy()
    ]
    return [(name, tensor) for name, tensor in named if called[tensor] == 1]


def _operators(model, graph):
    """The names of all operators of a subgraph, in its order."""
    import tflite

    names = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
    found = []
    for number in range(graph.OperatorsLength()):
        code = model.OperatorCodes(graph.Operators(number).OpcodeIndex())
        which = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        if which == tflite.BuiltinOperator.CUSTOM:
            custom = code.CustomCode()
            found.append(f"{custom.decode() if custom else 'one without a name'} (not of TensorFlow Lite's own)")
        else:
            found.append(names.get(which, f"number {which}"))
    return found


def _lacking(model, graph):
    known = set(importer.OperatorConverter(model, graph, importer.ExprTable()).convert_map) | set(_OURS)
    known.add("TFLite_Detection_PostProcess (not of TensorFlow Lite's own)")
    return sorted(set(_operators(model, graph)) - known)


class Converter(importer.OperatorConverter):
    """TVM's converters and those of this file; an error names the operator that it is about."""

    def __init__(self, model, graph, table):
        super().__init__(model, graph, table)
        for name, function in _OURS.items():
            self.convert_map[name] = functools.partial(function, self)
        self.convert_map = {name: self._named(name, convert) for name, convert in self.convert_map.items()}

    def get_tensor_value(self, tensor_wrapper, is_sparse=False):
        """A constant's value: what DENSIFY made of sparse weights is one, too (for TVM's, of convolutions alone)."""
        if self.is_prefetched(tensor_wrapper.tensor_idx):
            return self.get_prefetched_node(tensor_wrapper.tensor_idx)
        return super().get_tensor_value(tensor_wrapper, is_sparse)

    def _named(self, name, convert):
        def converted(operator):
            try:
                return convert(operator)
            except Exception as error:
                made = importer.get_tensor_name(self.subgraph, operator.Outputs(0)) if operator.OutputsLength() else ""
                said = [line.strip() for line in str(error).splitlines() if line.strip()]
                reason = said[-1] if said else type(error).__name__
                raise RefusedError(
                    f"the operator {name} that makes {made}: {reason}", operator=name, span=made
                ) from None

        return converted


# Operators that TVM's importer lacks: functions of a Converter and an operator of the file.


def _given(converter, operator):
    """What an operator takes, as Relay's expressions."""
    return [converter.get_tensor_expr(tensor) for tensor in converter.get_input_tensors(operator)]


def _broadcast_to(converter, operator):
    data, shape = converter.get_input_tensors(operator)
    if not shape.buffer.DataLength():
        raise errors.ModelError("the shape to broadcast to is known only when it runs")
    dims = [int(dim) for dim in converter.get_tensor_value(shape)]
    return relay.broadcast_to(converter.get_tensor_expr(data), dims)


def _rank(converter, operator):
    return relay.const(len(infer_shape(*_given(converter, operator))), "int32")


def _relu_0_to_1(converter, operator):
    return relay.clip(*_given(converter, operator), 0.0, 1.0)


def _select(converter, operator):
    return relay.where(*_given(converter, operator))


def _sign(converter, operator):
    return relay.sign(*_given(converter, operator))


_OURS = {
    "BROADCAST_TO": _broadcast_to,
    "RANK": _rank,
    "RELU_0_TO_1": _relu_0_to_1,
    "SELECT_V2": _select,
    "SIGN": _sign,
}
