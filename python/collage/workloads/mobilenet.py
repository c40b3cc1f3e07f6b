# SPDX-License-Identifier: Apache-2.0
"""MobileNet v2, after the stem and without normalisation or classifier, as the paper's code has it."""

from tvm import relay

from .network import Network

# expansion, channels, blocks, stride of the first block
SETTINGS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(batch=1):
    """[batch, 32, 224, 224] -> [batch, 1280, 14, 14]."""
    net = Network("mobilenet_v2")
    x = net.input("input0", (batch, 32, 224, 224))
    channels = 32
    index = 0
    for expansion, channels_out, blocks, first_stride in SETTINGS:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            name = f"features.{index}.conv"
            hidden = channels * expansion
            out, part = x, 0
            if expansion != 1:
                out = relay.nn.relu(net.conv(out, f"{name}.{part}", channels, hidden, 1))
                part += 2
            out = relay.nn.relu(net.conv(out, f"{name}.{part}", hidden, hidden, 3, stride, 1, groups=hidden))
            out = net.conv(out, f"{name}.{part + 2}", hidden, channels_out, 1, gain=1.0)
            x = relay.add(out, x) if stride == 1 and channels == channels_out else out
            channels = channels_out
            index += 1
    return net.finish(relay.nn.relu(net.conv(x, f"features.{index}.0", channels, 1280, 1)))
