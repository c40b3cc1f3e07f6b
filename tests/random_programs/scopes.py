# SPDX-License-Identifier: Apache-2.0
"""Programs with scopes inside: functions that are called, branches, Lets. TVM's virtual machine runs them."""

import tvm
from tvm import relay

from .pool import Pool, Value

WAYS = ("function", "if", "let")


def small(pool, values, steps):
    """A few steps on these values, in a scope of their own; gives the result."""
    value = values[0]
    for _ in range(steps):
        way = pool.integer(0, 4)
        if way == 0:
            value = pool.aside("nn.relu", relay.nn.relu, value, low=0.0, high=value.bound)
        elif way == 1:
            value = pool.aside("tanh", relay.tanh, value, low=-1.0, high=1.0, exact=False)
        elif way == 2:
            two = pool.choice(values)
            value = pool.aside(
                "add", relay.add, value, two, low=value.low + two.low, high=value.high + two.high, exact=False
            )
        elif way == 3 and value.rank == 2 and value.shape[1] <= 64:
            weight = pool.constant((value.shape[1], value.shape[1]), value.dtype, -0.125, 0.125)
            bound = value.bound * value.shape[1] / 8
            value = pool.aside(
                "nn.dense",
                lambda x, w: relay.nn.dense(x, w),
                value,
                weight,
                low=-bound,
                high=bound,
                exact=False,
            )
        else:
            value = pool.aside("sigmoid", relay.sigmoid, value, low=0.0, high=1.0, exact=False)
    return value


def function(pool):
    """A call of a function that is written in place."""
    arguments = [pool.tamed(pool.pick("float32", least=1), 8.0)]
    arguments.append(pool.input(arguments[0].shape, "float32"))
    inner = Pool(pool.integer(0, 1 << 30), pool.dtype)
    params = [relay.var(f"p{i}", shape=a.shape, dtype=a.dtype) for i, a in enumerate(arguments)]
    made = small(
        inner,
        [Value(p, a.shape, a.dtype, a.low, a.high, False) for p, a in zip(params, arguments, strict=True)],
        pool.integer(1, 4),
    )
    called = relay.Function(params, made.expr)
    pool.made.extend(inner.made)
    pool.call("", lambda *xs: relay.Call(called, list(xs)), *arguments, low=made.low, high=made.high, exact=False)


def branch(pool):
    """An If whose branches read values from outside."""
    value = pool.tamed(pool.pick("float32", least=1), 8.0)
    decider = pool.pick("float32", exact=True)
    condition = relay.any(relay.greater(decider.expr, relay.const(0.25, "float32")))
    two = pool.input(value.shape, "float32")
    one = small(pool, [value, two], pool.integer(1, 3))
    other = small(pool, [two, value], pool.integer(1, 3))
    made = relay.If(condition, one.expr, other.expr)
    pool.keep(Value(made, value.shape, value.dtype, min(one.low, other.low), max(one.high, other.high), False))


def let(pool):
    """A name for what is used twice."""
    value = pool.tamed(pool.pick("float32", least=1), 8.0)
    name = relay.var("named", shape=value.shape, dtype=value.dtype)
    stand_in = Value(name, value.shape, value.dtype, value.low, value.high, False)
    made = small(pool, [stand_in, stand_in], pool.integer(2, 4))
    pool.keep(Value(relay.Let(name, value.expr, made.expr), made.shape, made.dtype, made.low, made.high, False))


def add(pool, way):
    """Put one of WAYS into the program."""
    pool.made.append(way)
    {"function": function, "if": branch, "let": let}[way](pool)


def scoped(module):
    """Whether a module needs the virtual machine."""
    found = []

    def visit(node):
        if isinstance(node, relay.If | relay.Let) or (
            isinstance(node, relay.Call) and isinstance(node.op, relay.Function) and not node.op.attrs
        ):
            found.append(node)

    relay.analysis.post_order_visit(module["main"], visit)
    return bool(found) or sum(isinstance(f, relay.Function) and not f.attrs for f in module.functions.values()) > 1


def typed(function):
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))
