# SPDX-License-Identifier: Apache-2.0
"""U-Net (Ronneberger et al. 2015) as it is used today: padded 3x3 convolutions, batch normalisation, four
levels, upsampling by nearest neighbours and a 3x3 convolution on the way up.
"""

from tvm import relay

from .network import Network

WIDTHS = (32, 64, 128, 256, 512)


def unet(batch=1):
    """[batch, 3, 256, 256] -> [batch, 1, 256, 256]."""
    net = Network("unet")

    def conv(x, name, channels_in, channels_out):
        x = net.conv(x, name, channels_in, channels_out, 3, padding=1)
        return relay.nn.relu(net.batch_norm(x, f"{name}.norm", channels_out))

    def double(x, name, channels_in, channels_out):
        return conv(conv(x, f"{name}.0", channels_in, channels_out), f"{name}.1", channels_out, channels_out)

    x, channels, levels = net.input("input0", (batch, 3, 256, 256)), 3, []
    for level, width in enumerate(WIDTHS):
        if level:
            x = relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
        x = double(x, f"down.{level}", channels, width)
        levels.append(x)
        channels = width
    for level in reversed(range(len(WIDTHS) - 1)):
        width = WIDTHS[level]
        up = conv(relay.nn.upsampling(x, scale_h=2, scale_w=2), f"up.{level}", channels, width)
        x = double(relay.concatenate([levels[level], up], axis=1), f"join.{level}", 2 * width, width)
        channels = width
    return net.finish(relay.sigmoid(net.conv(x, "last", channels, 1, 1, bias=True, gain=1.0)))
