# SPDX-License-Identifier: Apache-2.0
"""MobileNet v2, after the stem and without normalisation or classifier, as the paper's code has it; MobileNetV3-Large
(Howard et al. 2019), whole.
"""

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


# channels, expanded ones, width of the depthwise window, stride, squeeze-and-excitation, hard-swish (else ReLU)
SETTINGS_V3 = (
    (16, 16, 3, 1, False, False),
    (24, 64, 3, 2, False, False),
    (24, 72, 3, 1, False, False),
    (40, 72, 5, 2, True, False),
    (40, 120, 5, 1, True, False),
    (40, 120, 5, 1, True, False),
    (80, 240, 3, 2, False, True),
    (80, 200, 3, 1, False, True),
    (80, 184, 3, 1, False, True),
    (80, 184, 3, 1, False, True),
    (112, 480, 3, 1, True, True),
    (112, 672, 3, 1, True, True),
    (160, 672, 5, 2, True, True),
    (160, 960, 5, 1, True, True),
    (160, 960, 5, 1, True, True),
)


def hard_sigmoid(x):
    """As TVM's front end for PyTorch has it."""
    return relay.divide(relay.clip(relay.add(x, relay.const(3.0)), 0.0, 6.0), relay.const(6.0))


def hard_swish(x):
    """As TVM's front end for PyTorch has it."""
    return relay.multiply(x, hard_sigmoid(x))


def _divisible(channels, by=8):
    """The nearest multiple that is no tenth smaller."""
    near = max(by, (channels + by // 2) // by * by)
    return near if near >= 0.9 * channels else near + by


def mobilenet_v3(batch=1):
    """[batch, 3, 224, 224] -> [batch, 1000]."""
    net = Network("mobilenet_v3")
    x = hard_swish(net.conv_norm(net.input("input0", (batch, 3, 224, 224)), "features.0", 3, 16, 3, stride=2))
    channels = 16
    for index, (channels_out, hidden, kernel, stride, excited, hard) in enumerate(SETTINGS_V3, 1):
        act, out, part = hard_swish if hard else relay.nn.relu, x, 0
        name = f"features.{index}.block"
        if hidden != channels:
            out, part = act(net.conv_norm(out, f"{name}.0", channels, hidden, 1)), 1
        out = act(net.conv_norm(out, f"{name}.{part}", hidden, hidden, kernel, stride, groups=hidden))
        if excited:
            part += 1
            out = net.excited(out, f"{name}.{part}", hidden, _divisible(hidden // 4), relay.nn.relu, hard_sigmoid)
        out = net.conv_norm(out, f"{name}.{part + 1}", hidden, channels_out, 1, gain=1.0)
        x = relay.add(out, x) if stride == 1 and channels == channels_out else out
        channels = channels_out
    x = hard_swish(net.conv_norm(x, "features.16", channels, 960, 1))
    x = relay.nn.batch_flatten(relay.nn.adaptive_avg_pool2d(x, output_size=(1, 1)))
    x = hard_swish(net.dense(x, "classifier.0", 960, 1280))
    return net.finish(net.dense(x, "classifier.3", 1280, 1000))
