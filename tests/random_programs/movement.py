# SPDX-License-Identifier: Apache-2.0
"""Operators that only move values: reshapes, views, slices, joins, and constants made in the graph."""

import math

from tvm import relay

from .elementwise import number_type
from .pool import MOST, makes, split_extent

MOVED = ("int32", "bool", "int8", "float64", "float16", "int64")


def moved(pool, least=0, rank=None, most=MOST):
    return pool.pick(number_type(pool, *MOVED), least=least, rank=rank, most=most, empty=pool.empty)


def new_shape(pool, value, before=False):
    """Another shape for as many elements.

    Where there are none, an extent of 1 more, behind the others or before them: to reshape a 0 means the
    extent that is there, counted from the left, and to reverse_reshape from the right.
    """
    if value.size == 0:
        return (1, *value.shape) if before else (*value.shape, 1)
    return split_extent(pool, value.size, pool.integer(1, 5))


@makes("reshape", "contrib_reverse_reshape", "reshape_like", weight=1.5)
def reshape(pool, name):
    value = moved(pool, least=1)
    shape = new_shape(pool, value, before=name == "contrib_reverse_reshape")
    if name == "reshape_like":
        like = pool.input(shape, value.dtype)
        pool.call(name, relay.reshape_like, value, like, low=value.low, high=value.high)
        return
    build = relay.reshape if name == "reshape" else relay.reverse_reshape
    if value.size and pool.chance(0.4):
        shape = list(shape)
        shape[pool.integer(0, len(shape) - 1)] = -1
    pool.call(name, lambda x: build(x, tuple(shape)), value)


@makes("expand_dims", "squeeze", "nn.batch_flatten", "transpose", "reverse", weight=1.5)
def view(pool, name):
    value = moved(pool, least=0 if name == "expand_dims" else 1, most=1000)
    if name == "expand_dims":
        if value.rank >= 5:
            return
        axis, count = (
            pool.integer(-value.rank - 1, value.rank),
            pool.choice((1, 1, 2)) if value.rank < 4 else 1,
        )
        pool.call(name, lambda x: relay.expand_dims(x, axis, count if axis >= 0 else 1), value)
    elif name == "squeeze":
        ones = [i for i, d in enumerate(value.shape) if d == 1]
        if not ones:
            axis = pool.integer(0, value.rank)
            value = pool.call("expand_dims", lambda x: relay.expand_dims(x, axis), value)
            ones = [axis]
        axes = [pool.choice(ones)] if pool.chance(0.7) else None
        pool.call(name, lambda x: relay.squeeze(x, axes), value)
    elif name == "nn.batch_flatten":
        if value.rank >= 2:
            pool.call(name, relay.nn.batch_flatten, value)
        else:
            pool.call(name, relay.nn.batch_flatten, pool.pick(value.dtype, least=2))
    elif name == "reverse":
        axis = pool.integer(-value.rank, value.rank - 1)
        pool.call(name, lambda x: relay.reverse(x, axis), value)
    else:
        axes = [int(i) for i in pool.random.permutation(value.rank)] if pool.chance(0.9) else None
        pool.call(name, lambda x: relay.transpose(x, axes), value)


@makes("layout_transform")
def layout_transform(pool, name):
    value = pool.pick(rank=4)
    source, to = pool.choice((("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "CHWN")))
    pool.call(name, lambda x: relay.layout_transform(x, source, to), value)


@makes("concatenate", "stack", weight=2.0)
def join(pool, name):
    value = moved(pool, least=1 if name == "concatenate" else 0, most=600)
    axis = pool.integer(0, value.rank - 1) if name == "concatenate" else pool.integer(0, value.rank)
    parts = [value]
    for _ in range(pool.choice((1, 1, 2, 3, 5))):
        alike = [
            v
            for v in pool.values
            if v.dtype == value.dtype
            and v.rank == value.rank
            and v.size <= 600
            and all(
                a == b
                for i, (a, b) in enumerate(zip(v.shape, value.shape, strict=True))
                if i != axis or name == "stack"
            )
        ]
        if pool.chance(0.6):
            parts.append(pool.choice(alike or [value]))  # may be the same once more
        else:
            shape = list(value.shape)
            if name == "concatenate" and value.size:
                shape[axis] = pool.integer(1, 4)
            parts.append((pool.constant if pool.chance(0.5) else pool.input)(shape, value.dtype))
    pool.random.shuffle(parts)
    at = axis - value.rank if pool.chance(0.2) and name == "concatenate" else axis
    build = relay.concatenate if name == "concatenate" else relay.stack
    pool.call(name, lambda *xs: build(list(xs), at), *parts)


@makes("split")
def split(pool, name):
    value = moved(pool, least=1)
    axis = pool.integer(0, value.rank - 1)
    extent = value.shape[axis]
    if extent > 1 and pool.chance(0.5):
        places = sorted({pool.integer(1, extent - 1) for _ in range(pool.integer(1, 3))})
    else:
        places = pool.choice([d for d in range(1, extent + 1) if extent % d == 0] or [1])
    parts = pool.aside(name, lambda x: relay.split(x, places, axis), value)
    # Some of the fields are read by nobody.
    pool.keep_all([p for p in parts if pool.chance(0.7)] or parts[:1])


@makes("strided_slice", "slice_like")
def slices(pool, name):
    value = moved(pool, least=1)
    if name == "slice_like":
        shape = [pool.integer(1, d) if d else d for d in value.shape]
        like = pool.constant(shape, value.dtype)
        pool.call(name, relay.slice_like, value, like, low=value.low, high=value.high)
        return
    begin, end, strides = [], [], []
    for d in value.shape:
        if d == 0 or pool.chance(0.3):
            begin.append(0), end.append(d), strides.append(1)
            continue
        first = pool.integer(0, d - 1)
        if pool.chance(0.15):
            begin.append(first), end.append(-d - 1), strides.append(-1)  # backwards
        else:
            (
                begin.append(first),
                end.append(pool.integer(first + 1, d)),
                strides.append(pool.choice((1, 1, 2, 3))),
            )
    pool.call(name, lambda x: relay.strided_slice(x, begin, end, strides), value)


@makes("broadcast_to", "broadcast_to_like", "tile")
def repeat(pool, name):
    value = moved(pool, least=1, most=300)
    if name == "tile":
        times = [pool.choice((1, 1, 2, 3)) for _ in range(value.rank)]
        while value.size * math.prod(times) > MOST:
            times[times.index(max(times))] = 1
        pool.call(name, lambda x: relay.tile(x, times), value)
        return
    shape = [pool.integer(2, 4) if d == 1 else d for d in value.shape]
    if pool.chance(0.3) and value.rank < 4:
        shape = [2, *shape]
    if math.prod(shape) > MOST:
        return repeat(pool, "tile")
    if name == "broadcast_to":
        pool.call(name, lambda x: relay.broadcast_to(x, shape), value)
    else:
        like = pool.input(shape, value.dtype)
        pool.call(name, relay.broadcast_to_like, value, like, low=value.low, high=value.high)


def example(pool, dtype):
    """A value whose shape alone is read. Under TVM's virtual machine it is an input: a convolution that is fused with
    the reader and contributes nothing to its result has no schedule there ("Cannot find TOPI workload").
    """
    value = pool.pick(dtype)
    return pool.input(value.shape, dtype) if pool.scoped else value


@makes("full", "full_like", "ones", "zeros", "ones_like", "zeros_like")
def filled(pool, name):
    dtype = number_type(pool, "int32")
    if name == "full":
        shape, number = pool.shape(), pool.scalar(2.5 if dtype.startswith("float") else 3, dtype)
        pool.call(name, lambda x: relay.full(x, shape, dtype), number)
    elif name == "full_like":
        value = example(pool, dtype)
        number = pool.scalar(1.5 if dtype.startswith("float") else 2, dtype)
        pool.call(name, relay.full_like, value, number, low=number.low, high=number.high)
    elif name in ("ones", "zeros"):
        # Never a result by themselves: what is made of constants alone says nothing about a placement.
        shape, build = pool.shape(), getattr(relay, name)
        made = pool.aside(name, lambda: build(shape, dtype), low=0.0, high=1.0)
        pool.call("maximum", relay.maximum, made, pool.input(shape, dtype), low=0.0, high=4.0)
    else:
        pool.call(name, getattr(relay, name), example(pool, dtype), low=0.0, high=1.0)


@makes("take", "gather")
def taken(pool, name):
    value = moved(pool, least=1)
    if value.size == 0:
        return
    axis = pool.integer(0, value.rank - 1)
    if name == "take":
        shape = pool.choice(((), (1,), (3,), (2, 2)))
        indices = pool.indices(shape, value.shape[axis])
        mode = pool.choice(("clip", "fast", "wrap"))
        if value.size // value.shape[axis] * max(1, math.prod(shape)) <= MOST:
            pool.call(
                name,
                lambda x, i: relay.take(x, i, axis, mode=mode),
                value,
                indices,
                low=value.low,
                high=value.high,
            )
        return
    shape = [pool.integer(1, d) if i == axis else d for i, d in enumerate(value.shape)]
    indices = pool.indices(shape, value.shape[axis])
    pool.call(name, lambda x, i: relay.gather(x, axis, i), value, indices, low=value.low, high=value.high)


@makes("nn.pad", "nn.mirror_pad")
def pad(pool, name):
    value = moved(pool, least=1, most=300)
    if name == "nn.mirror_pad":
        value = pool.pick(least=1, most=300)
        mode = pool.choice(("SYMMETRIC", "REFLECT"))
        room = [d if mode == "SYMMETRIC" else d - 1 for d in value.shape]
        widths = [[pool.integer(0, min(2, r)), pool.integer(0, min(2, r))] for r in room]
        if padded(value, widths) <= MOST:
            pool.call(name, lambda x: relay.nn.mirror_pad(x, widths, mode), value)
        return
    widths = [[pool.integer(0, 2), pool.integer(0, 2)] if pool.chance(0.5) else [0, 0] for _ in value.shape]
    if padded(value, widths) > MOST or value.dtype == "bool":
        return
    mode = pool.choice(("constant", "constant", "edge", "reflect"))
    if mode == "reflect":
        widths = [[min(w, d - 1) for w in pair] if d else [0, 0] for pair, d in zip(widths, value.shape, strict=True)]
    if value.size == 0:
        mode = "constant"
    number = 0.0 if pool.chance(0.6) or not value.floating else 0.5
    low, high = min(value.low, number), max(value.high, number)
    pool.call(name, lambda x: relay.nn.pad(x, widths, number, mode), value, low=low, high=high)


def padded(value, widths):
    return math.prod(d + sum(pair) for d, pair in zip(value.shape, widths, strict=True))


@makes("nn.depth_to_space", "nn.space_to_depth")
def depth(pool, name):
    block = pool.choice((2, 3))
    n, c, h, w = pool.integer(1, 2), pool.integer(1, 4), pool.integer(1, 4), pool.integer(1, 4)
    shape = (n, c * block * block, h, w) if name == "nn.depth_to_space" else (n, c, h * block, w * block)
    value = pool.pick("float32", shape=shape)
    mode = pool.choice(("DCR", "CRD"))
    if name == "nn.depth_to_space":
        pool.call(name, lambda x: relay.nn.depth_to_space(x, block, "NCHW", mode), value)
    else:
        pool.call(name, lambda x: relay.nn.space_to_depth(x, block), value)
