# SPDX-License-Identifier: Apache-2.0
"""NASNet-A as TASO and Collage benchmark it: three stages of five normal cells, a reduction cell between
stages.

427 operators: 204 convolutions (half of the separable ones depthwise), 49 average pools, 85 adds.
Concatenations are five ways wide. Every cell reads its two predecessors, so the graph shares a great deal:
passes that walk it as a tree do not finish.
"""

from tvm import relay

from .network import Network

CHANNELS = 64
CELLS = 5


def _fit(net, x, name, channels_in, channels_out):
    """1x1 convolution, bias and ReLU: what a cell does to each of its two inputs."""
    return relay.nn.relu(net.conv(x, f"{name}.0", channels_in, channels_out, 1, bias=True))


def _separable(net, x, name, channels, kernel, stride):
    x = net.conv(
        x,
        f"{name}.depthwise_conv2d",
        channels,
        channels,
        kernel,
        stride,
        kernel // 2,
        groups=channels,
        gain=1.0,
    )
    return net.conv(x, f"{name}.pointwise_conv2d", channels, channels, 1, gain=1.0)


def _average(x, stride=1):
    return relay.nn.avg_pool2d(x, pool_size=(3, 3), strides=(stride, stride), padding=(1, 1), count_include_pad=False)


def _maximum(x):
    return relay.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))


def _normal(net, name, previous, current, channels):
    """One normal cell on (expression, channels) pairs; its five sums side by side."""
    cur = _fit(net, current[0], f"{name}.squeeze", current[1], channels)
    prev = _fit(net, previous[0], f"{name}.fit", previous[1], channels)

    def separable(x, index):
        return _separable(net, x, f"{name}.nodes.{index}", channels, 3, 1)

    sums = [
        relay.add(separable(cur, 0), cur),
        relay.add(separable(prev, 1), separable(cur, 2)),
        relay.add(_average(cur), prev),
        # Two calls of one pooling, as in the original: whether to share them is the compiler's business.
        relay.add(_average(prev), _average(prev)),
        relay.add(separable(prev, 3), separable(prev, 4)),
    ]
    return relay.concatenate(sums, axis=1), 5 * channels


def _reduction(net, name, previous, current, channels):
    """One reduction cell: halves height and width."""
    cur = _fit(net, current[0], f"{name}.squeeze", current[1], channels)
    prev = _fit(net, previous[0], f"{name}.fit", previous[1], channels)

    def separable(x, part, kernel, stride):
        return _separable(net, x, f"{name}.{part}", channels, kernel, stride)

    first = relay.add(separable(prev, "conv7_1", 7, 2), separable(cur, "conv5_1", 5, 2))
    second = relay.add(_maximum(cur), separable(prev, "conv7_2", 7, 2))
    third = relay.add(_average(cur, 2), separable(prev, "conv5_2", 5, 2))
    fourth = relay.add(_maximum(cur), separable(first, "conv3_1", 3, 1))
    fifth = relay.add(_average(first), second)
    return relay.concatenate([first, second, third, fourth, fifth], axis=1), 5 * channels


def nasneta(batch=1):
    """[batch, 64, 56, 56] -> [batch, 1280, 14, 14]."""
    net = Network("nasneta")
    current = previous = (net.input("input0", (batch, CHANNELS, 56, 56)), CHANNELS)
    for stage in range(3):
        channels = CHANNELS << stage
        if stage:
            current = _reduction(net, f"reduction_cell_{stage - 1}", previous, current, channels)
            previous = current
        for cell in range(CELLS):
            name = f"normal_cell_{stage}.{cell}"
            previous, current = current, _normal(net, name, previous, current, channels)
    return net.finish(current[0])
