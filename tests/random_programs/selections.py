# SPDX-License-Identifier: Apache-2.0
"""Operators that order, scatter, gather and mark elements, that look between them, and the rests of divisions."""

import math

import numpy as np
from tvm import relay

from .elementwise import HOLDS, arithmetic_pair, number_type, operator
from .pool import MOST, Value, makes


def given(pool, array):
    """A constant or an input that holds an array."""
    low, high = float(array.min()), float(array.max())
    if pool.chance(0.5):
        return Value(relay.const(array, str(array.dtype)), array.shape, str(array.dtype), low, high, True)
    variable = relay.var(f"x{len(pool.parameters)}", shape=array.shape, dtype=str(array.dtype))
    pool.parameters.append((variable, array))
    return Value(variable, array.shape, str(array.dtype), low, high, True)


def ordered_type(pool):
    return pool.choice([pool.dtype, "int32", "int64"] if pool.dtype != "float16" else ["float32", "int32"])


@makes("topk", "sort", "argsort")
def order(pool, name):
    # The places of equal elements are told apart by where they stand; those of what is rounded are anybody's.
    value = pool.pick(ordered_type(pool), least=1, exact=True)
    if not value.exact:
        return
    axis, ascending = pool.integer(-value.rank, value.rank - 1), pool.chance(0.5)
    places, most = pool.choice(("int32", "int64")), value.shape[axis]
    if name == "sort":
        pool.call(name, lambda x: relay.sort(x, axis, ascending), value)
    elif name == "argsort":
        pool.call(name, lambda x: relay.argsort(x, axis, ascending, places), value, low=0, high=most)
    else:
        count, kind = pool.integer(1, most), pool.choice(("values", "indices", "both"))
        bounds = {
            "values": (value.low, value.high),
            "indices": (0, most),
            "both": (min(value.low, 0), max(value.high, most)),
        }
        low, high = bounds[kind]
        pool.call(name, lambda x: relay.topk(x, count, axis, kind, ascending, places), value, low=low, high=high)


@makes("cumsum")
def running_sum(pool, name):
    value = pool.pick(number_type(pool, "int32"), least=1)
    axis = pool.choice((None, *range(-value.rank, value.rank)))
    terms = value.size if axis is None else value.shape[axis]
    bound = value.bound * terms
    if not value.floating and bound > HOLDS[value.dtype]:
        return
    exclusive = pool.chance(0.3)
    pool.call(
        name, lambda x: relay.cumsum(x, axis, exclusive=exclusive), value,
        low=-bound, high=bound, exact=not value.floating,
    )  # fmt: skip


def bounds_of(mode, value, updates, times):
    """Where elements lie that are updated so often at most."""
    if mode in ("update", "min", "max"):
        return min(value.low, updates.low), max(value.high, updates.high)
    grown = value.bound * max(1.0, updates.bound) ** times
    bound = value.bound + times * updates.bound if mode == "add" else grown
    return -bound, bound


MODES = ("update", "update", "add", "mul", "min", "max")


@makes("scatter_nd")
def scatter_slices(pool, name):
    value = pool.pick(number_type(pool, "int32"), least=1, most=600)
    depth, mode = pool.integer(1, value.rank), pool.choice(MODES)
    slots = math.prod(value.shape[:depth])
    count = min(slots, pool.integer(1, 6))
    flat = pool.random.permutation(slots)[:count]  # what two updates of one element give is nobody's to say
    indices = np.stack(np.unravel_index(flat, value.shape[:depth])).astype(pool.choice(("int32", "int64")))
    updates = pool.constant((count, *value.shape[depth:]), value.dtype)
    low, high = bounds_of(mode, value, updates, 1)
    if not value.floating and max(-low, high) > HOLDS[value.dtype]:
        return
    exact = mode in ("update", "min", "max") or not value.floating
    pool.call(
        name, lambda x, i, u: relay.scatter_nd(x, i, u, mode), value, given(pool, indices), updates,
        low=low, high=high, exact=exact,
    )  # fmt: skip


@makes("scatter_elements")
def scatter_elements(pool, name):
    value = pool.pick(number_type(pool, "int32"), least=1, most=600)
    axis, mode = pool.integer(0, value.rank - 1), pool.choice(MODES)
    shape = list(value.shape)
    shape[axis] = pool.integer(1, 4)
    indices = pool.random.integers(-value.shape[axis], value.shape[axis], shape)
    updates = pool.constant(shape, value.dtype)
    low, high = bounds_of(mode, value, updates, shape[axis])
    if max(-low, high) > (1e6 if value.floating else HOLDS[value.dtype]):
        return
    exact = mode in ("update", "min", "max") or not value.floating
    pool.call(
        name, lambda x, i, u: relay.scatter_elements(x, i, u, axis, mode), value,
        given(pool, indices.astype(pool.choice(("int32", "int64")))), updates, low=low, high=high, exact=exact,
    )  # fmt: skip


@makes("gather_nd")
def gather_slices(pool, name):
    value = pool.pick(number_type(pool, "int32", "bool", "int64"), least=1, most=600)
    depth = pool.integer(1, value.rank)
    shape = pool.choice(((1,), (3,), (2, 2)))
    if math.prod(shape) * math.prod(value.shape[depth:]) > MOST:
        return
    indices = np.stack([pool.random.integers(0, n, shape) for n in value.shape[:depth]])
    places = given(pool, indices.astype(pool.choice(("int32", "int64"))))
    pool.call(name, lambda x, i: relay.gather_nd(x, i), value, places, low=value.low, high=value.high)


@makes("one_hot")
def mark(pool, name):
    dtype, depth = number_type(pool, "int32"), pool.integer(1, 6)
    shape = pool.choice(((), (3,), (2, 4)))
    indices = given(pool, np.asarray(pool.random.integers(-1, depth + 1, shape), pool.choice(("int32", "int64"))))
    on, off = (relay.const(number, dtype) for number in (2, 0))
    axis = pool.integer(-1, len(shape))
    pool.call(name, lambda i: relay.one_hot(i, on, off, depth, axis, dtype), indices, low=0, high=2, exact=True)


@makes("vision.roi_align")
def regions(pool, name):
    value = pool.pick("float32", shape=(pool.integer(1, 2), pool.integer(1, 3), pool.integer(2, 8), pool.integer(2, 8)))
    corner = pool.random.uniform(-2, 8, (3, 2))
    image = pool.random.integers(0, value.shape[0], (3, 1))
    boxes = np.concatenate([image, corner, corner + pool.random.uniform(0, 7, (3, 2))], 1).astype("float32")
    size, samples = (pool.integer(1, 3), pool.integer(1, 3)), pool.choice((-1, 1, 2))
    if samples < 0:  # TVM's kernel has room for as many samples as a box within the image has, and no more
        boxes[:, 1:] = np.clip(boxes[:, 1:], 0, min(value.shape[2:]) - 1)
    pool.call(
        name, lambda x, r: relay.vision.roi_align(x, r, size, 1.0, samples), value, given(pool, boxes),
        low=-value.bound, high=value.bound, exact=False,
    )  # fmt: skip


@makes("image.grid_sample")
def grid_sample(pool, name):
    value = pool.pick("float32", shape=(pool.integer(1, 2), pool.integer(1, 3), pool.integer(2, 8), pool.integer(2, 8)))
    shape = (value.shape[0], 2, pool.integer(1, 5), pool.integer(1, 5))
    grid = pool.constant(shape, "float32", -1.5, 1.5)
    method = pool.choice(("bilinear", "bilinear", "bicubic"))
    padding, corners = pool.choice(("zeros", "border", "reflection")), pool.chance(0.5)
    pool.call(
        name, lambda x, g: relay.image.grid_sample(x, g, method, "NCHW", padding, corners), value, grid,
        low=-3 * value.bound, high=3 * value.bound, exact=False,
    )  # fmt: skip


@makes("mod", "trunc_mod", "floor_mod", "floor_divide", weight=0.5)
def rest(pool, name):
    # Of floats: TVM 0.19 writes debug information for vectors of whole numbers that LLVM 22 does not accept.
    one, _ = arithmetic_pair(pool, exact=True)
    if not one.exact or not one.floating or one.dtype == "float16":
        return
    two = pool.constant((max(2, one.shape[-1]),) if one.rank else (3,), one.dtype, 0.5, 4.0)
    if one.rank and one.shape[-1] not in (1, two.shape[0]):
        return
    bound = one.bound * 2 + 1 if name == "floor_divide" else 4.0
    low = -bound if name in ("floor_divide", "mod", "trunc_mod") else 0.0
    # Where one is a whole multiple of the other, the last digit says on which side a rest is.
    pool.call(name, operator(name), one, two, low=low, high=bound, exact=False)


@makes("isnan", "isinf", "isfinite", weight=0.5)
def is_number(pool, name):
    value = pool.pick(pool.choice(("float32", "float32", "float64")))
    pool.call(name, operator(name), value, low=0, high=1)
