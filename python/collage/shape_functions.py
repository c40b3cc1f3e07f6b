# SPDX-License-Identifier: Apache-2.0
"""Shape functions of operators that TVM has none of, or wrong ones: how large a result is, computed when it is made.

TVM's virtual machine builds no operator with an open dimension that lacks one, and TVM 0.19 has none for erf, so for no
GELU. In: nothing. Out: TVM's registry with them.
"""

import functools

import tvm
from tvm import topi
from tvm.relay.op import op as registry
from tvm.relay.op._reduce import reduce_shape_func
from tvm.relay.op._tensor import broadcast_shape_func
from tvm.relay.op.nn._nn import conv_shape_func
from tvm.te.hybrid import script

from . import open_slices

# As large as the first argument.
_AS_THE_FIRST = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "isfinite", "isinf",
    "isnan", "log10", "sign", "sin", "sinh", "trunc", "fixed_point_multiply", "reverse", "reverse_sequence",
    "sequence_mask", "trilu", "nn.log_softmax", "nn.lrn",
]  # fmt: skip
_BROADCAST = ["fixed_point_multiply_per_axis"]


@script
def _same(shape):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    for i in const_range(shape.shape[0]):  # noqa: F821
        out[i] = shape[i]
    return out


def _as_the_first(_attrs, inputs, _ranks):
    return [_same(inputs[0]) if len(inputs[0].shape) else topi.identity(inputs[0])]  # a number has no sizes


@script
def _blocks(shape, channels, rows, columns, size, apart):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    for i in const_range(shape.shape[0]):  # noqa: F821
        out[i] = shape[i]
    if apart:
        out[channels] = shape[channels] // int64(size * size)  # noqa: F821
        out[rows] = shape[rows] * int64(size)  # noqa: F821
        out[columns] = shape[columns] * int64(size)  # noqa: F821
    else:
        out[channels] = shape[channels] * int64(size * size)  # noqa: F821
        out[rows] = shape[rows] // int64(size)  # noqa: F821
        out[columns] = shape[columns] // int64(size)  # noqa: F821
    return out


def _between_depth_and_space(apart):
    def shape(attrs, inputs, _ranks):
        axes = [tvm.runtime.convert(str(attrs.layout).index(axis)) for axis in "CHW"]
        return [_blocks(inputs[0], *axes, tvm.runtime.convert(int(attrs.block_size)), tvm.runtime.convert(apart))]

    return shape


# Elementwise operators whose shape functions TVM writes as computations. Its schedule puts these into what is behind,
# and fails where that has another argument whose size is computed.
_REWRITTEN = [
    "bitwise_not", "cast", "cast_like", "ceil", "clip", "copy", "exp", "fast_erf", "fast_exp", "fast_tanh",
    "floor", "full_like", "log", "log2", "logical_not", "negative", "nn.leaky_relu", "nn.relu", "ones_like",
    "round", "rsqrt", "sigmoid", "sqrt", "tan", "tanh", "zeros_like",
]  # fmt: skip
# TVM registers its own with 10; one of a higher level takes its place.
_ABOVE = 11


@script
def _convolved(shape, weights, strides, around, dilation, first, tap, channel, filters):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    out[0] = shape[0]
    out[channel] = weights[filters]
    for i in const_range(shape.shape[0] - 2):  # noqa: F821
        reach = (weights[tap + i] - 1) * dilation[i] + 1
        out[first + i] = (shape[first + i] + around[i] - reach) // strides[i] + 1
    return out


@script
def _convolved_in_blocks(shape, weights, strides, around, dilation):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    out[0] = shape[0]
    out[1] = weights[0]
    for i in const_range(2):  # noqa: F821
        reach = (weights[i + 2] - 1) * dilation[i] + 1
        out[i + 2] = (shape[i + 2] + around[i] - reach) // strides[i] + 1
    out[4] = weights[5]
    return out


def _window(attrs):
    """Strides, padding of both sides, and dilation of a convolution."""
    strides, dilation = [int(one) for one in attrs.strides], [int(one) for one in attrs.dilation]
    padding = [int(one) for one in attrs.padding]
    if len(padding) == 1:
        padding = padding * len(strides)
    if len(padding) == len(strides):
        padding = padding * 2
    around = [before + behind for before, behind in zip(padding, padding[len(strides) :], strict=False)]
    return [tvm.runtime.convert(one) for one in (strides, around, dilation)]


@script
def _unconvolved(shape, weights, strides, around, dilation, more, groups):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    out[0] = shape[0]
    out[1] = weights[1] * int64(groups)  # noqa: F821
    for i in const_range(shape.shape[0] - 2):  # noqa: F821
        reach = (weights[i + 2] - 1) * dilation[i] + 1
        out[i + 2] = strides[i] * (shape[i + 2] - 1) + reach - around[i] + more[i]
    return out


def _of_transposed_convolution(attrs, inputs, _ranks):
    """TVM's own take what is in front for what is on both sides, and know no groups."""
    more = tvm.runtime.convert([int(one) for one in attrs.output_padding])
    return [_unconvolved(*inputs, *_window(attrs), more, tvm.runtime.convert(int(attrs.groups)))]


@script
def _seen_through(shape, window, strides, around, dilation, first):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    for i in const_range(shape.shape[0]):  # noqa: F821
        out[i] = shape[i]
    for i in const_range(len(window)):  # noqa: F821
        out[first + i] = (shape[first + i] + around[i] - (window[i] - 1) * dilation[i] - 1) // strides[i] + 1
    return out


def _first_side(layout):
    return tvm.runtime.convert(min(str(layout).index(side) for side in "DHW" if side in str(layout)))


def _of_pool(attrs, inputs, _ranks):
    """TVM has some for images alone, which know neither dilation nor ceil_mode."""
    strides, around, dilation = ([int(one) for one in numbers] for numbers in _window(attrs))
    if attrs.ceil_mode:
        around = [size + stride - 1 for size, stride in zip(around, strides, strict=True)]
    told = [[int(one) for one in attrs.pool_size], strides, around, dilation]
    return [_seen_through(inputs[0], *map(tvm.runtime.convert, told), _first_side(attrs.layout))]


@script
def _of_sizes(shape, sizes, first):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    for i in const_range(shape.shape[0]):  # noqa: F821
        out[i] = shape[i]
    for i in const_range(len(sizes)):  # noqa: F821
        out[first + i] = int64(sizes[i])  # noqa: F821
    return out


def _of_adaptive_pool(attrs, inputs, _ranks):
    sizes = tvm.runtime.convert([int(one) for one in attrs.output_size or ()])
    return [_of_sizes(inputs[0], sizes, _first_side(attrs.layout))] if len(sizes) else [_same(inputs[0])]


@script
def _partly_like(shape, like, begin, end, first, last):
    out = output_tensor((begin + (last - first) + (shape.shape[0] - end),), "int64")  # noqa: F821
    for i in const_range(begin):  # noqa: F821
        out[i] = int64(shape[i])  # noqa: F821
    for i in const_range(last - first):  # noqa: F821
        out[begin + i] = int64(like[first + i])  # noqa: F821
    for i in const_range(shape.shape[0] - end):  # noqa: F821
        out[begin + (last - first) + i] = int64(shape[end + i])  # noqa: F821
    return out


def _of_reshape_like(attrs, inputs, _ranks):
    """TVM's gives the second argument's shape, whichever dimensions the attributes name."""
    bounds = []
    for side, shape in zip(("lhs", "rhs"), inputs, strict=True):
        rank = int(shape.shape[0])
        begin, end = int(getattr(attrs, f"{side}_begin")), getattr(attrs, f"{side}_end")
        end = rank if end is None else int(end)
        bounds += [at + rank if at < 0 else at for at in (begin, end)]
    return [_partly_like(*inputs, *map(tvm.runtime.convert, bounds))]


@script
def _enlarged(shape, scales, first):
    out = output_tensor((shape.shape[0],), "int64")  # noqa: F821
    for i in const_range(shape.shape[0]):  # noqa: F821
        out[i] = shape[i]
    for i in const_range(len(scales)):  # noqa: F821
        out[first + i] = shape[first + i] * int64(scales[i])  # noqa: F821
    return out


def _of_upsampling(attrs, inputs, _ranks):
    scales = [float(attrs.scale_h), float(attrs.scale_w)]
    if any(scale != int(scale) for scale in scales):
        raise ValueError(f"nn.upsampling of an open image by {scales}: only whole factors can be built")
    return [_enlarged(inputs[0], tvm.runtime.convert([int(scale) for scale in scales]), _first_side(attrs.layout))]


def _of_blocks(attrs, inputs, _ranks):
    """Data in blocks of channels, [n, C, h, w, c], and weights [K, C or 1, kh, kw, c or 1, k]."""
    return [_convolved_in_blocks(*inputs, *_window(attrs))]


_DATA_LAYOUTS = {"NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"}
_KERNEL_LAYOUTS = {"OIW", "OIHW", "OIDHW", "WIO", "HWIO", "DHWIO"}


def _of_convolution(attrs, inputs, ranks):
    """TVM's own takes what is in front for what is on both sides."""
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    if data in _DATA_LAYOUTS and kernel in _KERNEL_LAYOUTS:
        places = map(tvm.runtime.convert, (data.index("C"), kernel.index("O")))
        return [_convolved(*inputs, *_window(attrs), _first_side(data), _first_side(kernel), *places)]
    return conv_shape_func(attrs, inputs, ranks)


@functools.cache
def register():
    """Register those that TVM lacks, and others in the place of those that it cannot schedule, or that are wrong."""
    open_slices.register(_ABOVE)
    wanted = {
        **dict.fromkeys(_AS_THE_FIRST, _as_the_first),
        **dict.fromkeys(_BROADCAST, broadcast_shape_func),
        "any": reduce_shape_func,
        "nn.contrib_depthwise_conv2d_NCHWc": _of_blocks,
        "nn.depth_to_space": _between_depth_and_space(1),
        "nn.space_to_depth": _between_depth_and_space(0),
        "nn.upsampling": _of_upsampling,
        **dict.fromkeys(
            (f"nn.adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)), _of_adaptive_pool
        ),
    }
    for name, function in wanted.items():
        if registry.get(name).get_attr("FShapeFunc") is None:
            registry.register_shape_func(name, False, function)
    instead = {
        **dict.fromkeys(_REWRITTEN, _as_the_first),
        **dict.fromkeys(("nn.conv1d", "nn.conv2d", "nn.conv3d"), _of_convolution),
        **dict.fromkeys((f"nn.conv{rank}d_transpose" for rank in (1, 2, 3)), _of_transposed_convolution),
        "nn.contrib_conv2d_NCHWc": _of_blocks,
        "reshape_like": _of_reshape_like,
        **dict.fromkeys((f"nn.{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)), _of_pool),
    }
    for name, function in instead.items():
        registry.register_shape_func(name, False, function, _ABOVE)
