# SPDX-License-Identifier: Apache-2.0
"""Converters of ONNX operators to Relay, of our own: for those that TVM 0.19's importer has none for, or a wrong one.

A converter is a function of the operator's inputs (None for one that is left out), its attributes and the
parameters, as TVM's importer calls its own, and gives an expression, or a TupleWrapper of several. ``known`` puts
them beside TVM's. What cannot be converted raises ValueError with the reason.
"""

import contextlib
import threading
from typing import ClassVar

import numpy as np
import tvm
from tvm import relay
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as importer

from .. import errors, onnx_inputs

# Ours: {name: [(since which opset, converter), ...]}, ascending.
_OURS = {}


def converter(*names, since=1):
    """Make a function the converter of operators from an opset on."""

    def register(function):
        for name in names:
            _OURS.setdefault(name, []).append((since, function))
            _OURS[name].sort(key=lambda one: one[0])
        return function

    return register


def known(theirs, opset):
    """TVM's table of converters for an opset with ours in it."""
    table = dict(theirs)
    for name, versions in _OURS.items():
        fitting = [function for since, function in versions if since <= opset]
        if fitting:
            table[name] = fitting[-1]
    return table


def static(value, what):
    """The numbers of an input that must be known when the model is read; None stays None."""
    if value is None:
        return None
    if not isinstance(value, relay.Constant):
        value = importer.fold_constant(value)
    if isinstance(value, relay.Constant):
        return value.data.numpy()
    raise ValueError(
        f"{what} is computed by the network, or an input of it: it must be known when the network is read (an input's "
        "value can be given with --input-value, in Python input_values)"
    )


def known_number(value):
    """A number that is known when the model is read, of an expression with one element; None where it is not."""
    if not isinstance(value, relay.Constant):
        value = importer.fold_constant(value)
    return value.data.numpy().reshape(()).item() if isinstance(value, relay.Constant) else None


def const(value, dtype=None):
    """A constant of the array's own type: relay.const makes int32 of int64 and float32 of float64."""
    return relay.Constant(tvm.nd.array(np.array(value, dtype, order="C")))


def given(inputs, index):
    """An input; None where it is left out."""
    return inputs[index] if len(inputs) > index else None


def type_of(value):
    """The type of an expression."""
    # While a model is read, collage.folding stands in the place of TVM's, which infers all that came before anew.
    return common.infer_type(value).checked_type


def text(attrs, name, default):
    """An attribute that is a text."""
    value = attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else value


def from_front(axis, rank):
    """An axis, or a place, that may be counted from the end, counted from the front."""
    return axis + rank if axis < 0 else axis


def sizes_at(value, first, last, kind):
    """The sizes of an expression's axes from ``first`` to before ``last``: numbers where they are known, else an
    expression of the type ``kind``.
    """
    sizes = sizes_of(value)[first:last]
    if None not in sizes:
        return sizes
    return relay.cast(relay.strided_slice(relay.shape_of(value, dtype="int64"), [first], [last]), kind)


def places_along(value, axis):
    """0, 1, 2, ... for the elements along an axis, int64: a constant where it is known how many there are."""
    sizes = sizes_at(value, axis, axis + 1, "int64")
    if not isinstance(sizes, relay.Expr):
        return const(np.arange(sizes[0]), "int64")
    return counted(sizes)


def counted(length):
    """0, 1, 2, ... to before a length that the network computes, of the shape (1,), int64."""
    return relay.arange(const(0, "int64"), relay.reshape(length, ()), const(1, "int64"), "int64")


def rows_as_in(matrix, like, columns):
    """The rows of a matrix of so many ``columns`` as the places of all axes but the last of ``like``."""
    others = sizes_of(like)[:-1]
    if others.count(None) < 2:
        return relay.reshape(matrix, [*(-1 if size is None else size for size in others), columns])
    sizes = relay.strided_slice(relay.shape_of(like, dtype="int64"), [0], [len(others)])
    rows = relay.reshape(matrix, relay.concatenate([sizes, const([columns], "int64")], axis=0))
    return relay.reshape(rows, [*(size or 0 for size in others), columns])  # what is known, which TVM has lost


def shaped_as(value, like):
    """The elements of an expression in the shape of another, in whose type all sizes are that are known."""
    sizes = sizes_of(like)
    if sizes.count(None) < 2:
        return relay.reshape(value, [-1 if size is None else size for size in sizes])
    return relay.reshape(relay.reshape(value, relay.shape_of(like, dtype="int64")), [size or 0 for size in sizes])


def indices_from_front(indices, sizes):
    """from_front for indices that the network computes; ``sizes`` is a number, or one for each of the last axis, as
    numbers or as an expression of their type.
    """
    kind = dtype_of(indices)
    size = sizes if isinstance(sizes, relay.Expr) else const(np.array(sizes, dtype=kind))
    return relay.where(relay.less(indices, const(0, kind)), indices + size, indices)


def shape_of(value):
    """The sizes of an expression, as numbers; one that is not known when the model is read raises ValueError."""
    return known_sizes(value, 0)


def known_sizes(value, first):
    """The sizes of an expression's axes from ``first`` on, as shape_of has them; those before need not be known."""
    sizes = sizes_of(value)[first:]
    if None in sizes:
        raise ValueError("the shape of an input is known only when the network runs")
    return sizes


def sizes_of(value):
    """The sizes of an expression; None for each that is known only when the network runs."""
    return tuple(int(size) if isinstance(size, (int, tvm.tir.IntImm)) else None for size in type_of(value).shape)


def rank_of(value):
    """How many axes an expression has."""
    return len(type_of(value).shape)


def outputs(attrs):
    """How many outputs the operator is asked for."""
    return attrs["tvm_custom"]["num_outputs"]


def dtype_of(value):
    """The element type of an expression."""
    return type_of(value).dtype


# In the place of TVM's


class RefusedError(errors.ModelError):
    """An operator of the model cannot be converted; the text says which, and why."""


class Graph(importer.GraphProto):
    """TVM's, with errors that name the operator, all outputs that are asked for, and weights that are no part of the
    model's message.
    """

    weights: ClassVar[dict] = {}

    def from_onnx(self, graph, opset, get_output_expr=False):
        """As TVM's; results that are sequences are as many results as they have tensors."""
        from . import sequences

        given = super().from_onnx(graph, opset, get_output_expr)
        if get_output_expr or not any(map(onnx_inputs.is_composite, graph.output)):
            return given
        module, params = given
        results, tensors = module["main"].body, []
        results = [results] if len(graph.output) == 1 else list(results.fields)
        for declared, result in zip(graph.output, results, strict=True):
            if onnx_inputs.is_composite(declared):
                result = sequences.unstacked(result, f"its result {declared.name}")
            tensors += sequences.leaves(result)
        if not tensors:
            raise RefusedError("all of its results are empty sequences")
        body = tensors[0] if len(tensors) == 1 else relay.Tuple(tensors)
        return tvm.IRModule.from_expr(relay.Function(module["main"].params, body)), params

    def _parse_graph_initializers(self, graph):
        for name, array in self.weights.items():
            self._nodes[name] = relay.Constant(array)
        super()._parse_graph_initializers(graph)

    def _fix_outputs(self, op_name, outputs):
        return outputs if op_name in _OURS else super()._fix_outputs(op_name, outputs)

    def _convert_operator(self, op_name, inputs, attrs, opset):
        try:
            return super()._convert_operator(op_name, inputs, attrs, opset)
        except RefusedError:
            raise  # inside of a loop or a branch
        except Exception as error:
            lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
            why = lines[-1] if lines else type(error).__name__
            if "tir.Any" in why or "tir.expr.Any" in why:
                why = "TVM's converter wants sizes that are known only when the network runs"
            name = attrs["tvm_custom"]["name"]
            raise RefusedError(
                f"the operator {op_name} that makes {name}: {why}", operator=op_name, span=name
            ) from error


_turn = threading.RLock()


def names(opset):
    """The operators that can be converted."""
    return set(known(importer._get_convert_map(opset), opset))


@contextlib.contextmanager
def in_place(weights):
    """While TVM's importer reads a model, our converters stand beside its own. ``weights``, {name: array}, are
    inputs of it that are known.
    """
    with _turn:
        theirs, graph = importer._get_convert_map, importer.GraphProto
        importer._get_convert_map = lambda opset: known(theirs(opset), opset)
        importer.GraphProto = type("Model", (Graph,), {"weights": weights})
        try:
            yield
        finally:
            importer._get_convert_map, importer.GraphProto = theirs, graph
