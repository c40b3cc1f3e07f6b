# SPDX-License-Identifier: Apache-2.0
"""A grid of single layers for `collage bench kernels`: many operators side by side, each with an input of its
own.

Shapes are those of networks that are in use (ResNet, VGG, MobileNet, EfficientNet, U-Net, Darknet, BERT, ViT,
GANs, video), small ones and large ones, and some that nobody would choose, so that what a kernel is bad at is
seen, too.
"""

import itertools
import math

from tvm import relay

from .bert import attention, gelu
from .decoder import LOWEST, attend, causal_truths, heads_of
from .network import Network

# channels in, channels out, side
WINOGRAD = (
    (16, 16, 112),
    (32, 32, 256),
    (64, 64, 56),
    (64, 64, 224),
    (128, 128, 28),
    (128, 64, 128),
    (256, 256, 14),
    (512, 512, 7),
    (512, 1024, 13),
    (256, 512, 52),
)
POINTWISE = (
    (64, 256, 56),
    (256, 64, 56),
    (128, 512, 28),
    (1024, 256, 14),
    (2048, 512, 7),
    (16, 96, 112),
    (192, 32, 28),
    (320, 1280, 7),
    (512, 256, 26),
)
# channels, side, window, stride
DEPTHWISE = (
    (32, 112, 3, 1),
    (96, 112, 3, 2),
    (144, 56, 3, 1),
    (240, 28, 5, 1),
    (672, 14, 5, 1),
    (960, 7, 3, 1),
    (96, 56, 7, 1),
    (384, 14, 7, 1),
    (192, 17, (1, 7), 1),
    (192, 17, (7, 1), 1),
)
# channels in, between, out, side, window, stride: 1x1, depthwise, 1x1, of MobileNetV2 and EfficientNet
RESIDUALS = (
    (16, 96, 24, 112, 3, 2),
    (24, 144, 24, 56, 3, 1),
    (32, 192, 32, 28, 3, 1),
    (80, 480, 112, 14, 5, 1),
    (192, 1152, 192, 7, 5, 1),
)
# channels in, channels out, side, window
NARROW = ((64, 3, 256, 3), (32, 1, 256, 3), (16, 4, 64, 3), (64, 3, 256, 7), (64, 2, 128, 1), (128, 6, 56, 3))
# channels in, channels out, side before, factor
UPSAMPLED = (
    (128, 128, 64, 2),
    (128, 64, 128, 2),
    (512, 256, 16, 2),
    (64, 32, 32, 4),
    (256, 128, 26, 2),
    (32, 16, 112, 2),
)
# rows, units in, units out
DENSE = (
    (1, 2048, 1000),
    (1, 100, 8192),
    (1, 512, 10),
    (1, 768, 768),
    (1, 1280, 1000),
    (1, 4096, 4096),
    (2, 768, 768),
    (8, 768, 3072),
    (16, 1024, 1024),
    (64, 256, 256),
    (64, 256, 1024),
    (128, 768, 768),
    (128, 768, 3072),
    (128, 3072, 768),
    (197, 768, 3072),
    (384, 768, 768),
    (512, 1024, 1024),
)
# matrices, rows, units, columns, whether the right sides are transposed: both sides are computed, as in attention
# with a cache of keys and values
BATCHED = (
    (12, 1, 64, 512, True),
    (12, 8, 64, 512, True),
    (12, 1, 512, 64, False),
    (12, 8, 512, 64, False),
    (8, 1, 1024, 128, False),
    (8, 4, 1024, 128, False),
    (8, 8, 1024, 128, False),
    (1, 8, 2048, 1024, False),
    (3, 5, 77, 33, False),
    (12, 16, 64, 512, True),
    (12, 128, 64, 256, True),
    (12, 128, 256, 64, False),
)
# tokens, units, heads
ATTENTION = ((64, 256, 8), (128, 768, 12), (197, 768, 12), (384, 768, 12), (1024, 512, 8))
# queries, keys, units, heads, with how many masks: the first one is causal, the second one of padding
DECODED = (
    (128, 128, 768, 12, 1),
    (128, 128, 768, 12, 2),
    (512, 512, 768, 12, 1),
    (1024, 1024, 768, 12, 1),
    (1024, 1024, 768, 12, 2),
    (1, 512, 768, 12, 0),
    (16, 128, 512, 8, 0),
    (128, 512, 512, 8, 0),
)
# channels, depth, side
VIDEO = ((64, 3, 56), (128, 4, 28))
# rows, units: layer normalisation, the same of a residual sum, and by mean squares
ROWS = ((64, 256), (128, 768), (197, 768), (384, 1024))
# channels, side, groups (as many as channels: instance normalisation)
GROUPS = ((32, 56, 8), (128, 28, 32), (320, 64, 32), (64, 128, 64))
# The same with channels last, in TensorFlow's order.
PIXEL_GROUPS = ((32, 56, 8), (128, 28, 32), (320, 64, 32), (64, 128, 64))
# shape, type of the bytes, scale, zero: what a network that comes quantised does between its layers
GRIDS = (((64, 56, 56), "uint8", 0.02, 0), ((128, 768), "int8", 0.05, 0))
# channels, side: batch normalisation that is folded into nothing
SCALES = ((64, 56), (256, 28))


def kernels(batch=1):
    """A tuple of the results of all layers, by groups in the order of the tables above."""
    net = Network("kernels")
    results = []

    numbers = itertools.count()

    def read(shape):
        return net.input(f"input{next(numbers)}", shape)

    def layer(shape, make):
        results.append(make(read(shape), f"layer{len(results)}"))

    def convolution(channels_in, channels_out, kernel, **options):
        def make(x, name):
            around = kernel // 2 if isinstance(kernel, int) else [n // 2 for n in kernel]
            return relay.nn.relu(
                net.conv(x, name, channels_in, channels_out, kernel, padding=around, bias=True, **options)
            )

        return make

    def upsampled(channels_in, channels_out, factor):
        make = convolution(channels_in, channels_out, 3)
        return lambda x, name: make(relay.nn.upsampling(x, scale_h=factor, scale_w=factor), name)

    for channels_in, channels_out, side in WINOGRAD:
        layer((batch, channels_in, side, side), convolution(channels_in, channels_out, 3))
    for channels_in, channels_out, side in POINTWISE:
        layer((batch, channels_in, side, side), convolution(channels_in, channels_out, 1))
    for channels, side, window, stride in DEPTHWISE:
        layer(
            (batch, channels, side, side),
            convolution(channels, channels, window, stride=stride, groups=channels),
        )
    for channels_in, channels_out, side, window in NARROW:
        layer((batch, channels_in, side, side), convolution(channels_in, channels_out, window))
    for channels_in, channels_out, side, factor in UPSAMPLED:
        layer((batch, channels_in, side, side), upsampled(channels_in, channels_out, factor))
    for rows, units_in, units_out in DENSE:
        layer(
            (batch * rows, units_in),
            lambda x, name, i=units_in, o=units_out: relay.nn.relu(net.dense(x, name, i, o)),
        )
    layer((batch * 128, 768), lambda x, name: gelu(net.dense(x, name, 768, 3072)))
    for matrices, rows, units, columns, transposed in BATCHED:
        left = read((batch * matrices, rows, units))
        right = read((batch * matrices, *((columns, units) if transposed else (units, columns))))
        results.append(relay.nn.batch_matmul(left, right, transpose_b=transposed))
    for tokens, units, heads in ATTENTION:
        layer(
            (batch, tokens, units),
            lambda x, name, t=tokens, u=units, h=heads: attention(net, x, name, (batch, t), u, h),
        )
    for queries, keys, units, heads, masks in DECODED:

        def masked(scores, q=queries, k=keys, size=units // heads, masks=masks):
            scores = relay.divide(scores, relay.const(math.sqrt(size), "float32"))
            if masks:
                scores = relay.where(causal_truths(q), scores, relay.const(LOWEST, "float32"))
            return relay.add(scores, read((batch, 1, 1, k))) if masks > 1 else scores

        sides = [heads_of(read((batch, n, units)), (batch, n), heads) for n in (queries, keys, keys)]
        results.append(attend(*sides, batch, heads, masked))
    for channels, depth, side in VIDEO:
        layer((batch, channels, depth, side, side), convolution(channels, channels, 3, rank=3))
    for rows, units in ROWS:
        layer((batch, rows, units), lambda x, name, u=units: layer_norm(net, x, name, u))
        layer((batch, rows, units), lambda x, name, r=rows, u=units: layer_norm(net, x + read((batch, r, u)), name, u))
        layer((batch, rows, units), lambda x, name, u=units: rms_norm(net, x, name, u))
    for channels, side, groups in GROUPS:
        layer(
            (batch, channels, side, side),
            lambda x, name, c=channels, g=groups: group_norm(net, x, name, c, g),
        )
    for channels, side, groups in PIXEL_GROUPS:
        layer(
            (batch, side, side, channels),
            lambda x, name, n=(batch, side, side, channels), g=groups: pixel_group_norm(net, x, name, n, g),
        )
    for channels, side in SCALES:
        layer((batch, channels, side, side), lambda x, name, c=channels: channel_scale(net, x, name, c))
    for shape, dtype, scale, zero in GRIDS:
        layer((batch, *shape), lambda x, _, d=dtype, s=scale, z=zero: on_grid(x, d, s, z))
    for channels_in, between, channels_out, side, window, stride in RESIDUALS:
        layer(
            (batch, channels_in, side, side),
            lambda x, name, c=(channels_in, between, channels_out), w=window, s=stride: inverted(net, x, name, c, w, s),
        )
    return net.finish(relay.Tuple(results))


def scale_and_shift(net, name, shape):
    return net.parameter(f"{name}.scale", shape, 1.0, 0.1), net.parameter(f"{name}.shift", shape, std=0.05)


def layer_norm(net, x, name, units):
    return relay.nn.layer_norm(x, *scale_and_shift(net, name, (units,)), epsilon=1e-6)


def rms_norm(net, x, name, units):
    square = relay.mean(x * x, axis=[-1], keepdims=True)
    gain, _ = scale_and_shift(net, name, (units,))
    return gain * (x * relay.rsqrt(square + relay.const(1e-6)))


def group_norm(net, x, name, channels, groups):
    return swish(relay.nn.group_norm(x, *scale_and_shift(net, name, (channels,)), num_groups=groups))


def pixel_group_norm(net, x, name, shape, groups):
    *image, channels = shape
    apart = relay.reshape(x, (*image, groups, channels // groups))
    mean = relay.mean(apart, axis=[1, 2, 4], keepdims=True)
    variance = relay.variance(apart, axis=[1, 2, 4], keepdims=True, with_mean=mean)
    normal = relay.reshape((apart - mean) / relay.sqrt(variance + relay.const(1e-5)), shape)
    gain, shift = scale_and_shift(net, name, (channels,))
    return swish(normal * gain + shift)


def channel_scale(net, x, name, channels):
    gain, shift = scale_and_shift(net, name, (channels, 1, 1))
    return relay.nn.relu(x * gain + shift)


def on_grid(x, dtype, scale, zero):
    """To bytes and back, by one scale and zero."""
    scale, zero = relay.const(scale, "float32"), relay.const(zero, "int32")
    return relay.qnn.op.dequantize(relay.qnn.op.quantize(x, scale, zero, out_dtype=dtype), scale, zero)


def inverted(net, x, name, channels, window, stride):
    """An inverted residual without its sum."""
    channels_in, between, channels_out = channels
    wide = relay.clip(net.conv_norm(x, f"{name}.expand", channels_in, between, 1), 0.0, 6.0)
    seen = relay.clip(net.conv_norm(wide, f"{name}.see", between, between, window, stride, between), 0.0, 6.0)
    return net.conv_norm(seen, f"{name}.project", between, channels_out, 1)


def swish(x):
    return x * relay.sigmoid(x)
