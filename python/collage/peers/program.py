# SPDX-License-Identifier: Apache-2.0
"""A Relay network as a flat list of operators, for engines that have no use for Relay.

In: a typed IRModule whose ``main`` takes only inputs. Out: a Program of plain data (names, numpy arrays),
which can be written to a file and read where TVM is not.
"""

import pickle
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Step:
    """One operator: its Relay name, attributes as plain values, names of arguments and of its one result."""

    operator: str
    attributes: dict
    arguments: list
    result: str
    shape: tuple
    dtype: str


@dataclass
class Program:
    """A network: ``inputs`` {name: (shape, dtype)}, ``steps`` in order, ``constants`` {name: array}, names of
    ``outputs``; ``shapes`` has the shape of every value.
    """

    inputs: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)
    steps: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    shapes: dict = field(default_factory=dict)

    def save(self, path):
        """Write to ``path`` (pickle: only ever read back by the processes of the same run)."""
        with open(path, "wb") as file:
            pickle.dump(self, file, protocol=pickle.HIGHEST_PROTOCOL)

    def uses(self):
        """{name: how often a step or an output reads it}."""
        counts = dict.fromkeys(self.outputs, 1)
        for step in self.steps:
            for name in step.arguments:
                counts[name] = counts.get(name, 0) + 1
        return counts


class UnsupportedError(ValueError):
    """The network holds something that cannot be said to other engines; the text says what."""


def _plain(value):
    import tvm

    if isinstance(value, (tvm.ir.Array, list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (tvm.tir.IntImm, tvm.tir.FloatImm)):
        return value.value
    if isinstance(value, tvm.runtime.String):
        return str(value)
    return value if isinstance(value, (int, float, str, bool)) or value is None else str(value)


# Relay operators that are one result of a training-time operator, and which.
_FIRST_OF = {"nn.batch_norm", "nn.dropout"}


def read(module):
    """The Program of ``main``. Raises UnsupportedError for control flow, functions and open shapes."""
    import tvm
    from tvm import relay

    with tvm.transform.PassContext(opt_level=3):
        module = tvm.transform.Sequential([relay.transform.InferType(), relay.transform.FoldConstant()])(module)
        module = relay.transform.InferType()(module)
    program = Program()
    names = {}  # address of an expression -> name, or list of names of a tuple

    def of(expr):
        return names[expr.handle.value]

    def kind_of(expr):
        kind = expr.checked_type
        if isinstance(kind, relay.TupleType) and isinstance(expr, relay.Call) and expr.op.name in _FIRST_OF:
            kind = kind.fields[0]
        return kind

    def tensor(kind, what):
        if not isinstance(kind, relay.TensorType) or any(isinstance(dim, tvm.tir.Any) for dim in kind.shape):
            raise UnsupportedError(f"{what} is {kind}, not a tensor of fixed shape")
        return tuple(int(dim) for dim in kind.shape), kind.dtype

    def declare(name, shape):
        program.shapes[name] = shape
        return name

    def visit(expr):
        if isinstance(expr, (tvm.ir.Op, relay.Function)):
            return
        if isinstance(expr, relay.Var):
            shape, dtype = tensor(expr.checked_type, f"the input {expr.name_hint}")
            program.inputs[expr.name_hint] = (shape, dtype)
            names[expr.handle.value] = declare(expr.name_hint, shape)
        elif isinstance(expr, relay.Constant):
            name = f"constant_{len(program.constants)}"
            program.constants[name] = expr.data.numpy()
            names[expr.handle.value] = declare(name, tuple(program.constants[name].shape))
        elif isinstance(expr, relay.Tuple):
            names[expr.handle.value] = [of(one) for one in expr.fields]
        elif isinstance(expr, relay.TupleGetItem):
            whole = of(expr.tuple_value)
            if isinstance(whole, str):  # the one result of _FIRST_OF that counts
                whole = [whole]
            names[expr.handle.value] = whole[expr.index]
        elif isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            arguments = [one for arg in expr.args for one in (of(arg) if isinstance(of(arg), list) else [of(arg)])]
            attrs = {key: _plain(expr.attrs[key]) for key in expr.attrs.keys()} if expr.attrs else {}  # noqa: SIM118
            number = len(program.steps)
            kind = kind_of(expr)
            if isinstance(kind, relay.TupleType):  # one step a field, told apart by "index"
                results = []
                for index, part in enumerate(kind.fields):
                    shape, dtype = tensor(part, expr.op.name)
                    result = declare(f"v{number}_{index}", shape)
                    program.steps.append(Step(expr.op.name, {**attrs, "index": index}, arguments, result, shape, dtype))
                    results.append(result)
                names[expr.handle.value] = results
                return
            shape, dtype = tensor(kind, expr.op.name)
            result = declare(f"v{number}", shape)
            program.steps.append(Step(expr.op.name, attrs, arguments, result, shape, dtype))
            names[expr.handle.value] = result
        else:
            raise UnsupportedError(f"the network holds a {type(expr).__name__}, which other engines cannot be given")

    relay.analysis.post_order_visit(module["main"].body, visit)
    # In the order of the parameters, those too that nothing reads.
    program.inputs = {
        var.name_hint: tensor(var.checked_type, f"the input {var.name_hint}") for var in module["main"].params
    }
    last = of(module["main"].body)
    program.outputs = last if isinstance(last, list) else [last]
    _fold_biases(program)
    _drop_transposes(program)
    return program


def _only_reader(program, uses, name, operators):
    """The step that alone reads ``name``, if it is one of ``operators``."""
    if uses.get(name) != 1:
        return None
    for step in program.steps:
        if name in step.arguments:
            return step if step.operator in operators else None
    return None


def _fold_biases(program):
    """Put the bias of a convolution or dense layer into it, as every framework writes it: a third
    argument.
    """
    uses = program.uses()
    gone = set()
    for step in program.steps:
        layer = step.operator in ("nn.dense", "nn.conv1d", "nn.conv2d", "nn.conv3d")
        after = layer and _only_reader(program, uses, step.result, ("add", "nn.bias_add"))
        if not after or len(step.arguments) != 2 or after.shape != step.shape:
            continue
        bias = next((name for name in after.arguments if name != step.result), None)
        if bias not in program.constants:
            continue
        array, axis = program.constants[bias], len(step.shape) - 1 if step.operator == "nn.dense" else 1
        units = step.shape[axis]
        if after.operator == "add":
            wanted = (1,) * (len(step.shape) - array.ndim) + array.shape
            if array.size != units or wanted[axis] != units:
                continue
        name = f"{bias}_bias"
        program.constants[name] = np.ascontiguousarray(array.reshape(units))
        program.shapes[name] = (units,)
        step.arguments.append(name)
        step.result = after.result
        gone.add(id(after))
    program.steps = [step for step in program.steps if id(step) not in gone]


def _drop_transposes(program):
    """Relay's batch_matmul wants its second operand transposed: a transpose made for it is none in other
    engines.
    """
    made = {step.result: step for step in program.steps}
    for step in program.steps:
        if step.operator != "nn.batch_matmul":
            continue
        before = made.get(step.arguments[1])
        if before and before.operator == "transpose" and before.attributes.get("axes") in ([0, 2, 1], [0, 2, -2]):
            step.arguments[1] = before.arguments[0]
            step.attributes["transpose_b"] = not step.attributes["transpose_b"]
    uses = program.uses()
    program.steps = [step for step in program.steps if uses.get(step.result)]
    uses = program.uses()
    program.constants = {name: array for name, array in program.constants.items() if uses.get(name)}


def reduced_axes(step, rank):
    """The axes that a reduction goes over, from 0, ascending."""
    axes = step.attributes.get("axis")
    if axes is None:
        return list(range(rank))
    axes = sorted({axis % rank for axis in (axes if isinstance(axes, list) else [axes])})
    return [axis for axis in range(rank) if axis not in axes] if step.attributes.get("exclude") else axes


def pads(step, rank):
    """Padding of a convolution or pool of ``rank``: what comes before each axis, then what comes after."""
    given = step.attributes["padding"]
    given = given if isinstance(given, list) else [given]
    if len(given) == 1:
        given = given * rank
    return given if len(given) == 2 * rank else given * 2
