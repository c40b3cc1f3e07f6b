# SPDX-License-Identifier: Apache-2.0
"""Reductions: sums, extremes, arg-extremes, truth of all and any."""

import math

from tvm import relay

from .elementwise import HOLDS, number_type, operator
from .pool import makes


def axes_of(pool, value):
    """Axes to reduce over: one, several, all; negative ones too. And how many elements that takes
    together."""
    if pool.chance(0.15):
        return None, max(1, value.size)
    count = pool.integer(1, max(1, value.rank))
    axes = sorted(int(a) for a in pool.random.permutation(value.rank)[:count])
    if pool.chance(0.4):
        axes = [axes[-1]]
    terms = math.prod(value.shape[a] for a in axes)
    return [a - value.rank if pool.chance(0.3) else a for a in axes], max(1, terms)


@makes("sum", "mean", "max", "min", "prod", weight=1.2)
def reduce(pool, name):
    value = pool.pick(number_type(pool, "int32"), least=1)
    if name == "mean" and not value.floating:
        value = pool.pick(least=1)
    axes, terms = axes_of(pool, value)
    keep = pool.chance(0.5)
    low, high = value.low, value.high
    if name == "sum":
        low, high = low * terms, high * terms
        if not value.floating and value.bound * terms > HOLDS[value.dtype]:
            return
    if name == "prod":
        # By logarithms: a power of a thousand terms is no number.
        if not value.floating and terms * math.log(max(1.0, value.bound)) > math.log(HOLDS[value.dtype]):
            return
        if value.floating:
            value = pool.tamed(value, 1.0)
        low, high = (-1.0, 1.0) if value.floating else (-(value.bound**terms), value.bound**terms)
    exact = name in ("max", "min") or not value.floating
    pool.call(name, lambda x: operator(name)(x, axis=axes, keepdims=keep), value, low=low, high=high, exact=exact)


@makes("variance")
def variance(pool, name):
    value = pool.tamed(pool.pick("float32", least=1), 8.0)
    axes, _ = axes_of(pool, value)
    keep = pool.chance(0.5)
    pool.call(name, lambda x: relay.variance(x, axes, keep), value, low=0.0, high=value.bound**2, exact=False)


@makes("argmax", "argmin")
def arg(pool, name):
    value = pool.pick("float32", least=1, exact=True)
    axis = pool.choice((None, *range(-value.rank, value.rank)))
    keep, last = pool.chance(0.5), pool.chance(0.2)
    high = max(1, value.size)
    pool.call(
        name,
        lambda x: operator(name)(x, axis=axis, keepdims=keep, select_last_index=last),
        value,
        low=0,
        high=high,
    )


@makes("all", "any")
def truth(pool, name):
    value = pool.pick("bool", least=1)
    axes, _ = axes_of(pool, value)
    keep = pool.chance(0.5)
    pool.call(name, lambda x: operator(name)(x, axis=axes, keepdims=keep), value)
