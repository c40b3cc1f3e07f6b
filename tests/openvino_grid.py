# SPDX-License-Identifier: Apache-2.0
"""A grid of small expressions that are offloaded to OpenVINO in one module and compared with plain TVM.

Each case has inputs and constants of its own and becomes one field of the module's result, so that a hundred
cases cost two builds.
"""

import importlib.util
import os
from collections import Counter

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

TARGET = "llvm"
COMPILER = "collage_openvino"


def why_not():
    """Why OpenVINO cannot be used; "" where it can."""
    if os.environ.get("COLLAGE_OPENVINO_LIBRARY"):
        return ""
    if importlib.util.find_spec("openvino"):
        return ""
    return "OpenVINO is not installed: make backends BACKENDS=openvino"


class Grid:
    """Cases, each with the operators that OpenVINO is to take of it."""

    def __init__(self, seed=0):
        self.random = np.random.RandomState(seed)
        self.names, self.fields, self.inputs, self.taken, self.tolerances = [], [], {}, [], []

    def array(self, shape, dtype="float32", low=-1.0, high=1.0):
        """Random values; whole numbers and truth values where the dtype has no others."""
        if dtype == "bool":
            return self.random.randint(0, 2, shape).astype("bool")
        if dtype.startswith(("int", "uint")):
            return self.random.randint(int(low), int(high) + 1, shape).astype(dtype)
        return self.random.uniform(low, high, shape).astype(dtype)

    def input(self, *shape, dtype="float32", low=-1.0, high=1.0):
        """A new input of the module, with values."""
        variable = relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype)
        self.inputs[variable] = self.array(shape, dtype, low, high)
        return variable

    def constant(self, *shape, dtype="float32", low=-1.0, high=1.0):
        """A constant with values."""
        return relay.const(self.array(shape, dtype, low, high), dtype)

    def add(self, name, expression, *takes, rtol=1e-4, atol=2e-5):
        """Add a case; takes are the operators that go to OpenVINO, none where it is refused."""
        self.names.append(name)
        self.fields.append(expression)
        self.taken.extend(takes)
        self.tolerances.append((rtol, atol))

    def module(self):
        """All cases as one function that returns a tuple."""
        function = relay.Function(list(self.inputs), relay.Tuple(self.fields))
        return relay.transform.InferType()(tvm.IRModule.from_expr(function))

    def check(self, partition):
        """Partition, count what was offloaded, run both, compare. Returns the partitioned module."""
        module = self.module()
        placed = partition(module)
        counted, expected = Counter(offloaded(placed)), Counter(self.taken)
        assert counted == expected, f"too many: {counted - expected}, missing: {expected - counted}"
        got, want = run(placed, self.inputs), run(module, self.inputs)
        wrong = []
        for name, (rtol, atol), a, b in zip(self.names, self.tolerances, got, want, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                wrong.append(f"{name}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}")
            elif not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
                wrong.append(f"{name}: differs by {np.max(np.abs(a.astype('float64') - b))}")
        assert not wrong, f"OpenVINO and TVM disagree in {len(wrong)} cases:\n" + "\n".join(wrong)
        return placed


def run(module, inputs, level=2):
    """Build and run a module; ``inputs`` is {variable or name: array}. Returns the outputs.

    Level 2: without alternative layouts TVM compiles in half the time. Without common subexpressions: TVM
    describes some of them to the debugger in a way that this LLVM refuses.
    """
    with tvm.transform.PassContext(opt_level=level, config={"tir.disable_cse_tir": True}):
        factory = relay.build(module, TARGET)
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
    for variable, value in inputs.items():
        executor.set_input(getattr(variable, "name_hint", variable), value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def regions(module, compiler=COMPILER):
    """The functions of a partitioned module that belong to a backend."""
    return [f for f in module.functions.values() if f.attrs and f.attrs.get("Compiler") == compiler]


def offloaded(module):
    """Names of the operators in the module's regions, as often as they stand there."""
    names = []

    def visit(node):
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            names.append(node.op.name)

    for region in regions(module):
        relay.analysis.post_order_visit(region, visit)
    return names
