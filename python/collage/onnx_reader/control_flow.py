# SPDX-License-Identifier: Apache-2.0
"""Branches and loops, which TVM's virtual machine runs. What form.formed gave a Loop, its rounds and its condition, is
always there.
"""

import collections
import itertools

import numpy as np
import onnx
from tvm import relay
from tvm.relay import op as _op
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as importer

from .table import Graph, const, converter, dtype_of, outputs, rank_of, sizes_of, type_of

# How often a loop's body is read anew, as it turns out that more of what it hands on changes its size.
_READINGS = 4


def _inside(graph, values=()):
    """The results of a graph inside of an operator, beside what is around it; ``values`` are its inputs."""
    around = importer.GraphProto.current
    # The importer gives an input its span, which makes another variable of it, where it is first used: before, not in
    # here, where nobody outside would hear of it.
    for name in _read(graph):
        value = around._nodes.get(name)
        if isinstance(value, relay.Var) and not value.span:
            around._nodes[name] = common.set_span(value, name)
            if name in around._inputs:
                around._inputs[name] = around._nodes[name]
    scope = _Scope(around)
    for declared, value in zip(graph.input, values, strict=True):
        scope._nodes[declared.name] = value
    with scope:
        results = scope.from_onnx(graph, around.opset, get_output_expr=True)
    around._params.update(scope._params)
    return list(results) if len(graph.output) > 1 else [results]


class _Scope(Graph):
    """A graph inside of an operator of another, which sees what is around it and adds nothing there."""

    def __init__(self, around):
        super().__init__(around._shape, around._dtype, around._freeze_params, around._op_type_dict)
        self._nodes = collections.ChainMap({}, around._nodes)  # a copy for each branch would grow with the network

    def _parse_graph_input(self, graph):
        pass  # they are there


def _read(graph):
    """The names that a graph reads, its own and those of what is around it."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _read(attribute.g)
    for value in graph.output:
        yield value.name


def _scalar(value):
    return _op.reshape(value, ()) if rank_of(value) else value


def _several(values):
    return values[0] if len(values) == 1 else relay.TupleWrapper(relay.Tuple(values), len(values))


@converter("If", since=1)
def _if(inputs, attrs, params):
    condition = importer.fold_constant(_scalar(inputs[0]))
    if isinstance(condition, relay.Constant):
        return _several(_inside(attrs["then_branch" if condition.data.numpy() else "else_branch"]))
    branches = [_inside(attrs[name]) for name in ("then_branch", "else_branch")]
    for one, other in zip(*([sizes_of(result) for result in results] for results in branches), strict=True):
        if one != other and None not in one + other:
            raise ValueError(f"its branches give results of the shapes {list(one)} and {list(other)}; TVM wants one")
    chosen = relay.If(condition, *(each[0] if len(each) == 1 else relay.Tuple(each) for each in branches))
    return chosen if outputs(attrs) == 1 else relay.TupleWrapper(chosen, outputs(attrs))


@converter("Loop", since=1)
def _loop(inputs, attrs, params):
    most, going, state = _op.cast(_scalar(inputs[0]), "int64"), _scalar(inputs[1]), list(inputs[2:])
    body = attrs["body"]
    if not all(isinstance(type_of(value), relay.TensorType) for value in state):
        raise ValueError("it hands a sequence from round to round, and TVM knows tensors only there")
    shapes = [sizes_of(value) for value in state]
    for reading in itertools.count():
        held = [_variable(body.input[2 + i].name, shape, dtype_of(state[i])) for i, shape in enumerate(shapes)]
        number, goes_on = _variable(body.input[0].name, (), "int64"), _variable(body.input[1].name, (), "bool")
        results = _inside(body, [number, goes_on, *held])
        after = [_common(shape, result) for shape, result in zip(shapes, results[1:], strict=False)]
        if after == shapes:
            break
        if reading == _READINGS:
            raise ValueError("what it hands from round to round has no size that holds for all rounds")
        shapes = after
    gathered = results[1 + len(state) :]
    lists = [_variable(f"list{i}", (None, *sizes_of(one)), dtype_of(one)) for i, one in enumerate(gathered)]
    loop = relay.Var("loop")
    again = [number + const(1, "int64"), _scalar(results[0]), *results[1 : 1 + len(state)]]
    again += [_appended(*pair, number) for pair in zip(lists, gathered, strict=True)]
    variables = [number, goes_on, *held, *lists]
    goes = _op.logical_and(goes_on, _op.less(number, most))
    function = relay.Function(variables, relay.If(goes, relay.Call(loop, again), relay.Tuple(variables)))
    empty = [const(np.zeros([0, *(size or 1 for size in sizes_of(one))]), dtype_of(one)) for one in gathered]
    ended = relay.Call(relay.Let(loop, function, loop), [const(0, "int64"), going, *state, *empty])
    return _several([relay.TupleGetItem(ended, 2 + i) for i in range(len(state) + len(gathered))])


def _variable(name, shape, kind):
    variable = relay.var(name, shape=[relay.Any() if size is None else size for size in shape], dtype=kind)
    # The importer makes another variable of one without a span, where an operator gives what it is given.
    return common.set_span(variable, name)


def _common(shape, result):
    """Sizes that a value has before and after a round; None for those that change."""
    if len(shape) != rank_of(result):
        raise ValueError(f"a value has {len(shape)} axes in one round and {rank_of(result)} in the next")
    return tuple(size if size == other else None for size, other in zip(shape, sizes_of(result), strict=True))


def _appended(before, one, number):
    """A list of what rounds gave, and of one more. While it is empty, sizes that nobody knows are 1 in it."""
    if None in sizes_of(one):
        sizes = _op.concatenate([_op.reshape(number, [1]), _op.shape_of(one, "int64")], axis=0)
        before = _op.broadcast_to(before, sizes)
    return _op.concatenate([before, _op.expand_dims(one, axis=0)], axis=0)
