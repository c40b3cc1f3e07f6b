# SPDX-License-Identifier: Apache-2.0
"""What the backend dnnl accepts gives TVM's answer, and what it must refuse stays with TVM.

Every test says how many operators go to oneDNN, pattern by pattern.
"""

import math

import pytest
import tvm
from dnnl_grid import Grid, channel_bias, region
from grid import SHARES
from tvm import relay

nn = relay.nn
DIMS = {1: "W", 2: "HW", 3: "DHW"}
SELDOM = ("conv1", "conv3", "deconv2", "deconv3")


@pytest.fixture(scope="module")
def partition(collage_library):
    import collage

    def place(module):
        return collage.partition(module, backends=["tvm", "dnnl"], only="dnnl")

    return place


@pytest.fixture(params=SHARES)
def grid(request):
    return Grid(share=request.param)


def convolve(grid, dims, data, channels, kernel, groups=1, channels_last=False, **attributes):
    """A convolution of that many dimensions with constant weights."""
    space = DIMS[dims]
    inputs = data[-1] if channels_last else data[1]
    if channels_last:
        layouts = {"data_layout": f"N{space}C", "kernel_layout": f"{space}IO"}
        weight = grid.constant(*kernel, inputs // groups, channels)
    else:
        layouts = {}
        weight = grid.constant(channels, inputs // groups, *kernel)
    return getattr(nn, f"conv{dims}d")(
        grid.input(*data),
        weight,
        channels=channels,
        kernel_size=kernel,
        groups=groups,
        **layouts,
        **attributes,
    )


def test_convolutions(grid, partition):
    sizes = {1: (2, 12, 19), 2: (2, 12, 11, 13), 3: (1, 12, 6, 7, 8)}
    for dims, data in sizes.items():
        name = f"nn.conv{dims}d"
        kernels = ((1,) * dims, (3,) * dims, (2, 3, 1)[:dims])
        steps = ((1,) * dims, (2,) * dims, (2, 1, 2)[:dims])
        paddings = ((0,) * 2 * dims, (1,) * 2 * dims, tuple(range(dims)) + (1,) * dims)
        for i, kernel in enumerate(kernels):
            for j, strides in enumerate(steps):
                for k, padding in enumerate(paddings):
                    if dims != 2 and (i + j + k) % 3:
                        continue  # each pair of settings once is enough beside the whole cube in 2D
                    case = f"{name} kernel {kernel} strides {strides} padding {padding}"
                    expression = convolve(grid, dims, data, 8, kernel, strides=strides, padding=padding)
                    grid.add(case, expression, name)
        dilated = convolve(grid, dims, data, 8, (3,) * dims, dilation=(2,) * dims)
        grid.add(f"{name} dilated", dilated, name)
        for pad in (1, (1,) * dims):
            one = convolve(grid, dims, data, 8, (3,) * dims, padding=pad)
            grid.add(f"{name} padding {pad}", one, name)
    grid.check(partition)


def test_grouped_convolutions(grid, partition):
    for groups, inputs, channels in ((2, 12, 8), (12, 12, 12), (12, 12, 24), (4, 16, 16), (32, 128, 128)):
        for strides in ((1, 1), (2, 2)):
            one = convolve(grid, 2, (1, inputs, 9, 9), channels, (3, 3), groups, strides=strides, padding=(1, 1))
            grid.add(f"conv2d {groups} groups, {inputs} to {channels}, strides {strides}", one, "nn.conv2d")
    # TVM makes invalid LLVM code (a debug declaration of a vector) of most grouped conv3d; not of this one.
    one = convolve(grid, 3, (2, 6, 7, 10, 11), 8, (3, 2, 3), 2, strides=(2, 1, 1), padding=(1, 2, 0, 3, 0, 1))
    grid.add("conv3d groups", one, "nn.conv3d")
    grid.check(partition)


def test_channels_last(grid, partition):
    one = convolve(grid, 1, (2, 19, 12), 8, (3,), channels_last=True, padding=(1, 2))
    grid.add("conv1d NWC", one, "nn.conv1d")
    one = convolve(grid, 2, (2, 11, 13, 12), 8, (3, 2), channels_last=True, strides=(2, 1), padding=(1, 0, 0, 2))
    grid.add("conv2d NHWC", one, "nn.conv2d")
    one = convolve(grid, 2, (2, 11, 13, 12), 8, (3, 2), 2, channels_last=True)
    grid.add("conv2d NHWC groups", one, "nn.conv2d")
    one = convolve(grid, 2, (2, 11, 13, 12), 8, (3, 3), channels_last=True)
    grid.add("conv2d NHWC bias", relay.nn.relu(one + grid.constant(8)), "dnnl.conv2d_bias_relu")
    depthwise = nn.conv2d(
        grid.input(2, 11, 13, 12),
        grid.constant(3, 3, 12, 1),
        groups=12,
        channels=12,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWOI",
    )
    grid.add("conv2d NHWC depthwise", depthwise, "nn.conv2d")
    one = convolve(grid, 3, (1, 6, 7, 8, 12), 8, (3, 2, 3), channels_last=True)
    grid.add("conv3d NDHWC", one, "nn.conv3d")
    grid.check(partition)


def test_transposed_convolutions(grid, partition):
    sizes = {1: (2, 6, 9), 2: (2, 6, 7, 8), 3: (1, 6, 4, 5, 6)}
    for dims, data in sizes.items():
        op = getattr(nn, f"conv{dims}d_transpose")
        name = f"nn.conv{dims}d_transpose"
        for strides in (1, 2, 3):
            paddings = ((0,) * 2 * dims, (1,) * 2 * dims, (1,) * dims + (0,) * dims)
            for k, padding in enumerate(paddings):
                for extra in range(min(strides, 2)):
                    if dims != 2 and (strides + k + extra) % 3:
                        continue
                    one = op(
                        grid.input(*data),
                        grid.constant(6, 8, *[3] * dims),
                        channels=8,
                        kernel_size=(3,) * dims,
                        strides=(strides,) * dims,
                        padding=padding,
                        output_padding=(extra,) * dims,
                    )
                    grid.add(f"{name} strides {strides} padding {padding} extra {extra}", one, name)
    for groups in (2, 6):
        for dims in (1, 2):
            op = getattr(nn, f"conv{dims}d_transpose")
            one = op(
                grid.input(*sizes[dims]),
                grid.constant(6, 12 // groups, *[3] * dims),
                channels=12,
                kernel_size=(3,) * dims,
                strides=(2,) * dims,
                groups=groups,
            )
            grid.add(f"conv{dims}d_transpose {groups} groups", one, f"nn.conv{dims}d_transpose")
    one = nn.conv2d_transpose(
        grid.input(2, 6, 7, 8), grid.constant(6, 8, 3, 3), channels=8, kernel_size=(3, 3), strides=(2, 2)
    )
    grid.add("bias relu", nn.relu(one + channel_bias(grid, 2, 8)), "dnnl.deconv2d_bias_relu")
    grid.check(partition)


def gelu_onnx(x):
    return (relay.const(0.5) * x) * (relay.const(1.0) + relay.erf(x / relay.const(math.sqrt(2))))


def gelu_exported(x):
    return (x * (relay.erf(x / relay.const(1.41421354)) + relay.const(1.0))) * relay.const(0.5)


def gelu_torch(x):
    return x * (relay.const(0.5) + relay.erf(x * relay.const(0.5**0.5)) * relay.const(0.5))


ACTIVATIONS = {
    "relu": nn.relu,
    "leaky": lambda x: nn.leaky_relu(x, 0.1),
    "tanh": relay.tanh,
    "sigmoid": relay.sigmoid,
    "clip": lambda x: relay.clip(x, 0.0, 0.75),
    "swish": lambda x: x * relay.sigmoid(x),
    "mish": lambda x: x * relay.tanh(relay.log(relay.exp(x) + relay.const(1.0))),
    "gelu": gelu_onnx,
}


@pytest.mark.parametrize(
    "layer", ["conv2d", "dense", *(pytest.param(f"{name}d", marks=pytest.mark.long) for name in SELDOM)]
)
def test_epilogues(grid, partition, layer):
    def make():
        if layer == "dense":
            return nn.dense(grid.input(5, 24), grid.constant(16, 24), units=16), grid.constant(16)
        dims = int(layer[-2])
        if layer.startswith("deconv"):
            one = getattr(nn, f"conv{dims}d_transpose")(
                grid.input(2, 6, *[5] * dims),
                grid.constant(6, 16, *[3] * dims),
                channels=16,
                kernel_size=(3,) * dims,
                strides=(2,) * dims,
            )
        else:
            one = convolve(grid, dims, (2, 6, *[7] * dims), 16, (3,) * dims, padding=(1,) * dims)
        return one, channel_bias(grid, dims, 16)

    def residual(x):
        shape = relay.transform.InferTypeLocal(x).concrete_shape
        return grid.input(*shape)

    for name, activate in ACTIVATIONS.items():
        one, bias = make()
        grid.add(f"bias {name}", activate(one + bias), f"dnnl.{layer}_bias_{name}")
        one, _ = make()
        grid.add(name, activate(one), f"dnnl.{layer}_{name}")
    one, bias = make()
    grid.add("bias", one + bias, f"dnnl.{layer}_bias")
    one, bias = make()
    grid.add("bias first", bias + one, f"dnnl.{layer}_bias")
    if not layer.startswith("deconv"):
        for name in ("relu", "clip"):
            one, bias = make()
            with_sum = activate_sum = one + bias + residual(one)
            grid.add(f"bias sum {name}", ACTIVATIONS[name](activate_sum), f"dnnl.{layer}_bias_sum_{name}")
            one, _ = make()
            with_sum = residual(one) + one
            grid.add(f"sum {name}", ACTIVATIONS[name](with_sum), f"dnnl.{layer}_sum_{name}")
        one, bias = make()
        grid.add("bias sum", residual(one) + (one + bias), f"dnnl.{layer}_bias_sum")
        one, _ = make()
        grid.add("sum", one + residual(one), f"dnnl.{layer}_sum")
    one, bias = make()
    flat = grid.constant(16)
    grid.add("bias_add", nn.relu(nn.bias_add(one, flat)), f"dnnl.{layer}_bias_relu")
    grid.check(partition)


def test_gelu_forms(grid, partition):
    for form in (gelu_onnx, gelu_exported, gelu_torch):
        grid.add(form.__name__, form(grid.input(3, 7, low=-4, high=4)), "dnnl.gelu")
        one = nn.dense(grid.input(5, 24), grid.constant(16, 24), units=16) + grid.constant(16)
        grid.add(f"dense {form.__name__}", form(one), "dnnl.dense_bias_gelu")
    grid.check(partition)


def test_residual_shapes_of_resnet(grid, partition):
    """Two layers, two additions, and values that several readers share."""
    x = grid.input(1, 16, 8, 8)

    def layer(value, padding=1):
        weight = grid.constant(16, 16, 2 * padding + 1, 2 * padding + 1, low=-0.2, high=0.2)
        kernel = (2 * padding + 1,) * 2
        one = nn.conv2d(value, weight, channels=16, kernel_size=kernel, padding=(padding,) * 2)
        return one + channel_bias(grid, 2, 16)

    a = nn.relu(layer(x))
    b = nn.relu(layer(layer(a), 0) + a)
    c = nn.relu(layer(b) + layer(a, 0))
    grid.add("block", c + b)
    grid.taken = ["dnnl.conv2d_bias_relu", "dnnl.conv2d_bias_sum_relu", "dnnl.conv2d_bias_sum_relu"]
    grid.taken += ["dnnl.conv2d_bias", "dnnl.conv2d_bias", "add"]
    grid.check(partition)


def test_dense_and_batch_matmul(grid, partition):
    for m, n, k in ((1, 1, 1), (1, 10, 64), (7, 33, 5), (64, 64, 64)):
        one = nn.dense(grid.input(m, k), grid.constant(n, k), units=n)
        grid.add(f"dense {m} {n} {k}", one, "nn.dense")
        grid.add(f"dense {m} {n} {k}, weight an input", nn.dense(grid.input(m, k), grid.input(n, k)), "nn.dense")
    for batch, m, n, k in ((1, 1, 1, 1), (3, 5, 7, 9), (12, 16, 16, 8)):
        for ta in (False, True):
            for tb in (False, True):
                left = grid.input(batch, *((k, m) if ta else (m, k)))
                right = grid.input(batch, *((n, k) if tb else (k, n)))
                one = nn.batch_matmul(left, right, transpose_a=ta, transpose_b=tb)
                grid.add(f"batch_matmul {batch} {m} {n} {k} {ta} {tb}", one, "nn.batch_matmul")
    grid.check(partition)


def test_operands_of_every_kind(grid, partition):
    """Constants, inputs and computed values in every place; one value in two places."""
    x = grid.input(3, 3)
    grid.add("x + x", x + x, "add")
    grid.add("x + constant", grid.input(3, 3) + grid.constant(3, 3), "add")
    one = grid.input(2, 3, 3)
    grid.add("batch_matmul of x and x", nn.batch_matmul(one, one), "nn.batch_matmul")
    square = grid.input(4, 4)
    grid.add("dense of x and x", nn.dense(square, square) + square, "dnnl.dense_sum")
    for dims, data in ((1, (1, 4, 9)), (2, (1, 4, 9, 9)), (3, (1, 4, 5, 5, 5))):
        op = getattr(nn, f"conv{dims}d")
        settings = {"channels": 4, "kernel_size": (3,) * dims, "padding": (1,) * dims}
        weight = nn.relu(grid.input(4, 4, *[3] * dims))
        bias = relay.tanh(grid.input(4, *[1] * dims))
        value = nn.relu(op(grid.input(*data), weight, **settings) + bias)
        grid.add(f"computed weight and bias {dims}", value, "nn.relu", "tanh", f"dnnl.conv{dims}d_bias_relu")
        value = op(grid.input(*data), grid.input(4, 4, *[3] * dims), **settings)
        value = value + grid.input(4, *[1] * dims) + grid.constant(*data)
        grid.add(f"inputs as weights, constant residual {dims}", value, f"dnnl.conv{dims}d_bias_sum")
    value = nn.dense(grid.input(2, 3), grid.input(4, 3)) + grid.constant(2, 4)
    grid.add("dense, constant residual", value, "dnnl.dense_sum")
    # Axes of one element, where a bias and a residual value look alike.
    value = convolve(grid, 2, (1, 3, 1, 1), 5, (1, 1)) + grid.input(1, 5, 1, 1)
    grid.add("one pixel", value, "dnnl.conv2d_bias")
    value = convolve(grid, 2, (2, 3, 4, 4), 1, (1, 1)) + grid.constant(1, 1, 1)
    grid.add("one channel", value, "dnnl.conv2d_bias")
    grid.check(partition)


def test_pools(grid, partition):
    sizes = {1: (2, 5, 17), 2: (2, 5, 17, 19), 3: (1, 5, 9, 11, 10)}
    for dims, data in sizes.items():
        for kind in ("max", "avg"):
            op = getattr(nn, f"{kind}_pool{dims}d")
            name = f"nn.{kind}_pool{dims}d"
            for size, strides, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 3, 0)):
                for ceil in (False, True):
                    for include in (False, True) if kind == "avg" else (None,):
                        extra = {} if include is None else {"count_include_pad": include}
                        one = op(
                            grid.input(*data),
                            pool_size=(size,) * dims,
                            strides=(strides,) * dims,
                            padding=(padding,) * dims,
                            ceil_mode=ceil,
                            **extra,
                        )
                        case = f"{name} {size} {strides} {padding} ceil {ceil} include {include}"
                        # 10 with padding 1 leaves a window of 3 at stride 2 that reaches beyond the padding.
                        beyond = dims == 3 and padding and strides == 2 and ceil and include
                        grid.add(case, one, *(() if beyond else (name,)))
            dilated = op(grid.input(*data), pool_size=(3,) * dims, dilation=(2,) * dims)
            grid.add(f"{name} dilated", dilated, name)
            last = (data[0], *data[2:], data[1])
            if dims == 2:
                one = op(grid.input(*last), pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout="NHWC")
                grid.add(f"{name} NHWC", one, name)
            adaptive = getattr(nn, f"adaptive_{kind}_pool{dims}d")
            grid.add(
                f"adaptive {name}",
                adaptive(grid.input(*data), (1,) * dims),
                f"nn.adaptive_{kind}_pool{dims}d",
            )
    for kind in ("max", "avg"):
        one = getattr(nn, f"global_{kind}_pool2d")(grid.input(2, 5, 7, 9))
        grid.add(f"global {kind}", one, f"nn.global_{kind}_pool2d")
        one = getattr(nn, f"adaptive_{kind}_pool2d")(grid.input(2, 5, 6, 9), (2, 3))
        grid.add(f"adaptive {kind} tiles", one, f"nn.adaptive_{kind}_pool2d")
    grid.check(partition)


def test_elementwise_and_softmax(grid, partition):
    for rank in range(7):
        shape = (2, 3, 1, 4, 2, 3)[:rank]
        for op, name in (
            (nn.relu, "nn.relu"), (relay.tanh, "tanh"), (relay.sigmoid, "sigmoid"), (relay.exp, "exp"),
            (relay.abs, "abs"), (lambda x: relay.clip(x, -0.5, 0.25), "clip"),
            (lambda x: nn.leaky_relu(x, 0.1), "nn.leaky_relu"),
        ):  # fmt: skip
            grid.add(f"{name} of rank {rank}", op(grid.input(*shape)), name)
        for op, name in ((relay.log, "log"), (relay.sqrt, "sqrt")):
            grid.add(f"{name} of rank {rank}", op(grid.input(*shape, low=0.1, high=9)), name)
        grid.add(f"add of rank {rank}", grid.input(*shape) + grid.input(*shape), "add")
        grid.add(f"multiply of rank {rank}", grid.input(*shape) * grid.input(*shape), "multiply")
        for axis in range(-1, rank):
            if rank:
                one = nn.softmax(grid.input(*shape, low=-5, high=5), axis)
                grid.add(f"softmax of rank {rank}, axis {axis}", one, "nn.softmax")
    for low, high in ((-3.4028234663852886e38, 0.5), (-0.5, 3.4028234663852886e38), (-math.inf, math.inf)):
        grid.add(f"clip {low} {high}", relay.clip(grid.input(4, 4), low, high), "clip")
    grid.check(partition)


def test_layer_normalisation(grid, partition):
    """The operator (which normalising takes apart), and the arithmetic of ONNX exporters."""
    for shape in ((4, 8), (2, 3, 16), (1, 2, 3, 8), (2, 2, 2, 2, 4)):
        one = nn.layer_norm(grid.input(*shape), grid.constant(shape[-1]), grid.constant(shape[-1]), epsilon=1e-5)
        grid.add(f"layer_norm {shape}", one, "dnnl.layer_norm")
        x = grid.input(*shape)
        mean = relay.mean(x, -1, keepdims=True)
        centred = x - mean
        variance = relay.mean(relay.power(centred, relay.const(2.0)), -1, keepdims=True)
        one = centred / relay.sqrt(variance + relay.const(1e-6))
        one = one * grid.constant(shape[-1]) + grid.constant(shape[-1])
        grid.add(f"exported layer_norm {shape}", one, "dnnl.layer_norm")
    grid.check(partition)


def test_normalisation_operators(grid, collage_library):
    """Without the normalising pass, which takes them apart, the operators themselves are taken."""
    from collage import library, transform

    library.load()
    for shape in ((4, 8), (2, 3, 16), (2, 2, 2, 2, 4)):
        for axis in (-1, len(shape) - 1):
            one = nn.layer_norm(
                grid.input(*shape),
                grid.constant(shape[-1]),
                grid.constant(shape[-1]),
                axis=axis,
                epsilon=1e-4,
            )
            grid.add(f"layer_norm {shape} {axis}", one, "nn.layer_norm")
    for shape in ((4, 8), (2, 8, 5), (2, 8, 5, 6), (2, 8, 3, 4, 5)):
        one = nn.batch_norm(
            grid.input(*shape),
            grid.constant(8),
            grid.constant(8),
            grid.constant(8),
            grid.constant(8, low=0.1),
            epsilon=1e-3,
        )
        grid.add(f"batch_norm {shape}", one[0], "dnnl.batch_norm")
    last = nn.batch_norm(
        grid.input(2, 5, 6, 8),
        grid.constant(8),
        grid.constant(8),
        grid.constant(8),
        grid.constant(8, low=0.1),
        axis=3,
    )
    grid.add("batch_norm of the last axis", last[0])
    grid.check(transform.CollagePartition(backends=["tvm", "dnnl"], only="dnnl"))


def test_refused(grid, partition):
    """What the library cannot do, or does otherwise than TVM, stays with TVM and is right."""
    half = grid.input(2, 8, dtype="float16")
    grid.add("float16", nn.relu(half))
    whole = grid.input(2, 8, dtype="int32", low=-9, high=9)
    grid.add("int32", whole + whole)
    grid.add("round", relay.round(grid.input(64, low=-4, high=4) * relay.const(2.0)), "multiply")
    strange = relay.sum(grid.input(2, 3, 4), axis=(0, 2))
    grid.add("sum over axes apart", strange)
    turned = relay.image.resize2d(grid.input(1, 2, 4, 4), (6, 6), method="nearest_neighbor")
    grid.add("nearest by a broken factor", turned)
    one = nn.adaptive_avg_pool2d(grid.input(2, 5, 7, 9), (2, 2))
    grid.add("uneven adaptive pool", one)
    one = nn.batch_matmul(grid.input(4, 5, 6), grid.input(1, 7, 6))
    grid.add("batch_matmul with one batch of weights", one)
    grid.check(partition)


def test_bias_traps(grid, partition):
    """Addends that have as many values as there are channels but lie along another axis."""
    for name, shape in (("width", (8,)), ("height", (8, 1)), ("one value", (1,)), ("batch", (2, 8, 1, 1))):
        one = convolve(grid, 2, (2, 6, 8, 8), 8, (3, 3), padding=(1, 1))
        grid.add(f"conv2d along {name}", one + grid.constant(*shape), "nn.conv2d", "add")
    one = nn.dense(grid.input(8, 6), grid.constant(8, 6), units=8)
    grid.add("dense along rows", one + grid.constant(8, 1), "nn.dense", "add")
    # Two layers on one input that is also what is added.
    x = grid.input(4, 16)
    one = nn.dense(x, grid.constant(16, 16), units=16)
    grid.add("dense and its own input", one + x, "dnnl.dense_sum")
    grid.check(partition)


def test_broadcasts(grid, partition):
    """Operands of every shape that broadcasts, on both sides."""
    shapes = (
        ((2, 8, 4, 4), (8, 1, 1)), ((2, 8, 4, 4), (1, 8, 4, 4)), ((2, 8, 4, 4), (4,)),
        ((2, 8, 4, 4), (2, 1, 1, 4)), ((2, 8, 4, 4), (1,)), ((2, 8, 4, 4), ()), ((3, 1, 5), (1, 4, 1)),
        ((6, 1), (1, 7)), ((1, 1), (3, 5)),
        ((2, 3, 4, 5, 2, 2), (4, 1, 2, 1)),
    )  # fmt: skip
    for name, op in (
        ("add", relay.add), ("subtract", relay.subtract), ("multiply", relay.multiply),
        ("divide", relay.divide), ("maximum", relay.maximum), ("minimum", relay.minimum),
    ):  # fmt: skip
        for one, other in shapes:
            for left, right in ((one, other), (other, one)):
                value = op(grid.input(*left), grid.input(*right, low=0.5, high=2.0))
                grid.add(f"{name} {left} {right}", value, name)
            number = relay.const(3.0)
            grid.add(f"{name} {one} number", op(grid.input(*one), number), name)
            grid.add(f"{name} number {one}", op(number, grid.input(*one, low=0.5, high=2.0)), name)
    for axis in (0, 1, 2, -1):
        data = grid.input(2, 3, 4, 5)
        length = (2, 3, 4, 5)[axis]
        grid.add(f"bias_add {axis}", nn.bias_add(data, grid.constant(length), axis=axis), "add")
    grid.check(partition)


def test_reductions(grid, partition):
    shape = (2, 3, 4, 5)
    for name, op in (("sum", relay.sum), ("mean", relay.mean), ("max", relay.max), ("min", relay.min)):
        for axis in (None, 0, 1, 3, (1, 2), (2, 3), (-2, -1), (0, 1, 2)):
            for keepdims in (False, True):
                one = op(grid.input(*shape), axis=axis, keepdims=keepdims)
                grid.add(f"{name} {axis} {keepdims}", one, name)
        grid.add(f"{name} but one", op(grid.input(*shape), axis=0, exclude=True), name)
        grid.add(f"{name} of many", op(grid.input(3, 1000), axis=1), name)
    for axis in (-1, 1, (1, 2)):
        for unbiased in (False, True):
            one = relay.variance(grid.input(*shape), axis=axis, keepdims=True, unbiased=unbiased)
            grid.add(f"variance {axis} {unbiased}", one, "mean", "variance")
    grid.check(partition)


def test_shapes(grid, partition):
    grid.add("reshape", relay.reshape(grid.input(2, 3, 4), (6, 4)), "reshape")
    grid.add("flatten", nn.batch_flatten(grid.input(2, 3, 4)), "nn.batch_flatten")
    grid.add("squeeze", relay.squeeze(grid.input(2, 1, 4)), "squeeze")
    grid.add("expand_dims", relay.expand_dims(grid.input(2, 4), 1, 2), "expand_dims")
    for axes in ((1, 0, 2), (2, 0, 1), (0, 2, 1), None):
        grid.add(f"transpose {axes}", relay.transpose(grid.input(2, 3, 4), axes), "transpose")
    grid.add("transpose 4", relay.transpose(grid.input(2, 3, 4, 5), (0, 2, 3, 1)), "transpose")
    for axis in (0, 1, -1):
        parts = [grid.input(2, 3, 4), grid.constant(2, 3, 4), grid.input(2, 3, 4)]
        grid.add(f"concatenate {axis}", relay.concatenate(parts, axis), "concatenate")
    parts = [grid.input(1, c, 5, 5) for c in (3, 16, 5, 1)]
    grid.add("concatenate channels", relay.concatenate(parts, 1), "concatenate")
    grid.check(partition)


def test_resizing(grid, partition):
    for layout, data in (("NCHW", (2, 5, 4, 6)), ("NHWC", (2, 4, 6, 5))):
        for scale in (2, 3):
            one = nn.upsampling(grid.input(*data), scale, scale, layout=layout, method="nearest_neighbor")
            grid.add(f"upsampling {layout} {scale}", one, "nn.upsampling")
        spatial = data[2:] if layout == "NCHW" else data[1:3]
        for mode, rounding in (
            ("asymmetric", "floor"),
            ("half_pixel", "round"),
            ("half_pixel", "round_prefer_ceil"),
        ):
            one = relay.image.resize2d(
                grid.input(*data), [2 * d for d in spatial], layout=layout, method="nearest_neighbor",
                coordinate_transformation_mode=mode, rounding_method=rounding,
            )  # fmt: skip
            grid.add(f"resize {layout} {mode} {rounding}", one, "image.resize2d")
        for size in ([2 * d for d in spatial], [d + 3 for d in spatial], [d - 1 for d in spatial]):
            one = relay.image.resize2d(
                grid.input(*data), size, layout=layout, method="linear",
                coordinate_transformation_mode="half_pixel",
            )  # fmt: skip
            grid.add(f"resize linear {layout} {size}", one, "image.resize2d")
    grid.check(partition)


def test_winograd(collage_library):
    """Winograd convolutions; placements take them where they are measured to be faster."""
    grid = Grid()
    install()
    regions = []
    for batch, inputs, channels, size, padding in (
        (1, 16, 16, 8, 1), (2, 32, 48, 14, 1), (1, 64, 64, 56, 1), (1, 17, 33, 7, 0), (3, 16, 64, 5, 1),
        (1, 128, 32, 2, 1),
    ):  # fmt: skip
        for name in ("", "_relu", "_bias", "_bias_relu", "_bias_sum_relu", "_sum", "_bias_gelu"):
            data = grid.input(batch, inputs, size, size)
            weight = grid.constant(channels, inputs, 3, 3, low=-0.2, high=0.2)
            arguments = [data, weight]
            if "bias" in name:
                arguments.append(channel_bias(grid, 2, channels))
            if "sum" in name:
                arguments.append(grid.input(batch, channels, size + 2 * padding - 2, size + 2 * padding - 2))

            def body(x, w, *addends, name=name, padding=padding, channels=channels):
                one = nn.conv2d(x, w, channels=channels, kernel_size=(3, 3), padding=(padding,) * 2)
                for addend in addends:
                    one = one + addend
                activation = name.rsplit("_", 1)[-1]
                return ACTIVATIONS[activation](one) if activation in ACTIVATIONS else one

            case = f"winograd {batch} {inputs} {channels} {size}{name}"
            grid.add(case, body(*arguments), rtol=1e-3, atol=1e-4)
            regions.append(region(f"r{len(regions)}", f"native.winograd_conv2d{name}", body, *arguments))
    module = tvm.IRModule.from_expr(relay.Function(list(grid.inputs), relay.Tuple(regions)))
    grid.check(lambda _: relay.transform.InferType()(module))


def install():
    """Make the code generator known, as the first partitioning does."""
    from collage import library

    library.load()
    library.install("collage_dnnl")
