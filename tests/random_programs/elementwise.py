# SPDX-License-Identifier: Apache-2.0
"""Operators that work element by element, of one argument and of two, with broadcasting."""

import math

from tvm import relay

from .pool import GREAT, INTEGERS, makes

# What an integer type holds, with room.
HOLDS = {"int8": 100, "uint8": 200, "int32": 1 << 20, "int64": 1 << 20}


def number_type(pool, *others):
    """Mostly the program's floating type."""
    return pool.choice((pool.dtype,) * 6 + others) if others else pool.dtype


# name: (a way to bring the argument into the domain, the range of the result, whether nothing is rounded)
# A domain is ("in", bound), ("between", low, high) or None.
UNARY = {
    "acos": (("in", 0.9375), lambda v: (0.0, math.pi), False),
    "acosh": (("between", 1.125, 8.0), lambda v: (0.0, 3.0), False),
    "asin": (("in", 0.9375), lambda v: (-1.6, 1.6), False),
    "asinh": (("in", 16.0), lambda v: (-4.0, 4.0), False),
    "atan": (None, lambda v: (-1.6, 1.6), False),
    "atanh": (("in", 0.9375), lambda v: (-2.0, 2.0), False),
    "cos": (("in", 16.0), lambda v: (-1.0, 1.0), False),
    "cosh": (("in", 4.0), lambda v: (0.0, 30.0), False),
    "erf": (("in", 16.0), lambda v: (-1.0, 1.0), False),
    "exp": (("in", 4.0), lambda v: (math.exp(v.low), math.exp(v.high)), False),
    "log": (("between", 0.125, 32.0), lambda v: (math.log(v.low), math.log(v.high)), False),
    "log10": (("between", 0.125, 32.0), lambda v: (math.log10(v.low), math.log10(v.high)), False),
    "log2": (("between", 0.125, 32.0), lambda v: (math.log2(v.low), math.log2(v.high)), False),
    "rsqrt": (("between", 0.125, 32.0), lambda v: (v.high**-0.5, v.low**-0.5), False),
    "sigmoid": (("in", 16.0), lambda v: (0.0, 1.0), False),
    "sin": (("in", 16.0), lambda v: (-1.0, 1.0), False),
    "sinh": (("in", 4.0), lambda v: (-30.0, 30.0), False),
    "sqrt": (("between", 0.125, 64.0), lambda v: (v.low**0.5, v.high**0.5), False),
    "tan": (("in", 1.25), lambda v: (-3.1, 3.1), False),
    "tanh": (None, lambda v: (-1.0, 1.0), False),
    "abs": (None, lambda v: (0.0, v.bound), True),
    "negative": (None, lambda v: (-v.high, -v.low), True),
    "copy": (None, lambda v: (v.low, v.high), True),
    "nn.relu": (None, lambda v: (max(v.low, 0.0), max(v.high, 0.0)), True),
}
# What jumps.
STEPS = {"ceil": 1, "floor": 1, "round": 1, "sign": 1}
BY_NAME = {"negative": relay.negative, "abs": relay.abs, "nn.relu": relay.nn.relu}


def operator(name):
    """The function of relay that makes a call of an operator."""
    found = relay
    for part in name.split("."):
        found = getattr(found, part)
    return found


def domain(pool, value, wanted):
    if wanted is None:
        return value
    if wanted[0] == "in":
        return pool.tamed(value, wanted[1])
    return pool.positive(value, *wanted[1:])


@makes(*UNARY)
def unary(pool, name):
    wanted, to, exact = UNARY[name]
    integers = ("int32",) if name in ("abs", "negative", "copy", "nn.relu") else ()
    value = pool.pick(number_type(pool, *integers), empty=pool.empty)
    if value.floating:
        value = domain(pool, value, wanted)
    low, high = to(value)
    pool.call(name, operator(name), value, low=low, high=high, exact=exact)


@makes(*STEPS)
def step(pool, name):
    value = pool.pick(exact=True, empty=pool.empty)
    if name in ("ceil", "floor", "round"):
        factor = pool.scalar(pool.choice((2.0, 4.0, 8.0)), value.dtype)  # exact, and with halves in it
        if value.bound * factor.high < 1e4:
            value = pool.call(
                "multiply",
                relay.multiply,
                value,
                factor,
                low=value.low * factor.high,
                high=value.high * factor.high,
            )
    low, high = (-1.0, 1.0) if name == "sign" else (math.floor(value.low) - 1, math.ceil(value.high) + 1)
    pool.call(name, operator(name), value, low=low, high=high)


@makes("clip")
def clip(pool, name):
    value = pool.pick(number_type(pool, "int32", "int8"), empty=pool.empty)
    low = float(pool.integer(-6, 1)) if not value.floating else pool.uniform(-2.0, 0.5)
    high = low + (pool.integer(1, 6) if not value.floating else pool.uniform(0.25, 4.0))
    low, high = (max(low, 0.0), max(high, 1.0)) if value.dtype.startswith("u") else (low, high)
    pool.call(name, lambda x: relay.clip(x, low, high), value, low=low, high=high)


@makes("nn.leaky_relu", "nn.prelu")
def leaky(pool, name):
    value = pool.pick("float32", least=1, empty=pool.empty)
    if name == "nn.leaky_relu":
        slope = pool.choice((0.0625, 0.1, 0.25, 0.5))
        pool.call(name, lambda x: relay.nn.leaky_relu(x, slope), value, exact=False)
        return
    axis = pool.integer(0, value.rank - 1)
    slopes = pool.constant((value.shape[axis],), "float32", -0.5, 0.5)
    pool.call(
        name,
        lambda x, a: relay.nn.prelu(x, a, axis),
        value,
        slopes,
        low=-value.bound,
        high=value.bound,
        exact=False,
    )


def other(pool, value, low=-1.0, high=1.0, exact=False):
    """A value that can be broadcast with another: of its shape, a part of it, a scalar, a constant or
    itself."""
    way = pool.integer(0, 6)
    if way == 0 and not exact:
        return value  # of itself
    if way <= 3:
        alike = [
            v
            for v in pool.values
            if v.dtype == value.dtype and broadcast(v.shape, value.shape) and (v.exact or not exact)
        ]
        if alike:
            return pool.choice(alike)
    if way == 4:
        return pool.scalar(pool.choice((0.5, 1.0, 2.0, -1.5)) if value.floating else 2, value.dtype)
    shape = list(value.shape)
    if pool.chance(0.6):
        shape = shape[pool.integer(0, len(shape)) :]
        shape = [1 if pool.chance(0.4) else d for d in shape]
    return (pool.constant if pool.chance(0.7) else pool.input)(shape, value.dtype, low, high)


def broadcast(one, two):
    """Whether two shapes broadcast to something that is not great."""
    size = 1
    for i in range(1, max(len(one), len(two)) + 1):
        a = one[-i] if i <= len(one) else 1
        b = two[-i] if i <= len(two) else 1
        if a != b and 1 not in (a, b):
            return False
        size *= max(a, b) if a and b else 0
    return size <= 3000


def arithmetic_pair(pool, *types, exact=False):
    value = pool.pick(number_type(pool, *types), empty=pool.empty, exact=exact)
    second = other(pool, value, exact=exact)
    if value.floating:
        value, second = pool.tamed(value, GREAT), pool.tamed(second, GREAT)
    elif value.bound * max(second.bound, 2) > HOLDS[value.dtype]:
        bound = 5
        value = pool.call("clip", lambda x: relay.clip(x, 0, bound), value, low=0, high=bound)
        second = pool.call("clip", lambda x: relay.clip(x, 0, bound), second, low=0, high=bound)
    return (second, value) if pool.chance(0.3) else (value, second)


@makes("add", "subtract", "multiply", "maximum", "minimum", weight=2.0)
def arithmetic(pool, name):
    one, two = arithmetic_pair(pool, "int32", *INTEGERS)
    if name == "subtract" and one.dtype.startswith("u"):
        name = "maximum"
    bounds = {
        "add": (one.low + two.low, one.high + two.high),
        "subtract": (one.low - two.high, one.high - two.low),
        "multiply": (-one.bound * two.bound, one.bound * two.bound),
        "maximum": (max(one.low, two.low), max(one.high, two.high)),
        "minimum": (min(one.low, two.low), min(one.high, two.high)),
    }
    low, high = bounds[name]
    if name == "multiply" and one is two:
        low = 0.0
    exact = name in ("maximum", "minimum") or not one.floating
    pool.call(name, operator(name), one, two, low=low, high=high, exact=exact)


@makes("divide")
def divide(pool, name):
    one, two = arithmetic_pair(pool)
    two = pool.positive(two, 0.5, 8.0)
    if pool.chance(0.2):
        two = pool.call("negative", relay.negative, two, low=-two.high, high=-two.low)
    bound = one.bound / min(abs(two.low), abs(two.high))
    pool.call(name, relay.divide, one, two, low=-bound, high=bound, exact=False)


@makes("power")
def power(pool, name):
    if pool.chance(0.4):
        value = pool.tamed(pool.pick(empty=pool.empty), 4.0)
        exponent = pool.choice((2.0, 3.0))
        bound = value.bound**exponent
        pool.call(
            name, relay.power, value, pool.scalar(exponent, value.dtype),
            low=0.0 if exponent == 2 else -bound, high=bound, exact=False,
        )  # fmt: skip
        return
    one, two = arithmetic_pair(pool)
    one, two = pool.positive(one, 0.25, 4.0), pool.tamed(two, 2.0)
    pool.call(name, relay.power, one, two, low=0.0, high=16.0, exact=False)


@makes("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
def compare(pool, name):
    one, two = arithmetic_pair(pool, "int32", "int64", exact=True)
    if one.exact and two.exact:
        pool.call(name, operator(name), one, two, low=0, high=1)


@makes("logical_and", "logical_or", "logical_xor", "logical_not")
def logical(pool, name):
    one = pool.pick("bool", empty=pool.empty)
    if name == "logical_not":
        pool.call(name, relay.logical_not, one)
    else:
        pool.call(name, operator(name), one, other(pool, one))


@makes("where")
def where(pool, name):
    value = pool.pick(number_type(pool, "int32"), empty=pool.empty)
    condition = other(pool, pool.aside("", lambda x: relay.cast(x, "bool"), value))
    pool.made.append("where")
    second = other(pool, value)
    if not (broadcast(condition.shape, value.shape) and condition.dtype == "bool"):
        return
    # Both go with the value, and may not go with each other.
    if any(a != b and 1 not in (a, b) for a, b in zip(condition.shape[::-1], second.shape[::-1], strict=False)):
        return
    pool.call(
        "", relay.where, condition, value, second,
        low=min(value.low, second.low), high=max(value.high, second.high),
    )  # fmt: skip


@makes("cast")
def cast(pool, name):
    source = pool.choice(("float32", "float32", "int32", "int8", "bool", "int64", "float64", "float16"))
    value = pool.pick(source, empty=pool.empty, exact=True)
    to = pool.choice(
        [t for t in ("float32", "float32", "int32", "bool", "float64", "float16", "int8", "uint8") if t != source]
    )
    if to == "float16":
        if source == "float64":
            return  # TVM 0.19 gives garbage: its code calls a function that returns the number in another register
        value = pool.tamed(value, 1000)  # beyond 65504 there is nothing but infinity
    low, high = value.low, value.high
    if to == "uint8":
        value = pool.call("clip", lambda x: relay.clip(x, 0, 8), value, low=0, high=8) if source != "bool" else value
    elif to == "int8" and source != "bool":
        value = pool.call("clip", lambda x: relay.clip(x, -8, 8), value, low=-8, high=8)
    if to.startswith(("int", "uint")):
        low, high = math.floor(value.low), math.ceil(value.high)
    pool.call(name, lambda x: relay.cast(x, to), value, low=low, high=high, exact=to != "float16")
