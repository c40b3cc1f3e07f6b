# SPDX-License-Identifier: Apache-2.0
"""A grid of small expressions that are given to ONNX Runtime in one module and compared with plain TVM.

Each case has inputs and constants of its own and becomes one field of the module's result, so that a hundred
cases cost two builds.
"""

from collections import Counter

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

COMPILER = "collage_onnxruntime"


class Grid:
    """Cases, each with the operators that the engine is to take of it."""

    def __init__(self, seed=0):
        self.random = np.random.RandomState(seed)
        self.names, self.fields, self.inputs, self.taken, self.tolerances = [], [], {}, [], []

    def array(self, shape, dtype="float32", low=-1.0, high=1.0):
        """Numbers between low and high; whole ones below high for integers."""
        if dtype == "bool":
            return self.random.randint(0, 2, shape).astype("bool")
        if dtype.startswith(("int", "uint")):
            return self.random.randint(int(low), int(high), shape).astype(dtype)
        return np.asarray(self.random.uniform(low, high, shape)).astype(dtype)

    def input(self, *shape, dtype="float32", low=-1.0, high=1.0):
        """A new input of the module, with values."""
        variable = relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype)
        self.inputs[variable] = self.array(shape, dtype, low, high)
        return variable

    def constant(self, *shape, dtype="float32", low=-1.0, high=1.0):
        """A new constant with values."""
        return relay.const(self.array(shape, dtype, low, high), dtype)

    def add(self, name, expression, taken=True, rtol=1e-4, atol=1e-5):
        """Add a case that the engine is to take whole, or to leave alone."""
        self.names.append(name)
        self.fields.append(expression)
        if taken:
            self.taken.extend(operators(expression))
        self.tolerances.append((rtol, atol))

    def module(self):
        """All cases as one module."""
        function = relay.Function(list(self.inputs), relay.Tuple(self.fields))
        return relay.transform.InferType()(tvm.IRModule.from_expr(function))

    def check(self, partition, least):
        """Partition, count what was offloaded, run both, compare. There must be ``least`` cases."""
        assert len(self.names) >= least, f"only {len(self.names)} cases"
        module = self.module()
        placed = partition(module)
        counted, expected = Counter(offloaded(placed)), Counter(self.taken)
        assert counted == expected, f"too many: {counted - expected}, missing: {expected - counted}"
        got, want = self.run(placed), self.run(module)
        wrong = []
        for name, (rtol, atol), a, b in zip(self.names, self.tolerances, got, want, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                wrong.append(f"{name}: {a.dtype}{a.shape} for {b.dtype}{b.shape}")
            elif not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
                wrong.append(f"{name}: {np.max(np.abs(a.astype('float64') - b))}")
        assert not wrong, "ONNX Runtime and TVM disagree:\n" + "\n".join(wrong)

    def run(self, module):
        """Build at level 2 (without alternative layouts TVM compiles in half the time) and run.

        Without common subexpressions: TVM writes debug information for them that LLVM 22 does
        not accept, in linear resizes and depthwise 3D convolutions for example.
        """
        with tvm.transform.PassContext(opt_level=2, config={"tir.disable_cse_tir": True}):
            factory = relay.build(module, "llvm")
        executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
        for variable, value in self.inputs.items():
            executor.set_input(variable.name_hint, value)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(len(self.fields))]


def operators(expression):
    """The names of the operators in an expression, functions that it calls left out."""
    names, seen, stack = [], set(), [expression]
    while stack:
        node = stack.pop()
        if node.handle.value in seen:
            continue
        seen.add(node.handle.value)
        if isinstance(node, relay.Call):
            if isinstance(node.op, tvm.ir.Op):
                names.append(node.op.name)
            stack.extend(node.args)
        elif isinstance(node, relay.Tuple):
            stack.extend(node.fields)
        elif isinstance(node, relay.TupleGetItem):
            stack.append(node.tuple_value)
        elif isinstance(node, relay.expr.TupleWrapper):
            stack.append(node.astuple())
    return names


def regions(module):
    """The module's functions that the engine runs."""
    return [f for f in module.functions.values() if f.attrs and f.attrs.get("Compiler") == COMPILER]


def offloaded(module):
    """The operators in the module's regions."""
    return [name for function in regions(module) for name in operators(function.body)]
