# SPDX-License-Identifier: Apache-2.0
"""One block of decoders, after the embedding: GPT-2's (Radford et al. 2019) with a causal mask, and T5's
(Raffel et al. 2020) with a bias by distance and attention to an encoder's result.
"""

import math

import numpy as np
from tvm import relay

from .bert import linear
from .network import Network

LOWEST = float(np.finfo("float32").min)


def heads_of(x, shape, heads):
    """[batch, tokens, units] as [batch * heads, tokens, units / heads]."""
    (batch, tokens), units = shape, int(relay.transform.InferTypeLocal(x).shape[2])
    x = relay.transpose(relay.reshape(x, (batch, tokens, heads, units // heads)), (0, 2, 1, 3))
    return relay.reshape(x, (batch * heads, tokens, units // heads))


def attend(query, key, value, batch, heads, of_scores):
    """What of_scores makes of [batch, heads, queries, keys], as weights of the values: [batch, queries, units]."""
    (_, queries, size), keys = (
        [int(d) for d in relay.transform.InferTypeLocal(query).shape],
        int(relay.transform.InferTypeLocal(key).shape[1]),
    )
    scores = relay.reshape(relay.nn.batch_matmul(query, key), (batch, heads, queries, keys))
    weights = relay.reshape(relay.nn.softmax(of_scores(scores), axis=-1), (batch * heads, queries, keys))
    mixed = relay.nn.batch_matmul(weights, value, transpose_b=False)
    mixed = relay.transpose(relay.reshape(mixed, (batch, heads, queries, size)), (0, 2, 1, 3))
    return relay.reshape(mixed, (batch, queries, heads * size))


def causal_truths(tokens):
    """Which keys each query sees, as a constant."""
    return relay.const(np.tril(np.ones((1, 1, tokens, tokens), "bool")))


def gpt2_block(batch=1, tokens=128, units=768, heads=12):
    """Pre-norm block with GELU by tanh, and the padding's mask as second input: [batch, tokens, units] -> the same."""
    net = Network("gpt2_block")
    x = net.input("input0", (batch, tokens, units))
    padding = net.input("input1", (batch, 1, 1, tokens))
    shape = (batch, tokens)

    def norm(x, name):
        gamma = net.parameter(f"{name}.weight", (units,), mean=1.0, std=0.1)
        return relay.nn.layer_norm(x, gamma, net.parameter(f"{name}.bias", (units,), std=0.05), epsilon=1e-5)

    parts = relay.split(linear(net, norm(x, "ln_1"), "attn.c_attn", shape, units, 3 * units), 3, axis=2)
    query, key, value = (heads_of(parts[i], shape, heads) for i in range(3))

    def masked(scores):
        scores = relay.divide(scores, relay.const(math.sqrt(units // heads), "float32"))
        return relay.add(relay.where(causal_truths(tokens), scores, relay.const(LOWEST, "float32")), padding)

    mixed = attend(query, key, value, batch, heads, masked)
    x = relay.add(x, linear(net, mixed, "attn.c_proj", shape, units, units))
    hidden = linear(net, norm(x, "ln_2"), "mlp.c_fc", shape, units, 4 * units)
    cubed = relay.multiply(relay.power(hidden, relay.const(3.0)), relay.const(0.044715))
    inner = relay.multiply(relay.add(hidden, cubed), relay.const(math.sqrt(2 / math.pi), "float32"))
    hidden = relay.multiply(relay.multiply(hidden, relay.const(0.5)), relay.add(relay.tanh(inner), relay.const(1.0)))
    return net.finish(relay.add(x, linear(net, hidden, "mlp.c_proj", shape, 4 * units, units)))


def t5_block(batch=1, tokens=32, encoded=128, units=512, heads=8):
    """Decoder block: attention to itself and to an encoder's result (second input), ReLU: [batch, tokens, units]."""
    net = Network("t5_block")
    x = net.input("input0", (batch, tokens, units))
    encoder = net.input("input1", (batch, encoded, units))

    def norm(x, name):
        """RMS normalisation."""
        scale = relay.rsqrt(relay.add(relay.mean(relay.multiply(x, x), axis=-1, keepdims=True), relay.const(1e-6)))
        return relay.multiply(net.parameter(f"{name}.weight", (units,), mean=1.0, std=0.1), relay.multiply(x, scale))

    def dense(x, name, rows, units_in, units_out):
        flat = relay.reshape(x, (batch * rows, units_in))
        return relay.reshape(net.dense(flat, name, units_in, units_out, bias=False), (batch, rows, units_out))

    def attention(x, other, rows, name, of_scores):
        own, others = (batch, tokens), (batch, rows)
        query = heads_of(dense(x, f"{name}.q", tokens, units, units), own, heads)
        key = heads_of(dense(other, f"{name}.k", rows, units, units), others, heads)
        value = heads_of(dense(other, f"{name}.v", rows, units, units), others, heads)
        return dense(attend(query, key, value, batch, heads, of_scores), f"{name}.o", tokens, units, units)

    bias = net.parameter("relative_attention_bias", (1, heads, tokens, tokens))
    normed = norm(x, "layer.0.layer_norm")
    causal = relay.where(causal_truths(tokens), relay.const(0.0), relay.const(LOWEST, "float32"))
    own = attention(normed, normed, tokens, "layer.0.SelfAttention", lambda s: relay.add(relay.add(s, bias), causal))
    x = relay.add(x, own)
    normed = norm(x, "layer.1.layer_norm")
    x = relay.add(x, attention(normed, encoder, encoded, "layer.1.EncDecAttention", lambda s: s))
    hidden = relay.nn.relu(dense(norm(x, "layer.2.layer_norm"), "layer.2.wi", tokens, units, 4 * units))
    return net.finish(relay.add(x, dense(hidden, "layer.2.wo", tokens, 4 * units, units)))
