# SPDX-License-Identifier: Apache-2.0
"""The grid of expressions that are offloaded to oneDNN; what counts are composites and single operators."""

from collections import Counter

import grid
import placed
import tvm
from collage import transform
from tvm import relay


class Grid(grid.Grid):
    """Cases, each with the composites and operators that oneDNN is to take of it."""

    library = "oneDNN"

    def array(self, shape, dtype="float32", low=-1.0, high=1.0):
        """Random values, drawn as float32 whatever the dtype."""
        return self.random.uniform(low, high, shape).astype("float32").astype(dtype)

    def offloaded(self, placed):
        return offloaded(placed)


class WholeGrid(Grid):
    """Cases of which oneDNN is to take every operator; what counts are TVM's operators, composites opened."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.left = Counter()

    def add(self, name, expression, leaves=(), **tolerances):
        """Add a case; leaves are the names of what must stay with TVM, as often as it does."""
        super().add(name, expression, **tolerances)
        self.left.update(leaves)

    def check(self, partition):
        # As the placement sees them: scales folded, normalisations written out.
        there = placed.counted(transform.Normalise()(self.module())["main"])
        assert self.left <= there, f"not there to be left: {self.left - there}"
        self.taken = list((there - self.left).elements())
        return super().check(partition)

    def offloaded(self, module):
        regions = [f for compiler in COMPILERS for f in grid.regions(module, compiler)]
        return list(sum(map(placed.counted, regions), Counter()).elements())


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
            grid.walk(function.body, visit)
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
    made = relay.Function([o for o, is_free in zip(outer, free, strict=True) if is_free], relay.Call(function, passed))
    made = made.with_attr("Compiler", tvm.runtime.String("collage_dnnl"))
    made = made.with_attr("global_symbol", tvm.runtime.String(symbol))
    made = made.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return relay.Call(made, [a for a, is_free in zip(arguments, free, strict=True) if is_free])


def channel_bias(cases, dims, channels):
    """A constant with one value for each channel of a tensor [n, channels, ...]."""
    return cases.constant(channels, *[1] * dims)


def sums_in_the_padding(grid):
    """Windows that lie wholly in the padding, where oneDNN's accumulating convolutions for AVX-512 forget the
    bias, or crash: the sum is a step of its own."""
    for dims, data, kernel, padding, result, relu in (
        (2, (1, 5, 2, 4), (1, 1), (1, 0, 1, 0), (1, 16, 4, 4), False),
        (2, (1, 16, 6, 6), (3, 3), (3, 1, 3, 1), (1, 16, 10, 6), True),
        (3, (2, 5, 2, 1, 4), (1, 1, 1), (1, 0, 0, 1, 0, 0), (2, 16, 4, 1, 4), False),
    ):
        x, weight = grid.input(*data), grid.constant(16, data[1], *kernel)
        conv = getattr(relay.nn, f"conv{dims}d")
        one = conv(x, weight, channels=16, kernel_size=kernel, padding=padding)
        added = one + channel_bias(grid, dims, 16) + grid.input(*result)
        takes = [f"dnnl.conv{dims}d_bias", "add"] + ["nn.relu"] * relu
        grid.add(f"conv{dims}d {padding}", relay.nn.relu(added) if relu else added, *takes)
