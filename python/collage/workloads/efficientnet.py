# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-B0 (Tan and Le 2019): inverted bottlenecks with SiLU and squeeze-and-excitation, batch
normalisation, a classifier.
"""

from tvm import relay

from .network import Network

# expansion, channels, blocks, stride of the first block, width of the depthwise window
SETTINGS = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def _silu(x):
    return relay.multiply(x, relay.sigmoid(x))


def efficientnet_b0(batch=1):
    """[batch, 3, 224, 224] -> [batch, 1000]."""
    net = Network("efficientnet_b0")
    x = _silu(net.conv_norm(net.input("input0", (batch, 3, 224, 224)), "features.0", 3, 32, 3, stride=2))
    channels = 32
    for stage, (expansion, channels_out, blocks, first_stride, kernel) in enumerate(SETTINGS, 1):
        for block in range(blocks):
            name, stride = f"features.{stage}.{block}.block", first_stride if block == 0 else 1
            hidden, out, part = channels * expansion, x, 0
            if expansion != 1:
                out, part = _silu(net.conv_norm(out, f"{name}.0", channels, hidden, 1)), 1
            out = _silu(net.conv_norm(out, f"{name}.{part}", hidden, hidden, kernel, stride, groups=hidden))
            out = net.excited(out, f"{name}.{part + 1}", hidden, max(1, channels // 4), _silu, relay.sigmoid)
            out = net.conv_norm(out, f"{name}.{part + 2}", hidden, channels_out, 1, gain=1.0)
            x = relay.add(out, x) if stride == 1 and channels == channels_out else out
            channels = channels_out
    x = _silu(net.conv_norm(x, "features.8", channels, 1280, 1))
    x = relay.nn.batch_flatten(relay.nn.adaptive_avg_pool2d(x, output_size=(1, 1)))
    return net.finish(net.dense(x, "classifier.1", 1280, 1000))
