# SPDX-License-Identifier: Apache-2.0
"""Transformer encoders: bert_full (the paper's), bert_base (Devlin et al.), bert (TASO's, without
normalisation).

bert_full has 66 operators in each of 8 layers: a normalisation of nine operators before each half (it
divides by the unbiased standard deviation plus epsilon, so it is not nn.layer_norm), six dense layers, and
the two products of attention as batch_matmul on reshaped and transposed operands, the way front ends write
a four-dimensional matmul.
"""

import math

from tvm import relay

from .network import Network


def linear(net, x, name, shape, units_in, units_out, gain=1.0):
    """Dense layer on [batch, tokens, units], shape being the first two: rows, dense, bias, back."""
    rows = relay.reshape(x, (math.prod(shape), units_in))
    return relay.reshape(net.dense(rows, name, units_in, units_out, gain), (*shape, units_out))


def _norm_by_std(net, x, name, units, epsilon=1e-6):
    """a * (x - mean) / (std + epsilon) + b over the last axis."""
    scale = net.parameter(f"{name}.a_2", (units,), mean=1.0, std=0.1)
    shift = net.parameter(f"{name}.b_2", (units,), std=0.05)
    centred = relay.subtract(x, relay.mean(x, axis=-1, keepdims=True))
    std = relay.std(x, axis=-1, keepdims=True, unbiased=True)
    scaled = relay.divide(relay.multiply(scale, centred), relay.add(std, relay.const(epsilon, "float32")))
    return relay.add(scaled, shift)


def _matmul(a, b, batch, heads, rows, inner, columns):
    """[batch, heads, rows, inner] times [batch, heads, inner, columns]: batch_matmul wants three axes and b
    transposed.
    """
    a = relay.reshape(a, (batch * heads, rows, inner))
    b = relay.transpose(relay.reshape(b, (batch * heads, inner, columns)), (0, 2, 1))
    return relay.reshape(relay.nn.batch_matmul(a, b), (batch, heads, rows, columns))


def attention(net, x, name, shape, units, heads, padding=None):
    """Multi-head self-attention on [batch, tokens, units], shape being the first two; ``padding`` is added to the
    scores of keys, [batch, 1, 1, tokens].
    """
    (batch, tokens), size = shape, units // heads

    def project(part):
        out = linear(net, x, f"{name}.{part}", shape, units, units)
        return relay.transpose(relay.reshape(out, (batch, tokens, heads, size)), (0, 2, 1, 3))

    query, key, value = (project(f"linear_layers.{index}") for index in range(3))
    scores = _matmul(query, relay.transpose(key, (0, 1, 3, 2)), batch, heads, tokens, size, tokens)
    scores = relay.divide(scores, relay.const(math.sqrt(size), "float32"))
    weights = relay.nn.softmax(scores if padding is None else relay.add(scores, padding), axis=-1)
    mixed = relay.transpose(_matmul(weights, value, batch, heads, tokens, tokens, size), (0, 2, 1, 3))
    joined = relay.reshape(mixed, (batch, tokens, units))
    return linear(net, joined, f"{name}.output_linear", shape, units, units)


def bert_full(batch=1, layers=8, tokens=64, units=256, heads=8):
    """Pre-norm encoder with ReLU: [batch, 64, 256] -> [batch, 64, 256]."""
    net = Network("bert_full")
    x = net.input("input0", (batch, tokens, units))
    shape = (batch, tokens)
    for layer in range(layers):
        name = f"transformer_blocks.{layer}"
        normed = _norm_by_std(net, x, f"{name}.input_sublayer.norm", units)
        x = relay.add(x, attention(net, normed, f"{name}.attention", shape, units, heads))
        normed = _norm_by_std(net, x, f"{name}.output_sublayer.norm", units)
        hidden = relay.nn.relu(linear(net, normed, f"{name}.feed_forward.w_1", shape, units, 4 * units))
        x = relay.add(x, linear(net, hidden, f"{name}.feed_forward.w_2", shape, 4 * units, units, gain=2.0))
    return net.finish(x)


def gelu(x):
    """x / 2 * (1 + erf(x / sqrt 2))."""
    half = relay.multiply(x, relay.const(0.5, "float32"))
    erf = relay.erf(relay.multiply(x, relay.const(1 / math.sqrt(2), "float32")))
    return relay.multiply(half, relay.add(erf, relay.const(1.0, "float32")))


def bert_base(batch=1, layers=12, tokens=384, units=768, heads=12, masked=False):
    """Post-norm encoder with GELU, after the embedding: [batch, tokens, 768] -> [batch, tokens, 768].

    ``masked`` gives it an attention mask, [batch, tokens], 0 for padding, which becomes -10000 as in Devlin et al.
    """
    net = Network("bert_base")
    x = net.input("input0", (batch, tokens, units))
    shape = (batch, tokens)
    padding = None
    if masked:
        mask = relay.cast(net.input("input1", shape, "int64"), "float32")
        hidden = relay.subtract(relay.const(1.0, "float32"), relay.reshape(mask, (batch, 1, 1, tokens)))
        padding = relay.multiply(hidden, relay.const(-10000.0, "float32"))

    def norm(x, name):
        gamma = net.parameter(f"{name}.weight", (units,), mean=1.0, std=0.1)
        return relay.nn.layer_norm(x, gamma, net.parameter(f"{name}.bias", (units,), std=0.05), epsilon=1e-12)

    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        x = norm(
            relay.add(attention(net, x, f"{name}.attention", shape, units, heads, padding), x),
            f"{name}.attention.norm",
        )
        hidden = gelu(linear(net, x, f"{name}.intermediate.dense", shape, units, 4 * units))
        x = norm(
            relay.add(linear(net, hidden, f"{name}.output.dense", shape, 4 * units, units), x),
            f"{name}.norm",
        )
    return net.finish(x)


# The last gain of each layer of bert, found by running standard normal inputs through it (geometric mean over
# eight of them): what comes out stays between 1e-18 and 1e25, where a gain of 2 ends in denormal numbers.
TASO_GAINS = (1.893, 0.2295, 0.07935, 0.06201, 0.04882, 0.06631, 0.05589, 0.04782)


def bert(tokens=64, units=1024, heads=16):
    """TASO's encoder, with neither softmax nor normalisation: [64, 1024] -> [64, 1024].

    Every layer is cubic in its input, so a relative error triples from layer to layer: made for timing, not
    for comparing results.
    """
    net = Network("bert")
    x = net.input("input0", (tokens, units))
    size = units // heads
    for layer, last_gain in enumerate(TASO_GAINS):
        name = f"nodes.{layer}"

        def heads_of(part, axes, x=x, name=name):
            # gain / size**(1/4) on both factors makes q k^T of unit size; the sum over tokens needs as much
            # again.
            gain = {"q": 1 / math.sqrt(size), "k": 1 / math.sqrt(size), "v": 1 / tokens}[part]
            out = net.dense(x, f"{name}.{part}", units, units, gain=gain, bias=False)
            return relay.transpose(relay.reshape(out, (tokens, heads, size)), axes)

        logits = relay.nn.batch_matmul(heads_of("q", (1, 0, 2)), heads_of("k", (1, 0, 2)))
        mixed = relay.nn.batch_matmul(logits, heads_of("v", (1, 2, 0)))
        mixed = relay.reshape(relay.transpose(mixed, (1, 0, 2)), (tokens, units))
        hidden = relay.nn.relu(net.dense(mixed, f"{name}.up", units, 4 * units, bias=False))
        x = net.dense(hidden, f"{name}.final", 4 * units, units, gain=last_gain, bias=False)
    return net.finish(x)
