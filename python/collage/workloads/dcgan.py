# SPDX-License-Identifier: Apache-2.0
"""DCGAN at 256x256: generator, then discriminator, in one network (30 operators, 53 million parameters)."""

from tvm import relay

from .network import Network

LATENT = 100
IMAGE = 256


def _generator(net, z):
    side = IMAGE // 4
    x = net.dense(z, "generator.l1.0", LATENT, 128 * side * side)
    x = relay.reshape(x, (-1, 128, side, side))
    x = relay.nn.upsampling(x, scale_h=2, scale_w=2)
    x = relay.nn.relu(net.conv(x, "generator.conv_blocks.1", 128, 128, 3, padding=1, bias=True))
    x = relay.nn.upsampling(x, scale_h=2, scale_w=2)
    x = relay.nn.relu(net.conv(x, "generator.conv_blocks.4", 128, 64, 3, padding=1, bias=True))
    return relay.tanh(net.conv(x, "generator.conv_blocks.6", 64, 3, 3, padding=1, bias=True, gain=1.0))


def _discriminator(net, image):
    x = image
    channels = (3, 16, 32, 64, 128)
    for block in range(4):
        name = f"discriminator.model.{2 * block}"
        x = relay.nn.relu(net.conv(x, name, channels[block], channels[block + 1], 3, stride=2, padding=1, bias=True))
    side = IMAGE // 16
    x = relay.reshape(x, (-1, 128 * side * side))
    return relay.sigmoid(net.dense(x, "discriminator.adv_layer.0", 128 * side * side, 1))


def dcgan(batch=1):
    """A latent vector to the discriminator's verdict on its picture: [batch, 100] -> [batch, 1]."""
    net = Network("dcgan")
    z = net.input("input0", (batch, LATENT))
    return net.finish(_discriminator(net, _generator(net, z)))
