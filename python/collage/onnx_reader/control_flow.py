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

from .. import onnx_inputs
from . import sequences
from .table import Graph, const, converter, dtype_of, known_number, rank_of, sizes_of

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
    forms = [[_form(result) for result in results] for results in branches]
    if forms[0] != forms[1]:
        raise ValueError(
            f"its branches give {_shown(forms[0])} and {_shown(forms[1])}; TVM wants sequences of one length of both"
        )
    flat = [[leaf for result in results for leaf in sequences.leaves(result)] for results in branches]
    for one, other in zip(*([sizes_of(leaf) for leaf in leaves] for leaves in flat), strict=True):
        if one != other and None not in one + other:
            raise ValueError(f"its branches give results of the shapes {list(one)} and {list(other)}; TVM wants one")
    if not flat[0]:
        return _several(branches[0])
    chosen = relay.If(condition, *(each[0] if len(each) == 1 else relay.Tuple(each) for each in flat))
    count = len(flat[0])
    parts = iter([chosen] if count == 1 else [relay.TupleGetItem(chosen, i) for i in range(count)])
    return _several([_put_together(form, parts) for form in forms[0]])


def _form(value):
    """Which tensors a result is: 1 for one, "nothing", or a list of the forms of a sequence's."""
    if sequences.is_nothing(value):
        return "nothing"
    parts = sequences.parts_of(value)
    return 1 if parts is None else [_form(part) for part in parts]


def _put_together(form, tensors):
    """A result of that form, of tensors one after the other."""
    if form == 1:
        return next(tensors)
    return sequences.NOTHING if form == "nothing" else relay.Tuple([_put_together(one, tensors) for one in form])


def _shown(forms):
    return ", ".join(f"a sequence of {len(form)}" if isinstance(form, list) else "a value" for form in forms)


@converter("Loop", since=1)
def _loop(inputs, attrs, params):
    body, state = attrs["body"], list(inputs[2:])
    composite = [
        i for i, value in enumerate(state) if sequences.is_tuple(value) or onnx_inputs.is_composite(body.input[2 + i])
    ]
    unrolled = _unrolled(body, inputs[0], inputs[1], state) if composite else None
    if unrolled is not None:
        return _several(unrolled)
    held = _held_sequences(body, state, composite)
    return _several(_run_loop(body, inputs[0], inputs[1], held, composite))


def _unrolled(body, most, going, state):
    """The results of a loop whose rounds are known, one after the other; None where they are not."""
    rounds, goes = known_number(most), known_number(going)
    lists = [[] for _ in range(len(body.output) - 1 - len(state))]
    if rounds is None or goes is None or (lists and not (goes and rounds > 0)):
        return None
    number = 0
    while goes and number < rounds:
        results = _inside(body, [const(number, "int64"), const(True, "bool"), *state])
        goes = known_number(results[0])
        if goes is None:
            return None
        state = results[1 : 1 + len(state)]
        for gathered, one in zip(lists, results[1 + len(state) :], strict=True):
            gathered.append(one)
        number += 1
    return [*state, *(_op.stack(gathered, 0) for gathered in lists)]


def _held_sequences(body, state, composite):
    """What a loop begins with, sequences as one tensor each: of the shape that one round puts into an empty one."""
    held = list(state)
    for i in composite:
        if body.input[2 + i].type.HasField("optional_type"):
            raise ValueError("it hands an optional from round to round, and how many rounds there are is not known")
        if sequences.parts_of(state[i]) != []:
            held[i] = sequences.stacked(state[i])
    empty = [i for i in composite if sequences.parts_of(held[i]) == []]
    if not empty:
        return held
    values = [
        held[i] if i in empty else variable(body.input[2 + i].name, _held_shape(value, i in composite), dtype_of(value))
        for i, value in enumerate(held)
    ]
    counters = [variable(body.input[place].name, (), kind) for place, kind in enumerate(("int64", "bool"))]
    after = _inside(body, [*counters, *values])
    for i in empty:
        one = sequences.stacked(after[1 + i])
        sizes = sizes_of(one)[1:]
        if None in sizes:
            raise ValueError("the tensors that it puts into a sequence have sizes that are known only when it runs")
        held[i] = const(np.zeros([0, *sizes]), dtype_of(one))
    return held


def _held_shape(value, sequence):
    """The sizes of what a loop hands on: how long a sequence is differs from round to round."""
    sizes = sizes_of(value)
    return (None, *sizes[1:]) if sequence else sizes


def _run_loop(body, most, going, state, composite):
    """The results of a loop that TVM's virtual machine runs, which hands on sequences (``composite``) as one tensor."""
    most, going = _op.cast(_scalar(most), "int64"), _scalar(going)
    shapes = [_held_shape(value, i in composite) for i, value in enumerate(state)]
    for reading in itertools.count():
        held = [variable(body.input[2 + i].name, shape, dtype_of(state[i])) for i, shape in enumerate(shapes)]
        number, goes_on = variable(body.input[0].name, (), "int64"), variable(body.input[1].name, (), "bool")
        results = _inside(body, [number, goes_on, *held])
        for i in composite:
            results[1 + i] = sequences.stacked(results[1 + i])
        after = [_common(shape, result) for shape, result in zip(shapes, results[1:], strict=False)]
        if after == shapes:
            break
        if reading == _READINGS:
            raise ValueError("what it hands from round to round has no size that holds for all rounds")
        shapes = after
    gathered = results[1 + len(state) :]
    lists = [variable(f"list{i}", (None, *sizes_of(one)), dtype_of(one)) for i, one in enumerate(gathered)]
    loop = relay.Var("loop")
    again = [number + const(1, "int64"), _scalar(results[0]), *results[1 : 1 + len(state)]]
    again += [_appended(*pair, number) for pair in zip(lists, gathered, strict=True)]
    variables = [number, goes_on, *held, *lists]
    goes = _op.logical_and(goes_on, _op.less(number, most))
    function = relay.Function(variables, relay.If(goes, relay.Call(loop, again), relay.Tuple(variables)))
    empty = [const(np.zeros([0, *(size or 1 for size in sizes_of(one))]), dtype_of(one)) for one in gathered]
    ended = relay.Call(relay.Let(loop, function, loop), [const(0, "int64"), going, *state, *empty])
    return [relay.TupleGetItem(ended, 2 + i) for i in range(len(state) + len(gathered))]


def variable(name, shape, kind):
    """A value that a loop hands from round to round; None in ``shape`` is a size that is known when it runs."""
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
