# SPDX-License-Identifier: Apache-2.0
"""A grid of small expressions that are offloaded to oneDNN in one module and compared with plain TVM.

Each case has inputs and constants of its own and becomes one field of the module's result, so that a few
hundred cases cost two builds a test.
"""

from collections import Counter

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

TARGET = "llvm"


class Grid:
    """Cases, each with what oneDNN is to take of it."""

    def __init__(self, seed=0):
        self.random = np.random.RandomState(seed)
        self.names, self.fields, self.inputs, self.taken = [], [], {}, []
        self.tolerances = []

    def array(self, shape, low=-1.0, high=1.0):
        return self.random.uniform(low, high, shape).astype("float32")

    def input(self, *shape, dtype="float32", low=-1.0, high=1.0):
        """A new input of the module, with values."""
        variable = relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype)
        self.inputs[variable] = self.array(shape, low, high).astype(dtype)
        return variable

    def constant(self, *shape, low=-1.0, high=1.0):
        return relay.const(self.array(shape, low, high))

    def add(self, name, expression, *takes, rtol=1e-4, atol=1e-5):
        """Add a case; takes are the composites and operators that go to oneDNN, none where it is refused."""
        self.names.append(name)
        self.fields.append(expression)
        self.taken.extend(takes)
        self.tolerances.append((rtol, atol))

    def module(self):
        function = relay.Function(list(self.inputs), relay.Tuple(self.fields))
        return relay.transform.InferType()(tvm.IRModule.from_expr(function))

    def check(self, partition):
        """Partition, count what was offloaded, run both, compare."""
        module = self.module()
        placed = partition(module)
        counted, expected = Counter(offloaded(placed)), Counter(self.taken)
        assert counted == expected, f"too many: {counted - expected}, missing: {expected - counted}"
        got, want = self.run(placed), self.run(module)
        wrong = []
        for name, (rtol, atol), a, b in zip(self.names, self.tolerances, got, want, strict=True):
            if a.shape != b.shape or not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
                wrong.append(f"{name}: {np.max(np.abs(a - b)) if a.shape == b.shape else a.shape}")
        assert not wrong, "oneDNN and TVM disagree:\n" + "\n".join(wrong)

    def run(self, module):
        # Level 2: without alternative layouts TVM compiles in half the time. Common subexpressions may become
        # vectors whose description for debuggers LLVM refuses.
        with tvm.transform.PassContext(opt_level=2, config={"tir.disable_cse_tir": True}):
            factory = relay.build(module, TARGET)
        executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
        for variable, value in self.inputs.items():
            executor.set_input(variable.name_hint, value)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(len(self.fields))]


# The Compiler attributes of both backends on oneDNN: our own runtime's, and TVM's.
COMPILERS = ("collage_dnnl", "dnnl")


def offloaded(module):
    """The composites and single operators in the module's regions on oneDNN."""
    names = []

    def visit(node):
        if isinstance(node, relay.Call):
            if isinstance(node.op, relay.Function):
                names.append(str(node.op.attrs["Composite"]))
            else:
                names.append(node.op.name)

    for function in module.functions.values():
        if function.attrs and function.attrs.get("Compiler") in COMPILERS:
            walk(function.body, visit)
    return names


def region(symbol, composite, body, *arguments):
    """A call of a region for our runtime whose only content is a composite function.

    So is tested what no placement would choose without measuring. Constants go inside.
    """
    types = [relay.transform.InferTypeLocal(argument) for argument in arguments]
    inner = [relay.var(f"c{i}", type_) for i, type_ in enumerate(types)]
    function = relay.Function(inner, body(*inner)).with_attr("Composite", tvm.runtime.String(composite))
    function = function.with_attr("PartitionedFromPattern", tvm.runtime.String(""))
    outer = [relay.var(f"r{i}", type_) for i, type_ in enumerate(types)]
    free = [not isinstance(argument, relay.Constant) for argument in arguments]
    passed = [o if is_free else a for o, a, is_free in zip(outer, arguments, free, strict=True)]
    made = relay.Function(
        [o for o, is_free in zip(outer, free, strict=True) if is_free], relay.Call(function, passed)
    )
    made = made.with_attr("Compiler", tvm.runtime.String("collage_dnnl"))
    made = made.with_attr("global_symbol", tvm.runtime.String(symbol))
    made = made.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return relay.Call(made, [a for a, is_free in zip(arguments, free, strict=True) if is_free])


def walk(root, visit):
    """Visit the expressions of one function, without the functions that it calls."""
    seen, stack = set(), [root]
    while stack:
        node = stack.pop()
        if node.handle.value in seen:
            continue
        seen.add(node.handle.value)
        visit(node)
        if isinstance(node, relay.Call):
            stack.extend(node.args)
        elif isinstance(node, relay.Tuple):
            stack.extend(node.fields)
        elif isinstance(node, relay.TupleGetItem):
            stack.append(node.tuple_value)


def channel_bias(grid, dims, channels):
    """A constant with one value for each channel of a tensor [n, channels, ...]."""
    return grid.constant(channels, *[1] * dims)
