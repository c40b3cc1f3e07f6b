# SPDX-License-Identifier: Apache-2.0
"""What front ends write for one thing with several operators: activations, normalisations, attention,
cells."""

import math

import numpy as np
from tvm import relay

from .elementwise import operator
from .layers import weights
from .pool import makes

ACTIVATIONS = (
    "nn.relu",
    "nn.relu",
    "clip",
    "sigmoid",
    "tanh",
    "nn.leaky_relu",
    "swish",
    "mish",
    "gelu",
    "gelu_tanh",
    "hard_swish",
    "hard_sigmoid",
)


def activation(pool, value, name=None):
    """One of them on top of a value."""
    name = name or pool.choice(ACTIVATIONS)
    if name == "nn.relu":
        return pool.call(name, relay.nn.relu, value, low=max(0.0, value.low), high=max(0.0, value.high))
    if name == "clip":
        low, high = pool.choice(((0.0, 6.0), (-1.0, 1.0), (0.0, 0.5)))
        return pool.call(name, lambda x: relay.clip(x, low, high), value, low=low, high=high)
    if name == "nn.leaky_relu":
        return pool.call(name, lambda x: relay.nn.leaky_relu(x, 0.125), value, exact=False)
    if name in ("sigmoid", "tanh"):
        return pool.call(name, operator(name), value, low=-1.0 if name == "tanh" else 0.0, high=1.0, exact=False)
    value = pool.tamed(value, 64.0)
    pool.made.append(name)
    bound, fixed = value.bound + 1, _Fixed(pool)
    return pool.call("", lambda x: WRITTEN[name](fixed, x, value.dtype), value, low=-bound, high=bound, exact=False)


def number(value, dtype):
    return relay.const(value, dtype)


def swish(pool, x, dtype):
    return relay.multiply(x, relay.sigmoid(x))


def mish(pool, x, dtype):
    return relay.multiply(x, relay.tanh(relay.log(relay.add(relay.exp(x), number(1.0, dtype)))))


def gelu(pool, x, dtype):
    form = pool.integer(0, 3)
    if pool.chance(0.5):
        erf = relay.erf(relay.divide(x, number(math.sqrt(2), dtype)))
    else:
        erf = relay.erf(relay.multiply(x, number(math.sqrt(0.5), dtype)))
    half, one = number(0.5, dtype), number(1.0, dtype)
    if form == 0:
        return relay.multiply(relay.multiply(x, relay.add(erf, one)), half)
    if form == 1:
        return relay.multiply(relay.multiply(x, half), relay.add(one, erf))
    if form == 2:
        return relay.multiply(x, relay.multiply(relay.add(erf, one), half))
    return relay.multiply(x, relay.add(relay.multiply(erf, half), half))


def gelu_tanh(pool, x, dtype):
    cube = relay.multiply(relay.multiply(x, x), x) if pool.chance(0.5) else relay.power(x, number(3.0, dtype))
    first = math.sqrt(2 / math.pi)
    if pool.integer(0, 3) < 2:
        inner = relay.multiply(relay.add(x, relay.multiply(cube, number(0.044715, dtype))), number(first, dtype))
    else:
        thirds = relay.multiply(cube, number(0.044715 * first, dtype))
        inner = relay.add(relay.multiply(x, number(first, dtype)), thirds)
    half, one = number(0.5, dtype), number(1.0, dtype)
    return relay.multiply(relay.multiply(x, half), relay.add(relay.tanh(inner), one))


def sixth(pool, x, dtype):
    if pool.chance(0.5):
        return relay.divide(x, number(6.0, dtype))
    return relay.multiply(x, number(1.0 / 6, dtype))


def relu_six(x, dtype):
    return relay.clip(relay.add(x, number(3.0, dtype)), 0.0, 6.0)


def hard_swish(pool, x, dtype):
    form = pool.integer(0, 3)
    if form == 0:
        return relay.multiply(x, sixth(pool, relu_six(x, dtype), dtype))
    if form == 1:
        return sixth(pool, relay.multiply(x, relu_six(x, dtype)), dtype)
    if form == 2:
        return relay.multiply(sixth(pool, x, dtype), relu_six(x, dtype))
    return relay.multiply(x, relay.clip(relay.add(sixth(pool, x, dtype), number(0.5, dtype)), 0.0, 1.0))


def hard_sigmoid(pool, x, dtype):
    form = pool.integer(0, 3)
    if form < 2:
        return sixth(pool, relu_six(x, dtype), dtype)
    sloped = sixth(pool, x, dtype) if form == 2 else relay.multiply(x, number(0.2, dtype))
    return relay.clip(relay.add(sloped, number(0.5, dtype)), 0.0, 1.0)


class _Fixed:
    """What one expression drew: it is written twice (for its type, for itself) and must be the same."""

    def __init__(self, pool):
        self.form, self.yes = pool.integer(0, 3), pool.chance(0.5)

    def integer(self, low, high):
        return self.form

    def chance(self, probability):
        return self.yes


WRITTEN = {
    "swish": swish, "mish": mish, "gelu": gelu, "gelu_tanh": gelu_tanh, "hard_swish": hard_swish,
    "hard_sigmoid": hard_sigmoid,
}  # fmt: skip


@makes(*WRITTEN)
def written_activation(pool, name):
    value = pool.tamed(pool.pick("float32"), 16.0)
    fixed = _Fixed(pool)
    pool.made.append(name)
    bound = value.bound + 1
    pool.call("", lambda x: WRITTEN[name](fixed, x, "float32"), value, low=-bound, high=bound, exact=False)


@makes("unfolded_layer_norm", "unfolded_standardise")
def unfolded_norm(pool, name):
    """Normalisation as the arithmetic that exporters write."""
    value = pool.tamed(pool.pick("float32", least=2), 16.0)
    extent = value.shape[-1]
    gamma, beta = pool.constant((extent,), "float32", 0.5, 1.5), pool.constant((extent,), "float32")
    how, twice = pool.integer(0, 2), pool.chance(0.3)
    epsilon = number(0.0625, "float32")
    axis = [-1]

    def layer_norm(x, g, b):
        mean = relay.mean(x, axis, keepdims=True)
        centred = relay.subtract(x, mean)
        if twice:
            variance = relay.variance(x, axis, keepdims=True)
        elif how == 0:
            variance = relay.mean(relay.power(centred, number(2.0, "float32")), axis, keepdims=True)
        else:
            variance = relay.mean(relay.multiply(centred, centred), axis, keepdims=True)
        shifted = relay.add(variance, epsilon)
        if how == 0:
            normal = relay.divide(centred, relay.sqrt(shifted))
        elif how == 1:
            normal = relay.multiply(centred, relay.divide(number(1.0, "float32"), relay.sqrt(shifted)))
        else:
            normal = relay.multiply(centred, relay.rsqrt(shifted))
        return relay.add(relay.multiply(normal, g), b)

    def standardise(x, g, b):
        mean = relay.mean(x, axis, keepdims=True)
        centred = relay.subtract(x, mean)
        deviation = relay.add(relay.sqrt(relay.variance(x, axis, keepdims=True)), epsilon)
        if how == 0:
            scaled = relay.divide(relay.multiply(g, centred), deviation)
        else:
            scaled = relay.multiply(g, relay.divide(centred, deviation))
        return relay.add(scaled, b)

    build = layer_norm if name == "unfolded_layer_norm" else standardise
    pool.made.append(name)
    bound = 6.0 * value.bound * 2 + 1  # divided by 1/4 at least
    pool.call("", build, value, gamma, beta, low=-bound, high=bound, exact=False)


@makes("unfolded_rms_norm", "summed_layer_norm")
def norm_of_a_sum(pool, name):
    """Rows that are normalised after something was added to them; the sum may be read again."""
    value = pool.tamed(pool.pick("float32", least=1), 16.0)
    extent = value.shape[-1:]
    gamma, beta = pool.constant(extent, "float32", 0.5, 1.5), pool.constant(extent, "float32")
    if pool.chance(0.7):
        other = pool.choice((pool.constant(extent, "float32"), pool.constant(value.shape, "float32")))
        value = pool.call("add", relay.add, value, other, low=value.low - 1, high=value.high + 1, exact=False)
    epsilon, how = number(0.0625, "float32"), pool.integer(0, 2)
    scaled, shifted = pool.chance(0.8), name == "summed_layer_norm" and pool.chance(0.8)

    def build(x, g, b):
        if name == "summed_layer_norm":
            mean = relay.mean(x, [-1], keepdims=True)
            square = relay.variance(x, [-1], keepdims=True, with_mean=mean)
            x = relay.subtract(x, mean)
        else:
            square = relay.mean(relay.multiply(x, x), [-1], keepdims=True)
        square = relay.add(square, epsilon)
        if how == 0:
            x = relay.divide(x, relay.sqrt(square))
        elif how == 1:
            x = relay.multiply(x, relay.divide(number(1.0, "float32"), relay.sqrt(square)))
        else:
            x = relay.multiply(relay.rsqrt(square), x)
        x = relay.multiply(g, x) if scaled else x
        return relay.add(x, b) if shifted else x

    pool.made.append(name)
    bound = 12.0 * value.bound + 1  # divided by 1/4 at least
    made = pool.call("", build, value, gamma, beta, low=-bound, high=bound, exact=False)
    if pool.chance(0.3):
        activation(pool, made)


@makes("unfolded_group_norm", "unfolded_instance_norm", "unfolded_batch_norm")
def norm_of_channels(pool, name):
    """Normalisations of images as SimplifyInference leaves them."""
    value = pool.tamed(pool.pick("float32", least=3), 16.0)
    last = name != "unfolded_batch_norm" and pool.chance(0.4)  # channels innermost
    batch, *space = value.shape
    channels = space.pop(-1 if last else 0)
    scale = (channels,) + (1,) * (0 if last else len(space))
    gamma, beta = pool.constant(scale, "float32", 0.5, 1.5), pool.constant(scale, "float32")
    group = pool.choice([g for g in range(1, channels + 1) if channels % g == 0])
    epsilon = number(0.0625, "float32")

    def normal(x, axes):
        mean = relay.mean(x, axes, keepdims=True)
        variance = relay.variance(x, axes, keepdims=True, with_mean=mean)
        return relay.divide(relay.subtract(x, mean), relay.sqrt(relay.add(variance, epsilon)))

    def build(x, g, b):
        if name == "unfolded_instance_norm":
            x = normal(x, list(range(1, len(space) + 1) if last else range(2, len(value.shape))))
        elif name == "unfolded_group_norm" and last:
            parts = relay.reshape(x, (batch, *space, channels // group, group))
            x = relay.reshape(normal(parts, [*range(1, len(space) + 1), len(space) + 2]), value.shape)
        elif name == "unfolded_group_norm":
            parts = relay.reshape(x, (batch, channels // group, group, *space))
            x = relay.reshape(normal(parts, list(range(2, len(value.shape) + 1))), value.shape)
        return relay.add(relay.multiply(x, g), b)

    pool.made.append(name)
    bound = 12.0 * value.bound + 1
    made = pool.call("", build, value, gamma, beta, low=-bound, high=bound, exact=False)
    if pool.chance(0.5):
        activation(pool, made)


@makes("attention", "causal_attention", "grouped_attention")
def attention(pool, name):
    """Query, key and value of one tensor, heads, scores with masks or without, and what they select. Causal: each
    query sees the keys up to its own; grouped: several heads share key and value.
    """
    heads, depth = pool.choice((1, 2, 3)), pool.choice((4, 8, 16))
    shared = pool.choice((2, 3)) if name == "grouped_attention" else 1
    heads *= shared
    batch, length = pool.choice((1, 2)), pool.choice((1, 3, 8, 10))
    width = heads * depth
    data = pool.tamed(pool.pick("float32", shape=(batch * length, width)), 2.0)
    pool.made.append(name)

    def project(columns):
        weight, gain = weights(pool, (columns, width), width)
        bound = data.bound * gain
        one = pool.call(
            "nn.dense", lambda x, w: relay.nn.dense(x, w), data, weight, low=-bound, high=bound, exact=False
        )
        if pool.chance(0.6):
            bias = pool.constant((columns,), "float32")
            one = pool.call("add", relay.add, one, bias, low=-bound - 1, high=bound + 1)
        return one

    def split(value, shared):
        own = heads // shared
        four = pool.aside("reshape", lambda x: relay.reshape(x, (batch, length, own, depth)), value)
        turned = pool.aside("transpose", lambda x: relay.transpose(x, (0, 2, 1, 3)), four)
        if shared > 1:
            turned = pool.aside("repeat", lambda x: relay.repeat(x, shared, axis=1), turned)
        return pool.aside("reshape", lambda x: relay.reshape(x, (batch * heads, length, depth)), turned)

    query, key, value = (split(project(width // few), few) for few in (1, shared, shared))
    bound = depth * query.bound * key.bound
    scores = pool.aside(
        "nn.batch_matmul",
        lambda q, k: relay.nn.batch_matmul(q, k, transpose_b=True),
        query,
        key,
        low=-bound,
        high=bound,
        exact=False,
    )
    if pool.chance(0.7):
        scale = pool.scalar(math.sqrt(depth), "float32")
        scores = pool.aside("divide", relay.divide, scores, scale, low=-bound, high=bound)
    if pool.chance(0.5):
        mask = pool.input((batch, 1, 1, length), "float32", -4.0, 0.0)
        four = pool.aside("reshape", lambda x: relay.reshape(x, (batch, heads, length, length)), scores)
        masked = pool.aside("add", relay.add, four, mask, low=-bound - 4, high=bound)
        scores = pool.aside("reshape", lambda x: relay.reshape(x, (batch * heads, length, length)), masked)
    if name == "causal_attention":
        seen, beyond = np.tril(np.ones((length, length), "bool")), pool.choice((-1e4, -1e9))
        if pool.chance(0.5):
            causal = relay.const(np.where(seen, 0.0, beyond).astype("float32"))
            scores = pool.aside("add", lambda x: relay.add(x, causal), scores, low=beyond - bound, high=bound)
        else:
            truths, hidden = relay.const(seen[None]), number(beyond, "float32")
            scores = pool.aside("where", lambda x: relay.where(truths, x, hidden), scores, low=beyond, high=bound)
    share = pool.aside("nn.softmax", lambda x: relay.nn.softmax(x, -1), scores, low=0.0, high=1.0, exact=False)
    if pool.chance(0.1):
        pool.keep(share)  # somebody else reads them, too
    mixed = pool.aside(
        "nn.batch_matmul",
        lambda p, v: relay.nn.batch_matmul(p, v, transpose_b=False),
        share,
        value,
        low=value.low,
        high=value.high,
        exact=False,
    )
    four = pool.aside("reshape", lambda x: relay.reshape(x, (batch, heads, length, depth)), mixed)
    turned = pool.aside("transpose", lambda x: relay.transpose(x, (0, 2, 1, 3)), four)
    pool.call("reshape", lambda x: relay.reshape(x, (batch * length, width)), turned)


@makes("cell")
def cell(pool, name):
    """A cell of separable convolutions, pools, sums, and the concatenation of what they make."""
    channels, side = pool.choice((4, 8, 16)), pool.choice((6, 8))
    data = pool.tamed(pool.pick("float32", shape=(1, channels, side, side)), 4.0)
    pool.made.append(name)

    def separable(value):
        k = pool.choice((3, 5))
        deep, gain = weights(pool, (channels, 1, k, k), k * k)
        bound = value.bound * gain
        one = pool.call(
            "nn.conv2d",
            lambda x, w: relay.nn.conv2d(
                x, w, padding=(k // 2, k // 2), groups=channels, channels=channels, kernel_size=(k, k)
            ),
            value,
            deep,
            low=-bound,
            high=bound,
            exact=False,
        )
        point, gain = weights(pool, (channels, channels, 1, 1), channels)
        bound *= gain
        two = pool.call(
            "nn.conv2d",
            lambda x, w: relay.nn.conv2d(x, w, channels=channels, kernel_size=(1, 1)),
            one,
            point,
            low=-bound,
            high=bound,
            exact=False,
        )
        return activation(pool, two, "nn.relu")

    def pooled(value):
        return pool.call(
            "nn.avg_pool2d",
            lambda x: relay.nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1)),
            value,
            low=min(0.0, value.low),
            high=max(0.0, value.high),
            exact=False,
        )

    parts = [data]
    for _ in range(pool.integer(1, 3)):
        one, two = (pool.choice((separable, pooled))(pool.choice(parts)) for _ in range(2))
        parts.append(
            pool.call("add", relay.add, one, two, low=one.low + two.low, high=one.high + two.high, exact=False)
        )
    pool.call("concatenate", lambda *xs: relay.concatenate(list(xs), 1), *parts[1:], data)


@makes("residual", weight=1.5)
def residual(pool, name):
    """A block whose argument is added to its result."""
    channels = pool.choice((4, 8, 16, 16, 32))
    data = pool.tamed(pool.pick("float32", shape=(pool.choice((1, 2)), channels, *(pool.choice((3, 5, 7)),) * 2)), 4.0)
    pool.made.append(name)
    value = data
    for _ in range(pool.integer(1, 2)):
        weight, gain = weights(pool, (channels, channels, 3, 3), 9 * channels)
        bound = value.bound * gain
        value = pool.call(
            "nn.conv2d",
            lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1), channels=channels, kernel_size=(3, 3)),
            value, weight, low=-bound, high=bound, exact=False,
        )  # fmt: skip
        if pool.chance(0.5):
            value = activation(pool, value)
    low, high = value.low + data.low, value.high + data.high
    value = pool.call("add", relay.add, value, data, low=low, high=high, exact=False)
    activation(pool, value, "nn.relu" if pool.chance(0.5) else None)


@makes("twins")
def twins(pool, name):
    """Layers of one tensor beside one another, as query, key and value are."""
    data = pool.tamed(pool.pick("float32", rank=2), 16.0)
    pool.made.append(name)
    for _ in range(pool.integer(2, 3)):
        k, n = data.shape[1], pool.choice((8, 16, 16, 32))
        weight, gain = weights(pool, (n, k), k)
        bound = data.bound * gain
        pool.call("nn.dense", lambda x, w: relay.nn.dense(x, w), data, weight, low=-bound, high=bound, exact=False)


@makes("twice")
def twice(pool, name):
    """The same computation once more: equal expressions, not one shared one."""
    value = pool.tamed(pool.pick("float32"), 4.0)
    pool.made.append(name)
    for _ in range(2):
        pool.call("tanh", relay.tanh, value, low=-1.0, high=1.0, exact=False)
