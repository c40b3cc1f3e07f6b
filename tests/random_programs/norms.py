# SPDX-License-Identifier: Apache-2.0
"""Normalisations and softmax."""

from tvm import relay

from .elementwise import operator
from .layers import image
from .pool import makes


def scale_and_shift(pool, extent):
    return pool.constant((extent,), "float32", 0.5, 1.5), pool.constant((extent,), "float32")


def spread(extent):
    """The greatest magnitude of a normalised value of so many."""
    return extent**0.5 * 1.5 + 1.0


@makes("nn.softmax", "nn.log_softmax")
def softmax(pool, name):
    value = pool.tamed(pool.pick("float32", least=1), 16.0)
    axis = pool.choice((-1, -1, pool.integer(0, value.rank - 1)))
    low, high = (0.0, 1.0) if name == "nn.softmax" else (-45.0, 0.0)
    pool.call(name, lambda x: operator(name)(x, axis), value, low=low, high=high, exact=False)


@makes("nn.layer_norm")
def layer_norm(pool, name):
    value = pool.tamed(pool.pick("float32", least=2), 16.0)
    axis = -1 if pool.chance(0.8) else pool.integer(0, value.rank - 1)
    gamma, beta = scale_and_shift(pool, value.shape[axis])
    bound = spread(value.shape[axis])
    epsilon = pool.choice((1e-3, 1e-2))
    pool.call(name, lambda x, g, b: relay.nn.layer_norm(x, g, b, axis, epsilon), value, gamma, beta,
              low=-bound, high=bound, exact=False)  # fmt: skip


@makes("nn.batch_norm", weight=1.5)
def batch_norm(pool, name):
    value = pool.tamed(pool.pick("float32", least=2), 16.0)
    axis = 1 if pool.chance(0.85) else value.rank - 1
    extent = value.shape[axis]
    gamma, beta = scale_and_shift(pool, extent)
    mean, variance = pool.constant((extent,), "float32"), pool.constant((extent,), "float32", 0.5, 2.0)
    bound = (value.bound + 1) * 1.5 * 1.5 + 1
    pool.call(
        name,
        lambda x, g, b, m, v: relay.nn.batch_norm(x, g, b, m, v, axis, 1e-3)[0],
        value,
        gamma,
        beta,
        mean,
        variance,
        low=-bound,
        high=bound,
        exact=False,
    )


@makes("nn.instance_norm", "nn.group_norm")
def per_image(pool, name):
    value = pool.tamed(image(pool, 2, "NCHW"), 16.0)
    channels = value.shape[1]
    gamma, beta = scale_and_shift(pool, channels)
    bound = spread(value.size)
    if name == "nn.group_norm":
        groups = pool.choice([g for g in range(1, channels + 1) if channels % g == 0])
        pool.call(
            name,
            lambda x, g, b: relay.nn.group_norm(x, g, b, groups, axis=1, epsilon=1e-2),
            value,
            gamma,
            beta,
            low=-bound,
            high=bound,
            exact=False,
        )
    else:
        pool.call(name, lambda x, g, b: relay.nn.instance_norm(x, g, b, 1, 1e-2), value, gamma, beta,
                  low=-bound, high=bound, exact=False)  # fmt: skip


@makes("nn.l2_normalize")
def l2_normalize(pool, name):
    value = pool.tamed(pool.pick("float32", least=2), 16.0)
    axes = [pool.integer(0, value.rank - 1)]
    pool.call(name, lambda x: relay.nn.l2_normalize(x, 1e-2, axes), value, low=-1.0, high=1.0, exact=False)


@makes("nn.lrn")
def lrn(pool, name):
    value = pool.tamed(image(pool, 2, "NCHW"), 16.0)
    size = pool.choice((1, 3, 5))
    pool.call(
        name,
        lambda x: relay.nn.lrn(x, size, 1, 2.0, 1e-2, 0.75),
        value,
        low=-value.bound,
        high=value.bound,
        exact=False,
    )


@makes("nn.dropout", weight=0.3)
def dropout(pool, name):
    value = pool.pick("float32", least=1)
    pool.call(name, lambda x: relay.nn.dropout(x, 0.5), value)
