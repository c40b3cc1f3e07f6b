# SPDX-License-Identifier: Apache-2.0
"""What networks that come quantised have: numbers rounded to the steps of a scale, and back.

Rounding jumps, so that only exact values are rounded; scales are such that none lies in the middle of two steps.
"""

from tvm import relay

from .pool import makes

# The least and the greatest of a type, and zeros that are likely.
STEPS = {"uint8": (0, 255, (0, 114, 128, 255)), "int8": (-128, 127, (0, 0, -128, 5))}


def drawn_scale(pool, span, dtype):
    """A scale by which a span of numbers mostly fits into a type, as a constant."""
    low, high, _ = STEPS[dtype]
    number = float(pool.random.uniform(0.4, 1.5)) * max(span, 0.01) / (high - low)
    return pool.scalar(number, "float32")


def back(pool, steps, scale, zero):
    """The way back: (steps - zero) * scale."""
    low, high, _ = STEPS[steps.dtype]
    s, z = scale.high, zero.high
    return pool.call(
        "qnn.dequantize",
        relay.qnn.dequantize,
        steps, scale, zero,
        low=(low - z) * s, high=(high - z) * s, exact=True,
    )  # fmt: skip


@makes("qnn.quantize", weight=0.0)
def quantise(pool, name):
    """Numbers as bytes, and mostly back: of another scale or zero now and then, which no engine takes for one step."""
    value = pool.pick("float32", exact=True, empty=pool.empty)
    dtype = pool.choice(STEPS)
    low, high, zeros = STEPS[dtype]
    scale = drawn_scale(pool, value.high - value.low, dtype)
    zero = pool.scalar(pool.choice(zeros), "int32")
    steps = pool.call(
        name,
        lambda x, s, z: relay.qnn.quantize(x, s, z, out_dtype=dtype),
        value, scale, zero,
        low=low, high=high, exact=True,
    )  # fmt: skip
    if pool.chance(0.9):
        if pool.chance(0.1):
            scale = drawn_scale(pool, value.high - value.low, dtype)
        if pool.chance(0.1):
            zero = pool.scalar(pool.choice(zeros), "int32")
        numbers = back(pool, steps, scale, zero)
        if pool.chance(0.5):
            multiplied(pool, numbers)


def multiplied(pool, data):
    """What follows in networks: a layer by weights that are bytes, a scale for each of the result's channels."""
    if data.rank not in (2, 4) or not data.size:
        return
    out, inner = pool.choice((1, 2, 3, 8, 16)), data.shape[1]
    shape = (out, inner) if data.rank == 2 else (out, inner, 1, 1)
    by_channel = pool.chance(0.7)
    scale = pool.constant((out,) if by_channel else (), "float32", 0.001, 0.01)
    kept = pool.aside(
        "qnn.dequantize",
        lambda w, s, z: relay.qnn.dequantize(w, s, z, axis=0),
        pool.constant(shape, "int8", -127, 127), scale, pool.scalar(0, "int32"),
        low=-1.27, high=1.27, exact=True,
    )  # fmt: skip
    bound = data.bound * kept.bound * inner
    if data.rank == 2:
        pool.call("nn.dense", relay.nn.dense, data, kept, low=-bound, high=bound, exact=False)
    else:
        pool.call(
            "nn.conv2d",
            lambda x, w: relay.nn.conv2d(x, w, channels=out, kernel_size=(1, 1)),
            data, kept,
            low=-bound, high=bound, exact=False,
        )  # fmt: skip


@makes("qnn.dequantize", weight=0.0)
def dequantise(pool, name):
    """Bytes that came as such."""
    dtype = pool.choice(STEPS)
    steps = pool.pick(dtype, empty=pool.empty)
    scale = pool.scalar(float(pool.random.uniform(0.001, 0.02)), "float32")
    back(pool, steps, scale, pool.scalar(pool.choice(STEPS[dtype][2]), "int32"))
