# SPDX-License-Identifier: Apache-2.0
"""Numbers that depend on names alone: whoever draws them, in whichever process, gets the same. It takes no TVM."""

import functools
import hashlib
import math

import numpy as np

# Normal numbers are drawn once and then taken from there: so many are more than the caches of any machine
# hold, and as it is a prime, nothing that is repeated falls on the same place again.
_DRAWN = 4_000_037


def generator(*parts):
    """A random generator that depends on ``parts`` only, so that a key always gets the same numbers."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode("utf-8")).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest[:16], "little")))


@functools.cache
def _drawn():
    return generator("normal").standard_normal(_DRAWN, dtype=np.float32)


def _normal(shape, rng):
    size = math.prod(shape)
    if size < 1024:
        return rng.standard_normal(shape, dtype=np.float32)
    drawn, array = _drawn(), np.empty(size, np.float32)
    filled, start = 0, int(rng.integers(0, _DRAWN))
    while filled < size:
        part = drawn[start : start + size - filled]
        array[filled : filled + part.size] = part
        filled, start = filled + part.size, 0
    return array.reshape(shape)


def random_array(shape, dtype, rng, positive=False, scale=1.0):
    """Values that suit most operators: normal for floats, 0 or 1 for integers (valid as indices too)."""
    if dtype.startswith(("float", "bfloat")):
        array = _normal(shape, rng)
        if scale != 1.0:
            array *= np.float32(scale)
        if positive:
            array = np.abs(array) + np.float32(0.1)
        return array.astype(dtype, copy=False)
    return rng.integers(0, 2, size=shape).astype(dtype)


def _is_mask(name, shape, dtype):
    """Whether an input says by its name that it tells the tokens of a batch of sentences from their padding."""
    whole = dtype == "bool" or dtype.startswith(("int", "uint"))
    return whole and "mask" in name.lower() and len(shape) == 2 and shape[1] > 1


def _mask(shape, dtype, rng):
    """Sentences of 1 to as many tokens as there are places, padded behind."""
    batch, length = shape
    return (np.arange(length) < rng.integers(1, length + 1, size=(batch, 1))).astype(dtype)


def inputs(seed, types):
    """What a network is given, {name: array}; ``types`` is {name: (shape, dtype)}."""
    given = {}
    for name, (shape, dtype) in types.items():
        draw = _mask if _is_mask(name, shape, dtype) else random_array
        given[name] = draw(shape, dtype, generator(seed, "input", name))
    return given
