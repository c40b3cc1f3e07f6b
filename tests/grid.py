# SPDX-License-Identifier: Apache-2.0
"""A grid of small expressions that are given to a backend in one module and compared with plain TVM.

Each case has inputs and constants of its own and becomes one field of the module's result, so that a few
hundred cases cost two builds. The backends' grids say what is random, and what counts as offloaded.
"""

import zlib
from collections import Counter

import content_cache
import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

# Parameters of a fixture `grid`: half of the cases of a large grid in each run of the tests, all in the long ones.
SHARES = [pytest.param(2, id="half"), pytest.param(1, id="whole", marks=pytest.mark.long)]
# A grid of no more cases is never halved.
SMALL = 8

# Right is right without LLVM's optimisations, too, and they are nearly half of the time.
TARGET = "llvm -opt-level=0"


class Grid:
    """Cases, each with what the library is to take of it."""

    # What messages call the library, and how far a case's values may be from TVM's where it does not say.
    library = ""
    atol = 1e-5

    def __init__(self, seed=0, share=1):
        """One case in ``share`` is run, always the same ones; all of a small grid."""
        self.random = np.random.RandomState(seed)
        self.share = share
        self.names, self.fields, self.inputs, self.taken, self.tolerances = [], [], {}, [], []
        # How many names of ``taken`` each case has brought.
        self.takes = []

    def array(self, shape, dtype="float32", low=-1.0, high=1.0):
        """Random values."""
        raise NotImplementedError

    def offloaded(self, placed):
        """What of a partitioned module is the library's: names, as often as they stand there."""
        raise NotImplementedError

    def input(self, *shape, dtype="float32", low=-1.0, high=1.0):
        """A new input of the module, with values."""
        variable = relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype)
        self.inputs[variable] = self.array(shape, dtype, low, high)
        return variable

    def constant(self, *shape, dtype="float32", low=-1.0, high=1.0):
        """A new constant with values."""
        return relay.const(self.array(shape, dtype, low, high), dtype)

    def add(self, name, expression, *takes, rtol=1e-4, atol=None):
        """Add a case; takes are the names of what the library is to take, none where it is refused."""
        self.names.append(name)
        self.fields.append(expression)
        self.taken.extend(takes)
        self.takes.append(len(takes))
        self.tolerances.append((rtol, self.atol if atol is None else atol))

    def thin(self):
        """Leave cases out, by their names and places, where only a share is run."""
        if self.share == 1 or len(self.names) <= SMALL:
            return
        kept = [zlib.crc32(f"{i} {name}".encode()) % self.share == 0 for i, name in enumerate(self.names)]
        assert sum(self.takes) == len(self.taken), "what is taken belongs to no case"
        ends = np.cumsum(self.takes)
        self.taken = [
            take
            for end, count, keep in zip(ends, self.takes, kept, strict=True)
            for take in self.taken[end - count : end]
            if keep
        ]
        for name in ("names", "fields", "tolerances", "takes"):
            setattr(self, name, [one for one, keep in zip(getattr(self, name), kept, strict=True) if keep])

    def module(self):
        """All cases as one function that returns a tuple."""
        function = relay.Function(list(self.inputs), relay.Tuple(self.fields))
        return relay.transform.InferType()(tvm.IRModule.from_expr(function))

    def check(self, partition):
        """Partition, count what was offloaded, run both, compare. Returns the partitioned module."""
        self.thin()
        module = self.module()
        placed = partition(module)
        counted, expected = Counter(self.offloaded(placed)), Counter(self.taken)
        assert counted == expected, f"too many: {counted - expected}, missing: {expected - counted}"
        got, want = self.run(placed), self.expected(module)
        wrong = []
        for name, (rtol, atol), a, b in zip(self.names, self.tolerances, got, want, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                wrong.append(f"{name}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}")
            elif not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
                wrong.append(f"{name}: differs by {np.max(np.abs(a.astype('float64') - b))}")
        assert not wrong, f"{self.library} and TVM disagree in {len(wrong)} cases:\n" + "\n".join(wrong)
        return placed

    def expected(self, module):
        """What plain TVM makes of this grid's inputs; computed once, whoever asks."""
        key = content_cache.module_key(module, TARGET, "grid")
        inputs = list(self.inputs.values())
        return content_cache.remembered(content_cache.answer_key(key, inputs), lambda: run(module, self.inputs))

    def run(self, module):
        """Build a module with this grid's inputs and run it; returns the outputs."""
        return run(module, self.inputs)


def run(module, inputs, level=2):
    """Build and run a module; ``inputs`` is {variable or name: array}. Returns the outputs.

    Level 2: without alternative layouts TVM compiles in half the time. Without common subexpressions: TVM
    describes some of them (in linear resizes, depthwise 3D convolutions) to the debugger in a way that this
    LLVM refuses.
    """
    return outputs(built(module, inputs, level))


def built(module, inputs, level=2):
    """The executor of a module, as `run` builds it, with its inputs."""
    with tvm.transform.PassContext(opt_level=level, config={"tir.disable_cse_tir": True}):
        factory = relay.build(module, TARGET)
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
    for variable, value in inputs.items():
        executor.set_input(getattr(variable, "name_hint", variable), value)
    return executor


def outputs(executor):
    """Run an executor; returns its outputs."""
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def walk(root, visit):
    """Visit the expressions of one function, without the functions that it calls."""
    seen, stack = set(), [root]
    while stack:
        node = stack.pop()
        if isinstance(node, relay.expr.TupleWrapper):
            node = node.astuple()
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


def operators(expression):
    """The names of the operators in an expression, functions that it calls left out."""
    names = []

    def visit(node):
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            names.append(node.op.name)

    walk(expression, visit)
    return names


def regions(module, compiler):
    """The functions of a partitioned module that belong to a backend."""
    return [f for f in module.functions.values() if f.attrs and f.attrs.get("Compiler") == compiler]
