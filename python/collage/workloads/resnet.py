# SPDX-License-Identifier: Apache-2.0
"""Residual networks of bottleneck blocks [3, 4, 6, 3]: ResNeXt-50 32x4d in 2D and ResNet-50 in 3D.

As the paper benchmarks them: what follows the stem, without normalisation, pooling and classifier (116
operators, 52 of them convolutions). And whole, with stem, batch normalisation, pooling and classifier. The
stride of a block sits at its 3x3 convolution.
"""

from tvm import relay

from .network import Network

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4


def _bottleneck(net, x, name, channels_in, planes, stride, width, groups, rank, norm):
    """One block; `name` is that of the PyTorch module (layer1.0)."""

    def conv(x, part, channels_in, channels_out, kernel, stride=1, groups=1, gain=2.0):
        module = f"{name}.{part}"
        out = net.conv(x, module, channels_in, channels_out, kernel, stride, kernel // 2, groups, gain=gain, rank=rank)
        if norm:
            after = f"{name}.downsample.1" if part == "downsample.0" else f"{name}.bn{part[-1]}"
            out = net.batch_norm(out, after, channels_out)
        return out

    channels_out = planes * EXPANSION
    out = relay.nn.relu(conv(x, "conv1", channels_in, width, 1))
    out = relay.nn.relu(conv(out, "conv2", width, width, 3, stride, groups))
    # The branch adds to what is there already; a smaller gain keeps sixteen such sums from growing without
    # need.
    out = conv(out, "conv3", width, channels_out, 1, gain=0.5)
    if stride != 1 or channels_in != channels_out:
        x = conv(x, "downsample.0", channels_in, channels_out, 1, stride, gain=1.0)
    return relay.nn.relu(relay.add(out, x))


def _layers(net, x, groups, width_per_group, rank, norm):
    channels = 64
    for layer, blocks in enumerate(BLOCKS):
        planes = 64 << layer
        width = planes * width_per_group // 64 * groups
        for block in range(blocks):
            stride = 2 if layer > 0 and block == 0 else 1
            name = f"layer{layer + 1}.{block}"
            x = _bottleneck(net, x, name, channels, planes, stride, width, groups, rank, norm)
            channels = planes * EXPANSION
    return x


def resnext50_32x4d(batch=1):
    """After the stem: [batch, 64, 56, 56] -> [batch, 2048, 7, 7]."""
    net = Network("resnext50_32x4d")
    x = net.input("input0", (batch, 64, 56, 56))
    return net.finish(_layers(net, x, groups=32, width_per_group=4, rank=2, norm=False))


def resnet50_3d(batch=1):
    """After the stem: [batch, 64, 3, 56, 56] -> [batch, 2048, 1, 7, 7]."""
    net = Network("resnet50_3d")
    x = net.input("input0", (batch, 64, 3, 56, 56))
    return net.finish(_layers(net, x, groups=1, width_per_group=64, rank=3, norm=False))


def resnext50_32x4d_full(batch=1):
    """Whole, with batch normalisation: [batch, 3, 224, 224] -> [batch, 1000]."""
    net = Network("resnext50_32x4d_full")
    x = net.input("input0", (batch, 3, 224, 224))
    x = net.conv(x, "conv1", 3, 64, 7, stride=2, padding=3)
    x = relay.nn.relu(net.batch_norm(x, "bn1", 64))
    x = relay.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    x = _layers(net, x, groups=32, width_per_group=4, rank=2, norm=True)
    x = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x))
    return net.finish(net.dense(x, "fc", 2048, 1000))


def resnet50_3d_full(batch=1):
    """Whole, with batch normalisation, for video: [batch, 3, 16, 112, 112] -> [batch, 400]."""
    net = Network("resnet50_3d_full")
    x = net.input("input0", (batch, 3, 16, 112, 112))
    weight = net.weight("conv1.weight", (64, 3, 7, 7, 7), 3 * 7**3)
    x = relay.nn.conv3d(x, weight, strides=(1, 2, 2), padding=(3, 3, 3), channels=64, kernel_size=(7, 7, 7))
    x = relay.nn.relu(net.batch_norm(x, "bn1", 64))
    x = relay.nn.max_pool3d(x, pool_size=(3, 3, 3), strides=(2, 2, 2), padding=(1, 1, 1))
    x = _layers(net, x, groups=1, width_per_group=64, rank=3, norm=True)
    x = relay.reshape(relay.mean(x, axis=[2, 3, 4]), (batch, 2048))
    return net.finish(net.dense(x, "fc", 2048, 400))
