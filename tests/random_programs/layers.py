# SPDX-License-Identifier: Apache-2.0
"""Layers: convolutions, transposed ones, products, pools, resizes; with what often follows them."""

import math

from tvm import relay

from .elementwise import operator
from .pool import MOST, makes

DATA = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
KERNEL = {
    1: {"NCW": "OIW", "NWC": "WIO"},
    2: {"NCHW": "OIHW", "NHWC": "HWIO"},
    3: {"NCDHW": "OIDHW", "NDHWC": "DHWIO"},
}
SIZES = {1: (1, 2, 3, 5, 8, 13, 16), 2: (1, 2, 3, 5, 6, 8, 9), 3: (1, 2, 3, 4)}


def in_layout(layout, n, c, sizes):
    return (n, c, *sizes) if layout.startswith("NC") else (n, *sizes, c)


def out_of_layout(layout, shape):
    """(batch, channels, sizes)."""
    return (shape[0], shape[1], shape[2:]) if layout.startswith("NC") else (shape[0], shape[-1], shape[1:-1])


def image(pool, dims, layout, channels=None, least=1, dtype="float32"):
    """A value that is a batch of images, if there is one that suits; else an input."""
    found = [
        v
        for v in pool.values
        if v.dtype == dtype and v.rank == dims + 2 and v.size and v.size <= MOST
        and out_of_layout(layout, v.shape)[1] <= 64 and min(out_of_layout(layout, v.shape)[2]) >= least
        and (channels is None or out_of_layout(layout, v.shape)[1] == channels)
    ]  # fmt: skip
    if found and pool.chance(0.7):
        return pool.tamed(pool.choice(found[-6:]), 64.0)
    c = channels or pool.choice((1, 2, 3, 4, 6, 8, 16, 16, 32))
    sizes = [max(least, pool.choice(SIZES[dims])) for _ in range(dims)]
    n = pool.choice((1, 1, 2, 3))
    while n * c * math.prod(sizes) > MOST:
        n, sizes[0] = 1, max(least, sizes[0] // 2)
        if sizes[0] == least:
            break
    return pool.input(in_layout(layout, n, c, sizes), dtype)


def weights(pool, shape, terms, dtype="float32"):
    """Weights, constant as a rule, and how much greater the result may be than the data."""
    scale = 2.0 ** round(-0.5 * math.log2(max(1, terms)))
    make = pool.constant if pool.chance(0.85) else pool.input
    return make(shape, dtype, -scale, scale), terms * scale


@makes("nn.conv1d", "nn.conv2d", "nn.conv3d", weight=3.0)
def convolution(pool, name):
    dims = int(name[-2])
    # TVM 0.19 has no template conv3d_ndhwc.x86, which its own strategy asks for.
    layout = pool.choice(DATA[dims] if dims < 3 and pool.chance(0.3) else DATA[dims][:1])
    data = image(pool, dims, layout)
    _, c, sizes = out_of_layout(layout, data.shape)
    groups = 1
    if layout == DATA[dims][0] and pool.chance(0.35):
        groups = pool.choice([g for g in range(1, c + 1) if c % g == 0])
    deep = layout == "NHWC" and c > 1 and pool.chance(0.4)  # depthwise, as TensorFlow's networks have it
    groups = c if deep else groups
    out = groups * pool.choice((1, 1, 2)) if groups > 1 else pool.choice((1, 2, 3, 5, 8, 16, 16, 32))
    out = c if deep else out
    window = [pool.choice((1, 1, 2, 3, 3, 3, 5)) for _ in range(dims)]
    if pool.chance(0.4):
        window = [pool.choice((1, 3))] * dims
    dilation = [pool.choice((1, 1, 1, 1, 2)) for _ in range(dims)]
    strides = [pool.choice((1, 1, 1, 2, 3)) for _ in range(dims)]
    before = [pool.integer(0, k // 2 + pool.integer(0, 1)) for k in window]
    after = list(before) if pool.chance(0.8) else [pool.integer(0, k - 1) for k in window]
    for i in range(dims):  # the window must fit
        lack = (window[i] - 1) * dilation[i] + 1 - sizes[i] - before[i] - after[i]
        if lack > 0:
            window[i], dilation[i] = 1, 1
    extents = [
        (s + b + a - (k - 1) * d - 1) // t + 1
        for s, b, a, k, d, t in zip(sizes, before, after, window, dilation, strides, strict=True)
    ]
    if data.shape[0] * out * math.prod(extents) > 2 * MOST:
        out = groups
    kernel = "HWOI" if deep else KERNEL[dims][layout]
    inner = (1, c) if deep else (out, c // groups)
    shape = (*inner, *window) if kernel.startswith("OI") else (*window, *inner[::-1])
    weight, gain = weights(pool, shape, c // groups * math.prod(window))
    bound = data.bound * gain
    made = pool.call(
        name,
        lambda x, w: operator(name)(
            x, w, strides=strides, padding=[*before, *after], dilation=dilation, groups=groups, channels=out,
            kernel_size=window, data_layout=layout, kernel_layout=kernel,
        ),
        data, weight, low=-bound, high=bound, exact=False,
    )  # fmt: skip
    epilogue(pool, made, layout.index("C"))


@makes("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose", weight=1.5)
def transposed(pool, name):
    dims = int(name[7])
    layout = DATA[dims][0]
    data = image(pool, dims, layout)
    _, c, sizes = out_of_layout(layout, data.shape)
    groups = pool.choice([g for g in range(1, c + 1) if c % g == 0]) if dims == 2 and pool.chance(0.3) else 1
    per_group = pool.choice((1, 2, 3, 4, 8, 16))
    window = [pool.choice((1, 2, 3, 4)) for _ in range(dims)]
    strides = [pool.choice((1, 1, 2, 3)) for _ in range(dims)]
    padding = [min(pool.integer(0, 1), (k - 1) // 2) for k in window]
    extra = [pool.integer(0, s - 1) if pool.chance(0.3) else 0 for s in strides]
    extents = [
        (s - 1) * t - 2 * p + k + e for s, t, p, k, e in zip(sizes, strides, padding, window, extra, strict=True)
    ]
    if data.shape[0] * groups * per_group * math.prod(extents) > 2 * MOST:
        per_group, strides, extra = 1, [1] * dims, [0] * dims
    kernel = {1: "IOW", 2: "IOHW", 3: "IODHW"}[dims]
    weight, gain = weights(pool, (c, per_group, *window), c // groups * math.prod(window))
    bound = data.bound * gain
    made = pool.call(
        name,
        lambda x, w: operator(name)(
            x,
            w,
            strides=strides,
            padding=padding,
            output_padding=extra,
            groups=groups,
            channels=groups * per_group,
            kernel_size=window,
            data_layout=layout,
            kernel_layout=kernel,
        ),
        data,
        weight,
        low=-bound,
        high=bound,
        exact=False,
    )
    epilogue(pool, made, 1)


@makes("nn.dense", "nn.matmul", weight=2.0)
def dense(pool, name):
    dtype = pool.choice(("float32",) * 6 + ("float64",))
    data = pool.tamed(pool.pick(dtype, rank=2 if name == "nn.dense" or pool.chance(0.8) else None, least=2), 64.0)
    if data.rank > 2:
        data = pool.tamed(pool.pick(dtype, rank=2), 64.0)
    k, n = data.shape[-1], pool.choice((1, 2, 3, 5, 8, 16, 16, 32, 48))
    if name == "nn.dense":
        weight, gain = weights(pool, (n, k), k, dtype)
        bound = data.bound * gain
        made = pool.call(name, lambda x, w: relay.nn.dense(x, w), data, weight, low=-bound, high=bound, exact=False)
    else:
        left, right = pool.chance(0.3), pool.chance(0.5)
        if left:
            k = data.shape[0]
        weight, gain = weights(pool, (n, k) if right else (k, n), k, dtype)
        bound = data.bound * gain
        made = pool.call(
            name, lambda x, w: relay.nn.matmul(x, w, transpose_a=left, transpose_b=right), data, weight,
            low=-bound, high=bound, exact=False,
        )  # fmt: skip
    epilogue(pool, made, made.rank - 1)


@makes("nn.batch_matmul", weight=1.5)
def batch_matmul(pool, name):
    data = pool.tamed(pool.pick("float32", rank=3), 64.0)
    left, right = pool.chance(0.2), pool.chance(0.6)
    batch, k = data.shape[0], data.shape[1] if left else data.shape[2]
    n = pool.choice((1, 2, 3, 8, 16, 32))
    while batch * n * data.size // batch // k > 2 * MOST:
        n = 1
        break
    if pool.chance(0.15):
        batch = 1
    second = [v for v in pool.values if v.dtype == "float32" and v.rank == 3 and v.size
              and v.shape[0] == batch and v.shape[2 if right else 1] == k and v.shape[1 if right else 2] <=
              32]  # fmt: skip
    if second and pool.chance(0.6):
        other = pool.tamed(pool.choice(second), 4.0)
        gain = k * other.bound
    else:
        other, gain = weights(pool, (batch, n, k) if right else (batch, k, n), k)
    bound = data.bound * gain
    made = pool.call(
        name, lambda x, y: relay.nn.batch_matmul(x, y, transpose_a=left, transpose_b=right), data, other,
        low=-bound, high=bound, exact=False,
    )  # fmt: skip
    epilogue(pool, made, 2)


@makes("nn.bias_add")
def bias_add(pool, name):
    data = pool.tamed(pool.pick("float32", least=1), 64.0)
    axis = pool.integer(0, data.rank - 1)
    bias = pool.constant((data.shape[axis],), "float32")
    bound = data.bound + 1
    pool.call(name, lambda x, b: relay.nn.bias_add(x, b, axis), data, bias,
              low=-bound, high=bound, exact=False)  # fmt: skip


def epilogue(pool, made, channel):
    """What may follow a layer: a scale, a bias, a residual sum, an activation."""
    if made.rank <= 3 and pool.chance(0.1):
        made = pool.call("multiply", relay.multiply, made, pool.scalar(0.5, made.dtype), exact=False)
    if pool.chance(0.5):
        shape = [1] * made.rank
        shape[channel] = made.shape[channel]
        if pool.chance(0.3):
            bias = pool.constant((made.shape[channel],), made.dtype)
            made = pool.call("nn.bias_add", lambda x, b: relay.nn.bias_add(x, b, channel), made, bias,
                             low=made.low - 1, high=made.high + 1, exact=False)  # fmt: skip
        else:
            bias = (pool.constant if pool.chance(0.9) else pool.input)(shape[pool.integer(0, channel) :], made.dtype)
            made = pool.call("add", relay.add, made, bias, low=made.low - 1, high=made.high + 1, exact=False)
    if pool.chance(0.35):
        alike = [v for v in pool.values if v.shape == made.shape and v.dtype == made.dtype and v.bound <= 64]
        residual = pool.choice(alike) if alike and pool.chance(0.8) else pool.input(made.shape, made.dtype)
        pair = (made, residual) if pool.chance(0.7) else (residual, made)
        made = pool.call(
            "add", relay.add, *pair, low=made.low + residual.low, high=made.high + residual.high, exact=False
        )
    if pool.chance(0.7):
        from .idioms import activation

        activation(pool, made)


def windows(pool, sizes, dims):
    window = [pool.choice((1, 2, 2, 3, 3, 4)) for _ in range(dims)]
    strides = [pool.choice((1, 1, 2, 2, 3)) for _ in range(dims)]
    dilation = [pool.choice((1, 1, 1, 1, 2)) for _ in range(dims)]
    padding = [pool.integer(0, k // 2) for k in window]
    after = list(padding) if pool.chance(0.8) else [pool.integer(0, k // 2) for k in window]
    for i in range(dims):
        if sizes[i] < (window[i] - 1) * dilation[i] + 1:
            dilation[i] = 1  # else all points of a window may lie outside
        if sizes[i] + padding[i] + after[i] < window[i]:
            window[i], dilation[i], padding[i], after[i] = 1, 1, 0, 0
    return window, strides, dilation, padding + after


@makes("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def pooling(pool, name):
    dims = int(name[-2])
    layout = pool.choice(DATA[dims] if pool.chance(0.3) else DATA[dims][:1])
    data = image(pool, dims, layout)
    _, _, sizes = out_of_layout(layout, data.shape)
    window, strides, dilation, padding = windows(pool, sizes, dims)
    arguments = {"pool_size": window, "strides": strides, "padding": padding, "dilation": dilation,
                 "layout": layout, "ceil_mode": pool.chance(0.25)}  # fmt: skip
    if arguments["ceil_mode"]:
        # A window that begins behind the data would hold nothing but padding: infinity, or 0/0.
        arguments["dilation"] = [1] * dims
        arguments["padding"] = [0] * (2 * dims)
        for i in range(dims):
            if sizes[i] < window[i]:
                window[i] = 1
            strides[i] = min(strides[i], window[i])
    low, high, exact = data.low, data.high, "max" in name
    if "avg" in name:
        arguments["count_include_pad"] = pool.chance(0.4)
        low, high = min(low, 0.0), max(high, 0.0)
    pool.call(name, lambda x: operator(name)(x, **arguments), data, low=low, high=high, exact=exact)


@makes(
    "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d",
    "nn.adaptive_max_pool1d", "nn.adaptive_max_pool2d", "nn.adaptive_max_pool3d", weight=0.7,
)  # fmt: skip
def adaptive(pool, name):
    dims = int(name[-2])
    layout = pool.choice(DATA[dims] if pool.chance(0.2) else DATA[dims][:1])
    data = image(pool, dims, layout)
    _, _, sizes = out_of_layout(layout, data.shape)
    to = [pool.choice([d for d in range(1, s + 1) if s % d == 0 or pool.chance(0.2)]) for s in sizes]
    pool.call(name, lambda x: operator(name)(x, to, layout), data, exact="max" in name)


@makes("nn.global_avg_pool2d", "nn.global_max_pool2d")
def global_pool(pool, name):
    layout = pool.choice(DATA[2] if pool.chance(0.3) else DATA[2][:1])
    pool.call(name, lambda x: operator(name)(x, layout), image(pool, 2, layout), exact="max" in name)


@makes("nn.upsampling")
def upsampling(pool, name):
    layout = pool.choice(DATA[2] if pool.chance(0.3) else DATA[2][:1])
    data = image(pool, 2, layout)
    if data.size > 800:
        data = pool.input(in_layout(layout, 1, pool.choice((1, 3, 8, 16)), (3, 4)), "float32")
    across, down = pool.choice((1, 2, 2, 3)), pool.choice((1, 2, 2, 3))
    method = pool.choice(("nearest_neighbor", "nearest_neighbor", "bilinear"))
    aligned = method == "bilinear" and pool.chance(0.3) and min(out_of_layout(layout, data.shape)[2]) > 1
    made = pool.call(
        name, lambda x: relay.nn.upsampling(x, down, across, layout, method, aligned), data,
        exact=method.startswith("nearest"),
    )  # fmt: skip
    if method.startswith("nearest") and pool.chance(0.6):
        before_convolution(pool, made, layout)


def before_convolution(pool, made, layout):
    """The convolution that upsampling stands before, in networks that make pictures."""
    c = out_of_layout(layout, made.shape)[1]
    out, k = pool.choice((1, 3, 8, 32)), pool.choice((1, 3, 3, 5))
    kernel = KERNEL[2][layout]
    weight, gain = weights(pool, (out, c, k, k) if kernel == "OIHW" else (k, k, c, out), c * k * k)
    if made.size // c * out > 2 * MOST:
        return
    bound = made.bound * gain
    conv = pool.call(
        "nn.conv2d",
        lambda x, w: relay.nn.conv2d(x, w, padding=(k // 2, k // 2), channels=out, kernel_size=(k, k),
                                     data_layout=layout, kernel_layout=kernel),
        made, weight, low=-bound, high=bound, exact=False,
    )  # fmt: skip
    epilogue(pool, conv, layout.index("C"))


@makes("image.resize1d", "image.resize2d", "image.resize3d")
def resize(pool, name):
    dims = int(name[-2])
    layout = DATA[dims][0] if dims != 2 or pool.chance(0.7) else "NHWC"
    data = image(pool, dims, layout)
    _, _, sizes = out_of_layout(layout, data.shape)
    method = pool.choice(("nearest_neighbor", "linear", "linear"))
    mode = pool.choice(("half_pixel", "asymmetric", "align_corners"))
    # Whole factors for nearest neighbours: elsewhere the last digit decides which neighbour is nearest.
    if method == "nearest_neighbor":
        mode = pool.choice(("half_pixel", "asymmetric"))
        to = [s * pool.choice((1, 2, 3)) for s in sizes]
    else:
        to = [max(1, s + pool.integer(-1, 4)) for s in sizes]
    if mode == "align_corners":
        to = [max(2, t) for t in to]
    if data.size // math.prod(sizes) * math.prod(to) > 2 * MOST:
        return
    rounding = "floor" if mode == "asymmetric" else "round_prefer_floor" if pool.chance(0.5) else "round_prefer_ceil"
    exact = method == "nearest_neighbor"
    pool.call(
        name,
        lambda x: operator(name)(
            x, tuple(to), layout=layout, method=method, coordinate_transformation_mode=mode,
            rounding_method=rounding if exact else "",
        ),
        data, exact=exact,
    )  # fmt: skip
