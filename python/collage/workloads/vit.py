# SPDX-License-Identifier: Apache-2.0
"""ViT-B/16 (Dosovitskiy et al. 2021): patches of 16x16 pixels, a class token, 12 encoder layers, a
classifier.
"""

from tvm import relay

from .bert import attention, gelu, linear
from .network import Network

SIDE, PATCH, UNITS, HEADS, LAYERS = 224, 16, 768, 12, 12


def vit_b16(batch=1):
    """[batch, 3, 224, 224] -> [batch, 1000], on 197 tokens."""
    net = Network("vit_b16")
    x = net.conv(net.input("input0", (batch, 3, SIDE, SIDE)), "conv_proj", 3, UNITS, PATCH, PATCH, bias=True)
    patches = (SIDE // PATCH) ** 2
    x = relay.transpose(relay.reshape(x, (batch, UNITS, patches)), (0, 2, 1))
    token = relay.broadcast_to(net.parameter("class_token", (1, 1, UNITS), std=0.02), (batch, 1, UNITS))
    shape = (batch, patches + 1)
    x = relay.add(
        relay.concatenate([token, x], axis=1),
        net.parameter("pos_embedding", (1, *shape[1:], UNITS), std=0.02),
    )

    def norm(x, name):
        gamma = net.parameter(f"{name}.weight", (UNITS,), mean=1.0, std=0.1)
        return relay.nn.layer_norm(x, gamma, net.parameter(f"{name}.bias", (UNITS,), std=0.05), epsilon=1e-6)

    for layer in range(LAYERS):
        name = f"encoder.layers.{layer}"
        x = relay.add(x, attention(net, norm(x, f"{name}.ln_1"), f"{name}.self_attention", shape, UNITS, HEADS))
        hidden = gelu(linear(net, norm(x, f"{name}.ln_2"), f"{name}.mlp.0", shape, UNITS, 4 * UNITS))
        x = relay.add(x, linear(net, hidden, f"{name}.mlp.3", shape, 4 * UNITS, UNITS))
    x = relay.take(norm(x, "encoder.ln"), relay.const(0, "int64"), axis=1)
    return net.finish(net.dense(x, "heads.head", UNITS, 1000))
