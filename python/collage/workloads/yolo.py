# SPDX-License-Identifier: Apache-2.0
"""YOLO v3: Darknet-53 and three detection heads, with batch normalisation; the raw maps of the heads come
out.
"""

from tvm import relay

from .network import Network

CLASSES = 80
OUTPUTS = 3 * (5 + CLASSES)


def yolov3(batch=1):
    """[batch, 3, 416, 416] -> maps of [batch, 255, side, side] for the sides 13, 26 and 52."""
    net = Network("yolov3")
    index = 0

    def conv(x, channels_in, channels_out, kernel, stride=1, gain=2.0):
        nonlocal index
        name = f"module_list.{index}"
        index += 1
        x = net.conv(x, f"{name}.conv", channels_in, channels_out, kernel, stride, kernel // 2, gain=gain)
        return relay.nn.leaky_relu(net.batch_norm(x, f"{name}.batch_norm", channels_out), alpha=0.1)

    x = conv(net.input("input0", (batch, 3, 416, 416)), 3, 32, 3)
    taps = []
    channels = 32
    for blocks in (1, 2, 8, 8, 4):
        x = conv(x, channels, 2 * channels, 3, stride=2)
        channels *= 2
        for _ in range(blocks):
            x = relay.add(x, conv(conv(x, channels, channels // 2, 1), channels // 2, channels, 3, gain=0.5))
        taps.append(x)

    heads = []
    x, channels_in = taps[4], 1024
    for level, channels in enumerate((512, 256, 128)):
        for kernel in (1, 3, 1, 3, 1):
            channels_out = channels if kernel == 1 else 2 * channels
            x = conv(x, channels_in, channels_out, kernel)
            channels_in = channels_out
        heads.append(net.conv(conv(x, channels, 2 * channels, 3), f"head.{level}", 2 * channels, OUTPUTS, 1, bias=True))
        if level < 2:
            up = relay.nn.upsampling(conv(x, channels, channels // 2, 1), scale_h=2, scale_w=2)
            x = relay.concatenate([up, taps[3 - level]], axis=1)
            channels_in = channels // 2 + channels
    return net.finish(relay.Tuple(heads))
