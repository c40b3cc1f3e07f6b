# SPDX-License-Identifier: Apache-2.0
"""Operators by kind, for a device: {kind: {name: a function that makes an expression}}."""

import numpy as np
from tvm import relay

DTYPES = {"f": "float32", "i": "int32"}


def x(*shape, kind="f"):
    return relay.var("x", shape=shape, dtype=DTYPES[kind])


def weight(*shape):
    return relay.const(np.random.default_rng(len(shape)).standard_normal(shape).astype("float32"))


def whole(*values, dtype="int64"):
    return relay.const(np.array(values, dtype))


def small(*shape):
    """Bytes, from floats that are given."""
    return relay.cast(relay.clip(x(*shape) * relay.const(20.0), -100, 100), "int8")


def few(*shape):
    return relay.const(np.random.default_rng(len(shape)).integers(-100, 100, shape).astype("int8"))


def image():
    return x(1, 8, 12, 12)


def rows():
    return x(4, 24)


def numbers():
    return x(4, 24, kind="i")


def convolution(*kernel, groups=1, out=8, **more):
    return relay.nn.conv2d(
        image(), weight(out, *kernel), kernel_size=kernel[1:], channels=out, groups=groups, **more
    )  # fmt: skip


def unary(name):
    """Of numbers that all such functions are defined for."""
    return lambda: getattr(relay, name)(relay.abs(rows()) + relay.const(0.1))


UNARY = [
    "abs",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log2",
    "negative",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tanh",
    "trunc",
]

OPERATORS = {
    "convolutions": {
        "conv2d": lambda: convolution(8, 3, 3, padding=(1, 1)),
        "strided": lambda: convolution(8, 3, 3, strides=(2, 2)),
        "depthwise": lambda: convolution(1, 3, 3, groups=8, padding=(1, 1)),
        "grouped": lambda: convolution(4, 3, 3, groups=2, padding=(1, 1)),
        "nhwc": lambda: relay.nn.conv2d(
            x(1, 12, 12, 8),
            weight(3, 3, 8, 8),
            kernel_size=(3, 3),
            channels=8,
            data_layout="NHWC",
            kernel_layout="HWIO",
        ),
        "conv1d": lambda: relay.nn.conv1d(x(1, 8, 32), weight(8, 8, 3), kernel_size=3, channels=8),
        "conv3d": lambda: relay.nn.conv3d(x(1, 4, 6, 6, 6), weight(4, 4, 3, 3, 3), kernel_size=(3, 3, 3), channels=4),
        "transposed": lambda: relay.nn.conv2d_transpose(
            image(), weight(8, 4, 2, 2), kernel_size=(2, 2), channels=4, strides=(2, 2)
        ),
    },
    "products": {
        "dense": lambda: relay.nn.dense(rows(), weight(16, 24)),
        "matmul": lambda: relay.nn.matmul(rows(), weight(24, 16)),
        "batch_matmul": lambda: relay.nn.batch_matmul(x(2, 8, 16), weight(2, 8, 16)),
    },
    "norms": {
        "softmax": lambda: relay.nn.softmax(rows()),
        "log_softmax": lambda: relay.nn.log_softmax(rows()),
        "layer_norm": lambda: relay.nn.layer_norm(rows(), weight(24), weight(24)),
        "group_norm": lambda: relay.nn.group_norm(image(), weight(8), weight(8), num_groups=2),
        "instance_norm": lambda: relay.nn.instance_norm(image(), weight(8), weight(8)),
        "l2_normalize": lambda: relay.nn.l2_normalize(image(), eps=1e-5, axis=[1]),
        "lrn": lambda: relay.nn.lrn(image()),
    },
    "pools": {
        "max": lambda: relay.nn.max_pool2d(image(), (2, 2), (2, 2)),
        "average": lambda: relay.nn.avg_pool2d(image(), (3, 3), (2, 2), padding=(1, 1)),
        "global": lambda: relay.nn.global_avg_pool2d(image()),
        "adaptive": lambda: relay.nn.adaptive_avg_pool2d(image(), (3, 3)),
        "max1d": lambda: relay.nn.max_pool1d(x(1, 8, 32), (2,), (2,)),
        "average3d": lambda: relay.nn.avg_pool3d(x(1, 4, 6, 6, 6), (2, 2, 2), (2, 2, 2)),
    },
    "images": {
        "linear": lambda: relay.image.resize2d(image(), (24, 24), method="linear"),
        "cubic": lambda: relay.image.resize2d(image(), (24, 24), method="cubic"),
        "nearest": lambda: relay.nn.upsampling(image(), 2, 2),
        "grid_sample": lambda: relay.image.grid_sample(image(), weight(1, 2, 4, 4)),
        "depth_to_space": lambda: relay.nn.depth_to_space(image(), 2),
        "space_to_depth": lambda: relay.nn.space_to_depth(image(), 2),
        "pad": lambda: relay.nn.pad(image(), ((0, 0), (0, 0), (1, 1), (1, 1))),
        "mirror_pad": lambda: relay.nn.mirror_pad(image(), ((0, 0), (0, 0), (1, 1), (1, 1)), "REFLECT"),
        "roi_align": lambda: relay.vision.roi_align(
            image(), relay.const(np.array([[0, 0, 0, 8, 8]], "float32")), (2, 2), 1.0, 2
        ),
    },
    "elementwise": {name: unary(name) for name in UNARY}
    | {
        "relu": lambda: relay.nn.relu(rows()),
        "leaky_relu": lambda: relay.nn.leaky_relu(rows(), 0.1),
        "prelu": lambda: relay.nn.prelu(image(), weight(8)),
        "clip": lambda: relay.clip(rows(), 0.0, 1.0),
        "cast": lambda: relay.cast(rows(), "int32"),
        "power": lambda: relay.power(relay.abs(rows()), relay.const(2.5)),
        "floor_mod": lambda: relay.floor_mod(rows(), relay.const(0.7)),
        "where": lambda: relay.where(relay.greater(rows(), relay.const(0.0)), weight(4, 24), rows()),
        "logical": lambda: relay.logical_and(
            relay.greater(rows(), relay.const(0.0)), relay.logical_not(relay.greater(rows(), relay.const(1.0)))
        ),
        "bits": lambda: relay.bitwise_and(numbers(), whole(3, dtype="int32")),
        "bias_add": lambda: relay.nn.bias_add(image(), weight(8)),
    },
    "reductions": {
        "sum": lambda: relay.sum(rows(), 1),
        "mean": lambda: relay.mean(rows()),
        "max": lambda: relay.max(rows(), 1, keepdims=True),
        "prod": lambda: relay.prod(rows(), 1),
        "variance": lambda: relay.variance(rows(), 1),
        "argmax": lambda: relay.argmax(rows(), 1),
        "cumsum": lambda: relay.cumsum(rows(), 1),
    },
    "movement": {
        "transpose": lambda: relay.transpose(rows()),
        "reshape": lambda: relay.reshape(rows(), (8, 12)),
        "strided_slice": lambda: relay.strided_slice(rows(), [0, 2], [2, 16]),
        "split": lambda: relay.split(rows(), 2, 1)[1],
        "concatenate": lambda: relay.concatenate([rows(), weight(4, 3)], 1),
        "stack": lambda: relay.stack([rows(), weight(4, 24)], 0),
        "tile": lambda: relay.tile(rows(), (2, 1)),
        "repeat": lambda: relay.repeat(rows(), 2, 0),
        "reverse": lambda: relay.reverse(rows(), 1),
        "broadcast_to": lambda: relay.broadcast_to(x(1, 24), (4, 24)),
    },
    "selection": {
        "take": lambda: relay.take(rows(), whole(1, 3), axis=0, mode="clip"),
        "gather": lambda: relay.gather(rows(), 1, relay.const(np.zeros((4, 2), "int64"))),
        "gather_nd": lambda: relay.gather_nd(rows(), whole([1, 2])),
        "scatter": lambda: relay.scatter_elements(
            rows(), relay.const(np.zeros((4, 1), "int64")), weight(4, 1), axis=1, reduction="add"
        ),
        "one_hot": lambda: relay.one_hot(x(4, kind="i"), relay.const(1.0), relay.const(0.0), 8, -1, "float32"),
        "topk": lambda: relay.topk(rows(), 3, ret_type="values"),
        "sort": lambda: relay.sort(rows()),
    },
    "bytes": {
        "dense": lambda: relay.nn.dense(small(32, 64), few(16, 64), out_dtype="int32"),
        "dense of one row": lambda: relay.nn.dense(small(1, 52), few(16, 52), out_dtype="int32"),
        "conv2d": lambda: relay.nn.conv2d(
            small(1, 16, 12, 12), few(32, 16, 3, 3), kernel_size=(3, 3), channels=32, padding=(1, 1), out_dtype="int32"
        ),
        "conv2d of three channels": lambda: relay.nn.conv2d(
            small(1, 3, 12, 12), few(8, 3, 3, 3), kernel_size=(3, 3), channels=8, out_dtype="int32"
        ),
        "batch_matmul": lambda: relay.nn.batch_matmul(small(2, 16, 32), few(2, 16, 32), out_dtype="int32"),
    },
}
