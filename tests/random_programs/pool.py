# SPDX-License-Identifier: Apache-2.0
"""The values of a program that is being made, and how a maker gets arguments that suit it.

Each value carries an interval that its elements lie in, so that makers stay away from what would be NaN or
infinite, and whether it is ``exact``: made only by steps that round nothing. What jumps (comparisons, floor,
sign, argmax) reads exact values alone, since two right answers may differ in the last digit before the jump.
"""

import math
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay

# A value has at most so many elements: TVM's code for them is built and run in no time.
MOST = 3000
# Beyond this a value is brought back before anything else is done with it.
GREAT = 64.0

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int32", "int8", "int64", "uint8")


@dataclass(frozen=True)
class Value:
    """A tensor of the program."""

    expr: object
    shape: tuple
    dtype: str
    low: float
    high: float
    exact: bool

    @property
    def rank(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def bound(self):
        """The greatest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def floating(self):
        return self.dtype.startswith("float")


class Pool:
    """The values made so far. ``random`` decides everything; nothing else does."""

    def __init__(self, seed, dtype="float32", empty=False, scoped=False):
        self.random = np.random.default_rng(seed)
        # What most values are, whether some have no elements, and whether the program will have scopes.
        self.dtype, self.empty, self.scoped = dtype, empty, scoped
        self.values, self.parameters, self.constants = [], [], []
        # Names of the operators that were made.
        self.made = []

    # Drawing.

    def chance(self, probability):
        return self.random.random() < probability

    def integer(self, low, high):
        """Between low and high, both included."""
        return int(self.random.integers(low, high + 1))

    def choice(self, items):
        items = list(items)
        return items[int(self.random.integers(len(items)))]

    def uniform(self, low, high):
        """A number that is a whole multiple of 1/16: exact in every floating type."""
        return round(float(self.random.uniform(low, high)) * 16) / 16

    def dimension(self):
        """An extent: mostly small, often 1."""
        return self.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17))

    def shape(self, rank=None):
        """A shape of few elements."""
        rank = self.choice((0, 1, 2, 2, 3, 3, 4, 4, 4, 5)) if rank is None else rank
        shape = [self.dimension() for _ in range(rank)]
        while math.prod(shape) > MOST // 4:
            shape[self.integer(0, rank - 1)] = self.integer(1, 3)
        return tuple(shape)

    # Making.

    def array(self, shape, dtype, low, high):
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(dtype)
        if dtype.startswith("float"):
            return self.random.uniform(low, high, shape).astype(dtype)
        return self.random.integers(math.ceil(low), math.floor(high) + 1, shape).astype(dtype)

    def input(self, shape=None, dtype=None, low=-1.0, high=1.0):
        """A new parameter of main."""
        shape, dtype = self.shape() if shape is None else tuple(shape), dtype or self.dtype
        low, high = natural(dtype, low, high)
        var = relay.var(f"x{len(self.parameters)}", shape=shape, dtype=dtype)
        self.parameters.append((var, self.array(shape, dtype, low, high)))
        return self.keep(Value(var, shape, dtype, low, high, True))

    def constant(self, shape=(), dtype=None, low=-1.0, high=1.0):
        """A constant; now and then one that stands elsewhere already."""
        shape, dtype = tuple(shape), dtype or self.dtype
        low, high = natural(dtype, low, high)
        shared = [
            c for c in self.constants if c.shape == shape and c.dtype == dtype and c.low >= low and c.high <= high
        ]
        if shared and self.chance(0.4):
            return self.choice(shared)
        array = self.array(shape, dtype, low, high)
        made = Value(relay.const(array, dtype), shape, dtype, low, high, True)
        self.constants.append(made)
        return made

    def scalar(self, number, dtype=None):
        """A constant of no dimensions."""
        dtype = dtype or self.dtype
        return Value(relay.const(number, dtype), (), dtype, float(number), float(number), True)

    def indices(self, shape, count, dtype=None):
        """Whole numbers from 0 to count - 1, as an input or a constant."""
        dtype = dtype or self.choice(("int32", "int64"))
        array = self.random.integers(0, count, shape).astype(dtype)
        if self.chance(0.5):
            return Value(relay.const(array, dtype), tuple(shape), dtype, 0.0, count - 1.0, True)
        var = relay.var(f"x{len(self.parameters)}", shape=shape, dtype=dtype)
        self.parameters.append((var, array))
        return Value(var, tuple(shape), dtype, 0.0, count - 1.0, True)

    def keep(self, value):
        """Make a value one that others may be made of."""
        self.values.append(value)
        return value

    def call(self, name, build, *arguments, low=None, high=None, exact=None):
        """Make a call: ``build`` gives the expression of the arguments' expressions. Gives a Value, or a list
        for a tuple. Without low and high the result lies where the arguments do.
        """
        return self.keep_all(self.aside(name, build, *arguments, low=low, high=high, exact=exact))

    def keep_all(self, made):
        for value in made if isinstance(made, list) else [made]:
            self.keep(value)
        return made

    def aside(self, name, build, *arguments, low=None, high=None, exact=None):
        """A call whose value nobody else reads."""
        expr = build(*[a.expr for a in arguments])
        if name:
            self.made.append(name)
        low = min((a.low for a in arguments), default=0.0) if low is None else low
        high = max((a.high for a in arguments), default=0.0) if high is None else high
        known = all(a.exact for a in arguments) if exact is None else exact and all(a.exact for a in arguments)
        stand_ins = [relay.var(f"a{i}", shape=a.shape, dtype=a.dtype) for i, a in enumerate(arguments)]
        typed = tvm.IRModule.from_expr(relay.Function(stand_ins, whole(build(*stand_ins))))
        kind = relay.transform.InferType()(typed)["main"].ret_type
        if isinstance(kind, relay.TupleType):
            return [
                self.typed(relay.TupleGetItem(whole(expr), i), field, low, high, known)
                for i, field in enumerate(kind.fields)
            ]
        return self.typed(expr, kind, low, high, known)

    @staticmethod
    def typed(expr, kind, low, high, exact):
        if kind.dtype == "bool":
            low, high = 0.0, 1.0
        return Value(expr, tuple(int(d) for d in kind.shape), str(kind.dtype), float(low), float(high), exact)

    # Choosing.

    def pick(self, dtype=None, rank=None, least=0, most=MOST, exact=False, empty=False, bound=None, shape=None):
        """A value that is so; one that is made so of another, or a new input, where there is none.

        least, most: the rank at least, the number of elements at most. empty: it may have no elements. bound:
        its magnitude at most.
        """
        dtype = dtype or self.dtype

        def suits(v):
            return (
                v.dtype == dtype
                and (rank is None or v.rank == rank)
                and v.rank >= least
                and v.size <= most
                and (v.exact or not exact)
                and (v.size > 0 or empty)
                and (shape is None or v.shape == tuple(shape))
            )

        found = [v for v in self.values if suits(v)]
        if found and not self.chance(0.05):
            # What was made last is likelier: chains grow long.
            weights = np.arange(1, len(found) + 1, dtype="float64") ** 2
            value = found[int(self.random.choice(len(found), p=weights / weights.sum()))]
        else:
            value = None
            if not exact and shape is None and self.chance(0.7):
                value = self.reshaped(dtype, rank, least, most)
            if value is None:
                wanted = self.fitting(rank, least, most) if shape is None else shape
                value = self.input(wanted, dtype) if self.chance(0.6) else self.constant(wanted, dtype)
        return value if bound is None else self.tamed(value, bound)

    def fitting(self, rank, least, most):
        while True:
            shape = self.shape(rank if rank is not None else max(least, self.integer(0, 4)))
            if math.prod(shape) <= most:
                return shape

    def reshaped(self, dtype, rank, least, most):
        """A value of another rank, in the rank that is wanted; None where there is none."""
        rank = max(least, self.integer(1, 4)) if rank is None else rank
        found = [v for v in self.values if v.dtype == dtype and 0 < v.size <= most]
        if not found or rank == 0:
            return None
        value = self.choice(found[-6:])
        shape = split_extent(self, value.size, rank)
        return self.call("reshape", lambda x: relay.reshape(x, shape), value)

    def tamed(self, value, bound=1.0):
        """The value, brought between -bound and bound where it is not."""
        if value.bound <= bound or not value.floating:
            return value
        if value.exact or self.chance(0.3):
            low, high = max(value.low, -bound), min(value.high, bound)
            if low >= high:
                low, high = -bound, bound
            return self.call("clip", lambda x: relay.clip(x, low, high), value, low=low, high=high)
        way = self.integer(0, 2)
        if way == 0:
            factor = self.scalar(2.0 ** -math.ceil(math.log2(value.bound / bound)), value.dtype)
            f = factor.high
            return self.call("multiply", relay.multiply, value, factor, low=value.low * f, high=value.high * f)
        if way == 1 and bound >= 1:
            return self.call("sigmoid", relay.sigmoid, value, low=0.0, high=1.0, exact=False)
        if bound >= 1:
            return self.call("tanh", relay.tanh, value, low=-1.0, high=1.0, exact=False)
        return self.call("clip", lambda x: relay.clip(x, -bound, bound), value, low=-bound, high=bound)

    def positive(self, value, least=0.25, most=8.0):
        """Of the value's shape, and between least and most."""
        if value.low >= least and value.high <= most:
            return value
        way = self.integer(0, 3)
        if way == 0 or not value.floating:
            return self.call("clip", lambda x: relay.clip(x, least, most), value, low=least, high=most)
        if way == 1 and value.bound + least <= most:
            one = self.aside("abs", relay.abs, value, low=0.0, high=value.bound)
            return self.call(
                "add",
                relay.add,
                one,
                self.scalar(least, value.dtype),
                low=least,
                high=value.bound + least,
                exact=False,
            )
        if way == 2 and value.bound < 1e3 and least <= 0.5 and most >= 1.5:
            one = self.aside("sigmoid", relay.sigmoid, value, low=0.0, high=1.0, exact=False)
            return self.call("add", relay.add, one, self.scalar(0.5, value.dtype), low=0.5, high=1.5, exact=False)
        return self.call("clip", lambda x: relay.clip(x, least, most), value, low=least, high=most)


def whole(expr):
    """An expression, be it TVM's wrapper of a tuple."""
    return expr.astuple() if isinstance(expr, relay.expr.TupleWrapper) else expr


def natural(dtype, low, high):
    """The interval of a dtype's values: what is no float has small whole ones."""
    if dtype == "bool":
        return 0.0, 1.0
    if dtype.startswith("float"):
        return float(low), float(high)
    low, high = math.floor(low), math.ceil(high)
    if high - low <= 2:
        low, high = low - 2, high + 3
    return float(max(low, 0) if dtype.startswith("u") else low), float(high)


def split_extent(pool, size, rank):
    """A shape of that many elements."""
    shape = []
    for _ in range(rank - 1):
        divisors = [d for d in range(1, min(size, 64) + 1) if size % d == 0] or [1]
        shape.append(pool.choice(divisors))
        size //= shape[-1]
    shape.append(size)
    pool.random.shuffle(shape)
    return tuple(int(d) for d in shape)


MAKERS = {}


def makes(*names, weight=1.0):
    """Register a maker: a function of a pool (and the name, where it makes several) that adds values to it.

    names are operators of Relay, or other names for what is made of several. weight: how often, beside the others;
    those of 0 make bytes, and stand in some programs only (program.BYTES).
    """

    def register(function):
        for name in names:
            MAKERS[name] = (function, weight)
        return function

    return register
